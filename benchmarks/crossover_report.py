"""What `benchmarks.crossover` measured: its table, its picture, its file."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

__all__ = ["Point", "draw", "line", "table", "write"]


@dataclass
class Point:
    """One size of one pair: seconds on each side that was waited for, and where auto went."""

    pair: str
    shape: str
    rows: int
    columns: int
    seconds: dict[str, float]
    auto_went: str = ""
    skipped: tuple[str, ...] = ()
    itself: float | None = None

    @property
    def regret(self) -> float | None:
        """The time with auto over the better side; None where that cannot be told."""
        sides = [self.seconds[side] for side in ("cpu", "gpu") if side in self.seconds]
        if len(sides) == 2 and "auto" in self.seconds:
            return self.seconds["auto"] / min(sides)
        if self.skipped == ("cpu",):  # hopeless there
            return 1.0 if self.auto_went == "gpu" else None
        return None

    @property
    def choice(self) -> float | None:
        """The same with the time of the side that auto took in place of its own."""
        if self.skipped:
            return self.regret
        return self.seconds[self.auto_went] / min(self.seconds["cpu"], self.seconds["gpu"])


def line(point: Point) -> str:
    """Return one line on a point."""
    times = ", ".join(f"{side} {seconds * 1e3:.3g} ms" for side, seconds in point.seconds.items())
    return (
        f"{point.pair} {point.rows:,} x {point.columns}: {times or 'nothing'} "
        f"(auto to the {point.auto_went})"
    )


def table(points: list[Point]) -> Iterator[str]:
    """Yield the lines of the regret table, and of the points where auto lost most."""
    known = [(p.regret, p) for p in points if p.regret is not None]
    regrets = [regret for regret, _ in known]
    choices = [p.choice for _, p in known if p.choice is not None]
    yield f"{len(points)} points, {len(known)} of them with a regret"
    for side in ("cpu", "gpu"):
        left_out = sum(side in p.skipped for p in points)
        yield f"left out on the {side}, as it would have taken too long: {left_out}"
    itself = [p.itself for _, p in known if p.itself is not None]
    for limit in (1.05, 1.10, 1.25, 1.5):
        regret, choice, same = (
            sum(r <= limit for r in found) / max(len(found), 1)
            for found in (regrets, choices, itself)
        )
        yield (
            f"within {limit:.2f} of the better: {regret:.1%}, by the choice {choice:.1%} "
            f"(the better within that of itself: {same:.1%})"
        )
    yield "the worst:"
    for regret, p in sorted(known, key=lambda pair: -pair[0])[:15]:
        yield f"  {regret:5.2f}  {line(p)}"


def draw(points: list[Point], picture: Path) -> None:
    """Draw time over size, a field for each pair."""
    from matplotlib import pyplot

    pairs = list(dict.fromkeys(p.pair for p in points))
    columns = 5
    lines = -(-len(pairs) // columns)
    figure, axes = pyplot.subplots(lines, columns, figsize=(4 * columns, 3 * lines), squeeze=False)
    colours = {"cpu": "tab:blue", "gpu": "tab:green", "auto": "black"}
    for field_, pair in zip(axes.flat, pairs, strict=False):
        for shape, style in {"narrow": "-", "wide": "--"}.items():
            found = [p for p in points if p.pair == pair and p.shape == shape]
            for side, colour in colours.items():
                line = [(p.rows * p.columns, p.seconds[side]) for p in found if side in p.seconds]
                if line:
                    mark = {"marker": "x", "linestyle": "none"} if side == "auto" else {}
                    field_.loglog(
                        *zip(*line, strict=True),
                        **{
                            "linestyle": style,
                            "color": colour,
                            "label": f"{side}, {shape}",
                            **mark,
                        },
                    )
        field_.set_title(pair, fontsize=8)
        field_.tick_params(labelsize=7)
    for field_ in axes.flat[len(pairs) :]:
        field_.set_axis_off()
    axes.flat[0].legend(fontsize=6)
    figure.supxlabel("elements of X")
    figure.supylabel("seconds")
    figure.tight_layout()
    figure.savefig(picture, dpi=80)


def write(points: list[Point], machine: dict[str, Any], target: Path) -> None:
    """Write the file anew; whoever reads it meanwhile finds a whole one."""
    result = {
        "machine": machine,
        "regret": [*table(points)][:7],
        "points": [{**asdict(p), "regret": p.regret} for p in points],
    }
    draft = target.with_name(f"{target.name}.{os.getpid()}")
    draft.write_text(json.dumps(result, indent=1) + "\n")
    draft.replace(target)
