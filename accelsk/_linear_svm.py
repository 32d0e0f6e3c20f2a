"""Engines of the linear support vector machines, and what all of `accelsk.svm` shares."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np
from sklearn.utils import check_random_state, column_or_1d
from sklearn.utils.class_weight import compute_class_weight

from accelsk.algorithms import linear_svm
from accelsk.device.transfer import to_host
from accelsk.engines import inputs
from accelsk.engines.base import Call, Outcome, Rule, only, refuse
from accelsk.engines.cupy import CupyEngine
from accelsk.engines.on_device import accuracy, determination, labelled
from accelsk.exceptions import Invalid, Refusal

__all__ = [
    "LinearSVCOnCupy",
    "LinearSVROnCupy",
    "TARGET",
    "class_weights",
    "draw_seed",
    "target",
    "warnings_of_target",
]


def class_weights(call: Call, codes: Any, classes: np.ndarray) -> np.ndarray:
    """Return the weight that ``class_weight`` gives each class.

    Parameters
    ----------
    call : Call
    codes : cupy.ndarray of int of shape (n_samples,)
        Positions in `classes`.
    classes : ndarray of shape (n_classes,)

    Raises
    ------
    ValueError
        Where ``class_weight`` names labels that are not among the classes.
    """
    class_weight = call.parameters["class_weight"]
    if isinstance(class_weight, str):
        import cupy

        counts = to_host(cupy.bincount(codes, minlength=len(classes)))
        return len(codes) / (len(classes) * counts)
    return compute_class_weight(class_weight, classes=classes, y=classes)


def draw_seed(call: Call) -> int:
    """Draw what scikit-learn draws to seed its solver, so that later draws are the same."""
    random_state = check_random_state(call.parameters.get("random_state"))
    return int(random_state.randint(np.iinfo("i").max))


#: One target: a column of several rows is one, too, of which scikit-learn warns.
TARGET = (
    inputs.target_rule(outputs=True),
    refuse(Invalid("y has several columns"), lambda call: call.y.shape[1:] not in ((), (1,))),
)


def target(call: Call) -> Any:
    """Return ``y`` on the device, with one dimension."""
    return inputs.target(call, np.float64).reshape(-1)


def warnings_of_target(call: Call) -> list[Callable[[], Any]]:
    """Return what gives the warning that scikit-learn gives of a column."""
    if len(call.y.shape) == 1:
        return []
    return [partial(column_or_1d, to_host(call.y.value), warn=True)]


#: Newton's steps take the products of all features with each other.
_MOST_FEATURES = 5_000

#: Those steps are few. Where liblinear, which needs more, is not given more, it stops and warns.
_FEWEST_ITERATIONS = 100


class _LinearOnCupy(CupyEngine):
    """The exact minimum of liblinear's objective, the penalty on the intercept included."""

    dtype = np.float64
    state = ("coef_", "intercept_")
    rules: tuple[Rule, ...] = (
        only("penalty", "l2"),
        only("multi_class", "ovr"),
        only("verbose", 0, False),
        inputs.EXTENDED_PRECISION,
        refuse(
            f"more than {_MOST_FEATURES} features",
            lambda call: call.X.shape[-1:] > (_MOST_FEATURES,),
        ),
        refuse(
            f"max_iter below {_FEWEST_ITERATIONS}: scikit-learn's solver may stop early",
            lambda call: call.parameters["max_iter"] < _FEWEST_ITERATIONS,
        ),
        refuse("C is infinite", lambda call: call.parameters["C"] == np.inf),
        refuse(
            Invalid("dual=False with a loss that is not squared"),
            lambda call: (
                call.parameters["dual"] is False
                and not call.parameters["loss"].startswith("squared")
            ),
        ),
    )

    def rows(self, call: Call, X: Any) -> tuple[Any, Any]:
        """Return the rows that have weight and their weights, None where all weigh the same."""
        weight = inputs.weights(call, np.float64)
        if weight is None or bool((weight > 0).all()):
            return slice(None), weight
        return weight > 0, weight[weight > 0]

    def columns(self, call: Call, X: Any) -> Any:
        """Return X with the constant column whose coefficient makes the intercept."""
        import cupy

        if not call.parameters["fit_intercept"]:
            return X
        constant = cupy.full((len(X), 1), float(call.parameters["intercept_scaling"]))
        return cupy.concatenate([X, constant], axis=1)

    def checked(self, call: Call, fits: list[linear_svm.Fit]) -> SimpleNamespace:
        """Return the model of these fits, one for each row of coefficients."""
        import cupy

        if not all(fit.converged for fit in fits):
            raise Refusal(f"no convergence within max_iter={call.parameters['max_iter']}")
        coef: Any = cupy.stack([fit.coef for fit in fits])
        intercept: Any = 0.0
        if call.parameters["fit_intercept"]:
            coef, last = coef[:, :-1], coef[:, -1]
            intercept = call.parameters["intercept_scaling"] * last
        draw_seed(call)
        return SimpleNamespace(
            coef_=coef, intercept_=intercept, n_iter_=max(fit.n_iter for fit in fits)
        )

    def restore(self, estimator: Any) -> SimpleNamespace:
        if not isinstance(estimator.coef_, np.ndarray):
            raise Refusal("the coefficients are sparse")
        return super().restore(estimator)

    def decisions(self, call: Call, model: Any) -> Any:
        return self.matrix(call) @ model.coef_.T + model.intercept_


