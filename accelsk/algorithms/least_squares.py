"""Least squares from moments, and by orthogonal factorisation where moments have too few digits.

Normal equations lose twice the digits that the condition number of X costs. Scaled to columns of
norm one they lose what cannot be helped, and how much that is shows in their Cholesky factor.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import scipy.linalg
import scipy.optimize

__all__ = [
    "Factor",
    "Spectral",
    "Triangulation",
    "factor",
    "gradient",
    "spectral",
    "wide",
]

#: Condition numbers that are of no concern to anybody.
_HARMLESS = 1e5

#: Steps of the power method that estimate a condition number; an estimate is all that is wanted.
_STEPS = 8


def _solved(L: Any, right: Any, xp: Any, *, transposed: bool = False) -> Any:
    """Return the solution of a triangular system with the lower factor `L`."""
    trans = 1 if transposed else 0
    if xp is np and L.dtype == right.dtype == np.float64:
        # scipy's own function takes ten times as long as a small system does
        return scipy.linalg.lapack.dtrtrs(L, right, lower=1, trans=trans)[0]
    linalg: Any = scipy.linalg
    if xp is not np:
        from cupyx.scipy import linalg  # type: ignore[no-redef]
    return linalg.solve_triangular(L, right, trans=trans, lower=True, check_finite=False)


def _cholesky(matrix: Any, xp: Any) -> Any:
    """Return the lower Cholesky factor, or None where there is none."""
    try:
        if xp is np:
            return scipy.linalg.cholesky(matrix, lower=True, check_finite=False)
        import cupyx

        with cupyx.errstate(linalg="raise"):
            return xp.linalg.cholesky(matrix)
    except np.linalg.LinAlgError:
        return None


class Factor:
    """The Cholesky factor of a matrix scaled to a diagonal of ones.

    Rows and columns of zeros, those of constant features, are left out: they have solution zero.

    Parameters
    ----------
    L : array of shape (rank, rank)
    scale : array of shape (rank,)
        The roots of the diagonal of the matrix.
    used : array of shape (n,), dtype=bool, or None
        Which rows and columns are not left out; None means all.
    xp : module
        The array namespace.
    """

    def __init__(self, L: Any, scale: Any, used: Any, xp: Any) -> None:
        self._L, self._scale, self._used, self._xp = L, scale, used, xp
        self.rank = len(scale)

    def solve(self, right: Any) -> Any:
        """Return the solution of the system with right sides of shape (n, k)."""
        return self.back(self.half(right))

    def half(self, right: Any) -> Any:
        """Return the solution of the first of the two triangular systems, shape (rank, k)."""
        right = right if self._used is None else right[self._used]
        return _solved(self._L, right / self._scale[:, None], self._xp)

    def back(self, half: Any) -> Any:
        """Return the solution of the second one, shape (n, k)."""
        found = _solved(self._L, half, self._xp, transposed=True) / self._scale[:, None]
        return found if self._used is None else self._spread(found)

    def _spread(self, rows: Any) -> Any:
        """Return the rows with zeros in the place of those that were left out."""
        result = self._xp.zeros((len(self._used), rows.shape[1]))
        result[self._used] = rows
        return result

    def conditions(self) -> tuple[float, float]:
        """Return bounds of the condition numbers of the scaled matrix and of the matrix itself.

        Where these are large, estimates take their place, which may be a little too small.
        """
        inverse, scale = self._inverse(), self._scale
        # traces: a product of all eigenvalues' sum and of that of their inverses
        scaled = float((inverse * inverse).sum()) * self.rank
        itself = float(((inverse / scale) ** 2).sum() * (scale * scale).sum())
        if max(scaled, itself) < _HARMLESS:
            return scaled, itself
        return self._estimates(inverse)

    def _inverse(self) -> Any:
        """Return the inverse of the factor."""
        if self._xp is np:
            return scipy.linalg.lapack.dtrtri(self._L, lower=1)[0]
        return _solved(self._L, self._xp.eye(self.rank), self._xp)

    def _estimates(self, inverse: Any) -> tuple[float, float]:
        """Return what the power method finds for the two."""
        xp, L = self._xp, self._L
        start = xp.asarray(np.random.RandomState(0).standard_normal(self.rank))
        # one vector for each of the two, side by side
        scales = xp.stack([xp.ones(self.rank), self._scale], axis=1)
        large = small = xp.stack([start, start], axis=1) / xp.sqrt(start @ start)
        for _ in range(_STEPS):
            large = scales * (L @ (L.T @ (scales * large)))
            small = inverse.T @ (inverse @ (small / scales)) / scales
            grown = xp.sqrt((large * large).sum(axis=0))
            shrunk = xp.sqrt((small * small).sum(axis=0))
            large, small = large / grown, small / shrunk
        scaled, itself = (grown * shrunk).tolist()
        return scaled, itself

    def triangle(self) -> Any:
        """Return the upper factor of the matrix itself, of those rows and columns in use."""
        return self._L.T * self._scale

    def inverse_triangle(self) -> Any:
        """Return what makes orthogonal columns of the features."""
        inverse = self._inverse().T / self._scale[:, None]
        return inverse if self._used is None else self._spread(inverse)

    def positive(self, half: Any, to_host: Callable[[Any], np.ndarray]) -> np.ndarray:
        """Return the solution without negative numbers, by scikit-learn's own routine."""
        R, half = to_host(self.triangle()), to_host(half)
        found = np.stack([scipy.optimize.nnls(R, column)[0] for column in half.T], axis=1)
        if self._used is None:
            return found
        result = np.zeros((len(self._used), found.shape[1]))
        result[to_host(self._used)] = found
        return result

    def problem(self, half: Any, to_host: Callable[[Any], np.ndarray]) -> Spectral:
        """Return the least-squares problem of which `half` is half solved."""
        found = spectral(to_host(self.triangle()), to_host(half))
        if self._used is None:
            return found
        used = to_host(self._used)

        def coef(factors: np.ndarray) -> np.ndarray:
            result = np.zeros((len(used), half.shape[1]))
            result[used] = found.coef(factors[: self.rank])
            return result

        return Spectral(self._with_zeros(found.singular), coef)

    def singular(self, to_host: Callable[[Any], np.ndarray]) -> np.ndarray:
        """Return the roots of the eigenvalues of the matrix, in descending order."""
        found = scipy.linalg.svdvals(to_host(self.triangle()), check_finite=False)
        return found if self._used is None else self._with_zeros(found)

    def _with_zeros(self, singular: np.ndarray) -> np.ndarray:
        return np.concatenate([singular, np.zeros(len(self._used) - self.rank)])

    def refined(self, again: Factor) -> Factor:
        """Return the factor that this one and that of its orthogonal columns make up.

        It is as exact as one by orthogonal steps (Yamamoto, Nakatsukasa, Yanagisawa and Fukaya,
        "Roundoff error analysis of the CholeskyQR2 algorithm", ETNA 44, 2015).
        """
        upper = again.triangle() @ self.triangle()
        scale = self._xp.sqrt((upper * upper).sum(axis=0))
        return Factor((upper / scale).T, scale, self._used, self._xp)


