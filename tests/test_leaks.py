"""Nothing grows: what calls leave behind is gone with the estimators, or stays of one size."""

from __future__ import annotations

import gc
import tracemalloc
import weakref

import device_double
import numpy as np
import pytest
from engine import AcceleratedCentering, AcceleratedLine, engine_of, generic_of
from processes import together
from sklearn import ensemble, linear_model, preprocessing
from sklearn.base import clone

import accelsk
from accelsk.costs import ledger
from accelsk.device import traffic
from accelsk.device.resident import Resident, Session, Source
from accelsk.engines.base import Call
from accelsk.estimator import DeviceState
from accelsk.linear_model import Lasso, LinearRegression, Ridge
from accelsk.model_selection import GridSearchCV, cross_val_score
from accelsk.pipeline import make_pipeline
from accelsk.preprocessing import StandardScaler
from accelsk.profiling import events
from accelsk.residency import Run


@pytest.fixture
def device(monkeypatch):
    device_double.install(monkeypatch)


@pytest.fixture(autouse=True)
def left():
    """Return what is there beside what tests before have left."""
    gc.collect()
    live, restored = set(DeviceState.live), set(DeviceState.restored)
    there = {id(value) for value in gc.get_objects() if type(value) in _OF_A_CALL}

    def left():
        gc.collect()
        values = [v for v in gc.get_objects() if type(v) in _OF_A_CALL and id(v) not in there]
        return [set(DeviceState.live) - live, set(DeviceState.restored) - restored, values]

    return left


#: What is made for a call, and is gone with it.
_OF_A_CALL = (Call, Resident, Run, Session, Source)

NOTHING = [set(), set(), []]


def _use(make, X, y):
    """Do what programs do in a loop; return references to all that was made."""
    model = make()
    model.fit(X, y)
    made = [weakref.ref(model)]
    state = vars(model).get("_accelsk_state")
    if state is not None:
        made.append(weakref.ref(state))
    for name in ("predict", "transform", "score"):
        if hasattr(model, name):
            getattr(model, name)(*((X, y) if name == "score" else (X,)))
    copy = clone(model)
    made.append(weakref.ref(copy))
    return made


def _makers():
    return {
        "line": AcceleratedLine,
        "looked at": lambda: _Looked(),
        "subclass": lambda: type("Own", (AcceleratedLine,), {})(),
        "ridge": generic_of(linear_model.Ridge),
        "forest": lambda: generic_of(ensemble.RandomForestClassifier)(n_estimators=2, max_depth=2),
        "scaler": generic_of(preprocessing.StandardScaler),
        "pipeline": lambda: make_pipeline(AcceleratedCentering(), AcceleratedLine()),
        "search": lambda: GridSearchCV(AcceleratedLine(), {"shrinkage": [0.0, 1.0]}, cv=2),
    }


class _Looked(AcceleratedLine):
    def predict(self, X):
        _ = self.coef_
        return super().predict(X)


@pytest.mark.parametrize("name", _makers())
@pytest.mark.parametrize("device", ["auto", "cpu"])
def test_models_die_with_the_last_reference(name, device, data, left):
    X, y = data
    y = (y > 0).astype(int) if name == "forest" else y
    with accelsk.config_context(device=device):
        made = _use(_makers()[name], X, y)
    if name != "search" and name != "pipeline":  # scikit-learn's own have cycles
        assert [reference() for reference in made] == [None] * len(made)
    gc.collect()
    assert [reference() for reference in made] == [None] * len(made)
    assert left() == NOTHING


def test_what_is_restored_dies_with_its_estimator(data, left):
    X, y = data
    with accelsk.config_context(device="cpu"):
        lines = [AcceleratedLine().fit(X, y) for _ in range(5)]
    for line in lines:
        line.predict(X)
    assert len(left()[1]) == 5
    del lines, line
    assert left() == NOTHING


def test_failed_calls_keep_nothing(data, left):
    X, y = data
    for step in ("fit", "predict", "attributes", "restore"):
        line = AcceleratedLine().fit(X, y)
        engine_of(line).failing[step] = RuntimeError("no luck")
        try:
            line.fit(X, y) if step == "fit" else line.predict(X)
            _ = line.coef_
        except RuntimeError:
            pass
        engine_of(line).reset()
        reference = weakref.ref(line)
        del line
        gc.collect()
        assert reference() is None
    assert left() == NOTHING


