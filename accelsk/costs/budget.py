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

#: The part of the whole time that one method may take in one place.
_CURVE = 0.02

#: The power of the rows and columns by which a call is taken to grow that was measured once.
_POWER = 0.7


class Budget:
    """The seconds that are left, and what of them one call may take."""

    def __init__(self, seconds: float) -> None:
        self._end = self._last = perf_counter() + seconds
        self._for_curve = _CURVE * seconds

    @property
    def left(self) -> float:
        """The seconds that are left."""
        return self._end - perf_counter()

    def allows(self, expected: float | None, spent: float = 0.0) -> bool:
        """Whether a call may be begun.

        Parameters
        ----------
        expected : float or None
            What it may take; None means that nobody knows.
        spent : float
            What calls of the method have taken so far in the same place.
        """
        if self.left <= 0 or expected is None:
            return self.left > 0
        in_all = self._last - perf_counter()
        return expected <= _PART * in_all and spent + expected <= self._for_curve

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
    """The times of a method in one place, and how they grow with the rows.

    Parameters
    ----------
    most : float
        The power of the rows by which it grows at most.
    """

    def __init__(self, most: float) -> None:
        self.spent = 0.0
        self._most = most
        self._times: dict[tuple[int, int], tuple[Point, float]] = {}

    def add(self, point: Point, seconds: float) -> None:
        # as little as a clock tells is no time at all
        self._times[point.rows, point.columns] = point, max(seconds, 1e-9)

    def at(self, point: Point) -> float:
        """Return what the method may take, judged by the nearest size."""
        near, seconds = self._nearest(point)
        slopes = [self._slope(rows, columns) for rows, columns in self._times]
        slope = self._slope(near.rows, near.columns)
        if slope is None:
            # what has been seen to grow faster in other columns may do so in these
            power = max([_POWER, *(s for s in slopes if s is not None)])
        else:
            # what takes the same at any size hides at first how the rest grows
            power = max(slope + 0.5, _POWER)
        more = max(point.things / near.things, (point.columns / near.columns) ** _POWER, 1.0)
        return seconds * (point.rows / near.rows) ** min(power, self._most) * more

    def at_least(self, point: Point) -> float:
        """Return what the method takes in any case."""
        near, seconds = self._nearest(point)
        if point.columns < near.columns or point.things < near.things:
            return 0.0
        slope = self._slope(near.rows, near.columns) or 0.0
        power = max(slope, 0.0) if point.rows > near.rows else self._most
        return seconds * (point.rows / near.rows) ** power

    def _nearest(self, point: Point) -> tuple[Point, float]:
        def distance(known: tuple[Point, float]) -> float:
            near = known[0]
            return abs(log(near.rows / point.rows)) + abs(log(near.columns / point.columns))

        return min(self._times.values(), key=distance)

    def _slope(self, rows: int, columns: int) -> float | None:
        """Return the power of the rows up to a size; None where it is the smallest known."""
        before = [n for n, d in self._times if d == columns and n < rows]
        if not before:
            return None
        seconds, less = self._times[rows, columns][1], self._times[max(before), columns][1]
        return log(seconds / less) / log(rows / max(before))
