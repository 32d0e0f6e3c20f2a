"""scikit-learn's meta-estimators work unchanged around accelerated estimators."""

from __future__ import annotations

import numpy as np
import pytest
from alike import device  # noqa: F401 - a fixture
from comparison import assert_same
from meta_estimators import CASES, answers, case_data, ours
from sklearn.base import clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.frozen import FrozenEstimator
from sklearn.inspection import partial_dependence, permutation_importance
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import accelsk
from accelsk.profiling.events import listening


@pytest.mark.parametrize("name", CASES)
def test_meta_estimator_learns_and_answers_the_same(name):
    plain, kind = CASES[name]
    X, y = case_data(kind)
    events = []
    with listening(events.append):
        fitted = ours(plain).fit(X, y)
        found = answers(fitted, X)
    assert {event.engine for event in events} - {None}
    expected = answers(clone(plain).fit(X, y), X)
    assert_same(found, expected, name, tolerance=2e-5)


@pytest.mark.parametrize("name", CASES)
def test_meta_estimator_is_cloned_and_reprinted(name):
    plain, _ = CASES[name]
    estimator = ours(plain)
    assert repr(estimator) == repr(plain)
    assert repr(clone(estimator)) == repr(plain)


def test_weights_reach_accelerated_estimators():
    X, y = case_data("numbers")
    weight = np.linspace(0.1, 2, len(y))
    for name in ("bagging of lines", "voting of lines", "boosting of lines", "several targets"):
        plain, kind = CASES[name]
        if name == "voting of lines":
            plain = clone(plain).set_params(pipeline="drop")
        X, y = case_data(kind)
        found = ours(plain).fit(X, y, sample_weight=weight)
        expected = clone(plain).fit(X, y, sample_weight=weight)
        assert_same(answers(found, X), answers(expected, X), name, tolerance=1e-6)


def test_frozen_estimators_are_calibrated():
    X, y = case_data("classes")
    plain = make_pipeline(StandardScaler(), LogisticRegression()).fit(X, y)
    expected = CalibratedClassifierCV(FrozenEstimator(plain)).fit(X, y)
    found = CalibratedClassifierCV(FrozenEstimator(accelsk.from_sklearn(plain))).fit(X, y)
    assert_same(answers(found, X), answers(expected, X), tolerance=1e-6)


@pytest.mark.parametrize(
    "plain", [Ridge(), make_pipeline(StandardScaler(), Ridge())], ids=["one", "pipeline"]
)
def test_inspection(plain):
    X, y = case_data("numbers")
    estimator = ours(plain).fit(X, y)
    plain = clone(plain).fit(X, y)
    importance = [
        permutation_importance(one, X, y, n_repeats=2, random_state=0) for one in (estimator, plain)
    ]
    assert_same(dict(importance[0]), dict(importance[1]), tolerance=1e-6)
    dependence = [
        partial_dependence(one, X, [0, 1], grid_resolution=5, method="brute")
        for one in (estimator, plain)
    ]
    assert_same(dict(dependence[0]), dict(dependence[1]), tolerance=1e-6)
