"""Least squares: how well posed a problem is, and a solution made more exact."""

from __future__ import annotations

from typing import Any, NamedTuple

__all__ = ["Triangle", "centered", "refined", "triangle"]


class Triangle(NamedTuple):
    """The triangular factor of a matrix, and its singular values.

    Attributes
    ----------
    R : array of shape (n_features, n_features)
    singular : array of shape (n_features,)
        In descending order; those of the matrix itself.
    """

    R: Any
    singular: Any


def centered(X: Any, weight: Any, fit_intercept: bool, xp: Any) -> tuple[Any, Any]:
    """Return X less its weighted mean and scaled by the root of the weights, and the mean.

    Parameters
    ----------
    X : array of shape (n_samples, n_features)
    weight : array of shape (n_samples,) or None
    fit_intercept : bool
        Without an intercept the mean is left where it is.
    xp : module
        The array namespace.
    """
    mean = xp.zeros(X.shape[1], X.dtype)
    if fit_intercept:
        mean = X.mean(axis=0) if weight is None else weight @ X / weight.sum()
    X = X - mean
    if weight is not None:
        X *= xp.sqrt(weight)[:, None]
    return X, mean


def triangle(X: Any, xp: Any) -> Triangle:
    """Return the triangular factor of `X`; its singular values are those of `X`."""
    R = xp.linalg.qr(X, mode="r")
    return Triangle(R, xp.linalg.svd(R, compute_uv=False))


def refined(coef: Any, X: Any, y: Any, R: Any, xp: Any) -> Any:
    """Return a least-squares solution after one step of corrected seminormal equations.

    The step brings a solution of the normal equations to nearly the accuracy of a QR
    factorisation (Björck, "Stability analysis of the method of seminormal equations", Linear
    Algebra and its Applications 88/89, 1987).

    Parameters
    ----------
    coef : array of shape (n_features, n_targets)
    X : array of shape (n_samples, n_features)
        Centred and weighted.
    y : array of shape (n_samples, n_targets)
        Likewise.
    R : array of shape (n_features, n_features)
        The triangular factor of `X`.
    xp : module
        The array namespace.
    """
    gradient = X.T @ (y - X @ coef)
    return coef + xp.linalg.solve(R, xp.linalg.solve(R.T, gradient))
