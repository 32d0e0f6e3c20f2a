"""`sklearn.linear_model`, with classes that try the GPU first."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
from sklearn.linear_model import _base, _coordinate_descent, _logistic, _ridge

from accelsk._logistic import LogisticRegressionOnCupy
from accelsk._mirror import mirror
from accelsk.algorithms import elastic_net, least_squares
from accelsk.device.transfer import is_device_array, to_device
from accelsk.engines import inputs
from accelsk.engines.base import Call, Outcome, Rule, only, refuse
from accelsk.engines.cuml import CumlRegressor
from accelsk.engines.cupy import CupyEngine
from accelsk.engines.on_device import determination
from accelsk.estimator import Accelerated
from accelsk.exceptions import Invalid, Refusal

__all__, __getattr__, __dir__ = mirror(__name__)


def _decision(engine: Any, call: Call, model: Any) -> Any:
    """Return X @ coef.T + intercept in the dtype that NumPy would give it."""
    return engine.matrix(call) @ model.coef_.T + _intercept_on_device(model)


def _intercept_on_device(model: Any) -> Any:
    """Return the intercept on the device; a Python float imposes no dtype and stays one."""
    value = model.intercept_
    if type(value) is float or is_device_array(value):
        return value
    return to_device(np.asarray(value))


def _restored(estimator: Any) -> SimpleNamespace:
    """Return on the device what methods read of a linear model, whatever solver fitted it."""
    return SimpleNamespace(
        coef_=to_device(np.asarray(estimator.coef_)),
        intercept_=_intercept_on_device(estimator),
    )


def _dtype(call: Call) -> type[np.floating]:
    """Return the dtype in which scikit-learn has fitted attributes."""
    return np.float32 if call.X.dtype == np.float32 else np.float64


class _LinearOnCuml(CumlRegressor):
    """Least squares in float64 on the device, whatever comes in; attributes as scikit-learn's."""

    methods = ("fit", "predict", "score")
    outputs = True
    min_rows = 2

    def matrix(self, call: Call) -> Any:
        X = super().matrix(call)
        return X.astype(np.float64, copy=False) if call.fits else X

    def predict(self, call: Call, model: Any) -> Any:
        return _decision(self, call, model)

    def restore(self, estimator: Any) -> SimpleNamespace:
        return _restored(estimator)

    def fit(self, call: Call, X: Any) -> Outcome:
        import cupy

        outcome = super().fit(call, X)
        model = outcome.model
        coef, intercept = cupy.atleast_2d(model.coef_), cupy.atleast_1d(model.intercept_)
        coef, intercept, outcome.attributes = self.finish(call, X, coef, intercept)
        single = len(call.y.shape) == 1
        dtype = _dtype(call)
        model.coef_ = (coef[0] if single else coef).astype(dtype)
        if not call.parameters["fit_intercept"]:
            model.intercept_ = 0.0
        elif single:
            model.intercept_ = dtype(float(intercept[0]))
        else:
            model.intercept_ = intercept.astype(dtype)
        return outcome

    def finish(
        self, call: Call, X: Any, coef: Any, intercept: Any
    ) -> tuple[Any, Any, dict[str, Any]]:
        """Return the solution, as it is to stand, and what other attributes come with it."""
        return coef, intercept, {}


class _RidgeOnCuml(_LinearOnCuml):
    path = "linear_model.Ridge"
    rules = (
        only("positive", False),
        # the others iterate, and report how often in n_iter_
        only("solver", "auto", "svd", "cholesky"),
        # what becomes of the second axis depends on the release of scikit-learn
        refuse("y has one column", lambda call: call.y.shape[1:] == (1,), fit_only=True),
        refuse("alpha is an array", lambda call: np.ndim(call.parameters["alpha"]) > 0),
        refuse("alpha=0", lambda call: np.all(np.equal(call.parameters["alpha"], 0))),
        refuse("more features than rows", lambda call: call.X.shape[-1:] > call.X.shape[:1]),
        inputs.EXTENDED_PRECISION,
    )

    def finish(
        self, call: Call, X: Any, coef: Any, intercept: Any
    ) -> tuple[Any, Any, dict[str, Any]]:
        solver = call.parameters["solver"]
        return coef, intercept, {"solver_": "cholesky" if solver == "auto" else solver}


class _LinearRegressionOnCuml(_LinearOnCuml):
    path = "linear_model.LinearRegression"
    rules = (
        only("positive", False),
        refuse("no more rows than features", lambda call: call.X.shape[-1:] >= call.X.shape[:1]),
        # scikit-learn keeps that dtype, and answers in it
        refuse("X is float16", lambda call: call.X.dtype == np.float16, fit_only=False),
        refuse("X is a list or frame of float32", lambda call: call.X.narrow, fit_only=False),
        inputs.EXTENDED_PRECISION,
    )

    #: Below this ratio of singular values scikit-learn's rank decision rules the result.
    _well_posed = 1e-6

    def finish(
        self, call: Call, X: Any, coef: Any, intercept: Any
    ) -> tuple[Any, Any, dict[str, Any]]:
        import cupy

        fit_intercept = call.parameters["fit_intercept"]
        weight = inputs.weights(call, X.dtype)
        y = inputs.target(call, X.dtype).reshape(len(X), -1)
        Xc, X_mean = least_squares.centered(X, weight, fit_intercept, cupy)
        yc, y_mean = least_squares.centered(y, weight, fit_intercept, cupy)
        R, singular = least_squares.triangle(Xc, cupy)
        # from 1.9 on, tol is where scikit-learn cuts singular values off
        cutoff = max(self._well_posed, call.parameters.get("tol", 0))
        if not bool(singular[-1] > cutoff * singular[0]):
            raise Refusal("X is rank-deficient or nearly so")
        coef = least_squares.refined(coef.T, Xc, yc, R, cupy).T
        attributes = {
            "rank_": np.int64(len(singular)),
            "singular_": singular.get().astype(_dtype(call)),
        }
        return coef, y_mean - X_mean @ coef.T, attributes


