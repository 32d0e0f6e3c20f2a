"""Seeding of k-means, and its inertia."""

from __future__ import annotations

from typing import Any

import numpy as np

__all__ = ["inertia", "kmeans_plusplus"]


def kmeans_plusplus(
    X: Any, n_clusters: int, weight: Any, random_state: np.random.RandomState, xp: Any
) -> Any:
    """Return initial centres by greedy k-means++, drawing what scikit-learn draws.

    With the same `random_state` the centres are those of `sklearn.cluster.kmeans_plusplus`, as
    far as rounding does not decide between two rows.

    Parameters
    ----------
    X : array of shape (n_samples, n_features)
        Centred: distances come from products.
    n_clusters : int
    weight : array of shape (n_samples,)
    random_state : RandomState
        Numbers are drawn from it on the host.
    xp : module
        The array namespace.

    Returns
    -------
    centers : array of shape (n_clusters, n_features)

    References
    ----------
    D. Arthur and S. Vassilvitskii, "k-means++: the advantages of careful seeding", SODA 2007;
    the number of trials for each centre, 2 + log(n_clusters), is theirs.
    """
    n_trials = 2 + int(np.log(n_clusters))
    norms = (X * X).sum(axis=1)

    def squared_distances(rows: Any) -> Any:
        distances = norms[rows][:, None] - 2 * (X[rows] @ X.T) + norms
        # a row is at no distance from itself, whatever rounding says
        distances[xp.arange(len(rows)), rows] = 0
        return xp.maximum(distances, 0)

    share = weight / weight.sum()
    first = random_state.choice(len(X), p=share.get() if hasattr(share, "get") else share)
    chosen = xp.empty(n_clusters, dtype=np.intp)
    chosen[0] = first
    closest = squared_distances(chosen[:1])[0]
    potential = closest @ weight
    for c in range(1, n_clusters):
        draws = xp.asarray(random_state.uniform(size=n_trials)) * potential
        cumulative = xp.cumsum((weight * closest).astype(np.float64))
        candidates = xp.minimum(xp.searchsorted(cumulative, draws), len(X) - 1)
        distances = xp.minimum(squared_distances(candidates), closest)
        potentials = distances @ weight
        best = potentials.argmin()
        chosen[c] = candidates[best]
        closest, potential = distances[best], potentials[best]
    return X[chosen]


def inertia(X: Any, centers: Any, labels: Any, weight: Any) -> float:
    """Return the weighted sum of squared distances of rows to their centres."""
    apart = X - centers[labels]
    squared = (apart * apart).sum(axis=1)
    return float((squared if weight is None else squared * weight).sum(dtype=np.float64))
