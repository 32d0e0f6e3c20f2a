"""How the line profiler gets told of lines: by `sys.monitoring`, or by `sys.settrace`.

`sys.monitoring` (Python 3.12 and newer) costs code that is not watched nothing and sees every
thread. `sys.settrace` is told of each call of a Python function, and sees threads that start
while it is set.
"""

from __future__ import annotations

import sys
import threading
import warnings
from collections.abc import Callable
from time import perf_counter
from types import CodeType, FrameType
from typing import Any

from accelsk.profiling.clock import Activation, Clock
from accelsk.profiling.sources import Source

__all__ = ["Hooks", "Monitoring", "Tracing", "hooks_for"]

_GENERATOR = 0x20 | 0x80 | 0x200  # generators, coroutines, asynchronous generators

#: Functions that Python makes out of a part of a line: they are that part of the line.
_PARTS = frozenset({"<listcomp>", "<setcomp>", "<dictcomp>", "<genexpr>"})

Watched = Callable[[str], Source | None]


class Hooks:
    """Tells a `Clock` of the lines of watched code.

    Parameters
    ----------
    clock : Clock
    watched : callable
        From the file name of code to what there is to know of the file, or None.
    """

    def __init__(self, clock: Clock, watched: Watched) -> None:
        self.clock = clock
        self.watched = watched

    def start(self) -> None:
        """Begin."""
        raise NotImplementedError

    def stop(self) -> None:
        """End."""
        raise NotImplementedError

    def refresh(self) -> None:
        """Ask `watched` anew from now on."""
        raise NotImplementedError

    def enter(self, frame: FrameType) -> None:
        """Watch a function that is being executed already, from the line on that it is at."""
        found = self.find(frame.f_code)
        stack = self.clock.thread().stack
        if found is not None and all(a.code is not frame.f_code for a in stack):
            self.push(frame.f_code, found).go(frame.f_lineno, perf_counter(), hits=0)

    def find(self, code: CodeType) -> Source | None:
        """Return what `code` is part of, if that is watched."""
        found = self.watched(code.co_filename)
        if found is None or code.co_name in _PARTS or not found.has(code):
            return None
        return found

    def push(self, code: CodeType, found: Source) -> Activation:
        """Begin to execute a function."""
        thread = self.clock.thread()
        lines = thread.files.setdefault(found.name, {})
        activation = Activation(code, lines, found.statements)
        thread.stack.append(activation)
        return activation

    def pop(self, code: CodeType) -> None:
        """End the innermost execution of a function, and those in it of which no end was told."""
        now = perf_counter()
        stack = self.clock.thread().stack
        if stack and stack[-1].code is code:
            stack.pop().leave(now)
        elif any(activation.code is code for activation in stack):
            while stack[-1].code is not code:
                stack.pop().leave(now)
            stack.pop().leave(now)


class Tracing(Hooks):
    """By `sys.settrace`."""

    def __init__(self, clock: Clock, watched: Watched) -> None:
        super().__init__(clock, watched)
        self._known: dict[str, Source | None] = {}
        self._frames: list[tuple[FrameType, Any]] = []
        self._active = False

    def start(self) -> None:
        self._before = sys.gettrace(), threading.gettrace()
        if self._before[0] is not None:
            warnings.warn(
                "a debugger or a coverage tool sees nothing while the line profiler runs",
                RuntimeWarning,
                stacklevel=4,
            )
        self._active = True
        threading.settrace(self._call)
        sys.settrace(self._call)

    def enter(self, frame: FrameType) -> None:
        super().enter(frame)
        if self.find(frame.f_code) is not None:
            self._frames.append((frame, frame.f_trace))
            frame.f_trace = self._line
        if sys.gettrace() != self._call:  # in another thread than the one that has started it
            sys.settrace(self._call)

    def stop(self) -> None:
        self._active = False
        for frame, trace in reversed(self._frames):
            frame.f_trace = trace
        self._frames.clear()
        sys.settrace(self._before[0])
        threading.settrace(self._before[1])

    def refresh(self) -> None:
        self._known = {}

    def _call(self, frame: FrameType, event: str, arg: Any) -> Any:
        """Be told that a function begins or goes on; say what is to be told of its lines."""
        if not self._active:  # in a thread that has outlived the block
            sys.settrace(None)
            return None
        code = frame.f_code
        try:
            found = self._known[code.co_filename]
        except KeyError:
            found = self._known[code.co_filename] = self.watched(code.co_filename)
        if found is None or code.co_name in _PARTS or not found.has(code):
            return None
        activation = self.push(code, found)
        if code.co_flags & _GENERATOR and frame.f_lineno != code.co_firstlineno:
            activation.go(frame.f_lineno, perf_counter(), hits=0)
        return self._line

    def _line(self, frame: FrameType, event: str, arg: Any) -> Any:
        if event == "line":
            thread = self.clock.thread()
            thread.steps += 1
            if thread.stack and thread.stack[-1].code is frame.f_code:
                thread.stack[-1].go(frame.f_lineno, perf_counter())
        elif event == "return":
            self.pop(frame.f_code)
        return self._line if self._active else None


