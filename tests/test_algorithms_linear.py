"""Penalised linear models, kernel ridge and support vector machines, on NumPy in CuPy's place."""

from __future__ import annotations

import contextlib
import sys
import types
import warnings

import device_double
import numpy as np
import pytest
import scipy.linalg
import sklearn.kernel_ridge
import sklearn.linear_model
import sklearn.svm
from sklearn.datasets import load_diabetes, load_digits, load_iris, make_classification
from sklearn.exceptions import ConvergenceWarning, DataConversionWarning, NotFittedError

import accelsk
from accelsk import kernel_ridge, linear_model, svm
from accelsk.algorithms import dual_svm, kernels, linear_svm, platt
from accelsk.engines import cuml as cuml_engine
from accelsk.exceptions import FallbackError

RNG = np.random.RandomState(0)
ROWS = RNG.randn(300, 12) + 3
TARGETS = ROWS @ (RNG.randn(12, 3) * (RNG.rand(12, 3) > 0.4)) + RNG.randn(300, 3)
WEIGHTS = RNG.rand(300) + 0.1


class _Solver:
    """libsvm in the place of cuML: on the device, with the attributes that the engine reads."""

    original: type

    def __init__(self, output_type, verbose, **parameters):
        self._parameters = parameters

    def fit(self, X, y, sample_weight):
        X, y, sample_weight = map(device_double.to_host, (X, y, sample_weight))
        fitted = self.original(**self._parameters).fit(X, y, sample_weight)
        for name in ("support_", "dual_coef_"):
            setattr(self, name, device_double.to_device(getattr(fitted, name)))
        self.n_iter_ = fitted.n_iter_


class _SVC(_Solver):
    original = sklearn.svm.SVC


class _SVR(_Solver):
    original = sklearn.svm.SVR


@pytest.fixture(autouse=True)
def device(monkeypatch):
    device_double.install(monkeypatch)
    on_device = types.ModuleType("cupyx.scipy.linalg")

    def solve_triangular(a, b, **parameters):
        solved = scipy.linalg.solve_triangular(*map(device_double.to_host, (a, b)), **parameters)
        return device_double.to_device(solved)

    on_device.solve_triangular = solve_triangular
    monkeypatch.setitem(sys.modules, "cupyx.scipy.linalg", on_device)
    monkeypatch.setattr(
        sys.modules["cupyx"], "errstate", lambda **_: contextlib.nullcontext(), raising=False
    )
    monkeypatch.setattr(cuml_engine, "_silence", contextlib.nullcontext())
    monkeypatch.setattr(cuml_engine.CumlEngine, "_loaded", {"svm.SVC": _SVC, "svm.SVR": _SVR})
    with accelsk.config_context(device="gpu", on_fallback="raise"):
        yield


def attributes(estimator):
    if hasattr(estimator, "_accelsk_fetch"):
        estimator._accelsk_fetch()
    parameters = estimator.get_params()
    return {
        name: value
        for name, value in vars(estimator).items()
        if name not in parameters and not name.startswith("_accelsk")
    }


def assert_same_attributes(ours, theirs, rtol, but=()):
    """Every fitted attribute, private ones too, by type, dtype, shape and value."""
    ours, theirs = attributes(ours), attributes(theirs)
    assert ours.keys() == theirs.keys()
    for name in theirs.keys() - set(but):
        value, expected = ours[name], theirs[name]
        assert type(value) is type(expected), name
        if not isinstance(expected, (np.ndarray, np.generic)):
            assert value == expected, name
            continue
        assert (value.dtype, value.shape) == (expected.dtype, expected.shape), name
        if expected.dtype.kind == "f":
            scale = np.abs(expected).max() if expected.size else 1.0
            np.testing.assert_allclose(value, expected, rtol, rtol * scale, err_msg=name)
        else:
            np.testing.assert_array_equal(value, expected, err_msg=name)


def assert_same_result(value, expected, atol):
    assert type(value) is type(expected)
    assert (value.dtype, value.shape) == (expected.dtype, expected.shape)
    np.testing.assert_allclose(value, expected, atol=atol)


