"""Transfers that fail, are interrupted, or are under way as the process forks."""

from __future__ import annotations

import os
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from processes import in_fork
from test_staging import Placed, _matrix, _memcpy, cuda  # noqa: F401 - a fixture

from accelsk.device import staging, stream, transfer

pytestmark = [
    pytest.mark.usefixtures("cuda"),
    pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork:DeprecationWarning"),
]


def _arrives(X):
    return (transfer.to_host(transfer.to_device(X)) == X).all()


def test_forked_child_destroys_nothing_that_only_cuda_can(monkeypatch):
    destroyed = []

    class Stream(type(sys.modules["cupy"].cuda.get_current_stream())):
        def __del__(self):
            destroyed.append(os.getpid())

    monkeypatch.setattr(sys.modules["cupy"].cuda, "Stream", Stream)
    monkeypatch.setattr(staging._Lane, "_of_thread", {})
    assert _arrives(_matrix())
    assert in_fork(lambda: (len(destroyed), staging._executors)) == "(0, {})"
    assert _arrives(_matrix())


def test_forked_child_of_a_transfer_does_not_wait_for_it(monkeypatch):
    # a copy that is under way in other threads
    slow = threading.Event()

    def memcpy(*args):
        slow.wait(0.2)
        _memcpy(*args)

    monkeypatch.setattr(sys.modules["cupy"].cuda.runtime, "memcpyAsync", memcpy)
    blocks = stream.row_blocks([_matrix()], rows=100)
    next(blocks)
    assert in_fork(lambda: "no lock is held" if staging._executors_lock.acquire() else "") == (
        "'no lock is held'"
    )
    slow.set()
    assert sum(len(block) for (block,) in blocks) == 600


def test_what_no_thread_can_be_started_for_is_done_by_the_caller(monkeypatch):
    def submit(*_):
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(ThreadPoolExecutor, "submit", submit)
    X = _matrix()
    assert _arrives(X)
    blocks = [block.copy() for (block,) in stream.row_blocks([X], rows=50)]
    assert (np.vstack(blocks).view(np.ndarray) == X).all()


def test_threads_that_lack_others_do_not_wait_for_them(monkeypatch):
    submit, left = ThreadPoolExecutor.submit, [1]

    def grudging(*args):
        if not left:
            raise RuntimeError("can't start new thread")
        left.pop()
        return submit(*args)

    monkeypatch.setattr(os, "cpu_count", lambda: 4)
    monkeypatch.setattr(ThreadPoolExecutor, "submit", grudging)
    assert _arrives(_matrix())
    monkeypatch.setattr(ThreadPoolExecutor, "submit", submit)
    assert _arrives(_matrix())


def test_memory_is_given_back_once_nothing_is_on_its_way_to_it(monkeypatch):
    current = sys.modules["cupy"].cuda.get_current_stream()
    awaited = []
    monkeypatch.setattr(current, "wait_event", awaited.append, raising=False)
    blocks = stream.row_blocks([_matrix(7000)], rows=100)
    next(blocks)
    del awaited[:]
    blocks.close()
    assert awaited


def test_upload_whose_companion_fails_is_given_up(monkeypatch):
    copies = []

    def memcpy(*args):
        time.sleep(0.005)
        copies.append(args)
        _memcpy(*args)

    def empty(shape, dtype):
        if np.dtype(dtype) == np.float32:
            raise MemoryError("cudaErrorMemoryAllocation: out of memory")
        return np.empty(shape, dtype).view(Placed)

    monkeypatch.setattr(sys.modules["cupy"].cuda.runtime, "memcpyAsync", memcpy)
    monkeypatch.setattr(sys.modules["cupy"], "empty", empty)
    X = _matrix(9000)
    for begin in (
        lambda: list(stream.row_blocks([X, X.astype(np.float32)], rows=500)),
        lambda: transfer.to_device(transfer.Columns([*X.T, X[:, 0].astype(np.float32)], "f8")),
    ):
        with pytest.raises(MemoryError):
            begin()
        ended = len(copies)
        time.sleep(0.05)
        assert len(copies) == ended


@pytest.mark.parametrize("interrupt", [KeyboardInterrupt, SystemExit])
def test_interrupt_while_waiting_leaves_transfers_usable(interrupt, monkeypatch):
    waits = staging.threading.Condition.wait_for

    def interrupted(self, *args):
        if threading.current_thread() is not threading.main_thread():
            return waits(self, *args)
        monkeypatch.setattr(staging.threading.Condition, "wait_for", waits)
        raise interrupt

    X = _matrix(9000)
    for begin in (
        lambda: transfer.to_device(X),
        lambda: list(stream.row_blocks([X], rows=100)),
        lambda: transfer.to_host(np.ascontiguousarray(X).view(Placed)),
    ):
        monkeypatch.setattr(staging.threading.Condition, "wait_for", interrupted)
        with pytest.raises(interrupt):
            begin()
        assert _arrives(X)


def test_interrupt_while_threads_start_leaves_transfers_usable(monkeypatch):
    submit = ThreadPoolExecutor.submit

    def interrupted(self, *args):
        monkeypatch.setattr(ThreadPoolExecutor, "submit", submit)
        raise KeyboardInterrupt

    for executors in ({}, staging._executors):  # while the first ones start, and later
        monkeypatch.setattr(staging, "_executors", dict(executors))
        monkeypatch.setattr(ThreadPoolExecutor, "submit", interrupted)
        with pytest.raises(KeyboardInterrupt):
            transfer.to_device(_matrix())
        assert _arrives(_matrix())
