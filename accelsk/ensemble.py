"""`sklearn.ensemble`, with classes that try the GPU first."""

from __future__ import annotations

from numbers import Integral
from typing import Any

import numpy as np
from sklearn.ensemble import _forest
from sklearn.utils import check_random_state

from accelsk._mirror import mirror
from accelsk.engines import inputs
from accelsk.engines.base import Call, Outcome, only, refuse
from accelsk.engines.cuml import CumlClassifier, CumlEngine, CumlRegressor
from accelsk.estimator import Accelerated

__all__, __getattr__, __dir__ = mirror(__name__)

_MAX_SEED = np.iinfo(np.int32).max


class _ForestOnCuml(CumlEngine):
    """What the two forests have in common. scikit-learn's, too, compute in float32."""

    dtype = np.float32
    nan_is_valid = True
    min_rows = 2
    rules = (
        only("min_weight_fraction_leaf", 0),
        # cuML grows breadth first where scikit-learn takes the best leaf first
        only("max_leaf_nodes", None),
        # scikit-learn weighs the decrease by the share of rows that reach the node
        only("min_impurity_decrease", 0),
        only("ccp_alpha", 0),
        only("monotonic_cst", None),
        only("oob_score", False),
        only("warm_start", False),
        only("verbose", 0),
        refuse(
            "max_samples is a number of rows",
            lambda call: isinstance(call.parameters["max_samples"], Integral),
        ),
        refuse(
            "max_samples without bootstrap",
            lambda call: call.parameters["max_samples"] is not None
            and not call.parameters["bootstrap"],
        ),
    )

    #: Candidate thresholds per feature, at quantiles. With no more rows than this every
    #: distinct value is one.
    _bins = 256

    def parameters(self, call: Call) -> dict[str, Any]:
        seed = check_random_state(call.parameters["random_state"]).randint(_MAX_SEED)
        own = super().parameters(call)
        max_features = own["max_features"]
        if isinstance(max_features, Integral):
            own["max_features"] = int(max_features)
        return {**own, "random_state": seed, "n_bins": min(self._bins, call.X.shape[0])}


class _RandomForestClassifierOnCuml(_ForestOnCuml, CumlClassifier):
    path = "ensemble.RandomForestClassifier"
    methods = ("fit", "predict", "predict_proba", "predict_log_proba", "score")
    rules = (
        *_ForestOnCuml.rules,
        only("criterion", "gini", "entropy"),
        refuse(
            "class_weight='balanced_subsample'",
            lambda call: call.parameters["class_weight"] == "balanced_subsample",
        ),
        refuse(
            "class_weight is a list",
            lambda call: isinstance(call.parameters["class_weight"], list),
        ),
    )

    def parameters(self, call: Call) -> dict[str, Any]:
        return {**super().parameters(call), "class_weight": None}

    def predict_proba(self, call: Call, model: Any) -> Any:
        proba = super().predict_proba(call, model).astype(np.float64)
        return proba / proba.sum(axis=1, keepdims=True)


class _RandomForestRegressorOnCuml(_ForestOnCuml, CumlRegressor):
    path = "ensemble.RandomForestRegressor"
    methods = ("fit", "predict", "score")
    rules = (*_ForestOnCuml.rules, only("criterion", "squared_error"))

    def predict(self, call: Call, model: Any) -> Any:
        return super().predict(call, model).astype(np.float64)


class RandomForestClassifier(
    Accelerated, _forest.RandomForestClassifier, engines=[_RandomForestClassifierOnCuml()]
): ...


class RandomForestRegressor(
    Accelerated, _forest.RandomForestRegressor, engines=[_RandomForestRegressorOnCuml()]
): ...
