"""LinearRegression and Ridge from moments, on a double of the device, against scikit-learn."""

from __future__ import annotations

import warnings

import device_double
import numpy as np
import pandas as pd
import pytest
import sklearn.linear_model
from hypothesis import given
from hypothesis import strategies as st

import accelsk
from accelsk import _least_squares, linear_model
from accelsk.algorithms import least_squares
from accelsk.exceptions import FallbackError

RNG = np.random.RandomState(0)
ROWS = RNG.randn(300, 7) * [1, 2, 3, 10, 0.1, 1, 5] + 10
TARGETS = ROWS @ RNG.randn(7, 3) + RNG.randn(300, 3)
WEIGHTS = RNG.rand(300) + 0.1
FEW, FEW_TARGETS, FEW_WEIGHTS = RNG.randn(20, 50) + 3, RNG.randn(20, 3), RNG.rand(20) + 0.1
NAMES = ["LinearRegression", "Ridge"]


@pytest.fixture(autouse=True)
def device(monkeypatch):
    device_double.install(monkeypatch)
    with accelsk.config_context(device="gpu", on_fallback="raise"):
        yield


def pair(name, **parameters):
    return (
        getattr(package, name)(**parameters) for package in (linear_model, sklearn.linear_model)
    )


def assert_alike(ours, theirs, rtol=1e-9, scale=None):
    """Compare every fitted attribute by type, dtype, shape and value."""
    ours._accelsk_fetch()
    names = {name for name in vars(theirs) if name.endswith("_")}
    assert names == {name for name in vars(ours) if name.endswith("_")}
    for name in names:
        value, expected = getattr(ours, name), getattr(theirs, name)
        assert type(value) is type(expected), name
        if isinstance(expected, (np.ndarray, np.generic)):
            assert (value.dtype, value.shape) == (expected.dtype, expected.shape), name
            largest = scale or np.abs(expected).max()
            np.testing.assert_allclose(value, expected, rtol, rtol * largest, err_msg=name)
        else:
            assert value == expected, name


def fit_both(name, X, y, weight=None, **parameters):
    ours, theirs = pair(name, **parameters)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return ours.fit(X, y, weight), theirs.fit(X, y, weight)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("columns", [0, [0], [0, 1, 2]])
@pytest.mark.parametrize("weight", [None, WEIGHTS, 2.0], ids=["alone", "weighted", "scalar"])
@pytest.mark.parametrize("fit_intercept", [True, False])
def test_a_fit_is_scikit_learns(name, columns, weight, fit_intercept):
    y = TARGETS[:, columns]
    ours, theirs = fit_both(name, ROWS, y, weight, fit_intercept=fit_intercept)
    assert_alike(ours, theirs)
    np.testing.assert_allclose(ours.predict(ROWS), theirs.predict(ROWS), rtol=1e-9)
    weight = weight if isinstance(weight, np.ndarray) else None
    assert ours.score(ROWS, y, weight) == pytest.approx(theirs.score(ROWS, y, weight), abs=1e-12)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    "X",
    [
        np.asfortranarray(ROWS),
        ROWS[::-1, ::2],
        (ROWS * 10).astype(np.int32),
        (ROWS > 10),
        pd.DataFrame(ROWS),
        ROWS.tolist(),
    ],
    ids=["F", "strided", "int", "bool", "frame", "list"],
)
def test_any_container(name, X):
    ours, theirs = fit_both(name, X, TARGETS, WEIGHTS)
    assert_alike(ours, theirs)
    np.testing.assert_allclose(ours.predict(X), theirs.predict(X), rtol=1e-9)