class LinearSVCOnCupy(_LinearOnCupy):
    """One class against the rest; of two classes the second against the first."""

    methods = ("fit", "decision_function", "predict", "score")
    rules = (
        *_LinearOnCupy.rules,
        refuse(
            "class_weight='balanced' with sample_weight",
            lambda call: call.parameters["class_weight"] == "balanced" and call.sample_weight.given,
        ),
    )

    def every_rule(self) -> tuple[Rule, ...]:
        return (*super().every_rule(), inputs.LABELS)

    def fit(self, call: Call, X: Any) -> Outcome:
        import cupy

        codes, classes = inputs.labels(call)
        by_class = class_weights(call, codes, classes)
        rows, weight = self.rows(call, X)
        X, codes = self.columns(call, X[rows]), codes[rows]
        if int(cupy.unique(codes).size) < len(classes):
            raise Refusal("a class has no weight")
        fits = []
        for positive in range(len(classes)) if len(classes) > 2 else [1]:
            of_class = codes == positive
            # liblinear weighs the rest by its class where there are two classes only
            rest = by_class[0] if len(classes) == 2 else 1.0
            cost = call.parameters["C"] * cupy.where(of_class, by_class[positive], rest)
            cost = cost if weight is None else cost * weight
            side = cupy.where(of_class, 1.0, -1.0)
            fits.append(self._fit_one(call, X, side, cost))
        return Outcome(model=self.checked(call, fits), attributes={"classes_": classes})

    def _fit_one(self, call: Call, X: Any, side: Any, cost: Any) -> linear_svm.Fit:
        import cupy

        max_iter = call.parameters["max_iter"]
        if call.parameters["loss"] == "squared_hinge":
            loss = linear_svm.squared_hinge(side, cupy)
            return linear_svm.fit_squared(X, loss, cost, max_iter, cupy)
        bounds = cupy.ones((1, len(X)))
        return linear_svm.fit_hinge(X, side[None], bounds, cost, max_iter, cupy)

    def decision_function(self, call: Call, model: Any) -> Any:
        """Return a score for each class, of two classes for the second."""
        decisions = self.decisions(call, model)
        return decisions[:, 0] if decisions.shape[1] == 1 else decisions

    def predict(self, call: Call, model: Any) -> Any:
        """Return the labels of the highest scores."""
        scores = self.decision_function(call, model)
        codes = (scores > 0).astype(np.intp) if scores.ndim == 1 else scores.argmax(axis=1)
        return labelled(call, codes)

    def score(self, call: Call, model: Any) -> float:
        """Return the accuracy; the predictions come from the device."""
        return accuracy(call, self.predict(call, model))


class LinearSVROnCupy(_LinearOnCupy):
    methods = ("fit", "predict", "score")
    rules = (
        *_LinearOnCupy.rules,
        refuse("epsilon is negative", lambda call: call.parameters["epsilon"] < 0),
    )

    def every_rule(self) -> tuple[Rule, ...]:
        return (*super().every_rule(), *TARGET)

    def fit(self, call: Call, X: Any) -> Outcome:
        import cupy

        rows, weight = self.rows(call, X)
        X, y = self.columns(call, X[rows]), target(call)[rows]
        cost = call.parameters["C"] * (cupy.ones(len(X)) if weight is None else weight)
        epsilon, max_iter = call.parameters["epsilon"], call.parameters["max_iter"]
        if call.parameters["loss"] == "epsilon_insensitive":
            side = cupy.asarray([[1.0], [-1.0]]) * cupy.ones(len(X))
            fit = linear_svm.fit_hinge(X, side, side * y - epsilon, cost, max_iter, cupy)
        else:
            loss = linear_svm.squared_insensitive(y, epsilon, cupy)
            fit = linear_svm.fit_squared(X, loss, cost, max_iter, cupy)
        model = self.checked(call, [fit])
        model.coef_ = model.coef_[0]
        return Outcome(model=model, announce=warnings_of_target(call))

    def predict(self, call: Call, model: Any) -> Any:
        """Return predictions, float64 as in scikit-learn."""
        return self.decisions(call, model)

    def score(self, call: Call, model: Any) -> float:
        """Return the coefficient of determination; the predictions come from the device."""
        return determination(call, self.predict(call, model))
