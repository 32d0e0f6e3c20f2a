"""Does ``device="auto"`` take the sooner side? Times over size: scikit-learn, the GPU, auto.

For each pair of a class and a method, narrow and wide data of 100 to 100 million elements::

    python -m benchmarks.crossover results.json [--seconds 230] [--picture crossover.png] [PAIR ...]

Small sizes come first, and all pairs at one size before any at the next; the file is written anew
after each point, so that what there is when the time is over is of use.

The sides are timed in turn, in another order every time, and the medians compared. The regret of a
point is the time with ``device="auto"`` over the better of the two sides. What is measured more
than once differs a little, so there are two more figures beside it: the regret "by the choice", the
time of the side that auto took over the better one; and how far the better side is off itself, by
every other time of it. Where scikit-learn, or the GPU, would take too long to be waited for, its
time is left out: the point then counts by where auto went.
"""

from __future__ import annotations

import argparse
import faulthandler
import logging
import sys
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from statistics import median
from time import perf_counter, sleep
from typing import Any

import accelsk
from accelsk.costs import samples
from benchmarks.crossover_report import Point, draw, line, table, write
from benchmarks.machine import describe_machine

WIDTHS = {"narrow": 10, "wide": 200}
ELEMENTS = [10**power for power in range(2, 9)]
SIDES = ("cpu", "gpu", "auto")

#: A model that is only used is fitted on no more rows.
_TRAINING_ROWS = 20_000

#: A side is left out where a call of it may be expected to take more than this part of the time
#: that is left.
_SHARE = 0.01

#: So few rows are not worth a model.
_FEWEST = 5

#: After so many seconds at one point it is told where the program is.
_STUCK = 45.0

#: How often each side is timed, if the time of the point allows, and at most.
_LEAST, _MOST = 3, 25

#: The most seconds for a point.
_SECONDS = 1.0

#: Up to so many elements the CPU makes its calls once before, too.
_QUICK = 10**6

#: A side that takes so many times what the better one takes is timed once.
_FAR = 4

#: Threads of a BLAS library that were busy for some time spin for so many seconds more.
_BUSY, _SPINNING = 1e-3, 0.04


@dataclass(frozen=True)
class Pair:
    """A class below ``accelsk`` and a method."""

    path: str
    method: str
    parameters: dict[str, Any] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return f"{self.path}.{self.method}"

    def new(self) -> Any:
        module, _, name = self.path.rpartition(".")
        return getattr(import_module(f"accelsk.{module}"), name)(**self.parameters)


PAIRS = [
    Pair("linear_model.Ridge", "fit"),
    Pair("linear_model.Ridge", "predict"),
    Pair("linear_model.LinearRegression", "fit"),
    Pair("linear_model.Lasso", "fit", {"alpha": 0.1}),
    Pair("linear_model.LogisticRegression", "fit"),
    Pair("linear_model.LogisticRegression", "predict_proba"),
    Pair("decomposition.PCA", "fit", {"n_components": 5}),
    Pair("decomposition.PCA", "transform", {"n_components": 5}),
    Pair("decomposition.TruncatedSVD", "fit", {"n_components": 5, "random_state": 0}),
    Pair("covariance.EmpiricalCovariance", "fit"),
    Pair("covariance.LedoitWolf", "fit"),
    Pair("preprocessing.StandardScaler", "fit"),
    Pair("preprocessing.StandardScaler", "transform"),
    Pair("preprocessing.MinMaxScaler", "transform"),
    Pair("naive_bayes.GaussianNB", "fit"),
    Pair("naive_bayes.GaussianNB", "predict"),
    Pair("cluster.KMeans", "fit", {"n_clusters": 5, "random_state": 0}),
    Pair("cluster.KMeans", "predict", {"n_clusters": 5, "random_state": 0}),
    Pair("neighbors.NearestNeighbors", "kneighbors"),
    Pair("neighbors.KNeighborsClassifier", "predict"),
    Pair("ensemble.RandomForestClassifier", "fit", {"n_estimators": 20, "n_jobs": -1}),
    Pair("ensemble.RandomForestRegressor", "predict", {"n_estimators": 20, "n_jobs": -1}),
    Pair("random_projection.GaussianRandomProjection", "transform", {"n_components": 5}),
    Pair("cluster.DBSCAN", "fit"),
    Pair("svm.SVC", "fit"),
    Pair("svm.SVC", "predict"),
]


