"""`sklearn.ensemble`, with classes that try the GPU first."""

from __future__ import annotations

from sklearn.ensemble import _forest, _iforest

from accelsk._forests import ForestClassifierOnCupy, ForestRegressorOnCupy
from accelsk._isolation import IsolationForestOnCupy
from accelsk._mirror import mirror
from accelsk.estimator import Accelerated

__all__, __getattr__, __dir__ = mirror(__name__)


class RandomForestClassifier(
    Accelerated, _forest.RandomForestClassifier, engines=[ForestClassifierOnCupy()]
): ...


class RandomForestRegressor(
    Accelerated, _forest.RandomForestRegressor, engines=[ForestRegressorOnCupy()]
): ...


class IsolationForest(Accelerated, _iforest.IsolationForest, engines=[IsolationForestOnCupy()]): ...
