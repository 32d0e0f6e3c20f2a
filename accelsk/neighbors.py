"""`sklearn.neighbors`, with classes that try the GPU first."""

from __future__ import annotations

from numbers import Real
from typing import Any

import numpy as np
from sklearn.neighbors import _classification, _kde, _regression, _unsupervised

from accelsk._kde import KernelDensityOnCupy
from accelsk._mirror import mirror
from accelsk._neighbors import Index, NeighborsOnCupy
from accelsk.algorithms import distances, neighbors
from accelsk.device.transfer import to_device, to_host
from accelsk.engines import inputs
from accelsk.engines.base import Call, Outcome, only, refuse
from accelsk.engines.on_device import DeviceClassifier, determination
from accelsk.estimator import Accelerated
from accelsk.exceptions import Invalid, Refusal

__all__, __getattr__, __dir__ = mirror(__name__)


def _radius(call: Call) -> Any:
    radius = call.arguments.get("radius")
    return call.parameters["radius"] if radius is None else radius


class _NearestNeighborsOnCupy(NeighborsOnCupy):
    methods = ("fit", "kneighbors", "radius_neighbors")
    rules = (
        *NeighborsOnCupy.rules,
        refuse(
            "radius is not a number",
            lambda call: (
                call.method == "radius_neighbors"
                and not (isinstance(_radius(call), Real) and 0 <= _radius(call) < np.inf)
            ),
            fit_only=False,
        ),
        refuse(
            Invalid("sort_results without return_distance"),
            lambda call: (
                call.method == "radius_neighbors"
                and call.arguments["sort_results"]
                and not call.arguments["return_distance"]
            ),
            fit_only=False,
        ),
    )

    def radius_neighbors(self, call: Call, index: Index) -> Any:
        """Return arrays of arrays, as scikit-learn does, on the host: CuPy has none."""
        import cupy

        queries, radius = self.queries(call, index), float(_radius(call))
        if index.metric.name == "precomputed":
            inside = queries <= radius
            row, column = cupy.nonzero(inside)
            found = queries[inside]
        else:
            wide = queries.astype(np.float64, copy=False)
            counts, found, column = distances.within(
                wide, index.rows, radius, index.metric.exact, cupy
            )
            row = cupy.searchsorted(cupy.cumsum(counts), cupy.arange(len(found)), side="right")
        if not call.X.given:
            others = row != column
            row, column, found = row[others], column[others], found[others]
        if call.arguments["sort_results"]:
            order = cupy.lexsort(cupy.stack([found, row.astype(found.dtype)]))
            row, column, found = row[order], column[order], found[order]
        ends = to_host(cupy.cumsum(cupy.bincount(row, minlength=len(queries))))
        indices = _ragged(to_host(column.astype(np.int64, copy=False)), ends)
        if not call.arguments["return_distance"]:
            return indices
        return _ragged(to_host(found.astype(self.dtype_of(call, index), copy=False)), ends), indices


def _ragged(flat: np.ndarray, ends: np.ndarray) -> np.ndarray:
    """Return an array of arrays, the parts of `flat` that end at `ends`."""
    parts = np.empty(len(ends), dtype=object)
    for row, (start, end) in enumerate(zip([0, *ends[:-1].tolist()], ends.tolist(), strict=True)):
        parts[row] = flat[start:end].copy()
    return parts


_WEIGHTS = only("weights", "uniform", "distance", None, fit_only=False)
_QUERIES = refuse(
    "X is None",
    lambda call: not call.X.given and call.method != "kneighbors",
    fit_only=False,
)


class _KNeighborsClassifierOnCupy(NeighborsOnCupy, DeviceClassifier):
    methods = ("fit", "kneighbors", "predict", "predict_proba", "score")
    rules = (*NeighborsOnCupy.rules, _WEIGHTS, _QUERIES)

    def fit(self, call: Call, X: Any) -> Outcome:
        codes, classes = inputs.labels(call)
        outcome = NeighborsOnCupy.fit(self, call, X)
        outcome.model.targets, outcome.model.y = codes, to_host(call.y.array)
        outcome.attributes["classes_"] = classes
        return outcome

    def predict_proba(self, call: Call, index: Index) -> Any:
        import cupy

        distances, indices = self.neighbors(call, index)
        n_classes, weights = len(call.estimator.classes_), call.parameters["weights"]
        return neighbors.votes(index.targets, indices, distances, weights, n_classes, cupy)

    def restore(self, estimator: Any) -> Index:
        if getattr(estimator, "outputs_2d_", True):
            raise Refusal("the model has several outputs")
        index = NeighborsOnCupy.restore(self, estimator)
        index.targets = to_device(estimator._y, np.int32)
        return index


class _KNeighborsRegressorOnCupy(NeighborsOnCupy):
    methods = ("fit", "kneighbors", "predict", "score")
    rules = (
        *NeighborsOnCupy.rules,
        _WEIGHTS,
        _QUERIES,
        inputs.target_rule(outputs=True),
        refuse(
            "y has half or extended precision",
            lambda call: call.y.dtype is not None and call.y.dtype in (np.float16, np.longdouble),
        ),
    )

    def fit(self, call: Call, X: Any) -> Outcome:
        y = inputs.target(call, None)
        outcome = super().fit(call, X)
        outcome.model.targets, outcome.model.y = y, to_host(call.y.array)
        return outcome

    def predict(self, call: Call, index: Index) -> Any:
        """Return weighted means of the targets of the neighbours."""
        import cupy

        distances, indices = self.neighbors(call, index)
        targets = index.targets[indices].astype(np.float64, copy=False)
        if call.parameters["weights"] != "distance":
            mean = targets.mean(axis=1)
            return mean.astype(np.float32) if index.targets.dtype == np.float32 else mean
        weight = neighbors.vote_weights(distances, "distance", cupy)
        if targets.ndim == 3:
            weight = weight[:, :, None]
        return (targets * weight).sum(axis=1) / weight.sum(axis=1)

    def score(self, call: Call, index: Index) -> float:
        """Return the coefficient of determination; the predictions come from the device."""
        return determination(call, self.predict(call, index))

    def restore(self, estimator: Any) -> Index:
        index = super().restore(estimator)
        y = np.asarray(estimator._y)
        if y.dtype.kind not in "biuf" or y.dtype in (np.float16, np.longdouble):
            raise Refusal("the targets are not plain numbers")
        index.targets = to_device(y)
        return index


class NearestNeighbors(
    Accelerated, _unsupervised.NearestNeighbors, engines=[_NearestNeighborsOnCupy()]
): ...


class KNeighborsClassifier(
    Accelerated, _classification.KNeighborsClassifier, engines=[_KNeighborsClassifierOnCupy()]
): ...


class KNeighborsRegressor(
    Accelerated, _regression.KNeighborsRegressor, engines=[_KNeighborsRegressorOnCupy()]
): ...


class KernelDensity(Accelerated, _kde.KernelDensity, engines=[KernelDensityOnCupy()]): ...
