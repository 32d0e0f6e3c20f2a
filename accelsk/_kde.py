"""The engine of kernel density estimates."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
from sklearn.metrics import DistanceMetric

from accelsk._density import known_metric
from accelsk._sklearn import kernel_norm
from accelsk.algorithms import density, distances
from accelsk.device.transfer import to_device, to_host
from accelsk.engines import inputs
from accelsk.engines.base import Call, Outcome, only, refuse
from accelsk.engines.cupy import CupyEngine
from accelsk.exceptions import Invalid, Refusal

__all__ = ["KernelDensityOnCupy"]

#: The names of metrics in scikit-learn's trees, by what they compute.
_METRICS = {
    "euclidean": "euclidean",
    "l2": "euclidean",
    "minkowski": "euclidean",
    "manhattan": "manhattan",
    "l1": "manhattan",
    "cityblock": "manhattan",
    "chebyshev": "chebyshev",
    "infinity": "chebyshev",
    "canberra": "canberra",
    "hamming": "hamming",
}
_CLASSES = {type(DistanceMetric.get_metric(name)): name for name in set(_METRICS.values())}


def _bad_algorithm(call: Call) -> bool:
    """Whether scikit-learn has an error for the metric with the algorithm."""
    try:
        call.estimator._choose_algorithm(call.parameters["algorithm"], call.parameters["metric"])
    except ValueError:
        return True
    return False


class KernelDensityOnCupy(CupyEngine):
    """Every kernel at every distance, in float64: no tolerance is made use of."""

    methods = ("fit", "score_samples", "score")
    dtype = np.float64
    rules = (
        known_metric(_METRICS),
        only("metric_params", None),
        refuse(Invalid("the algorithm does not take the metric"), _bad_algorithm),
        refuse(
            Invalid("a rule for the bandwidth needs an X with a shape"),
            lambda call: (
                isinstance(call.parameters["bandwidth"], str) and call.X.kind == "sequence"
            ),
        ),
    )

    def fit(self, call: Call, X: Any) -> Outcome:
        import cupy

        weight = inputs.weights(call, np.float64)
        model = SimpleNamespace(
            rows=cupy.ascontiguousarray(X),
            weight=weight,
            metric=_METRICS[call.parameters["metric"]],
            fit_X=to_host(call.X.array),
        )
        bandwidth = call.parameters["bandwidth"]
        if isinstance(bandwidth, str):
            n_samples, n_features = X.shape
            size = n_samples if bandwidth == "scott" else n_samples * (n_features + 2) / 4
            bandwidth = size ** (-1 / (n_features + 4))
        return Outcome(model=model, attributes={"bandwidth_": bandwidth})

    def score_samples(self, call: Call, model: SimpleNamespace) -> Any:
        """Return the logarithm of the density at each row of X."""
        import cupy

        X = cupy.ascontiguousarray(self.matrix(call))
        kernel, bandwidth = call.parameters["kernel"], call.estimator.bandwidth_
        logs = density.log_density(
            X,
            model.rows,
            model.weight,
            kernel,
            float(bandwidth),
            distances.METRICS[model.metric],
            cupy,
        )
        return logs + kernel_norm(bandwidth, X.shape[1], kernel, return_log=True)

    def score(self, call: Call, model: SimpleNamespace) -> np.float64:
        """Return the sum of the logarithms of the densities."""
        return np.float64(float(self.score_samples(call, model).sum()))

    def attributes(self, estimator: Any, model: SimpleNamespace) -> dict[str, Any]:
        # scikit-learn's own fit on the same rows builds the tree, which `sample` uses
        parameters = estimator.get_params(deep=False)
        plain = estimator._accelsk_original(**parameters)
        plain.fit(model.fit_X, sample_weight=to_host(model.weight))
        return {"tree_": plain.tree_, "bandwidth_": plain.bandwidth_}

    def restore(self, estimator: Any) -> SimpleNamespace:
        tree = estimator.tree_
        metrics = (_CLASSES.get(type(part)) for part in tree.__getstate__())
        metric = next((name for name in metrics if name is not None), None)
        if metric is None:
            raise Refusal("the tree has a metric without an engine")
        rows, weight = np.asarray(tree.data), tree.sample_weight
        return SimpleNamespace(
            rows=to_device(rows),
            weight=None if weight is None else to_device(np.asarray(weight)),
            metric=metric,
            fit_X=rows,
        )
