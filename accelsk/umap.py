"""`umap`, with a class that tries the GPU first."""

from __future__ import annotations

import functools
from types import SimpleNamespace
from typing import Any

import joblib
import numpy as np

try:
    from pynndescent import NNDescent
    from umap import umap_
except ImportError as error:
    raise ImportError("accelsk.umap needs umap-learn: pip install 'accelsk[umap]'") from error

from accelsk import versions
from accelsk._density import known_metric, nearest
from accelsk._mirror import mirror
from accelsk.algorithms import spectral, tsne
from accelsk.device.transfer import to_device, to_host
from accelsk.engines.base import Call, Outcome, only, refuse
from accelsk.engines.cuml import CumlEngine
from accelsk.estimator import Accelerated
from accelsk.exceptions import Refusal

__all__, __getattr__, __dir__ = mirror(__name__, "umap")

versions.check("umap-learn")

#: The names of metrics in umap-learn, by what they compute.
_METRICS = {
    "euclidean": "euclidean",
    "l2": "euclidean",
    "manhattan": "manhattan",
    "l1": "manhattan",
    "taxicab": "manhattan",
    "chebyshev": "chebyshev",
    "linf": "chebyshev",
    "linfty": "chebyshev",
    "linfinity": "chebyshev",
    "cosine": "cosine",
    "correlation": "correlation",
}

#: Rows up to which umap-learn looks at all distances unless told otherwise.
_SMALL = 4096

#: Rows up to which the eigenvectors for the start are computed exactly, from a dense graph.
_MOST_DENSE_ROWS = 20_000

#: The largest number that is a seed in cuML.
_SEEDS = 2**31 - 1


def _neighbors(X: np.ndarray, count: int, metric: str) -> tuple[np.ndarray, np.ndarray]:
    """Return indices and distances of the nearest rows of each row, as umap-learn has them."""
    distances, indices = nearest(to_device(X, np.float64), count, _METRICS[metric])
    return to_host(indices).astype(np.int32), to_host(distances).astype(np.float32)


class _Fitting(umap_.UMAP):
    """umap-learn's own fit, with neighbours and layout from the device."""

    def _validate_parameters(self) -> None:
        super()._validate_parameters()
        found = _neighbors(self._raw_data, self.n_neighbors, self.metric)
        self.knn_indices, self.knn_dists = found
        self.knn_search_index = None
        # takes the neighbours that are there, also of few rows
        self.force_approximation_algorithm = True

    def _fit_embed_data(
        self, X: Any, n_epochs: Any, init: Any, random_state: Any, **kwargs: Any
    ) -> tuple[np.ndarray, dict[str, Any]]:
        from cuml.manifold.umap import simplicial_set_embedding

        graph = self.graph_.tocoo()
        n_epochs = n_epochs or (500 if len(X) <= 10_000 else 200)
        start = self._start(X, graph, n_epochs, init, random_state)
        seed = None if self.random_state is None else int(random_state.randint(_SEEDS))
        embedding = simplicial_set_embedding(
            to_device(X),
            graph,
            n_components=self.n_components,
            initial_alpha=self._initial_alpha,
            a=self._a,
            b=self._b,
            gamma=self.repulsion_strength,
            negative_sample_rate=self.negative_sample_rate,
            n_epochs=n_epochs,
            init=start,
            random_state=seed,
            verbose=0,
        )
        return to_host(embedding), {}

    def _start(self, X: Any, graph: Any, n_epochs: int, init: Any, random_state: Any) -> Any:
        """Return where the layout starts, between 0 and 10 on each axis; or ``"spectral"``."""
        if not isinstance(init, str):
            start = init
            if len(np.unique(init, axis=0)) < len(init):
                raise Refusal("an array as init with rows that are equal")
        elif init == "random":
            shape = (len(X), self.n_components)
            start = random_state.uniform(low=-10.0, high=10.0, size=shape).astype(np.float32)
        else:
            find = _components if init == "pca" else _eigenvectors
            vectors = find(X, graph, n_epochs, self.n_components)
            if vectors is None:
                return "spectral"
            start = umap_.noisy_scale_coords(vectors, random_state, max_coord=10, noise=0.0001)
        low, high = start.min(axis=0), start.max(axis=0)
        return to_device((10.0 * (start - low) / (high - low)).astype(np.float32))


def _components(X: Any, graph: Any, n_epochs: int, n_components: int) -> np.ndarray:
    """Return the principal components for the start."""
    import cupy

    if n_components > min(X.shape):
        raise Refusal("more principal components than X has")
    return to_host(tsne.scaled_principal_components(to_device(X), n_components, cupy))


def _eigenvectors(X: Any, graph: Any, n_epochs: int, n_components: int) -> np.ndarray | None:
    """Return the eigenvectors for the start, None where cuML is to find them.

    Edges too weak to be looked at in any epoch do not count.
    """
    import cupy

    n = graph.shape[0]
    if n > _MOST_DENSE_ROWS or n_components >= n - 2:
        return None
    strong = graph.data >= graph.data.max() / n_epochs
    dense = cupy.zeros(graph.shape)
    row, column = to_device(graph.row[strong]), to_device(graph.col[strong])
    dense[row, column] = to_device(graph.data[strong], np.float64)
    if not spectral.connected(dense, cupy):
        return None
    embedding = spectral.embed(dense, n_components + 1, cupy)
    if embedding is None:
        return None
    return to_host(embedding.vectors[:, 1 : n_components + 1])


