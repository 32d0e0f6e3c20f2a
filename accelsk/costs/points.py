"""The sizes at which a machine is measured, and the data of a class there."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any

import numpy as np

from accelsk.costs import samples
from accelsk.costs.decision import name_of
from accelsk.costs.work import WORK, Work, letters
from accelsk.registry import to_sklearn

__all__ = ["GRID", "Grid", "Point", "fitting", "forget"]

#: From this many elements on, calls are made with data on the device and in float32, too.
_LARGE = 200_000

Grid = Sequence[tuple[int, int]]

#: Rows and columns, in the order in which they are measured. The first four say what grows with
#: what, at little cost; then comes what data move and compute at full speed; then, between the
#: two, where the one side overtakes the other. What one size has made clear is not measured again.
GRID: Grid = (
    (64, 8),
    (1_000, 8),
    (64, 256),
    (8_000, 8),
    (2_000, 256),
    (60_000, 8),
    (15_000, 256),
    (1_500_000, 8),
    (100_000, 256),
    (8_000, 64),
    (400, 256),
    (3_000, 8),
    (20_000, 8),
    (5_000, 256),
    (6, 256),
)

#: So many times the bytes of the data, in float64, may have to fit into memory at once.
_COPIES = 8


def fitting(grid: Grid, available: float) -> Grid:
    """Return the sizes whose data, and what is made of them, fit into memory.

    Parameters
    ----------
    grid : Grid
    available : float
        Bytes, of the host or the device, whichever has less.
    """
    return [(rows, columns) for rows, columns in grid if 8 * rows * columns * _COPIES <= available]


#: What was made last of an array, by how: classes after each other are measured on the same data.
_made: dict[str, tuple[np.ndarray, Any]] = {}


def _last(how: str, X: np.ndarray, make: Callable[[np.ndarray], Any]) -> Any:
    if how not in _made or _made[how][0] is not X:
        _made.pop(how, None)  # before there is another one
        _made[how] = X, make(X)
    return _made[how][1]


def forget() -> None:
    """Let go of all data."""
    _made.clear()
    samples.forget()


class Point:
    """One size, and what a class has to do there.

    Parameters
    ----------
    cls : type
    rows, columns : int
    index : int
        The place of the size in the grid.
    """

    def __init__(self, cls: Any, rows: int, columns: int, index: int) -> None:
        self.cls = cls
        # two sizes after each other have the same hyperparameters, so that they differ in size
        self.variant = index // 2
        self.rows = rows
        self.columns = 1 if samples.takes_labels_only(cls) else columns

    @cached_property
    def data(self) -> samples.Sample:
        return samples.sample(self.cls, self.rows, self.columns)

    @cached_property
    def things(self) -> float:
        """How much there is to do by the hyperparameters: clusters, trees, repetitions."""
        work = WORK.get(name_of(self.cls) or "", Work())
        sizes = letters(work, self.new(), self.rows, self.columns)
        return sizes["k"] * sizes["t"] * sizes["i"]

    @property
    def large(self) -> bool:
        enough = self.rows * self.columns >= _LARGE
        return enough and type(self.data.X) is np.ndarray

    def new(self, *, plain: bool = False) -> Any:
        estimator = samples.new(self.cls, self.variant)
        return to_sklearn(estimator) if plain else estimator

    def transformed(self, plain: Any) -> Point:
        """Return the same with what a fitted transformer makes of the data."""
        point = copy.copy(self)
        given = samples.arguments(plain, "transform", self.data)
        point.data = samples.Sample(*[plain.transform(**given or {})] * 2)
        return point

    def narrow(self) -> samples.Sample:
        return self.data._replace(X=_last("narrow", self.data.X, lambda X: X.astype(np.float32)))

    def sent(self) -> samples.Sample:
        """Return the data on the device."""
        from accelsk.device.transfer import to_device

        return self.data._replace(X=_last("sent", self.data.X, to_device))

    def first_rows(self, rows: int) -> samples.Sample:
        return samples.Sample(*(None if v is None else v[:rows] for v in self.data))