class Monitoring(Hooks):
    """By `sys.monitoring`."""

    def __init__(self, clock: Clock, watched: Watched, tool: int) -> None:
        super().__init__(clock, watched)
        self._monitoring: Any = sys.monitoring  # type: ignore[attr-defined]
        self._tool = tool
        #: By identity: functions of different files can be equal.
        self._codes: dict[int, CodeType] = {}
        events = self._monitoring.events
        self._local = events.LINE | events.PY_RETURN | events.PY_YIELD | events.PY_RESUME
        self._callbacks = {
            events.PY_START: self._start,
            events.PY_RESUME: self._resume,
            events.PY_THROW: self._resume,
            events.PY_RETURN: self._return,
            events.PY_YIELD: self._return,
            events.PY_UNWIND: self._return,
            events.LINE: self._line,
        }

    def start(self) -> None:
        events = self._monitoring.events
        self._monitoring.use_tool_id(self._tool, "accelsk")
        for event, callback in self._callbacks.items():
            self._monitoring.register_callback(self._tool, event, callback)
        everywhere = events.PY_START | events.PY_UNWIND | events.PY_THROW
        self._monitoring.set_events(self._tool, everywhere)
        self._monitoring.restart_events()

    def enter(self, frame: FrameType) -> None:
        super().enter(frame)
        if self.find(frame.f_code) is not None:
            self._watch(frame.f_code)

    def stop(self) -> None:
        self._monitoring.set_events(self._tool, 0)
        for code in self._codes.values():
            self._monitoring.set_local_events(self._tool, code, 0)
        for event in self._callbacks:
            self._monitoring.register_callback(self._tool, event, None)
        self._monitoring.free_tool_id(self._tool)

    def refresh(self) -> None:
        self._monitoring.restart_events()

    def _watch(self, code: CodeType) -> None:
        if id(code) not in self._codes:
            self._codes[id(code)] = code
            self._monitoring.set_local_events(self._tool, code, self._local)

    def _start(self, code: CodeType, offset: int) -> Any:
        found = self.find(code)
        if found is None:
            return self._monitoring.DISABLE  # not to be told of this code any more
        self._watch(code)
        self.push(code, found)
        return None

    def _resume(self, code: CodeType, offset: int, error: object = None) -> Any:
        found = self.find(code)
        if found is not None:
            line = sys._getframe(1).f_lineno
            self.push(code, found).go(line, perf_counter(), hits=0)
        return None

    def _return(self, code: CodeType, offset: int, value: object) -> Any:
        if id(code) in self._codes:
            self.pop(code)
        return None

    def _line(self, code: CodeType, line: int) -> Any:
        thread = self.clock.thread()
        thread.steps += 1
        stack = thread.stack
        if stack and stack[-1].code is code:
            stack[-1].go(line, perf_counter())
        return None


def hooks_for(clock: Clock, watched: Watched) -> Hooks:
    """Return the hooks that this Python has, and no other tool uses."""
    monitoring: Any = getattr(sys, "monitoring", None)
    if monitoring is not None:
        for tool in (monitoring.PROFILER_ID, 3, 4):
            if monitoring.get_tool(tool) is None:
                return Monitoring(clock, watched, tool)
    return Tracing(clock, watched)
