"""A CUDA error that takes the GPU away costs models that were there alone, and they say so."""

from __future__ import annotations

import copy
import pickle
import sys
import threading
from contextlib import contextmanager
from types import ModuleType, SimpleNamespace

import joblib
import numpy as np
import pytest
from comparison import assert_same, fitted
from engine import (
    ENGINES,
    GENERIC,
    ILLEGAL_ADDRESS,
    AcceleratedLine,
    AcceleratedNearestMean,
    FakeCudaError,
    GenericEngine,
    Line,
    LineOnNumpy,
    NearestMean,
    engine_of,
)
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, KFold, cross_val_predict, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import accelsk
import accelsk.model_selection
import accelsk.pipeline
from accelsk.device import probe
from accelsk.device.errors import loses_gpu
from accelsk.engines.base import Outcome
from accelsk.estimator import DeviceState
from accelsk.exceptions import LostModelError

_POISON = FakeCudaError(ILLEGAL_ADDRESS)


@pytest.fixture(autouse=True)
def _a_gpu(monkeypatch):
    """Have a GPU to lose, and no model on it but those of the test."""
    gpu = probe.GPU("A GPU", (9, 0), (13, 0), 1 << 37)
    monkeypatch.setattr(probe, "_found", (gpu, None))
    for state in DeviceState._every():
        state.moved = True


def _fail(estimator_or_class, *steps, error=_POISON):
    engine_of(estimator_or_class).failing = dict.fromkeys(steps, error)


@pytest.fixture
def lost(data):
    """A model that is lost, attributes and all."""
    line = AcceleratedLine().fit(*data)
    _fail(line, "predict", "attributes")
    with pytest.raises(LostModelError):
        line.predict(data[0])
    return line


@contextmanager
def _raises_lost(text):
    """Expect a `LostModelError`; pipelines of scikit-learn before 1.8 say that they are not fitted.

    What it came of stands in the traceback then.
    """
    with pytest.raises(NotFittedError) as caught:
        yield
    error = caught.value
    error = error if isinstance(error, LostModelError) else error.__cause__
    assert isinstance(error, LostModelError)
    for part in (text, "illegal memory access", "Fit it again"):
        assert part in str(error)


# The GPU


def test_the_gpu_is_out_of_use_with_one_warning(data, caplog):
    line = AcceleratedLine().fit(*data)
    others = [AcceleratedLine().fit(*data) for _ in range(3)]
    _fail(line, "predict", "attributes", "fit")
    with caplog.at_level("WARNING", "accelsk"):
        for estimator in (line, *others):
            with pytest.raises(LostModelError):
                estimator.predict(data[0])
        AcceleratedLine().fit(*data).predict(data[0])
    assert len(caplog.records) == 1
    assert "out of use in this process" in caplog.text
    assert "illegal memory access" in probe.unusable()
    assert not accelsk.enabled()


def test_threads_that_fail_at_once_warn_once(data, caplog):
    lines = [AcceleratedLine().fit(*data) for _ in range(8)]
    _fail(AcceleratedLine, "predict", "attributes")
    found = []

    def predict(line):
        try:
            line.predict(data[0])
        except Exception as error:
            found.append(type(error))

    with caplog.at_level("WARNING", "accelsk"):
        threads = [threading.Thread(target=predict, args=(line,)) for line in lines]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert found == [LostModelError] * 8
    assert len(caplog.records) == 1


@pytest.mark.parametrize("method", ["fit", "predict"])
def test_calls_go_on_in_scikit_learn(method, data):
    line, plain = AcceleratedLine().fit(*data), Line().fit(*data)
    _ = line.coef_
    _fail(line, method, "attributes", "restore")
    calls = {"fit": lambda e: e.fit(*data).coef_, "predict": lambda e: e.predict(data[0])}
    with accelsk.profile(quiet=True) as results:
        for _ in range(3):
            assert_same(calls[method](line), calls[method](plain))
    stats = results.method_calls[f"Line.{method}"]
    assert (stats.gpu_calls, stats.cpu_calls) == (0, 3)
    assert any("illegal memory access" in reason for reason in stats.fallback_reasons)
    assert engine_of(line).counts[method] == (2 if method == "fit" else 1)


_AFTERWARDS = "CUBLAS_STATUS_EXECUTION_FAILED"