#: The Gram matrix of more features takes longer to fetch and to descend on than it saves.
_MOST_FEATURES = 10_000

#: Below this, rounding in the Gram matrix is felt in the duality gap.
_FINEST_TOL = 1e-10


#: Rounding above this share of the L1 penalty is felt in the coefficients, and where the duality
#: gap cannot close any more, by the number of iterations.
_MOST_ROUNDING = 1e-5


class _ElasticNetOnCupy(CupyEngine):
    """The moments of the data on the device, then scikit-learn's own coordinate descent.

    So the iterations, the duality gap and the ConvergenceWarning are scikit-learn's. Moments are
    float64 whatever comes in.
    """

    methods = ("fit", "predict", "score")
    rules = (
        refuse("alpha=0", lambda call: call.parameters["alpha"] == 0),
        refuse("no L1 penalty", lambda call: call.estimator.l1_ratio == 0),
        refuse(Invalid("max_iter is None"), lambda call: call.parameters["max_iter"] is None),
        only("precompute", False, True),
        refuse("check_input=False", lambda call: call.arguments["check_input"] is not True),
        refuse("more features than rows", lambda call: call.X.shape[-1:] > call.X.shape[:1]),
        inputs.EXTENDED_PRECISION,
        refuse(
            f"more than {_MOST_FEATURES} features",
            lambda call: call.X.shape[-1:] > (_MOST_FEATURES,),
        ),
        refuse(
            f"tol below {_FINEST_TOL:g} without precompute=True",
            lambda call: call.parameters["tol"] < _FINEST_TOL and not call.parameters["precompute"],
        ),
    )

    def every_rule(self) -> tuple[Rule, ...]:
        return (*super().every_rule(), inputs.target_rule(outputs=True))

    def fit(self, call: Call, X: Any) -> Outcome:
        import cupy

        X = X.astype(np.float64, copy=False)
        y = inputs.target(call, X.dtype).reshape(len(X), -1)
        weight = inputs.weights(call, X.dtype)
        fit_intercept = call.parameters["fit_intercept"]
        moments = elastic_net.moments(X, y, weight, fit_intercept, cupy)
        l1_penalty = call.parameters["alpha"] * call.estimator.l1_ratio
        if not elastic_net.rounding(moments) < _MOST_ROUNDING * l1_penalty:
            raise Refusal("X and y are too large for the penalty to stand out from rounding")
        coef = self._start(call, y.shape[1])
        gaps, n_iters = [], []
        for target in range(len(coef)):
            coef[target], gap, n_iter = elastic_net.descend(
                moments, target, coef[target], **self._parameters(call)
            )
            gaps.append(gap)
            n_iters.append(n_iter)
        if not np.isfinite(coef).all():
            raise Refusal("the coefficients are not finite")
        attributes = self._attributes(call, moments, coef, gaps, n_iters)
        return Outcome(model=_restored(SimpleNamespace(**attributes)), attributes=attributes)

    @staticmethod
    def _start(call: Call, n_targets: int) -> np.ndarray:
        """Return the coefficients to start from."""
        start = np.zeros((n_targets, call.X.shape[1]))
        if call.parameters["warm_start"] and hasattr(call.estimator, "coef_"):
            earlier = np.atleast_2d(call.estimator.coef_)
            if earlier.shape != start.shape:
                raise Refusal("the earlier coefficients have another shape")
            start[:] = earlier
        return start

    @staticmethod
    def _parameters(call: Call) -> dict[str, Any]:
        names = ("positive", "tol", "max_iter", "random_state", "selection")
        return {
            "alphas": [call.parameters["alpha"]],
            "l1_ratio": call.estimator.l1_ratio,
            **{name: call.parameters[name] for name in names},
        }

    @staticmethod
    def _attributes(
        call: Call,
        moments: elastic_net.Moments,
        coef: np.ndarray,
        gaps: list[float],
        n_iters: list[int],
    ) -> dict[str, Any]:
        """Return the fitted attributes: of one target, or of several."""
        dtype = _dtype(call)
        intercept: Any = 0.0
        if call.parameters["fit_intercept"]:
            intercept = (moments.y_mean - coef @ moments.X_mean).astype(dtype)
            intercept = intercept[0] if len(call.y.shape) == 1 else intercept
        coef, gap = coef.astype(dtype), np.asarray(gaps, dtype)
        single = len(coef) == 1
        return {
            "coef_": coef[0] if single else coef,
            "intercept_": intercept,
            "dual_gap_": gap[0] if single else gap,
            "n_iter_": n_iters[0] if single else n_iters,
        }

    def predict(self, call: Call, model: Any) -> Any:
        return _decision(self, call, model)

    def score(self, call: Call, model: Any) -> float:
        """Return the coefficient of determination; the predictions come from the device."""
        return determination(call, self.predict(call, model))

    def restore(self, estimator: Any) -> SimpleNamespace:
        return _restored(estimator)


class Ridge(Accelerated, _ridge.Ridge, engines=[_RidgeOnCuml()]): ...


class LinearRegression(
    Accelerated, _base.LinearRegression, engines=[_LinearRegressionOnCuml()]
): ...


class LogisticRegression(
    Accelerated, _logistic.LogisticRegression, engines=[LogisticRegressionOnCupy()]
): ...


class ElasticNet(Accelerated, _coordinate_descent.ElasticNet, engines=[_ElasticNetOnCupy()]): ...


class Lasso(ElasticNet, _coordinate_descent.Lasso, engines=[_ElasticNetOnCupy()]): ...