class Runner:
    """Runs one pair at growing sizes."""

    def __init__(self, pair: Pair) -> None:
        self.pair = pair
        self.cls = type(pair.new())
        self._before: dict[tuple[str, str], tuple[float, int]] = {}  # by side and shape
        self._fitted: dict[int, tuple[int, dict[str, Any]]] = {}  # by columns: rows, and models

    def point(self, shape: str, rows: int, columns: int, budget: Budget) -> Point | None:
        """Time all sides at one size; None where neither would be waited for."""
        skipped = tuple(
            side
            for side in ("cpu", "gpu")
            if self._expected(side, shape, rows * columns) > budget.for_call
        )
        if len(skipped) == 2:
            return None
        point = self._timed(
            Point(self.pair.name, shape, rows, columns, {}, skipped=skipped), budget
        )
        for side in ("cpu", "gpu"):
            if side in point.seconds:
                self._before[side, shape] = point.seconds[side], rows * columns
        return point

    def _expected(self, side: str, shape: str, elements: int) -> float:
        seconds, before = self._before.get((side, shape), (0.0, elements))
        return seconds * (elements / before) if seconds > 1e-3 else 0.0

    def _timed(self, point: Point, budget: Budget) -> Point:
        data = samples.sample(self.cls, point.rows, point.columns)
        calls = self._calls(data)
        # once before: kernels are compiled, fitted state is where auto wants it
        for side in SIDES:
            if side == "cpu" and point.rows * point.columns > _QUICK:
                continue
            if side not in point.skipped and not (side == "auto" and "gpu" in point.skipped):
                with _on(side):
                    calls[side]()
        with accelsk.config_context(device="auto"):
            plan = accelsk.explanation._explain(*self._explained(data))
        point.auto_went = "cpu" if plan.engine is None else "gpu"
        sides = [s for s in SIDES if s not in point.skipped]
        if point.auto_went in point.skipped:  # nobody waits for it there
            sides.remove("auto")
        times = _in_turn({side: calls[side] for side in sides}, budget.for_point)
        point.seconds = {side: median(found) for side, found in times.items()}
        better = min((s for s in sides if s != "auto"), key=point.seconds.__getitem__)
        if len(times[better]) >= 4:
            halves = sorted(median(times[better][first::2]) for first in (0, 1))
            point.itself = halves[1] / halves[0]
        return point

    def _calls(self, data: samples.Sample) -> dict[str, Callable[[], Any]]:
        if self.pair.method.startswith("fit"):
            given = samples.arguments(self.pair.new(), self.pair.method, data) or {}
            self._models: dict[str, Any] = dict.fromkeys(SIDES)
            return {s: lambda: getattr(self.pair.new(), self.pair.method)(**given) for s in SIDES}
        few = samples.Sample(*(v if v is None else v[:_TRAINING_ROWS] for v in data))
        rows, columns = few.X.shape
        if self._fitted.get(columns, (0,))[0] != rows:
            self._fitted[columns] = rows, {side: self._trained(side, few) for side in SIDES}
        self._models = self._fitted[columns][1]
        given = samples.arguments(self._models["cpu"], self.pair.method, data) or {}
        return {
            side: lambda model=model: getattr(model, self.pair.method)(**given)
            for side, model in self._models.items()
        }

    def _trained(self, side: str, few: samples.Sample) -> Any:
        model = self.pair.new()
        with accelsk.config_context(device="cpu" if side == "cpu" else "gpu"):
            return model.fit(**(samples.arguments(model, "fit", few) or {}))

    def _explained(self, data: samples.Sample) -> tuple[Any, Any, Any, str]:
        model = self._models["auto"] or self.pair.new()
        y = data.y if self.pair.method.startswith("fit") else None
        return model, data.X, y, self.pair.method


def _on(side: str) -> Any:
    """Return the context of a side; what no engine takes is no time of the GPU."""
    if side == "gpu":
        return accelsk.config_context(device="gpu", on_fallback="raise")
    return accelsk.config_context(device=side)


