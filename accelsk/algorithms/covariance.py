"""Covariance matrices, shrunk and inverted."""

from __future__ import annotations

from typing import Any

import numpy as np

__all__ = ["empirical", "inverse", "ledoit_wolf_shrinkage", "shrunk"]

#: Eigenvalues within this factor of the cutoff of a pseudo-inverse may be on either side of it.
_UNCLEAR = 100.0


def empirical(X: Any) -> Any:
    """Return the maximum likelihood covariance of centred rows."""
    return X.T @ X / len(X)


def ledoit_wolf_shrinkage(X: Any, covariance: Any, xp: Any) -> float:
    """Return how far Ledoit and Wolf shrink the covariance of centred rows.

    Parameters
    ----------
    X : array of shape (n_samples, n_features)
        Centred.
    covariance : array of shape (n_features, n_features)
        That of `X`.
    xp : module
        The array namespace.

    References
    ----------
    O. Ledoit and M. Wolf, "A well-conditioned estimator for large-dimensional covariance
    matrices", Journal of Multivariate Analysis 88(2), 2004, 365-411.
    """
    n_samples, n_features = X.shape
    # their d² and b², in units of the number of features
    spread = float((covariance * covariance).sum())
    trace = float(xp.trace(covariance))
    distance = (spread - trace**2 / n_features) / n_features
    norms = (X * X).sum(axis=1)
    noise = (float(norms @ norms) / n_samples - spread) / (n_features * n_samples)
    noise = min(noise, distance)
    return 0.0 if noise == 0 else noise / distance


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
    values, vectors = xp.linalg.eigh(covariance)
    size = xp.abs(values)
    cutoff = size.max() * (len(covariance) * float(np.finfo(dtype).eps))
    if bool(((size > cutoff / _UNCLEAR) & (size < cutoff * _UNCLEAR)).any()):
        return None
    kept = size > cutoff
    scaled = vectors * xp.where(kept, 1 / xp.where(kept, values, 1), 0)
    return scaled @ vectors.T
