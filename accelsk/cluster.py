"""`sklearn.cluster`, with classes that try the GPU first."""

from __future__ import annotations

import contextlib
from types import SimpleNamespace
from typing import Any

import numpy as np
from sklearn.cluster import _agglomerative, _dbscan, _kmeans, _spectral
from sklearn.cluster._hdbscan import hdbscan
from sklearn.utils import check_random_state

from accelsk import _sklearn
from accelsk._density import METRICS, DensityEngine, known_metric
from accelsk._mirror import mirror
from accelsk._sklearn import (
    cluster_qr,
    discretize,
    hc_cut,
    openmp_effective_n_threads,
    process_mst,
    single_linkage_label,
    tree_to_labels,
)
from accelsk._spectral import SpectralEngine, warn_of_parts
from accelsk.algorithms import kmeans
from accelsk.algorithms.spanning_tree import SpanningTree, spanning_tree
from accelsk.device.transfer import to_device, to_host
from accelsk.engines import inputs
from accelsk.engines.base import Call, Outcome, only, refuse
from accelsk.engines.cuml import CumlEngine
from accelsk.engines.cupy import CupyEngine
from accelsk.estimator import Accelerated
from accelsk.exceptions import Invalid, Refusal

__all__, __getattr__, __dir__ = mirror(__name__)


def _algorithm_warns(call: Call) -> bool:
    """Whether scikit-learn warns that ``algorithm="elkan"`` makes no sense for one cluster."""
    return call.parameters["algorithm"] == "elkan" and call.parameters["n_clusters"] == 1


def _other_dtype(call: Call) -> bool:
    """Whether new data, cast as scikit-learn casts it, has another dtype than the centres."""
    if call.fits:
        return False
    dtype = np.float32 if call.X.dtype == np.float32 else np.float64
    return dtype != call.estimator.cluster_centers_.dtype


def _tolerance(variance: Any, tol: float, dtype: Any) -> Any:
    """Return the squared shift at which scikit-learn stops, in its type."""
    return dtype.type(to_host(variance)) * tol if tol else 0


