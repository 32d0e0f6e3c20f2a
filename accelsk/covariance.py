"""`sklearn.covariance`, with classes that try the GPU first."""

from __future__ import annotations

from sklearn.covariance import _empirical_covariance, _shrunk_covariance

from accelsk._covariance import (
    EmpiricalCovarianceOnMoments,
    LedoitWolfOnMoments,
    OASOnMoments,
    ShrunkCovarianceOnMoments,
)
from accelsk._mirror import mirror
from accelsk.estimator import Accelerated

__all__, __getattr__, __dir__ = mirror(__name__)


class EmpiricalCovariance(
    Accelerated,
    _empirical_covariance.EmpiricalCovariance,
    engines=[EmpiricalCovarianceOnMoments()],
): ...


class ShrunkCovariance(
    EmpiricalCovariance, _shrunk_covariance.ShrunkCovariance, engines=[ShrunkCovarianceOnMoments()]
): ...


class LedoitWolf(
    EmpiricalCovariance, _shrunk_covariance.LedoitWolf, engines=[LedoitWolfOnMoments()]
): ...


class OAS(EmpiricalCovariance, _shrunk_covariance.OAS, engines=[OASOnMoments()]): ...
