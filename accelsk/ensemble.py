"""`sklearn.ensemble`, with classes that try the GPU first."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from numbers import Integral
from typing import Any

import numpy as np
from sklearn.base import clone
from sklearn.ensemble import _forest, _iforest
from sklearn.metrics import accuracy_score, r2_score
from sklearn.utils import check_random_state

from accelsk._isolation import IsolationForestOnCupy
from accelsk._mirror import mirror
from accelsk._sklearn import generate_sample_indices, get_n_samples_bootstrap
from accelsk.algorithms.resolution import variance_within_bins
from accelsk.algorithms.trees import completed
from accelsk.device.transfer import to_host
from accelsk.engines import inputs
from accelsk.engines.base import Call, Outcome, Rule, only, refuse
from accelsk.engines.cuml import CumlClassifier, CumlEngine, CumlRegressor
from accelsk.estimator import Accelerated
from accelsk.exceptions import Invalid, Refusal

__all__, __getattr__, __dir__ = mirror(__name__)

_MAX_SEED = np.iinfo(np.int32).max

#: Criteria by the name that cuML has in common with scikit-learn.
_CRITERIA = {
    "gini": "gini",
    "entropy": "entropy",
    "log_loss": "entropy",
    "squared_error": "squared_error",
    "poisson": "poisson",
}


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
        only("oob_score", False, True),
        refuse(
            Invalid("oob_score without bootstrap"),
            lambda call: call.parameters["oob_score"] and not call.parameters["bootstrap"],
        ),
        only("warm_start", False),
        only("verbose", 0),
        # the weight that reached each node could not be told from what cuML exports
        refuse("sample_weight is given", lambda call: call.sample_weight.given),
        refuse(
            Invalid("max_samples without bootstrap"),
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
        # under the names that cuML knows; weights and numbers of rows are seen to here
        given = {
            "criterion": _CRITERIA[call.parameters["criterion"]],
            "max_samples": None,
            "class_weight": None,
        }
        own = self._parameters_of(
            call.original(
                **{name: given.get(name, value) for name, value in call.parameters.items()}
            )
        )
        max_features = own["max_features"]
        if isinstance(max_features, Integral):
            own["max_features"] = int(max_features)
        n_samples = call.X.shape[0]
        drawn = _n_drawn(call)
        return {
            **own,
            "random_state": seed,
            "n_bins": min(self._bins, n_samples),
            # cuML takes a share, in float32: one that neither rounding nor truncating misses
            "max_samples": 1.0 if drawn == n_samples else (drawn + 0.25) / n_samples,
        }

    def fit(self, call: Call, X: Any) -> Outcome:
        if not call.parameters["oob_score"]:
            return super().fit(call, X)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            outcome = super().fit(call, X)
        outcome.attributes.update(self.out_of_bag(call, outcome.model))
        few = [str(w.message) for w in caught if "OOB" in str(w.message)]
        outcome.announce += [partial(warnings.warn, message, stacklevel=2) for message in few]
        return outcome

    def out_of_bag(self, call: Call, model: Any) -> dict[str, Any]:
        """Return scikit-learn's attributes for ``oob_score=True``; all rows count for the score."""
        raise NotImplementedError

    def run(self, call: Call, model: Any) -> Outcome:
        with _no_treelite_warning():
            return super().run(call, model)

    def restored_parameters(self, estimator: Any) -> dict[str, Any]:
        return {}

    def restore(self, estimator: Any) -> Any:
        if estimator.n_outputs_ > 1:
            raise Refusal("the model has several outputs")
        if getattr(estimator, "n_classes_", None) == 1:
            raise Refusal("the model has one class only")
        # treelite reads as many trees as the hyperparameter says, which may have changed
        fitted = estimator._accelsk_original()
        fitted.__dict__.update(vars(estimator), n_estimators=len(estimator.estimators_))
        with _no_treelite_warning():
            return super().restore(fitted)

    def attributes(self, estimator: Any, model: Any) -> dict[str, Any]:
        with _no_treelite_warning():
            found = super().attributes(estimator, model)
        n_trees = len(found["estimators_"])
        seeds = getattr(model, "accelsk_seeds", [None] * n_trees)
        class_weight = getattr(model, "accelsk_class_weight", None)
        if class_weight is not None and class_weight.ndim == 1 and estimator.bootstrap:
            class_weight = None  # rows are drawn by weight, and then count as one each
        if class_weight is None or class_weight.ndim == 1:
            class_weight = [class_weight] * n_trees
        trees = [
            self._tree(exported, estimator, weight, seed)
            for exported, weight, seed in zip(
                found["estimators_"], class_weight, seeds, strict=True
            )
        ]
        return {
            **found,
            "estimator_": estimator.estimator,
            "estimators_": trees,
            "_sample_weight": None,
        }

    def _tree(
        self, exported: Any, forest: Any, class_weight: np.ndarray | None, seed: int | None
    ) -> Any:
        """Return one of the fitted trees with all that scikit-learn's own would have."""
        tree = clone(forest.estimator).set_params(
            **{name: getattr(forest, name) for name in forest.estimator_params}
            | {"random_state": seed}
        )
        tree.__dict__.update(
            {name: value for name, value in vars(exported).items() if name.endswith("_")},
            n_features_in_=forest.n_features_in_,
            max_features_=_n_features_tried(tree.max_features, forest.n_features_in_),
            tree_=completed(exported.tree_, _CRITERIA[forest.criterion], class_weight),
        )
        vars(tree).pop("is_categorical_", None)
        return tree


