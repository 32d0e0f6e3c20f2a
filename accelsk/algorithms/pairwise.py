"""Distances between all rows, and silhouettes, block by block, from products of matrices."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from accelsk.algorithms.distances import METRICS, reduced

__all__ = ["PRODUCTS", "distances", "silhouettes"]

#: Elements of the largest intermediate array: 512 MB in float64.
_CHUNK = 1 << 26

#: Metrics that products of matrices give.
PRODUCTS = ("cosine", "euclidean")


def _prepared(X: Any, centre: Any, metric: str, xp: Any) -> Any:
    """Return rows in float64 about `centre`, where fewest digits cancel, or of length one."""
    X = X.astype(np.float64, copy=False)
    if metric == "euclidean":
        return X - centre
    if metric == "cosine":
        lengths = xp.sqrt((X * X).sum(axis=1, keepdims=True))
        return X / xp.where(lengths > 0, lengths, 1)
    return xp.ascontiguousarray(X)


def _of_blocks(X: Any, Y: Any, metric: str, same: bool, xp: Any) -> Iterator[tuple[slice, Any]]:
    """Yield rows of `X` and their distances to all rows of `Y`, which may be the `same`."""
    centre = Y.mean(axis=0, dtype=np.float64)
    fitted = _prepared(Y, centre, metric, xp)
    queries = fitted if same else _prepared(X, centre, metric, xp)
    squares = (fitted * fitted).sum(axis=1)
    step = max(1, _CHUNK // len(fitted))
    for start in range(0, len(queries), step):
        rows = slice(start, min(start + step, len(queries)))
        block = queries[rows]
        if metric == "euclidean":
            result = (block * block).sum(axis=1)[:, None] + squares - 2 * (block @ fitted.T)
            result = xp.sqrt(xp.maximum(result, 0))
        elif metric == "cosine":
            result = xp.clip(1 - block @ fitted.T, 0, 2)
        else:
            rule = METRICS[metric]
            lines = xp.arange(rows.start, rows.stop)[:, None]
            sums = reduced(rule, queries, fitted, lines, xp.arange(len(fitted))[None, :], xp)
            result = rule.finish(sums, X.shape[1], rule.p, xp)
        if same:
            own = xp.arange(rows.stop - rows.start)
            result[own, own + rows.start] = 0
        yield rows, result


def distances(X: Any, Y: Any, metric: str, dtype: Any, xp: Any) -> Any:
    """Return the distances between all rows of `X` and all rows of `Y`.

    Parameters
    ----------
    X : array of shape (n_samples_X, n_features)
    Y : array of shape (n_samples_Y, n_features) or None
        None stands for `X`: no row is at any distance from itself then.
    metric : str
        One of `PRODUCTS` or of `accelsk.algorithms.distances.METRICS`.
    dtype : dtype
        Of the result. Distances are computed in float64.
    xp : module
        The array namespace.
    """
    same = Y is None
    Y = X if same else Y
    result = xp.empty((len(X), len(Y)), dtype)
    for rows, block in _of_blocks(X, Y, metric, same, xp):
        result[rows] = block
    return result


def silhouettes(X: Any, codes: Any, counts: Any, metric: str, xp: Any) -> Any:
    """Return how much nearer each row is to its own cluster than to the next, from -1 to 1.

    Parameters
    ----------
    X : array of shape (n_samples, n_features)
    codes : array of int of shape (n_samples,)
        The cluster of each row.
    counts : array of shape (n_clusters,)
        The sizes of the clusters.
    metric : str
        As in `distances`.
    xp : module
        The array namespace.
    """
    members = (codes[:, None] == xp.arange(len(counts))).astype(np.float64)
    counts = counts.astype(np.float64)
    result = xp.empty(len(X))
    for rows, block in _of_blocks(X, X, metric, True, xp):
        sums = block @ members
        own = (xp.arange(rows.stop - rows.start), codes[rows])
        others = counts[codes[rows]] - 1
        within = sums[own] / xp.maximum(others, 1)
        means = sums / counts
        means[own] = np.inf
        between = means.min(axis=1)
        larger = xp.maximum(within, between)
        value = (between - within) / xp.where(larger > 0, larger, 1)
        result[rows] = xp.where(others > 0, value, 0)
    return result
