"""`sklearn.manifold`, with classes that try the GPU first."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
from sklearn.manifold import _spectral_embedding
from sklearn.utils import check_random_state

from accelsk._mirror import mirror
from accelsk._spectral import SpectralEngine, n_neighbors
from accelsk.engines.base import Call, Outcome
from accelsk.estimator import Accelerated
from accelsk.exceptions import Refusal

__all__, __getattr__, __dir__ = mirror(__name__)


class _SpectralEmbeddingOnCupy(SpectralEngine):
    methods = ("fit", "fit_transform")

    #: Eigenvalues that are closer together do not tell their vectors apart.
    _gap = 1e-9

    def fit(self, call: Call, X: Any) -> Outcome:
        import cupy

        gamma = call.parameters["gamma"]
        gamma = 1.0 / X.shape[1] if gamma is None else gamma
        graph = self.graph(call, X, gamma)
        if not graph.connected:
            raise Refusal("the graph is not connected, so that the embedding is arbitrary")
        embedding = self.embed(graph, call.parameters["n_components"] + 1)
        if float(cupy.diff(embedding.eigenvalues).min()) < self._gap:
            raise Refusal("eigenvalues coincide, so that the embedding is arbitrary")
        kept = embedding.coordinates[:, 1:]
        if graph.matrix.dtype == np.float32:
            kept = kept.astype(np.float32)
        random_state = check_random_state(call.parameters["random_state"])
        random_state.uniform(-1, 1, len(X))  # what ARPACK would have started from
        worked_out = {}
        if call.parameters["affinity"] == "rbf":
            worked_out["gamma_"] = gamma
        elif call.parameters["affinity"] == "nearest_neighbors":
            worked_out["n_neighbors_"] = n_neighbors(call)
        model = SimpleNamespace(embedding_=kept, affinity_matrix_=graph.matrix, **worked_out)
        return Outcome(model=model)

    def transform_fitted(self, call: Call, model: Any, X: Any) -> Any:
        return model.embedding_


class SpectralEmbedding(
    Accelerated, _spectral_embedding.SpectralEmbedding, engines=[_SpectralEmbeddingOnCupy()]
): ...
