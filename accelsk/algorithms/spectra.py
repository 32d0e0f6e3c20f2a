"""Singular values and right singular vectors of tall data, from their Gram matrix.

The eigenvalues of a Gram matrix are the squares of the singular values: their rounding errors are
of the size of the largest one, so small singular values have few digits or none. Three ways are
tried in turn, each as soon as the one before it does not resolve what is asked for:

1. the eigenvalues of the Gram matrix;
2. the singular values of its Cholesky factor, which has lost nothing where it is only the units of
   the columns that differ;
3. one more pass over the data, in the basis found so far and scaled to it. The Gram matrix of that
   is close to the identity, and what it is off by is what the first one had lost.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from scipy import linalg

__all__ = ["HOST_SIZE", "RESOLVED", "Singular", "from_gram", "leading", "nearby"]

#: Up to this many columns LAPACK is quicker than cuSOLVER, with both transfers counted. On an H200
#: and 16 cores (2026-11-30) all eigenvectors of 50, 100, 200 and 400 columns took 0.8, 1.5, 1.8 and
#: 3.7 ms there, 0.4, 1.4, 4.4 and 17 ms here.
HOST_SIZE = 96

#: The same for singular values: 17 ms there and 7 ms here for 200 columns, 44 ms here for 400.
_HOST_SVD = 512

#: Above this ratio of eigenvalues those of a matrix have nine digits.
RESOLVED = 1e-6


class Singular(NamedTuple):
    """Singular values, descending, and the right singular vectors as rows."""

    values: Any
    vectors: Any


def nearby(matrix: Any, xp: Any) -> tuple[Any, Any]:
    """Return `matrix` where it is decomposed sooner, and the array namespace of that place."""
    if len(matrix) > HOST_SIZE:
        return matrix, xp
    return (matrix.get() if hasattr(matrix, "get") else matrix), np


def from_gram(
    gram: Any,
    n_kept: int | None,
    xp: Any,
    *,
    least: float | None = None,
    again: Callable[[Any], Any] | None = None,
) -> Singular:
    """Return the singular values and right vectors of data with the Gram matrix `gram`.

    Parameters
    ----------
    gram : array of shape (n_features, n_features), dtype=float64
    n_kept : int or None
        How many are asked for; None means all.
    xp : module
        The array namespace.
    least : float, default=None
        The ratio to the largest singular value down to which those that are kept have to be
        resolved. None means that the eigenvalues of the Gram matrix do.
    again : callable, default=None
        From an array T of shape (n_features, n_features) to the Gram matrix of the data times T,
        in one more pass over them.

    Returns
    -------
    singular : Singular
        On the host where `gram` has no more than `HOST_SIZE` columns.
    """
    gram, xp = nearby(gram, xp)
    d = len(gram)
    kept = d if n_kept is None else n_kept
    squares, vectors = leading(gram, kept, xp)
    if kept == 0 or not _unresolved(squares, least):
        return Singular(xp.sqrt(squares), vectors)
    factor = _factor(gram, xp)
    if factor is not None:
        values, vectors = _svd(factor, xp)
    elif again is not None:
        if kept < d:
            squares, vectors = leading(gram, d, xp)
        values, vectors = _refined(squares, vectors, again, xp)
    else:
        return Singular(xp.sqrt(squares), vectors)
    return Singular(values[:kept], vectors[:kept])


def _svd(matrix: Any, xp: Any) -> tuple[Any, Any]:
    """Return singular values and right vectors, found where that is quicker."""
    if xp is np or len(matrix) > _HOST_SVD:
        return xp.linalg.svd(matrix)[1:]
    _, values, vectors = np.linalg.svd(matrix.get())
    return xp.asarray(values), xp.asarray(vectors)


def _unresolved(squares: Any, least: float | None) -> bool:
    """Whether an eigenvalue that matters is too small beside the largest to have its digits."""
    if least is None:
        return False
    noise = 16 * len(squares) * float(np.finfo(np.float64).eps)
    smallest = (least**2 - noise) * squares[0]
    return bool(((squares < RESOLVED * squares[0]) & (squares >= smallest)).any())


def leading(gram: Any, kept: int, xp: Any) -> tuple[Any, Any]:
    """Return the largest eigenvalues, descending and none below zero, and their vectors as rows."""
    d = len(gram)
    if xp is np and 0 < kept < d // 2:
        values, vectors = linalg.eigh(gram, subset_by_index=[d - kept, d - 1], check_finite=False)
    else:
        values, vectors = xp.linalg.eigh(gram)
    order = slice(None, -kept - 1 if kept < len(values) else None, -1)
    return xp.maximum(values[order], 0.0), vectors.T[order]


def _factor(gram: Any, xp: Any) -> Any:
    """Return R with R.T @ R = `gram`; None where columns are nearly collinear."""
    size = xp.sqrt(xp.diagonal(gram))
    if not bool((size > 0).all()):
        return None
    correlation = gram / (size[:, None] * size[None, :])
    if not bool(xp.linalg.eigvalsh(correlation)[0] > RESOLVED):
        return None
    return xp.linalg.cholesky(correlation).T * size


def _refined(squares: Any, vectors: Any, again: Callable[[Any], Any], xp: Any) -> tuple[Any, Any]:
    """Return singular values and vectors with what the Gram matrix has lost put right."""
    floor = squares[0] * (len(squares) * float(np.finfo(np.float64).eps))
    scale = xp.sqrt(xp.maximum(squares, floor))
    inner, _ = nearby(again((vectors / scale[:, None]).T), xp)
    inner_squares, inner_vectors = xp.linalg.eigh(inner)
    root = xp.sqrt(xp.maximum(inner_squares, 0.0))[:, None] * inner_vectors.T
    values, turned = _svd(root * scale, xp)
    return values, turned @ vectors
