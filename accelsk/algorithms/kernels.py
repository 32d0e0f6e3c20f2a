"""Kernels between rows, as scikit-learn defines them, and products with kernel matrices."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

__all__ = ["KERNELS", "Kernel", "among", "between", "landmarks", "matrix", "product"]

#: Elements of the largest intermediate array: 512 MB in float64.
_CHUNK = 1 << 26


class Kernel(NamedTuple):
    """A kernel and its parameters.

    Attributes
    ----------
    name : str
        A key of `KERNELS`, or ``"precomputed"``: rows then are rows of the kernel matrix, and the
        others are given by their columns.
    gamma : float
    degree : float
    coef0 : float
    """

    name: str
    gamma: float = 1.0
    degree: float = 3.0
    coef0: float = 0.0


def _linear(X: Any, Y: Any, kernel: Kernel, xp: Any) -> Any:
    return X @ Y.T


def _polynomial(X: Any, Y: Any, kernel: Kernel, xp: Any) -> Any:
    K = X @ Y.T
    K *= kernel.gamma
    K += kernel.coef0
    return K**kernel.degree


def _rbf(X: Any, Y: Any, kernel: Kernel, xp: Any) -> Any:
    middle = Y.mean(axis=0)  # distances do not change, and lose less to rounding
    X, Y = X - middle, Y - middle
    K = X @ Y.T
    left, right = (X * X).sum(axis=1)[:, None], (Y * Y).sum(axis=1)
    if hasattr(xp, "cuda"):
        return _gaussian()(K, left, right, kernel.gamma, K)
    K *= -2
    K += left
    K += right
    xp.maximum(K, 0, out=K)
    K *= -kernel.gamma
    return xp.exp(K, out=K)


@functools.cache
def _gaussian() -> Any:
    """Return the kernel that makes similarities of products in one pass."""
    import cupy

    return cupy.ElementwiseKernel(
        "T product, T left, T right, float64 gamma",
        "T similarity",
        "similarity = exp(-(T)gamma * max((T)0, left + right - 2 * product))",
        "accelsk_gaussian",
    )


def _sigmoid(X: Any, Y: Any, kernel: Kernel, xp: Any) -> Any:
    K = X @ Y.T
    K *= kernel.gamma
    K += kernel.coef0
    return xp.tanh(K, out=K)


def _laplacian(X: Any, Y: Any, kernel: Kernel, xp: Any) -> Any:
    K = xp.zeros((len(X), len(Y)), X.dtype)
    for x, y in zip(X.T, Y.T, strict=True):
        K += xp.abs(x[:, None] - y)
    K *= -kernel.gamma
    return xp.exp(K, out=K)


def _cosine(X: Any, Y: Any, kernel: Kernel, xp: Any) -> Any:
    return _unit(X, xp) @ _unit(Y, xp).T


def _unit(X: Any, xp: Any) -> Any:
    """Return the rows of `X` at length one; rows of zeros stay."""
    length = xp.sqrt((X * X).sum(axis=1))
    return X / xp.where(length == 0, 1, length)[:, None]


KERNELS: dict[str, Callable[[Any, Any, Kernel, Any], Any]] = {
    "cosine": _cosine,
    "laplacian": _laplacian,
    "linear": _linear,
    "poly": _polynomial,
    "polynomial": _polynomial,
    "rbf": _rbf,
    "sigmoid": _sigmoid,
}


def matrix(X: Any, Y: Any, kernel: Kernel, xp: Any) -> Any:
    """Return the kernel between each row of `X` and each row of `Y`.

    Parameters
    ----------
    X : array of shape (n_rows, n_features)
    Y : array of shape (n_others, n_features)
    kernel : Kernel
    xp : module
        The array namespace.

    Returns
    -------
    K : array of shape (n_rows, n_others)
    """
    if kernel.name == "precomputed":
        return X[:, Y]
    return KERNELS[kernel.name](X, Y, kernel, xp)


def among(X: Any, kernel: Kernel, xp: Any) -> Any:
    """Return the kernel between all rows of `X`, where each is at no distance from itself."""
    K = matrix(X, X, kernel, xp)
    if kernel.name == "rbf":
        xp.fill_diagonal(K, 1)
    return K


def landmarks(X: Any, rows: Any, kernel: Kernel) -> Any:
    """Return some rows of the data as `matrix` takes them for its second argument."""
    return rows if kernel.name == "precomputed" else X[rows]


def between(X: Any, rows: Any, others: Any, kernel: Kernel) -> Any:
    """Return some rows of the data as `matrix` takes them for its first argument.

    Parameters
    ----------
    X : array of shape (n_samples, n_features) or (n_samples, n_samples)
    rows : array of int
    others : array of int
        The rows that they will be compared with.
    kernel : Kernel
    """
    return X[rows][:, others] if kernel.name == "precomputed" else X[rows]


def product(X: Any, Y: Any, coef: Any, kernel: Kernel, xp: Any) -> Any:
    """Return the kernel matrix of `X` and `Y` times `coef`, a stretch of rows at a time.

    Parameters
    ----------
    X : array of shape (n_rows, n_features)
    Y : array of shape (n_others, n_features)
    coef : array of shape (n_others, n_columns)
    kernel : Kernel
    xp : module
        The array namespace.

    Returns
    -------
    product : array of shape (n_rows, n_columns)
    """
    result = xp.empty((len(X), coef.shape[1]), coef.dtype)
    step = max(1, _CHUNK // max(1, len(Y)))
    for start in range(0, len(X), step):
        rows = slice(start, start + step)
        result[rows] = matrix(X[rows], Y, kernel, xp) @ coef
    return result
