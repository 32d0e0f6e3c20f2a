"""`sklearn.linear_model`, with classes that try the GPU first."""

from __future__ import annotations

from sklearn.linear_model import (
    _base,
    _bayes,
    _coordinate_descent,
    _least_angle,
    _logistic,
    _omp,
    _ridge,
)

from accelsk._bayesian_ridge import ARDOnMoments, BayesianRidgeOnMoments
from accelsk._elastic_net import ElasticNetOnMoments
from accelsk._lars import LarsOnMoments, LassoLarsICOnMoments
from accelsk._least_squares import LinearRegressionOnMoments, RidgeOnMoments
from accelsk._logistic import LogisticRegressionOnCupy
from accelsk._matching_pursuit import MatchingPursuitCVOnMoments, MatchingPursuitOnMoments
from accelsk._mirror import mirror
from accelsk._path_cv import PathCVOnMoments
from accelsk._ridge_classifier import RidgeClassifierCVOnMoments, RidgeClassifierOnMoments
from accelsk._ridge_cv import RidgeCVOnMoments
from accelsk.estimator import Accelerated

__all__, __getattr__, __dir__ = mirror(__name__)


class Ridge(Accelerated, _ridge.Ridge, engines=[RidgeOnMoments()]): ...


class LinearRegression(
    Accelerated, _base.LinearRegression, engines=[LinearRegressionOnMoments()]
): ...


class LogisticRegression(
    Accelerated, _logistic.LogisticRegression, engines=[LogisticRegressionOnCupy()]
): ...


class ElasticNet(Accelerated, _coordinate_descent.ElasticNet, engines=[ElasticNetOnMoments()]): ...


class Lasso(ElasticNet, _coordinate_descent.Lasso, engines=[ElasticNetOnMoments()]): ...


class RidgeCV(Accelerated, _ridge.RidgeCV, engines=[RidgeCVOnMoments()]): ...


class RidgeClassifier(
    Accelerated, _ridge.RidgeClassifier, engines=[RidgeClassifierOnMoments()]
): ...


class RidgeClassifierCV(
    Accelerated, _ridge.RidgeClassifierCV, engines=[RidgeClassifierCVOnMoments()]
): ...


class LassoCV(Accelerated, _coordinate_descent.LassoCV, engines=[PathCVOnMoments()]): ...


class ElasticNetCV(Accelerated, _coordinate_descent.ElasticNetCV, engines=[PathCVOnMoments()]): ...


class Lars(Accelerated, _least_angle.Lars, engines=[LarsOnMoments()]): ...


class LassoLars(Lars, _least_angle.LassoLars, engines=[LarsOnMoments()]): ...


class LassoLarsIC(LassoLars, _least_angle.LassoLarsIC, engines=[LassoLarsICOnMoments()]): ...


class OrthogonalMatchingPursuit(
    Accelerated, _omp.OrthogonalMatchingPursuit, engines=[MatchingPursuitOnMoments()]
): ...


class OrthogonalMatchingPursuitCV(
    Accelerated, _omp.OrthogonalMatchingPursuitCV, engines=[MatchingPursuitCVOnMoments()]
): ...


class BayesianRidge(Accelerated, _bayes.BayesianRidge, engines=[BayesianRidgeOnMoments()]): ...


class ARDRegression(Accelerated, _bayes.ARDRegression, engines=[ARDOnMoments()]): ...
