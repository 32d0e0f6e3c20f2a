"""Measuring calls at growing sizes, class by class, within a given time."""

from __future__ import annotations

import copy
import logging
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cached_property
from math import log
from statistics import median
from time import perf_counter
from typing import Any

import numpy as np

from accelsk import config
from accelsk.costs import samples
from accelsk.costs.decision import name_of
from accelsk.costs.measurement import Measurement
from accelsk.costs.model import CPU, Observation
from accelsk.costs.work import ALIASES, letters
from accelsk.estimator import SLOT
from accelsk.exceptions import Refusal
from accelsk.profiling.events import listening
from accelsk.registry import to_sklearn

__all__ = ["GRID", "Grid", "measure"]

logger = logging.getLogger("accelsk")

#: Repeated until it has taken this long, or this often: one small call says little.
_LONG, _OFTEN = 0.025, 5

#: A call that takes no more than this part of the time of its class is made twice at least.
_TWICE = 0.1

#: A call that takes so many times what was expected is made again.
_SURPRISE = 4

#: No call may be expected to take more than this part of the time of its class.
_SHARE = 0.3

#: From this many elements on, calls are made with data on the device and in float32, too.
_LARGE = 200_000


#: The sizes to measure, rows and columns, in the order in which they are measured: where the time
#: is short, the first few have to say what grows with what.
Grid = Sequence[tuple[int, int]]

GRID: Grid = (
    (64, 8),
    (3_000, 8),
    (2_000, 128),
    (30_000, 8),
    (250_000, 8),
    (15_000, 128),
    (300, 128),
    (400, 8),
    (80_000, 128),
    (1_250_000, 8),
    (64, 128),
)


def _clock(call: Callable[[], Any]) -> float:
    start = perf_counter()
    call()
    if (cupy := sys.modules.get("cupy")) is not None:
        cupy.cuda.Device().synchronize()
    return perf_counter() - start


class _Point:
    """One size, and what a class has to do there."""

    def __init__(self, measuring: _Measuring, rows: int, columns: int, variant: int) -> None:
        self.measuring = measuring
        self.variant = variant
        self.rows, self.columns = rows, columns
        if samples.takes_labels_only(measuring.cls):
            self.columns = 1

    @cached_property
    def data(self) -> samples.Sample:
        return samples.sample(self.measuring.cls, self.rows, self.columns)

    @property
    def large(self) -> bool:
        enough = self.rows * self.columns >= _LARGE
        return enough and type(self.data.X) is np.ndarray

    def new(self, *, plain: bool = False) -> Any:
        estimator = samples.new(self.measuring.cls, self.variant)
        return to_sklearn(estimator) if plain else estimator

    def sizes(self, **kwargs: Any) -> dict[str, float]:
        given = {"rows": self.rows, "columns": self.columns, **kwargs}
        return letters(self.measuring.result.work, self.new(), **given)

    def transformed(self, plain: Any) -> _Point:
        """Return the same with what a fitted transformer makes of the data."""
        point = copy.copy(self)
        given = samples.arguments(plain, "transform", self.data)
        point.data = samples.Sample(*[plain.transform(**given or {})] * 2)
        return point

    def narrow(self) -> samples.Sample:
        return self.data._replace(X=self.data.X.astype(np.float32))

    def sent(self) -> samples.Sample:
        from accelsk.device.transfer import to_device

        return self.data._replace(X=to_device(self.data.X))

    def first_rows(self, rows: int) -> samples.Sample:
        return samples.Sample(*(None if v is None else v[:rows] for v in self.data))