@pytest.mark.parametrize("name", NAMES)
def test_float32_stays_float32_and_is_summed_in_float64(name):
    X, y = ROWS.astype(np.float32), TARGETS.astype(np.float32)
    ours = getattr(linear_model, name)().fit(X, y)
    exact = getattr(sklearn.linear_model, name)().fit(X.astype(np.float64), y.astype(np.float64))
    for attribute in ("coef_", "intercept_"):
        assert getattr(ours, attribute).dtype == np.float32
        np.testing.assert_allclose(getattr(ours, attribute), getattr(exact, attribute), rtol=1e-6)
    assert ours.predict(X).dtype == np.float32


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("offset", [1e4, 1e6])
def test_an_offset_costs_no_digits(name, offset):
    X = np.round(ROWS * 64) / 64  # so that the sum with the offset is exact
    near = getattr(linear_model, name)().fit(X, TARGETS)
    far = getattr(linear_model, name)().fit(X + offset, TARGETS)
    np.testing.assert_allclose(far.coef_, near.coef_, rtol=1e-11)


@pytest.mark.parametrize("name", NAMES)
def test_rows_unlike_the_first_ones_are_passed_over_again(name):
    X = np.tile(ROWS, (20, 1)) + RNG.randn(6000, 7)
    X[60:] += 1e5  # the first rows say nothing of the mean of the others
    y = X @ RNG.randn(7, 2) + RNG.randn(6000, 2)
    ours, theirs = pair(name)
    if name == "Ridge":
        theirs.set_params(solver="svd")  # by default it loses digits here
    with accelsk.config_context(device_memory_limit=8_000):
        ours.fit(X, y)
    np.testing.assert_allclose(ours.coef_, theirs.fit(X, y).coef_, rtol=1e-8)


@pytest.mark.parametrize("name", NAMES)
def test_a_constant_column_has_no_coefficient(name):
    X = np.insert(ROWS, 2, 0.1, axis=1)
    ours, theirs = fit_both(name, X, TARGETS, WEIGHTS)
    assert not ours.coef_[:, 2].any()
    if name == "LinearRegression":
        assert ours.rank_ == 7
        assert ours.singular_[-1] == 0
        np.testing.assert_allclose(ours.coef_, theirs.coef_, atol=1e-9)
    else:
        assert_alike(ours, theirs)
    assert not getattr(linear_model, name)().fit(X[:, 2:3], TARGETS).coef_.any()


@pytest.mark.parametrize("fit_intercept", [True, False])
@pytest.mark.parametrize("weight", [None, WEIGHTS])
def test_a_rank_deficient_problem_has_the_solution_of_least_norm(fit_intercept, weight):
    X = np.hstack([ROWS, ROWS[:, :2] - ROWS[:, 2:4]])
    ours, theirs = fit_both("LinearRegression", X, TARGETS, weight, fit_intercept=fit_intercept)
    assert ours.rank_ == theirs.rank_ == 7
    np.testing.assert_allclose(ours.coef_, theirs.coef_, atol=1e-9)
    np.testing.assert_allclose(ours.singular_, theirs.singular_, atol=1e-9)


@pytest.mark.parametrize("apart", [1e-2, 1e-4, 1e-5])
def test_nearly_collinear_columns_are_solved_as_exactly(apart):
    X = np.hstack([ROWS, ROWS[:, :1] + apart * RNG.randn(300, 1)])
    exact = sklearn.linear_model.LinearRegression()
    if "tol" in exact.get_params():
        exact.set_params(tol=1e-12)
    ours = accelsk.from_sklearn(exact).fit(X, TARGETS)
    exact.fit(X, TARGETS)
    np.testing.assert_allclose(ours.coef_, exact.coef_, rtol=1e-9)
    np.testing.assert_allclose(ours.singular_, exact.singular_, rtol=1e-9)


def test_refinement_recovers_what_normal_equations_lose(monkeypatch):
    X = np.hstack([ROWS, ROWS[:, :1] + 1e-4 * RNG.randn(300, 1)])
    exact = sklearn.linear_model.LinearRegression().fit(X, TARGETS)
    refined = linear_model.LinearRegression().fit(X, TARGETS)
    monkeypatch.setattr(_least_squares, "_GOOD", np.inf)
    rough = linear_model.LinearRegression().fit(X, TARGETS)
    errors = [np.abs(m.coef_ / exact.coef_ - 1).max() for m in (refined, rough)]
    assert errors[0] < errors[1] / 10


