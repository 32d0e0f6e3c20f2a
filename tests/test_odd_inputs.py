"""What few people pass gives scikit-learn's result, or scikit-learn's error, and its warnings.

Two ways: with the rules of accelsk's engines and a hidden instance of scikit-learn's class for the
computation, which is every class; and with the engines themselves on the double of CuPy, which is
those that need neither kernels nor cuML.

A run tries a share of the inputs on each class; with ``ODD_INPUTS=all`` in the environment, all.
"""

from __future__ import annotations

import copy
import functools
import inspect
import os
import zlib
from collections.abc import Callable, Iterator
from typing import Any

import device_double
import numpy as np
import pytest
from class_cases import Data, all_classes, case_of, key_of
from engine import GenericEngine
from odd_outcomes import Outcome, differences, outcome

import accelsk
from accelsk.dispatch import method_of
from accelsk.engines.base import Call, fits
from accelsk.planning import plan

pytest.importorskip("pandas")

from odd_inputs import (
    DTYPES,
    LAYOUTS,
    NARROW,
    ODD_WEIGHTS,
    ODD_X,
    ODD_Y,
    OVERFLOWING,
    Conversion,
)

_CLASSES = {key: cls for key, cls in all_classes().items() if case_of(cls).data().X is not None}
every_class = pytest.mark.parametrize("key", _CLASSES)

#: One in so many inputs is tried on a class; fewer where scikit-learn takes its time.
_SHARE = {"umap.UMAP": 40, "manifold.TSNE": 20}
_USUAL_SHARE = 8

#: What scikit-learn itself does not come back from: it loops or the process ends.
_FATAL = {
    "cluster.AgglomerativeClustering": {"huge", "one huge"},
    "cluster.HDBSCAN": {"huge", "one huge"},
    "hdbscan.HDBSCAN": {"huge", "one huge"},
    "manifold.TSNE": {
        "all rows alike",
        "beyond float32",
        "constant",
        "int64 beyond 2**53",
        "negative zeros",
        "one huge",
        "subnormal",
        "tiny",
        "zeros",
    },
    "naive_bayes.CategoricalNB": {"largest int64", "largest uint64"},
    "svm.LinearSVC": {"huge", "tiny"},
    "svm.LinearSVR": {"huge", "tiny"},
}

#: Hyperparameters with which scikit-learn is done in time.
_QUICK: dict[str, dict[str, Any]] = {
    "linear_model.ElasticNetCV": {"cv": 2, "alphas": [1.0, 0.1]},
    "linear_model.LarsCV": {"cv": 2},
    "linear_model.LassoCV": {"cv": 2, "alphas": [1.0, 0.1]},
    "linear_model.LassoLarsCV": {"cv": 2},
    "linear_model.OrthogonalMatchingPursuitCV": {"cv": 2},
    "manifold.TSNE": {"perplexity": 4.0, "max_iter": 250},
    "svm.LinearSVC": {"tol": 1e-6, "max_iter": 10_000},
    "svm.LinearSVR": {"tol": 1e-6, "max_iter": 10_000},
    "umap.UMAP": {"n_epochs": 5, "init": "random"},
}

#: Inputs that faults were found with, tried in every run.
_FOUND = {
    "cluster.SpectralClustering": {"huge", "one huge"},
    "manifold.TSNE": {"list", "tuples"},
    "svm.SVC": {"strided"},
    "svm.SVR": {"strided"},
}

_TIES = "rows at the same distance"
_BOOLS = ("bool", "frame of bool", "list of bools")
_FAR = "it stops short of an optimum that is far off"
_SUMS = "its sums of integers wrap round"
_STOPS = "in float32 its descent does not get there"
_ALIKE = ("all rows alike", "constant", "negative zeros", "zeros")
_ALPHAS = "every alpha leaves the same errors"
_BEYOND = "its transform reads on beyond the end of the rows that it was fitted to"

