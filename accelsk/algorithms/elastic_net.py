"""Coordinate descent for the elastic net, from moments of the data."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from sklearn.linear_model._coordinate_descent import enet_path

from accelsk.algorithms import moments

__all__ = ["Descent", "Moments", "descend", "of_moments", "rounding"]


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


def of_moments(found: moments.Moments) -> Moments:
    """Return what coordinate descent reads, from moments on the host.

    The objective is a weighted mean: only the ratios of the weights matter.
    """
    factor = found.n_samples / found.weight
    return Moments(
        found.n_samples,
        np.ascontiguousarray(factor * found.gram),
        np.ascontiguousarray(factor * found.XY.T),
        factor * found.YY,
        found.X_mean,
        found.Y_mean,
    )


def rounding(found: Moments) -> float:
    """Return how far rounding may move the gradient of the loss, in the unit of the penalty.

    Columns count as they came: what centring takes off them has left its rounding error.
    """
    n_samples, gram = found.n_samples, found.gram
    columns = np.sqrt(np.diag(gram) + n_samples * np.square(found.X_mean))
    largest = columns.max() * np.sqrt(found.yy.max())
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


def descend(found: Moments, target: int, coef_init: np.ndarray, **parameters: Any) -> Descent:
    """Return the coefficients for one target, by scikit-learn's own iterations.

    scikit-learn's routine for a precomputed Gram matrix asks no more of the data than its
    moments: how many rows there are, and the norm of the target. It warns where it does not
    converge.

    Parameters
    ----------
    found : Moments
    target : int
    coef_init : ndarray of shape (n_features,)
        Where the descent starts.
    **parameters
        Those of `sklearn.linear_model.enet_path`, with one alpha.
    """
    _, coefs, gaps, n_iters = enet_path(
        np.broadcast_to(np.float64(0), (found.n_samples, len(found.gram))),
        np.sqrt(found.yy[target : target + 1]),
        precompute=found.gram,
        Xy=found.Xy[target],
        coef_init=coef_init.copy(),
        return_n_iter=True,
        check_input=False,
        **parameters,
    )
    return Descent(coefs[:, 0], gaps[0], n_iters[0])
