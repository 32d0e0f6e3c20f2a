"""Bayesian ridge regression: the noise and the prior that make the data most likely."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from accelsk.algorithms.moments import Moments
from accelsk.algorithms.residuals import Residuals

__all__ = ["Posterior", "Prior", "evidence", "posterior"]


@dataclass(frozen=True)
class Prior:
    """Shape and rate of the gamma distributions of both precisions."""

    alpha_1: float
    alpha_2: float
    lambda_1: float
    lambda_2: float


class Posterior(NamedTuple):
    """Where the iterations ended.

    Attributes
    ----------
    coef : ndarray of shape (n_features,)
    covariance : ndarray of shape (n_features, n_features)
        Of the coefficients.
    alpha, lambda_ : float
        The precision of the noise, and that of the coefficients.
    scores : list of float
        The logarithm of the evidence at each step, and at the end.
        None where they were not asked for.
    n_iter : int
    least : float
        The smallest of all penalties that were tried.
    """

    coef: np.ndarray
    covariance: np.ndarray
    alpha: float
    lambda_: float
    scores: list[float] | None
    n_iter: int
    least: float


def evidence(
    moments: Moments,
    eigenvalues: np.ndarray,
    prior: Prior,
    alpha: float,
    lambda_: float,
    coef: np.ndarray,
    residual: float,
) -> float:
    """Return the logarithm of the evidence for given precisions."""
    n_features = len(eigenvalues)
    return (
        prior.lambda_1 * math.log(lambda_)
        - prior.lambda_2 * lambda_
        + prior.alpha_1 * math.log(alpha)
        - prior.alpha_2 * alpha
        + 0.5
        * (
            n_features * math.log(lambda_)
            + moments.weight * math.log(alpha)
            - alpha * residual
            - lambda_ * float(coef @ coef)
            - float(np.log(lambda_ + alpha * eigenvalues).sum())
            - moments.weight * math.log(2 * math.pi)
        )
    )


def posterior(
    moments: Moments,
    residuals: Residuals,
    eigenvalues: np.ndarray,
    vectors: np.ndarray,
    prior: Prior,
    alpha: float,
    lambda_: float,
    max_iter: int,
    tol: float,
    scored: bool,
) -> Posterior:
    """Return the coefficients, and the precisions that MacKay's iterations lead to.

    Parameters
    ----------
    moments : Moments
        Of one target, on the host; about zero where there is no intercept.
    residuals : Residuals
    eigenvalues : ndarray of shape (n_features,)
        Of the Gram matrix, none of them negative.
    vectors : ndarray of shape (n_features, n_features)
        Its eigenvectors in columns.
    prior : Prior
    alpha, lambda_ : float
        Where the precisions start.
    max_iter : int
    tol : float
        The iterations end where the coefficients change by less altogether.
    scored : bool
        Whether to compute the scores.

    Raises
    ------
    DigitsLost
        Where the coefficients fit so well that the errors drown in rounding.
    """
    base, along = vectors.T @ residuals.base, vectors.T @ residuals.along
    scores: list[float] = []
    least = math.inf

    def solved() -> tuple[np.ndarray, float]:
        ratio = lambda_ / alpha
        coef = residuals.base + vectors @ ((along - ratio * base) / (eigenvalues + ratio))
        return coef, float(residuals(coef))

    def score(coef: np.ndarray, residual: float) -> None:
        if scored:
            scores.append(evidence(moments, eigenvalues, prior, alpha, lambda_, coef, residual))

    before: Any = None
    for n_iter in range(1, max_iter + 1):  # noqa: B007 - it is the result
        coef, residual = solved()
        score(coef, residual)
        least = min(least, lambda_ / alpha)
        effective = float((alpha * eigenvalues / (lambda_ + alpha * eigenvalues)).sum())
        lambda_ = (effective + 2 * prior.lambda_1) / (float(coef @ coef) + 2 * prior.lambda_2)
        alpha = (moments.weight - effective + 2 * prior.alpha_1) / (residual + 2 * prior.alpha_2)
        if before is not None and np.abs(before - coef).sum() < tol:
            break
        before = coef
    final, residual = solved()
    score(coef, residual)  # as in scikit-learn, whose last score has the coefficients before these
    covariance = (vectors / (alpha * eigenvalues + lambda_)) @ vectors.T
    least = min(least, lambda_ / alpha)
    return Posterior(final, covariance, alpha, lambda_, scores if scored else None, n_iter, least)
