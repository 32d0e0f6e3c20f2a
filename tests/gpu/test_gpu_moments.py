"""The tests of moments, least squares and scalers once more, on a real device; and large data."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
import sklearn.linear_model
import sklearn.preprocessing
from test_least_squares import *  # noqa: F403

import accelsk
from accelsk import linear_model, preprocessing
from accelsk.algorithms import fused
from accelsk.algorithms.class_moments import ClassAccumulator, GroupAccumulator
from accelsk.algorithms.moments import Accumulator
from accelsk.device.transfer import to_device

pytestmark = pytest.mark.gpu

LONG, WIDTH = 150_000, 40


@pytest.fixture(autouse=True)
def device(on_gpu) -> Iterator[None]:
    """No double takes the device's place; some tests here expect an error and nothing else."""
    on_gpu.expected = False
    with accelsk.config_context(device="gpu", on_fallback="raise"):
        yield


@pytest.fixture(scope="module")
def long():
    """Data of several blocks: float32 with column means of 10 and a condition number of 1e4."""
    rng = np.random.default_rng(0)
    basis, _ = np.linalg.qr(rng.normal(size=(WIDTH, WIDTH)))
    X = (rng.normal(size=(LONG, WIDTH)) * np.geomspace(1, 1e-4, WIDTH)) @ basis + 10
    X = X.astype(np.float32)
    y = X.astype(np.float64) @ rng.normal(size=(WIDTH, 2)) + rng.normal(size=(LONG, 2))
    return X, y, rng.uniform(0.5, 2, LONG)


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_moments_of_long_data(long, order, weighted, dtype):
    import cupy

    X, y, weight = long
    X = np.array(X, dtype, order=order)
    weight = weight if weighted else None
    on_device = [None if a is None else to_device(a) for a in (X, y, weight)]
    accumulator, expected = Accumulator(cupy), Accumulator(np)
    for start in range(0, LONG, 40_000):
        rows = slice(start, start + 40_000)
        accumulator.add(*(None if a is None else a[rows] for a in on_device))
    expected.add(X, y, weight)
    found, expected = accumulator.result(host=True), expected.result()
    for name in ("X_mean", "Y_mean", "YY", "weight"):
        np.testing.assert_allclose(getattr(found, name), getattr(expected, name), rtol=1e-12)
    for name in ("gram", "XY"):
        largest = np.abs(getattr(expected, name)).max()
        np.testing.assert_allclose(
            getattr(found, name), getattr(expected, name), rtol=0, atol=1e-12 * largest
        )


def test_moments_of_classes_of_long_data(long):
    import cupy

    X, y, weight = long
    codes = np.random.default_rng(1).integers(0, 3, LONG).astype(np.int32)
    on_device = [to_device(a) for a in (X, codes, weight)]
    for keep in ("squares", "within"):
        found, expected = ClassAccumulator(cupy, 3, keep), ClassAccumulator(np, 3, keep)
        found.add(*on_device)
        expected.add(X, codes, weight)
        for one, other in zip(found.result().on_host(), expected.result(), strict=True):
            if other is not None:
                np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-9)
    groups, expected = GroupAccumulator(cupy, 3), GroupAccumulator(np, 3)
    groups.add(on_device[0], on_device[1], to_device(y), on_device[2])
    expected.add(X, codes, y, weight)
    for one, other in zip(groups.result(), expected.result(), strict=True):
        assert one.n_samples == other.n_samples
        np.testing.assert_allclose(one.on_host().gram, other.gram, rtol=0, atol=1e-9)


@pytest.mark.parametrize("name", ["LinearRegression", "Ridge"])
def test_coefficients_of_ill_conditioned_float32_data(long, name):
    X, y, weight = long
    ours = getattr(linear_model, name)().fit(X.astype(np.float64), y, weight)
    theirs = getattr(sklearn.linear_model, name)().fit(X.astype(np.float64), y, weight)
    bound = 1e-9 * np.abs(theirs.coef_).max()
    np.testing.assert_allclose(ours.coef_, theirs.coef_, rtol=1e-9, atol=bound)
    np.testing.assert_allclose(ours.intercept_, theirs.intercept_, rtol=1e-9)
    narrow = getattr(linear_model, name)().fit(X, y, weight)
    assert narrow.coef_.dtype == np.float32
    np.testing.assert_allclose(narrow.coef_, theirs.coef_, rtol=2e-7, atol=bound)
    with accelsk.config_context(device_memory_limit=8 << 20):
        limited = getattr(linear_model, name)().fit(X.astype(np.float64), y, weight)
    np.testing.assert_allclose(limited.coef_, theirs.coef_, rtol=1e-9, atol=bound)
    np.testing.assert_allclose(ours.predict(X), theirs.predict(X), rtol=1e-6)
    assert ours.score(X, y) == pytest.approx(theirs.score(X.astype(np.float64), y), rel=1e-9)


@pytest.mark.parametrize("name", ["StandardScaler", "MinMaxScaler", "MaxAbsScaler"])
@pytest.mark.parametrize("order", ["C", "F"])
def test_scalers_of_long_data(long, name, order):
    X = np.array(long[0], np.float64, order=order) + 1e4
    X[::7, 3] = np.nan
    ours, theirs = getattr(preprocessing, name)(), getattr(sklearn.preprocessing, name)()
    ours.fit(X)
    theirs.fit(X)
    for attribute in (a for a in vars(theirs) if a.endswith("_")):
        expected = getattr(theirs, attribute)
        np.testing.assert_allclose(getattr(ours, attribute), expected, rtol=1e-9)
    np.testing.assert_allclose(ours.transform(X), theirs.transform(X), rtol=1e-7, atol=1e-7)
    np.testing.assert_allclose(ours.fit_transform(X), theirs.transform(X), rtol=1e-7, atol=1e-7)


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.int64, np.uint8, bool])
@pytest.mark.parametrize("order", ["C", "F"])
def test_fused_steps_are_those_of_numpy(dtype, order):
    import cupy

    rng = np.random.default_rng(0)
    X = np.array(rng.normal(size=(501, 7)) * 9, dtype, order=order)
    if X.dtype.kind == "f":
        X[rng.random(X.shape) < 0.1] = np.nan
    shift, predicted = rng.normal(size=7), rng.normal(size=(501, 7)).astype(np.float32)
    X_there, shift_there, predicted_there = map(cupy.asarray, (X, shift, predicted))
    found = fused.about(X_there, shift_there, cupy).get()
    np.testing.assert_allclose(found, fused.about(X, shift, np), rtol=1e-14)
    found = fused.errors(X_there, predicted_there, shift_there, cupy).get()
    np.testing.assert_allclose(found, fused.errors(X, predicted, shift, np), rtol=1e-14)


def test_memory_is_bounded_by_the_limit(long):
    import cupy

    pool = cupy.get_default_memory_pool()
    X = np.concatenate([long[0]] * 4)
    y = np.concatenate([long[1]] * 4)
    pool.free_all_blocks()
    before = pool.total_bytes()
    with accelsk.config_context(device_memory_limit=16 << 20):
        linear_model.Ridge().fit(X, y)
    assert X.nbytes > 32 << 20
    assert pool.total_bytes() - before < 48 << 20
