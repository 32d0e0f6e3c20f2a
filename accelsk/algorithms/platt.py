"""Probabilities from the decision values of pairs of classes, as libsvm makes them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from accelsk.algorithms.dual_svm import class_pairs

__all__ = ["Sigmoid", "couple", "fit_sigmoid", "folds", "pair_probabilities"]

_N_FOLDS = 5


def folds(n_rows: int, seed: int) -> Iterator[np.ndarray]:
    """Yield the rows that are held out in each fold, drawing what libsvm draws.

    Parameters
    ----------
    n_rows : int
    seed : int
        Of a Mersenne twister, which libsvm seeds anew for each pair of classes.

    References
    ----------
    Numbers below a bound come from 32-bit ones by multiplication: D. Lemire, "Fast random integer
    generation in an interval", ACM Transactions on Modeling and Computer Simulation 29, 2019.
    """
    draw = np.random.RandomState(seed).randint

    def below(bound: int) -> int:
        while True:
            product = int(draw(0, 1 << 32, dtype=np.uint32)) * bound
            if product & 0xFFFFFFFF >= (1 << 32) % bound:
                return product >> 32

    order = list(range(n_rows))
    for i in range(n_rows):
        j = i + below(n_rows - i)
        order[i], order[j] = order[j], order[i]
    for fold in range(_N_FOLDS):
        yield np.array(order[fold * n_rows // _N_FOLDS : (fold + 1) * n_rows // _N_FOLDS], np.intp)


class Sigmoid(NamedTuple):
    """The probability of the positive side is 1 / (1 + exp(a * decision + b))."""

    a: float
    b: float


def _logistic(z: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return 1 / (1 + exp(z)) and its complement, neither by subtraction from one."""
    e = np.exp(-np.abs(z))
    small, large = e / (1 + e), 1 / (1 + e)
    return np.where(z >= 0, small, large), np.where(z >= 0, large, small)


def fit_sigmoid(decision: np.ndarray, positive: np.ndarray) -> Sigmoid:
    """Fit a sigmoid to decision values by Newton's method with halved steps.

    Parameters
    ----------
    decision : ndarray of shape (n_samples,)
        Of rows that the classifier was not fitted on.
    positive : ndarray of bool of shape (n_samples,)

    References
    ----------
    H.-T. Lin, C.-J. Lin and R. C. Weng, "A note on Platt's probabilistic outputs for support
    vector machines", Machine Learning 68, 2007, whose constants these are.
    """
    n_positive = float(positive.sum())
    n_negative = len(positive) - n_positive
    target = np.where(positive, (n_positive + 1) / (n_positive + 2), 1 / (n_negative + 2))

    def loss(a: float, b: float) -> float:
        z = a * decision + b
        return float((target * z + np.logaddexp(0, -z)).sum())

    a, b = 0.0, float(np.log((n_negative + 1) / (n_positive + 1)))
    value = loss(a, b)
    for _ in range(100):
        p, q = _logistic(a * decision + b)
        slope, curvature = target - p, p * q
        g_a, g_b = float(decision @ slope), float(slope.sum())
        if max(abs(g_a), abs(g_b)) < 1e-5:
            break
        h_aa = float((decision * decision) @ curvature) + 1e-12
        h_bb = float(curvature.sum()) + 1e-12
        h_ab = float(decision @ curvature)
        determinant = h_aa * h_bb - h_ab * h_ab
        d_a = -(h_bb * g_a - h_ab * g_b) / determinant
        d_b = -(h_aa * g_b - h_ab * g_a) / determinant
        descent, share = g_a * d_a + g_b * d_b, 1.0
        while share >= 1e-10:
            lower = loss(a + share * d_a, b + share * d_b)
            if lower < value + 1e-4 * share * descent:
                a, b, value = a + share * d_a, b + share * d_b, lower
                break
            share /= 2
        else:
            break
    return Sigmoid(a, b)


def pair_probabilities(decisions: Any, a: Any, b: Any, xp: Any) -> Any:
    """Return, for each pair of classes, the probability of the first, short of 0 and 1.

    Parameters
    ----------
    decisions : array of shape (n_rows, n_pairs)
    a, b : array of shape (n_pairs,)
    xp : module
        The array namespace.
    """
    z = decisions * a + b
    e = xp.exp(-xp.abs(z))
    return xp.clip(xp.where(z >= 0, e / (1 + e), 1 / (1 + e)), 1e-7, 1 - 1e-7)


def couple(pairs: Any, n_classes: int, xp: Any) -> Any:
    """Return class probabilities from those of pairs of classes.

    Parameters
    ----------
    pairs : array of shape (n_rows, n_pairs)
    n_classes : int
    xp : module
        The array namespace.

    Returns
    -------
    probabilities : array of shape (n_rows, n_classes)

    References
    ----------
    T.-F. Wu, C.-J. Lin and R. C. Weng, "Probability estimates for multi-class classification by
    pairwise coupling", Journal of Machine Learning Research 5, 2004, the second method. The
    iterations stop early, as libsvm's do, for two classes too.
    """
    r = xp.zeros((len(pairs), n_classes, n_classes))
    for column, (first, second) in enumerate(class_pairs(n_classes)):
        r[:, first, second] = pairs[:, column]
        r[:, second, first] = 1 - pairs[:, column]
    Q = -r * r.transpose(0, 2, 1)
    diagonal = xp.arange(n_classes)
    Q[:, diagonal, diagonal] = (r * r).sum(axis=1)
    result = xp.full((len(pairs), n_classes), 1 / n_classes)
    active = xp.arange(len(pairs))
    for _ in range(max(100, n_classes)):
        p, q = result[active], Q[active]
        Qp = (q * p[:, None, :]).sum(axis=2)
        pQp = (p * Qp).sum(axis=1)
        going_on = xp.abs(Qp - pQp[:, None]).max(axis=1) >= 0.005 / n_classes
        active, p, q = active[going_on], p[going_on], q[going_on]
        if not len(active):
            break
        result[active] = _sweep(p, q, Qp[going_on], pQp[going_on])
    return result


def _sweep(p: Any, Q: Any, Qp: Any, pQp: Any) -> Any:
    """Return the probabilities after one step for each class in turn."""
    for t in range(p.shape[1]):
        own = Q[:, t, t]
        step = (pQp - Qp[:, t]) / own
        pQp = (pQp + step * (step * own + 2 * Qp[:, t])) / (1 + step) ** 2
        grown = p.copy()
        grown[:, t] += step
        p = grown / (1 + step)[:, None]
        Qp = (Qp + step[:, None] * Q[:, t]) / (1 + step)[:, None]
    return p
