"""Bad input ends in scikit-learn's own error, whatever `on_fallback` says."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from class_cases import case_of
from gpu_oracle import original
from test_gpu_containers import each_class
from test_gpu_every_class import fit

pytestmark = pytest.mark.gpu


def _with(value: float) -> Callable[[Any, Any], tuple[Any, Any]]:
    def spoil(X: Any, y: Any) -> tuple[Any, Any]:
        X = X.copy()
        X[5, 1] = value
        return X, y

    return spoil


BAD_FITS: dict[str, Callable[[Any, Any], tuple[Any, Any]]] = {
    "NaN in X": _with(np.nan),
    "infinity in X": _with(-np.inf),
    "X of one dimension": lambda X, y: (X[:, 0], y),
    "X of three dimensions": lambda X, y: (X[:, :, None], y),
    "no rows": lambda X, y: (X[:0], y[:0]),
    "no columns": lambda X, y: (X[:, :0], y),
    "strings": lambda X, y: (X.astype(str).astype(object) + "x", y),
    "complex numbers": lambda X, y: (X + 1j, y),
    "ragged lists": lambda X, y: ([[1.0], [1.0, 2.0]], y[:2]),
    "X is None": lambda X, y: (None, y),
    "y too short": lambda X, y: (X, y[:-1]),
    "y is None": lambda X, y: (X, None),
    "NaN in y": lambda X, y: (X, np.where(np.arange(len(y)) == 3, np.nan, y)),
    "y of three dimensions": lambda X, y: (X, np.ones((len(y), 2, 2))),
    "y of continuous numbers": lambda X, y: (X, y + 0.5),
    "y of one class": lambda X, y: (X, np.zeros(len(y), int)),
    "y of mixed types": lambda X, y: (X, np.array([1, "a"] * (len(y) // 2), dtype=object)),
}


def outcome(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    try:
        function(*args, **kwargs)
    except Exception as error:
        return type(error), str(error)
    return None


@each_class
@pytest.mark.parametrize("fault", BAD_FITS)
def test_a_bad_fit_raises_scikit_learns_error(cls: Any, fault: str, on_gpu: Any) -> None:
    on_gpu.expected = False
    case = case_of(cls)
    X, y = BAD_FITS[fault](*case.data()[:2])
    expected = outcome(original(cls, case).fit, X, y)
    est = cls(**case.parameters)
    if expected is not None:  # raised even where a fallback would
        assert outcome(est.fit, X, y) == expected
        assert not hasattr(est, "n_features_in_") or fault not in ("no rows", "no columns")
    with on_gpu.allowed():
        assert outcome(cls(**case.parameters).fit, X, y) == expected


#: Methods that read new data and nothing else.
READERS = ("predict", "predict_proba", "decision_function", "transform", "kneighbors")

BAD_CALLS: dict[str, Callable[[Any], Any]] = {
    "NaN": lambda new: np.where(np.arange(new.shape[1]) == 1, np.nan, new),
    "too few features": lambda new: new[:, :-1],
    "too many features": lambda new: np.c_[new, new],
    "one dimension": lambda new: new[0],
    "no rows": lambda new: new[:0],
    "strings": lambda new: new.astype(str).astype(object) + "x",
    "None": lambda new: None,
}


@each_class
@pytest.mark.parametrize("fault", BAD_CALLS)
def test_a_bad_call_raises_scikit_learns_error(cls: Any, fault: str, on_gpu: Any) -> None:
    on_gpu.expected = False
    case = case_of(cls)
    data = case.data()
    new = BAD_CALLS[fault](data.new)
    actual, expected = cls(**case.parameters), original(cls, case)
    fit(actual, data)
    fit(expected, data)
    for name in READERS:
        if not hasattr(expected, name):
            continue
        error = outcome(getattr(expected, name), new)
        if error is not None:
            assert outcome(getattr(actual, name), new) == error
        else:
            with on_gpu.allowed():
                assert outcome(getattr(actual, name), new) is None


@each_class
def test_an_unfitted_estimator_raises_scikit_learns_error(cls: Any, on_gpu: Any) -> None:
    on_gpu.expected = False
    case = case_of(cls)
    new = case.data().new
    for name in (
        "predict",
        "predict_proba",
        "transform",
        "kneighbors",
        "score",
        "inverse_transform",
    ):
        if hasattr(original(cls, case), name):
            arguments = (new, new[:, 0]) if name == "score" else (new,)
            expected = outcome(getattr(original(cls, case), name), *arguments)
            assert expected is not None
            assert outcome(getattr(cls(**case.parameters), name), *arguments) == expected


@each_class
def test_an_unknown_hyperparameter_value_raises_scikit_learns_error(cls: Any, on_gpu: Any) -> None:
    on_gpu.expected = False
    case = case_of(cls)
    X, y = case.data()[:2]
    for parameter in original(cls, case).get_params():
        given = {**case.parameters, parameter: object()}
        expected = outcome(cls._accelsk_original(**given).fit, X, y)
        with on_gpu.allowed():
            actual = outcome(cls(**given).fit, X, y)
        assert (actual and actual[0]) == (expected and expected[0]), parameter
        if expected is not None:
            assert actual[1].partition(" Got ")[0] == expected[1].partition(" Got ")[0]


@pytest.mark.parametrize(
    "weight",
    [np.ones(3), -np.ones(200), np.zeros(200), np.full(200, np.nan), np.ones((200, 2)), "abc"],
    ids=["short", "negative", "zero", "NaN", "two columns", "a string"],
)
@each_class
def test_a_bad_sample_weight_ends_as_in_scikit_learn(cls: Any, weight: Any, on_gpu: Any) -> None:
    on_gpu.expected = False
    case = case_of(cls)
    X, y = case.data()[:2]
    expected = outcome(original(cls, case).fit, X, y, sample_weight=weight)
    with on_gpu.allowed():
        assert outcome(cls(**case.parameters).fit, X, y, sample_weight=weight) == expected
