"""Threads share an estimator, and a forked child computes on what is on the host."""

from __future__ import annotations

import multiprocessing
import os
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from comparison import assert_same
from engine import AcceleratedLine, Line, engine_of
from sklearn.model_selection import cross_val_score

import accelsk
from accelsk.device import probe
from accelsk.estimator import DeviceState


@pytest.fixture
def line(data):
    return AcceleratedLine().fit(*data)


@pytest.fixture
def plain(data):
    return Line().fit(*data)


def _in_fork(function):
    """Return what `function` returns in a forked child, or the text of its error."""
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            answer = repr(function())
        except BaseException as error:
            answer = f"{type(error).__name__}: {error}"
        os.write(write, answer.encode())
        os._exit(0)
    os.close(write)
    with os.fdopen(read) as pipe:
        answer = pipe.read()
    os.waitpid(pid, 0)
    return answer


pytestmark = pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork:DeprecationWarning")


# Forks


def test_forked_child_finds_attributes_on_the_host(line, plain):
    assert _in_fork(lambda: line.coef_.round(9).tolist()) == repr(plain.coef_.round(9).tolist())
    assert engine_of(line).counts["attributes"] == 1


def test_forked_child_predicts(line, plain, data):
    expected = plain.predict(data[0]).round(9).tolist()
    assert _in_fork(lambda: line.predict(data[0]).round(9).tolist()) == repr(expected)


def test_forked_child_does_not_use_the_gpu(monkeypatch):
    monkeypatch.setattr(probe, "_found", (object(), None))
    assert accelsk.enabled()
    answer = _in_fork(lambda: (accelsk.enabled(), probe.unusable()))
    assert answer == repr((False, "CUDA cannot be used in a forked process"))
    assert accelsk.enabled()


def test_fork_is_quiet(line, capfd):
    _in_fork(lambda: line.coef_.shape)
    assert capfd.readouterr() == ("", "")


def test_parent_goes_on_with_its_device_model(line, data):
    _in_fork(lambda: None)
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


def test_cross_validation_in_two_processes(data):
    ours = cross_val_score(AcceleratedLine(), *data, cv=4, n_jobs=2)
    np.testing.assert_allclose(ours, cross_val_score(Line(), *data, cv=4))


# Threads


def _together(function, n=16):
    """Return what `function` returns in `n` threads that start as one."""
    barrier = threading.Barrier(n)

    def work(i):
        barrier.wait(30)
        return function(i)

    with ThreadPoolExecutor(n) as pool:
        return list(pool.map(work, range(n)))


def test_many_threads_fetch_once(data, plain):
    X, y = data
    for _ in range(20):
        line = AcceleratedLine().fit(X, y)
        engine_of(line).counts.clear()
        for coef in _together(lambda i, line=line: line.coef_):
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

        for i, result in enumerate(_together(work)):
            assert_same(result, expected if i % 2 else plain.importances_)


def test_threads_restore_one_model(data, plain):
    X, y = data
    expected = plain.predict(X)
    for _ in range(10):
        line = accelsk.to_sklearn(AcceleratedLine().fit(X, y))
        restored = AcceleratedLine()
        restored.__dict__.update(vars(line))
        for result in _together(lambda i, e=restored: e.predict(X)):
            assert_same(result, expected)


def test_threads_fit_estimators_of_their_own(data):
    X, y = data

    def work(i):
        line = AcceleratedLine(shrinkage=float(i)).fit(X, y)
        return line.predict(X), line.coef_

    for i, (predicted, coef) in enumerate(_together(work)):
        theirs = Line(shrinkage=float(i)).fit(X, y)
        assert_same(predicted, theirs.predict(X))
        assert_same(coef, theirs.coef_)


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
            assert _in_fork(lambda line=line: line.coef_.round(9).tolist()) == expected
    finally:
        stop.set()
        for thread in threads:
            thread.join()
