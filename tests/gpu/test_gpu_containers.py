"""Input of every dtype, layout and container, and what comes back."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from class_cases import case_of
from gpu_oracle import assert_same, assert_same_methods, original, outcomes
from scipy import sparse
from test_gpu_every_class import fit

import accelsk
from accelsk.cluster import DBSCAN, KMeans
from accelsk.decomposition import PCA
from accelsk.ensemble import RandomForestClassifier, RandomForestRegressor
from accelsk.linear_model import LinearRegression, LogisticRegression, Ridge
from accelsk.neighbors import KNeighborsClassifier, NearestNeighbors

pytestmark = pytest.mark.gpu

CLASSES = (
    DBSCAN,
    KMeans,
    PCA,
    RandomForestClassifier,
    RandomForestRegressor,
    LinearRegression,
    LogisticRegression,
    Ridge,
    KNeighborsClassifier,
    NearestNeighbors,
)
each_class = pytest.mark.parametrize("cls", CLASSES, ids=lambda cls: cls.__name__)


def _strided(X: np.ndarray) -> np.ndarray:
    wide = np.full((2 * len(X), 3 * X.shape[1]), np.nan, X.dtype)
    wide[::2, ::3] = X
    return wide[::2, ::3]


def _read_only(X: np.ndarray) -> np.ndarray:
    X = X.copy()
    X.flags.writeable = False
    return X


CONVERSIONS: dict[str, Callable[[np.ndarray], Any]] = {
    "float32": lambda X: X.astype(np.float32),
    "float16": lambda X: X.astype(np.float16),
    "int64": lambda X: (X * 1e6).astype(np.int64),
    "int32": lambda X: (X * 1e5).astype(np.int32),
    "int8": lambda X: (X * 5).astype(np.int8),
    "uint8": lambda X: np.abs(X * 5).astype(np.uint8),
    "bool": lambda X: X > np.median(X, axis=0),  # noqa: SIM300
    "longdouble": lambda X: X.astype(np.longdouble),
    "big-endian": lambda X: X.astype(">f8"),
    "fortran": np.asfortranarray,
    "strided": _strided,
    "reversed": lambda X: X[::-1, ::-1][::-1, ::-1],
    "read-only": _read_only,
    "list": lambda X: X.tolist(),
    "tuples": lambda X: tuple(map(tuple, X.tolist())),
}

#: Where neighbours tie, or scikit-learn is less exact itself.
INEXACT = ("float32", "float16", "bool", "int8", "uint8")

#: Where the dtype of a result may be one that the device lacks.
RARE = ("float16", "longdouble")


@each_class
@pytest.mark.parametrize("conversion", CONVERSIONS)
def test_any_numeric_input_gives_scikit_learns_result(
    cls: Any, conversion: str, on_gpu: Any
) -> None:
    case = case_of(cls)
    if conversion in INEXACT:
        case = replace(case, rtol=max(case.rtol, 1e-5))
    if cls is LogisticRegression and "int" in conversion:
        pytest.skip("the optimum of unscaled data is not found by either")
    convert = CONVERSIONS[conversion]
    data = case.data()
    data = data._replace(X=convert(data.X), new=convert(data.new))
    actual, expected = cls(**case.parameters), original(cls, case)
    with on_gpu.allowed() if conversion in RARE else nullcontext():
        fit(actual, data)
    fit(expected, data)
    with accelsk.config_context(on_fallback="log"):
        results = outcomes(actual, data)
    exact = not case.approximate and conversion not in INEXACT
    assert_same_methods(results, outcomes(expected, data), case, values=exact)
    plain = accelsk.to_sklearn(actual)
    ties = conversion in ("bool", "int8", "uint8")
    assert_same_methods(results, outcomes(plain, data), case, values=not ties)
    on_gpu.expected = conversion not in RARE


@each_class
@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_frames_keep_their_feature_names(cls: Any, library: str) -> None:
    frames = pytest.importorskip(library)
    case = case_of(cls)
    data = case.data()
    names = [f"f{i}" for i in range(data.X.shape[1])]

    def frame(X: np.ndarray) -> Any:
        return frames.DataFrame(dict(zip(names, X.T.copy(), strict=True)))

    framed = data._replace(X=frame(data.X), new=frame(data.new), y=frames.Series(data.y))
    actual, expected = cls(**case.parameters), original(cls, case)
    fit(actual, framed)
    fit(expected, framed)
    assert_same(actual.feature_names_in_, expected.feature_names_in_, 0)
    with accelsk.config_context(on_fallback="log"):
        results = outcomes(actual, framed)
        values = not case.approximate
        assert_same_methods(results, outcomes(expected, framed), case, values=values)
        wrong = framed._replace(new=framed.new[names[::-1]])
        assert_same_methods(outcomes(actual, wrong), outcomes(expected, wrong), case, values=values)


@each_class
def test_new_data_without_feature_names_warns_as_scikit_learn_does(cls: Any) -> None:
    pandas = pytest.importorskip("pandas")
    case = case_of(cls)
    data = case.data()
    frame = pandas.DataFrame(data.X, columns=[f"f{i}" for i in range(data.X.shape[1])])
    actual = cls(**case.parameters).fit(frame, data.y)
    for name in ("predict", "transform", "kneighbors"):
        if hasattr(actual, name):
            with pytest.warns(UserWarning, match="does not have valid feature names"):
                getattr(actual, name)(data.new)


@each_class
def test_cupy_in_gives_cupy_out_and_numpy_attributes(cls: Any) -> None:
    import cupy

    case = case_of(cls)
    data = case.data()
    on_device = data._replace(X=cupy.asarray(data.X), new=cupy.asarray(data.new))
    actual, host = cls(**case.parameters), cls(**case.parameters)
    actual.fit(on_device.X, cupy.asarray(data.y))
    fit(host, data)
    for name in ("predict", "predict_proba", "decision_function", "transform", "kneighbors"):
        if not hasattr(actual, name):
            continue
        result, expected = getattr(actual, name)(on_device.new), getattr(host, name)(data.new)
        if not isinstance(result, tuple):
            result, expected = (result,), (expected,)
        for left, right in zip(result, expected, strict=True):
            assert isinstance(left, cupy.ndarray)
            values = not case.approximate
            assert_same(left.get(), right, case.method_rtol or case.rtol, name, values=values)
    for name, value in vars(host).items():
        if name.endswith("_") and isinstance(value, np.ndarray):
            assert type(getattr(actual, name)) is np.ndarray, name


@each_class
def test_cupy_in_gives_cupy_out_where_the_call_falls_back(cls: Any, on_gpu: Any) -> None:
    import cupy

    case = case_of(cls)
    data = case.data()
    actual = cls(**case.parameters).fit(cupy.asarray(data.X), cupy.asarray(data.y))
    with accelsk.config_context(device="cpu"):
        for name in ("predict", "transform", "predict_proba"):
            if hasattr(actual, name):
                assert isinstance(getattr(actual, name)(cupy.asarray(data.new)), cupy.ndarray)


@each_class
def test_sparse_input_is_left_to_scikit_learn(cls: Any, on_gpu: Any) -> None:
    case = case_of(cls)
    data = case.data()
    X = sparse.csr_matrix(np.where(np.abs(data.X) > 1, data.X, 0))
    with on_gpu.falls_back("X is sparse"):
        actual = cls(**case.parameters).fit(X, data.y)
    expected = original(cls, case).fit(X, data.y)
    for name in set(vars(expected)) - set(case.parameters):
        if name.endswith("_") and isinstance(getattr(expected, name), np.ndarray):
            assert_same(getattr(actual, name), getattr(expected, name), 1e-9, name)


@each_class
def test_one_row_of_new_data(cls: Any) -> None:
    case = case_of(cls)
    data = case.data()
    data = data._replace(new=data.new[:1], new_y=data.new_y[:1])
    actual = cls(**case.parameters)
    fit(actual, data)
    plain = accelsk.to_sklearn(actual)
    with accelsk.config_context(on_fallback="log"):
        assert_same_methods(outcomes(actual, data), outcomes(plain, data), case)


@each_class
@pytest.mark.parametrize("shape", [(1, 4), (0, 4), (200, 1), (200, 0)], ids=str)
def test_extreme_shapes_end_as_in_scikit_learn(
    cls: Any, shape: tuple[int, int], on_gpu: Any
) -> None:
    case = case_of(cls)
    X = np.random.default_rng(0).normal(size=shape)
    y = np.arange(len(X)) % 2
    data = case.data()._replace(X=X, y=y, new=X[:20], new_y=y[:20])
    on_gpu.expected = False
    found = []
    with on_gpu.allowed():
        for est in (cls(**case.parameters), original(cls, case)):
            try:
                fit(est, data)
            except Exception as error:
                found.append((type(error), str(error)))
            else:
                found.append(outcomes(est, data))
    if isinstance(found[1], tuple):
        assert found[0] == found[1]
    else:
        assert_same_methods(*found, case, values=not case.approximate)


@each_class
@pytest.mark.parametrize("output", ["pandas", "polars"])
def test_set_output_gives_frames(cls: Any, output: str) -> None:
    pytest.importorskip(output)
    case = case_of(cls)
    data = case.data()
    actual, expected = cls(**case.parameters), original(cls, case)
    fit(actual, data)
    fit(expected, data)
    if hasattr(expected, "set_output"):
        left = actual.set_output(transform=output).transform(data.new)
        right = expected.set_output(transform=output).transform(data.new)
        assert_same(left, right, case.rtol)
