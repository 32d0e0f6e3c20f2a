"""What ends a call from outside, or comes from the user's own code, passes through unchanged.

An estimator is as it was before or as it is after the call; nothing stays locked or counted.
"""

from __future__ import annotations

import gc
import signal
import traceback
import warnings

import device_double
import numpy as np
import pytest
from comparison import assert_same
from engine import (
    AcceleratedCentering,
    AcceleratedLine,
    AcceleratedNearestMean,
    Line,
    engine_of,
    generic_of,
)
from processes import held_elsewhere, together
from sklearn.linear_model import Ridge
from sklearn.metrics import make_scorer
from sklearn.model_selection import KFold
from sklearn.neighbors import KNeighborsClassifier
from sklearn.preprocessing import FunctionTransformer
from sklearn.svm import SVC

import accelsk
from accelsk import _residence, residency
from accelsk.estimator import SLOT, DeviceState
from accelsk.model_selection import GridSearchCV, cross_val_score
from accelsk.pipeline import make_pipeline
from accelsk.profiling import events
from accelsk.profiling.workers import Spool

INTERRUPTS = (KeyboardInterrupt, SystemExit, GeneratorExit)


@pytest.fixture(autouse=True)
def tidy():
    yield
    gc.collect()  # errors that were caught hold what their frames did


@pytest.fixture
def plain(data):
    return Line().fit(*data)


@pytest.fixture
def device(monkeypatch):
    """Have data stay on what stands for the device."""
    device_double.install(monkeypatch)


def _nothing_is_left():
    assert residency.current_run() is None
    assert events._listeners == []
    assert getattr(events.Stopwatch._running, "innermost", None) is None
    locks = [state._lock for state in DeviceState._every()]

    def take(lock):
        taken = lock.acquire(5)
        lock.release()
        return taken

    assert together(lambda i: all(map(take, locks)), 1) == [True]


# Interrupts


@pytest.mark.parametrize("interrupt", INTERRUPTS)
@pytest.mark.parametrize("where", ["fit", "predict", "attributes", "restore"])
def test_interrupt_in_a_call_leaves_the_earlier_fit(where, interrupt, data, plain):
    X, y = data
    line = AcceleratedLine().fit(X, y)
    if where == "restore":
        line = AcceleratedLine()
        line.__dict__.update(vars(plain))
    engine = engine_of(line)
    engine.failing[where], engine.fails_once = interrupt("from outside"), True
    calls = {
        "fit": lambda: line.fit(X, -y),
        "predict": lambda: line.predict(X),
        "attributes": lambda: line.coef_,
        "restore": lambda: line.predict(X),
    }
    with pytest.raises(interrupt, match="from outside") as caught, accelsk.profile(True) as results:
        calls[where]()
    assert caught.value.args == ("from outside",)
    assert not getattr(caught.value, "__notes__", None)
    if where != "attributes":
        (stats,) = results.method_calls.values()
        assert stats.errors == {interrupt.__name__: 1}
    assert engine.counts[where] == (2 if where == "fit" else 1)
    _nothing_is_left()
    assert_same(line.coef_, plain.coef_)
    assert_same(line.predict(X), plain.predict(X))
    assert_same(line.fit(X, -y).coef_, -plain.coef_)


@pytest.mark.parametrize("interrupt", INTERRUPTS)
def test_interrupt_in_the_first_fit_leaves_an_estimator_that_is_not_fitted(interrupt, data):
    line = AcceleratedLine()
    engine_of(line).failing["fit"] = interrupt()
    with pytest.raises(interrupt):
        line.fit(*data)
    assert vars(line) == vars(AcceleratedLine())


@pytest.mark.parametrize("earlier", [False, True])
def test_interrupt_while_a_fit_is_taken_over_leaves_what_was_before(earlier, data, plain):
    class Minding(AcceleratedLine):
        def __getattr__(self, name):  # so a fit fetches at once
            raise AttributeError(name)

    X, y = data
    line = Minding()
    if earlier:
        line.fit(X, y)
    before = dict(vars(line))
    engine = engine_of(line)
    engine.failing["attributes"], engine.fails_once = KeyboardInterrupt(), True
    with pytest.raises(KeyboardInterrupt):
        line.fit(X, -y)
    assert vars(line) == before
    if earlier:
        assert_same(line.predict(X), plain.predict(X))
    assert_same(line.fit(X, -y).predict(X), -plain.predict(X))