@pytest.mark.parametrize(
    ("error", "answers", "expected"),
    [
        (RuntimeError(_AFTERWARDS), [False, False], True),
        (RuntimeError(_AFTERWARDS), [True], False),
        (RuntimeError(_AFTERWARDS), [False, True], False),  # it told of another error, once
        (RuntimeError("boom"), [], False),
        (ValueError("n_clusters"), [], False),
    ],
)
def test_where_an_error_does_not_tell_the_device_is_asked(error, answers, expected, monkeypatch):
    answers = iter(answers)

    def synchronize():
        if not next(answers):
            raise FakeCudaError("cudaErrorUnknown")

    cupy = ModuleType("cupy")
    cupy.cuda = SimpleNamespace(runtime=SimpleNamespace(deviceSynchronize=synchronize))
    monkeypatch.setitem(sys.modules, "cupy", cupy)
    assert loses_gpu(error) is expected
    assert next(answers, None) is None
    assert (probe.unusable() is not None) is expected


@pytest.mark.parametrize("cupy", [ModuleType("cupy"), None])
def test_a_device_that_cannot_be_asked_is_left_alone(cupy, monkeypatch):
    monkeypatch.setitem(sys.modules, "cupy", cupy)
    assert not loses_gpu(RuntimeError(_AFTERWARDS))


def test_a_device_out_of_use_is_not_asked(monkeypatch):
    cupy = ModuleType("cupy")
    cupy.cuda = SimpleNamespace(runtime=SimpleNamespace(deviceSynchronize=pytest.fail))
    monkeypatch.setitem(sys.modules, "cupy", cupy)
    probe.disable("CUDA cannot be used in a forked process")
    assert not loses_gpu(RuntimeError(_AFTERWARDS))


# What can still be had


def test_attributes_that_were_fetched_stay(data):
    line, plain = AcceleratedLine().fit(*data), Line().fit(*data)
    _ = line.coef_
    _fail(line, "predict", "attributes", "restore")
    for _ in range(2):
        assert_same(line.predict(data[0]), plain.predict(data[0]))
    assert_same(fitted(line), fitted(plain))
    assert_same(pickle.loads(pickle.dumps(line)).predict(data[0]), plain.predict(data[0]))
    line.coef_ = plain.coef_ = np.ones(3)
    assert_same(line.predict(data[0]), plain.predict(data[0]))


def test_attributes_that_an_engine_has_on_the_host_can_be_had(data):
    line, plain = AcceleratedLine().fit(*data), Line().fit(*data)
    _fail(line, "predict")
    assert_same(line.predict(data[0]), plain.predict(data[0]))
    assert_same(fitted(line), fitted(plain))


def test_attributes_at_hand_stay_with_a_model_that_is_lost(labelled):
    nearest = AcceleratedNearestMean().fit(*labelled)
    _fail(nearest, "attributes")
    with pytest.raises(LostModelError):
        _ = nearest.means_
    assert_same(nearest.classes_, NearestMean().fit(*labelled).classes_)
    assert nearest.n_features_in_ == 3


def test_what_is_left_of_a_lost_model_may_do_to_predict(data):
    class Leaves(LineOnNumpy):
        def remains(self, model):
            return {"coef_": model.coef_}

    X, y = data
    line, plain = accelsk.register(Line, [Leaves()], name="Left")().fit(X, y), Line().fit(X, y)
    _fail(line, "predict", "attributes")
    with pytest.raises(LostModelError):
        _ = line.scale_
    assert_same(line.predict(X), plain.predict(X))
    with pytest.raises(LostModelError):
        pickle.dumps(line)
    assert_same(fitted(line.fit(X[:, :2], y)), fitted(Line().fit(X[:, :2], y)))


@pytest.mark.parametrize("error", [_POISON, RuntimeError("CUBLAS_STATUS_EXECUTION_FAILED")])
def test_reading_attributes_may_be_what_finds_the_gpu_gone(error, data):
    line = AcceleratedLine().fit(*data)
    if error is not _POISON:
        probe.disable("a CUDA error made it unusable (...)")
    _fail(line, "attributes", error=error)
    for _ in range(2):
        with pytest.raises(LostModelError, match="Fit it again"):
            _ = line.coef_
    assert probe.unusable() is not None
    assert engine_of(line).counts["attributes"] == 1


# A model that is lost

