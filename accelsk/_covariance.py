"""The engines for covariance estimators."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.linalg import pinvh
from sklearn.covariance import log_likelihood

from accelsk._projections import adopted, with_arguments
from accelsk.algorithms import covariance, spectra
from accelsk.algorithms.moments import Accumulator, Moments, first_estimate
from accelsk.device.transfer import to_device, to_host
from accelsk.engines import inputs
from accelsk.engines.base import Call, Outcome, refuse
from accelsk.engines.moments import MomentsEngine, blocks, check, limits, mapped, moments
from accelsk.exceptions import Invalid, Refusal

__all__ = [
    "EmpiricalCovarianceOnMoments",
    "LedoitWolfOnMoments",
    "OASOnMoments",
    "ShrunkCovarianceOnMoments",
]


def _plain_test_rows(call: Call) -> bool:
    rows = call.argument("X_test")
    plain = rows.kind in ("numpy", "cupy") and rows.numeric
    precise = rows.dtype is None or rows.dtype.kind != "f" or rows.dtype.itemsize in (4, 8)
    return plain and precise and not hasattr(call.estimator, "feature_names_in_")


def _unlike_training(call: Call) -> bool:
    rows = call.argument("X_test")
    return len(rows.shape) != 2 or rows.shape[1] != call.estimator.n_features_in_


#: What ``score`` calls ``X_test`` is checked here: a plan only knows of ``X``.
_TEST_ROWS = (
    refuse(
        "X_test is not a plain matrix, or there are feature names to compare",
        lambda call: call.method == "score" and not _plain_test_rows(call),
        fit_only=False,
    ),
    refuse(
        Invalid("X_test is not like the X of the fit"),
        lambda call: call.method == "score" and _unlike_training(call),
        fit_only=False,
    ),
)


class EmpiricalCovarianceOnMoments(MomentsEngine):
    """Moments in float64, whatever comes in; attributes in scikit-learn's dtypes."""

    methods = ("fit", "score", "mahalanobis")
    min_rows = 2
    rules = (inputs.PRECISION, inputs.HIDDEN_PRECISION, *_TEST_ROWS)
    state = ("location_", "covariance_", "precision_")

    def fit(self, call: Call, X: Any) -> Outcome:
        centre = call.parameters["assume_centered"]
        of_rows, fourth = self.moments(call)
        if centre:
            of_rows = of_rows.about_zero()
        exact, attributes = self.estimate(call, of_rows, fourth)
        if not np.isfinite(exact).all():
            raise Refusal("the covariance overflows")
        float_type = _float_type(call)
        matrix = exact.astype(self.covariance_type(float_type, centre))
        precision = _precision(matrix, exact) if call.parameters["store_precision"] else None
        location = of_rows.X_mean if centre else of_rows.X_mean.astype(float_type)
        attributes |= {"location_": location, "covariance_": matrix, "precision_": precision}
        return adopted(attributes, self.state)

    def moments(self, call: Call) -> tuple[Moments, float]:
        """Return the moments of the rows, and the fourth ones where they matter."""
        return moments(call, target=False), 0.0

    def estimate(
        self, call: Call, of_rows: Moments, fourth: float
    ) -> tuple[np.ndarray, dict[str, Any]]:
        """Return the covariance in float64, and what other attributes there are."""
        return of_rows.gram / of_rows.n_samples, {}

    def covariance_type(self, float_type: Any, assume_centered: bool) -> Any:
        """Return the type of scikit-learn's ``covariance_`` for X of `float_type`."""
        return float_type if assume_centered else np.float64

    def score(self, call: Call, model: Any) -> Any:
        """Return the log-likelihood of the rows."""
        call = with_arguments(call, X=call.arguments["X_test"])
        of_rows = moments(call, target=False)
        apart = of_rows.X_mean - to_host(model.location_)
        matrix = of_rows.gram / of_rows.n_samples + apart[:, None] * apart
        dtype = np.result_type(_float_type(call), model.location_.dtype)
        return log_likelihood(matrix.astype(dtype), call.estimator.get_precision())

    def mahalanobis(self, call: Call, model: Any) -> Any:
        """Return squared distances from the location."""
        matrix = model.covariance_
        precision = model.precision_
        if precision is None:
            precision = to_device(_precision(to_host(matrix), to_host(matrix).astype(np.float64)))
        precision = precision.astype(np.float64)
        location = model.location_.astype(np.float64)

        def distances(X: Any) -> Any:
            apart = X - location
            return ((apart @ precision) * apart).sum(axis=1)

        found = mapped(call, distances)
        if not bool((found >= 0).all()):
            raise Refusal("the precision is not positive definite")
        return found


