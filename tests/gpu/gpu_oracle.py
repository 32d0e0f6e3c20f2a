"""Results of accelsk against those of scikit-learn, by type, dtype, shape and value."""

from __future__ import annotations

import inspect
import numbers
import warnings
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from class_cases import Case, Data
from scipy import sparse
from sklearn.base import BaseEstimator

__all__ = ["Raised", "assert_same", "assert_same_methods", "fitted_names", "original", "outcomes"]

#: Public methods that need no more than data, fitted or new.
_METHODS = (
    "predict",
    "predict_proba",
    "predict_log_proba",
    "decision_function",
    "transform",
    "inverse_transform",
    "score",
    "score_samples",
    "kneighbors",
    "kneighbors_graph",
    "radius_neighbors",
    "apply",
    "get_covariance",
    "get_precision",
    "mahalanobis",
    "get_feature_names_out",
)


def original(cls: Any, case: Case, **parameters: Any) -> Any:
    """Return scikit-learn's estimator of an accelerated class, for `case`."""
    return cls._accelsk_original(**{**case.parameters, **parameters})


def fitted_names(est: Any) -> list[str]:
    """Return the public fitted attributes, properties included."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return [
            name
            for name in dir(est)
            if name.endswith("_") and name[0] != "_" and hasattr(est, name)
        ]


@dataclass(frozen=True)
class Raised:
    """An error instead of a result."""

    kind: type
    text: str = field(repr=True)


def outcomes(est: Any, data: Data, names: tuple[str, ...] = _METHODS) -> dict[str, Any]:
    """Return what the methods of a fitted estimator give for new data, errors included."""
    found: dict[str, Any] = {}
    for name in names:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                method = getattr(est, name)
                found[name] = method(**_arguments(method, name, data, found))
            except Exception as error:
                found[name] = Raised(type(error), str(error))
    return found


def _arguments(method: Any, name: str, data: Data, found: dict[str, Any]) -> dict[str, Any]:
    given = {"X": data.new, "Z": data.new, "y": data.new_y, "X_test": data.new}
    if name == "inverse_transform":
        given["X"] = given["Z"] = given["y"] = data.codes if data.X is None else found["transform"]
    if data.X is None:
        given["y"] = given["y"] if name == "inverse_transform" else data.new
    if name == "radius_neighbors":
        given["sort_results"] = True  # their order is open otherwise
    parameters = inspect.signature(method).parameters
    return {key: value for key, value in given.items() if key in parameters and value is not None}


def assert_same_methods(
    actual: dict[str, Any], expected: dict[str, Any], case: Case, *, values: bool = True
) -> None:
    """Compare two results of `outcomes`; where not `values`, by type, dtype and shape only."""
    assert list(actual) == list(expected)
    for name, right in expected.items():
        rtol = case.method_rtol or case.rtol
        assert_same(actual[name], right, rtol, name, values=values and name not in case.vague)


def assert_same(
    actual: Any,
    expected: Any,
    rtol: float,
    name: str = "result",
    *,
    values: bool = True,
    shape: bool = True,
) -> None:
    """Assert the same type, dtype, shape and value.

    Parameters
    ----------
    rtol : float
        For float32 it is no less than 1e-5. The unit of absolute errors is the largest finite
        absolute value of `expected`.
    name : str
        What is compared, for the message.
    values : bool
    shape : bool
        Whether shapes are compared or the number of dimensions only.
    """
    assert type(actual) is type(expected), f"{name}: {_show(actual)} is not {_show(expected)}"
    if isinstance(expected, Raised):
        assert actual == expected, f"{name}: {actual} is not {expected}"
    elif sparse.issparse(expected):
        assert actual.format == expected.format, name
        assert_same(actual.toarray(), expected.toarray(), rtol, name, values=values, shape=shape)
    elif isinstance(expected, (np.ndarray, np.generic)):
        assert actual.dtype == expected.dtype, f"{name}: {actual.dtype} not {expected.dtype}"
        if shape or values:
            assert actual.shape == expected.shape, f"{name}: {actual.shape} not {expected.shape}"
        assert actual.ndim == expected.ndim, name
        if values and expected.dtype == object and expected.size:
            assert_same(actual.tolist(), expected.tolist(), rtol, name)
        elif values:
            _assert_close(actual, expected, rtol, name)
    elif isinstance(expected, (list, tuple)):
        assert len(actual) == len(expected), f"{name}: {len(actual)} not {len(expected)} items"
        for i, (left, right) in enumerate(zip(actual, expected, strict=True)):
            assert_same(left, right, rtol, f"{name}[{i}]", values=values, shape=shape)
    elif isinstance(expected, numbers.Number) and values:
        _assert_close(np.asarray(actual), np.asarray(expected), rtol, name)
    elif isinstance(expected, (str, dict)) and values:
        assert actual == expected, name
    elif hasattr(expected, "columns"):
        if hasattr(expected, "columns"):  # the trees of hdbscan have none
            assert list(actual.columns) == list(expected.columns), name
        assert_same(actual.to_numpy(), expected.to_numpy(), rtol, name, values=values)


def _assert_close(actual: np.ndarray, expected: np.ndarray, rtol: float, name: str) -> None:
    if expected.dtype.kind not in "fc":
        np.testing.assert_array_equal(actual, expected, err_msg=name)
        return
    if expected.dtype.itemsize < 8:
        rtol = max(rtol, 1e-5)
    finite = np.abs(expected[np.isfinite(expected)])
    scale = float(finite.max()) if finite.size else 1.0
    np.testing.assert_allclose(actual, expected, rtol=rtol, atol=rtol * scale, err_msg=name)


def _show(value: Any) -> str:
    text = repr(value) if not isinstance(value, BaseEstimator) else type(value).__name__
    return f"{type(value).__module__}.{type(value).__qualname__} {text[:200]}"
