"""Moments of groups of rows, such as classes or folds, from one pass over all rows.

Each group is shifted by an estimate of its own mean: groups far apart cost each other no digits.
"""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

import numpy as np

from accelsk.algorithms.moments import CHUNK, Moments, first_estimate, moments_of
from accelsk.algorithms.products import Product

__all__ = ["ClassAccumulator", "ClassMoments", "GroupAccumulator"]


class ClassMoments(NamedTuple):
    """Moments of each class.

    Attributes
    ----------
    n_samples : array of shape (n_classes,), dtype=float64
        Rows of each class.
    weight : array of shape (n_classes,), dtype=float64
        The sums of their weights.
    mean : array of shape (n_classes, n_features), dtype=float64
        Where a class has no weight, any number.
    squares : array of shape (n_classes, n_features), dtype=float64, or None
        The weighted sums of squares of each class about its mean.
    within : array of shape (n_features, n_features), dtype=float64, or None
        The Gram matrix of all rows, each about the mean of its class.
    """

    n_samples: Any
    weight: Any
    mean: Any
    squares: Any = None
    within: Any = None

    def on_host(self) -> ClassMoments:
        """Return the same in NumPy arrays."""
        return ClassMoments(*(a.get() if hasattr(a, "get") else a for a in self))


def _members(codes: Any, n_groups: int, xp: Any) -> Any:
    """Return a matrix with a one where a row is of a group."""
    return (codes[:, None] == xp.arange(n_groups, dtype=codes.dtype)).astype(np.float64)


def _estimates(rows: Any, members: Any, xp: Any) -> Any:
    """Return about the mean of each group, of all rows where a group is not among them."""
    overall = first_estimate(rows, xp)
    count = (xp.ones(len(members)) @ members)[:, None]
    return overall + members.T @ (rows - overall) / xp.maximum(count, 1.0)


def _shifts(known: Any, count: Any, rows: Any, members: Any, xp: Any) -> Any:
    """Return estimates of the means: those `known`, but of a group that has had no rows a new one.

    A group far off the others that comes late, as where rows are sorted, loses no digits so.
    """
    new = _estimates(rows, members, xp)
    return new if known is None else xp.where(count[:, None] > 0, known, new)


