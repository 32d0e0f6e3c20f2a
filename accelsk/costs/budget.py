"""What may still be measured: the time that is left, and what a call can be expected to take."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from math import log
from time import perf_counter

from accelsk.costs.points import Point

__all__ = ["Budget", "Growth"]

#: No call is begun that may be expected to take more than this part of the time that is left.
_PART = 0.01

#: The power of the rows by which a call is taken to grow that has been measured once.
_POWER = 0.7


class Budget:
    """The seconds that are left, and what of them one call may take."""

    def __init__(self, seconds: float) -> None:
        self._end = perf_counter() + seconds

    @property
    def left(self) -> float:
        """The seconds that are left."""
        return self._end - perf_counter()

    def allows(self, expected: float | None) -> bool:
        """Whether a call may be begun; None means that nobody knows what it will take."""
        left = self.left
        return left > 0 and (expected is None or expected <= _PART * left)

    @contextmanager
    def part(self, share: float) -> Iterator[None]:
        """Leave no more than a share of what is left to what is done within a ``with`` block."""
        end = self._end
        self._end = perf_counter() + share * self.left
        try:
            yield
        finally:
            self._end = end


class Growth:
    """The newest times of a method in one place, and how they grow with the rows."""

    def __init__(self, most: float) -> None:
        self._most = most
        self._newest: dict[int, tuple[int, float, float]] = {}  # rows, seconds, power by columns

    def add(self, point: Point, seconds: float) -> None:
        seconds = max(seconds, 1e-9)  # as little as a clock tells
        power = _POWER
        if point.columns in self._newest:
            rows, before, power = self._newest.pop(point.columns)
            if rows < point.rows:
                # what takes the same at any size hides at first how the rest grows
                slope = log(seconds / before) / log(point.rows / rows) + 0.5
                power = min(max(slope, _POWER), self._most)
        self._newest[point.columns] = point.rows, seconds, power

    def at(self, point: Point) -> float:
        """Return what the method may be expected to take."""
        columns = point.columns if point.columns in self._newest else [*self._newest][-1]
        rows, seconds, power = self._newest[columns]
        return seconds * (point.rows / rows) ** power * max(point.columns / columns, 1.0)
