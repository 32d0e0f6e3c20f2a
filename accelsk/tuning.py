"""``python -m accelsk tune``: measure this machine, so that each call runs where it is sooner."""

from __future__ import annotations

import argparse
import json
import logging
import subprocess
import sys
import warnings
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any, TextIO

from accelsk._progress import Progress
from accelsk.costs import machine, startup, store
from accelsk.costs.decision import name_of
from accelsk.costs.measure import GRID, Grid, measure
from accelsk.costs.model import Table
from accelsk.costs.work import WORK, Work
from accelsk.device import probe

__all__ = ["main", "tune"]

logger = logging.getLogger("accelsk")

#: The least seconds for a class, however little time is left.
_LEAST = 0.2

#: The part of the time for first calls in a fresh process.
_FIRST = 0.15

#: The seconds that a class takes to compile, on the average (H200, 2026-11-30).
_COMPILING = 0.6


def _load() -> dict[str, float]:
    """Load the libraries of the engines and return the seconds that each took."""
    from accelsk.engines.cuml import import_cuml
    from accelsk.engines.on_device import import_cupy
    from accelsk.warmup import use_device

    seconds = {}
    for name, load in {"cupy": import_cupy, "cuml": import_cuml}.items():
        known = startup.family(name) in sys.modules
        start = perf_counter()
        load()
        if name == "cupy":
            use_device()
        seconds[name] = perf_counter() - start
        if known:  # it was loaded before: nothing was measured
            seconds[name] = store.default().load.get(name, seconds[name])
        startup.mark(name)
    return seconds


def _first_calls(table: Table, seconds: float) -> None:
    """Measure first calls in another process, which finds on disk what this one compiled."""
    code = f"from accelsk import warmup; warmup.time_first_calls({seconds})"
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code], capture_output=True, text=True, check=False
    )
    try:
        found = json.loads(done.stdout.splitlines()[-1])
    except (IndexError, ValueError):
        logger.info("first calls were not measured: %s", done.stderr)
        return
    table.load |= found["load"]
    for call, times in found["calls"].items():
        for engine, first in times.items():
            if (curve := table.curves.get(call, {}).get(engine)) is not None:
                again = sum(c for c, term in curve.terms if term == "1")
                table.curves[call][engine] = curve._replace(first=max(first - again, 0.0))


def _laborious(cls: Any) -> bool:
    """Whether the time of a class grows faster than its data: it gets what others leave."""
    fit = WORK.get(name_of(cls) or "", Work()).fit
    return any("nn" in term or "t" in term for term in fit)


def tune(
    seconds: float = 110.0,
    *,
    classes: Sequence[Any] | None = None,
    grid: Grid = GRID,
    stream: TextIO = sys.stderr,
) -> Table:
    """Measure this machine.

    Parameters
    ----------
    seconds : float, default=110.0
        About how long it may take.
    classes : sequence of type, default=None
        The accelerated classes to measure; None means all of accelsk's.
    grid : Grid
    stream : file object
        Where progress is shown.

    Returns
    -------
    table : Table
        Its ``measured`` holds the single measurements.
    """
    deadline = perf_counter() + seconds * (1 - _FIRST)
    if classes is None:
        from accelsk.registry import accelerated_classes
        from accelsk.support import import_accelerated

        import_accelerated()
        classes = [cls for cls in accelerated_classes().values() if name_of(cls) is not None]
    usable = probe.unusable() is None
    table = Table(
        {**machine.describe(), "date": datetime.now(UTC).date().isoformat()},
        load=_load() if usable else {},
        speed=machine.speeds() if usable else {},
    )
    ordered = sorted(classes, key=_laborious)
    progress = Progress(len(ordered), "classes", stream)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for done, cls in enumerate(ordered):
            progress.show(done, cls.__name__)
            allowed = (deadline - perf_counter()) / (len(ordered) - done) - _COMPILING
            found = measure(cls, max(allowed, _LEAST), grid)
            table.curves |= found.curves()
            table.measured |= found.points()
    if usable and any(name_of(cls) is not None for cls in ordered):
        progress.show(len(ordered), "first calls")
        _first_calls(table, _FIRST * seconds)
    progress.show(len(ordered), "")
    progress.end()
    return table


def _show(table: Table, picture: Path) -> None:
    print(f"Measured on {table.machine}")
    if not table.measured:
        print("The single measurements are not kept with these coefficients.")
        return
    print(f"{'call':<44} {'place':<8} {'points':>6} {'half within':>12} {'all within':>11}")
    pairs: dict[str, list[tuple[float, float]]] = {}
    for call, places in table.measured.items():
        for place, points in places.items():
            off = [max(e / m, m / e) for _, _, m, e in points if m > 0 and e > 0]
            pairs.setdefault(place, []).extend((m, e) for _, _, m, e in points)
            if off:
                print(
                    f"{call:<44} {place:<8} {len(off):>6} {median(off):>11.2f}x {max(off):>10.2f}x"
                )
    try:
        from matplotlib.figure import Figure
    except ImportError:
        print("Install matplotlib to have a picture of it.")
        return
    figure = Figure(figsize=(7, 7))
    axes = figure.subplots()
    for place, found in pairs.items():
        measured, expected = zip(*found, strict=True)
        axes.loglog(measured, expected, ".", label=place, markersize=4, alpha=0.6)
    ends = axes.get_xlim()
    axes.loglog(ends, ends, "k", linewidth=0.8)
    axes.set(xlabel="measured, seconds", ylabel="expected, seconds")
    axes.legend()
    picture.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(picture, dpi=120)
    print(f"Picture: {picture}")


def main(argv: Sequence[str] | None = None) -> int:
    """Run ``python -m accelsk tune`` with the arguments `argv`; return the exit status."""
    parser = argparse.ArgumentParser(
        "python -m accelsk tune", description="Measure this machine, and keep what it says."
    )
    parser.add_argument("--show", action="store_true", help="show expected against measured")
    parser.add_argument("--seconds", type=float, default=110.0, help="how long to measure")
    parser.add_argument("--output", type=Path, help="a file instead of the user's cache")
    arguments = parser.parse_args(argv)
    if (reason := probe.unusable()) is not None:
        print(f"There is nothing to measure: {reason}", file=sys.stderr)
        return 1
    if arguments.show:
        stored = arguments.output or store.cache_file()
        measured = stored.exists()
        table = Table.from_json(stored.read_text("utf-8")) if measured else store.default()
        _show(table, store.cache_file().with_suffix(".png"))
        return 0
    logger.setLevel(logging.ERROR)  # fallbacks are no news here
    table = tune(arguments.seconds)
    try:
        file = store.save(table, arguments.output)
    except OSError as error:
        print(f"What was measured could not be kept: {error}", file=sys.stderr)
        return 1
    print(f"{len(table.curves)} calls measured, kept in {file}")
    return 0
