"""Nearest rows by exact distances, for every row that is asked about.

On a device, distances to all rows are computed in float32; those that can be among the nearest,
whatever rounding has done, are computed again in float64 and ranked.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from accelsk.algorithms import distances
from accelsk.algorithms.nearest_kernels import MOST, SIDE, kernels

__all__ = ["METRICS", "Landmarks"]

#: The metrics that have kernels.
METRICS = ("euclidean", "manhattan", "chebyshev")

#: Elements of a tile of distances: of 128 MB, or of more where that is but a few queries.
_TILE, _LARGEST_TILE, _FEW_QUERIES = 1 << 25, 1 << 28, 512

#: Neighbours for which a block of 1024 threads finds few candidates to rank.
_MANY = 512

_EPSILON = float(np.finfo(np.float32).eps)


class Landmarks:
    """Rows among which nearest ones are searched.

    Parameters
    ----------
    rows : array of shape (n_rows, n_features), dtype=float64
        In C order.
    metric : str
        One of `METRICS`.
    xp : module
        The array namespace.
    """

    def __init__(self, rows: Any, metric: str, xp: Any) -> None:
        self.rows, self._metric, self._xp = rows, metric, xp
        self._prepared: tuple[Any, Any, Any] | None = None
        d = rows.shape[1]
        # a column for the square, and what makes a row of it that a product reads well
        self._wide = -(-(d + 1) // 4) * 4 if metric == "euclidean" else -(-d // 16) * 16

    def takes(self, count: int) -> bool:
        """Whether so many neighbours are few enough for `nearest`."""
        return count <= _MANY or len(self.rows) <= MOST or not hasattr(self._xp, "cuda")

    def nearest(self, queries: Any, count: int) -> tuple[Any, Any]:
        """Return the nearest rows of each query.

        Parameters
        ----------
        queries : array of shape (n_queries, n_features), dtype=float32 or float64
            In C order.
        count : int

        Returns
        -------
        distances : array of shape (n_queries, count), dtype=float64
            Ascending.
        indices : array of shape (n_queries, count), dtype=int64
            Among equal distances the lower index comes first.
        """
        if hasattr(self._xp, "cuda"):
            return self._searched(queries, count)
        return self._looked_through(queries, count)

    def _looked_through(self, queries: Any, count: int) -> tuple[Any, Any]:
        wide = queries.astype(np.float64, copy=False)
        metric = distances.METRICS[self._metric]
        return distances.nearest(wide, self.rows, count, metric, self._xp)

    def _searched(self, queries: Any, count: int) -> tuple[Any, Any]:
        import cupy

        n, m, d = len(queries), len(self.rows), queries.shape[1]
        kernel = kernels(self._metric, queries.dtype)
        landmarks, middle, reach = self._ready()
        ready, far = self._prepare(queries, middle, fitted=False)
        found, indices = cupy.empty((n, count)), cupy.empty((n, count), np.int64)
        remaining = cupy.zeros(n, np.bool_)
        step = min(n, max(_TILE // m, min(_FEW_QUERIES, _LARGEST_TILE // m), 1))
        tile = cupy.empty(step * m, np.float32)
        threads = 256 if count <= 128 else 1024
        error = np.float64((8 + 4 * d**0.5) * _EPSILON)
        shape = (np.int32(m), np.int32(d), np.int32(count))
        for start in range(0, n, step):
            rows = slice(start, min(start + step, n))
            block = tile[: (rows.stop - start) * m].reshape(-1, m)
            self._approximate(ready[rows], landmarks, block)
            given = (block, queries[rows], self.rows, far[rows], reach, error, *shape)
            into = (found[rows], indices[rows], remaining[rows])
            kernel.choose((len(block),), (threads,), (*given, *into))
        left = cupy.flatnonzero(remaining)
        if len(left):
            found[left], indices[left] = self._looked_through(queries[left], count)
        return found, indices

    def _ready(self) -> tuple[Any, Any, Any]:
        """Return the rows in float32, the middle about which they are, and how far they reach."""
        if self._prepared is None:
            import cupy

            middle = cupy.full(len(self.rows), 1 / len(self.rows)) @ self.rows
            landmarks, far = self._prepare(self.rows, middle, fitted=True)
            self._prepared = landmarks, middle, far.max()
        return self._prepared

    def _prepare(self, rows: Any, middle: Any, *, fitted: bool) -> tuple[Any, Any]:
        import cupy

        n, d = rows.shape
        ready, far = cupy.empty((n, self._wide), np.float32), cupy.empty(n)
        shape = (np.int32(n), np.int32(d), np.int32(self._wide), np.int32(fitted))
        prepare = kernels(self._metric, rows.dtype).prepare
        prepare((-(-n // 8),), (32, 8), (rows, middle, *shape, ready, far))
        return ready, far

    def _approximate(self, queries: Any, landmarks: Any, tile: Any) -> None:
        """Fill a tile with distances in float32, Euclidean ones squared and short of a constant."""
        if self._metric == "euclidean":
            self._xp.dot(queries, landmarks.T, out=tile)
            return
        n, m = tile.shape
        grid = (-(-m // SIDE), -(-n // SIDE))
        arguments = (queries, landmarks, np.int32(n), np.int32(m), np.int32(self._wide), tile)
        kernels(self._metric, np.float64).apart(grid, (16, 16), arguments)
