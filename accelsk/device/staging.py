"""Large arrays between host and device at the speed of the bus.

Memory that a program allocates is pageable, and the driver moves it at a fraction of what the bus
carries. Here several threads copy pieces to or from pinned buffers, each while its piece before
is on the bus. A transfer is begun and finished: in between the caller may compute.

Each thread has a stream and two buffers of its own, so that transfers of any number of the
caller's threads need no lock.
"""

from __future__ import annotations

import itertools
import os
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Any, ClassVar, NamedTuple

import numpy as np

from accelsk.config import current

__all__ = [
    "Piece",
    "Transfer",
    "begin_download",
    "begin_upload",
    "pieces_of",
    "pieces_of_columns",
    "worthwhile",
]

#: More threads than this do not copy any faster (one H200 with 16 cores, 2026-11-30).
_MOST_THREADS = 8

#: Below this many bytes waking the threads costs more than they save (likewise).
_LEAST_BYTES = 1 << 21

#: Uploads and downloads have threads of their own: the bus carries both ways at once.
_POOLS = 2
_BUFFERS = 2


class Piece(NamedTuple):
    """A part of an array on the host, and where it stands in memory on the device.

    Attributes
    ----------
    host : ndarray or list of ndarray
        Any layout. What it holds is, or is to be, in C order on the device; arrays of one
        dimension in a list one after the other. Uploads alone take lists.
    offset : int
        Elements from the start of the memory on the device.
    """

    host: Any
    offset: int


def pieces_of(host: np.ndarray, offset: int = 0) -> Iterator[Piece]:
    """Yield `host`, whose axes are in the order of its memory, in pieces that fit a buffer."""
    size = _buffer_bytes()
    if host.nbytes <= size:
        yield Piece(host, offset)
    elif host.flags.c_contiguous:
        flat = host.reshape(-1)
        step = size // host.itemsize
        for start in range(0, len(flat), step):
            yield Piece(flat[start : start + step], offset + start)
    elif step := size // (host.nbytes // len(host)):
        row = host.size // len(host)
        for start in range(0, len(host), step):
            yield Piece(host[start : start + step], offset + start * row)
    else:
        for index, part in enumerate(host):
            yield from pieces_of(part, offset + index * part.size)


def pieces_of_columns(columns: Sequence[np.ndarray], itemsize: int) -> Iterator[Piece]:
    """Yield columns of one length, which are to follow each other, several to a piece."""
    length = len(columns[0])
    together = _buffer_bytes() // max(itemsize * length, 1)
    if together < 2:
        for place, column in enumerate(columns):
            yield from pieces_of(column, place * length)
        return
    for place in range(0, len(columns), together):
        yield Piece(list(columns[place : place + together]), place * length)


def worthwhile(n_bytes: int) -> bool:
    """Whether this many bytes travel faster through pinned buffers than the plain way."""
    return n_bytes >= _LEAST_BYTES and current().pinned_memory > 0


def _threads() -> int:
    return min(_MOST_THREADS, os.cpu_count() or 1)


def _buffer_bytes() -> int:
    """Return the size of a buffer: all of them together keep to the setting."""
    share = current().pinned_memory // (_POOLS * _BUFFERS * _threads())
    return max(1 << 16, share)


