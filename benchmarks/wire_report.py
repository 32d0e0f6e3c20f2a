"""Tables of what `benchmarks.wire` measured."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tabulate import tabulate

__all__ = ["tables"]

Row = dict[str, Any]

#: How many times what the bus takes a call may take.
_AIMS = {"fit": 1.5, "predict": 1.5, "transform": 1.5, "inverse_transform": 1.5, "download": 2.5}
_CONTIGUOUS, _OTHER = 1.4, 2.0


def tables(results: Sequence[Row], errors: Sequence[Row], sides: Sequence[str]) -> str:
    """Return what is to be printed: transfers, calls next to those of the other sides, errors."""
    parts = [_transfers(results), _calls(results, sides), _errors(errors)]
    parts += [
        f"{r['side']}: {r['case']} of {r['data']}: {r['error']}" for r in results if "error" in r
    ]
    return "\n\n".join(parts)


def _wires(results: Sequence[Row]) -> dict[tuple[str, str], float]:
    """Return the seconds of a pinned copy for each kind of data and direction."""
    pinned = [r for r in results if r.get("case") == "pinned copy"]
    return {(r["data"], r["method"]): r["seconds"] for r in pinned}


def _transfers(results: Sequence[Row]) -> str:
    wires = _wires(results)
    rows = []
    for r in results:
        if r["method"] not in ("upload", "download", "both ways"):
            continue
        wire = wires.get((r["data"], r["method"]))
        aim = _AIMS.get(r["method"], _CONTIGUOUS if r["data"].endswith((", C", ", F")) else _OTHER)
        name = f"{r['up']} up, {r['down']} down" if "up" in r else r["data"]
        times = None if wire is None else r["seconds"] / wire
        aim_shown = aim if r["case"] == "staged" else None
        rows.append([r["method"], name, r["case"], r["seconds"] * 1e3, times, aim_shown])
    headers = ["", "what", "how", "ms", "times the pinned copy", "aim"]
    return tabulate(rows, headers, floatfmt=".2f")


def _calls(results: Sequence[Row], sides: Sequence[str]) -> str:
    per_byte = min(
        (r["seconds"] / r["bytes"] for r in results if r.get("case") == "pinned copy"),
        default=float("nan"),
    )
    at_once = {
        (r["up"] // 10**6, r["down"] // 10**6): r["seconds"]
        for r in results
        if r.get("method") == "both ways"
    }
    calls: dict[tuple[str, str, str], dict[str, Row]] = {}
    for r in results:
        if "seconds" in r and r["method"] not in ("upload", "download", "both ways"):
            calls.setdefault((r["case"], r["data"], r["method"]), {})[r["side"]] = r
    rows = []
    for key, found in calls.items():
        ours = found.get(sides[0])
        if ours is None:
            continue
        seconds, wire = ours["seconds"], per_byte * ours["bytes"]
        both = at_once.get((ours.get("up", 0) // 10**6, ours.get("down", 0) // 10**6))
        others = [found.get(side, {}).get("seconds") for side in sides[1:]]
        rows.append(
            [
                *key,
                wire * 1e3,
                seconds * 1e3,
                seconds / wire,
                None if both is None else seconds / both,
                *(None if other is None else other / seconds for other in others),
            ]
        )
    headers = ["", "data", "call", "wire/ms", f"{sides[0]}/ms", "times the wire"]
    headers += ["times both ways at once", *(f"{side}, times as long" for side in sides[1:])]
    return tabulate(rows, headers, floatfmt=".2f")


def _errors(errors: Sequence[Row]) -> str:
    """Return errors next to each other: of a side, with data of a dtype."""
    sides = list(dict.fromkeys((r["side"], r["data"]) for r in errors))
    found = {(r["attribute"], r["side"], r["data"]): r for r in errors}
    rows = [
        [name, *(found[name, *side]["relative error"] for side in sides)]
        for name in dict.fromkeys(r["attribute"] for r in errors)
    ]
    return tabulate(rows, ["relative error", *(", ".join(side) for side in sides)], floatfmt=".1e")
