"""What `SpectralEmbedding` and `SpectralClustering` share: the graph and its eigenvectors.

The graph is dense on the device, and its eigenvectors come from an inverse in float64: as exact
as scikit-learn's, up to the number of rows for which that fits.
"""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
from scipy.sparse.csgraph import connected_components
from sklearn.manifold import spectral_embedding
from sklearn.neighbors._unsupervised import NearestNeighbors

from accelsk._density import nearest
from accelsk.algorithms import spectral
from accelsk.device.transfer import to_device, to_host
from accelsk.engines.base import Call, Rule, only, refuse
from accelsk.engines.cuml import broken
from accelsk.engines.cupy import CupyEngine
from accelsk.exceptions import Invalid, Refusal

__all__ = ["SpectralEngine", "n_neighbors", "warn_of_parts"]

#: What cuSOLVER's 32-bit interface takes, and three matrices of it on a device of 80 GB.
_MOST_ROWS = 40_000

#: What rounding leaves between the halves of a symmetric matrix, in units of its largest entry.
_SKEW = 1e-12


def n_neighbors(call: Call) -> int:
    """Return the number of neighbours in the graph, scikit-learn's default worked out."""
    given = call.parameters["n_neighbors"]
    return max(call.X.shape[0] // 10, 1) if given is None else given


def warn_of_parts() -> None:
    """Give scikit-learn's own warning that a graph is not connected."""
    spectral_embedding(np.eye(4), n_components=1, eigen_solver="lobpcg")


class _Found(NearestNeighbors):
    """Neighbours that have been found elsewhere, for scikit-learn to make a graph of."""

    def __init__(self, indices: np.ndarray) -> None:
        super().__init__()
        self.indices = indices
        self.n_samples_fit_ = len(indices)

    def kneighbors(
        self, X: Any = None, n_neighbors: Any = None, return_distance: Any = True
    ) -> Any:
        return self.indices


class Graph(SimpleNamespace):
    """An affinity matrix.

    Attributes
    ----------
    dense : cupy.ndarray of shape (n_samples, n_samples), dtype=float64
    matrix : array or sparse matrix
        As scikit-learn has it; the engine fetches it from the device where it is there.
    connected : bool
    """

    dense: Any
    matrix: Any
    connected: bool


class SpectralEngine(CupyEngine):
    """A graph of neighbours, kernel or given affinities, and its smallest eigenvectors."""

    per_row = frozenset({"affinity_matrix_", "embedding_", "labels_"})
    min_rows = 2
    rules: tuple[Rule, ...] = (
        only("affinity", "rbf", "nearest_neighbors", "precomputed"),
        only("eigen_solver", None, "arpack"),
        refuse(f"more than {_MOST_ROWS} rows", lambda call: call.X.shape[:1] > (_MOST_ROWS,)),
        refuse(
            Invalid("more neighbours than rows"),
            lambda call: (
                call.parameters["affinity"] == "nearest_neighbors"
                and call.X.shape[:1] < (n_neighbors(call),)
            ),
        ),
        refuse(
            Invalid("a given affinity that is not square"),
            lambda call: (
                call.parameters["affinity"] == "precomputed" and len(set(call.X.shape)) != 1
            ),
        ),
    )

    def refusals(self, call: Call) -> Iterator[str]:
        yield from super().refusals(call)
        why = broken()
        if why is not None and call.parameters["affinity"] == "nearest_neighbors":
            yield why  # `nearest` searches with cuML

    def graph(self, call: Call, X: Any, gamma: float) -> Graph:
        """Return the affinity matrix of a call."""
        import cupy

        affinity = call.parameters["affinity"]
        if affinity == "nearest_neighbors":
            return self._neighbor_graph(X, n_neighbors(call))
        if affinity == "rbf":
            dense = spectral.rbf_affinity(X, gamma, cupy)
            matrix = dense.astype(X.dtype) if X.dtype == np.float32 else dense.copy()
        else:
            dense, matrix = X.astype(np.float64), to_host(call.X.array)
            skew = cupy.abs(dense - dense.T).max()
            if bool((dense < 0).any()) or float(skew) > _SKEW * float(dense.max()):
                raise Refusal("the given affinity is negative somewhere or not symmetric")
            dense = (dense + dense.T) / 2
        return Graph(dense=dense, matrix=matrix, connected=spectral.connected(dense, cupy))

    def _neighbor_graph(self, X: Any, count: int) -> Graph:
        import cupy

        indices = nearest(X.astype(np.float64), count, "euclidean")[1]
        found = _Found(to_host(indices)).kneighbors_graph(None, count, mode="connectivity")
        matrix = 0.5 * (found + found.T)
        entries = matrix.tocoo()
        dense = cupy.zeros(matrix.shape)
        dense[to_device(entries.row), to_device(entries.col)] = to_device(entries.data)
        n_parts = connected_components(matrix, return_labels=False)
        return Graph(dense=dense, matrix=matrix, connected=n_parts == 1)

    def embed(self, graph: Graph, n_components: int) -> spectral.Embedding:
        """Return the embedding; `graph.dense` is used up."""
        import cupy

        if n_components >= len(graph.dense) - 1:
            raise Refusal("about as many components as rows")
        dense, graph.dense = graph.dense, None
        embedding = spectral.embed(dense, n_components, cupy)
        if embedding is None:
            raise Refusal("the eigenvectors did not converge")
        return embedding