class _KMeansOnCupy(CupyEngine):
    """Seeding and iterations are scikit-learn's, not cuML's, which stops by another criterion.

    So the same seed gives the same clusters, as far as rounding does not decide.
    """

    state = ("cluster_centers_",)
    methods = ("fit", "fit_predict", "fit_transform", "predict", "transform", "score")
    per_row = frozenset({"labels_"})
    rules = (
        refuse("init is a function", lambda call: callable(call.parameters["init"])),
        only("verbose", 0),
        refuse("one cluster with algorithm='elkan'", _algorithm_warns),
        refuse(
            "n_init other than 1 with an array as init",
            lambda call: (
                not isinstance(call.parameters["init"], str)
                and call.parameters["n_init"] not in ("auto", 1)
            ),
        ),
        refuse(
            Invalid("fewer rows than clusters"),
            lambda call: call.X.shape[:1] < (call.parameters["n_clusters"],),
        ),
        refuse("X has another dtype than the centres", _other_dtype, fit_only=False),
    )

    def fit(self, call: Call, X: Any) -> Outcome:
        import cupy

        X, mean, variance = kmeans.centred(X, cupy)  # scikit-learn's way to more exact distances
        weight = inputs.weights(call, X.dtype)
        runs = [
            kmeans.lloyd(
                X,
                seeds,
                weight,
                max_iter=call.parameters["max_iter"],
                tol=variance * call.parameters["tol"],
                xp=cupy,
            )
            for seeds in self._seeds(call, X, weight, mean)
        ]
        best = runs[0]
        for run in runs[1:]:
            # the same clusters in another order are no better, whatever rounding says
            if run.inertia < best.inertia and not kmeans.same_clusters(run, best, cupy):
                best = run
        if best.distinct < len(best.centers):
            raise Refusal("fewer distinct clusters than asked for, of which scikit-learn warns")
        model = SimpleNamespace(
            cluster_centers_=best.centers + mean,
            labels_=best.labels,
            inertia_=best.inertia,
            n_iter_=best.n_iter,
            _n_features_out=len(best.centers),
            _n_init=len(runs),
            _algorithm=call.parameters["algorithm"],
            _tol=_tolerance(variance, call.parameters["tol"], X.dtype),
            _n_threads=openmp_effective_n_threads(),
        )
        # plans of later calls look at the centres
        at_hand = {"cluster_centers_": to_host(model.cluster_centers_)}
        return Outcome(model=model, attributes=at_hand)

    def _seeds(self, call: Call, X: Any, weight: Any, mean: Any) -> list[Any]:
        """Return the initial centres of each run."""
        import cupy

        init, n_clusters = call.parameters["init"], call.parameters["n_clusters"]
        if not isinstance(init, str):
            return [self._given_seeds(init, n_clusters, mean)]
        n_init = call.parameters["n_init"]
        if n_init == "auto":
            n_init = 1 if init == "k-means++" else 10
        random_state = check_random_state(call.parameters["random_state"])
        if init == "k-means++":
            return [
                kmeans.kmeans_plusplus(X, n_clusters, weight, random_state, cupy)
                for _ in range(n_init)
            ]
        everything = cupy.ones(len(X), X.dtype) if weight is None else weight
        share = to_host(everything / everything.sum())
        rows = [
            random_state.choice(len(X), size=n_clusters, replace=False, p=share)
            for _ in range(n_init)
        ]
        return [X[chosen] for chosen in rows]

    def _given_seeds(self, init: Any, n_clusters: int, mean: Any) -> Any:
        seeds = np.asarray(to_host(init))
        if seeds.shape != (n_clusters, len(mean)) or seeds.dtype.kind not in "biuf":
            raise Refusal(Invalid("init has another shape than the centres"))
        if not np.isfinite(seeds).all():
            raise Refusal(Invalid("init contains NaN or infinity"))
        return to_device(seeds, mean.dtype) - mean

    def predict(self, call: Call, model: SimpleNamespace) -> Any:
        """Return the nearest centre of each row."""
        import cupy

        return kmeans.nearest(self.matrix(call), model.cluster_centers_, cupy)

    def transform(self, call: Call, model: SimpleNamespace) -> Any:
        """Return the distance of each row to each centre."""
        return self.transform_fitted(call, model, self.matrix(call))

    def transform_fitted(self, call: Call, model: SimpleNamespace, X: Any) -> Any:
        import cupy

        return kmeans.distances(X, model.cluster_centers_, cupy)

    def score(self, call: Call, model: SimpleNamespace) -> float:
        """Return the inertia of new data, negative."""
        import cupy

        X, centers = self.matrix(call), model.cluster_centers_
        weight = inputs.weights(call, X.dtype)
        return -kmeans.inertia(X, centers, kmeans.nearest(X, centers, cupy), weight)


class _DBSCANOnCuml(CumlEngine):
    """Distances in float64, about the middle of the data.

    cuML computes distances from products and takes eps in float32. So that neither costs a
    neighbour, data goes in about a whole number, which leaves whole numbers exact, and in units
    of eps where float32 does not hold that.
    """

    path = "cluster.DBSCAN"
    methods = ("fit", "fit_predict")
    per_row = frozenset({"labels_"})
    rules = (
        only("metric", "euclidean", "l2"),
        only("algorithm", "auto", "brute"),
        only("metric_params", None),
        refuse(Invalid("p=0"), lambda call: call.parameters["p"] == 0),
    )

    def fit(self, call: Call, X: Any) -> Outcome:
        import cupy

        parameters = self.parameters(call)
        centered = X.astype(np.float64) - cupy.rint(X.mean(axis=0, dtype=np.float64))
        if not _held_by_float32(parameters["eps"]):
            centered /= parameters["eps"]
            parameters["eps"] = 1.0
        model = self.new_model(**parameters)
        model.fit(centered, out_dtype="int64", **self.fit_arguments(call, centered))
        model.accelsk_components = X[model.core_sample_indices_]
        model.accelsk_dtype = call.X.dtype
        return Outcome(model=model)

    def attributes(self, estimator: Any, model: Any) -> dict[str, Any]:
        components = to_host(model.accelsk_components)
        # without core samples scikit-learn has an empty array of float64
        dtype = model.accelsk_dtype if len(components) else np.float64
        found = super().attributes(estimator, model)
        return {**found, "components_": components.astype(dtype, copy=False)}


