"""Engines of `LinearRegression` and `Ridge`.

One pass for the moments, and a solution of the normal equations where they keep the digits. Where
they do not, a second pass makes the solution more exact, or reduces the rows to a triangle by
orthogonal steps, as scikit-learn's own routine does with all of X at once.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import scipy.linalg

from accelsk._linear_moments import intercept_of, of_model
from accelsk.algorithms import least_squares
from accelsk.algorithms.least_squares import Factor, Spectral, Triangulation
from accelsk.algorithms.moments import Accumulator, Moments
from accelsk.config import current
from accelsk.device.transfer import to_device, to_host
from accelsk.engines import inputs
from accelsk.engines.base import Call, Outcome, Rule, only, refuse
from accelsk.engines.moments import MomentsEngine, blocks, limits, moments
from accelsk.exceptions import Invalid, Refusal

__all__ = ["LinearRegressionOnMoments", "RidgeOnMoments", "float_dtype"]

#: Condition numbers of the scaled Gram matrix: up to the first the normal equations are solved as
#: they are, up to the second another pass makes their solution more exact, beyond it they are not
#: used.
_GOOD, _FAIR = 1e6, 1e12

#: Up to this one a step of correction recovers the digits of a penalised solution.
_CORRECTED = 1e10

#: scipy warns where the reciprocal condition number is below the machine epsilon.
_WARNED_OF = 1e13

#: Systems of up to this many equations are solved on the host: those of 512 take twice as long as
#: on the device (one H200, 2026-11-30).
_ON_HOST = 256


def float_dtype(call: Call) -> type[np.floating]:
    """Return the dtype in which scikit-learn has fitted attributes."""
    return np.float32 if call.X.dtype == np.float32 else np.float64


def _namespace(found: Moments) -> Any:
    if isinstance(found.gram, np.ndarray) and type(found.gram) is np.ndarray:
        return np
    import cupy

    return cupy


class _LeastSquares(MomentsEngine):
    """What `LinearRegression` and `Ridge` have in common."""

    methods = ("fit", "predict", "score")
    linear = True

    def every_rule(self) -> tuple[Rule, ...]:
        return (*super().every_rule(), inputs.target_rule(outputs=True))

    def restore(self, estimator: Any) -> SimpleNamespace:
        return of_model(estimator)

    def predictor(self, call: Call, model: Any) -> Callable[[Any], Any]:
        return lambda X: X @ model.coef_.T + model.intercept_

    # The steps of a fit

    @staticmethod
    def moments(call: Call) -> Moments:
        """Return the moments that the model rests on: about the mean where it has an intercept."""
        found = moments(call, host=call.X.shape[1] <= _ON_HOST)
        return found if call.parameters["fit_intercept"] else found.about_zero()

    @staticmethod
    def triangulated(call: Call, found: Moments) -> Spectral:
        """Return the problem in a second pass over the rows, by orthogonal steps."""
        import cupy

        triangulation = Triangulation(_means(found), cupy)
        for block in blocks(call):
            triangulation.add(*block)
        R, d = to_host(triangulation.result()), len(found.X_mean)
        return least_squares.spectral(R[:, :d], R[:, d:])

    @staticmethod
    def held(call: Call) -> tuple[Any, Any, Moments]:
        """Return X and y of few rows on the device, centred and weighted, and their means."""
        import cupy

        limit = current().device_memory_limit
        if limit is not None and 8 * call.X.shape[0] * call.X.shape[1] > limit:
            raise Refusal("X has fewer rows than columns and takes more than device_memory_limit")
        X = inputs.matrix(call, np.float64)
        Y = inputs.target(call, np.float64).reshape(len(X), -1)
        weight = inputs.weights(call, np.float64)
        factors = cupy.ones(len(X)) if weight is None else weight
        total = factors.sum()
        means = [cupy.zeros(X.shape[1]), cupy.zeros(Y.shape[1])]
        if call.parameters["fit_intercept"]:
            # what is the same in all rows is its own mean, exactly
            means = [a[0] + factors @ (a - a[0]) / total for a in (X, Y)]
        root = cupy.sqrt(factors)[:, None]
        X, Y = (X - means[0]) * root, (Y - means[1]) * root
        return X, Y, Moments(len(X), total, means[0], None, Y_mean=means[1])

    @staticmethod
    def finished(
        call: Call, found: Moments, coef: Any, *, flat: bool, **attributes: Any
    ) -> Outcome:
        """Return the outcome of a fit with coefficients of shape (n_features, n_targets)."""
        dtype, coef = float_dtype(call), to_host(coef).T
        if not np.isfinite(coef).all():
            raise Refusal("the coefficients are not finite")
        means = Moments(
            found.n_samples, 0.0, to_host(found.X_mean), None, Y_mean=to_host(found.Y_mean)
        )
        intercept = intercept_of(call, means, coef)
        if call.parameters["fit_intercept"]:
            intercept = intercept.astype(dtype)
        coef = np.ascontiguousarray((coef[0] if flat else coef).astype(dtype))
        given = {"coef_": coef, "intercept_": intercept, **attributes}
        return Outcome(model=of_model(SimpleNamespace(**given)), attributes=given)


def _means(found: Moments) -> tuple[Any, Any]:
    return to_device(found.X_mean), to_device(found.Y_mean)


class LinearRegressionOnMoments(_LeastSquares):
    rules = (
        refuse(
            "positive=True and no more rows than features",
            lambda call: call.parameters["positive"] and call.X.shape[-1:] >= call.X.shape[:1],
        ),
        # scikit-learn keeps that dtype, and answers in it
        refuse("X is float16", lambda call: call.X.dtype == np.float16, fit_only=False),
        inputs.HIDDEN_PRECISION,
        inputs.EXTENDED_PRECISION,
    )

    def fit(self, call: Call, X: Any) -> Outcome:
        if call.X.shape[0] <= call.X.shape[1]:
            import cupy

            rows, targets, found = self.held(call)
            problem = least_squares.wide(rows, targets, cupy, to_host)
            # what is left of a direction that the mean takes away is rounding
            return self._cut_off(call, found, problem, least=_ROUNDING)
        found = self.moments(call)
        solver = least_squares.factor(found.gram, _namespace(found))
        scaled, itself = (np.inf, np.inf) if solver is None else solver.conditions()
        half = None if solver is None else solver.half(found.XY)
        if solver is not None and _GOOD < scaled <= _FAIR:
            solver, half = self._again(call, found, solver)
        if call.parameters["positive"]:
            if solver is None or scaled > _FAIR:
                raise Refusal("X is rank-deficient or nearly so, and positive=True")
            coef = solver.positive(half, to_host)
            return self.finished(call, found, coef, flat=len(call.y.shape) == 1)
        if solver is None or scaled > _FAIR:
            return self._cut_off(call, found, self.triangulated(call, found))
        if np.sqrt(itself) * _cutoff(call) > 0.1:
            # singular values are at hand, and tell what is to be cut off
            return self._cut_off(call, found, solver.problem(half, to_host))
        outcome = self._finished(call, found, solver.back(half), solver.rank)
        outcome.model.solver = solver
        return outcome

    @staticmethod
    def _again(call: Call, found: Moments, solver: Factor) -> tuple[Factor | None, Any]:
        """Return a more exact factor and half solution, from another pass over the rows.

        The columns that are summed are nearly orthogonal now, which costs no digits.
        """
        import cupy

        X_mean, Y_mean = _means(found)
        inverse = cupy.asarray(solver.inverse_triangle())
        shift = (cupy.zeros(solver.rank), Y_mean)
        accumulator = Accumulator(cupy, shift, limits(call.X.shape[1])[1])
        for X, Y, weight in blocks(call):
            accumulator.add((X - X_mean) @ inverse, Y, weight)
        orthogonal = accumulator.result(host=_namespace(found) is np)
        if not call.parameters["fit_intercept"]:
            orthogonal = orthogonal.about_zero()
        again = least_squares.factor(orthogonal.gram, _namespace(found))
        if again is None or again.rank < solver.rank:
            return None, None
        return solver.refined(again), again.half(orthogonal.XY)

    def _cut_off(
        self, call: Call, found: Moments, problem: Spectral, *, least: float = 0.0
    ) -> Outcome:
        """Return the solution of least norm once small singular values are taken for zero."""
        singular = problem.singular
        kept = singular > max(_cutoff(call), least) * singular[0]
        factors = np.divide(1.0, singular, out=np.zeros_like(singular), where=kept)
        outcome = self._finished(call, found, problem.coef(factors), int(kept.sum()))
        outcome.attributes["singular_"] = singular.astype(float_dtype(call))
        return outcome

    def _finished(self, call: Call, found: Moments, coef: Any, rank: int) -> Outcome:
        return self.finished(
            call, found, coef, flat=len(call.y.shape) == 1, rank_=_rank_type()(rank)
        )

    def attributes(self, estimator: Any, model: SimpleNamespace) -> dict[str, Any]:
        """Return what was not at hand after the fit: singular values, if nobody needed them."""
        if not hasattr(model, "solver"):
            return {}
        singular = model.solver.singular(to_host)
        return {"singular_": singular.astype(estimator.coef_.dtype)}


#: Singular values below this part of the greatest are rounding, and below that one have few digits.
_ROUNDING, _NOISY = 1e-13, 1e-9


@functools.cache
def _cuts_at_tol(original: Any) -> bool:
    """Whether ``tol`` is where the release of scikit-learn cuts singular values off."""
    if "tol" not in original._get_param_names():
        return False
    shown = original(fit_intercept=False, tol=0.5).fit(np.diag([1.0, 0.1]), np.ones(2))
    return bool(shown.rank_ == 1)


def _cutoff(call: Call) -> float:
    """Return the part of the greatest singular value below which one is taken for zero."""
    epsilon = float(np.finfo(np.float64).eps)
    if not _cuts_at_tol(call.original):
        return max(call.X.shape) * epsilon
    tol = float(call.parameters["tol"])
    # what is no part of anything stands for the precision, in LAPACK
    return tol if 0 < tol < 1 else epsilon


@functools.cache
def _rank_type() -> Any:
    """Return the type in which the installed scipy, and so scikit-learn, gives a rank."""
    return type(scipy.linalg.lstsq(np.eye(1), np.ones(1))[2])


class RidgeOnMoments(_LeastSquares):
    rules = (
        only("positive", False),
        # the others iterate, and report how often in n_iter_
        only("solver", "auto", "svd", "cholesky"),
        refuse(
            Invalid("alpha has not the length of the targets"),
            lambda call: np.size(call.parameters["alpha"]) not in (1, *call.y.shape[1:]),
        ),
        inputs.EXTENDED_PRECISION,
    )

    def fit(self, call: Call, X: Any) -> Outcome:
        alpha = np.asarray(call.parameters["alpha"], np.float64).ravel()
        if not (np.isfinite(alpha) & (alpha >= 0)).all():
            raise Refusal("alpha is negative or not finite")
        alpha = np.broadcast_to(alpha, call.y.shape[1:] or (1,))
        if call.X.shape[0] < call.X.shape[1]:
            found, coef = self._dual(call, alpha)
        else:
            found, coef = self._primal(call, alpha)
        solver = call.parameters["solver"]
        return self.finished(
            call,
            found,
            coef,
            flat=coef.shape[1] == 1,
            solver_="cholesky" if solver == "auto" else solver,
            n_iter_=None,
        )

    def _primal(self, call: Call, alpha: np.ndarray) -> tuple[Moments, Any]:
        found = self.moments(call)
        solvers = _Penalised(found.gram, alpha, _namespace(found))
        if solvers.condition > _CORRECTED or solvers.warned_of:
            return found, self._by_singular_values(call, alpha, self.triangulated(call, found))
        coef = solvers.solve(found.XY)
        if solvers.condition > _GOOD:
            penalty = coef * _namespace(found).asarray(alpha)
            coef = coef + solvers.solve(self._gradient(call, found, coef) - penalty)
        return found, coef

    @staticmethod
    def _gradient(call: Call, found: Moments, coef: Any) -> Any:
        """Return X' (y - X coef) of centred data, in another pass over the rows."""
        import cupy

        means, on_device = _means(found), cupy.asarray(coef)
        total = cupy.zeros(on_device.shape)
        for block in blocks(call):
            total += least_squares.gradient(*block, means, on_device, cupy)
        return to_host(total) if _namespace(found) is np else total

    def _dual(self, call: Call, alpha: np.ndarray) -> tuple[Moments, Any]:
        """Return the solution as a combination of the rows, of which there are few."""
        import cupy

        rows, targets, found = self.held(call)
        solvers = _Penalised(rows @ rows.T, alpha, cupy)
        if solvers.condition <= _GOOD:
            return found, rows.T @ solvers.solve(targets)
        problem = least_squares.wide(rows, targets, cupy, to_host)
        return found, self._by_singular_values(call, alpha, problem)

    @staticmethod
    def _by_singular_values(call: Call, alpha: np.ndarray, problem: Spectral) -> Any:
        if call.parameters["solver"] != "svd":
            raise Refusal("X is rank-deficient or nearly so beside the penalty")
        singular = problem.singular[:, None]
        least = _NOISY * singular.max()
        if (singular < least).any() and (alpha < least**2).any():
            raise Refusal("X is rank-deficient or nearly so, and the penalty does not hide it")
        kept = singular > 1e-15  # as in scikit-learn
        bottom = np.where(kept, singular**2 + alpha, 1.0)
        return problem.coef(np.where(kept, singular, 0.0) / bottom)


