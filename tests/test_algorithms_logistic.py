"""Logistic regression on NumPy in CuPy's place: scikit-learn's iterations, optimum and warnings."""

from __future__ import annotations

import warnings
from typing import Any

import device_double
import numpy as np
import pytest
import sklearn.linear_model
from class_cases import binary, classification
from scipy.optimize import approx_fprime
from sklearn.exceptions import ConvergenceWarning

import accelsk
from accelsk.algorithms.logistic import Objective, probabilities
from accelsk.linear_model import LogisticRegression

DATA = {"binary": binary, "multiclass": classification}
each_problem = pytest.mark.parametrize("data", DATA.values(), ids=DATA.keys())


@pytest.fixture(autouse=True)
def on_the_double(monkeypatch: pytest.MonkeyPatch) -> Any:
    device_double.install(monkeypatch)
    with accelsk.config_context(device="gpu", on_fallback="raise"):
        yield


def objective(data: Any, weighted: bool = True, fit_intercept: bool = True) -> Objective:
    X, y, *_ = data()
    weight = np.random.default_rng(0).uniform(0, 2, len(y)) if weighted else None
    return Objective(
        X - X.mean(axis=0),
        y,
        len(np.unique(y)),
        weight,
        C=0.5,
        fit_intercept=fit_intercept,
        xp=np,
    )


@each_problem
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("fit_intercept", [False, True])
def test_derivatives_are_those_of_the_value(data: Any, weighted: bool, fit_intercept: bool) -> None:
    f = objective(data, weighted, fit_intercept)
    w = np.random.default_rng(1).normal(0, 0.3, len(f.start))
    value, gradient = f.value_and_gradient(w)
    assert value == f.value(w)
    np.testing.assert_array_equal(gradient, f.gradient(w))
    np.testing.assert_allclose(gradient, approx_fprime(w, f.value), atol=1e-5)
    same, product = f.gradient_and_product(w)
    np.testing.assert_array_equal(same, gradient)
    hessian = np.column_stack([product(e) for e in np.eye(len(w))])
    np.testing.assert_allclose(hessian, hessian.T, atol=1e-12)
    np.testing.assert_allclose(hessian, approx_fprime(w, f.gradient), atol=1e-4)


def test_extreme_scores_overflow_nowhere() -> None:
    scores = np.array([-1e308, -800.0, 0.0, 800.0, 1e308])
    with np.errstate(all="raise", under="ignore"):
        np.testing.assert_allclose(probabilities(scores, np)[:, 1], [0, 0, 0.5, 1, 1])


@each_problem
@pytest.mark.parametrize(
    "parameters",
    [
        {"C": 0.01},
        {"C": 0.05, "tol": 1e-7, "max_iter": 1000},
        {"C": 0.01, "fit_intercept": False},
        {"C": 0.01, "class_weight": "balanced"},
        {"C": 0.01, "class_weight": {0: 1.0, 1: 5.0}},
        {"C": 0.01, "solver": "newton-cg", "tol": 1e-8},
        {"max_iter": 0},
        {"max_iter": 1},
        {"max_iter": 1, "solver": "newton-cg"},
    ],
    ids=str,
)
def test_a_fit_is_scikit_learns(data: Any, parameters: dict[str, Any]) -> None:
    X, y, new, _, _ = data()
    found = []
    for cls in (LogisticRegression, sklearn.linear_model.LogisticRegression):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", ConvergenceWarning)
            est = cls(**parameters).fit(X, y)
        warned = [w for w in caught if issubclass(w.category, ConvergenceWarning)]
        found.append((est, len(warned)))
    (actual, warned_here), (expected, warned) = found
    assert warned_here == warned
    for name in ("coef_", "intercept_", "classes_"):
        left, right = getattr(actual, name), getattr(expected, name)
        assert (left.dtype, left.shape) == (right.dtype, right.shape)
        np.testing.assert_allclose(left, right, rtol=1e-4, atol=1e-6)
    assert actual.n_iter_.dtype == expected.n_iter_.dtype
    assert abs(actual.n_iter_ - expected.n_iter_).max() <= 2  # rounding may decide about the last
    np.testing.assert_allclose(actual.predict_proba(new), expected.predict_proba(new), atol=1e-5)
    np.testing.assert_array_equal(actual.predict(new), expected.predict(new))


@each_problem
@pytest.mark.parametrize("solver", ["lbfgs", "newton-cg"])
def test_float32_has_scikit_learns_dtypes(data: Any, solver: str) -> None:
    X, y, new, _, _ = data()
    X, new = X.astype(np.float32), new.astype(np.float32)
    parameters = {"C": 0.01, "solver": solver}
    actual = LogisticRegression(**parameters).fit(X, y)
    expected = sklearn.linear_model.LogisticRegression(**parameters).fit(X, y)
    assert actual.coef_.dtype == expected.coef_.dtype
    assert actual.intercept_.dtype == expected.intercept_.dtype
    assert actual.predict_proba(new).dtype == expected.predict_proba(new).dtype
    truth = sklearn.linear_model.LogisticRegression(**parameters).fit(X.astype(np.float64), y)
    np.testing.assert_allclose(actual.coef_, truth.coef_, rtol=1e-3, atol=1e-5)


def test_an_edit_of_the_coefficients_counts() -> None:
    X, y, new, _, _ = classification()
    model = LogisticRegression(C=0.01).fit(X, y)
    before = model.decision_function(new)
    model.coef_[...] *= 2
    after = model.decision_function(new)
    np.testing.assert_allclose(after - model.intercept_, 2 * (before - model.intercept_))