def test_interrupt_in_a_pipeline_or_a_search_leaves_nothing(data, device):
    X, y = data
    armed = []

    def score(estimator, X, y):
        if armed:
            raise KeyboardInterrupt
        return estimator.score(X, y)

    search = GridSearchCV(
        generic_of(Ridge)(), {"alpha": [0.1, 1.0]}, scoring=score, cv=KFold(3), refit=False
    )
    search.fit(X, y)
    before, cv = dict(vars(search)), search.cv
    armed.append(True)
    with pytest.raises(KeyboardInterrupt), accelsk.profile(quiet=True):
        search.fit(X, y)
    assert search.cv is cv
    assert vars(search).keys() == before.keys()
    _nothing_is_left()
    pipeline = make_pipeline(FunctionTransformer(lambda X: X), AcceleratedLine()).fit(X, y)
    engine_of(AcceleratedLine).failing["predict"] = KeyboardInterrupt()
    with pytest.raises(KeyboardInterrupt):
        pipeline.predict(X)
    _nothing_is_left()


def test_threads_that_fit_one_search_leave_it_as_it_is(data, device, monkeypatch):
    X, y = data
    monkeypatch.setattr(_residence, "_runs_on_gpu", lambda *_: True)
    search = GridSearchCV(generic_of(Ridge)(), {"alpha": [0.1, 1.0]}, cv=KFold(3))
    expected = GridSearchCV(Ridge(), {"alpha": [0.1, 1.0]}, cv=KFold(3)).fit(X, y)
    cv = search.cv
    for fitted in together(lambda i: search.fit(X, y), 4):
        assert fitted is search
    assert search.cv is cv
    assert "_accelsk_residence" not in vars(search)
    assert vars(search).keys() == vars(expected).keys()
    assert_same(search.cv_results_["mean_test_score"], expected.cv_results_["mean_test_score"])


@pytest.mark.parametrize("where", ["open", "take", "close"])
def test_interrupt_as_a_profile_begins_or_ends_leaves_none_behind(where, data, monkeypatch):
    with accelsk.profile(quiet=True):
        pass
    step = getattr(Spool, where)

    def interrupted(self):
        monkeypatch.setattr(Spool, where, step)
        raise KeyboardInterrupt

    monkeypatch.setattr(Spool, where, interrupted)
    with pytest.raises(KeyboardInterrupt), accelsk.profile(quiet=True):
        AcceleratedLine().fit(*data)
    assert events._listeners == []
    with accelsk.profile(quiet=True) as results:
        AcceleratedLine().fit(*data)
    assert results.method_calls["Line.fit"].gpu_calls == 1
    _nothing_is_left()


def test_interrupt_from_the_keyboard_while_waiting_for_another_thread(data):
    line = AcceleratedLine().fit(*data)
    signal.signal(signal.SIGALRM, lambda *_: signal.raise_signal(signal.SIGINT))
    with held_elsewhere(vars(line)[SLOT]._lock):
        signal.setitimer(signal.ITIMER_REAL, 0.1)
        with pytest.raises(KeyboardInterrupt):
            _ = line.coef_
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    assert_same(line.coef_, Line().fit(*data).coef_)


# The user's own code


class _Own(Exception):  # noqa: N818 - a user's
    pass


class _Raises:
    """A callable of the user's that fails each time, and counts."""

    def __init__(self, error=None):
        self.error = error or _Own("of the user's", 7)
        self.calls = 0

    def __call__(self, *args, **kwargs):
        self.calls += 1
        raise self.error


def _passes(call, callback, times=1):
    """Assert that the error of `callback` comes out of `call` as it is, after so many calls."""
    with pytest.raises(_Own) as caught:
        call()
    assert caught.value is callback.error
    assert caught.value.args == ("of the user's", 7)
    assert caught.value.__cause__ is None
    assert caught.value.__context__ is None
    assert not getattr(caught.value, "__notes__", None)
    last = traceback.extract_tb(caught.value.__traceback__)[-1]
    assert (last.name, last.line) == ("__call__", "raise self.error")
    assert callback.calls == times
    _nothing_is_left()


