"""Engines of least angle regression, on scikit-learn's own path for a Gram matrix."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.linear_model._least_angle import lars_path_gram

from accelsk._linear_moments import (
    LONG,
    QUIET,
    Problem,
    Solved,
    Warned,
    few_features,
)
from accelsk.algorithms.least_squares import Factor, factor
from accelsk.algorithms.moments import Moments
from accelsk.engines import inputs
from accelsk.engines.base import Call, Rule, only, refuse
from accelsk.exceptions import Refusal

__all__ = ["LarsOnMoments", "LassoLarsICOnMoments"]

#: Beyond this condition number of the scaled Gram matrix rounding is felt along the path.
_MOST_COLLINEAR = 1e8

#: From 1.9 on, the least squares that tell the noise cut off singular values below 1e-6 of the
#: largest one: the root of the condition number stays well below.
_MOST_APART = 1e10


class _OnPath(Solved):
    rules: tuple[Rule, ...] = (
        QUIET,
        LONG,
        inputs.HIDDEN_PRECISION,
        only("precompute", "auto", True),
        few_features(5_000),
    )

    @staticmethod
    def factor(found: Moments, most: float = np.inf) -> Factor:
        """Return the factor of a Gram matrix whose features are not nearly collinear.

        Rounding would decide about the path of others. `most` is how large the condition number
        may be before features are scaled to the same size.
        """
        solver = factor(found.gram, np)
        scaled, itself = (np.inf, np.inf) if solver is None else solver.conditions()
        if solver is None or not (scaled < _MOST_COLLINEAR and itself < most):
            raise Refusal("features are nearly collinear")
        return solver

    def path(
        self, call: Call, found: Moments, target: int, warned: Warned, **options: Any
    ) -> tuple[Any, ...]:
        """Return the penalties, the active features, coefficients and the number of steps."""
        with warned.listening():
            result = lars_path_gram(
                np.ascontiguousarray(found.XY[:, target]),
                np.ascontiguousarray(found.gram),
                n_samples=found.n_samples,
                eps=call.parameters["eps"],
                return_n_iter=True,
                positive=call.parameters.get("positive", False),
                **options,
            )
        warned.refuse_any("features are nearly collinear, or the path ends in rounding")
        return result


class LarsOnMoments(_OnPath):
    """Least angle regression, and the lasso that follows its path."""

    outputs = True
    options = ("fit_intercept", "fit_path")
    rules = (
        *_OnPath.rules,
        only("jitter", None),
        refuse("Xy is given", lambda call: call.arguments["Xy"] is not None),
    )

    def solve(self, call: Call, problem: Problem, warned: Warned) -> dict[str, Any]:
        parameters, whole = call.parameters, call.parameters["fit_path"]
        found = problem.found
        self.factor(found)
        steps = parameters["n_nonzero_coefs" if "n_nonzero_coefs" in parameters else "max_iter"]
        options = {
            "max_iter": steps,
            "alpha_min": parameters.get("alpha", 0.0),
            "method": call.estimator.method,
            "return_path": whole,
        }
        targets = range(found.XY.shape[1])
        paths = [self.path(call, found, target, warned, **options) for target in targets]
        alphas, active, coefs, n_iters = map(list, zip(*paths, strict=True))
        attributes = {"alphas_": alphas, "n_iter_": n_iters}
        if whole:
            attributes |= {"active_": active, "coef_path_": coefs}
            coefs = [coef[:, -1] for coef in coefs]
        if len(coefs) == 1:
            attributes = {name: values[0] for name, values in attributes.items()}
        one_dimension = whole and len(coefs) == 1
        return attributes | {"coef_": coefs[0] if one_dimension else np.array(coefs)}


class LassoLarsICOnMoments(_OnPath):
    """The lasso whose penalty an information criterion chooses."""

    options = ("fit_intercept", "noise_variance")
    rules = (
        *_OnPath.rules,
        refuse(
            "positive=True without noise_variance",
            lambda call: call.parameters["positive"] and call.parameters["noise_variance"] is None,
        ),
        refuse(
            "no more rows than features and one",
            lambda call: call.X.shape[0] <= call.X.shape[1] + 1,
        ),
        refuse("noise_variance=0", lambda call: call.parameters["noise_variance"] == 0),
    )

    def solve(self, call: Call, problem: Problem, warned: Warned) -> dict[str, Any]:
        parameters, found = call.parameters, problem.found
        solver = self.factor(found, _MOST_APART)
        alphas, _, coefs, n_iter = self.path(
            call, found, 0, warned, max_iter=parameters["max_iter"], alpha_min=0.0, method="lasso"
        )
        n_samples, n_features = found.n_samples, len(found.gram)
        left, noise = problem.residuals(coefs), parameters["noise_variance"]
        if noise is None:
            base, along = problem.residuals.base, problem.residuals.along
            solution = base + solver.solve(along[:, None])[:, 0]
            noise = problem.residuals(solution) / (
                n_samples - n_features - parameters["fit_intercept"]
            )
        freedom = (np.abs(coefs) > np.finfo(coefs.dtype).eps).sum(axis=0)
        price = 2 if parameters["criterion"] == "aic" else np.log(n_samples)
        criterion = n_samples * np.log(2 * np.pi * noise) + left / noise + price * freedom
        best = np.argmin(criterion)
        return {
            "alphas_": alphas,
            "n_iter_": n_iter,
            "noise_variance_": noise,
            "criterion_": criterion,
            "alpha_": alphas[best],
            "coef_": coefs[:, best],
        }
