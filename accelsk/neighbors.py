"""`sklearn.neighbors`, with classes that try the GPU first."""

from __future__ import annotations

from dataclasses import dataclass
from numbers import Integral
from typing import Any

import numpy as np
from sklearn.neighbors import _classification, _unsupervised

from accelsk._mirror import mirror
from accelsk.algorithms import neighbors
from accelsk.device.transfer import to_device, to_host
from accelsk.engines import inputs
from accelsk.engines.base import Call, Outcome, Rule, only, refuse
from accelsk.engines.cuml import CumlClassifier, CumlEngine
from accelsk.estimator import Accelerated
from accelsk.exceptions import Invalid, Refusal

__all__, __getattr__, __dir__ = mirror(__name__)

#: The names of metrics in scikit-learn, by what they compute.
_METRICS = {
    "euclidean": "euclidean",
    "l2": "euclidean",
    "manhattan": "manhattan",
    "l1": "manhattan",
    "cityblock": "manhattan",
    "chebyshev": "chebyshev",
}
_MINKOWSKI = {1: "manhattan", 2: "euclidean", np.inf: "chebyshev"}


def _metric(parameters: dict[str, Any]) -> str | None:
    """Return what the hyperparameters mean for a metric, None if it has no engine."""
    metric = parameters["metric"]
    if metric == "minkowski":
        return _MINKOWSKI.get(parameters["p"])
    return _METRICS.get(metric) if isinstance(metric, str) else None


@dataclass
class _Index:
    """Fitted rows, ready to be searched.

    Attributes
    ----------
    search : cuml.neighbors.NearestNeighbors
        On the rows about their middle, in float32.
    rows : cupy.ndarray of shape (n_samples, n_features)
        About their middle, in float64.
    middle : cupy.ndarray of shape (n_features,)
    fit_X : ndarray of shape (n_samples, n_features)
        As they came.
    codes : cupy.ndarray of shape (n_samples,) or None
        The class of each row.
    y : ndarray of shape (n_samples,) or None
        The label of each row.
    """

    search: Any
    rows: Any
    middle: Any
    fit_X: Any  # noqa: N815
    codes: Any = None
    y: Any = None


def _bad_count(call: Call) -> bool:
    """Whether scikit-learn has an error for the number of neighbours asked for."""
    if call.fits:
        return False
    count = call.arguments.get("n_neighbors")
    if count is None:
        count = call.parameters["n_neighbors"]
    if not isinstance(count, Integral) or isinstance(count, bool) or count <= 0:
        return True
    return count + (not call.X.given) > call.estimator.n_samples_fit_


class _NeighborsOnCuml(CumlEngine):
    """cuML finds candidates in float32; distances and order are float64."""

    path = "neighbors.NearestNeighbors"
    rules: tuple[Rule, ...] = (
        refuse(
            "metric other than euclidean, manhattan, chebyshev",
            lambda call: _metric(call.parameters) is None,
            fit_only=False,
        ),
        only("metric_params", None),
        refuse(Invalid("n_neighbors is out of range"), _bad_count, fit_only=False),
    )

    #: Candidates beyond the neighbours asked for, so that rounding seldom costs a second search.
    _spare = 16

    def fit(self, call: Call, X: Any) -> Outcome:
        fit_X = to_host(call.X.array)
        return Outcome(
            model=self._index(call.parameters, X, fit_X), attributes={"n_samples_fit_": len(fit_X)}
        )

    def _index(self, parameters: dict[str, Any], X: Any, fit_X: Any) -> _Index:
        middle = X.mean(axis=0, dtype=np.float64)
        rows = X.astype(np.float64) - middle
        metric = _metric(parameters)
        search = self.new_model(n_neighbors=1, algorithm="brute", metric=metric)
        search.fit(rows.astype(np.float32))
        return _Index(search, rows, middle, fit_X)

    def kneighbors(self, call: Call, index: _Index) -> Any:
        """Return distances and indices, or indices alone, as scikit-learn does."""
        distances, indices = self.neighbors(call, index)
        return (distances, indices) if call.arguments["return_distance"] else indices

    def neighbors(self, call: Call, index: _Index) -> tuple[Any, Any]:
        """Return distances and indices of the neighbours that the call asks for."""
        import cupy

        count = call.arguments.get("n_neighbors") or call.parameters["n_neighbors"]
        queries = index.rows
        if call.X.given:
            queries = self.matrix(call).astype(np.float64) - index.middle
        else:
            count += 1
        n_candidates = min(count + self._spare, len(index.rows))
        approximate, candidates = index.search.kneighbors(
            queries.astype(np.float32), n_neighbors=n_candidates
        )
        metric = _metric(call.parameters)
        assert metric is not None
        distances, indices = neighbors.exact_neighbors(
            queries, index.rows, approximate, candidates, int(count), metric, cupy
        )
        if call.X.given:
            return distances, indices
        return neighbors.without_self(distances, indices, cupy)

    def attributes(self, estimator: Any, model: _Index) -> dict[str, Any]:
        # scikit-learn's own fit on the same rows: it builds the tree that its methods use
        parameters = estimator.get_params(deep=False)
        plain = estimator._accelsk_original(**parameters)
        plain.fit(model.fit_X, model.y) if model.y is not None else plain.fit(model.fit_X)
        return {name: value for name, value in vars(plain).items() if name not in parameters}

    def restore(self, estimator: Any) -> _Index:
        fit_X = getattr(estimator, "_fit_X", None)
        parameters = estimator.get_params(deep=False)
        if not isinstance(fit_X, np.ndarray) or _metric(parameters) is None:
            raise Refusal("the model was fitted on sparse rows, a tree or another metric")
        self.load()
        return self._index(parameters, to_device(fit_X, np.float64), fit_X)


class _NearestNeighborsOnCuml(_NeighborsOnCuml):
    methods = ("fit", "kneighbors")


class _KNeighborsClassifierOnCuml(_NeighborsOnCuml, CumlClassifier):
    methods = ("fit", "kneighbors", "predict", "predict_proba", "score")
    rules = (
        *_NeighborsOnCuml.rules,
        only("weights", "uniform", "distance", None, fit_only=False),
        refuse(
            "X is None",
            lambda call: not call.X.given and call.method != "kneighbors",
            fit_only=False,
        ),
    )

    def fit(self, call: Call, X: Any) -> Outcome:
        codes, classes = inputs.labels(call)
        index = self._index(call.parameters, X, to_host(call.X.array))
        index.codes, index.y = codes, to_host(call.y.array)
        return Outcome(model=index, attributes={"classes_": classes, "n_samples_fit_": len(codes)})

    def predict_proba(self, call: Call, index: _Index) -> Any:
        import cupy

        distances, indices = self.neighbors(call, index)
        weight = neighbors.vote_weights(distances, call.parameters["weights"], cupy)
        n_classes = len(call.estimator.classes_)
        return neighbors.votes(index.codes[indices], weight, n_classes, cupy)

    def restore(self, estimator: Any) -> _Index:
        if getattr(estimator, "outputs_2d_", True):
            raise Refusal("the model has several outputs")
        index = _NeighborsOnCuml.restore(self, estimator)
        index.codes = to_device(estimator._y)
        return index


class NearestNeighbors(
    Accelerated, _unsupervised.NearestNeighbors, engines=[_NearestNeighborsOnCuml()]
): ...


class KNeighborsClassifier(
    Accelerated, _classification.KNeighborsClassifier, engines=[_KNeighborsClassifierOnCuml()]
): ...