_LOUD = {
    "attribute": lambda e, X: e.coef_,
    "property": lambda e, X: e.importances_,
    "predict": lambda e, X: e.predict(X),
    "score": lambda e, X: e.score(X, X[:, 0]),
    "copy": lambda e, X: copy.copy(e),
    "deepcopy": lambda e, X: copy.deepcopy(e),
    "pickle": lambda e, X: pickle.dumps(e),
    "pickle of a list": lambda e, X: pickle.dumps([e, e]),
    "deepcopy of a pipeline": lambda e, X: copy.deepcopy(make_pipeline(e)),
    "joblib.hash": lambda e, X: joblib.hash(e),
    "pipeline": lambda e, X: make_pipeline(e).predict(X),
    "our pipeline": lambda e, X: accelsk.pipeline.make_pipeline(e).predict(X),
    "to_sklearn": lambda e, X: accelsk.to_sklearn(e),
}


@pytest.mark.parametrize("use", _LOUD)
@pytest.mark.parametrize("again", [False, True])
def test_a_lost_model_says_so_and_what_to_do(use, again, lost, data):
    if again:
        engine_of(lost).reset()  # a GPU that is lost does not come back
    with _raises_lost("The fitted attributes of this AcceleratedLine were on the GPU"):
        _LOUD[use](lost, data[0])


_QUIET = {
    "hasattr": lambda e: hasattr(e, "coef_"),
    "hasattr of a property": lambda e: hasattr(e, "importances_"),
    "getattr": lambda e: getattr(e, "coef_", None),
    "repr": repr,
    "str": str,
    "get_params": lambda e: e.get_params(),
    "methods": lambda e: (hasattr(e, "predict"), hasattr(e, "spread"), hasattr(e, "nonsense_")),
    "clone": lambda e: clone(e).get_params(),
    "clone of a pipeline": lambda e: (
        clone(make_pipeline(e)).get_params()["acceleratedline"].get_params()
    ),
    "tags": lambda e: e.__sklearn_tags__().target_tags.required,
}


@pytest.mark.parametrize("look", _QUIET)
def test_looking_at_a_lost_model_is_like_looking_at_one_that_is_not_fitted(look, lost):
    assert _QUIET[look](lost) == _QUIET[look](AcceleratedLine())


def test_a_lost_model_can_be_shown(lost):
    assert "AcceleratedLine" in lost._repr_html_()
    assert "AcceleratedLine" in make_pipeline(lost)._repr_html_()
    assert "predict" in dir(lost)
    assert "AcceleratedLine" in lost._repr_mimebundle_()["text/plain"]


_REFITS = {
    "fit": lambda e, X, y: e.fit(X, y),
    "other columns": lambda e, X, y: e.fit(X[:, :2], y),
    "set_params": lambda e, X, y: e.set_params(shrinkage=2.0).fit(X, y),
    "attribute": lambda e, X, y: (setattr(e, "shrinkage", 1.0), e.fit(X, y))[1],
    "clone": lambda e, X, y: clone(e).fit(X, y),
    "pipeline": lambda e, X, y: make_pipeline(e).fit(X, y)[-1],
    "our pipeline": lambda e, X, y: accelsk.pipeline.make_pipeline(e).fit(X, y)[-1],
    "fit in a with block": lambda e, X, y: _fit_on_cpu(e, X, y),
}


def _fit_on_cpu(estimator, X, y):
    with accelsk.config_context(device="cpu"):
        return estimator.fit(X, y)


@pytest.mark.parametrize("refit", _REFITS)
def test_a_lost_model_is_fitted_anew_without_trouble(refit, lost, data):
    X, y = data
    ours, theirs = _REFITS[refit](lost, X, y), _REFITS[refit](Line(), X, y)
    assert_same(fitted(ours), fitted(theirs))
    X = X[:, : theirs.n_features_in_]
    for made in (ours, copy.copy(ours), copy.deepcopy(ours), pickle.loads(pickle.dumps(ours))):
        assert_same(made.predict(X), theirs.predict(X))
    assert DeviceState.of(ours) is None


def test_a_fit_that_fails_leaves_a_lost_model_as_it_was(lost, data):
    for _ in range(2):
        with pytest.raises(ValueError, match="NaN"):
            lost.fit(data[0] * np.nan, data[1])
        with pytest.raises(LostModelError):
            lost.predict(data[0])
    assert_same(fitted(lost.fit(*data)), fitted(Line().fit(*data)))