def _float_type(call: Call) -> Any:
    return np.float32 if call.X.dtype == np.float32 else np.float64


def _precision(matrix: np.ndarray, exact: np.ndarray) -> np.ndarray:
    """Return the pseudo-inverse of a covariance; `exact` is the same in float64."""
    import cupy

    place = exact if len(exact) <= spectra.HOST_SIZE else to_device(exact)
    inverse = covariance.inverse(place, matrix.dtype, cupy)
    if inverse is None:
        return pinvh(matrix, check_finite=False)
    return to_host(inverse).astype(matrix.dtype)


class ShrunkCovarianceOnMoments(EmpiricalCovarianceOnMoments):
    """Shrunk as far as the caller says."""

    def estimate(
        self, call: Call, of_rows: Moments, fourth: float
    ) -> tuple[np.ndarray, dict[str, Any]]:
        matrix, found = super().estimate(call, of_rows, fourth)
        return covariance.shrunk(matrix, call.parameters["shrinkage"], np), found


class _ShrunkOnMoments(EmpiricalCovarianceOnMoments):
    """Shrunk as far as the rows say."""

    def covariance_type(self, float_type: Any, assume_centered: bool) -> Any:
        return np.float64 if assume_centered else float_type


class OASOnMoments(_ShrunkOnMoments):
    def estimate(
        self, call: Call, of_rows: Moments, fourth: float
    ) -> tuple[np.ndarray, dict[str, Any]]:
        matrix = of_rows.gram / of_rows.n_samples
        if len(matrix) == 1:
            return matrix, {"shrinkage_": 0.0}
        shrinkage = covariance.oas_shrinkage(matrix, of_rows.n_samples)
        kind = self.covariance_type(_float_type(call), call.parameters["assume_centered"])
        # scikit-learn gives the float where all is shrunk
        found = {"shrinkage_": kind(shrinkage) if shrinkage < 1.0 else 1.0}
        return covariance.shrunk(matrix, shrinkage, np), found


class LedoitWolfOnMoments(_ShrunkOnMoments):
    """The fourth moments come from the same pass as the second ones."""

    def moments(self, call: Call) -> tuple[Moments, float]:
        import cupy

        centre = call.parameters["assume_centered"]
        of_rows, fourth = _fourth_moments(call, cupy.zeros(call.X.shape[1]) if centre else None)
        if fourth is None:  # the estimate of the mean was too bad
            of_rows, fourth = _fourth_moments(call, to_device(of_rows.X_mean))
        if fourth is None:
            raise Refusal("the fourth moments have too few digits")
        return of_rows, fourth

    def estimate(
        self, call: Call, of_rows: Moments, fourth: float
    ) -> tuple[np.ndarray, dict[str, Any]]:
        matrix = of_rows.gram / of_rows.n_samples
        if len(matrix) == 1:
            return matrix, {"shrinkage_": 0.0}
        shrinkage = covariance.ledoit_wolf_shrinkage(matrix, fourth, of_rows.n_samples)
        kind = self.covariance_type(_float_type(call), call.parameters["assume_centered"])
        # scikit-learn gives the integer where nothing is shrunk
        found = {"shrinkage_": kind(shrinkage) if shrinkage else 0}
        return covariance.shrunk(matrix, shrinkage, np), found


def _fourth_moments(call: Call, shift: Any) -> tuple[Moments, float | None]:
    """Return the moments of the rows and the sum of the fourth powers of their lengths.

    They are about the mean, or about zero where rows are taken to be centred.
    """
    import cupy

    of_rows: Any = None
    for block in blocks(call, target=False):
        if of_rows is None:
            shift = first_estimate(block.X, cupy) if shift is None else shift
            of_rows = Accumulator(cupy, (shift, cupy.zeros(1)), limits(call.X.shape[1])[1])
        of_rows.add(block.X, covariance.squared_lengths(block.X, shift))
    found = of_rows.result().on_host()
    check(found)
    if call.parameters["assume_centered"]:
        return found, float(found.YY[0] + found.n_samples * found.Y_mean[0] ** 2)
    return found, covariance.fourth_powers(found, to_host(shift))
