"""Small problems of linear algebra on the host, without a crowd of threads.

After each call the threads of OpenBLAS wait for the next one for some 20 ms with their cores in
use. Where a small matrix is solved between two transfers, they keep those from the threads that
copy.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from threadpoolctl import ThreadpoolController

__all__ = ["one_thread"]

_taken = threading.Lock()


@functools.cache
def _libraries() -> ThreadpoolController:
    return ThreadpoolController().select(user_api="blas")


@contextmanager
def one_thread() -> Iterator[None]:
    """Have the BLAS on the host use one thread.

    Where somebody is inside already, nothing is done: limits that overlap could stay for ever.
    """
    if not _taken.acquire(blocking=False):
        yield
        return
    try:
        with _libraries().limit(limits=1):
            yield
    finally:
        _taken.release()