def test_a_program_that_knows_not_fitted_error_mends_it(lost, data):
    try:
        found = lost.predict(data[0])
    except NotFittedError:
        found = lost.fit(*data).predict(data[0])
    assert_same(found, Line().fit(*data).predict(data[0]))


def test_attributes_put_on_a_lost_model_count(lost, data):
    lost.coef_ = np.ones(3)
    assert_same(lost.predict(data[0]), data[0].sum(axis=1))
    del lost.coef_
    with pytest.raises(LostModelError):
        lost.predict(data[0])


def test_setting_a_hyperparameter_may_be_what_finds_the_gpu_gone(data):
    line = AcceleratedLine().fit(*data)
    _fail(line, "attributes")
    line.set_params(shrinkage=1.0)
    with pytest.raises(LostModelError):
        line.predict(data[0])
    assert_same(fitted(line.fit(*data)), fitted(Line(shrinkage=1.0).fit(*data)))


def test_a_state_put_into_a_lost_model_is_all_there_is(lost, data):
    lost.__setstate__(Line(shrinkage=1.0).fit(*data).__getstate__())
    assert_same(pickle.loads(pickle.dumps(lost)).predict(data[0]), lost.predict(data[0]))
    assert_same(fitted(lost), fitted(Line(shrinkage=1.0).fit(*data)))


def test_a_copied_dict_of_a_lost_model_is_lost_too(lost, data):
    other = AcceleratedLine()
    other.__dict__.update(lost.__dict__)
    for estimator in (other, lost):
        with pytest.raises(LostModelError):
            estimator.predict(data[0])
    assert_same(fitted(other.fit(*data)), fitted(Line().fit(*data)))
    with pytest.raises(LostModelError):
        lost.predict(data[0])


class _Batches(GenericEngine):
    def __init__(self, original):
        super().__init__(original)
        self.methods += ("partial_fit",)

    def compute(self, call, model):
        if call.method != "partial_fit":
            return super().compute(call, model)
        plain = self.original(**call.parameters) if model is None else copy.deepcopy(model)
        return Outcome(model=plain.partial_fit(np.array(call.X.array)))


def test_a_fit_that_goes_on_from_a_lost_model_does_not_start_from_nothing(data):
    X = data[0]
    cls = accelsk.register(StandardScaler, [_Batches(StandardScaler)], name="Batches")
    scaler = cls().partial_fit(X)
    _fail(scaler, "attributes", "partial_fit")
    with pytest.raises(LostModelError):
        scaler.partial_fit(X + 1)
    with pytest.raises(LostModelError):
        scaler.transform(X)
    # `fit` calls `partial_fit` itself
    assert_same(fitted(scaler.fit(X)), fitted(StandardScaler().fit(X)))
    assert scaler.partial_fit(X).n_samples_seen_ == 80


def test_models_are_lost_with_warm_start_too(labelled):
    X, y = labelled
    ours = GENERIC[LogisticRegression](warm_start=True).fit(X, y)
    _fail(ours, "attributes", "fit")
    theirs = LogisticRegression(warm_start=True).fit(X, y)
    assert_same(ours.fit(X, y).predict(X), theirs.predict(X))


# What holds models


@pytest.mark.parametrize("module", [accelsk.model_selection, None])
def test_a_search_that_holds_a_lost_model(module, data):
    X, y = data
    search_class = GridSearchCV if module is None else module.GridSearchCV
    search = search_class(AcceleratedLine(), {"shrinkage": [0.0, 1.0]}, cv=2).fit(X.tolist(), y)
    _fail(AcceleratedLine, "fit", "predict", "attributes")
    for use in (lambda: search.predict(X), lambda: pickle.dumps(search)):
        with pytest.raises(LostModelError, match="Fit it again"):
            use()
    assert clone(search).cv == 2
    plain = GridSearchCV(Line(), {"shrinkage": [0.0, 1.0]}, cv=2).fit(X, y)
    assert_same(search.fit(X, y).predict(X), plain.predict(X))


def _scores(results):
    return {name: value for name, value in results.items() if "test_score" in name}


