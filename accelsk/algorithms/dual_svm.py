"""Support vector machines in the dual: one class against another, as libsvm lays them out."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

__all__ = [
    "Layout",
    "Optimality",
    "by_class",
    "by_pair",
    "class_pairs",
    "most_votes",
    "optimality",
    "per_class",
]


def class_pairs(n_classes: int) -> Iterator[tuple[int, int]]:
    """Yield the pairs of classes in the order in which libsvm trains them."""
    for first in range(n_classes):
        for second in range(first + 1, n_classes):
            yield first, second


#: Within this share of its cost a dual variable is at zero, or at its cost.
_AT_BOUND = 1e-12


class Optimality(NamedTuple):
    """How far dual variables are from the optimum, and the intercept that goes with them.

    Attributes
    ----------
    violation : float
        That of the pair that violates the conditions most: libsvm stops where this is below
        ``tol``.
    intercept : float
    """

    violation: float
    intercept: float


def optimality(side: Any, wanted: Any, alpha: Any, cost: Any, xp: Any) -> Optimality:
    """Return how well dual variables meet the conditions for an optimum.

    Parameters
    ----------
    side : array of {-1, 1} of shape (n_terms, n_samples)
        In a classifier there is one term for each row and its sign is the class; in a regressor
        there are two, one for either side of the tube.
    wanted : array of shape (n_terms, n_samples)
        The intercept that would put each row exactly on its margin.
    alpha : array of shape (n_terms, n_samples)
        Between 0 and `cost`.
    cost : array of shape (n_terms, n_samples)
    xp : module
        The array namespace.

    References
    ----------
    C.-C. Chang and C.-J. Lin, "LIBSVM: a library for support vector machines", ACM Transactions
    on Intelligent Systems and Technology 2, 2011, section 4.
    """
    infinity = xp.asarray(np.inf)
    below, above = alpha < cost * (1 - _AT_BOUND), alpha > cost * _AT_BOUND
    largest = float(xp.where(xp.where(side > 0, below, above), wanted, -infinity).max())
    smallest = float(xp.where(xp.where(side > 0, above, below), wanted, infinity).min())
    free = below & above
    n_free = int(free.sum())
    if n_free:
        intercept = float(xp.where(free, wanted, 0.0).sum()) / n_free
    else:
        intercept = (largest + smallest) / 2
    return Optimality(largest - smallest, intercept)


class Layout(NamedTuple):
    """Support vectors of all pairs of classes, together.

    Attributes
    ----------
    support : array of int of shape (n_support,)
        Rows of the training data, by class and then in order.
    n_support : array of int of shape (n_classes,)
    coef : array of shape (n_classes - 1, n_support)
        A support vector of class i has its coefficient against a class j in row j - 1 where j is
        larger, in row j where it is smaller.
    """

    support: Any
    n_support: Any
    coef: Any


def by_class(codes: Any, coefs: list[Any], n_classes: int, xp: Any) -> Layout:
    """Return the layout that libsvm gives the support vectors.

    Parameters
    ----------
    codes : array of int of shape (n_samples,)
        The class of each row.
    coefs : list of array of shape (n_samples,)
        For each pair of classes the signed dual variables, zero for other rows.
    n_classes : int
    xp : module
        The array namespace.
    """
    table = xp.zeros((n_classes - 1, len(codes)))
    for (first, second), coef in zip(class_pairs(n_classes), coefs, strict=True):
        table[second - 1] += xp.where(codes == first, coef, 0.0)
        table[first] += xp.where(codes == second, coef, 0.0)
    order = xp.argsort(codes, kind="stable")
    support = order[(table != 0).any(axis=0)[order]]
    return Layout(support, xp.bincount(codes[support], minlength=n_classes), table[:, support])


def by_pair(coef: Any, n_support: np.ndarray, xp: Any) -> Any:
    """Return the coefficients of each pair of classes, as columns.

    Parameters
    ----------
    coef : array of shape (n_classes - 1, n_support)
        As in `Layout`.
    n_support : ndarray of int of shape (n_classes,)
    xp : module
        The array namespace.

    Returns
    -------
    coefs : array of shape (n_support, n_pairs)
    """
    ends = np.cumsum(n_support).tolist()
    rows = [slice(end - n, end) for end, n in zip(ends, n_support.tolist(), strict=True)]
    pairs = list(class_pairs(len(n_support)))
    coefs = xp.zeros((coef.shape[1], len(pairs)), coef.dtype)
    for column, (first, second) in enumerate(pairs):
        coefs[rows[first], column] = coef[second - 1, rows[first]]
        coefs[rows[second], column] = coef[first, rows[second]]
    return coefs


def _signs(n_classes: int, xp: Any) -> Any:
    """Return, for each pair of classes, +1 for its first class and -1 for its second."""
    pairs = list(class_pairs(n_classes))
    signs = np.zeros((len(pairs), n_classes))
    for row, (first, second) in enumerate(pairs):
        signs[row, first], signs[row, second] = 1, -1
    return xp.asarray(signs)


def _votes(first_wins: Any, n_classes: int, xp: Any) -> Any:
    """Return how many pairs each class wins."""
    signs = _signs(n_classes, xp)
    won = xp.where(first_wins, 1.0, 0.0)
    return won @ (signs > 0).astype(np.float64) + (1 - won) @ (signs < 0).astype(np.float64)


def most_votes(decisions: Any, n_classes: int, xp: Any) -> Any:
    """Return the class that wins most pairs; of several the first.

    Parameters
    ----------
    decisions : array of shape (n_rows, n_pairs)
        Positive where the first class of the pair wins.
    n_classes : int
    xp : module
        The array namespace.
    """
    if n_classes == 2:
        return xp.where(decisions[:, 0] > 0, 0, 1)
    return _votes(decisions > 0, n_classes, xp).argmax(axis=1)


def per_class(decisions: Any, n_classes: int, xp: Any) -> Any:
    """Return a score for each class: its votes, and less than one for how clear they are.

    Parameters
    ----------
    decisions : array of shape (n_rows, n_pairs)
    n_classes : int
    xp : module
        The array namespace.

    Returns
    -------
    scores : array of shape (n_rows, n_classes)
    """
    confidence = decisions @ _signs(n_classes, xp)
    votes = _votes(decisions >= 0, n_classes, xp)
    return votes + confidence / (3 * (xp.abs(confidence) + 1))