def _unweighted(function: Callable[..., Any], *arguments: Any) -> Any:
    """Return what a function of scikit-learn's gives that takes weights since 1.9."""
    weighted = "sample_weight" in inspect.signature(function).parameters
    return function(*arguments, None) if weighted else function(*arguments)


def _n_drawn(call: Call) -> int:
    """Return how many rows each tree is grown on, as scikit-learn resolves ``max_samples``."""
    n_samples = call.X.shape[0]
    if not call.parameters["bootstrap"]:
        return n_samples
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        try:
            drawn = _unweighted(get_n_samples_bootstrap, n_samples, call.parameters["max_samples"])
        except UserWarning:
            raise Refusal("max_samples comes to few rows, of which scikit-learn warns") from None
        except ValueError:
            raise Refusal(Invalid("max_samples is above the number of rows")) from None
    if drawn > n_samples:
        raise Refusal("max_samples is above the number of rows")
    return int(drawn)


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


def _by_tree(call: Call) -> bool:
    """Whether ``class_weight`` gives the classes other weights for each tree."""
    weight = call.parameters["class_weight"]
    return (
        isinstance(weight, str) and weight == "balanced_subsample" and call.parameters["bootstrap"]
    )


class _RandomForestClassifierOnCuml(_ForestOnCuml, CumlClassifier):
    path = "ensemble.RandomForestClassifier"
    methods = ("fit", "predict", "predict_proba", "predict_log_proba", "score")
    rules = (
        *_ForestOnCuml.rules,
        only("criterion", "gini", "entropy", "log_loss"),
        refuse(
            "oob_score with classes balanced by tree",
            lambda call: call.parameters["oob_score"] and _by_tree(call),
        ),
        refuse(
            "class_weight is a list",
            lambda call: isinstance(call.parameters["class_weight"], list),
        ),
    )

    def parameters(self, call: Call) -> dict[str, Any]:
        return {**super().parameters(call), "class_weight": None}

    def fit(self, call: Call, X: Any) -> Outcome:
        return self._fit_each(call, X) if _by_tree(call) else super().fit(call, X)

    def _fit_each(self, call: Call, X: Any) -> Outcome:
        """Fit a forest of one tree on each bootstrap sample that scikit-learn would draw.

        The weight of a class is that which balances the classes in the sample.
        """
        import cupy
        import treelite

        codes, classes = inputs.labels(call)
        n_trees, drawn = call.parameters["n_estimators"], _n_drawn(call)
        random_state = check_random_state(call.parameters["random_state"])
        seeds = [random_state.randint(_MAX_SEED) for _ in range(n_trees)]
        one = {
            **self.parameters(call),
            "n_estimators": 1,
            "bootstrap": False,
            "max_samples": 1.0,
            "n_bins": min(self._bins, drawn),
        }
        trees, weights = [], []
        for seed in seeds:
            rows = cupy.asarray(_unweighted(generate_sample_indices, seed, len(X), drawn))
            count = cupy.bincount(codes[rows], minlength=len(classes))
            if not bool(count.all()):
                raise Refusal("a bootstrap sample lacks a class")
            weights.append(drawn / (len(classes) * count))
            model = self.new_model(**{**one, "random_state": seed})
            model.fit(X[rows], codes[rows], sample_weight=weights[-1][codes[rows]])
            trees.append(model.as_treelite())
        model.set_params(n_estimators=n_trees, bootstrap=True)
        model._treelite_model_bytes = treelite.Model.concatenate(trees).serialize_bytes()
        model._nvforest_model = model.as_nvforest()
        model._n_samples, model._n_samples_bootstrap = len(X), drawn
        model.accelsk_class_weight = to_host(cupy.stack(weights))
        model.accelsk_seeds = seeds
        return Outcome(model=model, attributes={"classes_": classes})

    def weight_by_class(self, call: Call, codes: Any, classes: np.ndarray) -> Any:
        if isinstance(call.parameters["class_weight"], str):  # without bootstrap they are one
            import cupy

            count = cupy.bincount(codes, minlength=len(classes))
            return len(codes) / (len(classes) * count)
        return super().weight_by_class(call, codes, classes)

    def out_of_bag(self, call: Call, model: Any) -> dict[str, Any]:
        decision = to_host(model.oob_decision_function_).astype(np.float64)
        codes = to_host(inputs.labels(call).codes)
        score = accuracy_score(codes, decision.argmax(axis=1))
        return {"oob_decision_function_": decision, "oob_score_": score}

    def predict_proba(self, call: Call, model: Any) -> Any:
        proba = super().predict_proba(call, model).astype(np.float64)
        return proba / proba.sum(axis=1, keepdims=True)


