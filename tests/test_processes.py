"""A forked child computes on the CPU, on what is on the host; other children use the GPU."""

from __future__ import annotations

import gc
import multiprocessing
import os
import re
import sys
import threading
import time
import weakref
from pathlib import Path

import joblib
import numpy as np
import pytest
from comparison import assert_same
from engine import AcceleratedLine, Line, engine_of
from processes import PATIENCE, held_elsewhere, in_fork
from sklearn.model_selection import cross_val_score

import accelsk
from accelsk import warmup
from accelsk._locks import Lock, _locks
from accelsk.device import probe
from accelsk.estimator import DeviceState
from accelsk.exceptions import LostModelError


@pytest.fixture
def line(data):
    gc.collect()  # or a fork fetches what tests before have left, too
    return AcceleratedLine().fit(*data)


@pytest.fixture
def plain(data):
    return Line().fit(*data)


pytestmark = pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork:DeprecationWarning")


# Forks


def test_forked_child_finds_attributes_on_the_host(line, plain):
    assert in_fork(lambda: line.coef_.round(9).tolist()) == repr(plain.coef_.round(9).tolist())
    assert engine_of(line).counts["attributes"] == 1


def test_forked_child_predicts(line, plain, data):
    expected = plain.predict(data[0]).round(9).tolist()
    assert in_fork(lambda: line.predict(data[0]).round(9).tolist()) == repr(expected)


def test_forked_child_does_not_use_the_gpu(monkeypatch):
    monkeypatch.setattr(probe, "_found", (object(), None))
    assert accelsk.enabled()
    answer = in_fork(lambda: (accelsk.enabled(), probe.unusable()))
    assert answer == repr((False, "CUDA cannot be used in a forked process"))
    assert accelsk.enabled()


def test_fork_is_quiet(line, capfd):
    in_fork(lambda: line.coef_.shape)
    assert capfd.readouterr() == ("", "")


def test_parent_goes_on_with_its_device_model(line, data):
    in_fork(lambda: None)
    line.predict(data[0])
    assert engine_of(line).counts == {"fit": 1, "attributes": 1, "predict": 1}


def test_one_model_that_cannot_be_fetched_does_not_cost_the_others(line, plain, data, caplog):
    class Broken(AcceleratedLine):
        pass

    lost = Broken().fit(*data)
    state = vars(lost)["_accelsk_state"]

    def broken(estimator):
        raise RuntimeError("the bus is gone")

    state.fetch = broken
    others = [AcceleratedLine().fit(*data) for _ in range(3)]
    DeviceState.fetch_all()
    assert all("coef_" in vars(other) for other in (line, *others))
    assert ["Broken stays on the GPU: the bus is gone" in r.message for r in caplog.records] == [
        True
    ]


def _predict(job):
    estimator, X = job
    return estimator.predict(X)


def test_multiprocessing_by_fork_works(line, plain, data):
    X, _ = data
    with multiprocessing.get_context("fork").Pool(2) as pool:
        for predicted in pool.map(_predict, [(line, X)] * 4):
            assert_same(predicted, plain.predict(X))


def _predict_global(_):
    return _SHARED.predict(np.ones((2, 3)))


_SHARED = None


def test_global_estimator_is_inherited_by_a_forked_pool(line, plain, monkeypatch):
    monkeypatch.setattr(f"{__name__}._SHARED", line)
    with multiprocessing.get_context("fork").Pool(2) as pool:
        for predicted in pool.map(_predict_global, range(4)):
            assert_same(predicted, plain.predict(np.ones((2, 3))))


@pytest.mark.parametrize("backend", ["loky", "multiprocessing", "threading"])
def test_cross_validation_in_two_workers(backend, data):
    with joblib.parallel_config(backend):
        ours = cross_val_score(AcceleratedLine(), *data, cv=4, n_jobs=2)
    np.testing.assert_allclose(ours, cross_val_score(Line(), *data, cv=4))


# What a child has of the device


def test_fork_of_a_fork_computes_on_the_cpu(line, plain, data, monkeypatch):
    monkeypatch.setattr(probe, "_found", (object(), None))
    expected = repr((False, plain.coef_.round(9).tolist()))

    def grandchild():
        return in_fork(lambda: (accelsk.enabled(), line.coef_.round(9).tolist()))

    assert in_fork(grandchild) == repr(expected)


def test_fork_from_a_thread(line, plain, data):
    answers = []
    thread = threading.Thread(
        target=lambda: answers.append(in_fork(lambda: line.predict(data[0]).round(9).tolist()))
    )
    thread.start()
    thread.join(PATIENCE)
    assert answers == [repr(plain.predict(data[0]).round(9).tolist())]


class _Untouchable:
    """A model that can only be destroyed where it was made."""

    def __init__(self, coef):
        self.coef_, self.scale_ = coef, 1.0
        self.destroyed = []
        self._pid = os.getpid()

    def __deepcopy__(self, memo):
        return self

    def __del__(self):
        if os.getpid() != self._pid:
            self.destroyed.append(self._pid)


