"""Automatic relevance determination: a precision for each coefficient."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from scipy.linalg import pinvh
from sklearn.utils.extmath import fast_logdet

from accelsk.algorithms.bayesian_ridge import Prior
from accelsk.algorithms.moments import Moments
from accelsk.algorithms.residuals import Residuals

__all__ = ["Relevance", "relevance"]


class Relevance(NamedTuple):
    """Where the iterations ended.

    Attributes
    ----------
    coef : ndarray of shape (n_features,)
    covariance : ndarray of shape (n_kept, n_kept)
        Of the coefficients that are not zero.
    alpha : float
        The precision of the noise.
    lambda_ : ndarray of shape (n_features,)
        The precisions of the coefficients.
    scores : list of float
        The objective at each step, if it was asked for.
    n_iter : int
    """

    coef: np.ndarray
    covariance: np.ndarray
    alpha: float
    lambda_: np.ndarray
    scores: list[float]
    n_iter: int


def relevance(
    moments: Moments,
    residuals: Residuals,
    prior: Prior,
    alpha: float,
    threshold: float,
    max_iter: int,
    tol: float,
    scored: bool,
) -> Relevance:
    """Return the coefficients, those of irrelevant features being zero.

    Parameters
    ----------
    moments : Moments
        Of one target, on the host; about zero where there is no intercept.
    residuals : Residuals
    prior : Prior
    alpha : float
        Where the precision of the noise starts.
    threshold : float
        Coefficients of a higher precision are zero.
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
    gram, along = moments.gram, moments.XY[:, 0]
    coef, lambda_ = np.zeros(len(gram)), np.ones(len(gram))
    kept = np.ones(len(gram), bool)
    scores: list[float] = []

    def solved() -> np.ndarray:
        among = np.ix_(kept, kept)
        covariance = pinvh(np.diag(lambda_[kept]) + alpha * gram[among])
        coef[kept] = alpha * covariance @ along[kept]
        return covariance

    def score(covariance: np.ndarray, residual: float) -> float:
        n_samples = moments.n_samples
        priors = float((prior.lambda_1 * np.log(lambda_) - prior.lambda_2 * lambda_).sum())
        priors += prior.alpha_1 * math.log(alpha) - prior.alpha_2 * alpha
        spread = fast_logdet(covariance) + n_samples * math.log(alpha) + np.log(lambda_).sum()
        return priors + 0.5 * (spread - alpha * residual - (lambda_ * coef**2).sum())

    before: Any = None
    for n_iter in range(1, max_iter + 1):  # noqa: B007 - it is the result
        covariance = solved()
        residual = float(residuals(coef))
        certain = 1.0 - lambda_[kept] * np.diag(covariance)
        lambda_[kept] = (certain + 2 * prior.lambda_1) / (coef[kept] ** 2 + 2 * prior.lambda_2)
        alpha = (moments.n_samples - certain.sum() + 2 * prior.alpha_1) / (
            residual + 2 * prior.alpha_2
        )
        kept = lambda_ < threshold
        coef[~kept] = 0
        if scored:
            scores.append(score(covariance, residual))
        if before is not None and np.abs(before - coef).sum() < tol:
            break
        before = coef.copy()
        if not kept.any():
            break
    covariance = solved() if kept.any() else np.zeros((0, 0))
    return Relevance(coef, covariance, alpha, lambda_, scores, n_iter)
