"""How many bytes a thread has moved between host and device."""

from __future__ import annotations

import threading
from typing import NamedTuple

__all__ = ["Traffic", "moved", "received", "sent"]


class Traffic(NamedTuple):
    """Bytes moved.

    Attributes
    ----------
    uploaded, downloaded : int
        To the device and from it.
    """

    uploaded: int = 0
    downloaded: int = 0

    def __add__(self, other: Traffic) -> Traffic:  # type: ignore[override]
        return Traffic(self.uploaded + other.uploaded, self.downloaded + other.downloaded)

    def __sub__(self, other: Traffic) -> Traffic:
        return Traffic(self.uploaded - other.uploaded, self.downloaded - other.downloaded)


class _Count(threading.local):
    so_far = Traffic()


_count = _Count()


def sent(n_bytes: int) -> None:
    """Count bytes that the current thread has sent to the device."""
    up, down = _count.so_far
    _count.so_far = Traffic(up + n_bytes, down)


def received(n_bytes: int) -> None:
    """Count bytes that have come from the device to the current thread."""
    up, down = _count.so_far
    _count.so_far = Traffic(up, down + n_bytes)


def moved() -> Traffic:
    """Return what the current thread has moved since it began."""
    return _count.so_far
