"""Discriminant analysis from the moments of each class, on the host.

What depends on the number of rows is done once the moments are there; what is left is as small as
the covariance, and LAPACK decides about ranks and signs as it does for scikit-learn.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import linalg

from accelsk.algorithms import spectra

__all__ = [
    "Groups",
    "Linear",
    "UnclearError",
    "linear_by_eigenvectors",
    "linear_by_least_squares",
    "linear_by_svd",
    "quadratic",
    "require_rank",
    "standardised",
]

#: With a larger share of the identity in it a covariance needs no digits of its own.
_MOST_REGULAR = 1e-6

#: The ratio of singular values down to which a Gram matrix gives them, where no features are
#: nearly collinear.
_FEWEST_DIGITS = 1e-8

_EPS = float(np.finfo(np.float64).eps)


class UnclearError(ArithmeticError):
    """Where rounding would decide what the result is."""


@dataclass(frozen=True)
class Groups:
    """Moments of the rows of each class.

    Attributes
    ----------
    counts : ndarray of shape (n_classes,)
    means : ndarray of shape (n_classes, n_features)
    within : ndarray of shape (n_features, n_features)
        The sum of products of the features about the mean of their class, over all rows.
    """

    counts: np.ndarray
    means: np.ndarray
    within: np.ndarray

    @property
    def n_samples(self) -> int:
        return int(self.counts.sum())

    @property
    def mean(self) -> np.ndarray:
        """The mean of all rows."""
        return self.counts / self.n_samples @ self.means

    def total(self) -> np.ndarray:
        """Return the sum of products of the features about the mean of all rows."""
        apart = self.means - self.mean
        return self.within + (apart.T * self.counts) @ apart


@dataclass(frozen=True)
class Linear:
    """A linear discriminant, one row of coefficients for each class.

    Attributes
    ----------
    coef : ndarray of shape (n_classes, n_features)
    intercept : ndarray of shape (n_classes,)
    extra : dict
        The fitted attributes that not every solver has, in float64.
    """

    coef: np.ndarray
    intercept: np.ndarray
    extra: dict[str, np.ndarray]


def linear_by_svd(
    groups: Groups,
    priors: np.ndarray,
    *,
    tol: float,
    n_components: int,
    unbiased: bool,
    again: Callable[[Any], Any],
    xp: Any,
) -> Linear:
    """Return what the solver ``"svd"`` finds.

    Parameters
    ----------
    groups : Groups
    priors : ndarray of shape (n_classes,)
    tol : float
        Directions with a smaller singular value are left out.
    n_components : int
    unbiased : bool
        Whether the scatter is divided by the degrees of freedom rather than the number of rows.
    again : callable
        From an array T of shape (n_features, n_features) to the Gram matrix of the rows times T,
        each row about the mean of its class.
    xp : module
        The array namespace in which a large matrix is decomposed.

    Raises
    ------
    UnclearError
    """
    n_samples, n_classes = groups.n_samples, len(groups.counts)
    freedom = n_samples - n_classes if unbiased else n_samples
    std = np.sqrt(np.diagonal(groups.within) / n_samples)
    std = np.where(std == 0, 1.0, std)
    scale = std * np.sqrt(freedom)
    scaled = groups.within / (scale[:, None] * scale)
    if len(scaled) > spectra.HOST_SIZE:
        scaled, scale = xp.asarray(scaled), xp.asarray(scale)
    singular, axes = _on_host(
        *spectra.from_gram(scaled, None, xp, least=tol, again=lambda T: again(T / scale[:, None]))
    )
    rank = _count_above(singular, tol)
    whitening = (axes[:rank] / std).T / singular[:rank]
    centre = priors @ groups.means
    apart = groups.means - centre
    share = np.sqrt(n_samples * priors / (n_classes - 1))
    _, values, vectors = linalg.svd((share * apart.T).T @ whitening, full_matrices=False)
    total = (values**2).sum()
    if not total > 0:
        raise UnclearError("the means of the classes are the same")
    scalings = whitening @ vectors.T[:, : _count_above(values, tol * values[0])]
    between = apart @ scalings
    coef = between @ scalings.T
    intercept = -0.5 * (between**2).sum(axis=1) + np.log(priors) - centre @ coef.T
    extra = {
        "xbar_": centre,
        "scalings_": scalings,
        "explained_variance_ratio_": (values**2 / total)[:n_components],
    }
    return Linear(coef, intercept, extra)


def _on_host(*arrays: Any) -> list[np.ndarray]:
    return [a.get() if hasattr(a, "get") else a for a in arrays]


def _count_above(values: np.ndarray, cutoff: float) -> int:
    """Return how many singular values are larger than `cutoff`.

    Raises
    ------
    UnclearError
        Where rounding would decide about one of them.
    """
    rounding = 16 * len(values) * _EPS * values[0]
    if (np.abs(values - cutoff) <= rounding + 1e-9 * cutoff).any():
        raise UnclearError("a singular value is as large as tol")
    return int((values > cutoff).sum())


def linear_by_least_squares(groups: Groups, priors: np.ndarray, covariance: np.ndarray) -> Linear:
    """Return what the solver ``"lsqr"`` finds."""
    coef = linalg.lstsq(covariance, groups.means.T)[0].T
    return Linear(coef, _intercept(groups.means, coef, priors), {})


def linear_by_eigenvectors(
    groups: Groups,
    priors: np.ndarray,
    covariance: np.ndarray,
    total: np.ndarray,
    n_components: int,
) -> Linear:
    """Return what the solver ``"eigen"`` finds; `total` is the covariance of all rows."""
    values, vectors = linalg.eigh(total - covariance, covariance)
    order = np.argsort(values)[::-1]
    scalings = vectors[:, order]
    coef = groups.means @ scalings @ scalings.T
    extra = {
        "scalings_": scalings,
        "explained_variance_ratio_": np.sort(values / values.sum())[::-1][:n_components],
    }
    return Linear(coef, _intercept(groups.means, coef, priors), extra)


def _intercept(means: np.ndarray, coef: np.ndarray, priors: np.ndarray) -> np.ndarray:
    return -0.5 * (means * coef).sum(axis=1) + np.log(priors)


def quadratic(
    scatter: np.ndarray, freedom: int, reg_param: float, tol: float, xp: Any
) -> tuple[np.ndarray, np.ndarray]:
    """Return the variances of one class along its principal axes, and these as columns.

    Parameters
    ----------
    scatter : ndarray of shape (n_features, n_features)
        The sum of products of the features about the mean of the class.
    freedom : int
        What it is divided by.
    reg_param, tol : float
    xp : module
        The array namespace in which a large matrix is decomposed.

    Raises
    ------
    UnclearError
        Where a variance is not above `tol`, or has too few digits.
    """
    if len(scatter) > spectra.HOST_SIZE:
        scatter = xp.asarray(scatter)
    regular = reg_param >= _MOST_REGULAR
    singular, axes = _on_host(*spectra.from_gram(scatter, None, xp, least=None if regular else 0.0))
    if not regular and not singular[-1] > _FEWEST_DIGITS * singular[0]:
        raise UnclearError("the features of a class are nearly collinear")
    variance = (1 - reg_param) * (singular**2 / freedom) + reg_param
    require_rank(variance, tol)
    return variance, axes.T


def require_rank(variance: np.ndarray, tol: float) -> None:
    """Raise where variances are not all above `tol`, or rounding would decide about one."""
    if not (variance > tol + 1e-6 * tol + 64 * _EPS * variance.max()).all():
        raise UnclearError("the covariance of a class is not of full rank")


def standardised(
    covariance: np.ndarray, mean: np.ndarray, n_samples: int
) -> tuple[np.ndarray, np.ndarray]:
    """Return the correlation matrix and the standard deviations, 1 for a constant feature.

    A feature counts as constant where scikit-learn's `StandardScaler` takes it to be.
    """
    variance = np.diagonal(covariance)
    rounding = n_samples * _EPS * variance + (n_samples * mean * _EPS) ** 2
    std = np.where(variance <= rounding, 1.0, np.sqrt(variance))
    return covariance / (std[:, None] * std), std