# Lasso and ElasticNet


def test_lasso_is_an_elastic_net():
    assert issubclass(linear_model.Lasso, linear_model.ElasticNet)
    assert issubclass(linear_model.Lasso, sklearn.linear_model.Lasso)
    assert linear_model.Lasso().get_params() == sklearn.linear_model.Lasso().get_params()


@pytest.mark.parametrize("name", ["Lasso", "ElasticNet"])
@pytest.mark.parametrize("columns", [0, [0], [0, 1, 2]])
@pytest.mark.parametrize("weight", [None, WEIGHTS, 2.0])
@pytest.mark.parametrize(
    "parameters",
    [
        {},
        {"fit_intercept": False, "max_iter": 5000},
        {"positive": True},
        {"selection": "random", "random_state": 3},
        {"precompute": True, "alpha": 0.01},
        {"max_iter": 2},
    ],
)
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_coordinate_descent_is_that_of_scikit_learn(name, columns, weight, parameters):
    y = TARGETS[:, columns]
    ours = getattr(linear_model, name)(**{"alpha": 0.5, **parameters}).fit(ROWS, y, weight)
    theirs = getattr(sklearn.linear_model, name)(**{"alpha": 0.5, **parameters})
    theirs.fit(ROWS, y, weight)
    assert_same_attributes(ours, theirs, 1e-7)
    assert_same_result(ours.predict(ROWS), theirs.predict(ROWS), 1e-8)
    assert ours.score(ROWS, y) == pytest.approx(theirs.score(ROWS, y))


@pytest.mark.parametrize("fit_intercept", [True, False])
def test_float32_stays_float32(fit_intercept):
    X, y = ROWS.astype(np.float32), TARGETS[:, 0].astype(np.float32)
    parameters = {"alpha": 0.1, "fit_intercept": fit_intercept}
    ours = linear_model.Lasso(**parameters).fit(X, y)
    theirs = sklearn.linear_model.Lasso(**parameters).fit(X, y)
    assert_same_attributes(ours, theirs, 1e-2, but={"n_iter_"})
    assert_same_result(ours.predict(X), theirs.predict(X), 1e-3)


def test_no_convergence_warns():
    with pytest.warns(ConvergenceWarning, match="did not converge"):
        linear_model.Lasso(alpha=0.01, max_iter=1).fit(ROWS, TARGETS[:, 0])


def test_warm_start_goes_on_from_the_coefficients():
    ours = linear_model.Lasso(alpha=0.1, warm_start=True).fit(ROWS, TARGETS[:, 0])
    theirs = sklearn.linear_model.Lasso(alpha=0.1, warm_start=True).fit(ROWS, TARGETS[:, 0])
    for estimator in (ours, theirs):
        estimator.set_params(alpha=0.09).fit(ROWS, TARGETS[:, 0])
    assert_same_attributes(ours, theirs, 1e-7)


@pytest.mark.parametrize(
    ("parameters", "reason"),
    [
        ({"alpha": 0}, "alpha=0"),
        ({"tol": 1e-12}, "tol below"),
        ({"precompute": ROWS.T @ ROWS}, "precompute"),
    ],
)
def test_what_the_gram_matrix_cannot_do_is_refused(parameters, reason):
    with pytest.raises(FallbackError, match=reason):
        linear_model.Lasso(**parameters).fit(ROWS, TARGETS[:, 0])


@pytest.mark.parametrize("X", [ROWS * 1e18, ROWS + 1e18, ROWS + 1e12], ids=["large", "far", "off"])
@pytest.mark.parametrize("weight", [None, WEIGHTS])
def test_data_whose_rounding_reaches_the_penalty_is_refused(X, weight):
    y = TARGETS[:, 0]
    with pytest.raises(FallbackError, match="rounding"):
        linear_model.Lasso().fit(X, y, weight)
    with accelsk.config_context(on_fallback="log"), warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        ours = linear_model.Lasso().fit(X.astype(np.int64), y, weight)
        theirs = sklearn.linear_model.Lasso().fit(X.astype(np.int64), y, weight)
    assert_same_attributes(ours, theirs, 1e-12)


