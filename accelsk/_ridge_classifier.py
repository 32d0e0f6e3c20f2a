"""Engines of the classifiers that fit a ridge regression to signs."""

from __future__ import annotations

import abc
import inspect
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np
from sklearn.preprocessing._label import LabelBinarizer

from accelsk._fitted_types import as_in_sklearn
from accelsk._leave_one_out import Rewound, chosen, held, of_few_rows, of_many_rows
from accelsk._linear_moments import of_model
from accelsk._linear_svm import class_weights
from accelsk._ridge_cv import RULES, example, few_rows, searched
from accelsk.algorithms import least_squares
from accelsk.algorithms.moments import Moments
from accelsk.device.transfer import to_device, to_host
from accelsk.engines import inputs
from accelsk.engines.base import Call, Outcome, Rule, only, refuse
from accelsk.engines.moments import Block, MomentsEngine, blocks, mapped, moments
from accelsk.engines.on_device import accuracy, labelled
from accelsk.exceptions import Refusal

__all__ = ["RidgeClassifierCVOnMoments", "RidgeClassifierOnMoments"]


@dataclass(frozen=True)
class _Signs:
    """The labels of a call as targets of 1 and -1.

    Attributes
    ----------
    codes : cupy.ndarray of shape (n_samples,)
    classes : ndarray of shape (n_classes,)
    by_class : cupy.ndarray of shape (n_classes,) or None
        The weight of the rows of each class.
    """

    codes: Any
    classes: np.ndarray
    by_class: Any

    @classmethod
    def of(cls, call: Call) -> _Signs:
        codes, classes = inputs.labels(call)
        weights = None
        if call.parameters["class_weight"]:
            weights = to_device(np.asarray(class_weights(call, codes, classes), np.float64))
        return cls(codes, inputs.listed(classes), weights)

    def targets(self, codes: Any) -> Any:
        """Return a target for each class, of two classes one."""
        import cupy

        positive = cupy.arange(len(self.classes), dtype=np.int32)
        positive = positive[1:] if len(self.classes) == 2 else positive
        return cupy.where(codes[:, None] == positive, 1.0, -1.0)

    def weighted(self, codes: Any, weight: Any) -> Any:
        """Return the weights of rows, None where all weigh the same."""
        if self.by_class is None:
            return weight
        of_class = self.by_class[codes]
        return of_class if weight is None else of_class * weight

    def whole(self, call: Call) -> tuple[Any, Any]:
        """Return the targets and the weights of all rows."""
        weight = inputs.weights(call, np.float64)
        return self.targets(self.codes), self.weighted(self.codes, weight)

    def rows(self, call: Call) -> Iterator[Block]:
        """Yield the rows of the call with a target for each class, of two classes one."""
        start = 0
        for X, _, weight in blocks(call, target=False):
            codes = self.codes[start : start + len(X)]
            start += len(X)
            yield Block(X, self.targets(codes), self.weighted(codes, weight))


class _OnSigns(MomentsEngine, abc.ABC):
    """A ridge regression for each class, of two classes one."""

    methods = ("fit", "decision_function", "predict", "score")
    #: The hyperparameters on which the types of fitted attributes depend.
    options: tuple[str, ...] = ()

    def every_rule(self) -> tuple[Rule, ...]:
        return (
            *super().every_rule(),
            inputs.EXTENDED_PRECISION,
            inputs.PRECISION,
            inputs.HIDDEN_PRECISION,
            inputs.LABELS,
        )

    def fit(self, call: Call, X: Any) -> Outcome:
        signs = _Signs.of(call)
        if few_rows(call):
            found, coef, attributes = self.solve_few(call, *signs.whole(call))
        else:
            rows = self.rows(call, partial(signs.rows, call))
            found = moments(call, target=False, rows=rows)
            if not call.parameters["fit_intercept"]:
                found = found.about_zero()
            coef, attributes = self.solve(call, found, rows)
        if not np.isfinite(coef).all():
            raise Refusal("the coefficients are not finite")
        intercept: Any = 0.0
        if call.parameters["fit_intercept"]:
            intercept = found.Y_mean - found.X_mean @ coef
        attributes |= {"coef_": coef.T, "intercept_": intercept}
        attributes = as_in_sklearn(
            call,
            attributes,
            "fit_intercept",
            *self.options,
            n_classes=len(signs.classes),
            **example(call),
        )
        return self.labelled(call, attributes, signs.classes)

    @staticmethod
    def labelled(call: Call, attributes: dict[str, Any], classes: np.ndarray) -> Outcome:
        """Return the outcome of a fit with these attributes, and those that tell the labels."""
        binarizer = LabelBinarizer(pos_label=1, neg_label=-1).fit(classes)
        attributes = {**attributes, "_label_binarizer": binarizer}
        if not isinstance(inspect.getattr_static(call.original, "classes_", None), property):
            attributes["classes_"] = classes
        return Outcome(model=of_model(SimpleNamespace(**attributes)), attributes=attributes)

    def rows(
        self, call: Call, rows: Callable[[], Iterator[Block]]
    ) -> Callable[[], Iterator[Block]]:
        """Return what gives the rows each time that they are passed over."""
        return rows

    @abc.abstractmethod
    def solve(
        self, call: Call, found: Moments, rows: Callable[[], Iterator[Block]]
    ) -> tuple[np.ndarray, dict[str, Any]]:
        """Return coefficients of shape (n_features, n_targets), and what other attributes there
        are but for the intercept.
        """

    @abc.abstractmethod
    def solve_few(
        self, call: Call, Y: Any, weight: Any
    ) -> tuple[Moments, np.ndarray, dict[str, Any]]:
        """Return the means and the same, for no more rows than columns."""

    def restore(self, estimator: Any) -> SimpleNamespace:
        if estimator._label_binarizer.y_type_.startswith("multilabel"):
            raise Refusal("it was fitted to several labels for each row")
        return of_model(estimator)

    def predictor(self, call: Call, model: Any) -> Callable[[Any], Any]:
        coef, intercept = model.coef_.T, model.intercept_
        if coef.shape[1:] == (1,):
            return lambda X: (X @ coef + intercept)[:, 0]
        return lambda X: X @ coef + intercept

    def decision_function(self, call: Call, model: Any) -> Any:
        """Return a score for each class, of two classes for the second."""
        return mapped(call, self.predictor(call, model))

    def predict(self, call: Call, model: Any) -> Any:
        """Return the labels of the highest scores."""
        import cupy

        scores_of = self.predictor(call, model)

        def codes(X: Any) -> Any:
            scores = scores_of(X)
            best = scores > 0 if scores.ndim == 1 else scores.argmax(axis=1)
            return best.astype(np.int32)

        return labelled(call, mapped(call, codes, lambda X, codes: cupy.isfinite(X).all()))

    def score(self, call: Call, model: Any) -> float:
        """Return the accuracy; the predictions come from the device."""
        return accuracy(call, self.predict(call, model))


