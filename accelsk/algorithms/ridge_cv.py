"""Ridge regression with the penalty chosen by leaving out one row at a time.

The Gram matrix gives the coefficients for every penalty. How large the error of a row would be
had it been left out follows from its error and its leverage, so that the rows are needed once more.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from accelsk.algorithms.moments import Moments

__all__ = ["LeaveOneOut", "OfFewRows"]

#: Rounding may be this share of what it is felt in.
_MOST_ROUNDING = 1e-7

#: A row that has the fit to itself to this degree leaves no digits to its error.
_LEAST_LEFT = 1e-6


class LeaveOneOut:
    """Errors of rows that were left out, for several penalties at once.

    Parameters
    ----------
    moments : Moments
        With targets, on the host or the device; about zero where there is no intercept.
    alphas : array of shape (n_alphas,)
        The penalties.
    fit_intercept : bool
    xp : module
        The array namespace.

    Attributes
    ----------
    coef : array of shape (n_features, n_alphas, n_targets)
    well_posed : array without dimensions, of bool
        Whether the smallest penalised eigenvalue stands out from rounding.
    """

    def __init__(self, moments: Moments, alphas: Any, fit_intercept: bool, xp: Any) -> None:
        self._xp, self._intercept = xp, fit_intercept
        self._weight = moments.weight
        self._X_mean, self._Y_mean = xp.asarray(moments.X_mean), xp.asarray(moments.Y_mean)
        eigenvalues, self._vectors = xp.linalg.eigh(xp.asarray(moments.gram))
        eigenvalues = xp.maximum(eigenvalues, 0.0)
        rounding = np.finfo(np.float64).eps * eigenvalues[-1]
        self.well_posed = rounding < _MOST_ROUNDING * (eigenvalues[0] + alphas.min())
        self._inverse = 1.0 / (eigenvalues[:, None] + alphas)
        along = self._vectors.T @ xp.asarray(moments.XY)
        self._along = self._inverse[:, :, None] * along[:, None, :]
        self._shape = self._along.shape
        self._along = self._along.reshape(len(along), -1)
        self.coef = (self._vectors @ self._along).reshape(self._shape)

    def errors(self, X: Any, Y: Any, weight: Any = None) -> tuple[Any, Any]:
        """Return the errors of a block of rows, and whether they have their digits.

        Parameters
        ----------
        X : array of shape (n_rows, n_features)
        Y : array of shape (n_rows, n_targets)
        weight : array of shape (n_rows,), default=None

        Returns
        -------
        errors : array of shape (n_rows, n_alphas, n_targets)
            Times the square root of the weight.
        exact : array without dimensions, of bool
            Whether no row has the fit nearly to itself.
        """
        xp = self._xp
        X, Y = X - self._X_mean, Y - self._Y_mean
        share = 1.0 / self._weight
        if weight is not None:
            root = xp.sqrt(weight.astype(np.float64, copy=False))[:, None]
            X, Y, share = X * root, Y * root, root * root * share
        within = X @ self._vectors
        fitted = (within @ self._along).reshape(len(X), *self._shape[1:])
        left = 1.0 - (within * within) @ self._inverse
        if self._intercept:
            left = left - share
        return (Y[:, None, :] - fitted) / left[:, :, None], left.min() > _LEAST_LEFT


class OfFewRows:
    """The same for no more rows than columns, from the Gram matrix of the rows, which are held.

    Parameters
    ----------
    X : array of shape (n_samples, n_features), dtype=float64
        Centred where there is an intercept, and times the square root of the weights.
    Y : array of shape (n_samples, n_targets), dtype=float64
        Likewise.
    root : array of shape (n_samples,)
        The square roots of the weights.
    alphas : array of shape (n_alphas,)
    fit_intercept : bool
    xp : module
        The array namespace.

    Attributes
    ----------
    coef, well_posed
        As in `LeaveOneOut`.
    """

    def __init__(
        self, X: Any, Y: Any, root: Any, alphas: Any, fit_intercept: bool, xp: Any
    ) -> None:
        gram, eps = X @ X.T, np.finfo(np.float64).eps
        if fit_intercept:
            # the eigenvalue of zero that centring leaves is moved among the others
            mean = root / xp.sqrt(root @ root)
            moved = gram.diagonal().mean()
            gram = gram + moved * mean[:, None] * mean
        eigenvalues, vectors = xp.linalg.eigh(gram)
        eigenvalues = xp.maximum(eigenvalues, 0.0)
        rounding = eps * eigenvalues[-1]
        self.well_posed = rounding < _MOST_ROUNDING * (eigenvalues[0] + alphas.min())
        inverse = 1.0 / (eigenvalues[:, None] + alphas)
        along = inverse[:, :, None] * (vectors.T @ Y)[:, None, :]
        dual = vectors @ along.reshape(len(Y), -1)
        left = (vectors * vectors) @ inverse
        if fit_intercept:
            left = left - (mean * mean)[:, None] / (moved + alphas)
        self.well_posed &= eps * inverse.max() < _MOST_ROUNDING * xp.abs(left).min()
        self._errors = dual.reshape(along.shape) / left[:, :, None]
        self._exact = (left > 0).all()
        self.coef = (X.T @ dual).reshape(X.shape[1], *along.shape[1:])

    def errors(self, X: Any, Y: Any, weight: Any = None) -> tuple[Any, Any]:
        """Return the errors of all rows, whatever is given, and whether they have their digits."""
        return self._errors, self._exact
