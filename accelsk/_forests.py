"""The engine of random forests: trees are grown on the device, on scikit-learn's bootstrap rows."""

from __future__ import annotations

import warnings
from functools import partial
from numbers import Integral
from types import SimpleNamespace
from typing import Any

import numpy as np
from sklearn.base import is_classifier
from sklearn.exceptions import DataConversionWarning
from sklearn.metrics import accuracy_score, r2_score
from sklearn.utils import check_random_state
from sklearn.utils.class_weight import compute_sample_weight

from accelsk._forest_bags import Bags, balanced, n_drawn, weighted_draws
from accelsk.algorithms.forest_export import exported, n_features_tried
from accelsk.algorithms.forest_growth import grow
from accelsk.algorithms.forest_nodes import Growth, scale_of
from accelsk.algorithms.forest_votes import joined, voters_of_grown, voters_of_trees, votes
from accelsk.config import current
from accelsk.device.transfer import to_host
from accelsk.engines import inputs
from accelsk.engines.base import Call, Outcome, Rule, only, refuse
from accelsk.engines.cupy import CupyEngine
from accelsk.engines.on_device import DeviceClassifier, determination
from accelsk.exceptions import Invalid, Refusal

__all__ = ["ForestClassifierOnCupy", "ForestRegressorOnCupy"]

_MAX_SEED = np.iinfo(np.int32).max

#: More take more shared memory than a block has.
_MOST_CLASSES = 1000

#: Of the memory that is free on the device, how much the trees grown at once may take.
_SHARE = 0.4

_LARGEST_TARGET = 1e100

#: scikit-learn splits no node whose impurity is below 2.2e-16. Of more than this variance, that
#: is nothing which anybody would miss.
_LEAST_VARIANCE = 1e-10

_SORTED_AT_ONCE = 2**26

#: What is held of each row of a tree beside the orders of its features.
_BYTES_PER_ROW = 120

_CRITERIA = {"log_loss": "entropy"}

_COLUMN = (
    "A column-vector y was passed when a 1d array was expected. Please change the shape of y to "
    "(n_samples,), for example using ravel()."
)

_FEW_TREES = (
    "Some inputs do not have OOB scores. This probably means too few trees were used to compute "
    "any reliable OOB estimates."
)


def _several_columns(call: Call) -> str | None:
    shape = call.y.shape
    return "y has several columns" if len(shape) == 2 and shape[1] != 1 else None