#: Where scikit-learn's answer is no measure, by class and input.
_NO_MEASURE: dict[str, dict[str, str]] = {
    "cluster.KMeans": dict.fromkeys(_BOOLS, _TIES),
    "cluster.SpectralClustering": dict.fromkeys((*_BOOLS, *DTYPES), _TIES),
    "decomposition.PCA": dict.fromkeys(
        ("CSR with zeros", "broadcast", "more columns than rows", "two rows"),
        "components of no variance",
    ),
    "hdbscan.HDBSCAN": dict.fromkeys(
        ("memory map, read-only", "read-only"), "it cannot read from memory that it cannot write to"
    ),
    "kernel_ridge.KernelRidge": {"field of records": "scipy's solver reads y in wrong steps"},
    "linear_model.ElasticNet": {
        "constant": "up to 1.6 it warns in other words where it has a Gram matrix",
        **dict.fromkeys(NARROW, _STOPS),
    },
    "linear_model.Lasso": dict.fromkeys(NARROW, _STOPS),
    "linear_model.LinearRegression": {"all zero but one": "the rank of rounding errors"},
    "linear_model.LogisticRegression": {
        "all zero but one": "there is no minimum to get to",
        "far from zero": _FAR,
        "zero for every third": "there is no minimum to get to",
    },
    "linear_model.RidgeCV": dict.fromkeys(_ALIKE, _ALPHAS),
    "linear_model.RidgeClassifierCV": dict.fromkeys((*_ALIKE, "two rows"), _ALPHAS),
    "manifold.SpectralEmbedding": {
        "more columns than rows": "the graph is in parts",
        **dict.fromkeys(DTYPES, _TIES),
    },
    "naive_bayes.ComplementNB": {"largest int64": _SUMS},
    "naive_bayes.MultinomialNB": {"largest int64": _SUMS},
    "svm.LinearSVC": {"far from zero": _FAR},
    "svm.LinearSVR": {"far from zero": _FAR},
    "umap.UMAP": dict.fromkeys(("more columns than rows", "the same column twice"), _BEYOND),
}


_READ_FRAMES = {
    "linear_model.RidgeCV",
    "preprocessing.OneHotEncoder",
    "preprocessing.TargetEncoder",
}


class RuledEngine(GenericEngine):
    """Takes the calls that an accelerated class's own engines take."""

    def __init__(self, cls: Any) -> None:
        super().__init__(cls._accelsk_original)
        self._engines = cls._accelsk_engines
        self.methods = tuple(dict.fromkeys(n for e in self._engines for n in e.methods))

    def refusals(self, call: Call) -> Iterator[str]:
        reasons: list[str] = []
        for engine in self._engines:
            if call.method in engine.methods:
                try:
                    found = [*engine.refusals(call)]
                except Exception as error:
                    found = [str(error)]
                if not found:
                    return
                reasons += found
        yield from reasons


@pytest.fixture
def ruled(monkeypatch: pytest.MonkeyPatch, key: str) -> Any:
    """Have a class run by its own rules, on a hidden instance of scikit-learn's."""
    if key in _READ_FRAMES:
        pytest.skip("reads a frame otherwise than the array that the hidden instance gets")
    cls = _CLASSES[key]
    monkeypatch.setattr(cls, "_accelsk_engines", (RuledEngine(cls),))
    return cls


@pytest.fixture
def on_double(monkeypatch: pytest.MonkeyPatch, key: str) -> Any:
    """Have a class run by its own engines on the double of CuPy."""
    device_double.install(monkeypatch)
    cls = _CLASSES[key]
    with accelsk.profile(quiet=True) as results:
        outcome(cls(**_parameters(cls)).fit, **_given(cls, "fit", _data(cls).X, _y_of(cls)))
    if any(stats.cpu_calls for stats in results.method_calls.values()):
        pytest.skip("its engine needs cuML or kernels of its own")
    return cls


def _parameters(cls: Any) -> dict[str, Any]:
    return {**case_of(cls).parameters, **_QUICK.get(key_of(cls), {})}


@functools.cache
def _data(cls: Any) -> Data:
    X, y, new, new_y, codes = case_of(cls).data()
    return Data(X[:60], y[:60], new[:12], None if new_y is None else new_y[:12], codes)


def _odd(
    cls: Any, conversions: dict[str, Conversion], data: np.ndarray, what: str
) -> Iterator[tuple[str, Callable[[], Any]]]:
    """Yield the names of odd inputs, and what makes them anew."""
    key = key_of(cls)
    share = 1 if os.environ.get("ODD_INPUTS") == "all" else _SHARE.get(key, _USUAL_SHARE)
    first = zlib.crc32(f"{key} {what}".encode()) % share
    chosen = {*list(conversions)[first::share], *_FOUND.get(key, ())}
    for name in chosen - _FATAL.get(key, set()) - _NO_MEASURE.get(key, {}).keys():
        try:
            conversions[name](data.copy())
        except (KeyError, TypeError, ValueError, IndexError, OverflowError):
            continue  # such data have no such form
        yield name, lambda name=name: conversions[name](data.copy())


