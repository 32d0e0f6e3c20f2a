"""One event for each call of an accelerated method: to the log, to the active profiles, and to
those of the process that this one works for."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import perf_counter
from typing import TYPE_CHECKING, NamedTuple

from accelsk.device import traffic
from accelsk.device.traffic import Transfer

if TYPE_CHECKING:
    from accelsk.profiling.workers import Process, Spool

__all__ = ["Event", "Stopwatch", "heard", "listening", "note", "report"]

logger = logging.getLogger("accelsk")


class Event(NamedTuple):
    """A call that has ended.

    Attributes
    ----------
    name : str
        The qualified name, such as ``"Ridge.fit"``.
    engine : str or None
        What computed it; None means scikit-learn.
    duration : float
        Seconds, without what accelerated methods that it called took: those have events of their
        own.
    reasons : tuple of str
        Why it ran in scikit-learn, be it that this was asked for. Empty where an engine ran it.
    uploaded, downloaded : int
        Bytes that it moved to the device and from it, likewise without those of inner calls.
    start : float
        When it began, on the clock of `time.perf_counter`, which processes have in common.
    total : float
        Seconds from its start to its end.
    transfers : tuple of Transfer
        When bytes were moved.
    error : str or None
        The type of the error that it raised.
    thread : str
        The name of the thread.
    process : Process or None
        The worker process; None means this process.
    notes : tuple of str
        What went wrong on the way and was made good, wherever the call ended.
    """

    name: str
    engine: str | None
    duration: float
    reasons: tuple[str, ...] = ()
    uploaded: int = 0
    downloaded: int = 0
    start: float = 0.0
    total: float = 0.0
    transfers: tuple[Transfer, ...] = ()
    error: str | None = None
    thread: str = ""
    process: Process | None = None
    notes: tuple[str, ...] = ()


_listeners: list[Callable[[Event], None]] = []
_lock = threading.RLock()
_spool: Spool | None = None

#: Where profiles of ancestors of this process would be; None means that nobody has looked yet.
_upstream: tuple[str, ...] | None = None


def report(event: Event) -> None:
    """Tell the log, every listener, and the ancestors of this process that have some."""
    if logger.isEnabledFor(logging.INFO):
        _log(event)
    for listener in tuple(_listeners):
        listener(event)
    for folder in _spools():
        from accelsk.profiling.workers import append

        append(folder, event._asdict())


def heard() -> bool:
    """Whether `report` would tell anybody anything."""
    if _listeners or (_upstream != () and _spools()):
        return True
    return logger.isEnabledFor(logging.INFO)


def _spools() -> list[str]:
    """Return the folders of ancestors of this process that have a profile now."""
    global _upstream
    if _upstream is None:
        from accelsk.profiling.workers import upstream

        _upstream = upstream()
    return [folder for folder in _upstream if os.access(folder, os.F_OK)]


def _log(event: Event) -> None:
    place = "in scikit-learn" if event.engine is None else f"on the GPU ({event.engine})"
    logger.info("%s ran %s", event.name, place)
    why = f": {'; '.join(event.reasons)}" if event.reasons else ""
    logger.debug("%s took %.3g s%s", event.name, event.duration, why)
    for text in event.notes:
        logger.info("%s: %s", event.name, text)


@contextmanager
def listening(listener: Callable[[Event], None]) -> Iterator[None]:
    """Pass every event to `listener` for the length of a ``with`` block.

    Those of other threads come as they happen, those of worker processes at the end of the block.
    """
    global _spool
    try:
        with _lock:
            if _spool is None:
                from accelsk.profiling.workers import Spool

                _spool = Spool()
            if _listeners:
                _receive()  # what came in before is none of this listener's
            else:
                _spool.open()
            _listeners.append(listener)
        yield
    finally:
        with _lock:
            try:
                _receive()
            finally:  # an interrupt may come at any time
                if listener in _listeners:  # not in a process that was forked within the block
                    _listeners.remove(listener)
                if not _listeners and _spool is not None:
                    _spool.close()


def _receive() -> None:
    """Pass on what worker processes have done since the last time."""
    for process, record in [] if _spool is None else _spool.take():
        record["reasons"] = tuple(record["reasons"])
        record["notes"] = tuple(record["notes"])
        record["transfers"] = tuple(Transfer(*transfer) for transfer in record["transfers"])
        event = Event(**{**record, "process": process})
        for listener in tuple(_listeners):
            listener(event)


def _after_fork() -> None:
    """Have a forked process tell its parent, whose listeners it has copies of."""
    global _lock, _upstream
    _lock = threading.RLock()
    _listeners.clear()
    _upstream = None
    if _spool is not None:
        _spool.forget()
    Stopwatch._running = threading.local()


os.register_at_fork(after_in_child=_after_fork)


class Stopwatch:
    """Times a call and counts what it moves, without the calls of the same thread inside it."""

    _running = threading.local()

    def __enter__(self) -> Stopwatch:
        self._outer: Stopwatch | None = getattr(self._running, "innermost", None)
        self._running.innermost = self
        self._inner, self._inner_up, self._inner_down = 0.0, 0, 0
        self.notes: list[str] = []
        if self._outer is None:
            traffic.keep_transfers()
        self._up_before, self._down_before = traffic.moved()
        self.start = perf_counter()
        return self

    def __exit__(self, *_: object) -> None:
        self.total = perf_counter() - self.start
        up, down = traffic.moved()
        up, down = up - self._up_before, down - self._down_before
        outer = self._running.innermost = self._outer
        self.transfers = traffic.take_transfers(self.start, last=outer is None)
        if outer is not None:
            outer._inner += self.total
            outer._inner_up += up
            outer._inner_down += down
        self.duration = self.total - self._inner
        self.uploaded, self.downloaded = up - self._inner_up, down - self._inner_down

    def event(
        self,
        name: str,
        engine: str | None,
        reasons: tuple[str, ...] = (),
        error: BaseException | None = None,
    ) -> Event:
        """Return the event of the call that it has timed."""
        return Event(
            name,
            engine,
            self.duration,
            reasons,
            self.uploaded,
            self.downloaded,
            self.start,
            self.total,
            self.transfers,
            None if error is None else type(error).__name__,
            threading.current_thread().name,
            notes=tuple(self.notes),
        )


def note(text: str) -> None:
    """Have the call of this thread that is under way say what happened to it."""
    watch: Stopwatch | None = getattr(Stopwatch._running, "innermost", None)
    if watch is not None:
        watch.notes.append(text)
