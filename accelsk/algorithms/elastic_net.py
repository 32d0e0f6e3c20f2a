"""Coordinate descent for the elastic net, from moments of the data."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from sklearn.linear_model._coordinate_descent import enet_path

from accelsk.algorithms.least_squares import centered

__all__ = ["Descent", "Moments", "descend", "moments", "rounding"]


class Moments(NamedTuple):
    """What coordinate descent reads of the data, on the host.

    Attributes
    ----------
    n_samples : int
    gram : ndarray of shape (n_features, n_features)
        Of the centred and weighted columns.
    Xy : ndarray of shape (n_targets, n_features)
    yy : ndarray of shape (n_targets,)
        The squared norms of the centred and weighted targets.
    X_mean : ndarray of shape (n_features,)
    y_mean : ndarray of shape (n_targets,)
    """

    n_samples: int
    gram: np.ndarray
    Xy: np.ndarray
    yy: np.ndarray
    X_mean: np.ndarray
    y_mean: np.ndarray


def moments(X: Any, y: Any, weight: Any, fit_intercept: bool, xp: Any) -> Moments:
    """Return the moments of the data.

    Parameters
    ----------
    X : array of shape (n_samples, n_features), dtype=float64
    y : array of shape (n_samples, n_targets), dtype=float64
    weight : array of shape (n_samples,) or None
    fit_intercept : bool
    xp : module
        The array namespace.
    """
    if weight is not None:
        # the objective is a weighted mean: only the ratios of the weights matter
        weight = weight * (len(X) / weight.sum())
    X, X_mean = centered(X, weight, fit_intercept, xp)
    y, y_mean = centered(y, weight, fit_intercept, xp)
    parts = (X.T @ X, y.T @ X, (y * y).sum(axis=0), X_mean, y_mean)
    host = (part.get() if hasattr(part, "get") else part for part in parts)
    return Moments(len(X), *map(np.ascontiguousarray, host))


def rounding(moments: Moments) -> float:
    """Return how far rounding may move the gradient of the loss, in the unit of the penalty.

    Columns count as they came: what centring takes off them has left its rounding error.
    """
    n_samples, gram = moments.n_samples, moments.gram
    columns = np.sqrt(np.diag(gram) + n_samples * np.square(moments.X_mean))
    largest = columns.max() * np.sqrt(moments.yy.max())
    return float(np.finfo(np.float64).eps * largest / n_samples)


class Descent(NamedTuple):
    """Where coordinate descent ended for one target.

    Attributes
    ----------
    coef : ndarray of shape (n_features,)
    dual_gap : float
    n_iter : int
    """

    coef: np.ndarray
    dual_gap: float
    n_iter: int


def descend(moments: Moments, target: int, coef_init: np.ndarray, **parameters: Any) -> Descent:
    """Return the coefficients for one target, by scikit-learn's own iterations.

    scikit-learn's routine for a precomputed Gram matrix asks no more of the data than its
    moments: how many rows there are, and the norm of the target. It warns where it does not
    converge.

    Parameters
    ----------
    moments : Moments
    target : int
    coef_init : ndarray of shape (n_features,)
        Where the descent starts.
    **parameters
        Those of `sklearn.linear_model.enet_path`, with one alpha.
    """
    _, coefs, gaps, n_iters = enet_path(
        np.broadcast_to(np.float64(0), (moments.n_samples, len(moments.gram))),
        np.sqrt(moments.yy[target : target + 1]),
        precompute=moments.gram,
        Xy=moments.Xy[target],
        coef_init=coef_init.copy(),
        return_n_iter=True,
        check_input=False,
        **parameters,
    )
    return Descent(coefs[:, 0], gaps[0], n_iters[0])
