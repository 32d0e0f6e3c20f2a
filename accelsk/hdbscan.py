"""`hdbscan`, with a class that tries the GPU first.

The functions of hdbscan that take a fitted model (``approximate_predict``,
``all_points_membership_vectors``, ...) take one that was fitted on the GPU.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np

try:
    from hdbscan import hdbscan_
    from hdbscan._hdbscan_linkage import label
except ImportError as error:
    raise ImportError("accelsk.hdbscan needs hdbscan: pip install 'accelsk[hdbscan]'") from error

from accelsk import versions
from accelsk._density import METRICS, DensityEngine, known_metric
from accelsk._mirror import mirror
from accelsk.device.transfer import to_device, to_host
from accelsk.engines.base import Call, Outcome, only, refuse
from accelsk.estimator import Accelerated

__all__, __getattr__, __dir__ = mirror(__name__, "hdbscan")

versions.check("hdbscan")


def _caches(call: Call) -> bool:
    memory = call.parameters["memory"]
    return isinstance(memory, str) or getattr(memory, "location", None) is not None


class _TreesOnDevice:
    """Stands where hdbscan keeps a joblib memory, and grows its trees on the device."""

    def __init__(self, engine: DensityEngine) -> None:
        self._engine = engine

    def cache(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return what is to be called in place of one of hdbscan's tree builders."""
        signature = inspect.signature(function)
        # the builders that follow Boruvka are not handed alpha on
        scales = "boruvka" not in function.__name__

        def build(*args: Any, **kwargs: Any) -> tuple[np.ndarray, np.ndarray | None]:
            given = signature.bind(*args, **kwargs).arguments
            tree = self._engine.tree(
                to_device(given["X"], np.float64),
                given["min_samples"] + 1,
                METRICS[given["metric"]],
                given["alpha"] if scales else 1.0,
            )
            edges = np.column_stack([tree.source, tree.point, tree.distance])
            edges = edges[np.argsort(tree.distance)]
            return label(edges), edges if given["gen_min_span_tree"] else None

        return build


class _HDBSCANOnCuml(DensityEngine):
    """hdbscan's own fit, with an exact spanning tree where its own may be approximate.

    So the numbers of the labels can be others than with hdbscan's Boruvka.
    """

    rules = (
        known_metric(METRICS),
        only(
            "algorithm",
            "best",
            "prims_kdtree",
            "prims_balltree",
            "boruvka_kdtree",
            "boruvka_balltree",
        ),
        refuse("results are cached in memory", _caches),
        refuse("arguments of the metric", lambda call: call.estimator._metric_kwargs),
    )

    def matrix(self, call: Call) -> Any:
        """Return X as hdbscan takes it, which looks for missing values itself."""
        return to_host(call.X.value)

    def fit(self, call: Call, X: Any) -> Outcome:
        fitted = call.original(**{**call.parameters, "memory": _TreesOnDevice(self)})
        fitted.fit(X)
        attributes = {k: v for k, v in vars(fitted).items() if k not in call.parameters}
        return Outcome(model=SimpleNamespace(labels_=fitted.labels_), attributes=attributes)


class HDBSCAN(Accelerated, hdbscan_.HDBSCAN, engines=[_HDBSCANOnCuml()]): ...
