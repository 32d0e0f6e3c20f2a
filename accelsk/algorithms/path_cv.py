"""The elastic net along a path of penalties, and its errors on rows left out, from moments."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from sklearn.linear_model._coordinate_descent import enet_path

from accelsk.algorithms.moments import DigitsLost, Moments

__all__ = ["Path", "descend", "held_out_errors"]

#: What is left of the squares of the target, at least, for its digits to be there.
_LEAST_RESIDUAL = 1e-6


class Path(NamedTuple):
    """Where coordinate descent ended for each penalty.

    Attributes
    ----------
    coefs : ndarray of shape (n_features, n_alphas)
    dual_gaps : ndarray of shape (n_alphas,)
    n_iters : list of int
    """

    coefs: np.ndarray
    dual_gaps: np.ndarray
    n_iters: list[int]


def descend(moments: Moments, alphas: Any, **parameters: Any) -> Path:
    """Return the coefficients for each penalty, by scikit-learn's own iterations.

    scikit-learn's routine for a precomputed Gram matrix asks no more of the data than its
    moments: how many rows there are, and the norm of the target. It warns where it does not
    converge.

    Parameters
    ----------
    moments : Moments
        Of one target, on the host; about zero where there is no intercept.
    alphas : sequence of float
        In descending order.
    **parameters
        Those of `sklearn.linear_model.enet_path`.
    """
    # the objective is a weighted mean: only the ratios of the weights matter
    scale = moments.n_samples / moments.weight
    _, coefs, gaps, n_iters = enet_path(
        np.broadcast_to(np.float64(0), (moments.n_samples, len(moments.gram))),
        np.sqrt(moments.YY[:1] * scale),
        precompute=moments.gram * scale,
        Xy=np.ascontiguousarray(moments.XY[:, 0]) * scale,
        alphas=alphas,
        return_n_iter=True,
        check_input=False,
        **parameters,
    )
    return Path(coefs, gaps, n_iters)


def held_out_errors(train: Moments, test: Moments, coefs: np.ndarray) -> np.ndarray:
    """Return the mean squared error on the rows of `test` for each of several models.

    Parameters
    ----------
    train : Moments
        Of one target, on the host; about zero where there is no intercept.
    test : Moments
        Likewise, about the mean.
    coefs : ndarray of shape (n_features, n_models)
        Fitted to the rows of `train`.

    Raises
    ------
    DigitsLost
        Where a model fits so well that its errors drown in rounding.
    """
    bias = test.Y_mean[0] - train.Y_mean[0] - (test.X_mean - train.X_mean) @ coefs
    within = test.YY[0] - 2 * test.XY[:, 0] @ coefs + (coefs * (test.gram @ coefs)).sum(axis=0)
    errors = within / test.weight + bias**2
    if not (errors > _LEAST_RESIDUAL * test.YY[0] / test.weight).all():
        raise DigitsLost("the errors drown in rounding")
    # the same coefficients again have the same error, to the last digit
    same = np.concatenate([[False], (coefs[:, 1:] == coefs[:, :-1]).all(axis=0)])
    return errors[np.maximum.accumulate(np.where(same, 0, np.arange(len(errors))))]