@pytest.mark.parametrize("scale", [1e-6, 1e6])
def test_data_of_any_usual_size_converges_as_in_scikit_learn(scale):
    parameters = {"alpha": 0.1 * scale}
    X, y = ROWS * scale, TARGETS[:, 0]
    ours = linear_model.Lasso(**parameters).fit(X, y)
    assert_same_attributes(ours, sklearn.linear_model.Lasso(**parameters).fit(X, y), 1e-7)


def test_constant_columns_are_no_obstacle():
    X = np.hstack([ROWS, np.full((len(ROWS), 1), 0.1)])
    ours = linear_model.Lasso(alpha=0.01).fit(X, TARGETS[:, 0])
    theirs = sklearn.linear_model.Lasso(alpha=0.01).fit(X, TARGETS[:, 0])
    assert_same_attributes(ours, theirs, 1e-7)


# KernelRidge

SMALL, SMALL_TARGETS, SMALL_WEIGHTS = ROWS[:80] / 5, TARGETS[:80], WEIGHTS[:80]


@pytest.mark.parametrize("columns", [0, [0], [0, 1, 2]])
@pytest.mark.parametrize("weight", [None, SMALL_WEIGHTS, 1.0, 2.0, 2])
@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.int64])
@pytest.mark.parametrize(
    "parameters",
    [
        {},
        {"kernel": "rbf"},
        {"kernel": "poly", "gamma": 0.3, "degree": 2, "coef0": 0.5},
        {"kernel": "laplacian"},
        {"kernel": "cosine"},
        {"kernel": "precomputed"},
    ],
)
def test_kernel_ridge(columns, weight, dtype, parameters):
    X, new = (3 * SMALL).astype(dtype), (3 * ROWS[80:120] / 5).astype(dtype)
    if parameters.get("kernel") == "precomputed":
        X, new = X @ X.T, new @ X.T
    y = SMALL_TARGETS[:, columns].astype(dtype)
    ours = kernel_ridge.KernelRidge(**parameters).fit(X, y, weight)
    theirs = sklearn.kernel_ridge.KernelRidge(**parameters).fit(X, y, weight)
    single = dtype == np.float32
    assert_same_attributes(ours, theirs, 2e-2 if single else 1e-8)
    assert_same_result(ours.predict(new), theirs.predict(new), 1e-2 if single else 1e-8)
    assert ours.score(X, y) == pytest.approx(theirs.score(X, y), abs=1e-3)


def test_kernel_ridge_takes_an_alpha_for_each_target():
    parameters = {"kernel": "rbf", "alpha": [0.1, 1, 2]}
    ours = kernel_ridge.KernelRidge(**parameters).fit(SMALL, SMALL_TARGETS)
    theirs = sklearn.kernel_ridge.KernelRidge(**parameters).fit(SMALL, SMALL_TARGETS)
    assert_same_attributes(ours, theirs, 1e-8)


@pytest.mark.parametrize(
    ("parameters", "reason"),
    [
        ({"alpha": 1e-14}, "not positive definite|ill-conditioned"),
        ({"kernel": "rbf", "gamma": 1e-9, "alpha": 1e-13}, "not positive definite|ill-condition"),
        ({"kernel": "chi2"}, "kernel='chi2'"),
        ({"alpha": [1, 2]}, "alpha is an array"),
    ],
)
def test_kernel_ridge_refuses(parameters, reason):
    with pytest.raises(FallbackError, match=reason):
        kernel_ridge.KernelRidge(**parameters).fit(SMALL, SMALL_TARGETS)


def test_a_kernel_product_does_not_depend_on_the_stretch_of_rows(monkeypatch):
    kernel, coef = kernels.Kernel("rbf", 0.1), RNG.randn(80, 2)
    whole = kernels.matrix(ROWS, ROWS[:80], kernel, np) @ coef
    monkeypatch.setattr(kernels, "_CHUNK", 500)
    np.testing.assert_allclose(kernels.product(ROWS, ROWS[:80], coef, kernel, np), whole)


