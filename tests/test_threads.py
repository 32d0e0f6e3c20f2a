"""Threads that share an estimator: what each sees is of one fit, whatever the others do."""

from __future__ import annotations

import sys
import threading
import time
from types import SimpleNamespace

import numpy as np
import pytest
from comparison import assert_same
from engine import AcceleratedLine, AcceleratedNearestMean, Line, NearestMean, engine_of, generic_of
from processes import PATIENCE, together
from sklearn.base import BaseEstimator, clone
from sklearn.linear_model import Ridge
from sklearn.utils.validation import check_is_fitted

import accelsk
from accelsk import registry
from accelsk.engines.base import Outcome
from accelsk.estimator import DeviceState


@pytest.fixture
def plain(data):
    return Line().fit(*data)


@pytest.fixture
def restless():
    """Have threads take turns all the time."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(before)


def _other(y):
    return 3.0 - 2 * y


class _Pause:
    """A step that waits, once, until somebody has done something else in the meantime."""

    def __init__(self, function):
        self._function = function
        self.reached, self.go_on = threading.Event(), threading.Event()

    def __call__(self, *args, **kwargs):
        if not self.reached.is_set():
            result = self._function(*args, **kwargs)
            self.reached.set()
            assert self.go_on.wait(PATIENCE)
            return result
        return self._function(*args, **kwargs)


def _meanwhile(owner, name, monkeypatch, first, then):
    """Return what `first` does in a thread that pauses in ``owner.name`` while `then` is done."""
    pause = _Pause(getattr(owner, name))
    monkeypatch.setattr(owner, name, pause)
    results = []
    thread = threading.Thread(target=lambda: results.append(first()), daemon=True)
    thread.start()
    assert pause.reached.wait(PATIENCE)
    other = threading.Thread(target=then, daemon=True)  # it may have to wait for the first one
    other.start()
    other.join(0.2)
    pause.go_on.set()
    thread.join(PATIENCE)
    other.join(PATIENCE)
    assert not thread.is_alive()
    assert not other.is_alive()
    return results[0]


def _agrees(line, plain, X):
    assert_same(line.coef_, plain.coef_)
    assert_same(line.predict(X), plain.predict(X))
    with accelsk.config_context(device="cpu"):
        assert_same(line.predict(X), plain.predict(X))


# One model


def test_many_threads_fetch_once(data, plain):
    X, y = data
    for _ in range(20):
        line = AcceleratedLine().fit(X, y)
        engine_of(line).counts.clear()
        for coef in together(lambda i, line=line: line.coef_):
            assert coef is line.coef_
        assert_same(line.coef_, plain.coef_)
        assert engine_of(line).counts["attributes"] == 1


def test_threads_predict_and_read_at_once(data, plain):
    X, y = data
    expected = plain.predict(X)
    for _ in range(10):
        line = AcceleratedLine().fit(X, y)

        def work(i, line=line):
            return line.predict(X) if i % 2 else line.importances_

        for i, result in enumerate(together(work)):
            assert_same(result, expected if i % 2 else plain.importances_)


def test_threads_restore_one_model(data, plain):
    X, y = data
    expected = plain.predict(X)
    for _ in range(10):
        line = accelsk.to_sklearn(AcceleratedLine().fit(X, y))
        restored = AcceleratedLine()
        restored.__dict__.update(vars(line))
        for result in together(lambda i, e=restored: e.predict(X)):
            assert_same(result, expected)


def test_going_through_the_attributes_while_others_fetch_them(data, restless):
    # as `check_is_fitted` does in every call of scikit-learn's
    X, y = data
    for _ in range(30):
        line = AcceleratedLine().fit(X, y)

        def work(i, line=line):
            if i == 0:
                return line.coef_
            for _ in range(30):
                check_is_fitted(line)
            return None

        together(work, 4)


# Own models


def test_threads_fit_estimators_of_their_own(data):
    X, y = data

    def work(i):
        line = AcceleratedLine(shrinkage=float(i)).fit(X, y)
        return line.predict(X), line.coef_

    for i, (predicted, coef) in enumerate(together(work)):
        theirs = Line(shrinkage=float(i)).fit(X, y)
        assert_same(predicted, theirs.predict(X))
        assert_same(coef, theirs.coef_)


def test_settings_of_a_thread_are_its_own(data):
    X, y = data
    calls = []

    def work(i):
        device = ("cpu", "gpu", "auto")[i % 3]
        results = []
        with accelsk.profile(quiet=True), accelsk.config_context(device=device):
            for _ in range(5):
                line = AcceleratedLine(shrinkage=float(i)).fit(X, y)
                results.append(line.predict(X))
                if "_accelsk_state" in vars(line):
                    calls.append(device)
                assert accelsk.get_config()["device"] == device
        assert accelsk.get_config()["device"] == "auto"
        return results

    with accelsk.profile(quiet=True) as profile:
        results = together(work)
    for i, predictions in enumerate(results):
        for predicted in predictions:
            assert_same(predicted, Line(shrinkage=float(i)).fit(X, y).predict(X))
    assert set(calls) == {"gpu", "auto"}
    fits = profile.method_calls["Line.fit"]
    assert (fits.gpu_calls, fits.cpu_calls) == (50, 30)
    assert fits.fallback_reasons == {"device='cpu' is set"}


def test_block_may_end_in_another_thread_than_it_began():
    # as that of a fixture does, or of a generator that nobody has gone through to its end
    def settings():
        with accelsk.config_context(device="cpu"):
            yield accelsk.get_config()["device"]

    generator = settings()
    assert together(lambda i: next(generator), 1) == ["cpu"]
    generator.close()
    assert accelsk.get_config()["device"] == "auto"
    assert together(lambda i: accelsk.get_config()["device"], 2) == ["auto", "auto"]


def test_profiles_of_threads_leave_nothing_behind(data):
    from accelsk.profiling import events

    def work(i):
        for _ in range(5):
            with accelsk.profile(quiet=True):
                AcceleratedLine().fit(*data).predict(data[0])

    together(work)
    assert events._listeners == []
    assert events._spool._path is None


# A fit meanwhile


@pytest.mark.parametrize("device", ["auto", "cpu"])
def test_fit_while_another_thread_fetches_the_earlier_one(device, data, monkeypatch):
    X, y = data
    line = AcceleratedLine().fit(X, y)

    def refit():
        with accelsk.config_context(device=device):
            line.fit(X, _other(y))

    _meanwhile(engine_of(line), "attributes", monkeypatch, lambda: line.coef_, refit)
    _agrees(line, Line().fit(X, _other(y)), X)


@pytest.mark.parametrize("device", ["auto", "cpu"])
def test_fit_while_another_thread_is_about_to_fetch(device, data, monkeypatch):
    X, y = data
    line = AcceleratedLine().fit(X, y)

    def refit():
        with accelsk.config_context(device=device):
            line.fit(X, _other(y))

    _meanwhile(DeviceState, "of", monkeypatch, lambda: line.coef_, refit)
    _agrees(line, Line().fit(X, _other(y)), X)


@pytest.mark.parametrize("device", ["auto", "cpu"])
def test_fit_while_another_thread_restores_the_earlier_one(device, data, monkeypatch):
    X, y = data
    with accelsk.config_context(device="cpu"):
        line = AcceleratedLine().fit(X, y)

    def refit():
        with accelsk.config_context(device=device):
            line.fit(X, _other(y))

    predicted = _meanwhile(engine_of(line), "restore", monkeypatch, lambda: line.predict(X), refit)
    assert_same(predicted, Line().fit(X, _other(y)).predict(X))
    _agrees(line, Line().fit(X, _other(y)), X)


def test_fit_while_another_thread_gives_up_the_earlier_one(data, monkeypatch):
    # a hyperparameter that is set drops the device model: not the one of a later fit, unfetched
    X, y = data
    line = AcceleratedLine().fit(X, y)

    def refit():
        line.fit(X, _other(y))

    _meanwhile(
        engine_of(line), "attributes", monkeypatch, lambda: setattr(line, "forbidden", False), refit
    )
    _agrees(line, Line().fit(X, _other(y)), X)


def test_prediction_is_of_one_fit(labelled, monkeypatch):
    # the engine looks labels up in `classes_` after it has computed codes by the model
    X, y = labelled
    model = AcceleratedNearestMean().fit(X, y)
    later = np.where(y == "above", "under", "over")
    predicted = _meanwhile(
        engine_of(model),
        "predict",
        monkeypatch,
        lambda: model.predict(X),
        lambda: model.fit(X, later),
    )
    assert_same(predicted, NearestMean().fit(X, later).predict(X))


class _Bare(BaseEstimator):
    """Its fit leaves what only a device has, at first."""

    def fit(self, X, y=None):
        self.total_ = np.sum(X)
        return self

    def predict(self, X):
        check_is_fitted(self)
        return np.full(len(X), self.total_)


class _BareEngine(type(engine_of(AcceleratedLine))):
    methods = ("fit", "predict")
    state = ("total_",)

    def fit(self, call, X):
        return Outcome(model=SimpleNamespace(total_=np.sum(X)))

    def predict(self, model, X):
        return np.full(len(X), model.total_)


@pytest.mark.parametrize("devices", [("auto",), ("cpu",), ("auto", "cpu", "auto")])
@pytest.mark.parametrize("bare", [False, True])
def test_fits_and_predictions_of_one_estimator_at_once(bare, devices, data, restless):
    X, y = data
    if bare:
        model = registry.register(_Bare, [_BareEngine()], name="AcceleratedBare")()
        targets, Xs = [y, y], [X, 2 * X]
        original = _Bare
    else:
        model, original = AcceleratedLine(), Line
        targets, Xs = [y, _other(y)], [X, X]
    expected = [original().fit(A, b).predict(X) for A, b in zip(Xs, targets, strict=True)]
    model.fit(X, y)
    end = time.monotonic() + 0.6
    fits = [0]

    def fit():
        number = fits[0] = fits[0] + 1
        with accelsk.config_context(device=devices[number % len(devices)]):
            model.fit(Xs[number % 2], targets[number % 2])

    def predict():
        predicted = model.predict(X)
        assert any(np.allclose(predicted, values) for values in expected)

    def predict_on_cpu():
        with accelsk.config_context(device="cpu"):
            predict()

    def read():
        _ = model.total_ if bare else (model.coef_, model.scale_)
        check_is_fitted(model)
        clone(model)

    steps = [fit, predict, predict, predict_on_cpu, read, read]

    def work(i):
        while time.monotonic() < end:
            steps[i]()

    together(work, len(steps))
    assert fits[0] > 3
    assert_same(model.predict(X), expected[fits[0] % 2])
    with accelsk.config_context(device="cpu"):
        assert_same(model.predict(X), expected[fits[0] % 2])


def test_threads_work_through_what_real_programs_do(data):
    X, y = data
    shared = generic_of(Ridge)().fit(X, y)
    expected = Ridge().fit(X, y)

    def work(i):
        with accelsk.config_context(device=("cpu", "auto")[i % 2]):
            own = clone(shared).set_params(alpha=1.0 + i)
            for _ in range(3):
                own.fit(X, y)
                assert_same(shared.predict(X), expected.predict(X))
                assert shared.score(X, y) == expected.score(X, y)
                assert_same(shared.coef_, expected.coef_)
        return own.intercept_

    for i, intercept in enumerate(together(work)):
        assert intercept == Ridge(alpha=1.0 + i).fit(X, y).intercept_
