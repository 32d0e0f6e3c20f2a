"""Engines of Bayesian ridge regression and of automatic relevance determination."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
from sklearn.linear_model import _bayes

from accelsk._linear_moments import LONG, QUIET, Problem, Solved, Warned, few_features
from accelsk._sklearn import VERSION
from accelsk.algorithms.bayesian_ridge import Prior, posterior
from accelsk.algorithms.moments import Moments
from accelsk.algorithms.relevance import relevance
from accelsk.device.transfer import to_device
from accelsk.engines.base import Call, Rule, refuse
from accelsk.engines.moments import mapped
from accelsk.exceptions import Refusal

__all__ = ["ARDOnMoments", "BayesianRidgeOnMoments"]

#: Rounding in the eigenvalues may be this share of the smallest with its penalty.
_MOST_ROUNDING = 1e-8


@cache
def _centred() -> bool:
    """Whether the installed scikit-learn takes the mean off X before it tells the deviation."""
    model = _bayes.BayesianRidge().fit([[1.0], [2.0], [4.0]], [1.0, 3.0, 2.0])
    deviations = model.predict([[1.0], [2.0], [7.0]], return_std=True)[1]
    return bool(np.argmin(deviations) == 1)


class _Bayesian(Solved):
    """What Bayesian ridge regression and the determination of relevance have in common."""

    options: tuple[str, ...] = ("compute_score", "fit_intercept")
    rules: tuple[Rule, ...] = (
        QUIET,
        LONG,
        few_features(5_000),
        refuse(
            "return_std is neither True nor False",
            lambda call: not isinstance(call.arguments.get("return_std", False), bool),
            fit_only=False,
        ),
        # of which scikit-learn makes a series of pandas'
        refuse(
            "return_std=True for a frame",
            lambda call: call.X.kind == "frame" and call.arguments.get("return_std"),
            fit_only=False,
        ),
    )

    @staticmethod
    def prior(call: Call) -> Prior:
        names = ("alpha_1", "alpha_2", "lambda_1", "lambda_2")
        return Prior(**{name: call.parameters[name] for name in names})

    @staticmethod
    def first_alpha(centred: Moments) -> float:
        """Return the precision of the noise to start from."""
        return 1.0 / (centred.YY[0] / centred.weight + np.finfo(np.float64).eps)

    def used(self, fitted: Any) -> np.ndarray:
        """Return which coefficients the covariance is about."""
        return np.ones(len(fitted.coef_), bool)

    def predict(self, call: Call, model: Any) -> Any:
        """Return the means of the predictions, and where they are asked for their deviations."""
        if not call.arguments["return_std"]:
            return super().predict(call, model)
        import cupy

        fitted = call.estimator
        used = self.used(fitted)
        columns = slice(None) if used.all() else to_device(np.flatnonzero(used))
        covariance, alpha = to_device(fitted.sigma_), to_device(np.asarray(fitted.alpha_))
        offset = to_device(fitted.X_offset_) if _centred() else None
        mean = self.predictor(call, model)

        def both(X: Any) -> Any:
            apart = (X if offset is None else X - offset)[:, columns]
            variance = (apart @ covariance * apart).sum(axis=1)
            return mean(X), cupy.sqrt(variance + 1.0 / alpha)

        def valid(X: Any, result: Any) -> Any:
            return cupy.isfinite(result[0]).all() & cupy.isfinite(result[1]).all()

        return mapped(call, both, valid)


class BayesianRidgeOnMoments(_Bayesian):
    """The eigenvectors of the Gram matrix, then the iterations along them."""

    rules = (
        *_Bayesian.rules,
        refuse(
            "sample_weight before scikit-learn 1.7",
            lambda call: VERSION.release < (1, 7) and call.sample_weight.given,
        ),
        refuse("alpha_init=0", lambda call: call.parameters["alpha_init"] == 0),
        refuse("lambda_init=0", lambda call: call.parameters["lambda_init"] == 0),
    )

    def solve(self, call: Call, problem: Problem, warned: Warned) -> dict[str, Any]:
        parameters, found = call.parameters, problem.found
        eigenvalues, vectors = np.linalg.eigh(found.gram)
        eigenvalues = eigenvalues.clip(0)
        alpha, lambda_ = parameters["alpha_init"], parameters["lambda_init"]
        result = posterior(
            found,
            problem.residuals,
            eigenvalues,
            vectors,
            self.prior(call),
            self.first_alpha(problem.centred) if alpha is None else float(alpha),
            1.0 if lambda_ is None else float(lambda_),
            parameters["max_iter"],
            parameters["tol"],
            parameters["compute_score"],
        )
        rounding = np.finfo(np.float64).eps * eigenvalues[-1]
        if not rounding < _MOST_ROUNDING * (eigenvalues[0] + result.least):
            raise Refusal("features are nearly collinear")
        return {
            "coef_": result.coef,
            "alpha_": result.alpha,
            "lambda_": result.lambda_,
            "sigma_": result.covariance,
            "scores_": [] if result.scores is None else np.array(result.scores),
            "n_iter_": result.n_iter,
            "X_offset_": found.X_mean,
            "X_scale_": np.ones(len(result.coef)),
        }


class ARDOnMoments(_Bayesian):
    """A precision for each coefficient, from the Gram matrix."""

    def used(self, fitted: Any) -> np.ndarray:
        return fitted.lambda_ < fitted.threshold_lambda

    def solve(self, call: Call, problem: Problem, warned: Warned) -> dict[str, Any]:
        names = ("threshold_lambda", "max_iter", "tol", "compute_score")
        options = [call.parameters[name] for name in names]
        found, centred, residuals = problem
        alpha = self.first_alpha(centred)
        result = relevance(found, residuals, self.prior(call), alpha, *options)
        kept = result.lambda_ < call.parameters["threshold_lambda"]
        if kept.any():
            among = result.alpha * found.gram[np.ix_(kept, kept)]
            eigenvalues = np.linalg.eigvalsh(np.diag(result.lambda_[kept]) + among)
            rounding = np.finfo(np.float64).eps * eigenvalues[-1]
            if not rounding < _MOST_ROUNDING * eigenvalues[0]:
                raise Refusal("features are nearly collinear")
        return {
            "coef_": result.coef,
            "alpha_": result.alpha,
            "lambda_": result.lambda_,
            "sigma_": result.covariance,
            "scores_": result.scores,
            "n_iter_": result.n_iter,
            "X_offset_": found.X_mean,
            "X_scale_": np.ones(len(result.coef)),
        }
