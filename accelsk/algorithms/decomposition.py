"""Singular value decompositions: of what has come in so far, and truncated."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np

__all__ = [
    "Singular",
    "incremental_pca",
    "randomized_svd",
    "right_singular",
    "signs",
    "truncated_svd",
]

#: Directions beyond those asked for, which keep the last of them exact.
_SPARE = 10


#: Up to this many rows LAPACK is taken to decompose sooner than cuSOLVER, with both transfers
#: counted. An estimate: with cuSOLVER a step of incremental PCA on 250 rows of 50 features took
#: 9.6 ms on an H200 (2026-11-30), longer than all of it takes in scikit-learn.
_HOST_SVD = 1024


class Singular(NamedTuple):
    """Singular values, descending, and the right singular vectors as rows."""

    values: Any
    vectors: Any


def signs(vectors: Any, xp: Any) -> Any:
    """Return what makes the largest entry of each row positive, as a column."""
    largest = xp.abs(vectors).argmax(axis=1)[:, None]
    return xp.sign(xp.take_along_axis(vectors, largest, axis=1))


def _small_svd(matrix: Any, xp: Any) -> tuple[Any, Any, Any]:
    """Return the decomposition of a square matrix, made where that is quicker."""
    if len(matrix) > _HOST_SVD:
        return xp.linalg.svd(xp.ascontiguousarray(matrix))
    host = matrix.get() if hasattr(matrix, "get") else matrix
    left, values, right = np.linalg.svd(host)
    return xp.asarray(left), xp.asarray(values), xp.asarray(right)


def right_singular(X: Any, xp: Any) -> Singular:
    """Return singular values and right vectors, signed so that each one's largest is positive.

    They come from the triangular factor of the longer side, as exact as from `X` itself.
    """
    if X.shape[0] >= X.shape[1]:
        _, values, vectors = _small_svd(xp.linalg.qr(X, mode="r"), xp)
    else:
        Q, R = xp.linalg.qr(xp.ascontiguousarray(X.T), mode="reduced")
        _, values, vectors = _small_svd(R.T, xp)
        vectors = vectors @ Q.T
    return Singular(values, vectors * signs(vectors, xp))


def truncated_svd(X: Any, n_components: int, xp: Any) -> Singular:
    """Return the leading singular values and right vectors of `X`.

    The leading directions come from the smaller Gram matrix; one more pass over `X` then frees
    them from what squaring the singular values has cost.

    Parameters
    ----------
    X : array of shape (n_samples, n_features), dtype=float64
    n_components : int
        No more than X has rows and columns.
    xp : module
        The array namespace.
    """
    n_samples, n_features = X.shape
    kept = slice(-min(n_components + _SPARE, n_samples, n_features), None)
    if n_samples >= n_features:
        directions = X @ xp.linalg.eigh(X.T @ X)[1][:, kept]
    else:
        directions = xp.linalg.eigh(X @ X.T)[1][:, kept]
    Q = xp.linalg.qr(directions, mode="reduced")[0]
    values, vectors = right_singular(Q.T @ X, xp)
    return Singular(values[:n_components], vectors[:n_components])


def randomized_svd(X: Any, n_components: int, start: Any, n_iter: int, xp: Any) -> Singular:
    """Return approximate leading singular values and right vectors of `X`.

    The span is that of scikit-learn's ``randomized_svd`` from the same `start`; the basis of it
    is orthogonal at every step, whatever the normaliser there.

    Parameters
    ----------
    X : array or sparse matrix of shape (n_samples, n_features)
    n_components : int
    start : array of shape (the lesser of n_samples and n_features, n_directions)
        Random directions.
    n_iter : int
        The power iterations.
    xp : module
        The array namespace.

    References
    ----------
    N. Halko, P. G. Martinsson, J. A. Tropp, "Finding structure with randomness", SIAM Review
    53(2), 2011, 217-288.
    """
    wide = X.shape[0] < X.shape[1]
    tall, transposed = (X.T, X) if wide else (X, X.T)

    def basis(directions: Any) -> Any:
        return xp.linalg.qr(directions, mode="reduced")[0]

    Q = start
    for _ in range(n_iter):
        Q = basis(transposed @ basis(tall @ Q))
    Q = basis(tall @ Q)
    # the transpose of X in the basis; its triangular factor has the same singular values
    inner, R = xp.linalg.qr(transposed @ Q, mode="reduced")
    left, values, right = _small_svd(R, xp)
    vectors = (Q @ right.T if wide else inner @ left).T[:n_components]
    return Singular(values[:n_components], vectors * signs(vectors, xp))


def incremental_pca(
    before: SimpleNamespace | None, X: Any, n_components: int, xp: Any
) -> SimpleNamespace:
    """Return the principal components of all rows so far.

    Parameters
    ----------
    before : namespace or None
        What the rows before were summed up to by this function.
    X : array of shape (n_samples, n_features), dtype=float64
        The next rows.
    n_components : int
    xp : module
        The array namespace.

    Returns
    -------
    after : namespace
        With the attributes of scikit-learn's `IncrementalPCA`.

    References
    ----------
    D. Ross, J. Lim, R. Lin, M. Yang, "Incremental learning for robust visual tracking",
    International Journal of Computer Vision 77, 2008, 125-141.
    """
    n_new = len(X)
    mean = X.mean(axis=0)
    centred = X - mean
    scatter = (centred * centred).sum(axis=0)
    if before is None:
        total, stacked = n_new, centred
    else:
        seen = int(before.n_samples_seen_)
        total = seen + n_new
        apart = before.mean_ - mean
        basis = before.singular_values_[:, None] * before.components_
        shift = (seen / total * n_new) ** 0.5 * apart
        stacked = xp.vstack([basis, centred, shift[None]])
        scatter = scatter + before.var_ * seen + seen / total * n_new * apart**2
        mean = mean + apart * (seen / total)
    values, vectors = right_singular(stacked, xp)
    variance = values**2 / (total - 1)
    exact = n_components in X.shape
    return SimpleNamespace(
        components_=vectors[:n_components],
        singular_values_=values[:n_components],
        mean_=mean,
        var_=scatter / total,
        explained_variance_=variance[:n_components],
        explained_variance_ratio_=(values**2 / scatter.sum())[:n_components],
        noise_variance_=0.0 if exact else np.float64(float(variance[n_components:].mean())),
        n_samples_seen_=total,
        n_components_=n_components,
    )