def test_child_destroys_no_device_model(line, data):
    state = vars(line)["_accelsk_state"]
    state.model = _Untouchable(line.coef_)
    destroyed = state.model.destroyed
    del state

    def child():
        with accelsk.config_context(device="cpu"):
            line.fit(*data)
        gc.collect()
        return destroyed

    assert in_fork(child) == "[]"


def test_child_does_not_ask_the_device_for_what_was_fitted_as_it_was_forked(data):
    line = AcceleratedLine().fit(*data)
    engine = engine_of(line)
    vars(line)["_accelsk_state"]._owner = lambda: None  # nobody fetches it

    def child():
        engine.counts.clear()
        try:
            _ = line.coef_
        except LostModelError as error:
            told = str(error)
        refitted = line.fit(*data).predict(data[0]).shape
        return engine.counts["attributes"], "forked process" in told, refitted

    assert in_fork(child) == "(0, True, (40,))"
    vars(line)["_accelsk_state"]._owner = weakref.ref(line)
    assert_same(line.coef_, Line().fit(*data).coef_)


def test_fork_while_another_thread_fetches_waits_for_it(line, plain, monkeypatch):
    fetch, begun = engine_of(line).attributes, threading.Event()

    def slow(*args):
        begun.set()
        time.sleep(0.2)
        return fetch(*args)

    monkeypatch.setattr(engine_of(line), "attributes", slow)
    thread = threading.Thread(target=lambda: line.coef_)
    thread.start()
    assert begun.wait(PATIENCE)
    assert in_fork(lambda: line.coef_.round(9).tolist()) == repr(plain.coef_.round(9).tolist())
    thread.join(PATIENCE)


def test_fork_does_not_wait_for_ever(line, monkeypatch):
    monkeypatch.setattr("accelsk.state._PATIENCE", 0.1)
    with held_elsewhere(vars(line)["_accelsk_state"]._lock):
        assert "LostModelError" in in_fork(lambda: line.coef_)
    assert line.coef_.shape == (3,)


def test_locks_that_other_threads_hold_are_free_in_a_child():
    locks = list(_locks)
    with held_elsewhere(*locks):
        answer = in_fork(lambda: all(lock.acquire(0.01) for lock in locks))
    assert len(locks) > 5
    assert answer == "True"


def test_thread_that_gets_the_gpu_ready_does_not_wait_for_itself():
    gate, answers = warmup._Gate(), []

    def work():
        gate.open()
        gate.before_fork()
        gate.after_fork()
        answers.append(True)
        gate.close()

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    thread.join(5)
    assert answers == [True]


def test_fork_within_a_lock_leaves_it():
    lock = Lock()
    with lock:
        assert in_fork(lambda: lock.__exit__() or lock.acquire(0.1)) == "True"
    assert lock.acquire(0.1)
    lock.release()


def test_no_lock_of_the_package_stays_locked_in_a_child():
    plain = re.compile(r"threading\.(R?Lock|Condition|Semaphore)\(")
    package = Path(accelsk.__file__).parent
    users = {
        str(path.relative_to(package))
        for path in package.rglob("*.py")
        if plain.search(path.read_text("utf-8"))
    }
    # these have hooks of their own, or what they lock does not outlive a call
    assert users == {
        "_blas.py",
        "_locks.py",
        "device/probe.py",
        "device/staging.py",
        "profiling/events.py",
        "warmup.py",
    }


# What goes on in a parent


def test_calls_of_a_child_are_in_the_profile_of_its_parent(line, data):
    def child():
        line.predict(data[0])
        return sorted(results.method_calls)

    with accelsk.profile(quiet=True) as results:
        assert in_fork(child) == "[]"
    assert results.method_calls["Line.predict"].worker_calls == 1


@pytest.mark.parametrize("block", [accelsk.profile, accelsk.line_profile])
def test_child_that_leaves_a_profile_reports_nothing(block, capfd):
    pid = None
    try:
        with block():
            pid = os.fork()
            if pid:
                os.waitpid(pid, 0)
    finally:
        if pid == 0:
            sys.stdout.flush()
            os._exit(0)
    sys.stdout.flush()
    heading = "No calls" if block is accelsk.profile else "test_processes.py"
    assert capfd.readouterr().out.count(heading) == 1


def test_fork_while_threads_fetch_does_not_hang(data, plain):
    X, y = data
    stop = threading.Event()

    def work():
        while not stop.is_set():
            _ = AcceleratedLine().fit(X, y).coef_

    threads = [threading.Thread(target=work, daemon=True) for _ in range(4)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(10):
            line = AcceleratedLine().fit(X, y)
            expected = repr(plain.coef_.round(9).tolist())
            assert in_fork(lambda line=line: line.coef_.round(9).tolist()) == expected
    finally:
        stop.set()
        for thread in threads:
            thread.join()