class _RandomForestRegressorOnCuml(_ForestOnCuml, CumlRegressor):
    path = "ensemble.RandomForestRegressor"
    methods = ("fit", "predict", "score")
    rules = (*_ForestOnCuml.rules, only("criterion", "squared_error", "poisson"))

    #: The most that cuML takes: errors of a regression are not bounded as those of classes are.
    _bins = 1024
    #: The share of the variance of y that may lie within bins. On 327,346 flights, 1.2% in the
    #: tail of the delay cost 0.011 of the coefficient of determination.
    _unresolved = 0.003

    def fit(self, call: Call, X: Any) -> Outcome:
        import cupy

        share = variance_within_bins(X, inputs.target(call, X.dtype), self._bins, cupy)
        if share > self._unresolved:
            raise Refusal(f"{share:.1%} of the variance of y is finer than cuML's thresholds")
        return super().fit(call, X)

    def fit_arguments(self, call: Call, X: Any) -> dict[str, Any]:
        arguments = super().fit_arguments(call, X)
        y = arguments["y"]
        if call.parameters["criterion"] == "poisson" and not bool((y >= 0).all() & (y.sum() > 0)):
            raise Refusal(Invalid("y is negative, or zero throughout, with criterion='poisson'"))
        return arguments

    def out_of_bag(self, call: Call, model: Any) -> dict[str, Any]:
        prediction = to_host(model.oob_prediction_).astype(np.float64)
        score = r2_score(to_host(call.y.array), prediction)
        return {"oob_prediction_": prediction, "oob_score_": score}

    def predict(self, call: Call, model: Any) -> Any:
        return super().predict(call, model).astype(np.float64)


class _Forest:
    def _samples_of_each(self) -> list[np.ndarray]:
        if self.estimators_[0].random_state is None:  # type: ignore[attr-defined]
            raise AttributeError(
                "a forest fitted on the GPU does not know which rows each tree was grown on"
            )
        return super().estimators_samples_  # type: ignore[misc]

    estimators_samples_ = property(
        _samples_of_each, doc=_forest.RandomForestClassifier.estimators_samples_.__doc__
    )


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
