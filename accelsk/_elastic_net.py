"""The engine of `Lasso` and `ElasticNet`."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np

from accelsk._least_squares import float_dtype
from accelsk._linear_moments import intercept_of, of_model
from accelsk.algorithms import elastic_net
from accelsk.engines import inputs
from accelsk.engines.base import Call, Outcome, Rule, only, refuse
from accelsk.engines.moments import MomentsEngine, moments
from accelsk.exceptions import Invalid, Refusal

__all__ = ["ElasticNetOnMoments"]

#: The Gram matrix of more features takes longer to fetch and to descend on than it saves.
_MOST_FEATURES = 10_000

#: Below this, rounding in the Gram matrix is felt in the duality gap.
_FINEST_TOL = 1e-10

#: Rounding above this share of the L1 penalty is felt in the coefficients, and where the duality
#: gap cannot close any more, by the number of iterations.
_MOST_ROUNDING = 1e-5


class ElasticNetOnMoments(MomentsEngine):
    """The moments of the data in one pass, then scikit-learn's own coordinate descent.

    So the iterations, the duality gap and the ConvergenceWarning are scikit-learn's. Moments are
    float64 whatever comes in.
    """

    methods = ("fit", "predict", "score")
    linear = True
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
        found = moments(call)
        if not call.parameters["fit_intercept"]:
            found = found.about_zero()
        problem = elastic_net.of_moments(found)
        l1_penalty = call.parameters["alpha"] * call.estimator.l1_ratio
        if not elastic_net.rounding(problem) < _MOST_ROUNDING * l1_penalty:
            raise Refusal("X and y are too large for the penalty to stand out from rounding")
        coef = self._start(call, len(problem.yy))
        gaps, n_iters = [], []
        for target in range(len(coef)):
            coef[target], gap, n_iter = elastic_net.descend(
                problem, target, coef[target], **self._parameters(call)
            )
            gaps.append(gap)
            n_iters.append(n_iter)
        if not np.isfinite(coef).all():
            raise Refusal("the coefficients are not finite")
        attributes = self._attributes(call, intercept_of(call, found, coef), coef, gaps, n_iters)
        return Outcome(model=of_model(SimpleNamespace(**attributes)), attributes=attributes)

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
        call: Call, intercept: Any, coef: np.ndarray, gaps: list[float], n_iters: list[int]
    ) -> dict[str, Any]:
        """Return the fitted attributes: of one target, or of several."""
        dtype = float_dtype(call)
        if call.parameters["fit_intercept"]:
            intercept = intercept.astype(dtype)
        coef, gap = coef.astype(dtype), np.asarray(gaps, dtype)
        single = len(coef) == 1
        return {
            "coef_": coef[0] if single else coef,
            "intercept_": intercept,
            "dual_gap_": gap[0] if single else gap,
            "n_iter_": n_iters[0] if single else n_iters,
        }

    def restore(self, estimator: Any) -> SimpleNamespace:
        return of_model(estimator)

    def predictor(self, call: Call, model: Any) -> Callable[[Any], Any]:
        return lambda X: X @ model.coef_.T + model.intercept_
