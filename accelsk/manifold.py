"""`sklearn.manifold`, with classes that try the GPU first."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
from sklearn.manifold import _spectral_embedding, _t_sne
from sklearn.utils import check_random_state

from accelsk._density import ANGULAR, METRICS, known_metric, nearest
from accelsk._mirror import mirror
from accelsk._spectral import SpectralEngine, n_neighbors
from accelsk.algorithms import tsne
from accelsk.algorithms.neighbors import without_self
from accelsk.device.transfer import to_device
from accelsk.engines.base import Call, Outcome, only, refuse
from accelsk.engines.cuml import broken
from accelsk.engines.cupy import CupyEngine
from accelsk.estimator import Accelerated
from accelsk.exceptions import Invalid, Refusal

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


#: The names of metrics, by what they compute.
_METRICS = {**METRICS, **dict(zip(ANGULAR, ANGULAR, strict=True))}

#: Rows that fit in memory with their neighbours, and those for which all pairs do.
_MOST_ROWS = 2_000_000
_MOST_DENSE_ROWS = 20_000

#: Features up to which the covariance is quick to decompose.
_MOST_FEATURES = 5_000


def _given_start(call: Call) -> bool:
    return not isinstance(call.parameters["init"], str)


def _unfit_start(call: Call) -> bool:
    init = call.parameters["init"]
    if not _given_start(call):
        return False
    shape = (call.X.shape[0], call.parameters["n_components"])
    return init.shape != shape or init.dtype.kind != "f" or not np.isfinite(init).all()


def _exact(call: Call) -> bool:
    return call.parameters["method"] == "exact"


class _TSNEOnCupy(CupyEngine):
    """scikit-learn's descent, with the repulsion of ``barnes_hut`` summed over all pairs or a grid.

    So `angle` makes nothing less exact, and the same start gives the same embedding again.
    """

    methods = ("fit", "fit_transform")
    per_row = frozenset({"embedding_"})
    min_rows = 2
    rules = (
        refuse(
            Invalid("scikit-learn asks X for its shape before it makes an array of it"),
            lambda call: call.X.kind == "sequence" and not hasattr(call.X.value, "shape"),
        ),
        known_metric(_METRICS),
        only("metric_params", None),
        only("verbose", 0, False),
        only("n_iter", "deprecated"),
        refuse(
            Invalid("perplexity not less than the number of rows"),
            lambda call: call.parameters["perplexity"] >= call.X.shape[0],
        ),
        refuse(
            Invalid("more than three components with method='barnes_hut'"),
            lambda call: not _exact(call) and call.parameters["n_components"] > 3,
        ),
        refuse(
            Invalid("more principal components than X has"),
            lambda call: (
                call.parameters["n_components"] > min(call.X.shape)
                and not _given_start(call)
                and call.parameters["init"] == "pca"
            ),
        ),
        refuse("an array as init that does not fit X", _unfit_start),
        refuse(
            f"init='pca' of more than {_MOST_FEATURES} features",
            lambda call: (
                not _given_start(call)
                and call.parameters["init"] == "pca"
                and call.X.shape[1] > _MOST_FEATURES
            ),
        ),
        refuse(
            "method='exact' with a metric other than euclidean",
            lambda call: _exact(call) and call.parameters["metric"] not in ("euclidean", "l2"),
        ),
        refuse(
            f"more than {_MOST_ROWS} rows, {_MOST_DENSE_ROWS} with method='exact'",
            lambda call: call.X.shape[0] > (_MOST_DENSE_ROWS if _exact(call) else _MOST_ROWS),
        ),
    )

    def refusals(self, call: Call) -> Iterator[str]:
        yield from super().refusals(call)
        why = broken()
        if why is not None and not _exact(call):
            yield why  # `nearest` searches with cuML

    def fit(self, call: Call, X: Any) -> Outcome:
        import cupy

        given = call.parameters
        rows = X.astype(np.float64, copy=False)
        joint = self._joint(given, rows)
        start = self._start(given, rows)
        schedule = _schedule(given, len(X))
        solution = tsne.descend(start, joint, schedule, cupy)
        # one of NumPy's where scikit-learn has no compiled loop, or has not got to it
        unknown = solution.kl_divergence == np.finfo(float).max
        kind = np.float64 if _exact(call) or unknown else float
        worked_out = {"_max_iter": schedule.max_iter} if "n_iter" in given else {}  # up to 1.6
        return Outcome(
            attributes=worked_out,
            model=SimpleNamespace(
                embedding_=solution.embedding,
                kl_divergence_=kind(solution.kl_divergence),
                n_iter_=solution.n_iter,
                learning_rate_=schedule.learning_rate,
            ),
        )

    def _joint(self, given: dict[str, Any], rows: Any) -> Any:
        """Return the joint probabilities, of neighbours or (``method="exact"``) of all pairs."""
        import cupy
        from cupyx.scipy import sparse

        if given["method"] == "exact":
            centered = rows - rows.mean(axis=0)
            norms = (centered * centered).sum(axis=1)
            squared = cupy.maximum(norms[:, None] - 2 * (centered @ centered.T) + norms, 0)
            return tsne.dense_affinities(squared, given["perplexity"], cupy)
        count = min(len(rows) - 1, int(3.0 * given["perplexity"] + 1))
        found = nearest(rows, count + 1, _METRICS[given["metric"]])
        return tsne.affinities(
            *without_self(*found, cupy), perplexity=given["perplexity"], xp=cupy, sparse=sparse
        )

    def _start(self, given: dict[str, Any], rows: Any) -> Any:
        """Return where the descent starts."""
        import cupy

        init, n_components = given["init"], given["n_components"]
        if not isinstance(init, str):
            return to_device(init)
        if init == "pca":
            return tsne.scaled_principal_components(rows, n_components, cupy)
        random_state = check_random_state(given["random_state"])
        drawn = random_state.standard_normal(size=(len(rows), n_components))
        return to_device(1e-4 * drawn.astype(np.float32))

    def transform_fitted(self, call: Call, model: Any, X: Any) -> Any:
        return model.embedding_


def _schedule(given: dict[str, Any], n: int) -> tsne.Schedule:
    """Return the schedule with scikit-learn's defaults worked out."""
    learning_rate, exaggeration = given["learning_rate"], given["early_exaggeration"]
    if isinstance(learning_rate, str):
        learning_rate = np.maximum(n / exaggeration / 4, 50)
    return tsne.Schedule(
        early_exaggeration=exaggeration,
        learning_rate=learning_rate,
        max_iter=1000 if given["max_iter"] is None else given["max_iter"],  # up to 1.6
        n_iter_without_progress=given["n_iter_without_progress"],
        min_grad_norm=given["min_grad_norm"],
    )


class SpectralEmbedding(
    Accelerated, _spectral_embedding.SpectralEmbedding, engines=[_SpectralEmbeddingOnCupy()]
): ...


class TSNE(Accelerated, _t_sne.TSNE, engines=[_TSNEOnCupy()]): ...
