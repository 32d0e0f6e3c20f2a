"""Errors, and what is left after them, are scikit-learn's own in every mode."""

from __future__ import annotations

import numpy as np
import pytest
from comparison import assert_same, fitted, outcome_of
from engine import GENERIC, AcceleratedLine, Line, LineOnNumpy, engine_of
from sklearn.cluster import KMeans
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.neighbors import KNeighborsClassifier
from sklearn.svm import SVC

import accelsk
import accelsk.linear_model
from accelsk.device import probe
from accelsk.engines.base import Outcome
from accelsk.exceptions import FallbackError, Invalid, Refusal

# scikit-learn words the errors

_BAD_CALLS = {
    "hyperparameter of a wrong type": lambda est, X, y: est.set_params(shrinkage="x").fit(X, y),
    "hyperparameter out of range": lambda est, X, y: est.set_params(forbidden=3).fit(X, y),
    "unknown hyperparameter": lambda est, X, y: est.set_params(nonsense=3),
    "NaN": lambda est, X, y: est.fit(np.where(X > 1, np.nan, X), y),
    "infinity": lambda est, X, y: est.fit(X * np.inf, y),
    "y of another length": lambda est, X, y: est.fit(X, y[:-1]),
    "1d X": lambda est, X, y: est.fit(X[:, 0], y),
    "3d X": lambda est, X, y: est.fit(X[None], y),
    "no rows": lambda est, X, y: est.fit(X[:0], y[:0]),
    "no y": lambda est, X, y: est.fit(X),
    "y is None": lambda est, X, y: est.fit(X, None),
    "unknown argument": lambda est, X, y: est.fit(X, y, nonsense=1),
    "X is None": lambda est, X, y: est.fit(None, y),
    "X is text": lambda est, X, y: est.fit("X", y),
    "X of strings": lambda est, X, y: est.fit(X.astype(str).astype(object) + "a", y),
    "complex X": lambda est, X, y: est.fit(X * 1j, y),
    "predict with NaN": lambda est, X, y: est.fit(X, y).predict(X * np.nan),
    "predict with other features": lambda est, X, y: est.fit(X, y).predict(X[:, :2]),
    "predict in 1d": lambda est, X, y: est.fit(X, y).predict(X[0]),
    "predict without data": lambda est, X, y: est.fit(X, y).predict(),
    "predict unfitted": lambda est, X, y: est.predict(X),
    "property unfitted": lambda est, X, y: est.importances_,
    "attribute unfitted": lambda est, X, y: est.coef_,
    "unknown attribute": lambda est, X, y: est.fit(X, y).nonsense_,
}


class _Line(Line):
    """`Line` under the name of the accelerated class, as it stands in messages."""


_Line.__name__ = _Line.__qualname__ = "AcceleratedLine"


#: Types that scikit-learn alone can read: an engine does not know that it rejects them.
_OPEN = {"X is text", "X of strings"}


@pytest.mark.parametrize(
    ("bad", "mode"),
    [(bad, "log") for bad in _BAD_CALLS]
    + [(bad, "raise") for bad in _BAD_CALLS if bad not in _OPEN],
)
def test_errors_are_those_of_scikit_learn(bad, mode, data):
    call = _BAD_CALLS[bad]
    _, theirs, _ = outcome_of(lambda: call(_Line(), *data))
    with accelsk.config_context(on_fallback=mode):
        _, ours, _ = outcome_of(lambda: call(AcceleratedLine(), *data))
    assert theirs is not None
    assert (ours[0], ours[1]) == (
        theirs[0],
        theirs[1].replace("_Line.", "Line.").replace("test_dispatch", "engine"),
    )


#: What can be told from types and shapes, without running anything.
_PLANNED = [
    "hyperparameter of a wrong type",
    "hyperparameter out of range",
    "1d X",
    "3d X",
    "no rows",
    "no y",
    "unknown argument",
    "X is None",
    "complex X",
    "predict unfitted",
]


@pytest.mark.parametrize("bad", _PLANNED)
def test_errors_are_those_of_scikit_learn_where_no_gpu_is_usable(bad, data):
    engine_of(AcceleratedLine).off = "no GPU"
    call = _BAD_CALLS[bad]
    _, theirs, _ = outcome_of(lambda: call(_Line(), *data))
    with accelsk.config_context(on_fallback="raise"):
        _, ours, _ = outcome_of(lambda: call(AcceleratedLine(), *data))
    assert theirs is not None
    assert ours[0] == theirs[0]


@pytest.mark.parametrize(
    ("call", "error"),
    [
        (lambda X, y: accelsk.linear_model.Ridge().fit(X, y[:3]), ValueError),
        (lambda X, y: accelsk.linear_model.Ridge(alpha="a").fit(X, y), ValueError),
        (lambda X, y: accelsk.linear_model.Ridge().predict(X), NotFittedError),
        (lambda X, y: accelsk.linear_model.Ridge().fit(X, y), FallbackError),
    ],
)
def test_without_a_gpu_a_bad_call_is_told_from_a_good_one(call, error, data, monkeypatch):
    monkeypatch.setattr(probe, "_disabled", "no GPU")
    with accelsk.config_context(on_fallback="raise"), pytest.raises(error):
        call(*data)


