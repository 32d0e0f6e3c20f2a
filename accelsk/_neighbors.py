"""The base of the engines for neighbours."""

from __future__ import annotations

from dataclasses import dataclass, replace
from numbers import Integral, Real
from typing import Any

import numpy as np

from accelsk._density import nearest_of_many
from accelsk.algorithms import distances, neighbors
from accelsk.algorithms.nearest import METRICS, Landmarks
from accelsk.device.transfer import to_device, to_host
from accelsk.engines import inputs
from accelsk.engines.base import Call, Outcome, Rule, only, refuse
from accelsk.engines.on_device import DeviceEngine, import_cupy
from accelsk.exceptions import Invalid, Refusal

__all__ = ["Index", "NeighborsOnCupy"]

#: The names of metrics in scikit-learn, by what they compute. Not those that give many rows the
#: same distance ("hamming"): which of them are neighbours is left to each algorithm.
_METRICS = {
    "euclidean": "euclidean",
    "l2": "euclidean",
    "manhattan": "manhattan",
    "l1": "manhattan",
    "cityblock": "manhattan",
    "chebyshev": "chebyshev",
    "sqeuclidean": "sqeuclidean",
    "canberra": "canberra",
    "cosine": "cosine",
    "precomputed": "precomputed",
}
_MINKOWSKI = {1: "manhattan", 2: "euclidean", np.inf: "chebyshev"}


@dataclass(frozen=True)
class _Metric:
    """A metric that has an engine.

    Attributes
    ----------
    name : str
        A value of `_METRICS`, or ``"minkowski"``.
    p : float
        The exponent of a Minkowski metric.
    """

    name: str
    p: float = 2.0

    @property
    def searched(self) -> bool:
        """Whether candidates are found in float32, so that few distances are float64."""
        return self.name in METRICS

    @property
    def exact(self) -> distances.Metric | str:
        """What `accelsk.algorithms.distances` takes."""
        if self.name == "cosine":
            return distances.COSINE
        return replace(distances.METRICS[self.name], p=float(self.p))


def _metric(call: Call) -> _Metric | None:
    """Return the metric of the fit, None if it has no engine."""
    fitted = vars(call.estimator)
    if not call.fits and "effective_metric_" in fitted:
        return _named(fitted["effective_metric_"], **fitted["effective_metric_params_"])
    return _named(call.parameters["metric"], call.parameters["p"])


def _named(metric: Any, p: Any = 2, w: Any = None) -> _Metric | None:
    if metric == "minkowski":
        generic = isinstance(p, Real) and 1 <= float(p) < np.inf and w is None
        return _Metric(_MINKOWSKI.get(p, "minkowski"), p) if generic or p == np.inf else None
    return _Metric(_METRICS[metric]) if isinstance(metric, str) and metric in _METRICS else None


@dataclass
class Index:
    """Fitted rows, ready to be searched.

    Attributes
    ----------
    metric : _Metric
    rows : cupy.ndarray of shape (n_samples, n_features)
        As they came, in float64; precomputed distances in their dtype.
    fit_X : ndarray of shape (n_samples, n_features)
        As they came, on the host.
    landmarks : Landmarks or None
        The rows where they are searched.
    targets : cupy.ndarray of shape (n_samples,) or (n_samples, n_outputs) or None
        The class, or the target, of each row.
    y : ndarray of shape (n_samples,) or None
        The label or target of each row as it came.
    """

    metric: _Metric
    rows: Any
    fit_X: Any  # noqa: N815
    landmarks: Landmarks | None = None
    targets: Any = None
    y: Any = None


def _bad_count(call: Call) -> bool:
    """Whether scikit-learn has an error for the number of neighbours asked for."""
    if call.fits or call.method == "radius_neighbors":
        return False
    count = call.arguments.get("n_neighbors")
    if count is None:
        count = call.parameters["n_neighbors"]
    if not isinstance(count, Integral) or isinstance(count, bool) or count <= 0:
        return True
    return count + (not call.X.given) > call.estimator.n_samples_fit_


def _bad_algorithm(call: Call) -> bool:
    """Whether scikit-learn has an error for the metric with the algorithm."""
    if call.parameters["metric_params"] is not None:  # it may warn, and another rule refuses it
        return False
    try:
        call.estimator._check_algorithm_metric()
    except ValueError:
        return True
    return False


def _unlike_the_fit(call: Call) -> bool:
    """Whether ``metric="precomputed"`` was set, or unset, since the fit."""
    metric = _metric(call)
    return (call.parameters["metric"] == "precomputed") != (
        metric is not None and metric.name == "precomputed"
    )


def _not_negative(matrix: Any) -> Any:
    """Return precomputed distances as they are, where scikit-learn takes them."""
    if bool((matrix < 0).any()):
        raise Refusal(Invalid("precomputed distances are negative"))
    return matrix


