"""Faults of the GPU while a pipeline, a search or a cross-validation has its data there."""

from __future__ import annotations

import pickle
import warnings

import numpy as np
import pytest
from alike import device  # noqa: F401 - a fixture
from comparison import assert_same
from composites import PIPELINES, answers, data, ours, up
from device_double import DeviceArray
from sklearn import model_selection as theirs
from sklearn.base import clone
from sklearn.cluster import KMeans
from sklearn.decomposition import PCA
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.metrics import r2_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import accelsk
import accelsk.algorithms.metrics
import accelsk.cluster
import accelsk.metrics
import accelsk.model_selection
from accelsk import dispatch
from accelsk.data import describe
from accelsk.device import memory, probe, resident, transfer
from accelsk.device.memory import make_room
from accelsk.device.resident import Resident, Session, Source, remembered
from accelsk.device.transfer import to_host
from accelsk.exceptions import LostModelError

_FULL = MemoryError("std::bad_alloc")


@pytest.fixture(autouse=True)
def _falls_back(device, monkeypatch):  # noqa: F811
    monkeypatch.setattr(probe, "unusable", lambda: probe._disabled)
    monkeypatch.setattr(memory, "free_pools", lambda: None)  # collecting garbage takes its time
    with accelsk.config_context(on_fallback="log"):
        yield


class _Fault:
    """What happens to the device at the call of an engine that is in turn.

    Parameters
    ----------
    kind : {"once", "for good", "lost"}
        Memory runs out for a call, or for all that follow; or the GPU is lost.
    at : int
        The first call is 1.
    """

    def __init__(self, monkeypatch, kind, at):
        self.kind, self.at, self.calls = kind, at, 0
        self._run, self._get = dispatch.repeats.run, DeviceArray.get
        monkeypatch.setattr(dispatch.repeats, "run", self.run)
        monkeypatch.setattr(DeviceArray, "get", lambda array, order="C": self.get(array, order))

    @property
    def lost(self):
        return self.kind == "lost" and self.calls >= self.at

    def run(self, engine, call, model):
        self.calls += 1
        self.check()
        if self.calls == self.at or (self.calls > self.at and self.kind == "for good"):
            raise _FULL
        return self._run(engine, call, model)

    def get(self, array, order):
        self.check()
        return self._get(array, order)

    def check(self):
        if self.lost:
            raise RuntimeError("cudaErrorIllegalAddress: an illegal memory access")


_KINDS = ["once", "for good", "lost"]
_NAMES = ["all", "on the CPU between", "nested", "union with the CPU", "weighted union"]


@pytest.mark.parametrize("at", [1, 2, 3])
@pytest.mark.parametrize("kind", _KINDS)
@pytest.mark.parametrize("name", _NAMES)
def test_the_fit_of_a_pipeline_ends_as_scikit_learn_s(name, kind, at, monkeypatch):
    X, y = data(400)
    plain, pipeline = clone(PIPELINES[name]), ours(clone(PIPELINES[name]))
    _Fault(monkeypatch, kind, at)
    pipeline.fit(X, y)
    plain.fit(X, y)
    for method, expected in answers(plain, X, y):
        arguments = (X, y) if method == "score" else (X,)
        assert_same(getattr(pipeline, method)(*arguments), expected, method, 1e-6)


@pytest.mark.parametrize("at", [1, 2])
@pytest.mark.parametrize("kind", _KINDS)
@pytest.mark.parametrize("name", _NAMES)
def test_the_methods_of_a_pipeline_end_as_scikit_learn_s(name, kind, at, monkeypatch):
    X, y = data(400)
    plain, pipeline = clone(PIPELINES[name]).fit(X, y), ours(clone(PIPELINES[name])).fit(X, y)
    pickle.dumps(pipeline)  # fetches everything
    for method, expected in answers(plain, X, y):
        probe._disabled = None
        with monkeypatch.context() as patch:
            _Fault(patch, kind, at)
            arguments = (X, y) if method == "score" else (X,)
            assert_same(getattr(pipeline, method)(*arguments), expected, method, 1e-6)


@pytest.mark.parametrize("at", [1, 2])
@pytest.mark.parametrize("kind", ["once", "for good"])
@pytest.mark.parametrize("name", _NAMES)
def test_the_callers_data_on_a_full_device_come_back_there(name, kind, at, monkeypatch):
    X, y = data(400)
    plain, pipeline = clone(PIPELINES[name]).fit(X, y), ours(clone(PIPELINES[name]))
    _Fault(monkeypatch, kind, at)
    pipeline.fit(up(X), up(y))
    for method, expected in answers(plain, X, y):
        arguments = (up(X), up(y)) if method == "score" else (up(X),)
        found = getattr(pipeline, method)(*arguments)
        if isinstance(expected, np.ndarray):
            assert type(found) is DeviceArray, method
            found = found.get()
        assert_same(found, expected, method, 1e-6)


def _candidates():
    yield Ridge(), {"alpha": [0.1, 10.0]}, False
    pipeline = make_pipeline(StandardScaler(), PCA(3), LogisticRegression())
    yield pipeline, {"logisticregression__C": [0.1, 10.0]}, True