@pytest.mark.parametrize("bad", [name for name in _BAD_CALLS if "predict" not in name])
def test_earlier_fit_survives_a_bad_one_as_in_scikit_learn(bad, data):
    X, y = data
    ours, theirs = AcceleratedLine().fit(X, y), _Line().fit(X, y)
    for estimator in (ours, theirs):
        outcome_of(lambda estimator=estimator: _BAD_CALLS[bad](estimator, X * 2, y))
        estimator.set_params(shrinkage=0.0, forbidden=False)
    if "attribute" not in bad and "property" not in bad:
        assert_same(fitted(ours), fitted(theirs))
        again = [outcome_of(lambda e=e: e.predict(X)) for e in (ours, theirs)]
        assert_same(again[0][0], again[1][0])


_BAD_FOR = [
    (Ridge, {"alpha": -1}),
    (Ridge, {"solver": "magic"}),
    (LogisticRegression, {"C": 0}),
    (LogisticRegression, {"solver": "liblinear", "l1_ratio": 3}),
    (KMeans, {"n_clusters": 0}),
    (KMeans, {"n_clusters": 1000}),
    (KNeighborsClassifier, {"n_neighbors": 0}),
    (SVC, {"kernel": "nonsense"}),
]


@pytest.mark.parametrize("mode", ["log", "warn", "raise"])
@pytest.mark.parametrize(("original", "parameters"), _BAD_FOR)
def test_invalid_hyperparameters_of_scikit_learn(original, parameters, mode, labelled):
    X, y = labelled
    y = (y == "above").astype(float) if original is Ridge else y
    _, theirs, _ = outcome_of(lambda: original(**parameters).fit(X, y))
    with accelsk.config_context(on_fallback=mode):
        _, ours, _ = outcome_of(lambda: GENERIC[original](**parameters).fit(X, y))
    assert theirs is not None
    assert ours == theirs


def test_invalid_call_that_scikit_learn_takes_after_all_is_a_fallback(data):
    engine_of(AcceleratedLine).failing = {"fit": Refusal(Invalid("looks bad"))}
    line = AcceleratedLine()
    with accelsk.config_context(on_fallback="raise"), pytest.raises(FallbackError):
        line.fit(*data)
    assert_same(line.coef_, Line().fit(*data).coef_)


def test_hyperparameters_go_unchecked_where_the_user_says_so(data):
    import sklearn

    with sklearn.config_context(skip_parameter_validation=True):
        GENERIC[Ridge](copy_X="yes").fit(*data)
    assert engine_of(GENERIC[Ridge]).counts["fit"] == 1


def test_unfitted_predict_raises_not_fitted_error(data):
    for mode in ("log", "warn", "raise"):
        with (
            accelsk.config_context(on_fallback=mode),
            pytest.raises(NotFittedError, match="not fitted yet"),
        ):
            AcceleratedLine().predict(data[0])


# Feature names


def test_feature_names_are_kept_and_checked(data):
    pd = pytest.importorskip("pandas")
    X, y = data
    frame = pd.DataFrame(X, columns=["a", "b", "c"])
    for X_fit, X_new in [
        (frame, X),
        (X, frame),
        (frame, frame[["b", "a", "c"]]),
        (frame, frame.rename(columns={"a": "z"})),
        (frame, frame),
        (frame.rename(columns={"a": 0, "b": 1, "c": 2}), X),
        (frame.rename(columns={"a": 0}), X),
    ]:
        runs = []
        for cls in (AcceleratedLine, _Line):
            estimator = cls()
            fit = outcome_of(lambda e=estimator, X_fit=X_fit: e.fit(X_fit, y))
            predict = outcome_of(lambda e=estimator, X_new=X_new: e.predict(X_new))
            names = getattr(estimator, "feature_names_in_", None)
            runs.append((fit[1:], predict[1:], None if names is None else list(names)))
            result = predict[0]
            runs.append(None if result is None else result.round(9).tolist())
        assert runs[:2] == runs[2:]


def test_names_of_mixed_types_raise_before_an_engine_runs(data):
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame(data[0], columns=["a", 1, 2])
    with (
        accelsk.config_context(on_fallback="raise"),
        pytest.raises(TypeError, match="feature names"),
    ):
        AcceleratedLine().fit(frame, data[1])
    assert not engine_of(AcceleratedLine).counts


def test_foreign_class_gets_no_attribute_that_its_own_fit_does_not_set(data):
    from sklearn.base import BaseEstimator

    class Bare(BaseEstimator):
        def fit(self, X):
            self.total_ = np.asarray(X).sum()
            return self

        def predict(self, X):
            return np.asarray(X).sum() - self.total_

    class BareEngine(LineOnNumpy):
        methods = ("fit", "predict")
        rules = ()

        def compute(self, call, model):
            total = call.X.array.sum()
            return Outcome(total - model) if model is not None else Outcome(model=total)

        def attributes(self, estimator, model):
            return {"total_": model}

    bare = accelsk.register(Bare, [BareEngine()])().fit(data[0])
    assert bare.predict(data[0]) == 0
    assert engine_of(bare).counts == {"fit": 1, "predict": 1}
    assert fitted(bare).keys() == {"total_"}
