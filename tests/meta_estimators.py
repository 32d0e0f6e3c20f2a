"""Meta-estimators of scikit-learn's around estimators that have accelerated classes."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn import ensemble, feature_selection, linear_model, multiclass, multioutput
from sklearn.calibration import CalibratedClassifierCV
from sklearn.decomposition import PCA
from sklearn.linear_model import Lasso, LogisticRegression, Ridge
from sklearn.model_selection import FixedThresholdClassifier, TunedThresholdClassifierCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import accelsk

__all__ = ["CASES", "answers", "case_data", "ours"]

_LINES = [("ridge", Ridge()), ("pipeline", make_pipeline(StandardScaler(), Ridge(0.1)))]
_CLASSIFIERS = [
    ("regression", LogisticRegression()),
    ("pipeline", make_pipeline(StandardScaler(), LogisticRegression(C=0.1))),
]

#: By name: the meta-estimator, and what it learns.
CASES: dict[str, tuple[Any, str]] = {
    "bagging": (
        ensemble.BaggingClassifier(
            LogisticRegression(), 4, max_samples=0.7, max_features=0.6, random_state=0
        ),
        "classes",
    ),
    "bagging of lines": (ensemble.BaggingRegressor(Ridge(), 4, random_state=0), "numbers"),
    "voting": (ensemble.VotingClassifier(_CLASSIFIERS, voting="soft"), "classes"),
    "voting by hand": (ensemble.VotingClassifier(_CLASSIFIERS, voting="hard"), "text"),
    "voting of lines": (ensemble.VotingRegressor(_LINES), "numbers"),
    "stacking": (ensemble.StackingClassifier(_CLASSIFIERS, LogisticRegression(), cv=3), "classes"),
    "stacking of lines": (
        ensemble.StackingRegressor(_LINES, Ridge(), cv=3, passthrough=True),
        "numbers",
    ),
    "boosting": (ensemble.AdaBoostClassifier(LogisticRegression(), n_estimators=3), "classes"),
    "boosting of lines": (
        ensemble.AdaBoostRegressor(Ridge(), n_estimators=3, random_state=0),
        "numbers",
    ),
    "several targets": (multioutput.MultiOutputRegressor(Ridge()), "several numbers"),
    "several classes": (multioutput.MultiOutputClassifier(LogisticRegression()), "several classes"),
    "chain of lines": (multioutput.RegressorChain(Ridge()), "several numbers"),
    "chain": (multioutput.ClassifierChain(LogisticRegression()), "several classes"),
    "one against the rest": (multiclass.OneVsRestClassifier(LogisticRegression()), "text"),
    "one against one": (multiclass.OneVsOneClassifier(LogisticRegression()), "classes"),
    "codes": (
        multiclass.OutputCodeClassifier(LogisticRegression(), random_state=0),
        "classes",
    ),
    "calibrated": (CalibratedClassifierCV(LogisticRegression(), cv=3), "classes"),
    "calibrated together": (
        CalibratedClassifierCV(LogisticRegression(), method="isotonic", cv=3, ensemble=False),
        "two classes",
    ),
    "threshold": (FixedThresholdClassifier(LogisticRegression(), threshold=0.3), "two classes"),
    "tuned threshold": (TunedThresholdClassifierCV(LogisticRegression(), cv=3), "two classes"),
    "selection by model": (feature_selection.SelectFromModel(Lasso(0.1)), "numbers"),
    "selection, last first": (
        feature_selection.RFE(LogisticRegression(), n_features_to_select=3),
        "classes",
    ),
    "selection with folds": (feature_selection.RFECV(Ridge(), cv=3), "numbers"),
    "selection in turn": (
        feature_selection.SequentialFeatureSelector(Ridge(), n_features_to_select=2, cv=3),
        "numbers",
    ),
    "in a pipeline": (
        make_pipeline(
            StandardScaler(),
            feature_selection.SelectFromModel(Lasso(0.05)),
            PCA(2),
            ensemble.VotingRegressor(_LINES),
        ),
        "numbers",
    ),
    "robust": (
        linear_model.RANSACRegressor(Ridge(), random_state=0, max_trials=5, min_samples=0.5),
        "numbers",
    ),
}


def case_data(kind: str, n: int = 240) -> tuple[np.ndarray, Any]:
    """Return X and a target of a kind that `CASES` names."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, 6)) * [1, 2, 3, 1, 1, 1] + 1
    score = X @ [1.0, 0.5, 0.2, 0.0, -1.0, 0.0] + 0.3 * rng.normal(size=n)
    three = np.digitize(score, np.quantile(score, [0.3, 0.7]))
    return X, {
        "numbers": score,
        "several numbers": np.column_stack([score, X[:, 1] - score]),
        "classes": three,
        "two classes": (three > 0).astype(int),
        "several classes": np.column_stack([three > 0, three > 1]).astype(int),
        "text": np.array(["low", "middle", "high"])[three],
    }[kind]


def ours(estimator: Any) -> Any:
    """Return `estimator` with every part replaced by its accelerated class where it has one."""

    def replaced(value: Any) -> Any:
        if type(value) in (list, tuple):
            return type(value)(map(replaced, value))
        return ours(value) if hasattr(value, "get_params") else value

    try:
        return accelsk.from_sklearn(estimator)
    except TypeError:
        parameters = estimator.get_params(deep=False)
        return type(estimator)(**{name: replaced(value) for name, value in parameters.items()})


def answers(estimator: Any, X: np.ndarray) -> dict[str, Any]:
    """Return what the methods of a fitted meta-estimator answer."""
    return {
        method: getattr(estimator, method)(X)
        for method in ("predict", "predict_proba", "decision_function", "transform")
        if hasattr(estimator, method)
    }
