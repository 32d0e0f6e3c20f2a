"""A profile as a trace in the format of Chrome and Perfetto."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

from accelsk.profiling.report import format_bytes

if TYPE_CHECKING:
    from accelsk.profiling.events import Event
    from accelsk.profiling.profile import ProfileResults

__all__ = ["save_trace", "trace"]


def save_trace(results: ProfileResults, path: str | os.PathLike[str]) -> None:
    """Write the trace of a profile."""
    with open(path, "w", encoding="utf-8") as file:
        json.dump(trace(results), file)


def trace(results: ProfileResults) -> dict[str, Any]:
    """Return the trace: a slice for each call and each transfer, in rows by process and thread."""
    with results._lock:
        events, left_out = list(results._events), results._events_left_out
    rows = _Rows(results._pid)
    slices: list[dict[str, Any]] = []
    for event in events:
        row = rows.of(event)
        slices.append(_slice(event.name, _category(event), event.start, event.total, row))
        slices[-1]["args"] = _details(event)
        for transfer in event.transfers:
            up, down = transfer.uploaded, transfer.downloaded
            name = f"to the GPU: {format_bytes(up)}" if up else f"to the host: {format_bytes(down)}"
            slices.append(_slice(name, "transfer", transfer.start, transfer.duration, row))
            slices[-1]["args"] = {"bytes": up or down}
    origin = results._clock
    for item in slices:
        item["ts"] = round((item["ts"] - origin) * 1e6, 3)
    return {
        "traceEvents": [*rows.named, *slices],
        "displayTimeUnit": "ms",
        "otherData": {"started": results.started, "calls left out": left_out},
    }


def _category(event: Event) -> str:
    return "scikit-learn" if event.engine is None else "gpu"


def _slice(
    name: str, category: str, start: float, seconds: float, row: tuple[int, int]
) -> dict[str, Any]:
    pid, tid = row
    duration = round(seconds * 1e6, 3)
    kind = {"ph": "X", "name": name, "cat": category}
    return {**kind, "ts": start, "dur": duration, "pid": pid, "tid": tid}


def _details(event: Event) -> dict[str, Any]:
    details: dict[str, Any] = {
        "engine": event.engine or "scikit-learn",
        "own time in ms": round(event.duration * 1e3, 3),
    }
    for name, value in (
        ("reasons", list(event.reasons)),
        ("uploaded", event.uploaded),
        ("downloaded", event.downloaded),
        ("error", event.error),
    ):
        if value:
            details[name] = value
    return details


class _Rows:
    """The rows of the picture: numbers for threads, and the events that name the rows."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._threads: dict[tuple[int, str], int] = {}
        self.named: list[dict[str, Any]] = []

    def of(self, event: Event) -> tuple[int, int]:
        """Return the pid and the number of the thread of an event."""
        pid, name = (self._pid, "accelsk") if event.process is None else event.process
        key = pid, event.thread
        if key not in self._threads:
            if all(known != pid for known, _ in self._threads):
                self._name("process_name", pid, 0, f"{name} ({pid})")
                self.named.append(
                    {
                        "ph": "M",
                        "name": "process_sort_index",
                        "pid": pid,
                        "tid": 0,
                        "args": {"sort_index": int(pid != self._pid)},
                    }
                )
            self._threads[key] = len(self._threads) + 1
            self._name("thread_name", pid, self._threads[key], event.thread or "MainThread")
        return pid, self._threads[key]

    def _name(self, kind: str, pid: int, tid: int, name: str) -> None:
        row = {"ph": "M", "name": kind, "pid": pid, "tid": tid}
        self.named.append({**row, "args": {"name": name}})
