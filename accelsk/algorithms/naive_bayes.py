"""Counts and moments by class, and what naive Bayes makes of them."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

__all__ = [
    "Categories",
    "Moments",
    "bernoulli_log_joint",
    "categories",
    "categorical_log_joint",
    "class_sums",
    "gaussian_log_joint",
    "log_normalised",
    "merged",
]

#: Elements of the largest intermediate array: 256 MB in float64.
_CHUNK = 1 << 25


def _members(codes: Any, weight: Any, n_classes: int, xp: Any) -> Any:
    """Return the weight of each row in each class, of shape (n_samples, n_classes)."""
    members = (codes[:, None] == xp.arange(n_classes, dtype=codes.dtype)).astype(np.float64)
    return members if weight is None else members * weight[:, None]


def class_sums(X: Any, codes: Any, weight: Any, n_classes: int, xp: Any) -> tuple[Any, Any]:
    """Return the weight of each class and the weighted sum of its rows, in float64.

    Parameters
    ----------
    X : array or sparse matrix of shape (n_samples, n_features)
    codes : array of int of shape (n_samples,)
        The class of each row.
    weight : array of shape (n_samples,) or None
    n_classes : int
    xp : module
        The array namespace.

    Returns
    -------
    mass : array of shape (n_classes,)
    sums : array of shape (n_classes, n_features)
    """
    if not isinstance(X, xp.ndarray):
        members = _members(codes, weight, n_classes, xp)
        return members.sum(axis=0), (X.T @ members).T
    mass, sums = xp.zeros(n_classes), xp.zeros((n_classes, X.shape[1]))
    step = max(1, _CHUNK // max(n_classes, X.shape[1]))
    for start in range(0, len(X), step):
        rows = slice(start, start + step)
        members = _members(codes[rows], None if weight is None else weight[rows], n_classes, xp)
        mass += members.sum(axis=0)
        sums += members.T @ X[rows].astype(np.float64, copy=False)
    return mass, sums


class Moments(NamedTuple):
    """Weight, mean and variance of each class."""

    mass: Any
    mean: Any
    variance: Any


def merged(before: Moments, new: Moments, xp: Any) -> Moments:
    """Return the moments of the rows before and of new ones together.

    Parameters
    ----------
    before, new : Moments
        In float64; zeros where there were no rows.
    xp : module
        The array namespace.

    References
    ----------
    T. F. Chan, G. H. Golub, R. J. LeVeque, "Updating formulae and a pairwise algorithm for
    computing sample variances", COMPSTAT 1982, 30-41.
    """
    total = before.mass + new.mass
    divisor = xp.where(total > 0, total, 1)[:, None]
    share = new.mass[:, None] / divisor
    apart = new.mean - before.mean
    spread = new.mass[:, None] * new.variance
    spread += before.mass[:, None] * (before.variance + share * apart**2)
    met = (new.mass > 0)[:, None]  # what a class had before stays as it was to the last digit
    return Moments(
        total,
        xp.where(met, before.mean + share * apart, before.mean),
        xp.where(met, spread / divisor, before.variance),
    )


def gaussian_log_joint(X: Any, mean: Any, variance: Any, prior: Any, xp: Any) -> Any:
    """Return log P(class) + log P(x | class), of shape (n_samples, n_classes), in float64."""
    constant = xp.log(prior) - 0.5 * xp.log(2 * np.pi * variance).sum(axis=1)
    inverse = 0.5 / variance
    result = xp.empty((len(X), len(mean)))
    step = max(1, _CHUNK // X.shape[1])
    for start in range(0, len(X), step):
        rows = slice(start, start + step)
        for c in range(len(mean)):
            apart = X[rows] - mean[c]
            apart *= apart
            result[rows, c] = constant[c] - apart @ inverse[c]
    return result


def bernoulli_log_joint(X: Any, log_prob: Any, log_prior: Any, xp: Any) -> Any:
    """Return log P(class) + log P(x | class) for features that are there or not.

    Parameters
    ----------
    X : array or sparse matrix of shape (n_samples, n_features)
        Zeros and ones.
    log_prob : array of shape (n_classes, n_features)
        Of a one in each class.
    log_prior : array of shape (n_classes,)
    xp : module
        The array namespace.
    """
    absent = xp.log(1 - xp.exp(log_prob))
    return X @ (log_prob - absent).T + (log_prior + absent.sum(axis=1))


def log_normalised(log_joint: Any, xp: Any) -> Any:
    """Return the logarithms of shares whose logarithms, but for a constant, are given."""
    top = log_joint.max(axis=1, keepdims=True)
    top = xp.where(xp.isfinite(top), top, 0)
    return log_joint - (xp.log(xp.exp(log_joint - top).sum(axis=1, keepdims=True)) + top)


class Categories(NamedTuple):
    """Counts of categories, those of all features side by side.

    Attributes
    ----------
    counts : array of shape (n_classes, sum of sizes)
    sizes : ndarray of int of shape (n_features,)
        How many categories each feature has; on the host.
    """

    counts: Any
    sizes: np.ndarray

    def starts(self) -> np.ndarray:
        """Return where the categories of each feature begin."""
        return np.concatenate([[0], np.cumsum(self.sizes)[:-1]])

    def split(self, table: Any) -> list[Any]:
        """Return an array like `counts` as one for each feature."""
        return [table[:, at : at + n] for at, n in zip(self.starts(), self.sizes, strict=True)]


def categories(
    X: Any, codes: Any, weight: Any, n_classes: int, sizes: np.ndarray, xp: Any
) -> Categories:
    """Return how often each category comes with each class.

    Parameters
    ----------
    X : array of int of shape (n_samples, n_features)
        Below `sizes`.
    codes : array of int of shape (n_samples,)
    weight : array of shape (n_samples,) or None
    n_classes : int
    sizes : ndarray of int of shape (n_features,)
    xp : module
        The array namespace.
    """
    found = Categories(None, sizes)
    total = int(sizes.sum())
    counts = xp.zeros(n_classes * total)
    keys = codes.astype(np.int64) * total
    for feature, start in enumerate(found.starts().tolist()):
        counts += xp.bincount(keys + start + X[:, feature], weight, minlength=len(counts))
    return found._replace(counts=counts.reshape(n_classes, total))


def categorical_log_joint(X: Any, log_prob: Any, starts: np.ndarray, log_prior: Any) -> Any:
    """Return log P(class) + log P(x | class), of shape (n_samples, n_classes).

    Parameters
    ----------
    X : array of int of shape (n_samples, n_features)
    log_prob : array of shape (n_classes, sum of sizes)
        As `Categories` holds counts.
    starts : ndarray of int of shape (n_features,)
    log_prior : array of shape (n_classes,)
    """
    by_category = log_prob.T
    result = by_category[X[:, 0] + int(starts[0])]
    for feature, start in enumerate(starts[1:].tolist(), 1):
        result = result + by_category[X[:, feature] + start]
    return result + log_prior