@pytest.mark.parametrize("at", [1, 2, 4, 9])
@pytest.mark.parametrize("kind", _KINDS)
@pytest.mark.parametrize("classifies", [False, True])
def test_a_search_ends_as_scikit_learn_s(classifies, kind, at, monkeypatch):
    X, y = data(120)
    estimator, grid, _ = [*_candidates()][classifies]
    y = (y > np.median(y)).astype(int) if classifies else y
    plain = theirs.GridSearchCV(clone(estimator), grid, cv=3).fit(X, y)
    search = accelsk.model_selection.GridSearchCV(ours(clone(estimator)), grid, cv=3)
    fault = _Fault(monkeypatch, kind, at)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of what failed in the first go
        search.fit(X, y)
    assert fault.calls >= at
    for name in ("mean_test_score", "std_test_score", "rank_test_score"):
        np.testing.assert_allclose(search.cv_results_[name], plain.cv_results_[name], atol=1e-6)
    assert search.best_params_ == plain.best_params_
    assert_same(search.predict(X), plain.predict(X), tolerance=1e-5)
    assert not [name for name in vars(search) if "accelsk" in name]


@pytest.mark.parametrize("function", ["cross_val_score", "cross_val_predict"])
@pytest.mark.parametrize("at", [1, 2, 4])
@pytest.mark.parametrize("kind", _KINDS)
def test_a_cross_validation_ends_as_scikit_learn_s(function, kind, at, monkeypatch):
    X, y = data(120)
    expected = getattr(theirs, function)(Ridge(), X, y, cv=3)
    fault = _Fault(monkeypatch, kind, at)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = getattr(accelsk.model_selection, function)(ours(Ridge()), X, y, cv=3)
    assert fault.calls >= at
    assert_same(found, expected, tolerance=1e-6)


def test_k_means_that_is_lost_predicts_by_the_centres_that_were_at_hand(monkeypatch):
    X, _ = data(90)
    ours = accelsk.cluster.KMeans(3, n_init=1, random_state=0).fit(X)
    plain = KMeans(3, n_init=1, random_state=0).fit(X)
    _Fault(monkeypatch, "lost", 1)
    assert_same(ours.predict(X), plain.predict(X))
    assert ours.n_iter_ == plain.n_iter_
    with pytest.raises(LostModelError):
        _ = ours.labels_
    assert_same(ours.fit(X).labels_, plain.labels_)


# What is kept there


def test_what_can_be_sent_or_made_again_is_given_back():
    X, _ = data(60)
    session = Session()
    whole = Resident(Source(describe(X), session))
    cut = whole[np.array([5, 3, 8])]
    made = []

    def total(array):
        made.append(array)
        return array.on_device.sum()

    first = remembered("total", [cut], total)
    assert "on_device" in vars(whole.source)
    assert "data of a search or pipeline" in make_room(_FULL)
    assert "on_device" not in vars(whole.source)
    assert "key" not in vars(cut.rows)
    assert not session._kept
    again = whole[np.array([5, 3, 8])]
    assert again.rows is cut.rows
    assert remembered("total", [again], total) == first
    assert len(made) == 2


def test_what_is_on_the_device_alone_is_not_given_up():
    X, _ = data(60)
    whole = Resident(Source(describe(up(X)), Session()))
    _ = whole.on_device
    make_room(_FULL)
    np.testing.assert_array_equal(whole.get(), X)


def test_sessions_that_are_gone_are_not_kept_alive():
    import gc

    gc.collect()
    before = len(Session.live)
    session = Session()
    source = Source(describe(np.ones((3, 2))), session)
    assert len(Session.live) == before + 1
    del session, source
    gc.collect()
    assert len(Session.live) == before
    assert resident._data_of_searches(None) is not None


@pytest.mark.parametrize("cut", [slice(None), slice(None, None, 2)])
@pytest.mark.parametrize("shape", [(1000,), (1000, 7), (1, 300), (400, 2, 3)])
def test_results_come_back_by_and_by_where_the_device_is_full(cut, shape, monkeypatch):
    host = np.random.default_rng(0).normal(size=shape)[cut]

    def get(array, order="C"):
        if array.nbytes > 1 << 12:
            raise _FULL
        return np.array(array.view(np.ndarray), order=order)

    monkeypatch.setattr(transfer, "_LITTLE", 1 << 10)
    monkeypatch.setattr(DeviceArray, "get", get)
    np.testing.assert_array_equal(to_host(up(host)), host)


def test_one_number_or_an_error_that_is_none_of_memory_is_no_case_for_pieces(monkeypatch):
    def get(array, order="C"):
        raise error

    monkeypatch.setattr(DeviceArray, "get", get)
    for error, shape in ((_FULL, ()), (ValueError("bad"), (3, 2))):
        with pytest.raises(type(error)):
            to_host(up(np.ones(shape)))


# Functions


@pytest.mark.parametrize("once", [True, False])
def test_a_score_that_does_not_fit_is_tried_again(once, monkeypatch):
    _, y = data(60)
    calls, average = [], accelsk.algorithms.metrics.average

    def tight(*args):
        calls.append(1)
        if not once or len(calls) == 1:
            raise _FULL
        return average(*args)

    monkeypatch.setattr("accelsk.algorithms.metrics.average", tight)
    with accelsk.profile(quiet=True) as results:
        found = accelsk.metrics.r2_score(up(y), up(y + 1))
    assert found == pytest.approx(r2_score(y, y + 1))
    stats = results.method_calls["r2_score"]
    assert (stats.gpu_calls, stats.cpu_calls) == ((1, 0) if once else (0, 1))
    ending = "went well" if once else "ran out of memory, too"
    assert [note.endswith(ending) for note in stats.notes] == [True]