class _LateIndex(NNDescent):
    """The index in which umap-learn's own transform searches, made when it is first needed.

    It then becomes an ordinary one; also where it is copied or pickled.
    """

    def __init__(self, fitted: umap_.UMAP) -> None:
        seed = fitted.random_state if isinstance(fitted.random_state, int) else None
        self._accelsk_make = functools.partial(
            umap_.nearest_neighbors,
            fitted._raw_data,
            fitted._n_neighbors,
            fitted.metric,
            fitted._metric_kwds,
            fitted.angular_rp_forest,
            np.random.RandomState(seed),
            fitted.low_memory,
            use_pynndescent=True,
            n_jobs=fitted.n_jobs,
            verbose=False,
        )

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        self._make()
        return getattr(self, name)

    def __reduce_ex__(self, protocol: Any) -> Any:
        self._make()
        return self.__reduce_ex__(protocol)

    def _make(self) -> None:
        index = self._accelsk_make()[2]
        self.__class__, self.__dict__ = type(index), vars(index)


def _own_arguments(call: Call) -> bool:
    finite = {"ensure_all_finite", "force_all_finite"}
    others = set(call.arguments) - {"X", "y"} - finite
    return bool(others) or any(call.arguments.get(name, True) is not True for name in finite)


class _UMAPOnCuml(CumlEngine):
    """umap-learn's own graph, from exact neighbours; cuML's layout, in float32."""

    path = "manifold.UMAP"
    methods = ("fit", "fit_transform", "transform")
    dtype = np.float32
    min_rows = 3
    repeats = False
    rules = (
        known_metric(_METRICS),
        refuse("arguments of the metric", lambda call: call.parameters["metric_kwds"]),
        only("output_metric", "euclidean", "l2"),
        only("densmap", False),
        only("output_dens", False),
        only("unique", False),
        only("transform_mode", "embedding", fit_only=False),
        only("verbose", False),
        refuse(
            "init other than 'spectral', 'random', 'pca' or an array",
            lambda call: (
                isinstance(call.parameters["init"], str)
                and call.parameters["init"] not in ("spectral", "random", "pca")
            ),
        ),
        refuse(
            "an array as init of another length than X",
            lambda call: (
                not isinstance(call.parameters["init"], str)
                and len(call.parameters["init"]) != call.X.shape[0]
            ),
        ),
        refuse(
            "precomputed_knn",
            lambda call: any(item is not None for item in call.parameters["precomputed_knn"]),
        ),
        refuse(
            "a list or at most 10 as n_epochs",
            lambda call: (
                call.parameters["n_epochs"] is not None
                and not (
                    isinstance(call.parameters["n_epochs"], int)
                    and call.parameters["n_epochs"] > 10
                )
            ),
        ),
        refuse(
            "no more rows than n_neighbors",
            lambda call: call.X.shape[0] <= call.parameters["n_neighbors"],
        ),
        refuse("arguments beside X and y", _own_arguments, fit_only=False),
    )

    def unrepeatable(self, call: Call) -> str | None:
        """Return that the same seed gives another result; in umap-learn that holds of transform,
        too."""
        if call.parameters["random_state"] is None:
            return None
        return "on the GPU the same random_state does not give the same result again"

    def fit(self, call: Call, X: Any) -> Outcome:
        given = call.parameters
        work = _Fitting(**given)
        n_threads = umap_.numba.get_num_threads()
        try:
            work.fit(to_host(call.X.value), to_host(call.y.value))
        finally:  # umap-learn itself does not get to it where something fails
            umap_.numba.set_num_threads(n_threads)
        own = {k: v for k, v in vars(work).items() if k not in given}
        own.update(knn_indices=None, knn_dists=None, knn_search_index=None)
        own["_small_data"] = len(X) < _SMALL and not given["force_approximation_algorithm"]
        if own["_small_data"]:
            for name in ("_knn_indices", "_knn_dists", "_knn_search_index"):
                own.pop(name, None)
        else:
            own["_knn_search_index"] = _LateIndex(work)
        model = SimpleNamespace(transforms=None, embedding_=to_device(work.embedding_))
        return Outcome(model=model, attributes=own)

    def transform_fitted(self, call: Call, model: Any, X: Any) -> Any:
        return model.embedding_

    def transform(self, call: Call, model: Any) -> Any:
        """Return the coordinates of new rows; of the fitted ones those that they have."""
        estimator, X = call.estimator, self.matrix(call)
        fitted = X.shape == estimator._raw_data.shape
        if fitted and joblib.hash(np.ascontiguousarray(to_host(X))) == estimator._input_hash:
            return to_device(estimator.embedding_)
        if model.transforms is None:
            model.transforms = self.restore(estimator).transforms
        return model.transforms.transform(X)

    def restore(self, estimator: Any) -> SimpleNamespace:
        if not isinstance(estimator._raw_data, np.ndarray):
            raise Refusal("the model was fitted on sparse rows")
        return SimpleNamespace(transforms=super().restore(estimator))

    def attributes(self, estimator: Any, model: Any) -> dict[str, Any]:
        return {}


class UMAP(Accelerated, umap_.UMAP, engines=[_UMAPOnCuml()]): ...
