"""k-means: seeding and Lloyd's iterations, as scikit-learn defines them."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

__all__ = ["Clustering", "distances", "inertia", "kmeans_plusplus", "lloyd", "nearest"]

#: Elements of the largest intermediate array: 256 MB in float32.
_CHUNK = 1 << 26


class Clustering(NamedTuple):
    """Where Lloyd's iterations ended.

    Attributes
    ----------
    centers : array of shape (n_clusters, n_features)
    labels : array of int of shape (n_samples,)
    inertia : float
    n_iter : int
    """

    centers: Any
    labels: Any
    inertia: float
    n_iter: int


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
    wide = X.astype(np.float64, copy=False)  # scikit-learn, too, rounds distances at the end only
    norms = (wide * wide).sum(axis=1)

    def squared_distances(rows: Any) -> Any:
        distances = norms[rows][:, None] - 2 * (wide[rows] @ wide.T) + norms
        # a row is at no distance from itself, whatever rounding says
        distances[xp.arange(len(rows)), rows] = 0
        return xp.maximum(distances, 0).astype(X.dtype, copy=False)

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


def nearest(X: Any, centers: Any, xp: Any) -> Any:
    """Return the position of the nearest centre of each row, the first among equals, as int32.

    Parameters
    ----------
    X : array of shape (n_samples, n_features)
    centers : array of shape (n_clusters, n_features)
        In the dtype of `X`.
    xp : module
        The array namespace.
    """
    labels = xp.empty(len(X), np.int32)
    norms = (centers * centers).sum(axis=1)[:, None]
    step = max(1, _CHUNK // len(centers))
    for start in range(0, len(X), step):
        rows = slice(start, start + step)
        # short of the squared norm of the row, which is the same for every centre
        labels[rows] = (norms - 2 * (centers @ X[rows].T)).argmin(axis=0)
    return labels


def distances(X: Any, centers: Any, xp: Any) -> Any:
    """Return the Euclidean distance of each row to each centre, in the dtype of `X`.

    Parameters
    ----------
    X : array of shape (n_samples, n_features)
    centers : array of shape (n_clusters, n_features)
    xp : module
        The array namespace.
    """
    result = xp.empty((len(X), len(centers)), X.dtype)
    centers = centers.astype(np.float64, copy=False)
    norms = (centers * centers).sum(axis=1)
    step = max(1, _CHUNK // len(centers))
    for start in range(0, len(X), step):
        rows = slice(start, start + step)
        wide = X[rows].astype(np.float64, copy=False)
        squared = (wide * wide).sum(axis=1)[:, None] - 2 * (wide @ centers.T) + norms
        result[rows] = xp.sqrt(xp.maximum(squared, 0))
    return result


def lloyd(X: Any, centers: Any, weight: Any, *, max_iter: int, tol: float, xp: Any) -> Clustering:
    """Return what Lloyd's iterations make of `centers`.

    They stop where no label changes, where the squared shifts of all centres add up to no more
    than `tol`, or after `max_iter` rounds. A cluster that runs empty takes the row that is
    farthest from its centre.

    Parameters
    ----------
    X : array of shape (n_samples, n_features)
    centers : array of shape (n_clusters, n_features)
    weight : array of shape (n_samples,) or None
    max_iter : int
    tol : float
        In units of `X` squared.
    xp : module
        The array namespace.
    """
    labels = None
    settled = False
    for n_iter in range(1, max_iter + 1):  # noqa: B007 - the last value counts
        previous, labels = labels, nearest(X, centers, xp)
        sums, mass = _sums(X, labels, weight, len(centers), xp)
        if not bool(mass.all()):
            _relocate(X, centers, labels, weight, sums, mass, xp)
        moved = xp.where(mass[:, None] > 0, sums / xp.where(mass > 0, mass, 1)[:, None], centers)
        moved = moved.astype(X.dtype, copy=False)
        shift = float(((moved - centers) ** 2).sum())
        centers = moved
        settled = previous is not None and bool((previous == labels).all())
        if settled or shift <= tol:
            break
    if not settled:
        labels = nearest(X, centers, xp)
    return Clustering(centers, labels, inertia(X, centers, labels, weight), n_iter)


def _sums(X: Any, labels: Any, weight: Any, n_clusters: int, xp: Any) -> tuple[Any, Any]:
    """Return the weighted sum of the rows of each cluster, and its weight, in float64."""
    sums = xp.zeros((n_clusters, X.shape[1]), np.float64)
    mass = xp.zeros(n_clusters, np.float64)
    step = max(1, _CHUNK // n_clusters)
    clusters = xp.arange(n_clusters)[:, None]
    for start in range(0, len(X), step):
        rows = slice(start, start + step)
        member = (labels[None, rows] == clusters).astype(X.dtype)
        if weight is not None:
            member *= weight[rows]
        sums += member @ X[rows]
        mass += member.sum(axis=1, dtype=np.float64)
    return sums, mass


def _relocate(
    X: Any, centers: Any, labels: Any, weight: Any, sums: Any, mass: Any, xp: Any
) -> None:
    """Move to each empty cluster, in `sums` and `mass`, the row farthest from its centre."""
    distances = ((X - centers[labels]) ** 2).sum(axis=1)
    empty = xp.flatnonzero(mass == 0)
    farthest = xp.argsort(-distances)[: len(empty)]
    if float(distances[farthest[0]]) == 0:
        return
    for cluster, row in zip(empty.tolist(), farthest.tolist(), strict=True):
        share = 1.0 if weight is None else float(weight[row])
        sums[cluster] = X[row] * share
        mass[cluster] = share
        sums[labels[row]] -= X[row] * share
        mass[labels[row]] -= share


def inertia(X: Any, centers: Any, labels: Any, weight: Any) -> float:
    """Return the weighted sum of squared distances of rows to their centres."""
    apart = X - centers[labels]
    squared = (apart * apart).sum(axis=1)
    return float((squared if weight is None else squared * weight).sum(dtype=np.float64))