class NeighborsOnCupy(DeviceEngine):
    """Candidates come from distances in float32; distances and order are float64.

    For metrics that are not searched so, and within a radius, every distance is computed.
    """

    name = "cupy"
    rules: tuple[Rule, ...] = (
        refuse(
            "metric other than euclidean, manhattan, chebyshev, minkowski with p >= 1, "
            "sqeuclidean, canberra, cosine, precomputed",
            lambda call: _metric(call) is None,
            fit_only=False,
        ),
        only("metric_params", None),
        refuse(Invalid("the algorithm does not take the metric"), _bad_algorithm),
        refuse("metric='precomputed' since the fit", _unlike_the_fit, fit_only=False),
        refuse(
            Invalid("precomputed distances are not square"),
            lambda call: (
                call.parameters["metric"] == "precomputed" and call.X.shape[:1] != call.X.shape[1:]
            ),
        ),
        refuse(Invalid("n_neighbors is out of range"), _bad_count, fit_only=False),
        inputs.PRECISION,
    )

    def load(self) -> None:
        import_cupy()

    def fit(self, call: Call, X: Any) -> Outcome:
        fit_X = to_host(call.X.array)
        metric = _metric(call)
        assert metric is not None
        return Outcome(
            model=self._index(metric, X, fit_X), attributes={"n_samples_fit_": len(fit_X)}
        )

    def _index(self, metric: _Metric, X: Any, fit_X: Any) -> Index:
        import cupy

        if metric.name == "precomputed":
            return Index(metric, _not_negative(X), fit_X)
        index = Index(metric, cupy.ascontiguousarray(X.astype(np.float64, copy=False)), fit_X)
        if metric.searched:
            index.landmarks = Landmarks(index.rows, metric.name, cupy)
        return index

    def kneighbors(self, call: Call, index: Index) -> Any:
        """Return distances and indices, or indices alone, as scikit-learn does."""
        distances, indices = self.neighbors(call, index)
        return (distances, indices) if call.arguments["return_distance"] else indices

    def neighbors(self, call: Call, index: Index) -> tuple[Any, Any]:
        """Return distances and indices of the neighbours that the call asks for."""
        import cupy

        count = call.arguments.get("n_neighbors") or call.parameters["n_neighbors"]
        queries = self.queries(call, index)
        n_neighbors = int(count) + (not call.X.given)
        if index.metric.name == "precomputed":
            found = distances.smallest(queries, n_neighbors, cupy)
        elif index.landmarks is None:
            wide = queries.astype(np.float64, copy=False)
            found = distances.nearest(wide, index.rows, n_neighbors, index.metric.exact, cupy)
        elif index.landmarks.takes(n_neighbors):
            found = index.landmarks.nearest(queries, n_neighbors)
        else:
            wide = queries.astype(np.float64, copy=False)
            found = nearest_of_many(wide, index.rows, n_neighbors, index.metric.name)
        if not bool(cupy.isfinite(found[0]).all()):
            raise Refusal("distances overflow, and nobody can tell which is the least")
        if not call.X.given:
            found = neighbors.without_self(*found, cupy)
        return found[0].astype(self.dtype_of(call, index), copy=False), found[1]

    def queries(self, call: Call, index: Index) -> Any:
        """Return the rows whose neighbours are asked for, on the device."""
        import cupy

        if not call.X.given:
            return index.rows
        if index.metric.name == "precomputed":
            return _not_negative(self.matrix(call))
        return cupy.ascontiguousarray(self.matrix(call))

    def dtype_of(self, call: Call, index: Index) -> Any:
        """Return the dtype of scikit-learn's distances."""
        fitted = index.fit_X.dtype
        given = call.X.dtype if call.X.given else fitted
        if index.metric.name == "precomputed":
            return np.float32 if given == np.float32 else np.float64
        both = fitted == given == np.float32
        return np.float32 if both and index.metric.name == "cosine" else np.float64

    def attributes(self, estimator: Any, model: Index) -> dict[str, Any]:
        # scikit-learn's own fit on the same rows: it builds the tree that its methods use
        parameters = estimator.get_params(deep=False)
        plain = estimator._accelsk_original(**parameters)
        plain.fit(model.fit_X, model.y) if model.y is not None else plain.fit(model.fit_X)
        return {name: value for name, value in vars(plain).items() if name not in parameters}

    def restore(self, estimator: Any) -> Index:
        fit_X = getattr(estimator, "_fit_X", None)
        metric = _named(estimator.effective_metric_, **estimator.effective_metric_params_)
        if not isinstance(fit_X, np.ndarray) or metric is None:
            raise Refusal("the model was fitted on sparse rows, a tree or another metric")
        self.load()
        dtype = np.float32 if fit_X.dtype == np.float32 else np.float64
        return self._index(metric, to_device(fit_X, dtype), fit_X)
