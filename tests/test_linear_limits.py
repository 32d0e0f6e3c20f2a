"""Where linear models that rest on moments end: rounding, refusals, errors, memory, searches."""

from fractions import Fraction

import numpy as np
import pytest
import sklearn.linear_model
import sklearn.model_selection
from alike import device  # noqa: F401
from class_cases import classification
from comparison import fitted
from test_linear_models import PLAIN, RNG, SPLITS, WEIGHT, X, assert_alike, tolerated, y

import accelsk
from accelsk import linear_model

NEARLY = np.c_[X, X[:, 0] * (1 + 1e-9 * RNG.randn(len(X)))]


@pytest.mark.parametrize(
    ("name", "rows", "target", "reason"),
    [
        ("BayesianRidge", X, X @ np.arange(6.0), "rounding"),
        ("ARDRegression", X, X @ np.arange(6.0), "rounding"),
        ("LassoLarsIC", X, X @ np.arange(6.0), "rounding"),
        ("Lars", NEARLY, y, "nearly collinear"),
        ("LassoLarsIC", NEARLY, y, "nearly collinear"),
        ("OrthogonalMatchingPursuit", X, np.zeros(len(X)), "rounding decides"),
        ("RidgeCV", np.r_[X, [[1e9] * 6]], np.r_[y, 1], "nearly"),
    ],
)
def test_what_rounding_would_decide_is_left_to_scikit_learn(name, rows, target, reason):
    with pytest.raises(accelsk.exceptions.FallbackError, match=reason):
        getattr(linear_model, name)().fit(rows, target)


def test_errors_of_rows_left_out_are_those_of_rational_arithmetic():
    """Where next to nothing is left, and features are the same."""
    rng = np.random.RandomState(3)
    rows = np.rint(rng.randn(12, 2) * 100)
    rows = np.c_[rows, rows[:, 0]]
    target = rows @ [1.0, -2.0, 0.5]
    exact = _mean_square_of_rows_left_out(rows, target, 0.1)
    model = linear_model.RidgeCV(alphas=[0.1], fit_intercept=False).fit(rows, target)
    assert model.best_score_ == pytest.approx(-exact, rel=1e-7)


def _mean_square_of_rows_left_out(X, y, alpha):
    X = [[Fraction(value) for value in row] for row in X.tolist()]
    y = [Fraction(value) for value in y.tolist()]
    total = Fraction(0)
    for out in range(len(y)):
        kept = [row for row in range(len(y)) if row != out]
        columns = range(len(X[0]))
        gram = [[sum(X[r][i] * X[r][j] for r in kept) for j in columns] for i in columns]
        for i in columns:
            gram[i][i] += Fraction(alpha)
        coef = _solved(gram, [sum(X[r][i] * y[r] for r in kept) for i in columns])
        total += (y[out] - sum(x * c for x, c in zip(X[out], coef, strict=True))) ** 2
    return float(total / len(y))


def _solved(matrix, right):
    rows = [[*row, value] for row, value in zip(matrix, right, strict=True)]
    for i in range(len(rows)):
        rows[i] = [value / rows[i][i] for value in rows[i]]
        for k in range(len(rows)):
            if k != i:
                rows[k] = [a - rows[k][i] * b for a, b in zip(rows[k], rows[i], strict=True)]
    return [row[-1] for row in rows]


@pytest.mark.parametrize(
    ("name", "parameters", "reason"),
    [
        ("LassoCV", {"cv": iter(SPLITS)}, "iterator"),
        ("LassoCV", {"cv": [(np.zeros(5, int), np.arange(5, 9))]}, "have a row twice"),
        ("LassoCV", {"verbose": 1}, "verbose"),
        ("ElasticNetCV", {"l1_ratio": 0, "alphas": [1.0]}, "l1_ratio"),
        ("Lars", {"jitter": 1e-3, "random_state": 0}, "jitter"),
        ("Lars", {"precompute": False}, "precompute=False"),
    ],
)
def test_what_is_not_computed_is_refused(name, parameters, reason):
    with pytest.raises(accelsk.exceptions.FallbackError, match=reason):
        getattr(linear_model, name)(**parameters).fit(X, y)


