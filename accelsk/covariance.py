"""`sklearn.covariance`, with classes that try the GPU first."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
from scipy.linalg import pinvh
from sklearn.covariance import _empirical_covariance, _shrunk_covariance

from accelsk._mirror import mirror
from accelsk.algorithms import covariance
from accelsk.device.transfer import to_device, to_host
from accelsk.engines import inputs
from accelsk.engines.base import Call, Outcome
from accelsk.engines.cupy import CupyEngine
from accelsk.estimator import Accelerated
from accelsk.exceptions import Refusal

__all__, __getattr__, __dir__ = mirror(__name__)


class _EmpiricalCovarianceOnCupy(CupyEngine):
    """Moments in float64, whatever comes in; attributes in scikit-learn's dtypes."""

    methods = ("fit", "mahalanobis")
    min_rows = 2
    rules = (inputs.PRECISION,)
    state = ("location_", "covariance_", "precision_")

    def fit(self, call: Call, X: Any) -> Outcome:
        import cupy

        centre = call.parameters["assume_centered"]
        rows = X.astype(np.float64)
        location = cupy.zeros(X.shape[1]) if centre else rows.mean(axis=0)
        rows -= location
        model = SimpleNamespace(location_=location if centre else location.astype(X.dtype))
        matrix, shrinkage = self.estimate(rows, cupy)
        dtype = self.covariance_dtype(X.dtype, centre)
        model.covariance_ = matrix.astype(dtype)
        model.precision_ = None
        if call.parameters["store_precision"]:
            model.precision_ = _precision(model.covariance_, matrix)
        if shrinkage is not None:
            model.shrinkage_ = dtype(shrinkage) if shrinkage and X.shape[1] > 1 else shrinkage
        if not bool(cupy.isfinite(matrix).all()):
            raise Refusal("the covariance overflows")
        return Outcome(model=model)

    def estimate(self, rows: Any, xp: Any) -> tuple[Any, float | None]:
        """Return the covariance of centred rows and how far it was shrunk."""
        return covariance.empirical(rows), None

    def covariance_dtype(self, dtype: Any, assume_centered: bool) -> Any:
        """Return the dtype of scikit-learn's ``covariance_`` for X of `dtype`."""
        return dtype.type if assume_centered else np.float64

    def mahalanobis(self, call: Call, model: SimpleNamespace) -> Any:
        """Return squared distances from the location."""
        precision = model.precision_
        if precision is None:
            precision = _precision(model.covariance_, model.covariance_.astype(np.float64))
        apart = self.matrix(call).astype(np.float64) - model.location_
        distances = ((apart @ precision.astype(np.float64)) * apart).sum(axis=1)
        if not bool((distances >= 0).all()):
            raise Refusal("the precision is not positive definite")
        return distances


def _precision(matrix: Any, exact: Any) -> Any:
    """Return the pseudo-inverse of a covariance; `exact` is the same in float64."""
    import cupy

    inverse = covariance.inverse(exact, matrix.dtype, cupy)
    if inverse is None:
        return to_device(pinvh(to_host(matrix), check_finite=False))
    return inverse.astype(matrix.dtype)


class _LedoitWolfOnCupy(_EmpiricalCovarianceOnCupy):
    def estimate(self, rows: Any, xp: Any) -> tuple[Any, float | None]:
        matrix = covariance.empirical(rows)
        if len(matrix) == 1:
            return matrix, 0.0
        shrinkage = covariance.ledoit_wolf_shrinkage(rows, matrix, xp)
        # scikit-learn gives the integer where nothing is shrunk
        return covariance.shrunk(matrix, shrinkage, xp), shrinkage or 0

    def covariance_dtype(self, dtype: Any, assume_centered: bool) -> Any:
        return np.float64 if assume_centered else dtype.type


class EmpiricalCovariance(
    Accelerated,
    _empirical_covariance.EmpiricalCovariance,
    engines=[_EmpiricalCovarianceOnCupy()],
): ...


class LedoitWolf(
    EmpiricalCovariance, _shrunk_covariance.LedoitWolf, engines=[_LedoitWolfOnCupy()]
): ...
