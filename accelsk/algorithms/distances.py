"""Exact distances between rows in float64: of pairs, to the nearest, and within a radius.

Sums over coordinates run in order and unfused, as in scikit-learn's trees, so that a distance is
the same number there and here, and so is the decision whether it is within a radius.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

__all__ = [
    "COSINE",
    "METRICS",
    "Metric",
    "Within",
    "cosine",
    "nearest",
    "reduced",
    "smallest",
    "within",
]

#: Elements of the largest intermediate array: 512 MB in float64.
_CHUNK = 1 << 26


@dataclass(frozen=True)
class Metric:
    """A distance that is a function of a sum, or a maximum, over coordinates.

    Attributes
    ----------
    step : str
        How the coordinates ``a`` and ``b`` enter the sum ``s``, in CUDA C.
    add : callable
        The same for arrays: ``add(s, a, b, p, xp)``.
    finish : callable
        From the sum, the number of features, `p` and the array namespace to the distance.
    invert : callable
        From a distance, the number of features and `p` to the sum.
    p : float
        The exponent of a Minkowski distance.
    """

    step: str
    add: Callable[..., Any]
    finish: Callable[..., Any] = lambda s, d, p, xp: s
    invert: Callable[..., float] = lambda r, d, p: r
    p: float = 2.0


def _canberra(s: Any, a: Any, b: Any, p: float, xp: Any) -> Any:
    size = xp.abs(a) + xp.abs(b)
    return s + xp.where(size > 0, xp.abs(a - b) / xp.where(size > 0, size, 1), 0)


_SQUARES: dict[str, Any] = {
    "step": "s += (a - b) * (a - b);",
    "add": lambda s, a, b, p, xp: s + (a - b) * (a - b),
}

METRICS: dict[str, Metric] = {
    "euclidean": Metric(
        **_SQUARES, finish=lambda s, d, p, xp: xp.sqrt(s), invert=lambda r, d, p: r * r
    ),
    "sqeuclidean": Metric(**_SQUARES),
    "manhattan": Metric("s += fabs(a - b);", lambda s, a, b, p, xp: s + xp.abs(a - b)),
    "chebyshev": Metric(
        "s = fmax(s, fabs(a - b));", lambda s, a, b, p, xp: xp.maximum(s, xp.abs(a - b))
    ),
    "minkowski": Metric(
        "s += pow(fabs(a - b), p);",
        lambda s, a, b, p, xp: s + xp.abs(a - b) ** p,
        finish=lambda s, d, p, xp: s ** (1 / p),
        invert=lambda r, d, p: r**p,
    ),
    "canberra": Metric(
        "double size = fabs(a) + fabs(b); s += size > 0 ? fabs(a - b) / size : 0.0;", _canberra
    ),
    "hamming": Metric(
        "s += a != b;",
        lambda s, a, b, p, xp: s + (a != b),
        finish=lambda s, d, p, xp: s / d,
        invert=lambda r, d, p: r * d,
    ),
}

#: The one metric here that is no sum over coordinates.
COSINE = "cosine"


@functools.cache
def _kernel(step: str) -> Any:
    import cupy

    return cupy.ElementwiseKernel(
        "raw float64 first, raw float64 second, int64 row, int64 column, int64 d, float64 p",
        "float64 total",
        f"""
        double s = 0;
        for (long long k = 0; k < d; ++k) {{
            double a = first[row * d + k], b = second[column * d + k];
            {step}
        }}
        total = s;
        """,
        "accelsk_distances",
        options=("--fmad=false",),
    )


def reduced(metric: Metric, first: Any, second: Any, i: Any, j: Any, xp: Any) -> Any:
    """Return the sums behind the distances of rows `i` of `first` and `j` of `second`.

    Parameters
    ----------
    metric : Metric
    first, second : array of shape (n, n_features), dtype=float64
        In C order.
    i, j : array of int
        Of shapes that broadcast.
    xp : module
        The array namespace.
    """
    n_features = first.shape[1]
    if hasattr(xp, "ElementwiseKernel"):
        return _kernel(metric.step)(first, second, i, j, n_features, metric.p)
    total = xp.zeros(np.broadcast_shapes(i.shape, j.shape))
    for k in range(n_features):
        total = metric.add(total, first[i, k], second[j, k], metric.p, xp)
    return total


def cosine(first: Any, second: Any, xp: Any) -> Any:
    """Return one less the cosine of the angles between rows; a row of zeros is at 1."""

    def unit(rows: Any) -> Any:
        norms = xp.sqrt((rows * rows).sum(axis=1, keepdims=True))
        return rows / xp.where(norms > 0, norms, 1)

    return xp.clip(1 - unit(first) @ unit(second).T, 0, 2)


def _blocks(queries: Any, fitted: Any, metric: Metric | str, xp: Any) -> Any:
    """Yield rows of queries and the sums behind their distances to all fitted rows."""
    step = max(1, _CHUNK // len(fitted))
    columns = xp.arange(len(fitted))[None, :]
    for start in range(0, len(queries), step):
        rows = slice(start, min(start + step, len(queries)))
        if isinstance(metric, str):
            yield rows, cosine(queries[rows], fitted, xp)
        else:
            lines = xp.arange(rows.start, rows.stop)[:, None]
            yield rows, reduced(metric, queries, fitted, lines, columns, xp)


def _finish(metric: Metric | str, sums: Any, n_features: int, xp: Any) -> Any:
    return sums if isinstance(metric, str) else metric.finish(sums, n_features, metric.p, xp)


def smallest(values: Any, count: int, xp: Any) -> tuple[Any, Any]:
    """Return the smallest values of each row, ascending, and their columns; ties by column."""
    columns = xp.argsort(values, axis=1, kind="stable")[:, :count]
    return xp.take_along_axis(values, columns, axis=1), columns.astype(np.int64, copy=False)


def nearest(
    queries: Any, fitted: Any, n_neighbors: int, metric: Metric | str, xp: Any
) -> tuple[Any, Any]:
    """Return the nearest rows of each query, by looking at all of them.

    Parameters
    ----------
    queries, fitted : array of shape (n, n_features), dtype=float64
        In C order.
    n_neighbors : int
    metric : Metric or COSINE
    xp : module
        The array namespace.

    Returns
    -------
    distances : array of shape (n_queries, n_neighbors), dtype=float64
        Ascending.
    indices : array of shape (n_queries, n_neighbors), dtype=int64
        Among equal distances the lower index comes first.
    """
    distances = xp.empty((len(queries), n_neighbors))
    indices = xp.empty((len(queries), n_neighbors), np.int64)
    for rows, sums in _blocks(queries, fitted, metric, xp):
        distances[rows], indices[rows] = smallest(sums, n_neighbors, xp)
    return _finish(metric, distances, queries.shape[1], xp), indices


class Within(NamedTuple):
    """Neighbours of all queries, one query after the other.

    Attributes
    ----------
    counts : array of int of shape (n_queries,)
    distances : array of shape (sum of counts,), dtype=float64
    indices : array of shape (sum of counts,), dtype=int64
        Ascending for each query.
    """

    counts: Any
    distances: Any
    indices: Any


def within(queries: Any, fitted: Any, radius: float, metric: Metric | str, xp: Any) -> Within:
    """Return the rows no farther than `radius` from each query.

    Parameters
    ----------
    queries, fitted : array of shape (n, n_features), dtype=float64
        In C order.
    radius : float
    metric : Metric or COSINE
    xp : module
        The array namespace.
    """
    n_features = queries.shape[1]
    limit = radius if isinstance(metric, str) else metric.invert(radius, n_features, metric.p)
    counts, sums, indices = [], [], []
    for _, block in _blocks(queries, fitted, metric, xp):
        inside = block <= limit
        counts.append(inside.sum(axis=1))
        sums.append(block[inside])
        indices.append(xp.nonzero(inside)[1].astype(np.int64, copy=False))
    distances = _finish(metric, xp.concatenate(sums), n_features, xp)
    return Within(xp.concatenate(counts), distances, xp.concatenate(indices))
