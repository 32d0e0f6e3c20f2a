"""`line_profile`: what each line of the user's source took, and how much of that on the GPU."""

from __future__ import annotations

import contextlib
import functools
import os
import sys
from contextlib import AbstractContextManager
from time import perf_counter
from typing import Any

from accelsk._arguments import check_flag
from accelsk._locks import Lock
from accelsk.profiling.clock import Clock, LineStats
from accelsk.profiling.events import Event, listening
from accelsk.profiling.hooks import Hooks, hooks_for
from accelsk.profiling.profile import MethodStats
from accelsk.profiling.show import coloured, show
from accelsk.profiling.sources import Source, Sources, calling_frame

__all__ = ["LineResults", "LineStats", "Watch", "line_profile"]


class LineResults:
    """What a `line_profile` saw; it is complete at the end of the block.

    Attributes
    ----------
    lines : dict of str to dict
        By file, and in it by number, the `LineStats` of each line that was executed.
    wall_time : float
        How long the block took, in seconds.
    gpu_time : float
        How much of that accelerated methods took on the GPU.
    cost : float
        How much of it watching the lines took, as far as that can be told.
    in_workers : MethodStats
        Calls of worker processes. They are part of no line.
    """

    def __init__(self, sources: Sources) -> None:
        self.lines: dict[str, dict[int, LineStats]] = {}
        self.wall_time = 0.0
        self.gpu_time = 0.0
        self.cost = 0.0
        self.steps = 0
        self.in_workers = MethodStats()
        self._sources = sources
        self._pid = os.getpid()

    def _add(self, event: Event) -> None:
        if event.process is not None:
            self.in_workers.add(event)
        elif event.engine is not None:
            self.gpu_time += event.duration

    def source(self, file: str) -> list[str]:
        """Return the lines of a file."""
        return self._sources.text(file)

    def __str__(self) -> str:
        return self._text(colours=False)

    def _text(self, colours: bool) -> str:
        from accelsk.profiling.line_report import render

        return render(self, colours)

    def __repr__(self) -> str:
        count = sum(map(len, self.lines.values()))
        return f"<LineResults of {count} lines in {len(self.lines)} files>"

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        printer.text(self._text(coloured(sys.stdout)))

    def _repr_html_(self) -> str:
        from accelsk.profiling.line_report import to_html

        return to_html(self)


def line_profile(*sources: Any, quiet: bool = False) -> AbstractContextManager[LineResults]:
    """Report for each line of the source its hits, its time, and the GPU's share of it.

    A line that called an accelerated method which ran in scikit-learn is marked, with the reason
    under the table. A statement over several lines counts as its first. Time is from the start of a
    line to that of the next one in the same function, so what it calls is part of it. Blocks nest;
    every thread is seen (on Python 3.11, each that starts within the block).

    The report says how much of the time watching the lines has taken.

    Parameters
    ----------
    *sources : str, path-like, module, function or code
        What to watch: files, all modules in folders (installed ones left out), modules, functions.
        By default the file with the ``with`` statement.
    quiet : bool, default=False
        Do not print the report at the end of the block.

    Returns
    -------
    context : context manager
        Gives `LineResults`.

    See Also
    --------
    profile : The same by function.

    Examples
    --------
    >>> import accelsk
    >>> with accelsk.line_profile(quiet=True) as results:
    ...     total = sum(range(10))
    >>> results.wall_time > 0
    True
    """
    check_flag("quiet", quiet)
    wanted = sources or (calling_frame(sys._getframe(1)).f_code.co_filename,)
    return Watch(Sources(wanted), quiet)


class Watch(contextlib.ContextDecorator, AbstractContextManager[LineResults]):
    """The ``with`` block of a `line_profile`."""

    def __init__(self, sources: Sources, quiet: bool = False) -> None:
        self._sources = sources
        self._quiet = quiet

    def _recreate_cm(self) -> Watch:
        return Watch(self._sources, self._quiet)

    def __enter__(self) -> LineResults:
        frame = calling_frame(sys._getframe(1))
        self._results = LineResults(self._sources)
        self._listening = listening(self._results._add)
        self._listening.__enter__()
        self._here = self._sources.name(frame.f_code.co_filename), frame.f_lineno
        _session.join(self._sources, frame)
        self._before, self._steps_before = _session.clock.figures(), _session.clock.steps()
        self._start = perf_counter()
        return self._results

    def __exit__(self, *error: object) -> None:
        results = self._results
        results.wall_time = perf_counter() - self._start
        try:
            after = _session.clock.figures()
            results.steps = _session.clock.steps() - self._steps_before
            results.cost = results.steps * _session.cost_of_a_step()
            results.lines = _difference(self._before, after, self._sources, self._here)
        finally:
            _session.leave(self._sources)
            self._listening.__exit__(None, None, None)
        if not self._quiet and results._pid == os.getpid():
            show(results)