class _ForestOnCupy(CupyEngine):
    """What the two forests have in common. scikit-learn's, too, take features in float32."""

    dtype = np.float32
    nan_is_valid = True
    rules: tuple[Rule, ...] = (
        # level by level is another order than best first
        only("max_leaf_nodes", None),
        only("ccp_alpha", 0),
        only("monotonic_cst", None),
        only("oob_score", False, True),
        refuse(
            Invalid("oob_score without bootstrap"),
            lambda call: call.parameters["oob_score"] and not call.parameters["bootstrap"],
        ),
        only("verbose", 0),
        refuse(
            Invalid("max_samples without bootstrap"),
            lambda call: (
                call.parameters["max_samples"] is not None and not call.parameters["bootstrap"]
            ),
        ),
        Rule("y has several columns", _several_columns),
        refuse(
            "scikit-learn before 1.9 weighs the rows that it draws",
            lambda call: (
                call.parameters["min_weight_fraction_leaf"] != 0
                and call.parameters["bootstrap"]
                and call.sample_weight.given
                and not weighted_draws()
            ),
        ),
    )

    def target(self, call: Call) -> tuple[Any, dict[str, Any]]:
        """Return ``y`` on the device, and the fitted attributes that come of it."""
        raise NotImplementedError

    def class_weights(self, call: Call) -> np.ndarray | None:
        """Return the weight of each row by its class."""
        return None

    def out_of_bag(self, y: Any, prediction: np.ndarray) -> dict[str, Any]:
        raise NotImplementedError

    # Fit

    def fit(self, call: Call, X: Any) -> Outcome:
        import cupy

        y, attributes = self.target(call)
        n_samples = X.shape[0]
        weight = self._weights(call)
        drawn = n_drawn(call, weight)
        seeds = self._seeds(call)
        earlier = _earlier_trees(call)
        if len(earlier) >= len(seeds):
            raise Refusal("warm_start without more trees than before")
        bags = Bags(call, y, weight, drawn, attributes.get("n_classes_", 0))
        columns = cupy.ascontiguousarray(X.T)
        by_value = _rows_by_value(columns)
        grown, present = [], []
        growth = _growth(call, attributes.get("n_classes_", 0), bags.total)
        scale = scale_of(
            y, growth.n_classes, bags.bound, counts=bags.are_counts, criterion=growth.criterion
        )
        each = _trees_at_once(n_samples, min(n_samples, drawn or n_samples), X.shape[1])
        for first in range(len(earlier), len(seeds), each):
            part = seeds[first : first + each]
            rows = bags.of(part)
            if call.parameters["oob_score"]:
                present.append(rows > 0)
            grown.append(grow(columns, y, by_value, rows, cupy.asarray(part), growth, scale, cupy))
            del rows
        forest = [voters_of_grown(tree, cupy) for tree in grown]
        if earlier:
            forest.insert(0, voters_of_trees(earlier, cupy))
        model = SimpleNamespace(
            voters=joined(forest, cupy),
            grown=grown,
            seeds=seeds,
            earlier=earlier,
            depth=growth.max_depth,
        )
        attributes |= {
            "n_outputs_": 1,
            "_n_samples": n_samples,
            "_n_samples_bootstrap": drawn,
        }
        if weighted_draws():
            attributes["_sample_weight"] = weight
        outcome = Outcome(model=model, attributes=attributes)
        if len(call.y.shape) == 2:
            outcome.announce.append(
                partial(warnings.warn, _COLUMN, DataConversionWarning, stacklevel=2)
            )
        if call.parameters["oob_score"]:
            if earlier:
                present.insert(0, bags.of(seeds[: len(earlier)]) > 0)
            self._score_out_of_bag(X, y, cupy.concatenate(present), outcome)
        return outcome

    def _score_out_of_bag(self, X: Any, y: Any, present: Any, outcome: Outcome) -> None:
        import cupy

        count = len(present) - present.sum(axis=0)
        sums = votes(X, outcome.model.voters, cupy, skip=present)
        if bool((count == 0).any()):
            outcome.announce.append(partial(warnings.warn, _FEW_TREES, UserWarning, stacklevel=2))
        prediction = to_host(sums / cupy.maximum(count, 1)[:, None])
        outcome.attributes |= self.out_of_bag(to_host(y), prediction)

    def _seeds(self, call: Call) -> list[int]:
        random_state = check_random_state(call.parameters["random_state"])
        return [random_state.randint(_MAX_SEED) for _ in range(call.parameters["n_estimators"])]

    def _weights(self, call: Call) -> np.ndarray | None:
        """Return ``sample_weight`` times the weight of classes, on the host, as scikit-learn."""
        by_class = self.class_weights(call)
        if not call.sample_weight.given:
            return by_class
        weight = to_host(inputs.weights(call, np.float64))
        return weight if by_class is None else weight * by_class

    # Take over

    def attributes(self, estimator: Any, model: SimpleNamespace) -> dict[str, Any]:
        trees = [*model.earlier]
        for grown in model.grown:
            trees += exported(
                grown,
                estimator,
                model.seeds[len(trees) : len(trees) + grown.n_trees],
                vars(estimator).get("n_classes_"),
            )
        return {"estimator_": estimator.estimator, "estimators_": trees}

    def restore(self, estimator: Any) -> SimpleNamespace:
        self.load()
        if estimator.n_outputs_ > 1:
            raise Refusal("the model has several outputs")
        import cupy

        return SimpleNamespace(voters=voters_of_trees(estimator.estimators_, cupy))

    def mean(self, call: Call, model: SimpleNamespace) -> Any:
        """Return the mean of what the trees say of each row."""
        import cupy

        return votes(self.matrix(call), model.voters, cupy) / len(model.voters.roots)


class ForestClassifierOnCupy(DeviceClassifier, _ForestOnCupy):
    """Random forests of classification trees."""

    methods = ("fit", "predict", "predict_proba", "predict_log_proba", "score")
    rules = (
        *_ForestOnCupy.rules,
        only("criterion", "gini", "entropy", "log_loss"),
        refuse(
            "class_weight is a list",
            lambda call: isinstance(call.parameters["class_weight"], list),
        ),
        refuse(
            "warm_start with class_weight by name",
            lambda call: (
                call.parameters["warm_start"] and isinstance(call.parameters["class_weight"], str)
            ),
        ),
    )

    def every_rule(self) -> tuple[Rule, ...]:
        return tuple(
            inputs.LABELS_OR_COLUMN if rule is inputs.LABELS else rule
            for rule in super().every_rule()
        )

    def target(self, call: Call) -> tuple[Any, dict[str, Any]]:
        codes, classes = inputs.labels(call)
        if len(classes) > _MOST_CLASSES:
            raise Refusal(f"y has more than {_MOST_CLASSES} classes")
        return codes, {"classes_": classes, "n_classes_": len(classes)}

    def class_weights(self, call: Call) -> np.ndarray | None:
        class_weight = call.parameters["class_weight"]
        if class_weight is None or (
            class_weight == "balanced_subsample" and call.parameters["bootstrap"]
        ):
            return None
        y = to_host(call.y.array).ravel()
        try:
            if isinstance(class_weight, str):
                class_weight = balanced(y, call)
            return compute_sample_weight(class_weight, y)
        except ValueError as error:
            raise Refusal(Invalid(f"class_weight: {error}")) from None

    def predict_proba(self, call: Call, model: SimpleNamespace) -> Any:
        return self.mean(call, model)

    def out_of_bag(self, y: Any, prediction: np.ndarray) -> dict[str, Any]:
        score = accuracy_score(y, prediction.argmax(axis=1))
        return {"oob_decision_function_": prediction, "oob_score_": score}


