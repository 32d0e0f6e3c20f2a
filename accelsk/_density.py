"""The trees behind hierarchical clustering, on the device.

What takes the time, neighbours and the minimum spanning tree, is computed here; what a library
makes of the tree (the hierarchy, labels, probabilities) is the library's own code on the host.
So labels, their numbers included, are those of the library's own fit.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import numpy as np

from accelsk.algorithms import neighbors
from accelsk.algorithms.nearest import Landmarks
from accelsk.algorithms.spanning_tree import SpanningTree, core_distances, spanning_tree
from accelsk.device.transfer import to_device
from accelsk.engines.base import Call, Rule, refuse
from accelsk.engines.cuml import CumlEngine, import_cuml
from accelsk.exceptions import Refusal

__all__ = ["ANGULAR", "METRICS", "DensityEngine", "known_metric", "nearest", "nearest_of_many"]

#: The names of metrics in scikit-learn and hdbscan, by what they compute.
METRICS = {
    "euclidean": "euclidean",
    "l2": "euclidean",
    "manhattan": "manhattan",
    "l1": "manhattan",
    "cityblock": "manhattan",
    "chebyshev": "chebyshev",
    "infinity": "chebyshev",
}

#: Metrics that `nearest` knows beside.
ANGULAR = ("cosine", "correlation")

#: Candidates beyond the neighbours asked for, so that rounding seldom costs a second search.
_SPARE = 16


def known_metric(names: Mapping[str, str]) -> Rule:
    """Return the rule that keeps other metrics off than those of `names`.

    Parameters
    ----------
    names : mapping of str to str
        The names of metrics, by what they compute.
    """

    def unknown(call: Call) -> bool:
        metric = call.parameters["metric"]
        return not isinstance(metric, str) or metric not in names

    return refuse(f"metric other than {', '.join(dict.fromkeys(names.values()))}", unknown)


def nearest(rows: Any, count: int, metric: str) -> tuple[Any, Any]:
    """Return the distances and indices of the nearest rows of each row, itself among them.

    Parameters
    ----------
    rows : cupy.ndarray of shape (n_samples, n_features), dtype=float64
    count : int
    metric : str
        A value of `METRICS`, or one of `ANGULAR`.
    """
    import cupy

    if metric in ANGULAR:
        return _nearest_by_angle(rows, count, metric)
    reach = rows.max(axis=0) - rows.min(axis=0)
    if not bool(cupy.isfinite(reach @ reach)):
        raise Refusal("distances overflow, and nobody can tell which is the least")
    if count == 1 or len(rows) == 1:
        return cupy.zeros((len(rows), 1)), cupy.arange(len(rows))[:, None]
    rows = cupy.ascontiguousarray(rows)
    landmarks = Landmarks(rows, metric, cupy)
    if landmarks.takes(count):
        return landmarks.nearest(rows, count)
    return nearest_of_many(rows, rows, count, metric)


def nearest_of_many(queries: Any, rows: Any, count: int, metric: str) -> tuple[Any, Any]:
    """Return the distances and indices of many nearest rows of each query.

    cuML finds candidates in float32; they are ranked in float64.

    Parameters
    ----------
    queries, rows : cupy.ndarray of shape (n, n_features), dtype=float64
    count : int
    metric : str
        A value of `METRICS`.
    """
    import cupy

    import_cuml()
    from cuml.neighbors import NearestNeighbors

    # about a whole number, so that integer data stays exact
    middle = cupy.rint(rows.mean(axis=0))
    queries, rows = queries - middle, rows - middle
    search = NearestNeighbors(algorithm="brute", metric=metric, output_type="cupy", verbose=0)
    search.fit(rows.astype(np.float32))
    approximate, candidates = search.kneighbors(
        queries.astype(np.float32), n_neighbors=min(count + _SPARE, len(rows))
    )
    return neighbors.exact_neighbors(queries, rows, approximate, candidates, count, metric, cupy)


def _nearest_by_angle(rows: Any, count: int, metric: str) -> tuple[Any, Any]:
    """Return cosine or correlation distances and indices of the nearest rows of each row.

    Half the squared distance of rows of unit length is one minus their cosine.
    """
    if metric == "correlation":
        rows = rows - rows.mean(axis=1, keepdims=True)
    lengths = ((rows * rows).sum(axis=1) ** 0.5)[:, None]
    if not bool(((lengths > 0) & (lengths < np.inf)).all()):
        raise Refusal("a row without direction, or with a length that overflows")
    distances, indices = nearest(rows / lengths, count, "euclidean")
    return distances**2 / 2, indices


class DensityEngine(CumlEngine):
    """Clustering by density: neighbours from cuML, everything in float64.

    cuML's own HDBSCAN computes in float32 and gives neither scikit-learn's trees nor the numbers
    of its labels.
    """

    path = "neighbors.NearestNeighbors"
    methods = ("fit", "fit_predict")
    per_row = frozenset({"labels_", "probabilities_"})
    nan_is_valid = True
    min_rows = 2

    def tree(self, rows: Any, n_neighbors: int, metric: str, alpha: float) -> SpanningTree:
        """Return the minimum spanning tree of mutual reachability.

        Parameters
        ----------
        rows : cupy.ndarray of shape (n_samples, n_features), dtype=float64
        n_neighbors : int
            The neighbour at the core distance, each row being the first neighbour of itself.
        metric : str
            A value of `METRICS`.
        alpha : float
            What distances are divided by.
        """
        import cupy

        near = nearest(rows, n_neighbors, metric)[1]
        core = core_distances(rows, near, metric, cupy)
        return spanning_tree(rows, core, alpha, metric, cupy)

    def labels_of(self, model: Any) -> Any:
        return to_device(model.labels_)

    def attributes(self, estimator: Any, model: SimpleNamespace) -> dict[str, Any]:
        return dict(vars(model))