# LinearSVC and LinearSVR

IRIS, SPECIES = load_iris(return_X_y=True)
DIABETES, PROGRESS = load_diabetes(return_X_y=True)


@pytest.mark.parametrize(
    ("X", "y"),
    [
        (IRIS, SPECIES),
        (IRIS, np.array(["a", "b", "c"])[SPECIES]),
        (IRIS[50:].astype(np.float32), SPECIES[50:] == 1),
    ],
)
@pytest.mark.parametrize(
    "parameters",
    [
        {},
        {"dual": True},
        {"loss": "hinge"},
        {"fit_intercept": False},
        {"intercept_scaling": 2.0, "loss": "hinge", "C": 0.1},
        {"intercept_scaling": 5.0, "C": 10},
        {"class_weight": "balanced"},
        {"class_weight": 3.0},
    ],
)
@pytest.mark.parametrize("weighted", [False, True])
def test_linear_svc_reaches_the_minimum_of_liblinear(X, y, parameters, weighted):
    parameters = dict(parameters)
    if "class_weight" in parameters and weighted:
        pytest.skip("one kind of weights at a time")
    if parameters.get("class_weight") == 3.0:
        parameters["class_weight"] = {np.unique(y)[1].item(): 3.0}
    weight = np.maximum(WEIGHTS[: len(X)] - 0.2, 0) if weighted else None
    ours = svm.LinearSVC(**parameters).fit(X, y, weight)
    theirs = sklearn.svm.LinearSVC(tol=1e-8, max_iter=1_000_000, random_state=0, **parameters).fit(
        X, y, weight
    )
    assert_same_attributes(ours, theirs, 2e-4, but={"n_iter_"})
    assert type(ours.n_iter_) is int
    assert ours.n_iter_ >= 1
    assert_same_result(ours.decision_function(X), theirs.decision_function(X), 1e-2)
    assert (ours.predict(X) == theirs.predict(X)).all()
    assert ours.score(X, y) == theirs.score(X, y)
    there = accelsk.from_sklearn(theirs)
    assert_same_result(there.decision_function(X), theirs.decision_function(X), 1e-12)


@pytest.mark.parametrize(
    "parameters",
    [
        {"C": 10, "epsilon": 5.0},
        {},
        {"loss": "squared_epsilon_insensitive", "epsilon": 1.0, "intercept_scaling": 3.0},
        {"epsilon": 400.0},
        {"loss": "squared_epsilon_insensitive", "fit_intercept": False},
    ],
)
@pytest.mark.parametrize("weighted", [False, True])
def test_linear_svr_reaches_the_minimum_of_liblinear(parameters, weighted):
    weight = np.maximum(RNG.rand(len(DIABETES)) - 0.2, 0) if weighted else None
    ours = svm.LinearSVR(**parameters).fit(DIABETES, PROGRESS, weight)
    theirs = sklearn.svm.LinearSVR(tol=1e-8, max_iter=200_000, **parameters)
    theirs.fit(DIABETES, PROGRESS, weight)
    assert_same_attributes(ours, theirs, 1e-5, but={"n_iter_"})
    assert_same_result(ours.predict(DIABETES), theirs.predict(DIABETES), 1e-3)


@pytest.mark.parametrize("name", ["SVR", "LinearSVR"])
def test_a_column_is_one_target_and_warns(name):
    X, y = DIABETES[:100], PROGRESS[:100]
    with pytest.warns(DataConversionWarning, match="column-vector"):
        column = getattr(svm, name)().fit(X, y[:, None])
    np.testing.assert_array_equal(column.predict(X), getattr(svm, name)().fit(X, y).predict(X))
    with pytest.raises(ValueError, match="1d array"):
        getattr(svm, name)().fit(X, np.stack([y, y], axis=1))


def test_sparse_coefficients_stay_with_scikit_learn():
    estimator = svm.LinearSVC().fit(IRIS, SPECIES).sparsify()
    with pytest.raises(FallbackError, match="sparse"):
        estimator.predict(IRIS)


