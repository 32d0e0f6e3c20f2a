"""Locks that a forked child can take, whoever held them in its parent.

A child has the thread that forked alone: what any other one held would stay locked for ever.
"""

from __future__ import annotations

import contextlib
import os
import threading
import weakref

__all__ = ["Lock"]

_locks: weakref.WeakSet[Lock] = weakref.WeakSet()


class Lock:
    """A lock that its thread can take again, and that no thread has in a forked child."""

    def __init__(self) -> None:
        self._renew()
        _locks.add(self)

    def _renew(self) -> None:
        self._lock = threading.RLock()

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self.release()

    def acquire(self, timeout: float) -> bool:
        """Return whether the lock could be taken within so many seconds."""
        return self._lock.acquire(timeout=timeout)

    def release(self) -> None:
        """Let others take the lock."""
        with contextlib.suppress(RuntimeError):  # a child forked in the meantime has a new one
            self._lock.release()


def _renew_all() -> None:
    for lock in _locks:
        lock._renew()


os.register_at_fork(after_in_child=_renew_all)
