"""Moments and extremes of columns, missing values left out, from one pass over the rows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from accelsk.algorithms.fused import about

__all__ = ["Accumulator", "Extremes", "Moments", "first_estimate", "merged"]

#: Elements in float64 that are summed at a time, three for each of X: 384 MB.
_CHUNK = 3 << 24

#: Rows of the first block that the estimate of the mean rests on.
_SAMPLE = 1024


class Moments(NamedTuple):
    """Moments of each column.

    Attributes
    ----------
    count : array of shape (n_features,), dtype=float64
        The rows that have a value, or the sum of their weights.
    mean : array of shape (n_features,), dtype=float64
    squares : array of shape (n_features,), dtype=float64
        The sum of squared distances from the mean.
    rows : array of shape (n_features,), dtype=float64
        The rows that have a value, whatever they weigh.
    loss : array of shape (n_features,), dtype=float64
        By how much the squares were larger before they were taken about the mean.
    """

    count: Any
    mean: Any
    squares: Any
    rows: Any
    loss: Any


def first_estimate(X: Any, xp: Any) -> Any:
    """Return about the mean of each column: exactly its value where there is but one.

    A column whose first rows have no value gets zero.
    """
    sample = X[:: max(1, len(X) // _SAMPLE)].astype(np.float64)
    present = ~xp.isnan(sample)
    some = _folded(sample, xp.fmax)
    some = xp.where(xp.isfinite(some), some, 0.0)
    apart = xp.where(present, sample - some, 0.0)
    ones = xp.ones(len(sample))
    return some + ones @ apart / xp.maximum(ones @ present.astype(np.float64), 1.0)


class Accumulator:
    """Takes blocks of rows, and gives the `Moments` of their columns.

    Parameters
    ----------
    xp : module
        The array namespace.
    shift : array of shape (n_features,), default=None
        Estimates of the means, which cost an offset no digits; found from the first block by
        default.
    """

    def __init__(self, xp: Any, shift: Any = None) -> None:
        self._xp = xp
        self._shift = shift
        self._sums: Any = None
        self._rows: Any = None
        self._n_rows = 0
        self._weight: Any = None

    def add(self, X: Any, weight: Any = None) -> None:
        """Take in a block of rows, with weights of shape (n_rows,)."""
        xp, d = self._xp, X.shape[1]
        if self._sums is None:
            self._sums, self._rows = xp.zeros(3 * d), xp.zeros(d)
            if self._shift is None:
                self._shift = first_estimate(X, xp)
        self._n_rows += len(X)
        step = max(1, _CHUNK // (3 * d))
        for start in range(0, len(X), step):
            parts = about(X[start : start + step], self._shift, xp)
            # as products, which are far faster on a device than sums along the first axis
            ones = xp.ones(len(parts))
            if weight is None:
                self._sums += ones @ parts
                continue
            factors = weight[start : start + step].astype(np.float64, copy=False)
            self._sums += factors @ parts
            self._rows += ones @ parts[:, 2 * d :]
            self._weight = factors.sum() + (0.0 if self._weight is None else self._weight)

    def result(self) -> Moments:
        """Return the moments of the rows so far, of which there are some."""
        xp = self._xp
        total, squares, count = self._sums.reshape(3, -1)
        rows = count
        if self._weight is not None:
            rows = self._rows
            # the same for all columns that have all values, to the last digit
            count = xp.where(rows == self._n_rows, self._weight, count)
        apart = total / xp.where(count > 0, count, 1.0)
        left = xp.maximum(squares - total * apart, 0.0)
        loss = xp.where(left > 0, squares / xp.where(left > 0, left, 1.0), 0.0)
        return Moments(count, self._shift + apart, left, rows, loss)


def merged(one: Moments, other: Moments) -> Moments:
    """Return the moments of two sets of rows together; each has rows in every column."""
    count = one.count + other.count
    apart = other.mean - one.mean
    return Moments(
        count,
        (one.count * one.mean + other.count * other.mean) / count,
        one.squares + other.squares + apart**2 * one.count * other.count / count,
        one.rows + other.rows,
        np.maximum(one.loss, other.loss),
    )


class Extremes:
    """Takes blocks of rows, and gives the least and the greatest value of each column.

    A column without values has NaN. Rows are transposed first: a reduction along the first axis
    is far from the bandwidth of a device.

    Parameters
    ----------
    xp : module
        The array namespace.
    """

    def __init__(self, xp: Any) -> None:
        self._xp = xp
        self._found: tuple[Any, Any, Any] | None = None

    def add(self, X: Any) -> None:
        """Take in a block of rows of a floating dtype."""
        xp, infinity = self._xp, X.dtype.type(np.inf)
        columns = xp.asfortranarray(X).T
        missing = xp.isnan(columns)
        least = xp.where(missing, infinity, columns).min(axis=1)
        greatest = xp.where(missing, -infinity, columns).max(axis=1)
        present = (~missing).any(axis=1)
        if self._found is not None:
            least = xp.minimum(least, self._found[0])
            greatest = xp.maximum(greatest, self._found[1])
            present |= self._found[2]
        self._found = least, greatest, present

    def result(self) -> tuple[Any, Any]:
        """Return the least and the greatest values."""
        assert self._found is not None
        least, greatest, present = self._found
        nan = least.dtype.type(np.nan)
        return self._xp.where(present, least, nan), self._xp.where(present, greatest, nan)


def _folded(X: Any, pairwise: Callable[[Any, Any], Any]) -> Any:
    """Return one row in which all are compared, by halves."""
    while len(X) > 1:
        half = len(X) // 2
        odd = X[2 * half :]
        X = pairwise(X[:half], X[half : 2 * half])
        if len(odd):
            X[:1] = pairwise(X[:1], odd)
    return X[0]
