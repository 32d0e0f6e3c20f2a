"""One event for each call of an accelerated method, to the log and to the active profiles."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from time import perf_counter

from accelsk.device.traffic import Traffic, moved

__all__ = ["Event", "Stopwatch", "listening", "report"]

logger = logging.getLogger("accelsk")


@dataclass(frozen=True, slots=True)
class Event:
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
    """

    name: str
    engine: str | None
    duration: float
    reasons: tuple[str, ...] = ()
    uploaded: int = 0
    downloaded: int = 0


_listeners: list[Callable[[Event], None]] = []
_lock = threading.Lock()


def report(event: Event) -> None:
    """Tell the log and every listener."""
    if logger.isEnabledFor(logging.INFO):
        place = "in scikit-learn" if event.engine is None else f"on the GPU ({event.engine})"
        why = f": {'; '.join(event.reasons)}" if event.reasons else ""
        logger.info("%s ran %s in %.3g s%s", event.name, place, event.duration, why)
    for listener in tuple(_listeners):
        listener(event)


@contextmanager
def listening(listener: Callable[[Event], None]) -> Iterator[None]:
    """Pass every event of every thread to `listener` for the length of a ``with`` block."""
    with _lock:
        _listeners.append(listener)
    try:
        yield
    finally:
        with _lock:
            _listeners.remove(listener)


class Stopwatch:
    """Times a call and counts what it moves, without the calls of the same thread inside it."""

    _running = threading.local()

    def __enter__(self) -> Stopwatch:
        self._outer: Stopwatch | None = getattr(self._running, "innermost", None)
        self._running.innermost = self
        self._inner, self._moved_inside = 0.0, Traffic()
        self._moved_before = moved()
        self._start = perf_counter()
        return self

    def __exit__(self, *_: object) -> None:
        total = perf_counter() - self._start
        traffic = moved() - self._moved_before
        self._running.innermost = self._outer
        if self._outer is not None:
            self._outer._inner += total
            self._outer._moved_inside += traffic
        self.duration = total - self._inner
        self.traffic = traffic - self._moved_inside
