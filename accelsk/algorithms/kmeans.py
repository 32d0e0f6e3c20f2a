"""k-means: seeding and Lloyd's iterations, as scikit-learn defines them."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

__all__ = [
    "Clustering",
    "averages",
    "centred",
    "distances",
    "inertia",
    "kmeans_plusplus",
    "lloyd",
    "nearest",
    "relocate",
    "same_clusters",
    "sums",
]

#: Elements of the largest intermediate array: 256 MB in float32.
_CHUNK = 1 << 26

#: Squared distances below this share of the squared norms are computed from differences: what
#: comes from products would have lost too many digits.
_CLOSE = 1e-6


class Clustering(NamedTuple):
    """Where Lloyd's iterations ended.

    Attributes
    ----------
    centers : array of shape (n_clusters, n_features)
    labels : array of int of shape (n_samples,)
    inertia : float
    n_iter : int
    distinct : int
        How many of the clusters have rows.
    """

    centers: Any
    labels: Any
    inertia: float
    n_iter: int
    distinct: int


def _on_device(xp: Any) -> bool:
    """Whether there are kernels, in `accelsk.algorithms.kmeans_device`."""
    return hasattr(xp, "cuda")


def centred(X: Any, xp: Any) -> tuple[Any, Any, Any]:
    """Return the rows about their mean, the mean, and the mean variance of the columns.

    Parameters
    ----------
    X : array of shape (n_samples, n_features)
    xp : module
        The array namespace.
    """
    if _on_device(xp):
        from accelsk.algorithms import kmeans_device

        return kmeans_device.centred(X)
    mean = X.mean(axis=0)
    rows = X - mean
    return rows, mean, rows.var(axis=0, dtype=np.float64).mean()


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
    weight : array of shape (n_samples,) or None
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
    everything = xp.ones(len(X), X.dtype) if weight is None else weight
    share = everything / everything.sum()
    # as `RandomState.choice` draws, from a cumulative sum that need not leave the device
    cumulative = xp.cumsum(share.astype(np.float64, copy=False))
    drawn = xp.asarray([random_state.random_sample()])
    first = xp.searchsorted(cumulative / cumulative[-1], drawn, side="right")
    draws = xp.asarray(random_state.uniform(size=(n_clusters - 1, n_trials)))
    if _on_device(xp):
        from accelsk.algorithms import kmeans_seeding

        return kmeans_seeding.kmeans_plusplus(X, n_clusters, weight, first, draws)
    wide = X.astype(np.float64, copy=False)  # scikit-learn, too, rounds distances at the end only
    norms = (wide * wide).sum(axis=1)

    def squared_distances(rows: Any) -> Any:
        distances = norms[rows][:, None] - 2 * (wide[rows] @ wide.T) + norms
        # a row is at no distance from itself, whatever rounding says
        distances[xp.arange(len(rows)), rows] = 0
        return xp.maximum(distances, 0).astype(X.dtype, copy=False)

    chosen = xp.empty(n_clusters, dtype=np.intp)
    chosen[:1] = first
    closest = squared_distances(chosen[:1])[0]
    potential = closest @ everything
    for c, draw in enumerate(draws, start=1):
        cumulative = xp.cumsum((everything * closest).astype(np.float64))
        candidates = xp.minimum(xp.searchsorted(cumulative, draw * potential), len(X) - 1)
        distances = xp.minimum(squared_distances(candidates), closest)
        potentials = distances @ everything
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
    if _on_device(xp):
        from accelsk.algorithms import kmeans_device

        return kmeans_device.nearest(X, centers)
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
    middle = centers.mean(axis=0)  # distances do not change, and lose less to rounding
    centers = centers - middle
    norms = (centers * centers).sum(axis=1)
    step = max(1, _CHUNK // max(centers.shape))
    for start in range(0, len(X), step):
        rows = slice(start, start + step)
        wide = X[rows] - middle
        sizes = (wide * wide).sum(axis=1)[:, None] + norms
        squared = sizes - 2 * (wide @ centers.T)
        i, j = xp.nonzero(squared < _CLOSE * sizes)
        for first in range(0, len(i), step):
            near = i[first : first + step], j[first : first + step]
            squared[near] = ((wide[near[0]] - centers[near[1]]) ** 2).sum(axis=1)
        result[rows] = xp.sqrt(squared)
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
    if _on_device(xp):
        from accelsk.algorithms import kmeans_device

        return kmeans_device.lloyd(X, centers, weight, max_iter=max_iter, tol=tol)
    labels = None
    settled = False
    for n_iter in range(1, max_iter + 1):  # noqa: B007 - the last value counts
        previous, labels = labels, nearest(X, centers, xp)
        total, mass = sums(X, labels, weight, len(centers), xp)
        if not bool(mass.all()):
            relocate(X, centers, labels, weight, total, mass, xp)
        moved = averages(total, mass, xp).astype(X.dtype, copy=False)
        shift = float(((moved - centers) ** 2).sum())
        centers = moved
        settled = previous is not None and bool((previous == labels).all())
        if settled or shift <= tol:
            break
    if not settled:
        labels = nearest(X, centers, xp)
    distinct = int((xp.bincount(labels, minlength=len(centers)) > 0).sum())
    return Clustering(centers, labels, inertia(X, centers, labels, weight), n_iter, distinct)


def sums(X: Any, labels: Any, weight: Any, n_clusters: int, xp: Any) -> tuple[Any, Any]:
    """Return the weighted sum of the rows of each cluster, and its weight, in float64."""
    total = xp.zeros((n_clusters, X.shape[1]), np.float64)
    mass = xp.zeros(n_clusters, np.float64)
    step = max(1, _CHUNK // n_clusters)
    clusters = xp.arange(n_clusters)[:, None]
    for start in range(0, len(X), step):
        rows = slice(start, start + step)
        member = (labels[None, rows] == clusters).astype(X.dtype)
        if weight is not None:
            member *= weight[rows]
        total += member @ X[rows]
        mass += member.sum(axis=1, dtype=np.float64)
    return total, mass


def averages(total: Any, mass: Any, xp: Any) -> Any:
    """Return the mean of each cluster from the sum of its rows and its weight.

    What has no rows goes where the heaviest cluster is, or where its rows add up to if that one
    comes later: so it is in scikit-learn.
    """
    means = total / xp.where(mass > 0, mass, 1)[:, None]
    heaviest = mass.argmax()
    later = (xp.arange(len(mass)) < heaviest)[:, None]
    elsewhere = xp.where(later, total[heaviest], means[heaviest])
    return xp.where((mass > 0)[:, None], means, elsewhere)


def relocate(
    X: Any, centers: Any, labels: Any, weight: Any, total: Any, mass: Any, xp: Any
) -> None:
    """Move to each empty cluster, in `total` and `mass`, one of the rows farthest from its centre.

    Which of them goes to which cluster is left to NumPy, as in scikit-learn.
    """
    distances = ((X - centers[labels]) ** 2).sum(axis=1)
    distances = distances.get() if hasattr(distances, "get") else distances
    empty = xp.flatnonzero(mass == 0).tolist()
    farthest = np.argpartition(distances, -len(empty))[: -len(empty) - 1 : -1]
    if distances.max() == 0:
        return
    for cluster, row in zip(empty, farthest.tolist(), strict=True):
        share = 1.0 if weight is None else float(weight[row])
        total[labels[row]] -= X[row] * share
        total[cluster] = X[row] * share
        mass[cluster] = share
        mass[labels[row]] -= share


def same_clusters(first: Clustering, second: Clustering, xp: Any) -> bool:
    """Whether two clusterings put together the same rows, whatever they call the clusters."""
    pairs = first.labels.astype(np.int64) * len(second.centers) + second.labels
    return len(xp.unique(pairs)) == first.distinct


def inertia(X: Any, centers: Any, labels: Any, weight: Any) -> float:
    """Return the weighted sum of squared distances of rows to their centres."""
    apart = X - centers[labels]
    squared = (apart * apart).sum(axis=1)
    return float((squared if weight is None else squared * weight).sum(dtype=np.float64))
