"""Engines of orthogonal matching pursuit, on scikit-learn's own steps for a Gram matrix."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.linear_model._omp import orthogonal_mp_gram

from accelsk._folds import Folded
from accelsk._linear_moments import (
    LONG,
    QUIET,
    ROUTING,
    SPLITTER,
    SPLITTER_PARAMETERS,
    LinearOnMoments,
    Problem,
    Solved,
    Warned,
    few_features,
)
from accelsk.algorithms.least_squares import factor
from accelsk.algorithms.moments import Moments
from accelsk.engines import inputs
from accelsk.engines.base import Call, Outcome, only, refuse
from accelsk.exceptions import Invalid, Refusal

__all__ = ["MatchingPursuitCVOnMoments", "MatchingPursuitOnMoments"]

#: What may be left of the squares of the target, at least, for its digits to be there.
_LEAST_RESIDUAL = 1e-6

_ENDS_EARLY = "the pursuit ends early, as rounding decides"

#: Beyond this condition number of the Gram matrix of the chosen features, scaled to ones, their
#: coefficients have few digits.
_MOST_COLLINEAR = 1e8


def _check(moments: Moments, coef: np.ndarray) -> None:
    """Refuse coefficients of features that are nearly collinear."""
    for one in np.atleast_2d(coef):
        chosen = np.flatnonzero(one)
        solver = factor(moments.gram[np.ix_(chosen, chosen)], np)
        if solver is None or not solver.conditions()[0] < _MOST_COLLINEAR:
            raise Refusal("features are nearly collinear")


class MatchingPursuitOnMoments(Solved):
    """One feature after the other, that which goes best with what is left of the target."""

    outputs = True
    options = ("fit_intercept", "tol", "n_nonzero_coefs")
    rules = (
        inputs.HIDDEN_PRECISION,  # before scikit-learn 1.8
        LONG,
        only("precompute", "auto", True),
        few_features(5_000),
        refuse("X has one column", lambda call: call.X.shape[-1:] == (1,)),
    )

    def example(self, call: Call) -> dict[str, Any]:
        chosen = call.parameters["n_nonzero_coefs"]
        return {"n_nonzero_coefs": None if chosen is None else type(chosen)(1)}

    def solve(self, call: Call, problem: Problem, warned: Warned) -> dict[str, Any]:
        found = problem.found
        tol, chosen = call.parameters["tol"], call.parameters["n_nonzero_coefs"]
        if tol is not None:
            chosen = None
            if not (tol > _LEAST_RESIDUAL * found.YY).all():
                raise Refusal("tol is near the rounding of the sums of squares")
        elif chosen is None:
            chosen = max(int(0.1 * len(found.gram)), 1)
        with warned.listening():
            coef, n_iter = orthogonal_mp_gram(
                found.gram,
                Xy=found.XY if found.XY.shape[1] > 1 else found.XY[:, 0],
                n_nonzero_coefs=chosen,
                tol=tol,
                norms_squared=found.YY,
                return_n_iter=True,
            )
        warned.refuse_any(_ENDS_EARLY)
        _check(found, coef.T)
        return {"coef_": np.atleast_1d(coef.T), "n_iter_": n_iter, "n_nonzero_coefs_": chosen}


class MatchingPursuitCVOnMoments(LinearOnMoments):
    """The number of features that leaves the least error on rows left out."""

    rules = (
        inputs.HIDDEN_PRECISION,
        QUIET,
        ROUTING,
        SPLITTER,
        SPLITTER_PARAMETERS,
        LONG,
        few_features(5_000),
        refuse(Invalid("X has one column"), lambda call: call.X.shape[-1:] == (1,)),
    )

    def fit(self, call: Call, X: Any) -> Outcome:
        folded, warned = Folded(call), Warned()
        d = call.X.shape[1]
        most = call.parameters["max_iter"] or min(max(int(0.1 * d), 5), d)
        if most > d:
            raise Refusal(Invalid("max_iter is above the number of features"))

        def pursued(moments: Moments, steps: int, **options: Any) -> Any:
            return orthogonal_mp_gram(
                moments.gram, Xy=moments.XY[:, 0], n_nonzero_coefs=steps, **options
            )

        with warned.listening():
            paths = [pursued(part, most, return_path=True) for part in folded.train]
        warned.refuse_any(_ENDS_EARLY)
        paths = [path.reshape(d, -1) for path in paths]
        for part, path in zip(folded.train, paths, strict=True):
            _check(part, path[:, -1])
        errors = folded.errors(paths)
        best = np.mean(errors, axis=0).argmin() + 1
        with warned.listening():
            coef, n_iter = pursued(folded.found, int(best), return_n_iter=True)
        warned.refuse_any(_ENDS_EARLY)
        attributes = {"coef_": coef, "n_iter_": n_iter, "n_nonzero_coefs_": best}
        return self.finished(call, folded.found, attributes, warned)
