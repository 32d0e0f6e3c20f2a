"""Covariance estimators from moments, on NumPy in CuPy's place."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
import sklearn.covariance
from alike import assert_alike, device, same  # noqa: F401
from hypothesis import given, settings
from hypothesis import strategies as st

import accelsk
from accelsk import covariance
from accelsk.algorithms.covariance import fourth_powers, squared_lengths
from accelsk.algorithms.moments import Accumulator

RNG = np.random.RandomState(0)
ROWS = RNG.randn(300, 6) @ RNG.randn(6, 6) + 5
DTYPES = [np.float64, np.float32, np.int64]
CLASSES = ("EmpiricalCovariance", "ShrunkCovariance", "LedoitWolf", "OAS")


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("assume_centered", [False, True])
@pytest.mark.parametrize("store_precision", [False, True])
@pytest.mark.parametrize("name", CLASSES)
def test_covariances_are_scikit_learns(name, store_precision, assume_centered, dtype):
    X = (ROWS * 10).astype(dtype)
    options = {"store_precision": store_precision, "assume_centered": assume_centered}
    ours = getattr(covariance, name)(**options).fit(X)
    theirs = getattr(sklearn.covariance, name)(**options).fit(X)
    rtol = 1e-3 if dtype == np.float32 else 1e-9
    same(ours.mahalanobis(X), theirs.mahalanobis(X), rtol)
    same(ours.score(X), theirs.score(X), max(rtol, 1e-4))
    assert_alike(ours, theirs)
    for norm in ("frobenius", "spectral"):
        found, expected = (e.error_norm(np.eye(6), norm) for e in (ours, theirs))
        assert found == pytest.approx(expected, rel=1e-4)
    again = pickle.loads(pickle.dumps(ours))
    assert again.mahalanobis(X) == pytest.approx(ours.mahalanobis(X))


@pytest.mark.parametrize(
    "X",
    [np.zeros((9, 3)), np.full((9, 3), 0.1), ROWS[:, :1], ROWS[:4], np.eye(5)],
    ids=["zero", "constant", "column", "wide", "identity"],
)
@pytest.mark.parametrize("name", CLASSES)
def test_covariances_of_degenerate_rows(name, X):
    ours = getattr(covariance, name)().fit(X)
    theirs = getattr(sklearn.covariance, name)().fit(X)
    if (X == 0.1).all():  # scikit-learn's is of rounding errors, of which it makes an inverse
        assert np.abs(ours.covariance_).max() < 1e-30
    else:
        assert_alike(ours, theirs, rtol=1e-6)


@pytest.mark.parametrize("shrinkage", [0, 0.3, 1.0])
@pytest.mark.parametrize("dtype", DTYPES)
def test_shrinkage_is_as_asked_for(dtype, shrinkage):
    X = (ROWS * 10).astype(dtype)
    ours = covariance.ShrunkCovariance(shrinkage=shrinkage).fit(X)
    assert_alike(ours, sklearn.covariance.ShrunkCovariance(shrinkage=shrinkage).fit(X))


@pytest.mark.parametrize("name", CLASSES)
def test_covariances_of_float32_have_the_digits_of_float64(name):
    X = (RNG.randn(2000, 8) * np.geomspace(0.1, 100, 8) + 10).astype(np.float32)
    ours = getattr(covariance, name)().fit(X)
    theirs = getattr(sklearn.covariance, name)().fit(X.astype(np.float64))
    rtol = 1e-9 if ours.covariance_.dtype == np.float64 else 2e-7
    np.testing.assert_allclose(ours.covariance_, theirs.covariance_, rtol=rtol, atol=rtol * 1e4)


@pytest.mark.parametrize("name", CLASSES)
def test_half_precision_is_left_to_scikit_learn(name):
    with pytest.raises(accelsk.exceptions.FallbackError, match="half"):
        getattr(covariance, name)().fit(ROWS.astype(np.float16))


@pytest.mark.parametrize("name", CLASSES)
@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_covariances_say_scikit_learns_errors(name, bad):
    X = ROWS.copy()
    X[7, 2] = bad
    with pytest.raises(ValueError, match=r"contains (NaN|infinity)"):
        getattr(covariance, name)().fit(X)
    est = getattr(covariance, name)().fit(ROWS)
    for method in (est.score, est.mahalanobis):
        with pytest.raises(ValueError, match=r"contains (NaN|infinity)"):
            method(X)
        with pytest.raises(ValueError, match="features"):
            method(X[:, 3:])


@pytest.mark.parametrize("name", CLASSES)
def test_covariances_keep_a_memory_limit(name):
    X = RNG.randn(5000, 12) + 3
    with accelsk.config_context(device_memory_limit=50_000):
        ours = getattr(covariance, name)().fit(X)
        assert_alike(ours, getattr(sklearn.covariance, name)().fit(X))


def test_first_rows_far_from_the_others_cost_no_digits():
    X = RNG.randn(6000, 5)
    X[:1500] += 1e5
    X[0] -= 1e9
    ours = covariance.LedoitWolf().fit(X)
    theirs = sklearn.covariance.LedoitWolf().fit(X)
    assert_alike(ours, theirs, 1e-9, 0)


@settings(max_examples=50, deadline=None)
@given(
    n=st.integers(2, 60),
    d=st.integers(1, 8),
    offset=st.sampled_from([0.0, 1.0, 1e3]),
    seed=st.integers(0, 99),
)
def test_fourth_moments_are_those_about_the_mean(n, d, offset, seed):
    X = np.random.RandomState(seed).randn(n, d) * 2 + offset
    shift = X[: max(1, n // 3)].mean(axis=0)
    moments = Accumulator(np, (shift, np.zeros(1)))
    for block in np.array_split(X, 3):
        if len(block):
            moments.add(block, squared_lengths(block, shift))
    expected = (((X - X.mean(axis=0)) ** 2).sum(axis=1) ** 2).sum()
    np.testing.assert_allclose(fourth_powers(moments.result(), shift), expected, rtol=1e-9)
