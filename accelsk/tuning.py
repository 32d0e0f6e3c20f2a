"""``python -m accelsk tune``: measure this machine, so that each call runs where it is sooner."""

from __future__ import annotations

import argparse
import faulthandler
import logging
import os
import sys
import threading
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from statistics import median
from time import perf_counter, sleep
from typing import Any, TextIO

from accelsk import warmup
from accelsk._progress import TimeBar
from accelsk.costs import machine, startup, store
from accelsk.costs.budget import Budget
from accelsk.costs.decision import name_of
from accelsk.costs.measure import ClassMeasuring
from accelsk.costs.model import Table
from accelsk.costs.points import GRID, Grid, Point, fitting, forget
from accelsk.costs.work import WORK, Work
from accelsk.device import probe

__all__ = ["main", "tune"]

logger = logging.getLogger("accelsk")

#: The most of the time to spend on compiling.
_COMPILING = 0.35

#: The seconds that threads of a BLAS library may spin after a call.
_SPINNING = 0.05

#: So many sizes of the grid are small, every class is measured at them before any is at more; so
#: many follow that are large.
_COARSE, _LARGE = 5, 4

#: A call that has not ended so many seconds after the time is not waited for.
_GRACE = 20.0

#: From so many elements on, data are not kept until they are asked for again.
_KEPT = 2**20

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
        self.speed: dict[str, float] = {}
        self.load = known.load
        self.classes: list[ClassMeasuring] = []
        for cls in classes:
            try:
                self.classes.append(ClassMeasuring(cls, budget, known))
            except Exception as error:  # one class that cannot be tried does not cost the others
                logger.warning("%s: %s: %s", cls.__name__, type(error).__name__, error)
        self._done: set[tuple[ClassMeasuring, int]] = set()

    def adapt(self, speed: dict[str, float]) -> None:
        """Have the default coefficients follow the speed of this machine."""
        self.speed = speed
        self.known = self.known.scaled(machine.factors(speed, self.known.speed))
        for measuring in self.classes:
            measuring.defaults = self.known

    def run(self, grid: Grid, progress: TimeBar) -> None:
        """Measure until all is done or the time is over."""
        sizes = [*enumerate(grid)]
        coarse, large = sizes[:_COARSE], sizes[_COARSE : _COARSE + _LARGE]
        between = sizes[_COARSE + _LARGE :]
        used = [m for m in self.classes if m.result.name in _USED_MOST]
        easy: list[ClassMeasuring] = []
        laborious: list[ClassMeasuring] = []
        for measuring in self.classes:
            (laborious if _is_laborious(measuring.cls) else easy).append(measuring)
        for classes, chosen, share in (
            (used, coarse, 1.0),
            (easy, coarse, 0.6),
            (used, large, 0.5),
            (easy, large[:3], 0.5),
            (laborious, coarse, 0.5),
            (used, between, 0.6),
            (self.classes, large, 0.6),
            (self.classes, between, 1.0),
        ):
            with self.budget.part(share):
                for index, size in chosen:
                    self._at(index, size, classes, progress)

    def _at(
        self,
        index: int,
        size: tuple[int, int],
        classes: Sequence[ClassMeasuring],
        progress: TimeBar,
    ) -> None:
        points = {m: Point(m.cls, *size, index) for m in classes if (m, index) not in self._done}
        points = {m: point for m, point in points.items() if not m.is_settled(point)}
        for half in _HALVES:
            if points:
                sleep(_SPINNING)
            for measuring, point in points.items():
                if self.budget.left <= 0:
                    return
                progress.show(f"{measuring.cls.__name__}, {size[0]:,} x {size[1]}")
                half(measuring, point)
                self._done.add((measuring, index))
        if size[0] * size[1] > _KEPT:
            forget()

    def table(self) -> Table:
        """Return what was measured, and of the rest what was known.

        Where nothing was measured at all, there are no measurements in it.
        """
        before = store.measured() or self.known
        curves = {call: dict(places) for call, places in before.curves.items()}
        points: dict[str, Any] = {}
        for measuring in self.classes:
            found = measuring.result.curves(self.known)
            for call, places in found.items():
                curves.setdefault(call, {}).update(places)
            points |= measuring.result.points(found)
        described = {**machine.describe(), "date": datetime.now(UTC).date().isoformat()}
        measured = {**before.measured, **points} if points else {}
        return Table(described, self.speed, self.load, curves, measured)