def _held_by_float32(eps: float) -> bool:
    """Whether float32 holds a radius and its square exactly."""
    with np.errstate(over="ignore", under="ignore"):
        # as floats of Python, which NumPy does not round to compare
        return all(float(np.float32(value)) == value for value in (float(eps), float(eps * eps)))


def _min_samples(parameters: dict[str, Any]) -> int:
    given = parameters["min_samples"]
    return parameters["min_cluster_size"] if given is None else given


class _HDBSCANOnCuml(DensityEngine):
    """scikit-learn's hierarchy and labels, from a spanning tree that equals its own.

    With ``algorithm="brute"`` rounding decides between edges of equal length in scikit-learn.
    """

    rules = (
        known_metric(METRICS),
        only("metric_params", None),
        only("algorithm", "auto", "kd_tree", "ball_tree"),
        refuse(
            Invalid("more min_samples than rows"),
            lambda call: call.X.shape[:1] < (_min_samples(call.parameters),),
        ),
    )

    def fit(self, call: Call, X: Any) -> Outcome:
        rows = X.astype(np.float64, copy=False)
        fitted = call.original(**call.parameters)
        fitted._raw_data = np.asarray(to_host(call.X.array), np.float64)
        fitted._metric_params = {}
        fitted._min_samples = _min_samples(call.parameters)
        fitted._single_linkage_tree_ = self._hierarchy(call.parameters, rows)
        fitted.labels_, fitted.probabilities_ = tree_to_labels(
            fitted._single_linkage_tree_,
            fitted.min_cluster_size,
            fitted.cluster_selection_method,
            fitted.allow_single_cluster,
            fitted.cluster_selection_epsilon,
            fitted.max_cluster_size,
        )
        if fitted.store_centers:
            fitted._weighted_cluster_center(fitted._raw_data)
        attributes = {k: v for k, v in vars(fitted).items() if k not in call.parameters}
        announce = [_warn_of_copy] if fitted.copy == "warn" else []
        model = SimpleNamespace(labels_=fitted.labels_)
        return Outcome(model=model, attributes=attributes, announce=announce)

    def _hierarchy(self, parameters: dict[str, Any], rows: Any) -> np.ndarray:
        metric = METRICS[parameters["metric"]]
        tree = self.tree(rows, _min_samples(parameters), metric, parameters["alpha"])
        edges = np.empty(len(tree.point), _sklearn.MST_edge_dtype)
        edges["current_node"], edges["next_node"] = tree.source, tree.point
        edges["distance"] = tree.distance
        return process_mst(edges)


def _warn_of_copy() -> None:
    """Give scikit-learn's own warning (1.9) that the default of ``copy`` will change.

    It comes before the error for hyperparameters that exclude each other.
    """
    with contextlib.suppress(ValueError):
        hdbscan.HDBSCAN(metric="precomputed", store_centers="both", copy="warn").fit([[0.0]])


def _bad_cut(call: Call) -> bool:
    """Whether the hyperparameters that say where to cut exclude each other."""
    given = call.parameters
    if (given["n_clusters"] is None) == (given["distance_threshold"] is None):
        return True
    return given["distance_threshold"] is not None and not given["compute_full_tree"]


def _cut(tree: SpanningTree, parameters: dict[str, Any]) -> dict[str, Any]:
    """Return the fitted attributes of single linkage along `tree`."""
    edges = np.column_stack([tree.previous, tree.point, tree.distance])
    edges = edges[np.argsort(tree.distance, kind="stable")]
    merges = single_linkage_label(edges)
    n_clusters, threshold = parameters["n_clusters"], parameters["distance_threshold"]
    if threshold is not None:
        n_clusters = np.count_nonzero(merges[:, 2] >= threshold) + 1
    children, n_leaves = merges[:, :2].astype(int), len(merges) + 1
    fitted = {
        "children_": children,
        "n_connected_components_": 1,
        "n_leaves_": n_leaves,
        "n_clusters_": n_clusters,
        "labels_": hc_cut(n_clusters, children, n_leaves),
    }
    if threshold is not None or parameters["compute_distances"]:
        fitted["distances_"] = merges[:, 2]
    return fitted


