"""``python -m accelsk tune``: measure this machine, so that each call runs where it is sooner."""

from __future__ import annotations

import argparse
import logging
import sys
import warnings
from collections.abc import Sequence
from datetime import UTC, datetime
from itertools import product
from pathlib import Path
from statistics import median
from time import perf_counter, sleep
from typing import Any, TextIO

from accelsk import warmup
from accelsk._progress import Progress
from accelsk.costs import machine, startup, store
from accelsk.costs.budget import Budget
from accelsk.costs.decision import name_of
from accelsk.costs.measure import ClassMeasuring
from accelsk.costs.model import Table
from accelsk.costs.points import GRID, Grid, Point
from accelsk.costs.work import WORK, Work
from accelsk.device import probe

__all__ = ["main", "tune"]

logger = logging.getLogger("accelsk")

#: The most of the time to spend on compiling.
_COMPILING = 0.35

#: The seconds that threads of a BLAS library may spin after a call.
_SPINNING = 0.05

#: So many sizes of the grid every class is measured at before any is at more.
_COARSE = 4

#: What is measured first.
_USED_MOST = frozenset(
    {
        "cluster.DBSCAN",
        "cluster.KMeans",
        "decomposition.PCA",
        "ensemble.RandomForestClassifier",
        "ensemble.RandomForestRegressor",
        "linear_model.ElasticNet",
        "linear_model.Lasso",
        "linear_model.LinearRegression",
        "linear_model.LogisticRegression",
        "linear_model.Ridge",
        "naive_bayes.GaussianNB",
        "neighbors.KNeighborsClassifier",
        "neighbors.NearestNeighbors",
        "preprocessing.MinMaxScaler",
        "preprocessing.OneHotEncoder",
        "preprocessing.StandardScaler",
        "svm.SVC",
    }
)


def _load() -> dict[str, float]:
    """Load the libraries of the engines and return the seconds that each took."""
    from accelsk.engines.cuml import import_cuml
    from accelsk.engines.on_device import import_cupy

    seconds = {}
    for name, load in {"cupy": import_cupy, "cuml": import_cuml}.items():
        known = startup.family(name) in sys.modules
        start = perf_counter()
        load()
        if name == "cupy":
            warmup.use_device()
        seconds[name] = perf_counter() - start
        if known:  # it was loaded before: nothing was measured
            seconds[name] = store.default().load.get(name, seconds[name])
        startup.mark(name)
    return seconds


def _is_laborious(cls: Any) -> bool:
    """Whether the time of a class grows faster than its rows."""
    fit = WORK.get(name_of(cls) or "", Work()).fit
    return any("nn" in term for term in fit)


def _accelerated() -> list[Any]:
    from accelsk.registry import accelerated_classes
    from accelsk.support import import_accelerated

    import_accelerated()
    return [cls for cls in accelerated_classes().values() if name_of(cls) is not None]


#: The halves of a size: what comes first keeps the processor less busy.
_HALVES = (ClassMeasuring.on_gpu, ClassMeasuring.on_cpu)


class _Tuning:
    """Measures classes size by size: the ones that are used most at all of them, all at some."""

    def __init__(self, classes: Sequence[Any], known: Table, budget: Budget) -> None:
        self.budget = budget
        self.known = known
        self.classes = [ClassMeasuring(cls, budget, known) for cls in classes]
        self._done = dict.fromkeys(product(self.classes, _HALVES), 0)

    def run(self, grid: Grid, progress: Progress) -> None:
        """Measure until all is done or the time is over."""
        coarse = grid[:_COARSE]
        used = [m for m in self.classes if m.result.name in _USED_MOST]
        easy: list[ClassMeasuring] = []
        laborious: list[ClassMeasuring] = []
        for measuring in self.classes:
            (laborious if _is_laborious(measuring.cls) else easy).append(measuring)
        for classes, sizes, share in (
            (used, coarse, 1.0),
            (easy, coarse, 0.7),
            (used, grid, 0.7),
            (laborious, coarse, 0.7),
            (self.classes, grid, 1.0),
        ):
            with self.budget.part(share):
                for index, size in enumerate(sizes):
                    self._at(index, size, classes, progress)

    def _at(
        self,
        index: int,
        size: tuple[int, int],
        classes: Sequence[ClassMeasuring],
        progress: Progress,
    ) -> None:
        points: dict[ClassMeasuring, Point] = {}
        for half in _HALVES:
            missing = [m for m in classes if self._done[m, half] <= index]
            if missing:
                sleep(_SPINNING)
            for measuring in missing:
                if self.budget.left <= 0:
                    return
                done = sum(self._done.values()) // len(_HALVES)
                progress.show(done, f"{measuring.cls.__name__}, {size[0]:,} x {size[1]}")
                if measuring not in points:
                    points[measuring] = Point(measuring.cls, *size, index)
                half(measuring, points[measuring])
                self._done[measuring, half] = index + 1

    def table(self, machine_: dict[str, Any], speed: dict, load: dict) -> Table:
        """Return what was measured, and of the rest what was known."""
        curves = {call: dict(places) for call, places in self.known.curves.items()}
        measured: dict[str, Any] = {}
        for measuring in self.classes:
            found = measuring.result.curves(self.known)
            for call, places in found.items():
                curves.setdefault(call, {}).update(places)
            measured |= measuring.result.points(found)
        return Table(machine_, speed, load, curves, measured)


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
        How long it may take. After that time no call is begun.
    classes : sequence of type, default=None
        The accelerated classes to measure; None means all of accelsk's.
    grid : Grid
    stream : file object
        Where progress is shown.

    Returns
    -------
    table : Table
        Its ``measured`` holds the single measurements. What was not measured has the default
        coefficients, by the speed of this machine. Ctrl-C ends it early.
    """
    budget = Budget(seconds)
    classes = _accelerated() if classes is None else classes
    usable = probe.unusable() is None
    progress = Progress(len(classes) * len(grid), "sizes of classes", stream)
    load: dict[str, float] = {}
    speed: dict[str, float] = {}
    known = store.default()
    tuning = _Tuning(classes, known, budget)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            if usable:
                progress.show(0, "compiling")
                warmup.compile_in_processes(_COMPILING * seconds)
                progress.show(0, "loading")
                load, speed = _load(), machine.speeds()
                tuning.known = known.scaled(machine.factors(speed, known.speed))
            tuning.run(grid, progress)
    except KeyboardInterrupt:
        logger.info("interrupted: what was measured so far is kept")
    finally:
        progress.end()
    described = {**machine.describe(), "date": datetime.now(UTC).date().isoformat()}
    return tuning.table(described, speed, load or known.load)


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
    if not table.measured:
        print("Nothing was measured.", file=sys.stderr)
        return 1
    try:
        file = store.save(table, arguments.output)
    except OSError as error:
        print(f"What was measured could not be kept: {error}", file=sys.stderr)
        return 1
    print(f"{len(table.measured)} calls measured, kept in {file}")
    return 0