def tune(
    seconds: float = 110.0,
    *,
    classes: Sequence[Any] | None = None,
    grid: Grid = GRID,
    stream: TextIO = sys.stderr,
    late: Callable[[Table, str], None] | None = None,
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
    late : callable, default=None
        Called in another thread with what was measured so far, and with what is being done, if a
        call that was begun within the time has not ended long after it.

    Returns
    -------
    table : Table
        Its ``measured`` holds the single measurements. What was not measured has the
        coefficients that were measured earlier, or else the default ones by the speed of this
        machine. Ctrl-C ends it early.
    """
    budget = Budget(seconds)
    classes = _accelerated() if classes is None else classes
    usable = probe.unusable() is None
    progress = TimeBar(seconds, stream)
    tuning = _Tuning(classes, store.default(), budget)
    watch = threading.Timer(seconds + _GRACE, lambda: late and late(tuning.table(), progress.what))
    watch.daemon = True
    watch.start()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            if usable:
                progress.show("compiling")
                warmup.compile_in_processes(_COMPILING * seconds)
                progress.show("loading")
                tuning.load = _load()
                tuning.adapt(machine.speeds())
            tuning.run(fitting(grid, machine.memory()), progress)
    except KeyboardInterrupt:
        logger.info("interrupted: what was measured so far is kept")
    finally:
        watch.cancel()
        progress.end()
        forget()
    return tuning.table()


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


def _end(output: Path | None, table: Table, what: str) -> None:
    """Keep what was measured, and end the process, whatever it is waiting for."""
    print(f"\n{what} has not ended; the rest is not measured.", file=sys.stderr)
    status = _keep(table, output)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


@contextmanager
def _ended_for_certain(seconds: float) -> Iterator[None]:
    """End the process after so long even where a call lets no other thread run; tell which."""
    if sys.__stderr__ is None:
        yield
        return
    faulthandler.dump_traceback_later(seconds, exit=True, file=sys.__stderr__)
    try:
        yield
    finally:
        faulthandler.cancel_dump_traceback_later()


def _keep(table: Table, output: Path | None) -> int:
    if not table.measured:
        print("Nothing was measured.", file=sys.stderr)
        return 1
    try:
        file = store.save(table, output)
    except OSError as error:
        print(f"What was measured could not be kept: {error}", file=sys.stderr)
        return 1
    print(f"{len(table.measured)} calls measured, kept in {file}")
    return 0


def _shown(output: Path | None) -> int:
    stored = output or store.cache_file()
    try:
        table = Table.from_json(stored.read_text("utf-8"))
    except FileNotFoundError:
        table = store.default()
    except (OSError, ValueError) as error:
        print(f"{stored} cannot be read: {error}", file=sys.stderr)
        return 1
    _show(table, store.cache_file().with_suffix(".png"))
    return 0


def _duration(text: str) -> float:
    seconds = float(text)
    if not 0 < seconds < threading.TIMEOUT_MAX:
        raise argparse.ArgumentTypeError(f"{text} is no time to measure in")
    return seconds


def main(argv: Sequence[str] | None = None) -> int:
    """Run ``python -m accelsk tune`` with the arguments `argv`; return the exit status."""
    parser = argparse.ArgumentParser(
        "python -m accelsk tune", description="Measure this machine, and keep what it says."
    )
    parser.add_argument("--show", action="store_true", help="show expected against measured")
    parser.add_argument("--seconds", type=_duration, default=110.0, help="how long to measure")
    parser.add_argument("--output", type=Path, help="a file instead of the user's cache")
    arguments = parser.parse_args(argv)
    if arguments.show:
        return _shown(arguments.output)
    if (reason := probe.unusable()) is not None:
        print(
            f"There is nothing to measure: {reason}. Every call runs in scikit-learn; what was "
            "measured earlier is left as it is.",
            file=sys.stderr,
        )
        return 1
    logger.setLevel(logging.ERROR)  # fallbacks are no news here
    with _ended_for_certain(arguments.seconds + 2 * _GRACE):
        table = tune(arguments.seconds, late=partial(_end, arguments.output))
    return _keep(table, arguments.output)
