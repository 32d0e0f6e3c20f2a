"""The sizes at which a machine is measured, and the data of a class there."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np

from accelsk.costs import samples
from accelsk.registry import to_sklearn

__all__ = ["GRID", "Grid", "Point"]

#: From this many elements on, calls are made with data on the device and in float32, too.
_LARGE = 200_000

#: The sizes to measure, rows and columns, in the order in which they are measured: where the time
#: is short, the first few have to say what grows with what.
Grid = Sequence[tuple[int, int]]

GRID: Grid = (
    (64, 8),
    (1_000, 8),
    (64, 256),
    (8_000, 64),
    (8_000, 8),
    (1_000, 256),
    (64_000, 8),
    (8_000, 256),
    (500_000, 8),
    (60_000, 256),
    (250, 64),
    (2_500, 8),
    (3_000_000, 8),
    (6, 256),
)


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
        return self.data._replace(X=self.data.X.astype(np.float32))

    def sent(self) -> samples.Sample:
        from accelsk.device.transfer import to_device

        return self.data._replace(X=to_device(self.data.X))

    def first_rows(self, rows: int) -> samples.Sample:
        return samples.Sample(*(None if v is None else v[:rows] for v in self.data))
