"""Means and products of columns from one pass over the rows, in float64 whatever comes in.

Rows arrive in blocks. Each is shifted by a first estimate of the mean, so that a large offset
costs no digits, and goes into one matrix product with a column of ones beside it: that gives the
Gram matrix, the products with the targets and all the sums at once. Nothing here waits for the
device; what is wrong with the data shows in the sums, at the end.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np

from accelsk.algorithms.products import Product

__all__ = [
    "CHUNK",
    "Accumulator",
    "DigitsLost",
    "Moments",
    "first_estimate",
    "merged",
    "moments_of",
    "without",
]

#: Rows of the first block that the estimate of the mean rests on.
_SAMPLE = 1024

#: Bytes of a block in float64 that are summed at a time: rows that travel together, where they are
#: float32, in one go, as the interpreter is busy with the transfer.
CHUNK = 1 << 27

#: Beyond this ratio of what is taken off a sum of squares to what stays, digits are missed.
_LARGEST_LOSS = 1e3


class DigitsLost(ArithmeticError):  # noqa: N818 - as the exceptions of this package are named
    """Where the difference of two sets of moments would have too few digits."""


@dataclass(frozen=True)
class Moments:
    """Moments of weighted rows of X, and of targets Y where there are any.

    Attributes
    ----------
    n_samples : int
        The number of rows.
    weight : array without dimensions, or float
        The sum of their weights.
    X_mean : array of shape (n_features,)
    gram : array of shape (n_features, n_features)
        The weighted sum of products of the columns of X about `X_mean`.
    Y_mean : array of shape (n_targets,) or None
    XY : array of shape (n_features, n_targets) or None
        The same of columns of X about `X_mean` and of Y about `Y_mean`.
    YY : array of shape (n_targets,) or None
        The weighted sum of squares of the columns of Y about `Y_mean`.
    loss : array without dimensions, or float
        By how much the sums of squares were larger before they were taken about the mean.
    """

    n_samples: int
    weight: Any
    X_mean: Any
    gram: Any
    Y_mean: Any = None
    XY: Any = None
    YY: Any = None
    loss: Any = 0.0

    def on_host(self) -> Moments:
        """Return the same in NumPy arrays."""
        moved = {field.name: getattr(self, field.name) for field in fields(self)}
        for name, value in moved.items():
            if name != "n_samples" and value is not None:
                array = value.get() if hasattr(value, "get") else np.asarray(value)
                moved[name] = array if array.ndim else float(array)
        return Moments(**moved)

    def about_zero(self) -> Moments:
        """Return the moments about zero: of a model without an intercept."""
        changes = {
            "X_mean": self.X_mean * 0.0,
            "gram": self.gram + self.weight * _outer(self.X_mean, self.X_mean),
        }
        if self.Y_mean is not None:
            changes["Y_mean"] = self.Y_mean * 0.0
            changes["XY"] = self.XY + self.weight * _outer(self.X_mean, self.Y_mean)
            changes["YY"] = self.YY + self.weight * self.Y_mean**2
        return replace(self, **changes)


def _outer(one: Any, other: Any) -> Any:
    return one[:, None] * other[None, :]


def _joined(one: Moments, other: Moments, sign: float) -> Moments:
    """Return `one` with (or, for a `sign` of -1, without) `other`."""
    weight = one.weight + sign * other.weight
    changes: dict[str, Any] = {
        "n_samples": one.n_samples + int(sign) * other.n_samples,
        "weight": weight,
    }
    factor = one.weight * other.weight / weight
    share = sign * other.weight / weight
    X_apart = other.X_mean - one.X_mean
    changes["X_mean"] = one.X_mean + share * X_apart
    changes["gram"] = one.gram + sign * (other.gram + factor * _outer(X_apart, X_apart))
    if one.Y_mean is not None:
        Y_apart = other.Y_mean - one.Y_mean
        changes["Y_mean"] = one.Y_mean + share * Y_apart
        changes["XY"] = one.XY + sign * (other.XY + factor * _outer(X_apart, Y_apart))
        changes["YY"] = one.YY + sign * (other.YY + factor * Y_apart**2)
    return replace(one, **changes)


def merged(one: Moments, other: Moments) -> Moments:
    """Return the moments of two sets of rows together; both have a positive weight."""
    return _joined(one, other, 1.0)


def without(total: Moments, part: Moments) -> Moments:
    """Return the moments of the rows of `total` that are not in `part`, both on the host.

    Raises
    ------
    DigitsLost
        Where `part` outweighs the rest so much that too few digits of it would be left.
    """
    if part.n_samples >= total.n_samples or not total.weight - part.weight > 0:
        raise DigitsLost("no rows are left")
    rest = _joined(total, part, -1.0)
    pairs = [(np.diagonal(total.gram), np.diagonal(rest.gram))]
    if total.YY is not None:
        pairs.append((total.YY, rest.YY))
    for before, after in pairs:
        if (before > _LARGEST_LOSS * after).any():
            raise DigitsLost("the rows that are left vary too little beside those taken away")
    return rest


def first_estimate(rows: Any, xp: Any) -> Any:
    """Return about the mean of `rows`: exactly what they are where they are all the same."""
    sample = rows[:: max(1, len(rows) // _SAMPLE)]
    first = rows[0].astype(np.float64)
    apart = sample - first
    return first + xp.ones(len(apart)) @ apart / len(apart)


class Accumulator:
    """Takes blocks of rows, and gives their `Moments`.

    Parameters
    ----------
    xp : module
        The array namespace.
    shift : tuple of array, default=None
        Estimates of the mean of X and of Y (or None); found from the first block by default.
    chunk : int, default=CHUNK
        Bytes of rows in float64 that are held at a time.
    """

    def __init__(self, xp: Any, shift: tuple[Any, Any] | None = None, chunk: int = CHUNK) -> None:
        self._xp = xp
        self._chunk = chunk
        self._shift = shift
        self._n_samples = 0
        self._product: Product | None = None

    def add(self, X: Any, Y: Any = None, weight: Any = None) -> None:
        """Take in a block of rows.

        Parameters
        ----------
        X : array of shape (n_rows, n_features)
        Y : array of shape (n_rows,) or (n_rows, n_targets), default=None
        weight : array of shape (n_rows,), default=None
            Not negative.
        """
        xp = self._xp
        if Y is not None and Y.ndim == 1:
            Y = Y[:, None]
        if self._product is None:
            self._start(X, Y)
        assert self._product is not None
        assert self._shift is not None
        self._n_samples += len(X)
        root = None if weight is None else xp.sqrt(weight.astype(np.float64, copy=False))
        for rows in self._product.slices(len(X)):
            self._product.add(
                X[rows],
                self._shift[0],
                None if Y is None else Y[rows],
                self._shift[1],
                None if root is None else root[rows],
            )

    def _start(self, X: Any, Y: Any) -> None:
        xp = self._xp
        if self._shift is None:
            self._shift = (
                first_estimate(X, xp),
                None if Y is None else first_estimate(Y, xp),
            )
        n_targets = 0 if Y is None else Y.shape[1]
        self._product = Product(xp, X.shape[1], n_targets, self._chunk, len(X))

    def result(self, *, host: bool = False) -> Moments:
        """Return the moments of the rows so far, of which there are some."""
        assert self._product is not None
        assert self._shift is not None
        xp, parts = self._xp, [*self._product.result(), *self._shift]
        if host and xp is not np:
            xp, parts = np, [a.get() if hasattr(a, "get") else a for a in parts]
        total, YY, X_shift, Y_shift = parts
        return moments_of(self._n_samples, total, YY, X_shift, Y_shift, xp)


def moments_of(n_samples: int, total: Any, YY: Any, X_shift: Any, Y_shift: Any, xp: Any) -> Moments:
    """Return the moments that products of ``[X - X_shift, 1, Y - Y_shift]`` amount to.

    Parameters
    ----------
    n_samples : int
    total : array of shape (at least n_features + 1, at least n_features + 1 + n_targets)
    YY : array of shape (n_targets,)
        The sums of squares of the targets.
    X_shift, Y_shift : array
        `Y_shift` may be None.
    xp : module
        The array namespace.
    """
    d = len(X_shift)
    weight, X_sum = total[d, d], total[:d, d]
    X_apart = X_sum / weight
    squares = xp.diagonal(total)[:d]
    gram = total[:d, :d] - _outer(X_sum, X_apart)
    left = xp.diagonal(gram)
    # a column without spread has nothing left, whatever was taken off
    loss = xp.where(left > 0, squares / xp.where(left > 0, left, 1.0), 0.0)
    gram = 0.5 * (gram + gram.T)
    moments = Moments(n_samples, weight, X_shift + X_apart, gram, loss=loss.max())
    if Y_shift is None:
        return moments
    targets = slice(d + 1, d + 1 + len(Y_shift))
    Y_sum = total[d, targets]
    Y_apart = Y_sum / weight
    return replace(
        moments,
        Y_mean=Y_shift + Y_apart,
        XY=total[:d, targets] - _outer(X_sum, Y_apart),
        YY=xp.maximum(YY - Y_sum * Y_apart, 0.0),
    )
