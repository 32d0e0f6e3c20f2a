"""`profile`: collect what ran where for the length of a ``with`` block."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from accelsk._arguments import check_flag
from accelsk._locks import Lock
from accelsk.profiling.events import Event, listening
from accelsk.profiling.report import render
from accelsk.profiling.show import show

if TYPE_CHECKING:
    from accelsk.profiling.workers import Process

__all__ = ["MethodStats", "ProfileResults", "profile"]

#: How many calls are kept one by one, for the trace. Each takes about 500 bytes.
EVENTS_KEPT = 200_000


@dataclass
class MethodStats:
    """The calls of one method.

    Attributes
    ----------
    gpu_calls, cpu_calls : int
        How many ran on the GPU and in scikit-learn.
    gpu_time, cpu_time : float
        How long they took, in seconds; without other accelerated methods that they called.
    fallback_reasons : set of str
        Why calls ran in scikit-learn.
    uploaded, downloaded : int
        Bytes that calls moved to the GPU and from it.
    errors : dict of str to int
        How many calls raised an error, by its type. They count as calls in scikit-learn.
    worker_calls : int
        How many of the calls ran in worker processes.
    engines : set of str
        What computed the calls on the GPU.
    notes : set of str
        What went wrong on the way and was made good, wherever the calls ended.
    """

    gpu_calls: int = 0
    gpu_time: float = 0.0
    cpu_calls: int = 0
    cpu_time: float = 0.0
    fallback_reasons: set[str] = field(default_factory=set)
    uploaded: int = 0
    downloaded: int = 0
    errors: dict[str, int] = field(default_factory=dict)
    worker_calls: int = 0
    engines: set[str] = field(default_factory=set)
    notes: set[str] = field(default_factory=set)

    def add(self, event: Event) -> None:
        """Count one more call."""
        if event.engine is None:
            self.cpu_calls += 1
            self.cpu_time += event.duration
            if event.reasons:
                self.fallback_reasons.update(event.reasons)
        else:
            self.gpu_calls += 1
            self.gpu_time += event.duration
            self.engines.add(event.engine)
        if event.notes:
            self.notes.update(event.notes)
        self.uploaded += event.uploaded
        self.downloaded += event.downloaded
        if event.error is not None:
            self.errors[event.error] = self.errors.get(event.error, 0) + 1
        if event.process is not None:
            self.worker_calls += 1


class ProfileResults:
    """What a `profile` saw.

    It grows while the ``with`` block runs; calls of worker processes come in at its end. In a
    notebook it shows as a table.

    Attributes
    ----------
    method_calls : dict of str to MethodStats
        By qualified name, such as ``"Ridge.fit"``, in the order of the first call.
    own_calls : dict of str to MethodStats
        Those of them that ran in this process.
    workers : dict of Process to dict
        Those that ran in worker processes, by process. It has a `pid` and a `name`.
    started : float
        When the block began, in seconds since the epoch.
    wall_time : float
        How long it took, in seconds; 0 as long as it runs.
    """

    def __init__(self) -> None:
        self.method_calls: dict[str, MethodStats] = {}
        self.own_calls: dict[str, MethodStats] = {}
        self.workers: dict[Process, dict[str, MethodStats]] = {}
        self.started = time.time()
        self.wall_time = 0.0
        self._pid = os.getpid()
        self._clock = time.perf_counter()
        self._events: list[Event] = []
        self._events_left_out = 0
        self._lock = Lock()

    def _add(self, event: Event) -> None:
        with self._lock:
            worker = event.process
            part = self.own_calls if worker is None else self.workers.setdefault(worker, {})
            for calls in (self.method_calls, part):
                stats = calls.get(event.name)
                if stats is None:
                    stats = calls[event.name] = MethodStats()
                stats.add(event)
            if len(self._events) < EVENTS_KEPT:
                self._events.append(event)
            else:
                self._events_left_out += 1

    def _end(self) -> None:
        self.wall_time = time.perf_counter() - self._clock

    def __str__(self) -> str:
        return self._text(colours=False)

    def _text(self, colours: bool) -> str:
        with self._lock:
            return render(self.method_calls, len(self.workers))

    def __repr__(self) -> str:
        return f"<ProfileResults of {len(self.method_calls)} methods>"

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        printer.text(str(self))

    def _repr_html_(self) -> str:
        from accelsk.profiling.html import profile_to_html

        with self._lock:
            return profile_to_html(self.method_calls, len(self.workers))

    def to_dict(self) -> dict[str, Any]:
        """Return the figures as plain dicts, lists, strings and numbers.

        Returns
        -------
        figures : dict
            With ``"functions"``, the fields of `MethodStats` by qualified name; and with
            ``"processes"``, the same for each process by itself, this one first.
        """
        from accelsk.profiling.export import to_dict

        with self._lock:
            return to_dict(self)

    def to_json(self, path: str | os.PathLike[str] | None = None, indent: int | None = 2) -> str:
        """Return what `to_dict` does as JSON.

        Parameters
        ----------
        path : str or path-like, default=None
            A file to write it to as well.
        indent : int or None, default=2
        """
        from accelsk.profiling.export import to_json

        return to_json(self, path, indent)

    def to_pandas(self) -> Any:
        """Return a `pandas.DataFrame` with a row for each function; times are in seconds."""
        from accelsk.profiling.export import to_pandas

        return to_pandas(self)

    def plot(self, ax: Any = None) -> Any:
        """Draw bars of the GPU and the CPU time of each function. Needs matplotlib.

        Parameters
        ----------
        ax : matplotlib.axes.Axes, default=None
            None makes a new figure.

        Returns
        -------
        ax : matplotlib.axes.Axes
        """
        from accelsk.profiling.export import plot

        return plot(self, ax)

    def save_trace(self, path: str | os.PathLike[str]) -> None:
        """Write when each call ran, in which thread and process, and when it moved data.

        The file is for https://ui.perfetto.dev or chrome://tracing.

        Parameters
        ----------
        path : str or path-like
        """
        from accelsk.profiling.trace import save_trace

        save_trace(self, path)


def profile(quiet: bool = False) -> AbstractContextManager[ProfileResults]:
    """Report which calls ran on the GPU, which in scikit-learn and why, and how long they took.

    Profiles nest. They see the calls of every thread of the process, and those of processes that
    it starts or has started, such as joblib's workers.

    Parameters
    ----------
    quiet : bool, default=False
        Do not print the report at the end of the block.

    Returns
    -------
    context : context manager
        Gives `ProfileResults`; it can be a decorator, too (``@accelsk.profile()``).

    Raises
    ------
    TypeError
        If `quiet` is neither True nor False.

    Examples
    --------
    >>> import accelsk
    >>> from accelsk.linear_model import Ridge
    >>> with accelsk.profile(quiet=True) as results, accelsk.config_context(device="cpu"):
    ...     model = Ridge().fit([[0.0], [1.0], [2.0]], [0.0, 1.0, 2.0])
    >>> results.method_calls["Ridge.fit"].cpu_calls
    1
    """
    check_flag("quiet", quiet)
    return _profile(quiet)


@contextmanager
def _profile(quiet: bool) -> Iterator[ProfileResults]:
    results = ProfileResults()
    try:
        with listening(results._add):
            yield results
    finally:
        results._end()
        if not quiet and results._pid == os.getpid():  # a forked child tells its parent
            show(results)
