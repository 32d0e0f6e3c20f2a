"""Eigenvectors of graph Laplacians, as scikit-learn's spectral methods define them."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

__all__ = ["Embedding", "connected", "embed", "rbf_affinity", "smallest_eigenpairs"]

#: Added to the Laplacian before it is inverted; scikit-learn (1.9) has it so, too.
_SHIFT = 1e-5

#: Blocks of a Krylov basis, and how many bases may be built.
_DEPTH = 5
_RESTARTS = 20

#: Residuals of eigenvectors of unit length: aimed at, and accepted where rounding stops there.
_AIM = 2e-14
_ENOUGH = 1e-11


class Embedding(NamedTuple):
    """The smallest eigenvalues of a Laplacian, ascending, and what scikit-learn makes of them.

    Attributes
    ----------
    coordinates : array of shape (n_samples, n_components)
        Eigenvectors over the root of the degree, the largest entry of each positive.
    eigenvalues : array of shape (n_components + 1,)
        One more, to tell how far off the next vector is.
    vectors : array of shape (n_samples, n_components + 1)
        The eigenvectors themselves.
    """

    coordinates: Any
    eigenvalues: Any
    vectors: Any


def rbf_affinity(X: Any, gamma: float, xp: Any) -> Any:
    """Return ``exp(-gamma * squared distance)`` between all rows, in float64."""
    rows = X.astype(np.float64)
    rows -= rows.mean(axis=0)
    norms = (rows * rows).sum(axis=1)
    affinity = rows @ rows.T
    affinity *= -2
    affinity += norms
    affinity += norms[:, None]
    xp.maximum(affinity, 0, out=affinity)
    affinity[xp.arange(len(rows)), xp.arange(len(rows))] = 0
    affinity *= -gamma
    return xp.exp(affinity, out=affinity)


def connected(affinity: Any, xp: Any) -> bool:
    """Whether every node can be reached from the first one."""
    reached = xp.zeros(len(affinity), bool)
    reached[0] = True
    frontier = xp.flatnonzero(reached)
    while len(frontier):
        near = (affinity[frontier] != 0).any(axis=0)
        frontier = xp.flatnonzero(near & ~reached)
        reached |= near
    return bool(reached.all())


def embed(affinity: Any, n_components: int, xp: Any) -> Embedding | None:
    """Return the spectral embedding of a graph, None where the eigenvectors did not converge.

    Parameters
    ----------
    affinity : array of shape (n_samples, n_samples), dtype=float64
        Symmetric and non-negative. The diagonal does not count. Is overwritten.
    n_components : int
        Less than n_samples - 1.
    xp : module
        The array namespace.
    """
    diagonal = xp.arange(len(affinity))
    affinity[diagonal, diagonal] = 0
    degree = affinity.sum(axis=0)
    root = xp.where(degree == 0, 1.0, xp.sqrt(degree))
    affinity /= root
    affinity /= -root[:, None]
    affinity[diagonal, diagonal] = 1
    pairs = smallest_eigenpairs(affinity, n_components + 1, root, xp)
    if pairs is None:
        return None
    eigenvalues, vectors = pairs
    coordinates = vectors[:, :n_components] / root[:, None]
    largest = xp.abs(coordinates).argmax(axis=0)
    coordinates *= xp.sign(coordinates[largest, xp.arange(n_components)])
    return Embedding(coordinates, eigenvalues, vectors)


def smallest_eigenpairs(matrix: Any, count: int, start: Any, xp: Any) -> tuple[Any, Any] | None:
    """Return the smallest eigenvalues, ascending, and their vectors, as columns of unit length.

    A block Krylov method on the inverse, so that eigenvalues that coincide are all found.

    Parameters
    ----------
    matrix : array of shape (n, n), dtype=float64
        Symmetric, without negative eigenvalues.
    count : int
    start : array of shape (n,)
        A guess at the first vector.
    xp : module
        The array namespace.

    Returns
    -------
    pairs : (array of shape (count,), array of shape (n, count)) or None
        None where the residuals do not become small.
    """
    n = len(matrix)
    width = count + max(4, count // 4)
    if width * _DEPTH >= n // 2:
        eigenvalues, vectors = xp.linalg.eigh(matrix)
        return eigenvalues[:count], vectors[:, :count]
    inverse_factor = _inverse_factor(matrix, xp)
    # any start will do; a fixed one makes the same data give the same vectors
    block = xp.asarray(np.random.RandomState(0).standard_normal((n, width)))
    block[:, 0] = start
    residual = np.inf
    for _ in range(_RESTARTS):
        basis = xp.linalg.qr(block)[0]
        block = basis
        for _ in range(_DEPTH - 1):
            block = inverse_factor.T @ (inverse_factor @ block)
            for _ in range(2):  # once more, for what rounding has left
                block = xp.linalg.qr(block - basis @ (basis.T @ block))[0]
            basis = xp.concatenate([basis, block], axis=1)
        image = matrix @ basis
        projected = basis.T @ image
        eigenvalues, mix = xp.linalg.eigh((projected + projected.T) / 2)
        eigenvalues, mix = eigenvalues[:width], mix[:, :width]
        block = basis @ mix
        errors = image @ mix - block * eigenvalues
        previous = residual
        residual = float(xp.sqrt((errors[:, :count] ** 2).sum(axis=0)).max())
        if residual <= _AIM or (residual <= _ENOUGH and residual > previous / 2):
            return eigenvalues[:count], block[:, :count]
    return None


def _inverse_factor(matrix: Any, xp: Any) -> Any:
    """Return F, where ``F.T @ F`` is the inverse of `matrix` with the shift added."""
    if xp is np:
        from scipy.linalg import solve_triangular
    else:
        from cupyx.scipy.linalg import solve_triangular
    diagonal = xp.arange(len(matrix))
    shifted = matrix.copy()
    shifted[diagonal, diagonal] += _SHIFT
    lower = xp.linalg.cholesky(shifted)
    del shifted
    return solve_triangular(lower, xp.eye(len(matrix)), lower=True, overwrite_b=True)
