"""Tables and pictures of results."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
from tabulate import tabulate

from benchmarks.operations import SHAPE_NAMES

Row = dict[str, Any]
Case = tuple[str, str]


def by_case(rows: Iterable[Row]) -> dict[Case, dict[str, Row]]:
    """Return the rows by operation and shape, then by side."""
    cases: dict[Case, dict[str, Row]] = {}
    for row in rows:
        cases.setdefault((row["operation"], row["shape"]), {})[row["side"]] = row
    return cases


def ratio(sides: dict[str, Row], other: str, ours: str = "accelsk") -> float | None:
    """Return how many times as fast we are as another side; None where one has no time."""
    times = [sides.get(side, {}).get("seconds") for side in (other, ours)]
    return None if None in times else times[0] / times[1]


def geometric_mean(ratios: Iterable[float | None]) -> float:
    """Return the geometric mean of those that there are."""
    known = [ratio for ratio in ratios if ratio is not None]
    return float(np.exp(np.mean(np.log(known)))) if known else float("nan")


def sides_of(rows: Iterable[Row]) -> list[str]:
    """Return the sides other than accelsk, in the order in which they come."""
    return [side for side in dict.fromkeys(row["side"] for row in rows) if side != "accelsk"]


def _cell(row: Row | None) -> str:
    if row is None:
        return ""
    if "seconds" in row:
        return f"{row['seconds']:.3g}"
    return "cut off" if "cut_off" in row else "error"


def markdown(rows: list[Row]) -> str:
    """Return a table of the seconds of each side, and how many times as fast accelsk is."""
    others = sides_of(rows)
    lines = []
    for (operation, shape), sides in by_case(rows).items():
        any_row = next(iter(sides.values()))
        size = f"{any_row['rows']:,} x {any_row['columns']:,}"
        seconds = [_cell(sides.get(side)) for side in (*others, "accelsk")]
        ratios = [ratio(sides, other) for other in others]
        difference = sides.get("accelsk", {}).get("difference")
        lines.append([operation, shape, size, *seconds, *ratios, difference])
    headers = ["operation", "shape", "X", *(f"{side}, s" for side in (*others, "accelsk"))]
    headers += [*(f"times {side}" for side in others), "difference"]
    return tabulate(lines, headers, tablefmt="github", floatfmt=".2g")


def summary(rows: list[Row]) -> str:
    """Return the geometric means, and the cases in which accelsk is slower."""
    lines = []
    cases = by_case(rows)
    for other in sides_of(rows):
        ratios = {case: ratio(sides, other) for case, sides in cases.items()}
        known = {case: r for case, r in ratios.items() if r is not None}
        mean = geometric_mean(known.values())
        lines.append(f"accelsk is {mean:.2f} times as fast as {other} ({len(known)} cases)")
        slower = sorted((r, *case) for case, r in known.items() if r < 0.95)
        lines += [f"  {r:.2f} {operation}, {shape}" for r, operation, shape in slower]
    return "\n".join(lines)


def changes(before: list[Row], after: list[Row]) -> str:
    """Return a table of the cases that both results have: seconds of accelsk then and now."""
    old, new = by_case(before), by_case(after)
    lines = []
    for case in old.keys() & new.keys():
        times = [cases[case].get("accelsk", {}).get("seconds") for cases in (old, new)]
        if None not in times:
            lines.append([*case, *times, times[0] / times[1]])
    headers = ["operation", "shape", "before, s", "after, s", "times as fast"]
    return tabulate(sorted(lines), headers, tablefmt="github", floatfmt=".3g")


def plot(rows: list[Row], path: Path) -> None:
    """Draw how many times as fast accelsk is: a line of dots for each operation."""
    from matplotlib.figure import Figure

    cases = by_case(rows)
    operations = list(dict.fromkeys(operation for operation, _ in cases))
    others = [side for side in sides_of(rows) if any(ratio(s, side) for s in cases.values())]
    height = 1.2 + 0.26 * len(operations)
    figure = Figure(figsize=(5.5 * max(len(others), 1), height), layout="constrained")
    axes = np.atleast_1d(figure.subplots(1, max(len(others), 1), sharey=True))
    for ax, other in zip(axes, others, strict=False):
        for shape, marker in zip(SHAPE_NAMES, "os^vD", strict=True):
            points = [
                (found, i)
                for i, operation in enumerate(operations)
                if (found := ratio(cases.get((operation, shape), {}), other)) is not None
            ]
            if points:
                ax.scatter(*zip(*points, strict=True), s=26, marker=marker, label=shape, alpha=0.8)
        ax.axvline(1, color="0.4", linewidth=1)
        ax.set_xscale("log")
        ax.set_title(f"times as fast as {other}", fontsize=11)
        ax.grid(axis="both", color="0.9")
        ax.set_axisbelow(True)
    axes[0].set_yticks(range(len(operations)), operations, fontsize=8)
    axes[0].invert_yaxis()
    axes[-1].legend(fontsize=8, loc="best")
    figure.savefig(path, dpi=120)