class _Penalised:
    """The factors of a Gram matrix with each of some penalties on its diagonal.

    Parameters
    ----------
    gram : array of shape (n, n)
    alpha : ndarray of shape (n_targets,)
    xp : module
        The array namespace.
    """

    def __init__(self, gram: Any, alpha: np.ndarray, xp: Any) -> None:
        self._xp = xp
        penalties, self._position = np.unique(alpha, return_inverse=True)
        self._solvers: list[Factor] = []
        self.condition, self.warned_of = 1.0, False
        for penalty in penalties:
            solver = least_squares.factor(gram + penalty * xp.eye(len(gram)), xp)
            if solver is None:
                self.condition = np.inf
                return
            scaled, itself = solver.conditions()
            self.condition = max(self.condition, scaled)
            self.warned_of = self.warned_of or itself > _WARNED_OF
            self._solvers.append(solver)

    def solve(self, right: Any) -> Any:
        """Return the solutions for the columns of `right`, each with its own penalty."""
        if len(self._solvers) == 1:
            return self._solvers[0].solve(right)
        result = self._xp.empty_like(right)
        for position, solver in enumerate(self._solvers):
            columns = self._xp.asarray(np.flatnonzero(self._position == position))
            result[:, columns] = solver.solve(right[:, columns])
        return result