def test_errors_of_callables_pass_through(labelled, data):
    (X, labels), (_, y) = labelled, data
    metric, kernel, function = _Raises(), _Raises(), _Raises()
    with accelsk.config_context(device="cpu"):
        neighbours = generic_of(KNeighborsClassifier)(metric=metric, algorithm="brute")
        neighbours.fit(X, labels)
        _passes(lambda: neighbours.predict(X), metric)
        _passes(lambda: generic_of(SVC)(kernel=kernel).fit(X, labels), kernel)
    pipeline = make_pipeline(FunctionTransformer(function), AcceleratedLine())
    _passes(lambda: pipeline.fit(X, y), function)


@pytest.mark.parametrize("kind", ["scorer", "metric", "splits", "splitter"])
@pytest.mark.parametrize("search", [False, True])
def test_errors_of_scorers_and_splitters_pass_through(kind, search, data, device):
    X, y = data
    callback = _Raises()
    options = {"cv": KFold(2), "scoring": None}
    if kind in ("scorer", "metric"):
        options["scoring"] = callback if kind == "scorer" else make_scorer(callback)
    elif kind == "splits":

        def splits():
            yield next(KFold(2).split(X))
            callback()

        options["cv"] = splits()
    else:

        class Splitter(KFold):
            def split(self, *args, **kwargs):
                callback()

        options["cv"] = Splitter(2)

    def call():
        if search:
            grid = GridSearchCV(
                generic_of(Ridge)(), {"alpha": [1.0]}, error_score="raise", **options
            )
            return grid.fit(X, y)
        return cross_val_score(generic_of(Ridge)(), X, y, error_score="raise", **options)

    _passes(call, callback)


@pytest.mark.parametrize(
    ("kind", "args"), [(MemoryError, ()), (MemoryError, ("my own",)), (ValueError, ("cuda",))]
)
def test_what_looks_like_a_fault_of_the_gpu_is_not_run_twice(kind, args, data, device):
    X, y = data
    error, calls = kind(*args), []

    def fails(*_):
        calls.append(1)
        raise error

    kernel = generic_of(SVC)(kernel=fails)
    for call in (
        lambda: make_pipeline(FunctionTransformer(fails), AcceleratedLine()).fit(X, y),
        lambda: make_pipeline(AcceleratedCentering(), kernel).fit(X, y > 0),
        lambda: cross_val_score(AcceleratedLine(), X, y, scoring=fails, error_score="raise"),
    ):
        engine_of(kernel).refusing = {"fit": "a callable"}
        del calls[:]
        with pytest.raises(kind) as caught:
            call()
        assert caught.value is error
        assert len(calls) == 1


def test_generator_of_splits_is_used_up_once(data, device):
    X, y = data
    folds = [(train, test) for train, test in KFold(3).split(X)]
    ours = cross_val_score(generic_of(Ridge)(), X, y, cv=iter(folds))
    assert_same(ours, cross_val_score(generic_of(Ridge)(), X, y, cv=folds))
    search = GridSearchCV(generic_of(Ridge)(), {"alpha": [0.1, 1.0]}, cv=iter(folds))
    assert search.fit(X, y).n_splits_ == 3


@pytest.mark.parametrize("device", ["auto", "cpu"])
def test_errors_of_overrides_pass_through(device, data, labelled):
    X, y = data
    callback = _Raises()

    class Solving(AcceleratedLine):
        def _solve(self, *args):
            return callback()

    class Fitting(AcceleratedLine):
        def fit(self, *args):
            super().fit(*args)
            return callback()

    class Guessing(AcceleratedNearestMean):
        def predict(self, X):
            super().predict(X)
            return callback()

    with accelsk.config_context(device=device):
        _passes(lambda: Solving().fit(X, y), callback, 1)
        _passes(lambda: Fitting().fit(X, y), callback, 2)
        _passes(lambda: Guessing().fit(*labelled).predict(X), callback, 3)
        _passes(lambda: Guessing().fit(*labelled).score(*labelled), callback, 4)
        _passes(lambda: make_pipeline(Fitting()).fit(X, y), callback, 5)


def test_warning_that_is_an_error_is_raised_as_one(data):
    X, y = data
    ill = np.column_stack([X, X[:, 0]])
    ridge = generic_of(Ridge)(alpha=0.0, solver="cholesky")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        expected, found = _raised(Ridge(**ridge.get_params()), ill, y), _raised(ridge, ill, y)
    assert (type(found), str(found)) == (type(expected), str(expected))


def _raised(estimator, X, y):
    try:
        estimator.fit(X, y)
    except Exception as error:
        return error
    return None
