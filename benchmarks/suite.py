"""Runs operations on every side in turn."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from time import monotonic
from typing import Any

import numpy as np

from benchmarks import data
from benchmarks.checks import CHECKS, rows_of
from benchmarks.operations import SHAPE_NAMES, Operation
from benchmarks.sides import CutOffError, Side

REPEATS = 3

#: Where the data of a case is kept: in memory, where the system has a place for that.
_SHARED = Path("/dev/shm")

Row = dict[str, Any]


@dataclass
class _Case:
    """What the sides have made of one operation at one shape so far."""

    rows: dict[str, Row]
    budget: float
    outcomes: dict[str, np.ndarray] = field(default_factory=dict)
    seconds: dict[str, list[float]] = field(default_factory=dict)

    def stop(self, side: str, error: Exception) -> None:
        """Leave a side out of the rest of the case."""
        if isinstance(error, CutOffError):
            self.rows[side]["cut_off"] = f"over {self.budget:.0f} s"
        else:
            self.rows[side]["error"] = str(error)
        self.seconds.pop(side, None)


def run(
    operations: list[Operation], shapes: list[str], sides: list[Side], budget: float
) -> Iterator[list[Row]]:
    """Yield the rows of one case after the other.

    A side that did not end an operation within the budget is not asked for larger shapes of it.

    Parameters
    ----------
    operations : list of Operation
    shapes : list of str
        Of `SHAPE_NAMES`.
    sides : list of Side
    budget : float
        Seconds that a side may take for a case, data and first call included.

    Yields
    ------
    rows : list of dict
        One for each side, in the order of the sides.
    """
    with tempfile.TemporaryDirectory(dir=_SHARED if _SHARED.is_dir() else None) as name:
        folder = Path(name)
        for operation in operations:
            too_slow: dict[str, int] = {}
            sized = zip(SHAPE_NAMES, operation.shapes, strict=True)
            for shape_name, shape in sorted(sized, key=lambda pair: np.prod(pair[1])):
                if shape_name not in shapes:
                    continue
                data.store(operation.data, shape, folder)
                able = [side for side in sides if np.prod(shape) < too_slow.get(side.name, np.inf)]
                rows = measure(operation, shape_name, shape, able, folder, budget)
                for row in rows:
                    if "cut_off" in row:
                        too_slow[row["side"]] = int(np.prod(shape))
                rows += [
                    {**_head(operation, shape_name, shape, side), "cut_off": "at a smaller shape"}
                    for side in sides
                    if side not in able
                ]
                yield rows


def _head(operation: Operation, shape_name: str, shape: tuple[int, int], side: Side) -> Row:
    return {
        "operation": operation.name,
        "shape": shape_name,
        "rows": shape[0],
        "columns": shape[1],
        "side": side.name,
    }


def measure(
    operation: Operation,
    shape_name: str,
    shape: tuple[int, int],
    sides: list[Side],
    folder: Path,
    budget: float,
) -> list[Row]:
    """Return what each side takes: a first call apart, then the median of calls in turn."""
    heads = {side.name: _head(operation, shape_name, shape, side) for side in sides}
    case = _Case(heads, budget)
    left = dict.fromkeys(case.rows, budget)

    def ask(side: Side, method: str, *arguments: Any) -> Any:
        start = monotonic()
        try:
            return side.ask(method, *arguments, limit=left[side.name])
        finally:
            left[side.name] -= monotonic() - start

    for side in sides:
        try:
            ask(side, "prepare", operation, folder)
            first = ask(side, "first_call")
        except (CutOffError, RuntimeError) as error:
            case.stop(side.name, error)
            continue
        case.rows[side.name]["first_seconds"] = first.pop("seconds")
        case.rows[side.name] |= first
        case.seconds[side.name] = []
    for _ in range(REPEATS):
        for side in sides:
            if side.name not in case.seconds:
                continue
            try:
                case.seconds[side.name].append(ask(side, "call"))
            except (CutOffError, RuntimeError) as error:
                case.stop(side.name, error)
    for side in sides:
        if side.name not in case.seconds:
            continue
        case.rows[side.name]["seconds"] = median(case.seconds[side.name])
        try:
            case.outcomes[side.name] = side.ask("outcome", limit=budget)
            side.ask("release", limit=budget)
        except (CutOffError, RuntimeError) as error:
            case.stop(side.name, error)
    _compare(case, operation, folder)
    return list(case.rows.values())


def _compare(case: _Case, operation: Operation, folder: Path) -> None:
    """Put how far each side is from the first one that finished into its row."""
    if not case.outcomes:
        return
    reference, *others = case.outcomes
    X = np.load(folder / "X.npy", mmap_mode="r")
    some = np.asarray(X[rows_of(len(X))])
    for side in others:
        difference = CHECKS[operation.check](case.outcomes[side], case.outcomes[reference], some)
        case.rows[side] |= {"compared_with": reference, "difference": difference}
