"""Measuring the calls of a class at one size after the other, within a time for all classes."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cached_property
from statistics import median
from time import perf_counter
from typing import Any

from accelsk import config
from accelsk.costs import samples
from accelsk.costs.budget import Budget
from accelsk.costs.decision import jobs, name_of
from accelsk.costs.measurement import Measurement
from accelsk.costs.model import CPU, Observation, Table
from accelsk.costs.outlook import Outlook
from accelsk.costs.points import GRID, Grid, Point
from accelsk.costs.work import ALIASES, letters
from accelsk.estimator import SLOT
from accelsk.exceptions import Refusal
from accelsk.profiling.events import listening
from accelsk.registry import to_sklearn

__all__ = ["ClassMeasuring", "measure"]

logger = logging.getLogger("accelsk")

#: Repeated until it has taken this long, or this often: one small call says little.
_LONG, _OFTEN = 0.01, 4

#: A call that takes so many times what was expected is made again.
_SURPRISE = 4

#: How often each method is measured on data that are on the device already.
_ON_DEVICE = 2

#: A model that is only used is fitted on no more rows.
_TRAINING_ROWS = 20_000


def _clock(call: Callable[[], Any]) -> float:
    start = perf_counter()
    call()
    if (cupy := sys.modules.get("cupy")) is not None:
        cupy.cuda.Device().synchronize()
    return perf_counter() - start


class _Fitted:
    """A fitted model and its copy in scikit-learn."""

    def __init__(self, model: Any, point: Point) -> None:
        self.model = model
        self.rows = point.rows

    @cached_property
    def plain(self) -> Any:
        return to_sklearn(self.model)


class ClassMeasuring:
    """Measures one class, size by size.

    The two halves of a size are apart, so that they need not follow each other: the threads of
    a BLAS library spin for a while after a call and would slow down what the device is sent.

    Parameters
    ----------
    cls : type
    budget : Budget
    defaults : Table
        What a call is expected to take that has not been measured yet.
    """

    def __init__(self, cls: Any, budget: Budget, defaults: Table) -> None:
        self.cls = cls
        self.budget = budget
        self.defaults = defaults
        self.result = Measurement(name_of(cls) or cls.__qualname__)
        self.outlook = Outlook(self.result.work)
        self._fitted: dict[int, _Fitted] = {}
        names = [name for engine in cls._accelsk_engines for name in engine.methods]
        names = [ALIASES[name] if ALIASES.get(name) in names else name for name in names]
        names = [*dict.fromkeys(names)]
        names = [name for name in names if hasattr(samples.new(cls), name)]
        self.fits = [name for name in names if name.startswith("fit")]
        self.others = [name for name in names if not name.startswith("fit")]

    def is_settled(self, point: Point) -> bool:
        """Whether this size would teach nothing that others have not taught."""
        return self.outlook.is_settled([*self.fits, *self.others], point)

    def on_gpu(self, point: Point) -> None:
        """Measure what the engines do at one size."""
        self._guarded(self._engines_at, point)

    def on_cpu(self, point: Point) -> None:
        """Measure what scikit-learn does at one size."""
        self._guarded(self._scikit_learn_at, point)

    def _guarded(self, half: Callable[[Point], None], point: Point) -> None:
        try:
            half(point)
        except Exception as error:  # one class that cannot be measured does not cost the others
            logger.warning("%s: %s: %s", self.result.name, type(error).__name__, error)
            logger.debug("measuring failed", exc_info=error)

    def _engines_at(self, point: Point) -> None:
        for method in self._open(self.fits, point):
            model = self._tried(self._on_gpu, method, point)
            if method != "fit" or model is None or SLOT not in vars(model):
                continue
            self._tried(self._move, method, point, model)
            if point.rows <= _TRAINING_ROWS:
                self._fitted[point.columns] = _Fitted(model, point)
        for method, there, fitted in self._applied(point):
            self._tried(self._on_gpu, method, there, fitted)

    def _scikit_learn_at(self, point: Point) -> None:
        for method in self._open(self.fits, point):
            self._tried(self._on_cpu, method, point)
        for method, there, fitted in self._applied(point):
            self._tried(self._on_cpu, method, there, fitted)

    def _open(self, methods: list[str], point: Point) -> list[str]:
        """Return the methods of which it is not known where they are sooner at such a size."""
        return [name for name in methods if not self.outlook.is_clear(name, point)]

    def _applied(self, point: Point) -> list[tuple[str, Point, _Fitted]]:
        """Return the methods of a fitted model to measure, with their data."""
        others = self._open(self.others, point)
        if not others:
            return []
        fitted = self._fitted.get(point.columns)
        fits_on_gpu = self.outlook.knows("fit", "gpu")
        old = fitted is None or fitted.rows < point.rows <= _TRAINING_ROWS
        if old and not fits_on_gpu and point.rows <= _TRAINING_ROWS:
            self._tried(self._fit_on_cpu, "fit", point)
            fitted = self._fitted.get(point.columns)
        if fitted is None:
            return []
        found = []
        for method in others:
            there: Point | None = point
            if method == "inverse_transform":
                there = self._tried(lambda _, p: p.transformed(fitted.plain), method, point)
            if there is not None:
                found.append((method, there, fitted))
        return found

    def _fit_on_cpu(self, method: str, point: Point) -> None:
        """Have a model of a class that no engine fits."""
        if self.budget.allows(self._expected("fit", CPU, point)):
            model = point.new()
            given = samples.arguments(model, "fit", point.data) or {}
            with config.config_context(device="cpu"):
                self.outlook.add("fit", CPU, point, _clock(lambda: model.fit(**given)))
            self._fitted[point.columns] = _Fitted(model, point)

    # One call

    def _tried(self, measure: Callable[..., Any], method: str, *args: Any) -> Any:
        """Measure a call; what cannot be measured here does not cost the rest."""
        try:
            return measure(method, *args)
        except Exception as error:
            logger.info("%s.%s: %s: %s", self.result.name, method, type(error).__name__, error)
            return None

    def _letters(
        self, point: Point, fitted: _Fitted | None, *, on_cpu: bool, **sizes: Any
    ) -> dict[str, float]:
        estimator = point.new() if fitted is None else fitted.model
        given = {"rows": point.rows, "columns": point.columns, **sizes}
        given.setdefault("fitted", None if fitted is None else fitted.rows)
        work = self.result.work
        return letters(work, estimator, jobs=jobs(work, estimator) if on_cpu else 1.0, **given)

    def _expected(self, method: str, place: str, point: Point) -> float | None:
        """Return what a call may be expected to take; None where nothing is known."""
        if (seen := self.outlook.expected(method, place, point)) is not None:
            return seen
        places = self.defaults.of(self.result.name, method) or {}
        curve = places.get(CPU) if place == CPU else next(iter(places.values()), None)
        if curve is None:
            return None
        return curve.seconds(self._letters(point, None, on_cpu=place == CPU))

    def _allows(self, method: str, place: str, expected: float | None) -> bool:
        return self.budget.allows(expected, self.outlook.spent(method, place))

    @contextmanager
    def _counted(self, method: str, place: str) -> Iterator[None]:
        """Have the time of a ``with`` block on record as what it cost to measure a method."""
        start = perf_counter()
        try:
            yield
        finally:
            self.outlook.spend(method, place, perf_counter() - start)

    def _record(
        self,
        method: str,
        place: str,
        point: Point,
        seconds: float,
        fitted: _Fitted | None = None,
        **sizes: Any,
    ) -> None:
        found = self.result.observations.setdefault((method, place), [])
        sizes_ = self._letters(point, fitted, on_cpu=place == CPU, **sizes)
        found.append(Observation(sizes_, seconds))

    def _repeated(
        self, call: Callable[[], Any], first: float, expected: float | None = None
    ) -> float:
        """Return the median time of a call that took `first` the first time."""
        times: list[float] = []
        while sum(times) + first < _LONG and len(times) < _OFTEN:
            times.append(_clock(call))
        if times:
            return median(times)
        # one time may be anything, that of a library that compiles for one
        suspect = expected is None or first > _SURPRISE * expected
        again = self.budget.allows(first if suspect else 5 * first)
        return min(first, _clock(call)) if again else first

    def _call(
        self,
        method: str,
        point: Point,
        fitted: _Fitted | None,
        data: samples.Sample,
        *,
        plain: bool = False,
    ) -> Callable[[], Any] | None:
        """Return the call to measure; a fit leaves its estimator behind."""
        model = None
        if fitted is not None:
            model = fitted.plain if plain else fitted.model
        given = samples.arguments(model or point.new(plain=plain), method, data)
        if given is None:
            return None

        def call() -> Any:
            call.model = model if model is not None else point.new(plain=plain)  # type: ignore[attr-defined]
            return getattr(call.model, method)(**given)  # type: ignore[attr-defined]

        return call

    def _on_cpu(self, method: str, point: Point, fitted: _Fitted | None = None) -> None:
        expected = self._expected(method, CPU, point)
        if not self._allows(method, CPU, expected) or self.outlook.is_hopeless(method, point):
            return
        call = self._call(method, point, fitted, point.data, plain=True)
        if call is None:
            return
        with self._counted(method, CPU):
            seconds = self._repeated(call, _clock(call), expected)
            self._record(method, CPU, point, seconds, fitted)
            self.outlook.add(method, CPU, point, seconds)
            if point.large and self._allows(method, CPU, 2 * seconds):
                self._tried(self._on_narrow, method, CPU, point, seconds, fitted)
            self._tried(self._on_few_rows, method, CPU, point, fitted)

    def _on_gpu(self, method: str, point: Point, fitted: _Fitted | None = None) -> Any:
        """Return the estimator that made the call; None where no engine runs it."""
        expected = self._expected(method, "gpu", point)
        if not self._allows(method, "gpu", expected):
            return None
        call = self._call(method, point, fitted, point.data)
        if call is None:
            return None
        # what no engine takes is not waited for in scikit-learn
        only_there = config.config_context(device="gpu", on_fallback="raise")
        with self._counted(method, "gpu"), only_there:
            events: list[Any] = []
            with listening(events.append):
                first = _clock(call)
            engine = events[-1].engine if events else None
            if engine is None:
                return None
            if (method, engine) in self.result.first:
                seconds = self._repeated(call, first, expected)
            else:
                seconds = self._repeated(call, _clock(call))
                self.result.first[method, engine] = max(first - seconds, 0.0)
            self._record(method, engine, point, seconds, fitted)
            self.outlook.add(method, "gpu", point, seconds)
            if point.large and self._allows(method, "gpu", 4 * seconds):
                self._tried(self._on_device, method, engine, point, fitted)
                self._tried(self._on_narrow, method, engine, point, seconds, fitted)
            self._tried(self._on_few_rows, method, engine, point, fitted)
        return call.model  # type: ignore[attr-defined]

    def _on_device(self, method: str, engine: str, point: Point, fitted: _Fitted | None) -> None:
        """Measure the call on data that are there already."""
        found = self.result.observations[method, engine]
        if "cupy" not in sys.modules or sum(o.letters["h"] == 0 for o in found) >= _ON_DEVICE:
            return
        call = self._call(method, point, fitted, point.sent())
        if call is not None:
            first = _clock(call)
            seconds = self._repeated(call, first, first)
            self._record(method, engine, point, seconds, fitted, moves=False)

    def _on_narrow(
        self, method: str, place: str, point: Point, seconds: float, fitted: _Fitted | None
    ) -> None:
        """Measure how much sooner float32 is done."""
        if (method, place) in self.result.narrow:
            return
        call = self._call(method, point, fitted, point.narrow(), plain=place == CPU)
        if call is not None:
            ratio = min(_clock(call), _clock(call)) / seconds
            self.result.narrow[method, place] = min(max(ratio, 0.3), 1.5)

    def _on_few_rows(self, method: str, place: str, point: Point, fitted: _Fitted | None) -> None:
        """Measure a few rows where what the model was fitted on counts."""
        matters = any("m" in term for term in self.result.work.apply)
        if fitted is None or not matters or not 1_000 <= point.rows <= _TRAINING_ROWS:
            return
        for rows in (1, 100):
            call = self._call(method, point, fitted, point.first_rows(rows), plain=place == CPU)
            if call is not None and self.budget.left > 0:
                seconds = self._repeated(call, _clock(call))
                self._record(method, place, point, seconds, fitted, rows=rows)

    def _move(self, _: str, point: Point, model: Any) -> None:
        """Measure what it takes to have fitted state on the host, and back on the device."""
        state = vars(model)[SLOT]
        steps = {"fetch": model._accelsk_fetch, "restore": lambda: state.engine.restore(model)}
        for step, call in steps.items():
            if self.budget.allows(self._expected(step, "gpu", point)):
                with suppress(Refusal):
                    seconds = _clock(call)
                    self._record(step, state.engine.name, point, seconds)
                    self.outlook.add(step, "gpu", point, seconds)


def measure(cls: Any, seconds: float, grid: Grid = GRID) -> Measurement:
    """Measure the methods of one accelerated class, on its engines and on the CPU.

    Parameters
    ----------
    cls : type
    seconds : float
        How long it may take.
    grid : Grid
    """
    measuring = ClassMeasuring(cls, Budget(seconds), Table())
    for index, (rows, columns) in enumerate(grid):
        point = Point(cls, rows, columns, index)
        measuring.on_gpu(point)
        measuring.on_cpu(point)
    return measuring.result