class _Lane:
    """What a thread transfers with: a stream, and buffers that are busy until their event."""

    def __init__(self, device: int, size: int) -> None:
        import cupy

        self.key = (device, size)
        self.stream = cupy.cuda.Stream(non_blocking=True)
        self.buffers = [cupy.cuda.alloc_pinned_memory(size) for _ in range(_BUFFERS)]
        self.addresses = [buffer.ptr for buffer in self.buffers]
        self.events = [cupy.cuda.Event(disable_timing=True) for _ in range(_BUFFERS)]

    _of_thread: ClassVar = threading.local()

    @classmethod
    def of_thread(cls, device: int, size: int) -> _Lane:
        """Return the lane of the current thread, made anew where another one is asked for."""
        lane: _Lane | None = getattr(cls._of_thread, "lane", None)
        if lane is None or lane.key != (device, size):
            cls._of_thread.lane = None  # its memory first
            lane = cls._of_thread.lane = cls(device, size)
        return lane

    def place(self, slot: int, shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
        """Return the start of a buffer as an array in C order."""
        return np.ndarray(shape, dtype, self.buffers[slot])

    def upload(self, pieces: Iterator[Piece], target: int, dtype: np.dtype) -> None:
        import cupy

        runtime = cupy.cuda.runtime

        for number, (host, offset) in enumerate(pieces):
            slot = number % _BUFFERS
            self.events[slot].synchronize()
            if isinstance(host, list):
                held = self.place(slot, (len(host) * len(host[0]),), dtype)
                np.concatenate(host, out=held, casting="same_kind")
            else:
                held = self.place(slot, host.shape, dtype)
                np.copyto(held, host, casting="same_kind")
            runtime.memcpyAsync(
                target + offset * dtype.itemsize,
                self.addresses[slot],
                held.nbytes,
                runtime.memcpyHostToDevice,
                self.stream.ptr,
            )
            self.events[slot].record(self.stream)

    def download(self, pieces: Iterator[Piece], source: int) -> None:
        import cupy

        runtime = cupy.cuda.runtime

        waiting: tuple[int, np.ndarray] | None = None
        for number, (host, offset) in enumerate(pieces):
            slot = number % _BUFFERS
            runtime.memcpyAsync(
                self.addresses[slot],
                source + offset * host.itemsize,
                host.nbytes,
                runtime.memcpyDeviceToHost,
                self.stream.ptr,
            )
            self.events[slot].record(self.stream)
            if waiting is not None:
                self._unload(*waiting)
            waiting = slot, host
        if waiting is not None:
            self._unload(*waiting)

    def _unload(self, slot: int, host: np.ndarray) -> None:
        self.events[slot].synchronize()
        np.copyto(host, self.place(slot, host.shape, host.dtype))


class _Shared(Iterator[Piece]):
    """An iterator that several threads take from."""

    def __init__(self, pieces: Iterable[Piece]) -> None:
        self._pieces = list(pieces)
        self._next = itertools.count()

    def __len__(self) -> int:
        return len(self._pieces)

    def __next__(self) -> Piece:
        number = next(self._next)  # atomic
        if number >= len(self._pieces):
            raise StopIteration
        return self._pieces[number]


class Transfer:
    """A transfer that has begun."""

    def __init__(self, lanes: list[Future[Any]]) -> None:
        self._lanes = lanes

    def finish(self) -> None:
        """Wait until the host arrays are done with; the device arrays are so for the stream.

        Raises
        ------
        Exception
            What went wrong in one of the threads.
        """
        import cupy

        wait(self._lanes)
        stream = cupy.cuda.get_current_stream()
        for lane in self._lanes:
            stream.wait_event(lane.result())


_executors: dict[str, ThreadPoolExecutor] = {}
_executors_lock = threading.Lock()


def _executor(name: str) -> ThreadPoolExecutor:
    with _executors_lock:
        if name not in _executors:
            _executors[name] = ThreadPoolExecutor(_threads(), f"accelsk-{name}")
        return _executors[name]


def _forget_threads() -> None:
    # threads do not survive a fork, and what they wait on may be locked for ever
    global _executors_lock
    _executors_lock = threading.Lock()
    _executors.clear()


os.register_at_fork(after_in_child=_forget_threads)


def _begin(name: str, pieces: Iterable[Piece], move: Callable[[_Lane, _Shared], None]) -> Transfer:
    import cupy

    shared = _Shared(pieces)
    device, size = cupy.cuda.runtime.getDevice(), _buffer_bytes()
    # memory on the device may still be in use by what was launched before
    before = cupy.cuda.get_current_stream().record()

    def work() -> Any:
        cupy.cuda.runtime.setDevice(device)
        lane = _Lane.of_thread(device, size)
        lane.stream.wait_event(before)
        move(lane, shared)
        return lane.stream.record()

    executor = _executor(name)
    return Transfer([executor.submit(work) for _ in range(min(len(shared), _threads()))])


def begin_upload(pieces: Iterable[Piece], target: int, dtype: np.dtype) -> Transfer:
    """Begin to copy pieces to device memory.

    Parameters
    ----------
    pieces : iterable of Piece
        As `pieces_of` makes them.
    target : int
        The address on the device.
    dtype : dtype
        Theirs, or what to cast to on the way, which is no wider.
    """
    return _begin("upload", pieces, lambda lane, shared: lane.upload(shared, target, dtype))


def begin_download(pieces: Iterable[Piece], source: int) -> Transfer:
    """Begin to copy device memory to the pieces; `source` is the address on the device."""
    return _begin("download", pieces, lambda lane, shared: lane.download(shared, source))
