"""How far a logistic regression is from its optimum."""

from __future__ import annotations

from typing import Any

__all__ = ["gradient_norm", "probabilities"]


def probabilities(scores: Any, xp: Any) -> Any:
    """Return class probabilities from decision values.

    Parameters
    ----------
    scores : array of shape (n_samples,) or (n_samples, n_classes)
        One column means two classes and the score of the second.
    xp : module
        The array namespace.

    Returns
    -------
    probabilities : array of shape (n_samples, n_classes), in the dtype of `scores`
    """
    if scores.ndim == 1:
        # 1 / (1 + exp(-s)) with an exponent that cannot overflow
        e = xp.exp(-xp.abs(scores))
        larger, smaller = 1 / (1 + e), e / (1 + e)
        positive = scores >= 0
        second = xp.where(positive, larger, smaller)
        return xp.stack([xp.where(positive, smaller, larger), second], axis=1)
    e = xp.exp(scores - scores.max(axis=1, keepdims=True))
    return e / e.sum(axis=1, keepdims=True)


def gradient_norm(
    X: Any,
    codes: Any,
    weight: Any,
    coef: Any,
    intercept: Any,
    l2: float,
    fit_intercept: bool,
    xp: Any,
) -> float:
    """Return the largest absolute partial derivative of the objective.

    The objective is what scikit-learn's solvers minimise since 1.1: the mean loss, plus `l2` / 2
    times the squared coefficients over the sum of weights. Its "lbfgs" stops where this norm is
    at most ``tol``.

    Parameters
    ----------
    X : array of shape (n_samples, n_features)
    codes : array of int of shape (n_samples,)
    weight : array of shape (n_samples,) or None
    coef : array of shape (1 or n_classes, n_features)
    intercept : array of shape (1 or n_classes,)
    l2 : float
        The inverse of scikit-learn's ``C``.
    fit_intercept : bool
    xp : module
        The array namespace.
    """
    scores = X @ coef.T + intercept
    if coef.shape[0] == 1:
        residual = probabilities(scores[:, 0], xp)[:, 1:] - codes[:, None]
    else:
        residual = probabilities(scores, xp)
        residual[xp.arange(len(codes)), codes] -= 1
    if weight is None:
        total = float(len(codes))
    else:
        residual = residual * weight[:, None]
        total = float(weight.sum())
    slopes = xp.abs((residual.T @ X + l2 * coef) / total)
    norm = float(slopes.max())
    if fit_intercept:
        norm = max(norm, float(xp.abs(residual.sum(axis=0) / total).max()))
    return norm
