"""What methods read and assign is told from their code, for every release of scikit-learn."""

from __future__ import annotations

import warnings
from types import SimpleNamespace

import numpy as np
import pytest
from class_cases import all_classes, case_of
from engine import AcceleratedLine, Line
from sklearn.base import BaseEstimator
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.svm import SVC
from sklearn.utils.metaestimators import available_if

from accelsk._sklearn import BOOKKEEPING
from accelsk.introspection import (
    assigned_names,
    overridden,
    reached_names,
    replaced,
    validates_input,
)

CLASSES = all_classes()


@pytest.mark.parametrize("key", CLASSES)
def test_whether_a_fit_records_its_features_is_known_beforehand(key):
    original, case = CLASSES[key]._accelsk_original, case_of(CLASSES[key])
    data = case.data()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        plain = original(**case.parameters)
        plain.fit(data.y) if data.X is None else plain.fit(data.X, data.y)
    assert ("n_features_in_" in vars(plain)) == validates_input(original)


@pytest.mark.parametrize("key", CLASSES)
def test_what_a_fit_assigns_holds_no_hyperparameter_and_no_bookkeeping(key):
    names = assigned_names(CLASSES[key])
    assert names.isdisjoint(CLASSES[key]._get_param_names())
    assert names.isdisjoint(BOOKKEEPING)


class _Example(BaseEstimator):
    def __init__(self, knob=1):
        self.knob = knob

    def fit(self, X, y=None):
        self.knob = 3
        self.first_, self._second = self._help(X), [self._comprehended() for _ in X]
        self.first_ += 1

        def inner():
            self.third_ = 1

        inner()
        return self

    def _help(self, X):
        self.helped_ = len(X)
        return self.shared

    def _comprehended(self):
        self.deep_ = 1

    @property
    def shared(self):
        self.touched_ = 1
        return 1

    @available_if(lambda self: True)
    def predict(self, X):
        self.predicted_ = 1
        return self._vote(X)

    def _vote(self, X):
        return X

    def unrelated(self):
        self.never_ = 1


def test_assignments_are_found_in_helpers_properties_and_closures():
    assert assigned_names(_Example) == {
        *("first_", "_second", "third_", "helped_", "deep_", "touched_"),
    }
    assert assigned_names(_Example, ("predict",)) == {"predicted_"}


def test_what_init_sets_beside_hyperparameters_is_not_fitted_state():
    class Boxed(BaseEstimator):
        def __init__(self, size=1):
            self.size = size
            self.template = object()
            self._cache = None

        def fit(self, X, y=None):
            box = SimpleNamespace()
            box.template = self.template
            self._cache = self.boxes_ = [box]
            return self

    assert assigned_names(Boxed) == {"_cache", "boxes_"}


def test_reached_names_follow_calls():
    assert {"fit", "_help", "_comprehended", "shared"} <= reached_names(_Example, "fit")
    assert "unrelated" not in reached_names(_Example, "fit")
    assert {"predict", "_vote"} <= reached_names(_Example, "predict")


@pytest.mark.parametrize(
    ("cls", "method", "names"),
    [
        (Ridge, "predict", {"_decision_function"}),
        (Ridge, "score", {"predict"}),
        (LogisticRegression, "predict_proba", {"decision_function"}),
        (RandomForestClassifier, "predict", {"predict_proba", "_validate_X_predict"}),
        (SVC, "predict", {"decision_function"}),
    ],
)
def test_reached_names_of_scikit_learn(cls, method, names):
    assert names <= reached_names(cls, method)


def test_inherited_code_counts():
    class Child(_Example):
        def _help(self, X):
            self.own_ = super()._help(X)
            return self.own_

    assert {"own_", "helped_"} <= assigned_names(Child)


def test_overridden_names_only_what_the_method_uses():
    class Child(AcceleratedLine):
        def predict(self, X):
            return X

        def unrelated(self):
            return 1

        def __repr__(self):
            return "child"

    assert overridden(Child, AcceleratedLine, "predict") == ()
    assert overridden(Child, AcceleratedLine, "fit") == ()
    assert overridden(AcceleratedLine, AcceleratedLine, "fit") == ()


def test_replaced_names_only_functions_that_the_method_uses():
    line = AcceleratedLine()
    line._solve = lambda X, y, weight: None
    line.note = lambda: None
    line.predict = 3
    assert replaced(line, AcceleratedLine, "fit") == ("_solve",)
    assert replaced(line, AcceleratedLine, "predict") == ()


def test_names_in_foreign_code_without_source_do_not_matter():
    class Odd(Line):
        fit = np.vectorize(lambda self: None)

    assert isinstance(assigned_names(Odd), frozenset)