@pytest.mark.skipif("tol" not in sklearn.linear_model.LinearRegression().get_params(), reason="1.7")
@pytest.mark.parametrize("tol", [0.3, 1e-3, 0.0, 1.0, 3.0])
def test_small_singular_values_are_cut_off_at_tol(tol):
    ours, theirs = fit_both("LinearRegression", ROWS, TARGETS, tol=tol)
    assert ours.rank_ == theirs.rank_
    np.testing.assert_allclose(ours.coef_, theirs.coef_, atol=1e-9)


@pytest.mark.parametrize("columns", [0, [0], [0, 1, 2]])
@pytest.mark.parametrize("weight", [None, WEIGHTS])
@pytest.mark.parametrize("fit_intercept", [True, False])
def test_coefficients_that_must_be_positive(columns, weight, fit_intercept):
    y, parameters = TARGETS[:, columns], {"positive": True, "fit_intercept": fit_intercept}
    ours, theirs = fit_both("LinearRegression", ROWS, y, weight, **parameters)
    assert_alike(ours, theirs)
    assert (ours.coef_ == 0).any()
    ours.fit(np.insert(ROWS, 1, 4.0, axis=1), y, weight)  # a constant is left to the intercept
    if fit_intercept:
        expected = np.insert(theirs.coef_, 1, 0.0, axis=-1)
        np.testing.assert_allclose(ours.coef_, expected, atol=1e-9)
    for other in (np.hstack([ROWS, ROWS]), FEW):
        with pytest.raises(FallbackError, match="positive=True"):
            linear_model.LinearRegression(positive=True).fit(other, other[:, 0])


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("fit_intercept", [True, False])
@pytest.mark.parametrize("weight", [None, FEW_WEIGHTS])
@pytest.mark.parametrize("columns", [0, [0, 1, 2]])
def test_more_columns_than_rows(name, fit_intercept, weight, columns):
    y = FEW_TARGETS[:, columns]
    ours, theirs = fit_both(name, FEW, y, weight, fit_intercept=fit_intercept)
    if name == "LinearRegression":
        assert ours.rank_ == 20 - fit_intercept
        np.testing.assert_allclose(ours.coef_, theirs.coef_, atol=1e-9)
        np.testing.assert_allclose(ours.singular_, theirs.singular_, atol=1e-9)
    else:
        assert_alike(ours, theirs)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("shape", [(1, 1), (1, 4), (2, 1), (4, 4), (5, 4), (3, 2)])
def test_hardly_any_rows(name, shape):
    X, y = ROWS[: shape[0], : shape[1]], TARGETS[: shape[0], 0]
    ours, theirs = fit_both(name, X, y)
    np.testing.assert_allclose(ours.coef_, theirs.coef_, rtol=1e-7, atol=1e-9)
    np.testing.assert_allclose(ours.predict(X), theirs.predict(X), rtol=1e-9)


@pytest.mark.parametrize(("X", "y"), [(ROWS, TARGETS), (FEW, FEW_TARGETS)], ids=["long", "wide"])
@pytest.mark.parametrize("alpha", [[0.1, 1.0, 100.0], [2.0, 2.0, 0.5], [3.0], 1e-3])
@pytest.mark.parametrize("solver", ["auto", "svd", "cholesky"])
def test_penalties(X, y, alpha, solver):
    alpha = np.asarray(alpha) if isinstance(alpha, list) else alpha
    ours, theirs = fit_both("Ridge", X, y, alpha=alpha, solver=solver)
    assert_alike(ours, theirs)


