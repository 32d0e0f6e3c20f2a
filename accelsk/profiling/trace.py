"""A profile as a trace in the format of Chrome and Perfetto."""

from __future__ import annotations

import json
import os
from itertools import count
from typing import TYPE_CHECKING, Any

from accelsk.profiling.report import format_bytes

if TYPE_CHECKING:
    from accelsk.device.traffic import Transfer
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
            row = rows.of_transfer(event, transfer)
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
        ("on the way", list(event.notes)),
        ("uploaded", event.uploaded),
        ("downloaded", event.downloaded),
        ("error", event.error),
    ):
        if value:
            details[name] = value
    return details


class _Rows:
    """The rows of the picture: numbers for threads, and the events that name the rows.

    Slices of a row are inside each other or follow each other. Transfers overlap, with each other
    and with the calls that make them, so they have rows of their own under that of the thread.
    """

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._numbers: dict[tuple[int, str], int] = {}
        self._busy_until: dict[tuple[int, int], float] = {}
        self.named: list[dict[str, Any]] = []

    def of(self, event: Event, addition: str = "") -> tuple[int, int]:
        """Return the pid and the number of the row of an event's thread."""
        pid, name = (self._pid, "accelsk") if event.process is None else event.process
        key = pid, (event.thread or "MainThread") + addition
        if key not in self._numbers:
            if all(known != pid for known, _ in self._numbers):
                self._name("process_name", pid, 0, name=f"{name} ({pid})")
                self._name("process_sort_index", pid, 0, sort_index=int(pid != self._pid))
            self._numbers[key] = number = len(self._numbers) + 1
            self._name("thread_name", pid, number, name=key[1])
            self._name("thread_sort_index", pid, number, sort_index=number)
        return pid, self._numbers[key]

    def of_transfer(self, event: Event, transfer: Transfer) -> tuple[int, int]:
        """Return the first row of the thread's transfers that is free by then."""
        for lane in count(1):
            row = self.of(event, f", transfers {lane}")
            if self._busy_until.get(row, 0.0) <= transfer.start:
                self._busy_until[row] = transfer.start + transfer.duration
                return row
        raise AssertionError  # there is no last one

    def _name(self, kind: str, pid: int, tid: int, **arguments: Any) -> None:
        self.named.append({"ph": "M", "name": kind, "pid": pid, "tid": tid, "args": arguments})