class ClassAccumulator:
    """Takes blocks of rows with their classes, and gives the `ClassMoments`.

    Parameters
    ----------
    xp : module
        The array namespace.
    n_classes : int
    keep : {"squares", "within"}
        What is to be found beside the means.
    means : array of shape (n_classes, n_features), default=None
        Estimates of the means; found from the first rows of each class by default.
    """

    def __init__(
        self, xp: Any, n_classes: int, keep: Literal["squares", "within"], means: Any = None
    ) -> None:
        self._xp, self._n_classes, self._keep = xp, n_classes, keep
        self._shift, self._given = means, means is not None
        self._product: Product | None = None
        self._count: Any = None
        self._sums: Any = None
        self._squares: Any = None

    def add(self, X: Any, codes: Any, weight: Any = None) -> None:
        """Take in a block of rows.

        Parameters
        ----------
        X : array of shape (n_rows, n_features)
        codes : array of shape (n_rows,), dtype=int
            The class of each row, from 0 on.
        weight : array of shape (n_rows,), default=None
            Not negative.
        """
        xp, n_classes = self._xp, self._n_classes
        if self._count is None:
            self._start(*X.shape)
        width = X.shape[1] + n_classes
        rows = max(1, CHUNK // (8 * width))
        for start in range(0, len(X), rows):
            part = slice(start, start + rows)
            members = _members(codes[part], n_classes, xp)
            if not self._given:
                self._shift = _shifts(self._shift, self._count, X[part], members, xp)
            self._count += xp.ones(len(members)) @ members
            root = None if weight is None else xp.sqrt(weight[part].astype(np.float64, copy=False))
            self._add(X[part], codes[part], members, root)

    def _start(self, n_rows: int, d: int) -> None:
        xp, n_classes = self._xp, self._n_classes
        self._count = xp.zeros(n_classes)
        self._sums = xp.zeros((n_classes, d + 1))
        if self._keep == "within":
            self._product = Product(xp, d, 0, CHUNK, n_rows)
        else:
            self._squares = xp.zeros((n_classes, d))

    def _add(self, X: Any, codes: Any, members: Any, root: Any) -> None:
        xp, d = self._xp, X.shape[1]
        if self._product is not None:
            for part in self._product.slices(len(X)):
                heavy = None if root is None else root[part]
                rows = self._product.add(X[part], self._shift[codes[part]], None, None, heavy)
                by_class = members[part] if heavy is None else members[part] * heavy[:, None]
                self._sums += by_class.T @ rows
            return
        rows = X - self._shift[codes]
        if root is not None:
            members = members * (root * root)[:, None]
        self._sums[:, :d] += members.T @ rows
        self._sums[:, d] += xp.ones(len(members)) @ members
        rows *= rows
        self._squares += members.T @ rows

    def result(self) -> ClassMoments:
        """Return the moments of the rows so far, of which there are some."""
        xp, d = self._xp, self._sums.shape[1] - 1
        weight, sums = self._sums[:, d], self._sums[:, :d]
        apart = sums / xp.where(weight > 0, weight, 1.0)[:, None]
        mean = self._shift + apart
        if self._product is None:
            squares = xp.maximum(self._squares - sums * apart, 0.0)
            return ClassMoments(self._count, weight, mean, squares=squares)
        within = self._product.result()[0][:d, :d] - sums.T @ apart
        return ClassMoments(self._count, weight, mean, within=0.5 * (within + within.T))


class GroupAccumulator:
    """Takes blocks of rows with their groups, and gives the `Moments` of each group.

    Every group costs a matrix product over all rows: this is for a few groups.

    Parameters
    ----------
    xp : module
        The array namespace.
    n_groups : int
    """

    def __init__(self, xp: Any, n_groups: int) -> None:
        self._xp, self._n_groups = xp, n_groups
        self._X_shifts: Any = None
        self._Y_shifts: Any = None
        self._products: list[Product] = []
        self._count: Any = xp.zeros(n_groups)

    def add(self, X: Any, codes: Any, Y: Any = None, weight: Any = None) -> None:
        """Take in a block of rows; `codes` tell the group of each, from 0 on."""
        xp = self._xp
        if Y is not None and Y.ndim == 1:
            Y = Y[:, None]
        if not self._products:
            n_targets = 0 if Y is None else Y.shape[1]
            self._products = [
                Product(xp, X.shape[1], n_targets, CHUNK, len(X)) for _ in range(self._n_groups)
            ]
        for part in self._products[0].slices(len(X)):
            members = _members(codes[part], self._n_groups, xp)
            self._X_shifts = _shifts(self._X_shifts, self._count, X[part], members, xp)
            if Y is not None:
                self._Y_shifts = _shifts(self._Y_shifts, self._count, Y[part], members, xp)
            self._count += xp.ones(len(members)) @ members
            if weight is not None:
                members *= xp.sqrt(weight[part].astype(np.float64, copy=False))[:, None]
            for group, product in enumerate(self._products):
                product.add(
                    X[part],
                    self._X_shifts[group],
                    None if Y is None else Y[part],
                    None if Y is None else self._Y_shifts[group],
                    members[:, group],
                )

    def result(self) -> list[Moments]:
        """Return the moments of each group; on the host it is known how many rows one has."""
        X_shifts, Y_shifts = self._X_shifts, self._Y_shifts
        counts = self._count.get() if hasattr(self._count, "get") else self._count
        return [
            moments_of(
                int(count),
                *product.result(),
                X_shifts[group],
                None if Y_shifts is None else Y_shifts[group],
                self._xp,
            )
            for group, (count, product) in enumerate(zip(counts, self._products, strict=True))
        ]
