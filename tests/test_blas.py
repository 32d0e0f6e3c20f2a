"""The threads of the BLAS on the host."""

from __future__ import annotations

import threading

import numpy as np
import pytest
import scipy.linalg  # noqa: F401 - brings a BLAS of its own
from threadpoolctl import threadpool_info, threadpool_limits

from accelsk._blas import one_thread


def threads():
    return {lib["num_threads"] for lib in threadpool_info() if lib["user_api"] == "blas"}


@pytest.fixture(autouse=True)
def two():
    np.ones((2, 2)) @ np.ones((2, 2))
    with threadpool_limits(2, "blas"):
        yield


def test_there_is_one_thread_inside_and_what_there_was_outside():
    with one_thread():
        assert threads() == {1}
        with one_thread():
            assert threads() == {1}
        assert threads() == {1}
    assert threads() == {2}


def test_an_error_gives_the_threads_back():
    with pytest.raises(KeyError), one_thread():
        raise KeyError
    assert threads() == {2}


def test_whoever_comes_second_leaves_the_threads_alone():
    entered, leave = threading.Event(), threading.Event()

    def other():
        with one_thread():
            entered.set()
            leave.wait(10)

    thread = threading.Thread(target=other)
    with one_thread():
        thread.start()
        assert entered.wait(10)
        assert threads() == {1}
    assert threads() == {2}
    leave.set()
    thread.join()
    assert threads() == {2}
    with one_thread():
        assert threads() == {1}
