"""Covariance matrices, shrunk and inverted."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from accelsk.algorithms.moments import Moments
from accelsk.algorithms.spectra import nearby

__all__ = [
    "fourth_powers",
    "inverse",
    "ledoit_wolf_shrinkage",
    "oas_shrinkage",
    "shrunk",
    "squared_lengths",
]

#: Eigenvalues within this factor of the cutoff of a pseudo-inverse may be on either side of it.
_UNCLEAR = 100.0

#: Beyond this ratio of what is taken off a sum of fourth powers to what stays, digits are missed.
_LARGEST_LOSS = 1e5


def squared_lengths(X: Any, shift: Any) -> Any:
    """Return the squared length of each row about `shift`."""
    rows = X - shift
    rows *= rows
    return rows.sum(axis=1)


def fourth_powers(moments: Moments, shift: np.ndarray) -> float | None:
    """Return the sum of the fourth powers of the lengths of rows about their mean.

    Parameters
    ----------
    moments : Moments
        Of the rows, with their `squared_lengths` for a target; on the host.
    shift : ndarray of shape (n_features,)
        What the lengths are about: an estimate of the mean.

    Returns
    -------
    total : float or None
        None where too few digits would be left.
    """
    n, apart = moments.n_samples, moments.X_mean - shift
    square, trace = float(apart @ apart), float(np.trace(moments.gram))
    length = float(moments.Y_mean[0])
    fourth = float(moments.YY[0]) + n * length**2
    third = float(apart @ moments.XY[:, 0]) + n * length * square
    spread = float(apart @ moments.gram @ apart)
    total = fourth - 4.0 * third + 4.0 * spread + 2.0 * square * trace + 3.0 * n * square**2
    return total if fourth <= _LARGEST_LOSS * total else None


class _Size(NamedTuple):
    """How large a covariance is, and how far from a multiple of the identity.

    Attributes
    ----------
    spread : float
        The sum of squares of its entries.
    trace : float
    distance : float
        The mean over features of the squared distance to the nearest multiple of the identity.
    """

    spread: float
    trace: float
    distance: float


def _size(covariance: np.ndarray) -> _Size:
    spread, trace = float((covariance * covariance).sum()), float(np.trace(covariance))
    n_features = len(covariance)
    return _Size(spread, trace, (spread - trace**2 / n_features) / n_features)


def ledoit_wolf_shrinkage(covariance: np.ndarray, fourth: float, n_samples: int) -> float:
    """Return how far Ledoit and Wolf shrink a covariance.

    Parameters
    ----------
    covariance : ndarray of shape (n_features, n_features)
    fourth : float
        The sum of the fourth powers of the lengths of the centred rows.
    n_samples : int

    References
    ----------
    O. Ledoit and M. Wolf, "A well-conditioned estimator for large-dimensional covariance
    matrices", Journal of Multivariate Analysis 88(2), 2004, 365-411.
    """
    size = _size(covariance)
    noise = (fourth / n_samples - size.spread) / (len(covariance) * n_samples)
    noise = min(noise, size.distance)
    return 0.0 if noise == 0 else noise / size.distance


def oas_shrinkage(covariance: np.ndarray, n_samples: int) -> float:
    """Return how far the oracle approximating estimator shrinks a covariance.

    References
    ----------
    Y. Chen, A. Wiesel, Y. C. Eldar, A. O. Hero, "Shrinkage algorithms for MMSE covariance
    estimation", IEEE Transactions on Signal Processing 58(10), 2010, 5016-5029; as scikit-learn
    computes it.
    """
    n_features = len(covariance)
    square = float((covariance * covariance).mean())
    middle = (float(np.trace(covariance)) / n_features) ** 2
    apart = (n_samples + 1) * (square - middle / n_features)
    return 1.0 if apart == 0 else min((square + middle) / apart, 1.0)


def shrunk(covariance: Any, shrinkage: float, xp: Any) -> Any:
    """Return the covariance drawn towards a multiple of the identity of the same trace."""
    n_features = len(covariance)
    middle = xp.trace(covariance) / n_features
    return (1 - shrinkage) * covariance + shrinkage * middle * xp.eye(n_features)


def inverse(covariance: Any, dtype: Any, xp: Any) -> Any:
    """Return the pseudo-inverse of a symmetric matrix as SciPy's ``pinvh`` defines it.

    Parameters
    ----------
    covariance : array of shape (n_features, n_features), dtype=float64
    dtype : dtype
        That for whose rounding errors ``pinvh`` would allow: it takes eigenvalues below
        ``n_features * eps`` times the largest for zero.
    xp : module
        The array namespace.

    Returns
    -------
    inverse : array or None
        None where rounding would decide which eigenvalues are zero.
    """
    covariance, xp = nearby(covariance, xp)
    share = len(covariance) * float(np.finfo(dtype).eps)
    if (plain := _plain_inverse(covariance, _UNCLEAR * share, xp)) is not None:
        return plain
    values, vectors = xp.linalg.eigh(covariance)
    size = xp.abs(values)
    cutoff = size.max() * share
    if bool(((size > cutoff / _UNCLEAR) & (size < cutoff * _UNCLEAR)).any()):
        return None
    kept = size > cutoff
    scaled = vectors * xp.where(kept, 1 / xp.where(kept, values, 1), 0)
    return scaled @ vectors.T


def _plain_inverse(covariance: Any, least: float, xp: Any) -> Any:
    """Return the inverse; None unless all eigenvalues are above `least` times the largest."""
    try:
        found = xp.linalg.inv(covariance)
    except np.linalg.LinAlgError:
        return None
    # the Frobenius norms bound the largest eigenvalue and the reciprocal of the smallest
    condition = xp.sqrt((covariance * covariance).sum() * (found * found).sum())
    return 0.5 * (found + found.T) if bool(condition * least < 1.0) else None
