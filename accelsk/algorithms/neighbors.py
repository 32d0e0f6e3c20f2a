"""Nearest neighbours in float64 from candidates found in float32, and their votes."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

__all__ = ["METRICS", "exact_neighbors", "vote_weights", "votes", "without_self"]

#: Elements of the largest intermediate array: 512 MB in float64.
_CHUNK = 1 << 26

_EPSILON = float(np.finfo(np.float32).eps)


def _euclidean(apart: Any, xp: Any) -> Any:
    return xp.sqrt((apart * apart).sum(axis=-1))


def _manhattan(apart: Any, xp: Any) -> Any:
    return xp.abs(apart).sum(axis=-1)


def _chebyshev(apart: Any, xp: Any) -> Any:
    return xp.abs(apart).max(axis=-1)


#: Distance from differences along the last axis, by the name of the metric.
METRICS: dict[str, Callable[[Any, Any], Any]] = {
    "euclidean": _euclidean,
    "manhattan": _manhattan,
    "chebyshev": _chebyshev,
}


def _certain_below(distance: Any, metric: str, scale: float, n_features: int) -> Any:
    """Return what a distance computed in float32 cannot be less than in truth.

    Parameters
    ----------
    distance : array
    metric : str
    scale : float
        The largest distance of any row from the origin, twice.
    n_features : int

    Notes
    -----
    A Euclidean distance comes from products, whose error goes with the squared norms; the others
    from differences. The factors are generous: they cost time where they are too large, exactness
    where they are too small.
    """
    error = (8 + 4 * n_features**0.5) * _EPSILON * scale
    if metric == "euclidean":
        return (distance**2 - error * scale).clip(0) ** 0.5
    return distance - error


def exact_neighbors(
    queries: Any,
    fitted: Any,
    approximate: Any,
    candidates: Any,
    n_neighbors: int,
    metric: str,
    xp: Any,
    *,
    middle: Any = 0.0,
) -> tuple[Any, Any]:
    """Return the nearest rows, by distances in float64, of which candidates are known.

    Where rounding in the search for candidates may have left a neighbour out, the search is
    repeated in float64 over all rows.

    Parameters
    ----------
    queries : array of shape (n_queries, n_features)
        About the same origin as `fitted`.
    fitted : array of shape (n_samples, n_features)
    approximate : array of shape (n_queries, n_candidates)
        The distances of the candidates as they were found, in float32, ascending.
    candidates : array of int of shape (n_queries, n_candidates)
        At least `n_neighbors` of them.
    n_neighbors : int
    metric : {"euclidean", "manhattan", "chebyshev"}
    xp : module
        The array namespace.
    middle : array of shape (n_features,), default=0.0
        The middle of `fitted`, about which the candidates were found.

    Returns
    -------
    distances : array of shape (n_queries, n_neighbors), dtype=float64
        Ascending.
    indices : array of shape (n_queries, n_neighbors), dtype=int64
        Among equal distances the lower index comes first.
    """
    distances, indices = _ranked(queries, fitted, candidates, n_neighbors, metric, xp)
    if candidates.shape[1] == len(fitted):
        return distances, indices
    origin = METRICS[metric]
    about = fitted - middle
    scale = float(origin(queries - middle, xp).max()) + float(origin(about, xp).max())
    worst = approximate.max(axis=1).astype(np.float64)
    sure = distances[:, -1] <= _certain_below(worst, metric, scale, fitted.shape[1])
    unsure = xp.flatnonzero(~sure)
    step = max(1, _CHUNK // len(fitted))
    for start in range(0, len(unsure), step):
        rows = unsure[start : start + step]
        nearest = _nearest(queries[rows] - middle, about, candidates.shape[1], metric, xp)
        distances[rows], indices[rows] = _ranked(
            queries[rows], fitted, nearest, n_neighbors, metric, xp
        )
    return distances, indices


def _nearest(queries: Any, fitted: Any, count: int, metric: str, xp: Any) -> Any:
    """Return the `count` nearest rows of each query, in float64, in no order."""
    q, f = queries.astype(np.float64), fitted.astype(np.float64)
    if metric == "euclidean":
        distances = (q * q).sum(axis=1)[:, None] - 2 * (q @ f.T) + (f * f).sum(axis=1)
    else:
        distances = xp.empty((len(q), len(f)))
        step = max(1, _CHUNK // f.size)
        for start in range(0, len(q), step):
            apart = q[start : start + step, None, :] - f[None]
            distances[start : start + step] = METRICS[metric](apart, xp)
    return xp.argpartition(distances, count - 1, axis=1)[:, :count]


def _ranked(
    queries: Any, fitted: Any, candidates: Any, n_neighbors: int, metric: str, xp: Any
) -> tuple[Any, Any]:
    """Return the nearest of the candidates, ranked by exact distance and then by index."""
    candidates = xp.sort(candidates, axis=1)
    distances = xp.empty(candidates.shape, np.float64)
    step = max(1, _CHUNK // (candidates.shape[1] * fitted.shape[1]))
    for start in range(0, len(queries), step):
        rows = slice(start, start + step)
        apart = fitted[candidates[rows]].astype(np.float64) - queries[rows, None, :]
        distances[rows] = METRICS[metric](apart, xp)
    order = xp.argsort(distances, axis=1, kind="stable")[:, :n_neighbors]
    return (
        xp.take_along_axis(distances, order, axis=1),
        xp.take_along_axis(candidates, order, axis=1).astype(np.int64, copy=False),
    )


def without_self(distances: Any, indices: Any, xp: Any) -> tuple[Any, Any]:
    """Drop each row from its own neighbours, or its first neighbour where it is not among them.

    Parameters
    ----------
    distances, indices : array of shape (n_samples, n_neighbors + 1)
        The neighbours of the fitted rows themselves.
    xp : module
        The array namespace.
    """
    others = indices != xp.arange(len(indices))[:, None]
    others[others.all(axis=1), 0] = False
    shape = (len(indices), indices.shape[1] - 1)
    return distances[others].reshape(shape), indices[others].reshape(shape)


def vote_weights(distances: Any, weights: str | None, xp: Any) -> Any:
    """Return the weight of each neighbour: one, or the inverse of its distance.

    Neighbours at no distance outvote all others.
    """
    if weights != "distance":
        return xp.ones_like(distances)
    zero = distances == 0
    inverse = 1 / xp.where(zero, 1, distances)
    return xp.where(zero.any(axis=1)[:, None], zero.astype(distances.dtype), inverse)


_VOTE = r"""
/* The sum of values in the order in which NumPy adds them up. */
__device__ double total(const double* values, const int n) {
    if (n < 8) {
        double sum = 0;
        for (int i = 0; i < n; ++i) sum += values[i];
        return sum;
    }
    if (n > 128) {
        const int half = n / 2 - n / 2 % 8;
        return total(values, half) + total(values + half, n - half);
    }
    double r[8];
    for (int i = 0; i < 8; ++i) r[i] = values[i];
    int at = 8;
    for (; at < n - n % 8; at += 8)
        for (int i = 0; i < 8; ++i) r[i] += values[at + i];
    double sum = ((r[0] + r[1]) + (r[2] + r[3])) + ((r[4] + r[5]) + (r[6] + r[7]));
    for (; at < n; ++at) sum += values[at];
    return sum;
}