@pytest.mark.parametrize("name", [*PLAIN, "RidgeClassifier", "RidgeClassifierCV"])
def test_values_that_are_not_finite_are_scikit_learns_error(name):
    rows, labels, *_ = classification()
    target = labels if "Classifier" in name else y
    broken = rows.copy()
    broken[3, 2] = np.nan
    with pytest.raises(ValueError, match="contains NaN"):
        getattr(linear_model, name)().fit(broken, target)
    model = getattr(linear_model, name)().fit(rows, target)
    with pytest.raises(ValueError, match="contains NaN"):
        model.predict(broken)


@pytest.mark.parametrize("name", ["RidgeCV", "BayesianRidge", "LassoCV", "LassoLars"])
def test_a_large_offset_costs_no_digits(name):
    shifted = X + 1e6
    ours = getattr(linear_model, name)().fit(shifted, y)
    near = getattr(sklearn.linear_model, name)().fit(X, y)
    np.testing.assert_allclose(ours.coef_, near.coef_, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("name", [*PLAIN, "RidgeClassifier", "RidgeClassifierCV"])
def test_rows_that_do_not_fit_at_once_are_streamed(name):
    rows, labels, *_ = classification()
    target = labels if "Classifier" in name else y
    with accelsk.config_context(device_memory_limit=6000):
        assert_alike(name, rows, target, **tolerated(name))


@pytest.mark.parametrize("name", ["RidgeCV", "LassoCV", "OrthogonalMatchingPursuitCV"])
def test_parameters_for_a_splitter_are_scikit_learns_error(name):
    with pytest.raises(ValueError, match="enable_metadata_routing"):
        getattr(linear_model, name)().fit(X, y, groups=np.arange(len(X)))
    with pytest.raises((ValueError, TypeError), match="sample_weight"):
        linear_model.OrthogonalMatchingPursuitCV().fit(X, y, sample_weight=WEIGHT)


@pytest.mark.parametrize("kind", ["array", "pandas"])
@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("BayesianRidge", {"lambda_1": [1e-6, 1.0]}),
        ("RidgeCV", {"fit_intercept": [True, False]}),
        ("RidgeCV", {"cv": [2, 3]}),
        ("LassoCV", {"cv": [2, 3]}),
        ("RidgeClassifier", {"alpha": [0.1, 100.0]}),
        ("OrthogonalMatchingPursuit", {"n_nonzero_coefs": [2, 4]}),
    ],
)
def test_a_search_over_linear_models_is_scikit_learns(name, parameters, kind):
    from accelsk.model_selection import GridSearchCV

    rows, labels, *_ = classification()
    target = labels if "Classifier" in name else y
    if kind == "pandas":
        frames = pytest.importorskip("pandas")
        rows = frames.DataFrame(rows.astype(np.float32)).rename(columns="column {}".format)
    ours = GridSearchCV(getattr(linear_model, name)(), parameters, cv=3, error_score="raise")
    theirs = sklearn.model_selection.GridSearchCV(
        getattr(sklearn.linear_model, name)(), parameters, cv=3
    )
    ours.fit(rows, target), theirs.fit(rows, target)
    rtol = 1e-8 if kind == "array" else 5e-3
    found, expected = ours.cv_results_["mean_test_score"], theirs.cv_results_["mean_test_score"]
    np.testing.assert_allclose(found, expected, rtol)
    if kind == "array":
        assert ours.best_params_ == theirs.best_params_
    found, expected = fitted(ours.best_estimator_), fitted(theirs.best_estimator_)
    assert found.keys() == expected.keys()
    for attribute in ("coef_", "intercept_"):
        assert type(found[attribute]) is type(expected[attribute])
        assert np.asarray(found[attribute]).dtype == np.asarray(expected[attribute]).dtype