def test_a_linear_fit_that_would_stop_early_is_left_to_scikit_learn(monkeypatch):
    X, y = make_classification(500, 10, flip_y=0.2, random_state=0)
    for loss in ("hinge", "squared_hinge"):
        with pytest.raises(FallbackError, match="max_iter below"):
            svm.LinearSVC(loss=loss, max_iter=1).fit(X, y)
    for method in ("fit_hinge", "fit_squared"):
        stopped = linear_svm.Fit(None, 1000, False)
        monkeypatch.setattr(linear_svm, method, lambda *_, stopped=stopped: stopped)
    for loss in ("hinge", "squared_hinge"):
        with pytest.raises(FallbackError, match="no convergence within max_iter=1000"):
            svm.LinearSVC(loss=loss).fit(X, y)


@pytest.mark.parametrize("name", ["SVC", "SVR", "KernelRidge"])
def test_a_kernel_that_is_precomputed_only_after_the_fit(name):
    module = kernel_ridge if name == "KernelRidge" else svm
    estimator = getattr(module, name)(kernel="rbf").fit(IRIS, SPECIES)
    with pytest.raises(ValueError, match=r"[Pp]recomputed|training time"):
        estimator.set_params(kernel="precomputed").predict(IRIS)
    with pytest.raises(ValueError, match=r"square|[Pp]recomputed"):
        getattr(module, name)(kernel="precomputed").fit(IRIS, SPECIES)


@pytest.mark.parametrize("C", [1e-3, 1.0, 1e3])
@pytest.mark.parametrize("digit", range(10))
def test_hinge_fit_ends_on_data_of_many_scales(C, digit):
    X, y = load_digits(return_X_y=True)
    side = np.where(y == digit, 1.0, -1.0)[None]
    fit = linear_svm.fit_hinge(X, side, np.ones_like(side), np.full(len(X), C), 200, np)
    assert fit.converged


@pytest.mark.parametrize("C", [1e-3, 1.0, 1e3])
@pytest.mark.parametrize("separable", [False, True])
def test_hinge_fit_closes_the_duality_gap(C, separable):
    X, y = make_classification(400, 8, flip_y=0 if separable else 0.2, random_state=1)
    X = X * np.logspace(-2, 2, 8)
    side = np.where(y == (X[:, 0] > 0 if separable else 1), 1.0, -1.0)
    fit = linear_svm.fit_hinge(X, side[None], np.ones((1, 400)), np.full(400, C), 200, np)
    assert fit.converged
    # the minimum is where zero is a subgradient: the rows beyond their margin cost nothing, those
    # short of it pull with C, and those on it with something between
    short = 1 - side * (X @ fit.coef)
    rest = fit.coef - C * (X * side[:, None])[short > 1e-7].sum(axis=0)
    on = (X * side[:, None])[np.abs(short) <= 1e-7]
    pull = np.linalg.lstsq(on.T, rest, rcond=None)[0]
    np.testing.assert_allclose(on.T @ pull, rest, atol=1e-5 * max(1, np.abs(rest).max()))
    assert ((pull > -1e-3 * C) & (pull < C * 1.001)).all()


# SVC and SVR

DIGITS, DIGIT = (part[:300] for part in load_digits(return_X_y=True))


