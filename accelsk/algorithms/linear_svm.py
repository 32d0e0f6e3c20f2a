"""Linear support vector machines: the exact minimum of liblinear's objectives.

The objective is half the squared norm of the coefficients plus the cost of each row times its
loss. An intercept is the coefficient of a constant column, and penalised like the others, as in
liblinear. Both methods take a few dozen products of the features with each other, whatever the
number of rows.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

__all__ = ["Fit", "fit_hinge", "fit_squared", "squared_hinge", "squared_insensitive"]


class Fit(NamedTuple):
    """Where a method ended.

    Attributes
    ----------
    coef : array of shape (n_features,)
    n_iter : int
    converged : bool
        Whether the minimum was reached, as far as float64 goes.
    """

    coef: Any
    n_iter: int
    converged: bool


#: From decision values to the loss of each row, and its first and second derivative.
Loss = Callable[[Any], tuple[Any, Any, Any]]


def squared_hinge(sign: Any, xp: Any) -> Loss:
    """Return the squared hinge loss for rows on the sides `sign` (+1 or -1)."""

    def loss(decision: Any) -> tuple[Any, Any, Any]:
        short = xp.maximum(1 - sign * decision, 0)
        return short * short, -2 * sign * short, 2.0 * (short > 0)

    return loss


def squared_insensitive(y: Any, epsilon: float, xp: Any) -> Loss:
    """Return the squared epsilon-insensitive loss for targets `y`."""

    def loss(decision: Any) -> tuple[Any, Any, Any]:
        residual = decision - y
        excess = xp.maximum(xp.abs(residual) - epsilon, 0)
        return excess * excess, 2 * xp.sign(residual) * excess, 2.0 * (excess > 0)

    return loss


#: How much smaller than at the start the gradient has to be.
_GRADIENT_TOL = 1e-10


def fit_squared(X: Any, loss: Loss, cost: Any, max_iter: int, xp: Any) -> Fit:
    """Minimise a squared loss by Newton's method with halved steps.

    The objective is quadratic in pieces, so that the last step is exact.

    Parameters
    ----------
    X : array of shape (n_samples, n_features), dtype=float64
    loss : callable
    cost : array of shape (n_samples,)
    max_iter : int
    xp : module
        The array namespace.

    References
    ----------
    O. L. Mangasarian, "A finite Newton method for classification", Optimization Methods and
    Software 17, 2002.
    """
    coef, decision = xp.zeros(X.shape[1]), xp.zeros(len(X))
    each, slope, curvature = loss(decision)
    value = float(cost @ each)
    target = None
    for n_iter in range(1, max_iter + 1):
        gradient = coef + X.T @ (cost * slope)
        size = float(xp.sqrt(gradient @ gradient))
        target = _GRADIENT_TOL * size if target is None else target
        if size <= target:
            return Fit(coef, n_iter, True)
        hessian = (X * (cost * curvature)[:, None]).T @ X
        diagonal = xp.arange(len(hessian))
        hessian[diagonal, diagonal] += 1
        step = -xp.linalg.solve(hessian, gradient)
        along, descent = X @ step, float(gradient @ step)
        share = 1.0
        while True:
            tried = coef + share * step
            each, slope, curvature = loss(decision + share * along)
            lower = float(0.5 * (tried @ tried) + cost @ each)
            if lower <= value + 1e-4 * share * descent:
                break
            share /= 2
            if share < 1e-10:  # rounding hides what a step would gain
                return Fit(coef, n_iter, size <= 1e4 * target)
        coef, decision, value = tried, decision + share * along, lower
    return Fit(coef, max_iter, False)


#: The duality gap aimed at; the one that will do where rounding keeps it from shrinking on; and
#: for how many steps it may fail to shrink before. The first two are relative to the objective.
_GAP_TOL, _GAP_WILL_DO, _PATIENCE = 1e-13, 1e-9, 40


class _Point(NamedTuple):
    """A point of the interior, or a step from one to the next.

    Attributes
    ----------
    coef : array of shape (n_features,)
    lower, upper : array of shape (n_terms, n_samples)
        How far each dual variable is from zero, and from its cost.
    above, below : array of shape (n_terms, n_samples)
        The multipliers of those two: by how much a row is beyond its bound, and short of it.
    """

    coef: Any
    lower: Any
    upper: Any
    above: Any
    below: Any

    def moved(self, share: float, step: _Point) -> _Point:
        return _Point(*(value + share * d for value, d in zip(self, step, strict=True)))

    def longest(self, step: _Point) -> float:
        """Return the share of a step, at most 1, that leaves nothing negative."""
        pairs = zip(self[1:], step[1:], strict=True)
        return 1 / max(1.0, *(float((-d / value).max()) for value, d in pairs))

    def products(self) -> float:
        """Return the sum of what is zero at the minimum."""
        return float((self.lower * self.above).sum() + (self.upper * self.below).sum())


def fit_hinge(X: Any, signs: Any, bounds: Any, cost: Any, max_iter: int, xp: Any) -> Fit:
    """Minimise a loss with corners by an interior point method.

    The loss of a row is the sum over k of ``max(0, bounds[k] - signs[k] * decision)``: the hinge
    loss has one such term, the epsilon-insensitive loss two.

    Parameters
    ----------
    X : array of shape (n_samples, n_features), dtype=float64
    signs, bounds : array of shape (n_terms, n_samples)
    cost : array of shape (n_samples,)
        Positive.
    max_iter : int
    xp : module
        The array namespace.

    References
    ----------
    M. C. Ferris and T. S. Munson, "Interior-point methods for massive support vector machines",
    SIAM Journal on Optimization 13, 2002; predictor and corrector are Mehrotra's (ibid. 2, 1992).
    """
    cost = xp.broadcast_to(cost, signs.shape)
    best, smallest, since = xp.zeros(X.shape[1]), float("inf"), 0
    if not bool((bounds > 0).any()):  # no row costs anything
        return Fit(best, 1, True)
    size = float(xp.abs(bounds).mean())
    point = _Point(best, cost / 2, cost / 2, xp.maximum(-bounds, size), xp.maximum(bounds, size))
    for n_iter in range(1, max_iter + 1):
        short = bounds - signs * (X @ point.coef)
        dual = X.T @ (signs * point.lower).sum(axis=0)
        primal_value = 0.5 * (point.coef @ point.coef) + (cost * xp.maximum(short, 0)).sum()
        dual_value = (bounds * point.lower).sum() - 0.5 * (dual @ dual)
        gap = float((primal_value - dual_value) / primal_value)
        since = 0 if gap < smallest else since + 1
        if gap < smallest:
            best, smallest = point.coef, gap
        good_enough = smallest <= _GAP_WILL_DO
        if gap <= _GAP_TOL or since == (1 if good_enough else _PATIENCE):
            return Fit(best, n_iter, good_enough)
        step_to = _newton(X, signs, short, dual, point, xp)
        predictor = step_to(0.0, 0.0)
        products = point.products()
        ahead = point.moved(point.longest(predictor), predictor).products()
        centre = (ahead / products) ** 3 * products / (2 * short.size)
        step = step_to(
            centre - predictor.lower * predictor.above, centre - predictor.upper * predictor.below
        )
        point = point.moved(min(1.0, 0.995 * point.longest(step)), step)
    return Fit(best, max_iter, False)


def _newton(
    X: Any, signs: Any, short: Any, dual: Any, point: _Point, xp: Any
) -> Callable[[Any, Any], _Point]:
    """Return Newton's step from a point as a function of where the products should get.

    Parameters
    ----------
    X, signs : arrays
        As in `fit_hinge`.
    short : array of shape (n_terms, n_samples)
        By how much each row is short of its bound with the coefficients of `point`.
    dual : array of shape (n_features,)
        The coefficients that the dual variables of `point` stand for.
    point : _Point
    xp : module
        The array namespace.
    """
    coef, lower, upper, above, below = point
    spread = 1 / (above / lower + below / upper)
    hessian = (X * spread.sum(axis=0)[:, None]).T @ X
    diagonal = xp.arange(len(hessian))
    hessian[diagonal, diagonal] += 1

    def step(low: Any, high: Any) -> _Point:
        towards = low / lower - high / upper + short
        slope = X.T @ (signs * towards * spread).sum(axis=0) - (coef - dual)
        d_coef = xp.linalg.solve(hessian, slope)
        d_lower = (towards - signs * (X @ d_coef)) * spread
        return _Point(
            d_coef,
            d_lower,
            -d_lower,
            low / lower - above - above / lower * d_lower,
            high / upper - below + below / upper * d_lower,
        )

    return step
