"""Target encodings from statistics of groups of rows: categories within folds."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from accelsk.algorithms.categories import counts_of, group_sums

__all__ = ["Groups", "by_class", "by_value", "encodings", "pooled"]


class Groups(NamedTuple):
    """Statistics of the target in groups, in arrays of shape (n_folds, n_targets, n_categories).

    Attributes
    ----------
    count : array
        The rows of the group.
    mean : array
        Their mean target, 0 where there is no row.
    squares : array
        The sum of squared distances from that mean.
    """

    count: Any
    mean: Any
    squares: Any


def _ratio(numerator: Any, denominator: Any, xp: Any) -> Any:
    """Return the quotient, 0 where the denominator is 0."""
    zero = denominator == 0
    return xp.where(zero, 0.0, numerator / xp.where(zero, 1.0, denominator))


def by_class(
    classes: Any, n_classes: int, folds: Any, codes: Any, n_folds: int, n_categories: int, xp: Any
) -> Groups:
    """Return the statistics of a target that is one for rows of a class and zero for others.

    Parameters
    ----------
    classes : array of int of shape (n_samples,)
    n_classes : int
        A target for each class; with two classes, one target for the second.
    folds : array of int of shape (n_samples,)
    codes : array of int of shape (n_samples,)
        Categories.
    n_folds, n_categories : int
    xp : module
        The array namespace.
    """
    n_groups = n_folds * n_categories
    groups = folds * n_categories + codes
    joint = counts_of(groups * n_classes + classes, n_groups * n_classes, xp)
    joint = joint.reshape(n_folds, n_categories, n_classes).astype(np.float64)
    count = joint.sum(axis=2)[:, None, :]
    hits = joint.transpose(0, 2, 1)
    if n_classes == 2:
        hits = hits[:, 1:]
    mean = _ratio(hits, count, xp)
    squares = hits * (1 - mean) ** 2 + (count - hits) * mean**2
    return Groups(xp.broadcast_to(count, mean.shape), mean, squares)


def by_value(y: Any, folds: Any, codes: Any, n_folds: int, n_categories: int, xp: Any) -> Groups:
    """Return the statistics of a continuous target; the parameters are those of `by_class`."""
    n_groups = n_folds * n_categories
    groups = folds * n_categories + codes
    count = counts_of(groups, n_groups, xp).astype(np.float64)
    middle = y.mean()
    mean = _ratio(group_sums(y - middle, groups, n_groups, xp), count, xp) + middle
    squares = group_sums((y - mean[groups]) ** 2, groups, n_groups, xp)
    shape = (n_folds, 1, n_categories)
    mean = xp.where(count == 0, 0.0, mean)
    return Groups(count.reshape(shape), mean.reshape(shape), squares.reshape(shape))


def pooled(groups: Groups, kept: np.ndarray, xp: Any) -> Groups:
    """Return the statistics of several sets of folds.

    Parameters
    ----------
    groups : Groups
    kept : ndarray of shape (n_sets, n_folds)
        One for the folds of a set, zero for the others.
    xp : module
        The array namespace.

    Returns
    -------
    pooled : Groups
        A set takes the place of a fold.
    """
    sets = xp.asarray(kept, dtype=np.float64)
    count = xp.tensordot(sets, groups.count, 1)
    mean = _ratio(xp.tensordot(sets, groups.count * groups.mean, 1), count, xp)
    squares = xp.tensordot(sets, groups.squares, 1)
    for fold in range(len(groups.count)):
        apart = groups.count[fold] * (groups.mean[fold] - mean) ** 2
        squares += sets[:, fold, None, None] * apart
    return Groups(count, mean, squares)


def encodings(groups: Groups, throughout: Groups, smooth: float | None, xp: Any) -> Any:
    """Return the encoding of each category.

    Parameters
    ----------
    groups : Groups
    throughout : Groups
        Of the same rows, all in one category.
    smooth : float or None
        The weight of the mean of the target; None lets the variances decide.
    xp : module
        The array namespace.

    Returns
    -------
    encodings : array of shape (n_folds, n_targets, n_categories)

    References
    ----------
    Micci-Barreca, "A preprocessing scheme for high-cardinality categorical attributes in
    classification and prediction problems", SIGKDD Explorations 3(1), 2001.
    """
    count, mean = groups.count, throughout.mean
    if smooth is not None:
        weight = count + smooth
        shrunk = _ratio(count * groups.mean + smooth * mean, weight, xp)
        return xp.where(weight == 0, mean, shrunk)
    between = _ratio(throughout.squares, throughout.count, xp) * count
    total = between + _ratio(groups.squares, count, xp)
    share = _ratio(between, total, xp)
    return xp.where((count == 0) | (total == 0), mean, share * groups.mean + (1 - share) * mean)
