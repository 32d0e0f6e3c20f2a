"""What a forest loses where it splits features at quantiles only."""

from __future__ import annotations

from typing import Any

import numpy as np

__all__ = ["variance_within_bins"]

#: A slope within a bin counts where it explains this many times the variance that is left (an
#: F statistic): far above what chance does in any bin of a hundred features.
_SIGNIFICANT = 50

#: The fewest rows from which a slope can be told from chance; smaller bins are taken together.
_FEWEST = 10


def variance_within_bins(X: Any, y: Any, n_bins: int, xp: Any) -> float:
    """Return how much of the variance of a target no split at a quantile can get at.

    Within a bin, a least-squares line through the target tells what finer splits would find. The
    answer is the largest share over the features; it is large where a feature has a long tail in
    which the target goes on varying.

    Parameters
    ----------
    X : array of shape (n_samples, n_features)
    y : array of shape (n_samples,)
    n_bins : int
        The number of quantiles.
    xp : module
        The array namespace.

    Returns
    -------
    share : float
        Of the variance of `y`, from 0 to 1.
    """
    y = y.astype(np.float64)
    y = y - y.mean()
    total = float((y * y).sum())
    if len(y) <= n_bins or total == 0:
        return 0.0
    group = xp.arange(len(y)) // max(_FEWEST, -(-len(y) // n_bins))
    size = xp.bincount(group)

    def centred(values: Any) -> Any:
        return values - (xp.bincount(group, weights=values) / size)[group]

    worst = 0.0
    for feature in range(X.shape[1]):
        order = xp.argsort(X[:, feature])
        x, v = centred(X[order, feature].astype(np.float64)), centred(y[order])
        xx, xv, vv = (xp.bincount(group, weights=product) for product in (x * x, x * v, v * v))
        explained = xp.where(xx > 0, xv * xv / xp.where(xx > 0, xx, 1), 0)
        left = xp.maximum(vv - explained, 0) / xp.maximum(size - 2, 1)
        worst = max(worst, float(explained[explained > _SIGNIFICANT * left].sum()) / total)
    return worst