@pytest.mark.parametrize(
    ("X", "y"),
    [
        (DIGITS, DIGIT),
        (IRIS, np.array(["a", "b", "c"])[SPECIES]),
        (IRIS[50:], SPECIES[50:]),
        (IRIS[50:].astype(np.float32), SPECIES[50:] == 1),
    ],
)
@pytest.mark.parametrize(
    "parameters",
    [
        {},
        {"gamma": "auto"},
        {"gamma": 0.1, "C": 10, "decision_function_shape": "ovo"},
        {"break_ties": True, "class_weight": "balanced"},
        {"class_weight": 3.0},
        {"kernel": "linear", "C": 0.01},
        {"kernel": "poly", "degree": 2},
        {"kernel": "precomputed"},
    ],
)
@pytest.mark.parametrize("weighted", [False, True])
def test_svc_is_laid_out_as_libsvm(X, y, parameters, weighted):
    parameters = dict(parameters)
    if parameters.get("class_weight") == 3.0:
        parameters["class_weight"] = {np.unique(y)[1].item(): 3.0}
    if parameters.get("kernel") == "precomputed":
        X = np.exp(-((X[:, None].astype(float) - X) ** 2).sum(axis=2) / (X.shape[1] * X.var()))
    weight = WEIGHTS[: len(X)] if weighted else None
    ours = svm.SVC(tol=2e-5, **parameters).fit(X, y, weight)
    theirs = sklearn.svm.SVC(tol=2e-5, **parameters).fit(X, y, weight)
    assert_same_attributes(ours, theirs, 2e-2, but={"n_iter_", "_num_iter", "_gamma"})
    assert ours._gamma == pytest.approx(theirs._gamma)
    assert ours.n_support_.tolist() == theirs.n_support_.tolist()
    assert_same_result(ours.decision_function(X), theirs.decision_function(X), 1e-2)
    assert (ours.predict(X) == theirs.predict(X)).all()
    assert ours.predict(X).dtype == theirs.predict(X).dtype
    if parameters.get("kernel") == "linear":
        assert_same_result(ours.coef_, theirs.coef_, 1e-3)
    # scikit-learn's own methods answer the same from the attributes, and the other way round
    there = accelsk.from_sklearn(theirs)
    np.testing.assert_allclose(there.decision_function(X), theirs.decision_function(X), atol=1e-9)
    on_device = ours.decision_function(X)
    with accelsk.config_context(device="cpu"):
        np.testing.assert_allclose(ours.decision_function(X), on_device, atol=1e-9)


@pytest.mark.parametrize(
    "parameters",
    [
        {},
        {"C": 10, "epsilon": 5.0},
        {"kernel": "linear", "epsilon": 0.0},
        {"kernel": "poly", "coef0": 1.0},
        {"kernel": "precomputed"},
    ],
)
@pytest.mark.parametrize("weighted", [False, True])
def test_svr_is_laid_out_as_libsvm(parameters, weighted):
    X, y = DIABETES[:200], PROGRESS[:200]
    if parameters.get("kernel") == "precomputed":
        X = X @ X.T
    weight = WEIGHTS[:200] if weighted else None
    ours = svm.SVR(**parameters).fit(X, y, weight)
    theirs = sklearn.svm.SVR(**parameters).fit(X, y, weight)
    assert_same_attributes(ours, theirs, 1e-3, but={"_gamma"})
    assert_same_result(ours.predict(X), theirs.predict(X), 1e-2)
    np.testing.assert_allclose(
        accelsk.from_sklearn(theirs).predict(X), theirs.predict(X), atol=1e-9
    )


@pytest.mark.filterwarnings("ignore::FutureWarning")
@pytest.mark.parametrize(("X", "y"), [(DIGITS, DIGIT), (IRIS, SPECIES), (IRIS[50:], SPECIES[50:])])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("precomputed", [False, True])
def test_probabilities_are_those_of_libsvm_with_the_same_seed(X, y, weighted, precomputed):
    weight = WEIGHTS[: len(X)] if weighted else None
    if precomputed:
        X = X @ X.T
    parameters = {"probability": True, "random_state": 3, "C": 0.1 if precomputed else 1.0}
    parameters["kernel"] = "precomputed" if precomputed else "rbf"
    ours = svm.SVC(**parameters).fit(X, y, weight)
    theirs = sklearn.svm.SVC(**parameters).fit(X, y, weight)
    assert_same_result(ours.predict_proba(X), theirs.predict_proba(X), 5e-3)
    assert_same_result(ours.predict_log_proba(X), np.log(ours.predict_proba(X)), 0)
    there = accelsk.from_sklearn(theirs)
    assert_same_result(there.predict_proba(X), theirs.predict_proba(X), 1e-9)


