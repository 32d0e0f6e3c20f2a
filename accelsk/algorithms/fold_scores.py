"""Scores of linear models on rows of which moments are known, without a look at the rows."""

from __future__ import annotations

from typing import Any

import numpy as np

from accelsk.algorithms.moments import Moments

__all__ = ["determination"]

#: Where terms of the residual are larger than all of it by this, too few digits are left.
_MOST_CANCELLED = 1e3


def determination(found: Moments, coef: Any, intercept: Any) -> float | None:
    """Return the coefficient of determination of a linear model, None if too few digits are left.

    Several targets count alike, as in `sklearn.metrics.r2_score` by default.

    Parameters
    ----------
    found : Moments
        Of the rows and their targets, in NumPy arrays.
    coef : ndarray of shape (n_features,) or (n_targets, n_features)
    intercept : float or ndarray of shape (n_targets,)
    """
    YY = found.YY
    weights = np.asarray(coef, np.float64).reshape(len(YY), -1)
    if weights.shape[1] != len(found.X_mean) or found.n_samples < 2:
        return None
    # no term of the residual is larger
    size = YY + (np.abs(weights) @ np.sqrt(np.diagonal(found.gram))) ** 2
    if not (size < _MOST_CANCELLED * YY).all():
        return None
    offset = found.Y_mean - weights @ found.X_mean - np.asarray(intercept, np.float64)
    left = YY + ((weights @ found.gram - 2 * found.XY.T) * weights).sum(axis=1)
    left = left + found.weight * offset**2
    return float((1.0 - np.maximum(left, 0.0) / YY).mean())
