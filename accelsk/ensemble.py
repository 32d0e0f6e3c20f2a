"""`sklearn.ensemble`, with classes that try the GPU first."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from numbers import Integral
from typing import Any

import numpy as np
from sklearn.base import clone
from sklearn.ensemble import _forest, _iforest
from sklearn.utils import check_random_state

from accelsk._isolation import IsolationForestOnCupy
from accelsk._mirror import mirror
from accelsk.algorithms.trees import completed
from accelsk.engines.base import Call, Outcome, Rule, only, refuse
from accelsk.engines.cuml import CumlClassifier, CumlEngine, CumlRegressor
from accelsk.estimator import Accelerated

__all__, __getattr__, __dir__ = mirror(__name__)

_MAX_SEED = np.iinfo(np.int32).max


class _ForestOnCuml(CumlEngine):
    """What the two forests have in common. scikit-learn's, too, compute in float32."""

    dtype = np.float32
    nan_is_valid = True
    min_rows = 2
    rules: tuple[Rule, ...] = (
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
        # the weight that reached each node could not be told from what cuML exports
        refuse("sample_weight is given", lambda call: call.sample_weight.given),
        refuse(
            "max_samples is a number of rows",
            lambda call: isinstance(call.parameters["max_samples"], Integral),
        ),
        refuse(
            "max_samples without bootstrap",
            lambda call: (
                call.parameters["max_samples"] is not None and not call.parameters["bootstrap"]
            ),
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

    def run(self, call: Call, model: Any) -> Outcome:
        with _no_treelite_warning():
            return super().run(call, model)

    def restored_parameters(self, estimator: Any) -> dict[str, Any]:
        return {}

    def restore(self, estimator: Any) -> Any:
        # treelite reads as many trees as the hyperparameter says, which may have changed
        fitted = estimator._accelsk_original()
        fitted.__dict__.update(vars(estimator), n_estimators=len(estimator.estimators_))
        with _no_treelite_warning():
            return super().restore(fitted)

    def attributes(self, estimator: Any, model: Any) -> dict[str, Any]:
        with _no_treelite_warning():
            found = super().attributes(estimator, model)
        class_weight = getattr(model, "accelsk_class_weight", None)
        trees = [self._tree(exported, estimator, class_weight) for exported in found["estimators_"]]
        return {
            **found,
            "estimator_": estimator.estimator,
            "estimators_": trees,
            "_sample_weight": None,
        }

    def _tree(self, exported: Any, forest: Any, class_weight: np.ndarray | None) -> Any:
        """Return one of the fitted trees with all that scikit-learn's own would have."""
        tree = clone(forest.estimator).set_params(
            **{name: getattr(forest, name) for name in forest.estimator_params}
        )
        tree.__dict__.update(
            {name: value for name, value in vars(exported).items() if name.endswith("_")},
            n_features_in_=forest.n_features_in_,
            max_features_=_n_features_tried(tree.max_features, forest.n_features_in_),
            tree_=completed(exported.tree_, forest.criterion, class_weight),
        )
        vars(tree).pop("is_categorical_", None)
        return tree


def _n_features_tried(max_features: Any, n_features: int) -> int:
    """Return how many features a split looks at, as scikit-learn resolves ``max_features``."""
    if max_features is None:
        return n_features
    if max_features in ("sqrt", "log2"):
        return max(1, int(getattr(np, max_features)(n_features)))
    if isinstance(max_features, Integral):
        return int(max_features)
    return max(1, int(max_features * n_features))


@contextmanager
def _no_treelite_warning() -> Iterator[None]:
    """Keep quiet about nvForest and cuML carrying different releases of treelite."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=r"[\s\S]*newer Treelite version")
        yield


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


class _Forest:
    @property
    def estimators_samples_(self) -> list[np.ndarray]:
        if self.estimators_[0].random_state is None:  # type: ignore[attr-defined]
            raise AttributeError(
                "a forest fitted on the GPU does not know which rows each tree was grown on"
            )
        return super().estimators_samples_  # type: ignore[misc]


class RandomForestClassifier(
    _Forest,
    Accelerated,
    _forest.RandomForestClassifier,
    engines=[_RandomForestClassifierOnCuml()],
): ...


class RandomForestRegressor(
    _Forest,
    Accelerated,
    _forest.RandomForestRegressor,
    engines=[_RandomForestRegressorOnCuml()],
): ...


class IsolationForest(Accelerated, _iforest.IsolationForest, engines=[IsolationForestOnCupy()]): ...