def factor(gram: Any, xp: Any) -> Factor | None:
    """Return the factor of a Gram matrix, None unless it is clearly positive definite.

    Parameters
    ----------
    gram : array of shape (n, n)
        Rows and columns of zeros do not count.
    xp : module
        The array namespace.
    """
    diagonal = xp.diagonal(gram)
    used = None if bool((diagonal > 0).all()) else diagonal > 0
    if used is not None:
        gram, diagonal = gram[used][:, used], diagonal[used]
    scale = xp.sqrt(diagonal)
    L = _cholesky(gram / scale[:, None] / scale, xp) if len(scale) else None
    return None if L is None else Factor(L, scale, used, xp)


def gradient(X: Any, Y: Any, weight: Any, means: tuple[Any, Any], coef: Any, xp: Any) -> Any:
    """Return the product of a block of centred rows and of what `coef` leaves of the targets.

    From this, which is small, a solution is made more exact (Björck, "Stability analysis of the
    method of seminormal equations", Linear Algebra and its Applications 88/89, 1987).

    Parameters
    ----------
    X : array of shape (n_rows, n_features)
    Y : array of shape (n_rows, n_targets)
    weight : array of shape (n_rows,) or None
    means : tuple of array
        Those of X and of Y.
    coef : array of shape (n_features, n_targets)
    xp : module
        The array namespace.
    """
    X = X - means[0]
    left = Y - means[1] - X @ coef
    if weight is not None:
        left *= weight[:, None]
    return X.T @ left


class Spectral(NamedTuple):
    """A least-squares problem in terms of its singular values.

    Attributes
    ----------
    singular : ndarray of shape (n_singular,)
        In descending order.
    coef : callable
        From the factor of each singular value, ``1 / s`` for plain least squares, to coefficients
        of shape (n_features, n_targets).
    """

    singular: np.ndarray
    coef: Callable[[np.ndarray], Any]


def spectral(R: np.ndarray, projected: np.ndarray) -> Spectral:
    """Return the problem ``R @ coef = projected``.

    Parameters
    ----------
    R : ndarray of shape (n, n_features)
    projected : ndarray of shape (n, n_targets)
    """
    U, singular, Vt = scipy.linalg.svd(R, full_matrices=False, check_finite=False)
    turned = U.T @ projected

    def coef(factors: np.ndarray) -> np.ndarray:
        # with several penalties each target has factors of its own
        return Vt.T @ ((factors if factors.ndim == 2 else factors[:, None]) * turned)

    return Spectral(singular, coef)


class Triangulation:
    """Reduces centred rows of X and Y to a triangle, block by block, by orthogonal steps.

    Parameters
    ----------
    means : tuple of array
        Those of X and of Y.
    xp : module
        The array namespace.
    """

    def __init__(self, means: tuple[Any, Any], xp: Any) -> None:
        self._means = means
        self._xp = xp
        self._R: Any = None

    def add(self, X: Any, Y: Any, weight: Any = None) -> None:
        """Take in a block of rows."""
        xp = self._xp
        rows = xp.concatenate([X - self._means[0], Y - self._means[1]], axis=1)
        if weight is not None:
            rows *= xp.sqrt(weight.astype(np.float64, copy=False))[:, None]
        if self._R is not None:
            rows = xp.concatenate([self._R, rows])
        self._R = xp.linalg.qr(rows, mode="r")

    def result(self) -> Any:
        """Return the upper triangle of ``[X, Y]``."""
        return self._R


def wide(X: Any, Y: Any, xp: Any, to_host: Callable[[Any], np.ndarray]) -> Spectral:
    """Return the problem for centred rows that are fewer than the columns.

    Parameters
    ----------
    X : array of shape (n_rows, n_features)
    Y : array of shape (n_rows, n_targets)
    xp : module
        The array namespace.
    to_host : callable
        Makes an ndarray of an array.
    """
    Q, R = xp.linalg.qr(X.T, mode="reduced")
    found = spectral(to_host(R).T, to_host(Y))
    return Spectral(found.singular, lambda factors: Q @ xp.asarray(found.coef(factors)))