def _growth(step, warm=60, n=500):
    """Return by how many objects `n` calls of `step` grow, and by how many bytes a few of them."""
    for _ in range(warm):
        step()
    gc.collect()
    before = len(gc.get_objects())
    for _ in range(n):
        step()
    gc.collect()
    objects = len(gc.get_objects()) - before
    tracemalloc.start()
    step()
    gc.collect()
    grown = []
    for _ in range(2):  # a table of all that lives may be made anew in one of them
        held = tracemalloc.get_traced_memory()[0]
        for _ in range(n // 10):
            step()
        gc.collect()
        grown.append(tracemalloc.get_traced_memory()[0] - held)
    tracemalloc.stop()
    return objects, min(grown)


@pytest.mark.parametrize(
    ("loop", "device"),
    [
        ("new", "auto"),
        ("new", "cpu"),
        ("same", "auto"),
        ("attributes", "auto"),
        ("restored", "auto"),
        ("failing", "auto"),
    ],
)
def test_five_hundred_fits_hold_memory_constant(loop, device, data, monkeypatch):
    X, y = data
    same = AcceleratedLine()

    def fails(*_):
        raise RuntimeError("no luck")

    def step():
        line = same if loop == "same" else AcceleratedLine(shrinkage=1.0)
        if loop == "restored":
            with accelsk.config_context(device="cpu"):
                line.fit(X, y)
        else:
            line.fit(X, y)
        line.predict(X)
        if loop == "attributes":
            _ = line.coef_

    if loop == "failing":
        monkeypatch.setattr(engine_of(same), "predict", fails)
    with accelsk.config_context(device=device):
        objects, n_bytes = _growth(step)
    assert objects < 50  # not one for each fit
    assert n_bytes < 10_000


def test_classes_of_the_users_are_let_go(data):
    def use():
        class Own(AcceleratedLine):
            def spread(self, X):
                return super().spread(X)

        Own().fit(*data).predict(data[0])
        return weakref.ref(Own)

    references = [use() for _ in range(3)]
    gc.collect()
    assert [reference() for reference in references] == [None] * 3


def test_profiles_that_have_ended_leave_nothing(data):
    X, y = data

    def step():
        with accelsk.profile(quiet=True) as results, accelsk.line_profile(quiet=True):
            AcceleratedLine().fit(X, y)
        return weakref.ref(results)

    assert step()() is None
    objects, _ = _growth(step, warm=5, n=40)
    assert objects < 20
    assert events._listeners == []
    assert traffic._count.transfers is None


def test_runs_and_sessions_end_with_their_call(data, device, left):
    X, y = data
    accelsk.set_config(device="gpu")
    for estimator in (Ridge(), Lasso(), LinearRegression()):
        with accelsk.profile(quiet=True) as results:
            search = GridSearchCV(estimator, {"fit_intercept": [True, False]}, cv=2).fit(X, y)
            cross_val_score(estimator, X, y, cv=2)
            pipeline = make_pipeline(StandardScaler(), estimator).fit(X, y)
        assert sum(stats.gpu_calls for stats in results.method_calls.values()) > 10
        assert left()[2] == []
        assert search.predict(X).shape == pipeline.predict(X).shape
        assert left()[2] == []


def test_debts_are_forgotten_with_their_estimator(data):
    line = AcceleratedLine()
    debts = ledger._ModelDebts()
    debts.add(line, 1.0)
    assert debts.lost(line) == 1.0
    del line
    assert (debts._alive, debts._lost) == ({}, {})


def test_threads_that_have_ended_leave_nothing(data, left):
    X, y = data

    def work(i):
        with accelsk.config_context(device=("auto", "cpu")[i % 2]):
            return weakref.ref(AcceleratedLine().fit(X, y))

    references = together(work)
    assert left() == NOTHING
    assert [reference() for reference in references] == [None] * 16


def test_rows_of_the_caller_are_let_go(data):
    X, y = (np.array(a) for a in data)
    line = AcceleratedLine().fit(X, y)
    line.predict(X)
    references = weakref.ref(X), weakref.ref(y)
    del X, y
    assert [reference() for reference in references] == [None, None]
    assert line.coef_.shape == (3,)
