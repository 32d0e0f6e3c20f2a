"""What the line profiler knows while it runs: for each thread the lines that are being executed.

A line lasts from its start to that of the next line of the same function, or to the function's
end; so the functions that it calls are part of it. A call of an accelerated method is part of
every line that is being executed in its thread. A line that is being executed already, as in a
recursion, is not counted once more.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from time import perf_counter
from types import CodeType
from typing import Any

from accelsk._locks import Lock
from accelsk.profiling.events import Event

__all__ = ["Activation", "Clock", "LineStats"]


@dataclass(slots=True)
class LineStats:
    """The executions of one line; of a statement over several lines, its first.

    Attributes
    ----------
    hits : int
        How often it was executed.
    time : float
        How long that took, in seconds, with all that it called.
    gpu_time : float
        How much of that accelerated methods took on the GPU.
    gpu_calls, cpu_calls : int
        Calls of accelerated methods on the GPU and in scikit-learn.
    fallbacks : dict of str to int
        Calls that ran in scikit-learn, as what ran and why, and how many.
    """

    hits: int = 0
    time: float = 0.0
    gpu_time: float = 0.0
    gpu_calls: int = 0
    cpu_calls: int = 0
    fallbacks: dict[str, int] = field(default_factory=dict)
    open: bool = field(default=False, repr=False, compare=False)

    def copy(self) -> LineStats:
        """Return a line of the same figures."""
        return LineStats().plus(self)

    def plus(self, other: LineStats, sign: int = 1) -> LineStats:
        """Add the figures of `other`, or take them away."""
        self.hits += sign * other.hits
        self.time += sign * other.time
        self.gpu_time += sign * other.gpu_time
        self.gpu_calls += sign * other.gpu_calls
        self.cpu_calls += sign * other.cpu_calls
        for text, count in other.fallbacks.items():
            self.fallbacks[text] = self.fallbacks.get(text, 0) + sign * count
        return self


class Activation:
    """A function that is being executed."""

    __slots__ = ("code", "counts", "line", "lines", "open", "started", "statement", "statements")

    def __init__(
        self, code: CodeType, lines: dict[int, LineStats], statements: dict[int, int]
    ) -> None:
        self.code = code
        self.lines = lines
        self.statements = statements
        self.line = self.statement = -1
        self.open: LineStats | None = None
        self.counts = False
        self.started = 0.0

    def go(self, line: int, now: float, hits: int = 1) -> None:
        """Go to a line."""
        statement = self.statements.get(line, line)
        if statement == self.statement:
            if line == self.line:  # a loop on one line
                self.open.hits += 1  # type: ignore[union-attr]
            self.line = line
            return
        if self.counts:
            self.open.time += now - self.started  # type: ignore[union-attr]
            self.open.open = False  # type: ignore[union-attr]
        stats = self.lines.get(statement)
        if stats is None:
            stats = self.lines[statement] = LineStats()
        stats.hits += hits
        self.counts = not stats.open
        stats.open = True
        self.open, self.line, self.statement, self.started = stats, line, statement, now

    def leave(self, now: float) -> None:
        """Be done with the line."""
        if self.counts and self.open is not None:
            self.open.time += now - self.started
            self.open.open = False
        self.counts, self.open, self.statement = False, None, -1

    def tick(self, now: float) -> None:
        """Have the time of the line up to now in its figures."""
        if self.counts and self.open is not None:
            self.open.time += now - self.started
            self.started = now


class _Thread:
    """What one thread does."""

    def __init__(self) -> None:
        self.stack: list[Activation] = []
        self.files: dict[str, dict[int, LineStats]] = {}
        self.steps = 0


class Clock:
    """Watches lines for every `line_profile` that is active."""

    def __init__(self) -> None:
        self._local = threading.local()
        self._threads: list[_Thread] = []
        self._lock = Lock()
        #: The thread in which the profiler was started: others work for it.
        self.main: _Thread | None = None

    def thread(self) -> _Thread:
        """Return what is known of the current thread."""
        try:
            found: _Thread = self._local.thread
        except AttributeError:
            found = self._local.thread = _Thread()
            with self._lock:
                self._threads.append(found)
        return found

    def add(self, event: Event) -> None:
        """Count a call of an accelerated method for the lines that are being executed.

        A thread that executes no line that is watched works for the one that started it all.
        """
        if event.process is not None:
            return
        thread = self.thread()
        if not thread.stack and self.main is not None:
            thread = self.main
        with self._lock:
            innermost = True
            for activation in reversed(list(thread.stack)):
                line = activation.open
                if line is None:
                    continue
                if innermost:
                    _count(line, event)
                    innermost = False
                if event.engine is not None and activation.counts:
                    line.gpu_time += event.duration

    def figures(self) -> dict[tuple[str, int], LineStats]:
        """Return the figures so far, all threads together."""
        now = perf_counter()
        for activation in self.thread().stack:
            activation.tick(now)
        total: dict[tuple[str, int], LineStats] = {}
        with self._lock:
            for thread in self._threads:
                for file, lines in list(thread.files.items()):
                    for number, stats in list(lines.items()):
                        total.setdefault((file, number), LineStats()).plus(stats)
        return total

    def steps(self) -> int:
        """Return how often a thread has gone to a line."""
        with self._lock:
            return sum(thread.steps for thread in self._threads)


def _count(line: LineStats, event: Any) -> None:
    if event.engine is not None:
        line.gpu_calls += 1
        return
    line.cpu_calls += 1
    if event.reasons:
        text = f"{event.name}: {'; '.join(event.reasons)}"
        line.fallbacks[text] = line.fallbacks.get(text, 0) + 1
