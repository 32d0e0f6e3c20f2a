"""How many bytes a thread has moved between host and device, and when."""

from __future__ import annotations

import threading
from time import perf_counter
from typing import NamedTuple

__all__ = ["Traffic", "Transfer", "moved", "received", "sent"]


class Traffic(NamedTuple):
    """Bytes moved.

    Attributes
    ----------
    uploaded, downloaded : int
        To the device and from it.
    """

    uploaded: int = 0
    downloaded: int = 0


class Transfer(NamedTuple):
    """One transfer, or several that follow each other closely.

    Attributes
    ----------
    start : float
        On the clock of `time.perf_counter`.
    duration : float
        Seconds.
    uploaded, downloaded : int
        Bytes to the device and from it.
    """

    start: float
    duration: float
    uploaded: int = 0
    downloaded: int = 0


class _Count(threading.local):
    so_far = Traffic()
    transfers: list[Transfer] | None = None


_count = _Count()


def sent(n_bytes: int, since: float | None = None) -> None:
    """Count bytes that the current thread has sent to the device.

    `since` is when the transfer began, by `time.perf_counter`, if it has just ended.
    """
    up, down = _count.so_far
    _count.so_far = Traffic(up + n_bytes, down)
    if since is not None and _count.transfers is not None:
        _count.transfers.append(Transfer(since, perf_counter() - since, n_bytes, 0))


def received(n_bytes: int, since: float | None = None) -> None:
    """Count bytes that have come from the device to the current thread; `since` as in `sent`."""
    up, down = _count.so_far
    _count.so_far = Traffic(up, down + n_bytes)
    if since is not None and _count.transfers is not None:
        _count.transfers.append(Transfer(since, perf_counter() - since, 0, n_bytes))


def moved() -> Traffic:
    """Return what the current thread has moved since it began."""
    return _count.so_far


def keep_transfers() -> None:
    """Have the transfers of the current thread kept from now on."""
    _count.transfers = []


def take_transfers(since: float, *, last: bool) -> tuple[Transfer, ...]:
    """Return the transfers that began at `since` or later and have not been taken yet.

    None are kept any more after the `last` ones.
    """
    kept = _count.transfers or []
    taken = tuple(transfer for transfer in kept if transfer.start >= since)
    if last:
        _count.transfers = None
    elif taken:
        kept[:] = [transfer for transfer in kept if transfer.start < since]
    return taken
