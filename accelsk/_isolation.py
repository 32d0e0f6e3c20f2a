"""The engine of isolation forests."""

from __future__ import annotations

import inspect
from numbers import Integral
from types import SimpleNamespace
from typing import Any

import numpy as np
from sklearn.utils import check_random_state

from accelsk import _sklearn
from accelsk._sklearn import average_path_length, generate_bagging_indices
from accelsk.algorithms.forests import leaf_sums, packed
from accelsk.device.transfer import to_host
from accelsk.engines.base import Call, Outcome, only, refuse
from accelsk.engines.cupy import CupyEngine
from accelsk.exceptions import Invalid, Refusal

__all__ = ["IsolationForestOnCupy"]


def _count(call: Call, name: str) -> int:
    """Return the hyperparameter where it is a number of rows or columns, else zero."""
    value = call.parameters[name]
    return int(value) if isinstance(value, Integral) else 0


class IsolationForestOnCupy(CupyEngine):
    """scikit-learn grows each tree on the few rows that its seed draws; the device scores.

    So the trees are scikit-learn's own, and so are the scores, to the last digit or two.
    """

    methods = ("fit", "fit_predict", "predict", "decision_function", "score_samples")
    dtype = np.float32
    nan_is_valid = True
    rules = (
        only("warm_start", False),
        only("verbose", 0),
        refuse("sample_weight is given", lambda call: call.sample_weight.given),
        refuse(
            "max_samples above the number of rows",
            lambda call: _count(call, "max_samples") > call.X.shape[0],
        ),
        refuse(
            Invalid("max_features above the number of features"),
            lambda call: _count(call, "max_features") > call.X.shape[-1],
        ),
    )

    def run_fit(self, call: Call) -> Outcome:
        X = self.matrix(call)
        outcome = self.fit(call, X)
        if call.method == "fit_predict":
            outcome.result = self._inliers(X, outcome.model)
        return outcome

    def fit(self, call: Call, X: Any) -> Outcome:
        plain = call.original(**call.parameters)
        plain.n_features_in_ = X.shape[1]
        self._grow(plain, X)
        model = self.restore(plain)
        model.offset = plain.offset_ = self._offset(call, X, model)
        # what `__init__` sets beside hyperparameters is among them
        attributes = {
            name: value for name, value in vars(plain).items() if name not in call.parameters
        }
        return Outcome(model=model, attributes=attributes)

    def _grow(self, plain: Any, X: Any) -> None:
        """Set the attributes of scikit-learn's fit but the offset, drawing what it draws."""
        import cupy

        n_samples, n_features = X.shape
        targets = check_random_state(plain.random_state).uniform(size=n_samples)
        max_samples, max_features = plain.max_samples, plain.max_features
        if max_samples == "auto":
            max_samples = min(256, n_samples)
        elif not isinstance(max_samples, Integral):
            max_samples = int(max_samples * n_samples)
        if max_samples < 1:
            raise Refusal("max_samples comes to no row at all")
        if not isinstance(max_features, Integral):
            max_features = int(max_features * n_features)
        plain._validate_estimator(plain._get_estimator())
        plain.estimator_.max_depth = int(np.ceil(np.log2(max(max_samples, 2))))
        plain._n_samples = n_samples
        plain.max_samples_ = plain._max_samples = max_samples
        plain._max_features = max(1, int(max_features))
        plain._seeds = check_random_state(plain.random_state).randint(
            _sklearn.MAX_INT, size=plain.n_estimators
        )
        draw = {
            "bootstrap_features": plain.bootstrap_features,
            "bootstrap_samples": plain.bootstrap,
            "n_features": n_features,
            "n_samples": n_samples,
            "max_features": plain._max_features,
            "max_samples": max_samples,
        }
        if "sample_weight" in inspect.signature(generate_bagging_indices.find()).parameters:
            plain._sample_weight = draw["sample_weight"] = None
        # what `_make_estimator` draws and what the seed draws for rows start from the same state
        plain.estimators_ = [
            plain._make_estimator(append=False, random_state=seed) for seed in plain._seeds
        ]
        drawn = [generate_bagging_indices(seed, **draw) for seed in plain._seeds]
        plain.estimators_features_ = [features for features, _ in drawn]
        used = np.unique(np.concatenate([rows for _, rows in drawn]))
        sample = to_host(X[cupy.asarray(used)])
        for tree, (features, rows) in zip(plain.estimators_, drawn, strict=True):
            rows, counts = np.unique(rows, return_counts=True)
            some = sample[np.searchsorted(used, rows)]
            if plain._max_features != n_features:
                some = some[:, features]
            tree.fit(some, targets[rows], counts.astype(np.float64), check_input=False)
        plain._average_path_length_per_tree = tuple(
            average_path_length(tree.tree_.n_node_samples) for tree in plain.estimators_
        )
        plain._decision_path_lengths = tuple(
            tree.tree_.compute_node_depths() for tree in plain.estimators_
        )

    def _offset(self, call: Call, X: Any, model: SimpleNamespace) -> Any:
        contamination = call.parameters["contamination"]
        if contamination == "auto":
            return -0.5
        return np.percentile(to_host(self._scores(X, model)), 100.0 * contamination)

    def _scores(self, X: Any, model: SimpleNamespace) -> Any:
        import cupy

        depths = leaf_sums(cupy.ascontiguousarray(X), model.nodes, cupy)
        if model.denominator == 0:  # of trees of one row
            return cupy.full(len(X), -0.5)
        return -(2.0 ** (-(depths / model.denominator)))

    def _inliers(self, X: Any, model: SimpleNamespace) -> Any:
        import cupy

        return cupy.where(self._scores(X, model) - model.offset < 0, -1, 1)

    def score_samples(self, call: Call, model: SimpleNamespace) -> Any:
        """Return the opposite of the anomaly score."""
        return self._scores(self.matrix(call), model)

    def decision_function(self, call: Call, model: SimpleNamespace) -> Any:
        """Return the scores less the offset."""
        return self.score_samples(call, model) - model.offset

    def predict(self, call: Call, model: SimpleNamespace) -> Any:
        """Return 1 for inliers and -1 for outliers."""
        return self._inliers(self.matrix(call), model)

    def attributes(self, estimator: Any, model: SimpleNamespace) -> dict[str, Any]:
        return {}  # all of them are set by the fit

    def restore(self, estimator: Any) -> SimpleNamespace:
        import cupy

        trees = [tree.tree_ for tree in estimator.estimators_]
        every = np.arange(estimator.n_features_in_)
        subset = estimator._max_features != estimator.n_features_in_
        features = estimator.estimators_features_ if subset else [every] * len(trees)
        values = [
            depths + lengths - 1.0
            for depths, lengths in zip(
                estimator._decision_path_lengths,
                estimator._average_path_length_per_tree,
                strict=True,
            )
        ]
        return SimpleNamespace(
            nodes=packed(trees, features, values, cupy),
            denominator=len(trees) * float(average_path_length([estimator._max_samples])[0]),
            offset=getattr(estimator, "offset_", None),
        )