def test_no_penalty_at_all():
    assert_alike(*fit_both("Ridge", ROWS, TARGETS, alpha=0))
    twice = np.hstack([ROWS, ROWS])
    with pytest.raises(FallbackError, match="rank-deficient"):
        linear_model.Ridge(alpha=0).fit(twice, TARGETS)
    with pytest.raises(FallbackError, match="rank-deficient"):
        linear_model.Ridge(alpha=0, solver="svd").fit(twice, TARGETS)
    # where X is rank-deficient the penalty decides
    assert_alike(*fit_both("Ridge", twice, TARGETS, alpha=1.0))


@pytest.mark.parametrize("apart", [1e-3, 1e-5])
def test_a_small_penalty_on_nearly_collinear_columns(apart):
    X = np.hstack([ROWS, ROWS[:, :1] + apart * RNG.randn(300, 1)])
    ours, theirs = fit_both("Ridge", X, TARGETS, alpha=1e-9, solver="svd")
    np.testing.assert_allclose(ours.coef_, theirs.coef_, rtol=1e-8, atol=1e-7)


@pytest.mark.parametrize("alpha", [np.array([1.0, 2.0]), np.array([-1.0, 1.0, 1.0])])
def test_penalties_that_are_not_right(alpha):
    with pytest.raises((FallbackError, ValueError)):
        linear_model.Ridge(alpha=alpha).fit(ROWS, TARGETS)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_what_is_not_finite_is_scikit_learns_error(name, bad):
    X, y = ROWS.copy(), TARGETS.copy()
    X[5, 3] = y[7, 1] = bad
    model = getattr(linear_model, name)()
    for data in ((X, TARGETS), (ROWS, y), (X[:5, :], y[:5, :] * bad)):
        with np.errstate(invalid="ignore"), pytest.raises(ValueError, match=r"NaN|infinity"):
            model.fit(*data)
    # a coefficient of zero hides it from a product that skips zeros
    model.fit(ROWS, np.zeros(len(ROWS)))
    with np.errstate(invalid="ignore"), pytest.raises(ValueError, match=r"NaN|infinity"):
        model.predict(X)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("X", [None, ROWS[0], ROWS[:0], ROWS[:, :3]], ids=["None", "1d", "0", "3"])
def test_bad_input_is_invalid_in_the_plan_or_the_engine(name, X, monkeypatch):
    model = getattr(linear_model, name)().fit(ROWS, TARGETS)
    with accelsk.profile(quiet=True) as results, pytest.raises(ValueError, match=r"features|array"):
        model.predict(X)
    reasons = results.method_calls[f"{name}.predict"].fallback_reasons
    assert not any("failed" in reason for reason in reasons)


@pytest.mark.parametrize("name", NAMES)
def test_weights_that_are_not_right_are_left_to_scikit_learn(name):
    for weight in (-WEIGHTS, WEIGHTS * np.nan, np.zeros(300)):
        with np.errstate(invalid="ignore"), pytest.raises((FallbackError, ValueError)):
            getattr(linear_model, name)().fit(ROWS, TARGETS, weight)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("limit", [60_000, 20_000])
def test_what_is_larger_than_the_memory_limit_is_streamed(name, limit):
    whole = getattr(linear_model, name)().fit(ROWS, TARGETS, WEIGHTS)
    twice = np.hstack([ROWS, ROWS[:, :1]])
    for X in (np.tile(ROWS, (9, 1)), np.tile(twice, (9, 1))):
        y, weight = np.tile(TARGETS, (9, 1)), np.tile(WEIGHTS, 9)
        with accelsk.config_context(device_memory_limit=limit):
            ours = getattr(linear_model, name)(**({} if name != "Ridge" else {"alpha": 9.0}))
            ours.fit(X, y, weight)
            predicted = ours.predict(X)
        if X.shape[1] == 7:
            np.testing.assert_allclose(ours.coef_, whole.coef_, rtol=1e-11)
        np.testing.assert_allclose(predicted, X @ ours.coef_.T + ours.intercept_, rtol=1e-12)


