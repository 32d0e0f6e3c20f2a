"""Does ``device="auto"`` take the sooner side? Times over size: scikit-learn, the GPU, auto.

For each pair of a class and a method, narrow and wide data of 100 to 100 million elements::

    python -m benchmarks.crossover results.json [--seconds 230] [--picture crossover.png] [PAIR ...]

The sides are timed in turn, in another order every time, and the medians compared. The regret of a
point is the time with ``device="auto"`` over the better of the two sides. What is measured more
than once differs a little, so there are two more figures beside it: the regret "by the choice", the
time of the side that auto took over the better one; and how far the better side is off itself, by
every other time of it. Where scikit-learn, or the GPU, would take too long to be waited for, its
time is left out: the point then counts by where auto went.
"""

from __future__ import annotations

import argparse
import json
import logging
import sys
import warnings
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from importlib import import_module
from pathlib import Path
from statistics import median
from time import perf_counter, sleep
from typing import Any

import accelsk
from accelsk.costs import samples
from benchmarks.machine import describe_machine

WIDTHS = {"narrow": 10, "wide": 200}
ELEMENTS = [10**power for power in range(2, 9)]
SIDES = ("cpu", "gpu", "auto")

#: A model that is only used is fitted on no more rows.
_TRAINING_ROWS = 20_000

#: A side is left out where it may be expected to take more than this part of its pair's time.
_SHARE = 0.2

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


class _Runner:
    """Runs one pair at growing sizes within a time."""

    def __init__(self, pair: Pair, seconds: float) -> None:
        self.pair = pair
        self.allowed = seconds
        self.deadline = perf_counter() + seconds
        self.cls = type(pair.new())
        self._fitted: dict[tuple[int, int], dict[str, Any]] = {}

    def points(self) -> Iterator[Point]:
        before: dict[tuple[str, str], tuple[float, int]] = {}
        for size, elements in enumerate(ELEMENTS):
            for shape, columns in WIDTHS.items():
                rows = elements // columns
                if rows < 5 or perf_counter() > self.deadline:
                    continue
                left = (self.deadline - perf_counter()) / (2 * (len(ELEMENTS) - size))
                self.for_point = min(max(left, 0.05), _SECONDS)
                skipped = [
                    side
                    for side in ("cpu", "gpu")
                    if (side, shape) in before
                    and self._next(*before[side, shape], elements) > _SHARE * self.allowed
                ]
                if len(skipped) == 2:
                    continue
                try:
                    point = self._point(shape, rows, columns, tuple(skipped))
                except Exception as error:
                    print(f"{self.pair.name} {rows}x{columns}: {error!r}", file=sys.stderr)
                    continue
                for side in ("cpu", "gpu"):
                    if side in point.seconds:
                        before[side, shape] = point.seconds[side], elements
                yield point

    @staticmethod
    def _next(seconds: float, elements: int, now: int) -> float:
        return seconds * (now / elements) if seconds > 1e-3 else 0.0

    def _point(self, shape: str, rows: int, columns: int, skipped: tuple[str, ...]) -> Point:
        data = samples.sample(self.cls, rows, columns)
        point = Point(self.pair.name, shape, rows, columns, {}, skipped=skipped)
        calls = self._calls(data)
        # once before: kernels are compiled, fitted state is where auto wants it
        for side in SIDES:
            if side == "cpu" and rows * columns > _QUICK:
                continue
            if side not in skipped and not (side == "auto" and "gpu" in skipped):
                with accelsk.config_context(device=side):
                    calls[side]()
        with accelsk.config_context(device="auto"):
            plan = accelsk.explanation._explain(*self._explained(data))
        point.auto_went = "cpu" if plan.engine is None else "gpu"
        sides = [s for s in SIDES if s not in skipped and not (s == "auto" and self._waits(point))]
        times = self._in_turn({side: calls[side] for side in sides})
        point.seconds = {side: median(found) for side, found in times.items()}
        better = min((s for s in sides if s != "auto"), key=point.seconds.__getitem__)
        if len(times[better]) >= 4:
            halves = sorted(median(times[better][first::2]) for first in (0, 1))
            point.itself = halves[1] / halves[0]
        return point

    def _in_turn(self, calls: dict[str, Callable[[], Any]]) -> dict[str, list[float]]:
        times: dict[str, list[float]] = {side: [] for side in calls}
        order = [*calls]
        started = perf_counter()
        before = 0.0
        for turn in range(_MOST):
            spent = perf_counter() - started
            if turn and spent > self.for_point * (1 if turn >= _LEAST else 3):
                break
            best = min((median(found) for found in times.values() if found), default=0.0)
            for side in order:
                if turn and median(times[side]) > _FAR * best:
                    continue
                if before > _BUSY:
                    sleep(_SPINNING)
                with accelsk.config_context(device=side):
                    times[side].append(_clock(calls[side]))
                before = times[side][-1] if side == "cpu" else 0.0
            order.append(order.pop(0))
        return times

    def _waits(self, point: Point) -> bool:
        """Whether auto goes where nobody waits for it."""
        return point.auto_went in point.skipped

    def _calls(self, data: samples.Sample) -> dict[str, Callable[[], Any]]:
        if self.pair.method.startswith("fit"):
            given = samples.arguments(self.pair.new(), self.pair.method, data) or {}
            self._models: dict[str, Any] = dict.fromkeys(SIDES)
            return {s: lambda: getattr(self.pair.new(), self.pair.method)(**given) for s in SIDES}
        few = samples.Sample(*(v if v is None else v[:_TRAINING_ROWS] for v in data))
        size = len(few.X), few.X.shape[1]
        if size not in self._fitted:
            self._fitted = {size: {side: self._trained(side, few) for side in SIDES}}
        self._models = self._fitted[size]
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


def _clock(call: Callable[[], Any]) -> float:
    start = perf_counter()
    call()
    if (cupy := sys.modules.get("cupy")) is not None:
        cupy.cuda.Device().synchronize()
    return perf_counter() - start


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
        times = ", ".join(f"{side} {seconds * 1e3:.3g} ms" for side, seconds in p.seconds.items())
        yield f"  {regret:5.2f}  {p.pair} {p.rows:,} x {p.columns}: {times} (to the {p.auto_went})"


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


def main() -> None:
    parser = argparse.ArgumentParser("python -m benchmarks.crossover")
    parser.add_argument("target", type=Path)
    parser.add_argument("pairs", nargs="*")
    parser.add_argument("--seconds", type=float, default=230.0)
    parser.add_argument("--picture", type=Path)
    arguments = parser.parse_intermixed_args()
    deadline = perf_counter() + arguments.seconds
    warnings.simplefilter("ignore")
    logging.getLogger("accelsk").setLevel(logging.ERROR)
    accelsk.install(disable_uvm=True)
    wanted = [
        pair
        for pair in PAIRS
        if not arguments.pairs or any(part in pair.name for part in arguments.pairs)
    ]
    points: list[Point] = []
    machine = describe_machine()
    for done, pair in enumerate(wanted):
        runner = _Runner(pair, (deadline - perf_counter()) / (len(wanted) - done))
        points += runner.points()
        print(f"{pair.name}: {len(points)} points so far", file=sys.stderr, flush=True)
        _write(points, machine, arguments.target)  # whoever ends this has what there is
    print("\n".join(table(points)))
    if arguments.picture and points:
        draw(points, arguments.picture)


def _write(points: list[Point], machine: dict[str, Any], target: Path) -> None:
    result = {
        "machine": machine,
        "regret": [*table(points)][:7],
        "points": [{**asdict(p), "regret": p.regret} for p in points],
    }
    target.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