@pytest.mark.parametrize("probability", [True, False])
def test_svc_warns_of_probability_as_scikit_learn_does(probability):
    messages = []
    for cls in (svm.SVC, sklearn.svm.SVC):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            cls(probability=probability).fit(IRIS, SPECIES)
        messages.append([str(warning.message) for warning in caught])
    assert messages[0] == messages[1]


@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_no_probabilities_from_a_fit_without_them():
    estimator = svm.SVC(probability=False).fit(IRIS, SPECIES)
    assert not hasattr(estimator, "predict_proba")
    with pytest.raises(NotFittedError):
        estimator.set_params(probability=True).predict_proba(IRIS)


@pytest.mark.parametrize("name", ["SVC", "SVR"])
def test_a_prediction_fetches_nothing(name):
    K = IRIS @ IRIS.T
    estimator = getattr(svm, name)(kernel="precomputed", C=0.1).fit(K, SPECIES)
    before = dict(vars(estimator))
    estimator.predict(K)
    assert vars(estimator) == before


def test_svc_refuses():
    with pytest.raises(FallbackError, match="zeros"):
        svm.SVC().fit(IRIS, SPECIES, np.r_[0.0, np.ones(149)])
    with pytest.raises(FallbackError, match="not one solution"):
        svm.SVC(kernel="sigmoid").fit(IRIS, SPECIES)
    with pytest.raises(FallbackError, match="max_iter"):
        svm.SVC(max_iter=5).fit(IRIS, SPECIES)
    estimator = svm.SVC(break_ties=True, decision_function_shape="ovo").fit(IRIS, SPECIES)
    with pytest.raises(ValueError, match="break_ties"):
        estimator.predict(IRIS)


def test_a_solver_that_stops_early_is_found_out(monkeypatch):
    coarse = staticmethod(lambda tol, **parameters: sklearn.svm.SVC(tol=0.5, **parameters))
    monkeypatch.setattr(_SVC, "original", coarse)
    with pytest.raises(FallbackError, match="violation"):
        svm.SVC().fit(IRIS, SPECIES)


def test_random_draws_go_on_as_after_scikit_learn():
    later = []
    for cls in (svm.SVC, sklearn.svm.SVC):
        random_state = np.random.RandomState(0)
        cls(random_state=random_state).fit(IRIS, SPECIES)
        later.append(random_state.randint(1000))
    assert later[0] == later[1]


# The algorithms by themselves


def test_folds_hold_out_each_row_once():
    held_out = list(platt.folds(43, seed=7))
    assert sorted(np.concatenate(held_out).tolist()) == list(range(43))


def test_coupled_probabilities_sum_to_one_and_agree_with_certain_pairs():
    pairs = np.array([[1.0, 1.0, 0.5], [0.0, 0.5, 1.0], [0.5, 0.5, 0.5]])
    result = platt.couple(np.clip(pairs, 1e-7, 1 - 1e-7), 3, np)
    np.testing.assert_allclose(result.sum(axis=1), 1)
    assert result.argmax(axis=1)[:2].tolist() == [0, 1]
    np.testing.assert_allclose(result[2], 1 / 3, atol=1e-3)


def test_votes_go_to_the_first_of_several_winners():
    decisions = np.array([[1.0, -1.0, 1.0], [1.0, 1.0, -1.0], [0.0, -1.0, 1.0]])
    assert dual_svm.most_votes(decisions, 3, np).tolist() == [0, 0, 1]


def test_dual_and_optimality_agree():
    X, y = make_classification(200, 5, flip_y=0.2, random_state=0)
    fitted = sklearn.svm.SVC(tol=1e-4).fit(X, y)
    side = np.where(y == 1, 1.0, -1.0)
    coef = np.zeros(200)
    coef[fitted.support_] = fitted.dual_coef_[0]
    kernel = kernels.Kernel("rbf", fitted._gamma)
    product = kernels.product(X, X, coef[:, None], kernel, np)[:, 0]
    state = dual_svm.optimality(
        side[None], (side - product)[None], (side * coef)[None], np.ones((1, 200)), np
    )
    assert state.violation < 2e-4
    assert state.intercept == pytest.approx(fitted.intercept_[0], abs=1e-4)
