"""Large arrays between host and device at the speed of the bus.

Memory that a program allocates is pageable, and the driver moves it at a fraction of what the bus
carries. Here several threads copy pieces to or from pinned buffers, each while its piece before
is on the bus. Pieces come in groups, such as blocks of rows: a thread goes on from one group to
the next without waiting for the others, as far as it is allowed to.

Each thread has a stream and two buffers of its own, so transfers of any number of the caller's
threads go on at once.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from accelsk.config import current
from accelsk.device.forks import abandon
from accelsk.device.pieces import Piece

__all__ = [
    "DOWNLOAD",
    "UPLOAD",
    "Transfer",
    "begin_download",
    "begin_upload",
    "worthwhile",
]

#: Below this many bytes waking the threads costs more than they save (one H200 with 16 cores,
#: 2026-11-30).
_LEAST_BYTES = 10 << 20

_WAYS = 2
_BUFFERS = 2


@dataclass(frozen=True)
class _Way:
    """Uploads or downloads: each has threads of its own, as the bus carries both at once.

    Attributes
    ----------
    name : str
    threads : int
        More do not copy any faster (where `_LEAST_BYTES` was measured).
    piece_bytes : int
        Smaller pieces cost more, about 0.1 ms each while the threads pass the interpreter on to
        each other; larger ones do not stay in the processor's cache (likewise).
    """

    name: str
    threads: int
    piece_bytes: int

    @property
    def n_threads(self) -> int:
        return min(self.threads, os.cpu_count() or 1)

    @property
    def buffer_bytes(self) -> int:
        """The size of a buffer, and the most that a piece may have."""
        share = current().pinned_memory // (_WAYS * _BUFFERS * self.n_threads)
        return max(1 << 16, min(self.piece_bytes, share))


UPLOAD = _Way("upload", 10, 6 << 20)
DOWNLOAD = _Way("download", 16, 4 << 20)


def worthwhile(n_bytes: int) -> bool:
    """Whether this many bytes travel faster through pinned buffers than the plain way."""
    return n_bytes >= _LEAST_BYTES and current().pinned_memory > 0


class _Lane:
    """What a thread transfers with: a stream, and buffers that are busy until their event."""

    def __init__(self, device: int, size: int) -> None:
        import cupy

        self.key = (device, size)
        self.stream = cupy.cuda.Stream(non_blocking=True)
        self.buffers = [cupy.cuda.alloc_pinned_memory(size) for _ in range(_BUFFERS)]
        self.addresses = [buffer.ptr for buffer in self.buffers]
        self.events = [cupy.cuda.Event(disable_timing=True) for _ in range(_BUFFERS)]
        self._slot = 0

    #: By thread. A forked child empties each `threading.local` of the threads that it has not.
    _of_thread: ClassVar[dict[int, _Lane]] = {}

    @classmethod
    def of_thread(cls, device: int, size: int) -> _Lane:
        """Return the lane of the current thread, made anew where another one is asked for."""
        thread = threading.get_ident()
        lane = cls._of_thread.get(thread)
        if lane is None or lane.key != (device, size):
            del lane
            cls._of_thread.pop(thread, None)  # its memory first
            lane = cls._of_thread[thread] = cls(device, size)
        return lane

    def next_slot(self) -> int:
        """Return the number of the buffer that is in turn; it is busy until its event."""
        self._slot = (self._slot + 1) % _BUFFERS
        return self._slot

    def place(self, slot: int, shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
        """Return the start of a buffer as an array in C order."""
        return np.ndarray(shape, dtype, self.buffers[slot])

    def fill(self, slot: int, host: Any, dtype: np.dtype) -> int:
        """Copy what a piece holds to a buffer, cast to `dtype`; return how many bytes that is."""
        if isinstance(host, list):
            held = self.place(slot, (len(host) * len(host[0]),), dtype)
            np.concatenate(host, out=held, casting="same_kind")
        else:
            held = self.place(slot, host.shape, dtype)
            np.copyto(held, host, casting="same_kind")
        return held.nbytes

    def copy(self, slot: int, address: int, size: int, *, up: bool) -> None:
        """Begin a copy between a buffer and the device."""
        import cupy

        runtime = cupy.cuda.runtime
        ends = (address, self.addresses[slot]) if up else (self.addresses[slot], address)
        kind = runtime.memcpyHostToDevice if up else runtime.memcpyDeviceToHost
        runtime.memcpyAsync(*ends, size, kind, self.stream.ptr)
        self.events[slot].record(self.stream)


class Transfer:
    """Groups of pieces on their way, in turn.

    Parameters
    ----------
    way : _Way
    groups : sequence of sequence of Piece
    memory : device array
        Where the pieces go, or come from: it is kept for as long as a thread may be at it.
    """

    def __init__(self, way: _Way, groups: Sequence[Sequence[Piece]], memory: Any) -> None:
        import cupy

        self._way = way
        self._memory = memory
        self._key = cupy.cuda.runtime.getDevice(), way.buffer_bytes
        self._groups = groups
        self._left = [len(group) for group in groups]
        self._events: list[set[Any]] = [set() for _ in groups]
        self._before: list[Any] = []
        self._ready: deque[tuple[int, Piece]] = deque()
        self._lanes = self._at_work = 0
        self._error: BaseException | None = None
        self._changed = threading.Condition()

    def allow(self, n_groups: int) -> None:
        """Let that many more groups go, as soon as what has been launched so far has ended.

        Until then memory on the device may be in use.
        """
        import cupy

        before = cupy.cuda.get_current_stream().record()
        first = len(self._before)
        ready = [
            (first + number, piece)
            for number, group in enumerate(self._groups[first : first + n_groups])
            for piece in group
        ]
        with self._changed:
            self._before += [before] * n_groups
            self._ready.extend(ready)
            fresh = max(0, min(self._way.n_threads - self._lanes, len(self._ready)))
            self._lanes += fresh
        for _ in range(fresh):
            try:
                _executor(self._way, self._key).submit(self._run)
            except RuntimeError:  # no more threads can be started, maybe as Python is ending
                self._run()

    def finish(self, group: int) -> None:
        """Wait until the host is done with a group; have the current stream wait for the rest.

        Raises
        ------
        Exception
            What went wrong in one of the threads.
        """
        try:
            with self._changed:
                self._changed.wait_for(lambda: self._error or not self._left[group])
                if self._error is not None:
                    raise self._error
        except BaseException:
            self.stop()
            raise
        self._wait_for(self._events[group])

    def stop(self) -> None:
        """Let no more pieces go, and wait until the threads are done with the host's memory.

        The current stream waits for what is on its way: the device's memory may go to others then.
        """
        with self._changed:
            self._ready.clear()
            self._changed.wait_for(lambda: not self._at_work)
        with contextlib.suppress(Exception):  # whoever stops it has had an error before
            self._wait_for(set().union(*self._events))

    def _wait_for(self, events: set[Any]) -> None:
        import cupy

        stream = cupy.cuda.get_current_stream()
        for event in events:
            stream.wait_event(event)

    def _run(self) -> None:
        with self._changed:
            self._at_work += 1
        try:
            lane = _prepared(self._key)
            while self._goes_on():
                self._move(lane)
        except BaseException as error:
            with self._changed:
                self._error = self._error or error
                self._ready.clear()
                self._lanes -= 1
        finally:
            with self._changed:
                self._at_work -= 1
                self._changed.notify_all()

    def _goes_on(self) -> bool:
        """Whether there are pieces for a lane; it is none any more where there are not."""
        with self._changed:
            if not self._ready:
                self._lanes -= 1
                return False
        return True

    def _move(self, lane: _Lane) -> None:
        """Move pieces as long as there are any that may go."""
        raise NotImplementedError

    def _taken(self, lane: _Lane) -> Iterator[tuple[int, Piece]]:
        """Yield the pieces that a lane takes, with the numbers of their groups."""
        awaited = None
        while True:
            try:
                group, piece = self._ready.popleft()
            except IndexError:
                return
            if group != awaited:
                lane.stream.wait_event(self._before[group])
                awaited = group
            yield group, piece

    def _done(self, group: int) -> None:
        with self._changed:
            self._left[group] -= 1
            if not self._left[group]:
                self._changed.notify_all()


class _Uploads(Transfer):
    def __init__(self, groups: Sequence[Sequence[Piece]], dtype: np.dtype, memory: Any) -> None:
        super().__init__(UPLOAD, groups, memory)
        self._dtype = dtype

    def _move(self, lane: _Lane) -> None:
        for group, (host, address) in self._taken(lane):
            slot = lane.next_slot()
            lane.events[slot].synchronize()
            size = lane.fill(slot, host, self._dtype)
            lane.copy(slot, address, size, up=True)
            # recorded anew for later pieces: then it is waited for a little longer than need be
            self._events[group].add(lane.events[slot])
            self._done(group)


class _Downloads(Transfer):
    def __init__(self, groups: Sequence[Sequence[Piece]], memory: Any) -> None:
        super().__init__(DOWNLOAD, groups, memory)

    def _move(self, lane: _Lane) -> None:
        before: tuple[int, int, np.ndarray] | None = None
        for group, (host, address) in self._taken(lane):
            slot = lane.next_slot()
            lane.copy(slot, address, host.nbytes, up=False)
            if before is not None:
                self._unload(lane, *before)
            before = group, slot, host
        if before is not None:
            self._unload(lane, *before)

    def _unload(self, lane: _Lane, group: int, slot: int, host: np.ndarray) -> None:
        lane.events[slot].synchronize()
        np.copyto(host, lane.place(slot, host.shape, host.dtype))
        self._done(group)


_executors: dict[_Way, ThreadPoolExecutor] = {}
_executors_lock = threading.Lock()


def _executor(way: _Way, key: tuple[int, int]) -> ThreadPoolExecutor:
    """Return the threads of a way, which have their buffers from the start.

    Otherwise each of the first transfers would wait for some of them.
    """
    with _executors_lock:
        if way not in _executors:
            executor = _executors[way] = ThreadPoolExecutor(way.n_threads, f"accelsk-{way.name}")
            together = threading.Barrier(way.n_threads)  # so that each thread gets one of them

            def prepare() -> None:
                together.wait()
                _prepared(key)

            try:
                wait([executor.submit(prepare) for _ in range(way.n_threads)])
            except BaseException:  # those that have started must not wait for the others
                del _executors[way]
                together.abort()
                executor.shutdown(wait=False)
                raise
        return _executors[way]


def _prepared(key: tuple[int, int]) -> _Lane:
    import cupy

    cupy.cuda.runtime.setDevice(key[0])
    return _Lane.of_thread(*key)


def _forget_threads() -> None:
    # threads do not survive a fork, and what they wait on may be locked for ever
    global _executors_lock
    _executors_lock = threading.Lock()
    _executors.clear()
    abandon(_Lane._of_thread.copy())
    _Lane._of_thread.clear()


os.register_at_fork(after_in_child=_forget_threads)


def begin_upload(
    groups: Sequence[Sequence[Piece]], dtype: np.dtype, memory: Any, ahead: int | None = None
) -> Transfer:
    """Begin to copy pieces to device memory.

    Parameters
    ----------
    groups : sequence of sequence of Piece
        Pieces are as `pieces_of` makes them, no larger than ``UPLOAD.buffer_bytes``.
    dtype : dtype
        Theirs, or what to cast to on the way, which is no wider.
    memory : device array
        Where the pieces go.
    ahead : int, default=None
        How many groups may go at once; `Transfer.allow` lets others go. None means all.
    """
    return _begun(_Uploads(groups, dtype, memory), len(groups) if ahead is None else ahead)


def begin_download(pieces: Sequence[Piece], memory: Any) -> Transfer:
    """Begin to copy device memory, that of an array, to the pieces, a single group."""
    return _begun(_Downloads([pieces], memory), 1)


def _begun(transfer: Transfer, n_groups: int) -> Transfer:
    try:
        transfer.allow(n_groups)
    except BaseException:  # nobody else knows of what has begun
        transfer.stop()
        raise
    return transfer
