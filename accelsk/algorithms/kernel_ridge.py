"""Kernel ridge regression: the dual coefficients, and how well posed they are."""

from __future__ import annotations

from typing import Any, NamedTuple

__all__ = ["Solution", "solve"]


class Solution(NamedTuple):
    """A solution of a positive definite system.

    Attributes
    ----------
    x : array of shape (n, n_columns)
    rcond : float
        An estimate of the reciprocal of the condition number in the 1-norm.
    """

    x: Any
    rcond: float


def solve(K: Any, y: Any, alpha: float, xp: Any, solve_triangular: Any) -> Solution:
    """Solve ``(K + alpha * I) x = y`` by Cholesky factorisation.

    Parameters
    ----------
    K : array of shape (n, n)
        Symmetric.
    y : array of shape (n, n_columns)
    alpha : float
    xp : module
        The array namespace.
    solve_triangular : callable
        The function of that name in the namespace's counterpart of `scipy.linalg`.

    Raises
    ------
    numpy.linalg.LinAlgError
        Where the matrix is not positive definite. CuPy has to be told to: see `cupyx.errstate`.
    """
    shifted = K.copy()
    diagonal = xp.arange(len(K))
    shifted[diagonal, diagonal] += alpha
    L = xp.linalg.cholesky(shifted)

    def apply_inverse(b: Any) -> Any:
        return solve_triangular(L, solve_triangular(L, b, lower=True), lower=True, trans="T")

    norm = float(xp.abs(shifted).sum(axis=0).max())
    return Solution(apply_inverse(y), 1 / (norm * _inverse_norm(apply_inverse, len(K), K, xp)))


def _inverse_norm(apply_inverse: Any, n: int, like: Any, xp: Any) -> float:
    """Return an estimate of the 1-norm of a symmetric inverse.

    References
    ----------
    W. W. Hager, "Condition estimates", SIAM Journal on Scientific and Statistical Computing 5,
    1984; the last step, with a vector of alternating signs, is Higham's (ACM Transactions on
    Mathematical Software 14, 1988).
    """
    x = xp.full((n, 1), 1 / n, like.dtype)
    estimate = 0.0
    for _ in range(5):
        column = apply_inverse(x)
        larger = float(xp.abs(column).sum())
        if larger <= estimate:
            break
        estimate = larger
        slope = apply_inverse(xp.where(column >= 0, 1.0, -1.0).astype(like.dtype))
        steepest = int(xp.abs(slope).argmax())
        if float(xp.abs(slope[steepest, 0])) <= float((slope * x).sum()):
            break
        x = xp.zeros_like(x)
        x[steepest, 0] = 1
    steps = xp.arange(n, dtype=like.dtype)
    signs = 1 - 2 * (steps % 2)
    spread = (signs * (1 + steps / max(1, n - 1)))[:, None]
    return max(estimate, 2 * float(xp.abs(apply_inverse(spread)).sum()) / (3 * n))