class _AgglomerativeOnCupy(CupyEngine):
    """Single linkage, from a spanning tree that equals scikit-learn's."""

    methods = ("fit", "fit_predict")
    per_row = frozenset({"labels_"})
    min_rows = 2
    rules = (
        only("linkage", "single"),
        only("connectivity", None),
        only("memory", None),
        known_metric(METRICS),
        refuse(Invalid("hyperparameters that exclude each other"), _bad_cut),
        refuse(
            Invalid("more clusters than rows"),
            lambda call: call.X.shape[:1] < (call.parameters["n_clusters"] or 0,),
        ),
    )

    def fit(self, call: Call, X: Any) -> Outcome:
        import cupy

        metric = METRICS[call.parameters["metric"]]
        tree = spanning_tree(
            X.astype(np.float64, copy=False), cupy.zeros(len(X)), 1.0, metric, cupy
        )
        fitted = _cut(tree, call.parameters)
        return Outcome(
            model=SimpleNamespace(labels_=to_device(fitted["labels_"])), attributes=fitted
        )

    def attributes(self, estimator: Any, model: Any) -> dict[str, Any]:
        return {}


class _SpectralClusteringOnCupy(SpectralEngine):
    """k-means draws what scikit-learn draws, after the start vector of its eigensolver."""

    methods = ("fit", "fit_predict")
    rules = (
        *SpectralEngine.rules,
        only("kernel_params", None),
        only("verbose", False, 0),
        refuse(
            "X is square without affinity='precomputed', of which scikit-learn warns",
            lambda call: (
                len(set(call.X.shape)) == 1 and call.parameters["affinity"] != "precomputed"
            ),
        ),
    )

    def fit(self, call: Call, X: Any) -> Outcome:
        X = X.astype(np.float64, copy=False)
        graph = self.graph(call, X, call.parameters["gamma"])
        n_components = call.parameters["n_components"] or call.parameters["n_clusters"]
        maps = self.embed(graph, n_components).coordinates
        labels = self._labels(call.parameters, maps)
        if isinstance(graph.matrix, np.ndarray):
            graph.matrix = graph.matrix.astype(np.float64, copy=False)
        model = SimpleNamespace(affinity_matrix_=graph.matrix, labels_=labels)
        return Outcome(
            model=model,
            attributes={"labels_": to_host(labels)},
            announce=[] if graph.connected else [warn_of_parts],
        )

    def _labels(self, parameters: dict[str, Any], maps: Any) -> Any:
        assign = parameters["assign_labels"]
        random_state = check_random_state(parameters["random_state"])
        random_state.uniform(-1, 1, len(maps))  # what ARPACK would have started from
        if assign == "kmeans":
            return self._kmeans(parameters, maps, random_state)
        if assign == "cluster_qr":
            return to_device(cluster_qr(to_host(maps)))
        return to_device(discretize(to_host(maps), random_state=random_state))

    def _kmeans(self, parameters: dict[str, Any], maps: Any, random_state: Any) -> Any:
        estimator = _kmeans.KMeans(
            parameters["n_clusters"], n_init=parameters["n_init"], random_state=random_state
        )
        arguments = {"X": maps, "y": None, "sample_weight": None}
        engine = _KMeansOnCupy()
        return engine.run(Call(estimator, _kmeans.KMeans, "fit", arguments), None).model.labels_


class KMeans(Accelerated, _kmeans.KMeans, engines=[_KMeansOnCupy()]): ...


class DBSCAN(Accelerated, _dbscan.DBSCAN, engines=[_DBSCANOnCuml()]): ...


class HDBSCAN(Accelerated, hdbscan.HDBSCAN, engines=[_HDBSCANOnCuml()]): ...


class SpectralClustering(
    Accelerated, _spectral.SpectralClustering, engines=[_SpectralClusteringOnCupy()]
): ...


class AgglomerativeClustering(
    Accelerated, _agglomerative.AgglomerativeClustering, engines=[_AgglomerativeOnCupy()]
): ...
