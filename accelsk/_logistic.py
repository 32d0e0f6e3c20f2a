"""Logistic regression: scikit-learn's solvers on the host, over data that stays on the device."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np
from scipy import optimize

from accelsk import _sklearn
from accelsk._sklearn import VERSION, check_optimize_result, newton_cg
from accelsk.algorithms import logistic
from accelsk.device.transfer import to_device
from accelsk.engines import inputs
from accelsk.engines.base import Call, Outcome, only, refuse
from accelsk.engines.cupy import CupyEngine
from accelsk.engines.on_device import DeviceClassifier
from accelsk.exceptions import Refusal

__all__ = ["LogisticRegressionOnCupy"]


def _one_vs_rest(call: Call) -> bool:
    """Whether probabilities are asked of a model that was fitted one class against the rest."""
    apart = call.parameters["solver"] == "liblinear" or call.parameters.get(
        "multi_class", "deprecated"
    ) not in ("deprecated", "auto")
    return "proba" in call.method and apart


class LogisticRegressionOnCupy(DeviceClassifier, CupyEngine):
    """The same solver as scikit-learn's, hence its iterations, optimum and warnings.

    Loss and derivatives are float64 whatever comes in.
    """

    methods = (
        "fit",
        "decision_function",
        "predict",
        "predict_proba",
        "predict_log_proba",
        "score",
    )
    state = ("coef_", "intercept_")
    min_rows = 2
    rules = (
        # the others are compiled loops over rows ("sag", "saga", "liblinear") or want the Hessian
        only("solver", "lbfgs", "newton-cg"),
        # scikit-learn 1.8 deprecated penalty and warns where it is given
        only("penalty", *(["deprecated"] if VERSION.release >= (1, 8) else ["l2", None])),
        only("l1_ratio", *([0] if VERSION.release >= (1, 8) else [None])),
        only("multi_class", "deprecated"),
        only("warm_start", False),
        only("dual", False),
        only("verbose", 0),
        only("n_jobs", *([None] if VERSION.release >= (1, 8) else [None, 1, -1])),
        refuse("probabilities of one-vs-rest models", _one_vs_rest, fit_only=False),
        refuse(
            "class_weight='balanced' with sample_weight",
            lambda call: call.parameters["class_weight"] == "balanced" and call.sample_weight.given,
        ),
        refuse(
            "penalty=None with C",
            lambda call: call.parameters["penalty"] is None and call.parameters["C"] != 1.0,
        ),
        inputs.EXTENDED_PRECISION,
    )

    def fit(self, call: Call, X: Any) -> Outcome:
        import cupy

        codes, classes = inputs.labels(call)
        X = X.astype(np.float64, copy=False)
        by_class = self.weight_by_class(call, codes, classes)
        parameters = call.parameters
        objective = logistic.Objective(
            X,
            codes,
            len(classes),
            self.row_weights(call, X, codes, by_class),
            C=np.inf if parameters["penalty"] is None else parameters["C"],
            fit_intercept=parameters["fit_intercept"],
            xp=cupy,
        )
        solve = _by_lbfgs if parameters["solver"] == "lbfgs" else _by_newton_cg
        w, n_iter, announce = solve(objective, parameters["tol"], parameters["max_iter"])
        if not np.isfinite(w).all():
            raise Refusal("the coefficients are not finite")
        coef = objective.matrix(w).astype(_dtype(call))
        intercept = np.zeros(len(coef), coef.dtype)
        if parameters["fit_intercept"]:
            coef, intercept = coef[:, :-1], coef[:, -1]
        attributes = {
            "classes_": classes,
            "coef_": coef,
            "intercept_": intercept,
            "n_iter_": np.array([n_iter], np.int32),
        }
        model = SimpleNamespace(coef_=to_device(coef), intercept_=to_device(intercept))
        return Outcome(model=model, attributes=attributes, announce=announce)

    def decision_function(self, call: Call, model: Any) -> Any:
        """Return the scores, of shape (n_samples,) for two classes."""
        scores = self.matrix(call) @ model.coef_.T + model.intercept_
        return scores[:, 0] if scores.shape[1] == 1 else scores

    def codes(self, call: Call, model: Any) -> Any:
        scores = self.decision_function(call, model)
        return (scores > 0).astype(np.intp) if scores.ndim == 1 else scores.argmax(axis=1)

    def predict_proba(self, call: Call, model: Any) -> Any:
        import cupy

        return logistic.probabilities(self.decision_function(call, model), cupy)


def _dtype(call: Call) -> type[np.floating]:
    """Return the dtype in which scikit-learn has the coefficients."""
    # before 1.9 "lbfgs" cast all input to float64
    keeps = VERSION.release >= (1, 9) or call.parameters["solver"] != "lbfgs"
    return np.float32 if call.X.dtype == np.float32 and keeps else np.float64


Solution = tuple[np.ndarray, int, list[Callable[[], Any]]]


def _by_lbfgs(objective: logistic.Objective, tol: float, max_iter: int) -> Solution:
    result = optimize.minimize(
        objective.value_and_gradient,
        objective.start,
        method="L-BFGS-B",
        jac=True,
        # scikit-learn's settings
        options={
            "maxiter": max_iter,
            "maxls": 50,
            "gtol": tol,
            "ftol": 64 * np.finfo(float).eps,
        },
    )
    warn = partial(
        check_optimize_result,
        "lbfgs",
        result,
        max_iter,
        extra_warning_msg=_sklearn.LOGISTIC_SOLVER_CONVERGENCE_MSG,
    )
    return result.x, min(result.nit, max_iter), [warn]


def _by_newton_cg(objective: logistic.Objective, tol: float, max_iter: int) -> Solution:
    w, n_iter = newton_cg(
        objective.gradient_and_product,
        objective.value,
        objective.gradient,
        objective.start,
        tol=tol,
        maxiter=max_iter,
    )
    return w, n_iter, []