def _length(X: Any) -> int | None:
    try:
        return X.shape[0] if hasattr(X, "shape") else len(X)
    except (TypeError, IndexError):
        return None


def _rows_of(X: Any, y: Any) -> Any:
    """Return as many of `y` as there are rows."""
    n_rows = _length(X)
    return y if y is None or n_rows is None or n_rows > len(y) else y[:n_rows]


def _attributes(est: Any) -> dict[str, Any]:
    if hasattr(est, "_accelsk_fetch"):
        est._accelsk_fetch()
    return {name: value for name, value in vars(est).items() if name[-1] == "_" != name[0]}


def _tolerance(cls: Any, name: str) -> float:
    case = case_of(cls)
    return max(case.rtol, case.method_rtol or 0, 3e-3 if name in NARROW else 1e-7)


def _unlike_fits(cls: Any, name: str, arguments: Callable[[], dict[str, Any]]) -> str | None:
    """Return in what a fit differs from scikit-learn's, or None."""
    case, parameters, rtol = case_of(cls), _parameters(cls), _tolerance(cls, name)
    ours, theirs = cls(**parameters), cls._accelsk_original(**parameters)
    found = [outcome(est.fit, **arguments()) for est in (ours, theirs)]
    values = not case.approximate and name not in OVERFLOWING
    if (unlike := differences(*found, rtol, values=values)) is not None or found[1].error:
        return unlike
    left, right = _attributes(ours), _attributes(theirs)
    if left.keys() - case.absent.keys() != right.keys() - case.absent.keys():
        return f"attributes: {left.keys() ^ right.keys()}"
    for attribute in right.keys() - case.absent.keys():
        pair = (Outcome(one[attribute], None, []) for one in (left, right))
        exact = values and attribute not in case.vague
        if (unlike := differences(*pair, rtol, values=exact)) is not None:
            return f"{attribute}: {unlike}"
    return None


def _takes(cls: Any, method: str, name: str) -> bool:
    return name in inspect.signature(getattr(cls._accelsk_original, method)).parameters


def _y_of(cls: Any) -> Any:
    return _data(cls).y if _takes(cls, "fit", "y") else None


def _given(cls: Any, method: str, X: Any, y: Any) -> dict[str, Any]:
    return {"X": X} if y is None or not _takes(cls, method, "y") else {"X": X, "y": y}


def _assert_none(found: dict[str, str | None]) -> None:
    unlike = {name: text for name, text in found.items() if text is not None}
    assert not unlike, "\n" + "\n".join(f"{name}: {text}" for name, text in unlike.items())


def _fits_to_odd_rows(cls: Any) -> None:
    y, found = _y_of(cls), {}
    for name, make in _odd(cls, ODD_X, _data(cls).X, "X"):
        found[name] = _unlike_fits(
            cls, name, lambda make=make: _given(cls, "fit", X := make(), _rows_of(X, y))
        )
    _assert_none(found)


def _fits_to_odd_targets(cls: Any) -> None:
    X, y = _data(cls).X, _y_of(cls)
    if y is None or not cls(**_parameters(cls)).__sklearn_tags__().target_tags.required:
        pytest.skip("needs no target")
    found = {
        name: _unlike_fits(cls, name, lambda make=make: {"X": X, "y": make()})
        for name, make in _odd(cls, ODD_Y, y, "y")
    }
    _assert_none(found)


def _fits_with_odd_weights(cls: Any) -> None:
    if not _takes(cls, "fit", "sample_weight"):
        pytest.skip("takes no weights")
    X, y = _data(cls).X, _y_of(cls)
    weight = np.random.default_rng(0).uniform(0.5, 2, len(X))
    found = {
        name: _unlike_fits(
            cls, name, lambda make=make: _given(cls, "fit", X, y) | {"sample_weight": make()}
        )
        for name, make in _odd(cls, ODD_WEIGHTS, weight, "weights")
    }
    _assert_none(found)


