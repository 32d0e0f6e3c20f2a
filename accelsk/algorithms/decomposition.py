"""Singular value decompositions of rows, and how many of the components matter."""

from __future__ import annotations

from math import lgamma, log, pi
from typing import Any

import numpy as np

from accelsk.algorithms.spectra import Singular, from_gram

__all__ = [
    "MOST_EXACT",
    "likeliest_dimension",
    "randomized_svd",
    "right_singular",
    "short_svd",
    "signs",
    "truncated_svd",
]

#: Of more rows and columns than this, all eigenvectors of a Gram matrix take seconds.
MOST_EXACT = 8192

_SMALLEST = float(np.finfo(np.float64).tiny)

#: Directions beyond those asked for, which keep the last of them exact.
_SPARE = 10


#: Up to this many rows LAPACK is taken to decompose sooner than cuSOLVER, with both transfers
#: counted. An estimate: with cuSOLVER a step of incremental PCA on 250 rows of 50 features took
#: 9.6 ms on an H200 (2026-11-30), longer than all of it takes in scikit-learn.
_HOST_SVD = 1024


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


def short_svd(
    X: Any, n_kept: int | None, xp: Any, *, centred: bool, least: float | None
) -> Singular:
    """Return the leading singular values and right vectors of `X`, from its smaller Gram matrix.

    Parameters
    ----------
    X : array of shape (n_samples, n_features), dtype=float64
    n_kept : int or None
        How many are asked for; None means all.
    xp : module
        The array namespace.
    centred : bool
        Whether the columns of `X` have no mean, so that one row less counts.
    least : float or None
        The ratio to the largest singular value down to which they have to be resolved.
    """
    n_samples, n_features = X.shape
    wide = n_samples < n_features
    tall = X.T if wide else X
    kept = min(X.shape) if n_kept is None else n_kept
    rank = min(kept, n_samples - centred)

    def gram(factor: Any) -> Any:
        return factor.T @ factor

    values, vectors = from_gram(
        gram(tall), rank, xp, least=least, again=lambda right: gram(tall @ xp.asarray(right))
    )
    values, vectors = xp.asarray(values), xp.asarray(vectors)
    if wide:
        vectors = vectors @ X
        vectors /= xp.maximum(xp.sqrt((vectors * vectors).sum(axis=1)), _SMALLEST)[:, None]
    if rank < kept:
        values = xp.concatenate([values, xp.zeros(kept - rank)])
        vectors = xp.concatenate([vectors, xp.zeros((kept - rank, n_features))])
    if (
        wide or rank < kept
    ):  # the small ones are not quite orthogonal, those that are zero arbitrary
        basis, R = xp.linalg.qr(xp.ascontiguousarray(vectors.T), mode="reduced")
        vectors = (basis * xp.where(xp.diagonal(R) < 0, -1.0, 1.0)).T
    return Singular(values, vectors)


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


#: What a variance has to be for its component to be taken into account.
_LEAST_VARIANCE = 1e-15


def likeliest_dimension(variance: np.ndarray, n_samples: int) -> int:
    """Return how many components Minka's approximation takes to be the most likely.

    Parameters
    ----------
    variance : ndarray of shape (n_features,)
        Along all principal axes, descending.
    n_samples : int

    Returns
    -------
    n_components : int
        From 0 on, below the number of features: 0 where all are equally unlikely.

    Raises
    ------
    ArithmeticError
        Where the formula has no value, as for two variances that are the same.

    References
    ----------
    T. P. Minka, "Automatic choice of dimensionality for PCA", NIPS 2000, 598-604.
    """
    d = len(variance)
    ranks = np.arange(1, d)
    rest = np.maximum(_LEAST_VARIANCE, (variance.sum() - np.cumsum(variance)[:-1]) / (d - ranks))
    # the volume of the possible subspaces
    sizes = (d - ranks + 1) / 2.0
    volume = np.cumsum([lgamma(size) - log(pi) * size for size in sizes]) - ranks * log(2.0)
    fit = (
        -0.5
        * n_samples
        * (
            np.cumsum(np.log(np.maximum(variance, _LEAST_VARIANCE)))[:-1]
            + np.log(rest) * (d - ranks)
        )
    )
    free = d * ranks - ranks * (ranks + 1.0) / 2.0
    evidence = volume + fit + log(2.0 * pi) * (free + ranks) / 2.0 - ranks * log(n_samples) / 2.0
    evidence -= 0.5 * _curvature(variance, rest, n_samples)
    considered = variance[:-1] >= _LEAST_VARIANCE
    if not np.isfinite(evidence[considered]).all():
        raise ArithmeticError("two variances are the same")
    evidence[~considered] = -np.inf
    return int(np.argmax(np.concatenate([[-np.inf], evidence])))


def _curvature(variance: np.ndarray, rest: np.ndarray, n_samples: int) -> np.ndarray:
    """Return the logarithm of the determinant of the Hessian for each number of components."""
    d = len(variance)
    with np.errstate(divide="ignore", invalid="ignore"):
        apart = np.log(variance[:, None] - variance)
        inverse = 1.0 / variance
        pairs = np.triu(apart + np.log(inverse - inverse[:, None]) + log(n_samples), 1)
    found = np.empty(d - 1)
    for rank in range(1, d):
        among = pairs[:rank, :rank].sum()
        beyond = (
            apart[:rank, rank:].sum()
            + (d - rank) * (np.log(1.0 / rest[rank - 1] - inverse[:rank]) + log(n_samples)).sum()
        )
        found[rank - 1] = among + beyond
    return found