def _in_turn(calls: dict[str, Callable[[], Any]], seconds: float) -> dict[str, list[float]]:
    times: dict[str, list[float]] = {side: [] for side in calls}
    order = [*calls]
    started = perf_counter()
    before = 0.0
    for turn in range(_MOST):
        spent = perf_counter() - started
        if turn and spent > seconds * (1 if turn >= _LEAST else 3):
            break
        best = min((median(found) for found in times.values() if found), default=0.0)
        for side in order:
            if turn and median(times[side]) > _FAR * best:
                continue
            if before > _BUSY:
                sleep(_SPINNING)
            with _on(side):
                times[side].append(_clock(calls[side]))
            before = times[side][-1] if side == "cpu" else 0.0
        order.append(order.pop(0))
    return times


def _clock(call: Callable[[], Any]) -> float:
    start = perf_counter()
    call()
    if (cupy := sys.modules.get("cupy")) is not None:
        cupy.cuda.Device().synchronize()
    return perf_counter() - start


class Budget:
    """The seconds that are left, shared among the points that are left."""

    def __init__(self, seconds: float, n_points: int) -> None:
        self._end = perf_counter() + seconds
        self._points = n_points

    @property
    def left(self) -> float:
        return self._end - perf_counter()

    @property
    def for_point(self) -> float:
        """The seconds to go on timing one point."""
        return min(max(self.left / max(self._points, 1) / 2, 0.02), _SECONDS)

    @property
    def for_call(self) -> float:
        """The seconds that one call may be expected to take."""
        return _SHARE * self.left

    def used(self) -> None:
        """Have one point less to go."""
        self._points -= 1


def sizes(pairs: list[Pair]) -> Iterator[tuple[Pair, str, int, int]]:
    """Yield what to time, small sizes first, all pairs at one before any at the next."""
    for elements in ELEMENTS:
        for shape, columns in WIDTHS.items():
            if elements // columns >= _FEWEST:
                yield from ((pair, shape, elements // columns, columns) for pair in pairs)


def run(pairs: list[Pair], seconds: float, found: Callable[[list[Point]], None]) -> list[Point]:
    """Time `pairs` for so long and call `found` with all points after each."""
    plan = [*sizes(pairs)]
    budget = Budget(seconds, len(plan))
    runners = {pair.name: Runner(pair) for pair in pairs}
    points: list[Point] = []
    size = (0, 0)
    for done, (pair, shape, rows, columns) in enumerate(plan):
        if budget.left <= 0:
            print(f"no time for the other {len(plan) - done} points", file=sys.stderr)
            break
        if (rows, columns) != size:
            samples.forget()  # all pairs have used it
            size = rows, columns
        faulthandler.dump_traceback_later(_STUCK, file=sys.__stderr__)
        try:
            point = runners[pair.name].point(shape, rows, columns, budget)
        except Exception as error:
            print(f"{pair.name} {rows:,} x {columns}: {error!r}", file=sys.stderr)
            continue
        finally:
            faulthandler.cancel_dump_traceback_later()
            budget.used()
        if point is not None:
            points.append(point)
            print(line(point), file=sys.stderr, flush=True)
            found(points)
    return points


def main() -> None:
    parser = argparse.ArgumentParser("python -m benchmarks.crossover")
    parser.add_argument("target", type=Path)
    parser.add_argument("pairs", nargs="*")
    parser.add_argument("--seconds", type=float, default=230.0, help="start-up counted")
    parser.add_argument("--picture", type=Path)
    arguments = parser.parse_intermixed_args()
    end = perf_counter() + arguments.seconds
    warnings.simplefilter("ignore")
    logging.getLogger("accelsk").setLevel(logging.ERROR)
    print("getting the GPU ready", file=sys.stderr, flush=True)
    accelsk.install(disable_uvm=True)
    wanted = [
        pair
        for pair in PAIRS
        if not arguments.pairs or any(part in pair.name for part in arguments.pairs)
    ]
    machine = describe_machine()
    points = run(
        wanted, end - perf_counter(), lambda points: write(points, machine, arguments.target)
    )
    print("\n".join(table(points)))
    if arguments.picture and points:
        draw(points, arguments.picture)


if __name__ == "__main__":
    main()