class _Measuring:
    """Measures one class until its time is over."""

    def __init__(self, cls: Any, seconds: float) -> None:
        self.cls = cls
        self.allowed = seconds
        self.deadline = perf_counter() + seconds
        self.result = Measurement(name_of(cls) or cls.__qualname__)
        self._begun = 0
        self._newest: dict[tuple[str, str], tuple[float, int, int, float]] = {}
        names = [name for engine in cls._accelsk_engines for name in engine.methods]
        names = [ALIASES[name] if ALIASES.get(name) in names else name for name in names]
        names = [*dict.fromkeys(names)]
        names = [name for name in names if hasattr(samples.new(cls), name)]
        self.fits = [name for name in names if name.startswith("fit")]
        self.others = [name for name in names if not name.startswith("fit")]

    def run(self, grid: Grid) -> Measurement:
        for index, (rows, columns) in enumerate(grid):
            if index and perf_counter() > self.deadline:
                break
            self._begun = index
            self._measure_at(_Point(self, rows, columns, index))
        return self.result

    def _measure_at(self, point: _Point) -> None:
        model = None
        for method in self.fits:
            made = self._tried(self._on_gpu, method, point)
            model = made if method == "fit" else model
            self._tried(self._on_cpu, method, point)
        if not self.others:
            return
        if model is not None and SLOT in vars(model):
            self._move(model, point)
        elif not self._is_over("fit", CPU, point) and not all(
            self._is_over(method, "gpu", point) for method in self.others
        ):
            model = point.new()
            with config.config_context(device="cpu"):
                model.fit(**(samples.arguments(model, "fit", point.data) or {}))
        if model is not None:
            plain = to_sklearn(model)
            for method in self.others:
                there = point.transformed(plain) if method == "inverse_transform" else point
                self._tried(self._on_gpu, method, there, model)
                self._tried(self._on_cpu, method, there, plain)

    # One call

    def _tried(self, measure: Callable[..., Any], method: str, *args: Any) -> Any:
        """Measure a call; what cannot be measured here does not cost the rest."""
        try:
            return measure(method, *args)
        except Exception as error:
            logger.info("%s.%s: %s: %s", self.result.name, method, type(error).__name__, error)
            return None

    def _expected(self, method: str, place: str, point: _Point) -> float | None:
        """Return what a call may be expected to take, from the newest one."""
        if (method, place) not in self._newest:
            return None
        seconds, rows, columns, power = self._newest[method, place]
        return seconds * (point.rows / rows) ** power * max(point.columns / columns, 1.0)

    def _is_over(self, method: str, place: str, point: _Point) -> bool:
        """Whether a call would take too much of the time that the class has."""
        if self._begun and perf_counter() > self.deadline:
            return True
        expected = self._expected(method, place, point)
        return expected is not None and expected > _SHARE * self.allowed

    def _remember(self, method: str, place: str, point: _Point, seconds: float) -> None:
        """Have on record what the next size can be told by."""
        power = 0.7
        if (method, place) in self._newest:
            before, rows, columns, power = self._newest[method, place]
            if columns == point.columns and rows < point.rows:
                power = max(0.7, log(seconds / before) / log(point.rows / rows))
        self._newest[method, place] = seconds, point.rows, point.columns, power

    def _record(self, method: str, place: str, point: _Point, seconds: float, **sizes: Any) -> None:
        found = self.result.observations.setdefault((method, place), [])
        found.append(Observation(point.sizes(**sizes), seconds))

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
        return min(first, _clock(call)) if suspect or first < _TWICE * self.allowed else first

    def _call(
        self, method: str, point: _Point, model: Any, data: samples.Sample, *, plain: bool = False
    ) -> Callable[[], Any] | None:
        """Return the call to measure; a fit leaves its estimator behind."""
        given = samples.arguments(model or point.new(plain=plain), method, data)
        if given is None:
            return None

        def call() -> Any:
            call.model = model if model is not None else point.new(plain=plain)  # type: ignore[attr-defined]
            return getattr(call.model, method)(**given)  # type: ignore[attr-defined]

        return call

    def _on_cpu(self, method: str, point: _Point, model: Any = None) -> None:
        if self._is_over(method, CPU, point):
            return
        call = self._call(method, point, model, point.data, plain=True)
        if call is None:
            return
        expected = self._expected(method, CPU, point)
        seconds = self._repeated(call, _clock(call), expected)
        self._record(method, CPU, point, seconds)
        self._remember(method, CPU, point, seconds)
        if point.large and seconds < self.allowed / 20:
            self._on_narrow(method, CPU, point, seconds, model, plain=True)
        self._on_few_rows(method, CPU, point, model)

    def _on_gpu(self, method: str, point: _Point, model: Any = None) -> Any:
        """Return the estimator that made the call; None where no engine runs it."""
        if self._is_over(method, "gpu", point):
            return None
        call = self._call(method, point, model, point.data)
        if call is None:
            return None
        with config.config_context(device="gpu"):
            events: list[Any] = []
            with listening(events.append):
                first = _clock(call)
            engine = events[-1].engine if events else None
            if engine is None:
                return None
            if (method, engine) in self.result.first:
                expected = self._expected(method, "gpu", point)
                seconds = self._repeated(call, first, expected)
            else:
                seconds = self._repeated(call, _clock(call))
                self.result.first[method, engine] = extra = max(first - seconds, 0.0)
                self.deadline += extra  # compiling is no part of what the class may take
            self._record(method, engine, point, seconds)
            self._remember(method, "gpu", point, seconds)
            if point.large and seconds < self.allowed / 20:
                self._on_device(method, engine, point, model)
                self._on_narrow(method, engine, point, seconds, model)
            self._on_few_rows(method, engine, point, model)
        return call.model  # type: ignore[attr-defined]

    def _on_device(self, method: str, engine: str, point: _Point, model: Any) -> None:
        """Measure the call on data that are there already."""
        if "cupy" not in sys.modules:
            return
        call = self._call(method, point, model, point.sent())
        if call is not None:
            first = _clock(call)
            self._record(method, engine, point, self._repeated(call, first, first), moves=False)

    def _on_narrow(
        self,
        method: str,
        place: str,
        point: _Point,
        seconds: float,
        model: Any,
        *,
        plain: bool = False,
    ) -> None:
        call = self._call(method, point, model, point.narrow(), plain=plain)
        if call is not None:
            ratio = min(_clock(call), _clock(call)) / seconds
            self.result.narrow[method, place] = min(max(ratio, 0.3), 1.5)

    def _on_few_rows(self, method: str, place: str, point: _Point, model: Any) -> None:
        """Measure a few rows where what the model was fitted on counts."""
        matters = any("m" in term for term in self.result.work.apply)
        if model is None or not matters or point.rows < 1_000:
            return
        for rows in (1, 100):
            call = self._call(method, point, model, point.first_rows(rows))
            if call is not None:
                seconds = self._repeated(call, _clock(call))
                self._record(method, place, point, seconds, rows=rows, fitted=point.rows)

    def _move(self, model: Any, point: _Point) -> None:
        """Measure what it takes to have fitted state on the host, and back on the device."""
        state = vars(model)[SLOT]
        steps = {"fetch": model._accelsk_fetch, "restore": lambda: state.engine.restore(model)}
        for step, call in steps.items():
            if not self._is_over(step, "gpu", point):
                with suppress(Refusal):
                    seconds = _clock(call)
                    self._record(step, state.engine.name, point, seconds)
                    self._remember(step, "gpu", point, seconds)


def measure(cls: Any, seconds: float, grid: Grid = GRID) -> Measurement:
    """Measure the methods of an accelerated class, on the CPU and on its engines.

    Parameters
    ----------
    cls : type
    seconds : float
        How long it may take. The smallest size is measured in any case, and no size is begun
        after that time.
    grid : Grid
    """
    measuring = _Measuring(cls, seconds)
    try:
        measuring.run(grid)
    except Exception as error:  # one class that cannot be measured does not cost the others
        logger.warning("%s: %s: %s", measuring.result.name, type(error).__name__, error)
        logger.debug("measuring failed", exc_info=error)
    return measuring.result