def test_a_gram_matrix_larger_than_the_memory_limit_is_refused():
    with accelsk.config_context(device_memory_limit=1000):
        with pytest.raises(FallbackError, match="Gram matrix of 7 columns"):
            linear_model.Ridge().fit(ROWS, TARGETS)
        with pytest.raises(FallbackError, match="fewer rows than columns"):
            linear_model.Ridge().fit(FEW, FEW_TARGETS)


def test_what_holds_all_rows_leaves_larger_data_to_scikit_learn():
    from accelsk.cluster import KMeans

    with (
        accelsk.config_context(device_memory_limit=ROWS.nbytes - 1),
        pytest.raises(FallbackError, match="X takes more than device_memory_limit"),
    ):
        KMeans(2, n_init=1).fit(ROWS)


@pytest.mark.parametrize("name", NAMES)
def test_many_columns_are_solved_on_the_device(name, monkeypatch):
    monkeypatch.setattr(_least_squares, "_ON_HOST", 3)
    for X in (ROWS, np.insert(ROWS, 1, 5.0, axis=1)):
        ours, theirs = fit_both(name, X, TARGETS, WEIGHTS)
        np.testing.assert_allclose(ours.coef_, theirs.coef_, rtol=1e-9, atol=1e-12)
    X = np.hstack([ROWS, ROWS[:, :1] + 1e-4 * RNG.randn(300, 1)])
    ours, theirs = fit_both(name, X, TARGETS, WEIGHTS)
    np.testing.assert_allclose(ours.coef_, theirs.coef_, rtol=1e-7)


@pytest.mark.parametrize("name", NAMES)
def test_arrays_on_the_device_stay_there(name):
    X, y = device_double.to_device(ROWS), device_double.to_device(TARGETS)
    ours = getattr(linear_model, name)().fit(X, y)
    theirs = getattr(sklearn.linear_model, name)().fit(ROWS, TARGETS)
    predicted = ours.predict(X)
    assert isinstance(predicted, type(X))
    np.testing.assert_allclose(device_double.to_host(predicted), theirs.predict(ROWS), rtol=1e-9)
    assert ours.score(X, y) == pytest.approx(theirs.score(ROWS, TARGETS))


def test_a_score_of_constant_targets_is_scikit_learns():
    for y in (np.zeros(300), np.column_stack([TARGETS[:, 0], np.ones(300)])):
        ours, theirs = fit_both("Ridge", ROWS, y)
        assert ours.score(ROWS, y) == pytest.approx(theirs.score(ROWS, y))


@given(st.integers(0, 10_000), st.integers(1, 40), st.integers(1, 8), st.booleans())
def test_any_small_problem(seed, n, d, fit_intercept):
    rng = np.random.default_rng(seed)
    X, y = rng.normal(size=(n, d)) + rng.choice([0, 10]), rng.normal(size=(n, 2))
    weight = rng.uniform(0.5, 2, n) if rng.random() < 0.5 else None
    for name in NAMES:
        ours, theirs = fit_both(name, X, y, weight, fit_intercept=fit_intercept)
        X_sizes = np.abs(theirs.coef_).max() + 1
        np.testing.assert_allclose(ours.coef_, theirs.coef_, 1e-6, 1e-7 * X_sizes)


def test_bounds_of_condition_numbers_are_bounds_or_close(monkeypatch):
    rng = np.random.default_rng(0)
    for cond in (1.0, 1e2, 1e5):
        X = (rng.normal(size=(400, 30)) * np.geomspace(1, 1 / cond, 30)) @ rng.normal(size=(30, 30))
        gram = X.T @ X
        scale = np.sqrt(np.diagonal(gram))
        for harmless in (np.inf, 0.0):
            monkeypatch.setattr(least_squares, "_HARMLESS", harmless)
            scaled, itself = least_squares.factor(gram, np).conditions()
            assert scaled > 0.3 * np.linalg.cond(gram / scale / scale[:, None])
            assert itself > 0.3 * np.linalg.cond(gram)
    assert least_squares.factor(np.zeros((3, 3)), np) is None
    assert least_squares.factor(np.ones((3, 3)), np) is None