def _difference(
    before: dict[tuple[str, int], LineStats],
    after: dict[tuple[str, int], LineStats],
    sources: Sources,
    here: tuple[str | None, int],
) -> dict[str, dict[int, LineStats]]:
    """Return by file what has come in, as far as it is in `sources`.

    The line of the ``with`` statement, `here`, is part of it if it did something itself.
    """
    lines: dict[str, dict[int, LineStats]] = {}
    for (file, number), stats in after.items():
        if sources.name(file) is None or not sources.shows(file, number):
            continue
        grown = stats.plus(before.get((file, number), LineStats()), -1)
        grown.fallbacks = {text: n for text, n in grown.fallbacks.items() if n}
        calls = grown.gpu_calls + grown.cpu_calls
        first = sources.source(file).statements.get(here[1], here[1])
        if (file, number) == (here[0], first) and not calls:
            continue
        if grown.hits or calls:
            grown.hits = max(grown.hits, 1)
            lines.setdefault(file, {})[number] = grown
    return {file: dict(sorted(lines[file].items())) for file in lines}


class _Session:
    """The clock and the hooks that all active blocks have in common."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._active: list[Sources] = []
        self.clock = Clock()
        self._hooks: Hooks | None = None
        self._listening = contextlib.ExitStack()

    def join(self, sources: Sources, frame: Any) -> None:
        """Watch `sources` as well."""
        with self._lock:
            first = not self._active
            self._active.append(sources)
            if first:
                self.clock = Clock()
                self.clock.main = self.clock.thread()
                self._hooks = hooks_for(self.clock, self.watched)
                self._listening.enter_context(listening(self.clock.add))
                self._hooks.start()
            assert self._hooks is not None
            self._known: dict[str, Source | None] = {}
            self._hooks.refresh()
            self._hooks.enter(frame)

    def leave(self, sources: Sources) -> None:
        """Do not watch `sources` any more."""
        with self._lock:
            self._active.remove(sources)
            self._known = {}
            assert self._hooks is not None
            if self._active:
                self._hooks.refresh()
            else:
                self._hooks.stop()
                self._hooks = None
                self._listening.close()

    def watched(self, file: str) -> Source | None:
        """Return what there is to know of `file`, if an active block watches it."""
        try:
            return self._known[file]
        except KeyError:
            pass
        found = None
        for sources in list(self._active):
            name = sources.name(file)
            if name is not None:
                found = sources.source(name)
                break
        self._known[file] = found
        return found

    def cost_of_a_step(self) -> float:
        """Return what it takes to be told of a line, in seconds."""
        return _cost_of_a_step(type(self._hooks).__name__)


@functools.lru_cache
def _cost_of_a_step(hooks: str) -> float:
    """Return the seconds that a loop takes longer for each of its lines if it is watched."""
    name, passes = "<accelsk: the cost of a line>", 300
    source = f"def f():\n    for i in range({passes}):\n        i\n"
    namespace: dict[str, Any] = {}
    exec(compile(source, name, "exec"), namespace)
    plain = min(_seconds(namespace["f"]) for _ in range(5))
    with _watched_alone(name, source):
        watched = min(_seconds(namespace["f"]) for _ in range(5))
    return max(0.0, (watched - plain) / (2 * passes))


def _seconds(function: Any) -> float:
    start = perf_counter()
    function()
    return perf_counter() - start


@contextlib.contextmanager
def _watched_alone(name: str, source: str) -> Any:
    """Watch code of the name as well, in the session that runs."""
    sources = Sources((name,), {name: source})
    _session.join(sources, sys._getframe())
    try:
        yield
    finally:
        _session.leave(sources)


_session = _Session()
