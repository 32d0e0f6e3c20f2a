"""Polynomial features."""

from __future__ import annotations

from itertools import combinations, combinations_with_replacement
from typing import Any

import numpy as np

__all__ = ["monomials", "terms"]

#: Elements of the largest intermediate array: 128 MB in float64.
_CHUNK = 1 << 24


def terms(
    n_features: int, degrees: tuple[int, int], interaction_only: bool, include_bias: bool
) -> np.ndarray:
    """Return which features each monomial is the product of.

    Parameters
    ----------
    n_features : int
    degrees : tuple of int
        The least and the greatest degree; the constant is there or not whatever they are.
    interaction_only : bool
        Leave out what has a feature more than once.
    include_bias : bool
        Start with the constant.

    Returns
    -------
    terms : ndarray of shape (n_monomials, n_factors)
        Positions of features, ascending; `n_features` stands for no further factor.
    """
    choose = combinations if interaction_only else combinations_with_replacement
    chosen: list[tuple[int, ...]] = [()] if include_bias else []
    for degree in range(max(1, degrees[0]), degrees[1] + 1):
        chosen += choose(range(n_features), degree)
    width = max((len(term) for term in chosen), default=0)
    padded = [(*term, *(n_features,) * (width - len(term))) for term in chosen]
    return np.array(padded, dtype=np.int64).reshape(len(chosen), width)


def monomials(X: Any, terms: Any, xp: Any) -> Any:
    """Return the products of features that `terms` lists.

    The last factors are multiplied first, as scikit-learn does: rounding is the same.

    Parameters
    ----------
    X : array of shape (n_samples, n_features)
    terms : array of int of shape (n_monomials, n_factors)
    xp : module
        The array namespace.
    """
    n_factors = terms.shape[1]
    if n_factors == 0:
        return xp.ones((len(X), len(terms)), X.dtype)
    result = xp.empty((len(X), len(terms)), X.dtype)
    step = max(1, _CHUNK // max(1, len(terms)))
    for start in range(0, len(X), step):
        rows = X[start : start + step]
        rows = xp.concatenate([rows, xp.ones((len(rows), 1), X.dtype)], axis=1)
        block = rows[:, terms[:, -1]]
        for factor in reversed(range(n_factors - 1)):
            block *= rows[:, terms[:, factor]]
        result[start : start + step] = block
    return result