/* A thread for each query. */
extern "C" __global__ void vote(const int* codes, const long long* indices,
                                const double* distances, const int n, const int n_neighbors,
                                const int n_classes, const int by_distance, double* shares) {
    const long long query = blockIdx.x * (long long)blockDim.x + threadIdx.x;
    if (query >= n) return;
    double* mine = shares + query * n_classes;
    for (int c = 0; c < n_classes; ++c) mine[c] = 0;
    bool at_no_distance = false;
    for (int i = 0; i < n_neighbors && by_distance; ++i)
        at_no_distance |= isinf(1 / distances[query * n_neighbors + i]);
    for (int i = 0; i < n_neighbors; ++i) {
        const long long neighbor = query * n_neighbors + i;
        double weight = 1;
        if (by_distance) {
            weight = 1 / distances[neighbor];
            if (at_no_distance) weight = isinf(weight);
        }
        mine[codes[indices[neighbor]]] += weight;
    }
    const double sum = total(mine, n_classes);
    for (int c = 0; c < n_classes; ++c) mine[c] /= sum;
}
"""


@functools.cache
def _vote() -> Any:
    import cupy

    return cupy.RawKernel(_VOTE, "vote", options=("--fmad=false",))


def votes(
    codes: Any, indices: Any, distances: Any, weights: str | None, n_classes: int, xp: Any
) -> Any:
    """Return the weight of each class among the neighbours, as shares of one.

    Parameters
    ----------
    codes : array of int32 of shape (n_samples,)
        The class of each fitted row.
    indices : array of int64 of shape (n_queries, n_neighbors)
    distances : array of shape (n_queries, n_neighbors)
    weights : {"uniform", "distance", None}
    n_classes : int
    xp : module
        The array namespace.
    """
    if hasattr(xp, "cuda") and distances.dtype == np.float64 and codes.dtype == np.int32:
        n, n_neighbors = indices.shape
        shares = xp.empty((n, n_classes))
        sizes = map(np.int32, (n, n_neighbors, n_classes, weights == "distance"))
        given = xp.ascontiguousarray(indices), xp.ascontiguousarray(distances)
        _vote()((-(-n // 256),), (256,), (codes, *given, *sizes, shares))
        return shares
    weight = vote_weights(distances, weights, xp)
    shares = xp.zeros((len(indices), n_classes), np.float64)
    rows = xp.arange(len(indices))
    for neighbor in range(indices.shape[1]):
        shares[rows, codes[indices[:, neighbor]]] += weight[:, neighbor]
    return shares / shares.sum(axis=1, keepdims=True)