@pytest.mark.parametrize("at", range(1, 7))
@pytest.mark.parametrize("step", ["fit", "predict"])
@pytest.mark.filterwarnings("ignore")
def test_a_gpu_that_is_lost_in_a_search_costs_no_score(at, step, data):
    X, y = data
    cls = accelsk.register(Line, [_Doomed(step=step, at=at)], name="Doomed", module=__name__)
    random = [np.random.RandomState(0) for _ in range(2)]
    cv = [_shuffled(r) for r in random]
    search = accelsk.model_selection.GridSearchCV(cls(), {"shrinkage": [0.0, 3.0]}, cv=cv[0])
    plain = GridSearchCV(Line(), {"shrinkage": [0.0, 3.0]}, cv=cv[1]).fit(X, y)
    assert_same(_scores(search.fit(X.tolist(), y).cv_results_), _scores(plain.cv_results_))
    assert search.best_params_ == plain.best_params_
    assert probe.unusable() is not None
    assert_same(search.predict(X), plain.predict(X))
    assert search.cv is cv[0]
    assert random[0].randint(1000) == random[1].randint(1000)


def _shuffled(random_state):
    return KFold(3, shuffle=True, random_state=random_state)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("listed", [iter, list])
def test_a_gpu_that_is_lost_in_a_cross_validation_costs_no_score(listed, data):
    X, y = data
    splits = [*_shuffled(0).split(X)]
    for function in (cross_val_score, cross_val_predict):
        for at in range(1, 4):
            probe._disabled = None
            cls = accelsk.register(
                Line, [_Doomed(step="predict", at=at)], name="Doomed", module=__name__
            )
            ours = getattr(accelsk.model_selection, function.__name__)
            found = ours(cls(), X.tolist(), y, cv=listed(splits))
            assert_same(found, function(Line(), X, y, cv=splits))
            assert probe.unusable() is not None


@pytest.mark.filterwarnings("ignore")
def test_a_search_over_splits_that_come_but_once(data):
    X, y = data
    cls = accelsk.register(Line, [_Doomed(step="predict", at=2)], name="Doomed", module=__name__)
    splits = [*_shuffled(0).split(X)]
    search = accelsk.model_selection.GridSearchCV(cls(), {"shrinkage": [0.0]}, cv=iter(splits))
    plain = GridSearchCV(Line(), {"shrinkage": [0.0]}, cv=splits).fit(X, y)
    assert_same(_scores(search.fit(X.tolist(), y).cv_results_), _scores(plain.cv_results_))
    assert probe.unusable() is not None


@pytest.mark.parametrize("step", ["fit_transform", "fit"])
@pytest.mark.parametrize("kind", ["ours", "scikit-learn's"])
def test_a_gpu_that_is_lost_in_a_pipeline_costs_no_fit(step, kind, data):
    X, y = np.tile(data[0], (500, 1)), np.tile(data[1], 500)
    scaler = accelsk.register(
        StandardScaler, [_DoomedScaler(StandardScaler, step=step, at=1)], name="DoomedScaler"
    )
    line = accelsk.register(Line, [_Doomed(step=step, at=1)], name="Doomed")
    make = accelsk.pipeline.make_pipeline if kind == "ours" else make_pipeline
    ours = make(scaler(), line())
    plain = make_pipeline(StandardScaler(), Line()).fit(X, y)
    if step == "fit" and kind != "ours":  # the scaler is fitted by then, and lost
        with _raises_lost("DoomedScaler"):
            ours.fit(X, y).predict(X)
    assert_same(ours.fit(X, y).predict(X), plain.predict(X))


def test_a_step_that_is_lost_keeps_a_pipeline_from_nothing_but_predicting(data):
    X, y = np.tile(data[0], (2000, 1)), np.tile(data[1], 2000)
    ours = accelsk.pipeline.make_pipeline(GENERIC[StandardScaler](), AcceleratedLine()).fit(X, y)
    _fail(ours[0], "transform", "attributes")
    for _ in range(2):
        with _raises_lost("StandardScaler"):
            ours.predict(X)
    plain = make_pipeline(StandardScaler(), Line()).fit(X, y)
    assert_same(ours.fit(X, y).predict(X), plain.predict(X))


class _Doom:
    """Has an engine take the GPU with it, and all that is there, at a call of a method."""

    def __init__(self, *args, step, at):
        super().__init__(*args)
        self.step, self.at = step, at

    def run(self, call, model):
        if self.counts[self.step] + 1 == self.at and call.method == self.step:
            for engine in ENGINES:
                engine.failing = dict.fromkeys((*engine.methods, "attributes", "restore"), _POISON)
        return super().run(call, model)


class _Doomed(_Doom, LineOnNumpy):
    pass


class _DoomedScaler(_Doom, GenericEngine):
    pass