#: Condition numbers of the scaled Gram matrix: up to the first the normal equations are solved as
#: they are, up to the second their solution is made more exact.
_GOOD, _FAIR = 1e6, 1e10

#: scipy warns where the reciprocal condition number is below the machine epsilon.
_WARNED_OF = 1e13


class RidgeClassifierOnMoments(_OnSigns):
    """Normal equations, as for `Ridge`."""

    options = ("solver",)
    rules: tuple[Rule, ...] = (
        only("positive", False),
        # the others iterate, and report how often in n_iter_
        only("solver", "auto", "svd", "cholesky"),
        refuse("more than 10000 rows and features", lambda call: min(call.X.shape) > 10_000),
    )

    @staticmethod
    def attributes_of(call: Call) -> dict[str, Any]:
        name = call.parameters["solver"]
        return {"solver_": "cholesky" if name == "auto" else name, "n_iter_": None}

    def solve(
        self, call: Call, found: Moments, rows: Callable[[], Iterator[Block]]
    ) -> tuple[np.ndarray, dict[str, Any]]:
        alpha = float(call.parameters["alpha"])
        solver, scaled = _factor(found.gram + alpha * np.eye(len(found.gram)), np)
        if scaled > _FAIR:
            raise Refusal("X is rank-deficient or nearly so beside the penalty")
        coef = solver.solve(found.XY)
        if scaled > _GOOD:
            coef = coef + solver.solve(_gradient(found, coef, rows()) - alpha * coef)
        return coef, self.attributes_of(call)

    def solve_few(
        self, call: Call, Y: Any, weight: Any
    ) -> tuple[Moments, np.ndarray, dict[str, Any]]:
        import cupy

        X, Y, found, _ = held(call, Y, weight)
        gram = X @ X.T + float(call.parameters["alpha"]) * cupy.eye(len(X))
        solver, scaled = _factor(gram, cupy)
        if scaled > _GOOD:
            raise Refusal("X is rank-deficient or nearly so beside the penalty")
        return found, to_host(X.T @ solver.solve(Y)), self.attributes_of(call)


def _factor(gram: Any, xp: Any) -> tuple[Any, float]:
    """Return the factor of a Gram matrix and its condition number, scaled to ones."""
    solver = least_squares.factor(gram, xp)
    scaled, itself = (np.inf, np.inf) if solver is None else solver.conditions()
    return solver, np.inf if itself > _WARNED_OF else scaled


def _gradient(found: Moments, coef: np.ndarray, rows: Iterator[Block]) -> np.ndarray:
    """Return X' (y - X coef) of centred data, in another pass over the rows."""
    import cupy

    means, on_device = (to_device(found.X_mean), to_device(found.Y_mean)), cupy.asarray(coef)
    total = cupy.zeros(coef.shape)
    for block in rows:
        total += least_squares.gradient(*block, means, on_device, cupy)
    return to_host(total)


class RidgeClassifierCVOnMoments(_OnSigns):
    """The penalty is the one under which rows that are left out are told best; or a search."""

    options = ("store_cv_results",)
    rules: tuple[Rule, ...] = RULES

    def fit(self, call: Call, X: Any) -> Outcome:
        if call.parameters["cv"] is not None:
            return self.labelled(call, searched(call), inputs.listed(inputs.labels(call).classes))
        return super().fit(call, X)

    def rows(
        self, call: Call, rows: Callable[[], Iterator[Block]]
    ) -> Callable[[], Iterator[Block]]:
        return Rewound(call, rows)

    def solve(
        self, call: Call, found: Moments, rows: Callable[[], Iterator[Block]]
    ) -> tuple[np.ndarray, dict[str, Any]]:
        result = chosen(call, of_many_rows(call, found), rows(), by_target=False)
        return result.coef, result.attributes(call)

    def solve_few(
        self, call: Call, Y: Any, weight: Any
    ) -> tuple[Moments, np.ndarray, dict[str, Any]]:
        found, solution, rows = of_few_rows(call, Y, weight)
        result = chosen(call, solution, rows, by_target=False)
        return found, result.coef, result.attributes(call)