def _methods_on_odd_rows(cls: Any) -> None:
    data, y = _data(cls), _y_of(cls)
    ours = cls(**_parameters(cls)).fit(**_given(cls, "fit", data.X, y))
    ours._accelsk_fetch()
    theirs = accelsk.to_sklearn(copy.copy(ours))
    names = dict.fromkeys(name for engine in cls._accelsk_engines for name in engine.methods)
    found = {}
    for method in names:
        if fits(method) or not _takes(cls, method, "X") or not hasattr(theirs, method):
            continue
        rows = theirs.transform(data.new) if method == "inverse_transform" else data.new
        if not isinstance(rows, np.ndarray):
            continue
        for name, make in _odd(cls, ODD_X, rows, method):
            pair = [
                outcome(
                    getattr(est, method),
                    **_given(cls, method, X := make(), _rows_of(X, data.new_y)),
                )
                for est in (ours, theirs)
            ]
            values = name not in OVERFLOWING
            found[f"{method}, {name}"] = differences(*pair, _tolerance(cls, name), values=values)
    _assert_none(found)


@every_class
def test_rules_let_through_what_scikit_learn_takes_as_rows(ruled):
    _fits_to_odd_rows(ruled)


@every_class
def test_rules_let_through_what_scikit_learn_takes_as_a_target(ruled):
    _fits_to_odd_targets(ruled)


@every_class
def test_rules_let_through_what_scikit_learn_takes_as_weights(ruled):
    _fits_with_odd_weights(ruled)


@every_class
def test_rules_let_through_what_scikit_learn_takes_after_a_fit(ruled):
    _methods_on_odd_rows(ruled)


@every_class
def test_an_engine_fits_odd_rows_as_scikit_learn_does(on_double):
    _fits_to_odd_rows(on_double)


@every_class
def test_an_engine_fits_an_odd_target_as_scikit_learn_does(on_double):
    _fits_to_odd_targets(on_double)


@every_class
def test_an_engine_takes_odd_weights_as_scikit_learn_does(on_double):
    _fits_with_odd_weights(on_double)


@every_class
def test_an_engine_answers_for_odd_rows_as_scikit_learn_does(on_double):
    _methods_on_odd_rows(on_double)


@every_class
def test_how_rows_lie_in_memory_keeps_no_call_off_the_gpu(key):
    cls = _CLASSES[key]
    est, X, y = cls(**_parameters(cls)), _data(cls).X, _y_of(cls)
    if (fit := method_of(cls, "fit")) is None:
        pytest.skip("draws at random, whatever X is")
    whole = ("int8", "uint8", "int32", "int64", "uint64")

    def reasons(rows: Any) -> tuple[str, ...]:
        return plan(est, fit, (), _given(cls, "fit", rows, y), assume_usable=True).reasons

    forms = {**LAYOUTS, **{name: DTYPES[name] for name in whole}}
    found = {name: reasons(convert(X.copy())) for name, convert in forms.items()}
    assert found == dict.fromkeys(forms, reasons(X))


#: Hyperparameters and a method of classes that have room for as many columns as there are.
_MANY_COLUMNS: dict[str, tuple[dict[str, Any], str]] = {
    "cluster.KMeans": ({"n_clusters": 2, "random_state": 0}, "predict"),
    "decomposition.PCA": ({}, "transform"),
    "decomposition.TruncatedSVD": ({}, "transform"),
    "linear_model.LinearRegression": ({}, "predict"),
    "linear_model.Ridge": ({}, "predict"),
    "naive_bayes.BernoulliNB": ({}, "predict_proba"),
    "naive_bayes.GaussianNB": ({}, "predict_proba"),
    "preprocessing.MaxAbsScaler": ({}, "transform"),
    "preprocessing.MinMaxScaler": ({}, "transform"),
    "preprocessing.StandardScaler": ({}, "transform"),
    "random_projection.SparseRandomProjection": (
        {"n_components": 10, "random_state": 0},
        "transform",
    ),
}


@pytest.mark.parametrize("key", _MANY_COLUMNS)
def test_100_000_columns_give_what_scikit_learn_gives(key, monkeypatch):
    device_double.install(monkeypatch)
    cls, (parameters, method) = _CLASSES[key], _MANY_COLUMNS[key]
    X = np.random.default_rng(0).integers(0, 9, (6, 100_000)).astype(np.float64)
    y = np.arange(6) % 2
    with accelsk.config_context(device="gpu", device_memory_limit=1 << 30):
        ours = cls(**parameters).fit(X, y)
        theirs = cls._accelsk_original(**parameters).fit(X, y)
        pair = [outcome(getattr(est, method), X) for est in (ours, theirs)]
    assert differences(*pair, 1e-6) is None