class ForestRegressorOnCupy(_ForestOnCupy):
    """Random forests of regression trees."""

    methods = ("fit", "predict", "score")
    rules = (
        *_ForestOnCupy.rules,
        only("criterion", "squared_error", "poisson"),
        Rule(
            "y is not numeric",
            lambda call: next(inputs.target_refusals(call, outputs=True), None),
        ),
    )

    def target(self, call: Call) -> tuple[Any, dict[str, Any]]:
        y = inputs.target(call, np.float64).ravel()
        if not bool(abs(y).max() <= _LARGEST_TARGET):
            raise Refusal("y is too large to be squared")
        if 0 < float(y.var()) < _LEAST_VARIANCE:
            raise Refusal("y varies so little that scikit-learn takes it for constant")
        if call.parameters["criterion"] == "poisson" and not bool((y >= 0).all() & (y.sum() > 0)):
            raise Refusal(Invalid("y is negative, or zero throughout, with criterion='poisson'"))
        return y, {}

    def predict(self, call: Call, model: SimpleNamespace) -> Any:
        """Return the mean of the trees' predictions."""
        return self.mean(call, model)[:, 0]

    def score(self, call: Call, model: SimpleNamespace) -> float:
        """Return the coefficient of determination; the predictions come from the device."""
        return determination(call, self.predict(call, model))

    def out_of_bag(self, y: Any, prediction: np.ndarray) -> dict[str, Any]:
        return {"oob_prediction_": prediction[:, 0], "oob_score_": r2_score(y, prediction[:, 0])}


def _rows_by_value(columns: Any) -> Any:
    """Return the rows by the value of each feature; positions of eight bytes for a few at once."""
    import cupy

    n_features, n_samples = columns.shape
    rows = cupy.empty(columns.shape, np.int32)
    some = max(1, _SORTED_AT_ONCE // n_samples)
    for first in range(0, n_features, some):
        part = slice(first, first + some)
        rows[part] = cupy.argsort(columns[part], axis=1)
    return rows


def _growth(call: Call, n_classes: int, total: float) -> Growth:
    """Return the hyperparameters as scikit-learn's trees resolve them."""
    given, (n_samples, n_features) = call.parameters, call.X.shape

    def rows(value: Any) -> int:
        return int(value) if isinstance(value, Integral) else int(np.ceil(value * n_samples))

    leaf = rows(given["min_samples_leaf"])
    depth = given["max_depth"]
    return Growth(
        criterion=_CRITERIA.get(given["criterion"], given["criterion"]),
        n_classes=int(n_classes),
        max_features=min(n_features, n_features_tried(given["max_features"], n_features)),
        max_depth=_MAX_SEED if depth is None else int(depth),
        min_samples_split=max(2, rows(given["min_samples_split"])),
        min_samples_leaf=leaf,
        min_weight_leaf=given["min_weight_fraction_leaf"] * total,
        min_impurity_decrease=given["min_impurity_decrease"],
    )


def _trees_at_once(n_samples: int, n_drawn: int, n_features: int) -> int:
    import cupy

    room = float("inf")
    if (cuda := getattr(cupy, "cuda", None)) is not None:
        free, _ = cuda.runtime.memGetInfo()
        room = _SHARE * (free + cupy.get_default_memory_pool().free_bytes())
    if (limit := current().device_memory_limit) is not None:
        room = min(room, limit)
    per_tree = n_drawn * (8 * n_features + _BYTES_PER_ROW) + 16 * n_samples
    most = int(min(room / per_tree, (2**31 - 1) // n_samples))
    if most < 1:
        raise Refusal("not one tree can be grown in the memory that is free")
    return most


def _earlier_trees(call: Call) -> list[Any]:
    """Return the trees that ``warm_start`` keeps."""
    if not call.parameters["warm_start"]:
        return []
    trees = list(getattr(call.estimator, "estimators_", []))
    if trees:
        known = call.estimator
        if known.n_outputs_ != 1 or known.n_features_in_ != call.X.shape[1]:
            raise Refusal("warm_start with other data than before")
        if is_classifier(known) and known.classes_.tolist() != inputs.labels(call).classes.tolist():
            raise Refusal("warm_start with other classes than before")
    return trees
