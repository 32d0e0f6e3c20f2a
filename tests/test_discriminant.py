"""Discriminant analysis from the moments of the classes, on NumPy in CuPy's place."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
import sklearn.discriminant_analysis
from alike import assert_alike, device, same  # noqa: F401
from hypothesis import given, settings
from hypothesis import strategies as st

import accelsk
from accelsk import discriminant_analysis
from accelsk._sklearn import VERSION

RNG = np.random.RandomState(0)
DTYPES = [np.float64, np.float32, np.int64]
NAMES = np.array(["one", "two", "three", "four"])
METHODS = ("predict", "predict_proba", "predict_log_proba", "decision_function")


def rows(n_classes, n=400, d=5, seed=0):
    """Return rows of overlapping classes, each with a covariance of its own, and their labels."""
    rng = np.random.RandomState(seed)
    codes = np.arange(n) % n_classes
    shapes = rng.randn(n_classes, d, d) + 2 * np.eye(d)
    centres = rng.randn(n_classes, d) * 2
    X = np.einsum("ij,ijk->ik", rng.randn(n, d), shapes[codes]) + centres[codes]
    return X * 10 + 30, NAMES[codes]


def pair(name, X, y, **options):
    return tuple(
        getattr(module, name)(**options).fit(X, y)
        for module in (discriminant_analysis, sklearn.discriminant_analysis)
    )


def up_to_sign(ours, theirs, *names):
    """Give the columns of attributes of `ours` the signs of those of `theirs`."""
    for name in names:
        found, expected = getattr(ours, name), getattr(theirs, name)
        pairs = (
            zip(found, expected, strict=True) if isinstance(found, list) else [(found, expected)]
        )
        turned = [f * np.sign((f * e).sum(axis=0)).astype(f.dtype) for f, e in pairs]
        setattr(ours, name, turned if isinstance(found, list) else turned[0])


def assert_same_answers(ours, theirs, X, y, rtol):
    for method in METHODS:
        same(getattr(ours, method)(X), getattr(theirs, method)(X), rtol, rtol, method)
    assert ours.score(X, y) == pytest.approx(theirs.score(X, y), abs=1e-2 if rtol > 1e-4 else 1e-9)


def assert_same_coordinates(ours, theirs, X, rtol):
    found, expected = ours.transform(X), theirs.transform(X)
    signs = np.sign((found * expected).sum(axis=0)).astype(found.dtype)
    same(found * signs, expected, rtol, rtol)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("priors", [None, "given"])
@pytest.mark.parametrize("n_classes", [2, 4])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"store_covariance": True},
        {"n_components": 1},
        {"solver": "lsqr"},
        {"solver": "lsqr", "shrinkage": 0.3},
        {"solver": "lsqr", "shrinkage": "auto"},
        {"solver": "eigen"},
        {"solver": "eigen", "shrinkage": 0.3},
        {"solver": "eigen", "shrinkage": "auto"},
    ],
    ids=str,
)
def test_linear_discriminant_is_scikit_learns(options, n_classes, priors, dtype):
    X, y = rows(n_classes)
    X = X.astype(dtype)
    if priors:
        priors = {2: [0.4, 0.6], 4: [0.1, 0.2, 0.3, 0.4]}[n_classes]
    ours, theirs = pair("LinearDiscriminantAnalysis", X, y, priors=priors, **options)
    rtol = 2e-3 if dtype == np.float32 else 1e-8
    if options.get("solver") != "lsqr":
        assert_same_coordinates(ours, theirs, X, rtol)
    assert_same_answers(ours, theirs, X, y, rtol)
    again = pickle.loads(pickle.dumps(ours))
    assert_same_answers(again, theirs, X, y, rtol)
    if options.get("solver") != "lsqr":
        assert_same_coordinates(again, theirs, X, rtol)
        for est in (ours, theirs):  # others part no classes, and are arbitrary
            est.scalings_ = est.scalings_[:, : n_classes - 1]
        up_to_sign(ours, theirs, "scalings_")
    assert_alike(ours, theirs, max(rtol, 1e-7), max(rtol, 1e-7))
    assert ours._max_components == theirs._max_components
    assert ours.get_feature_names_out().tolist() == theirs.get_feature_names_out().tolist()


def test_fit_transform_is_fit_and_transform():
    X, y = rows(3)
    ours = discriminant_analysis.LinearDiscriminantAnalysis()
    theirs = sklearn.discriminant_analysis.LinearDiscriminantAnalysis()
    found, expected = ours.fit_transform(X, y), theirs.fit_transform(X, y)
    same(found * np.sign((found * expected).sum(axis=0)), expected, 1e-8, 1e-8)


@pytest.mark.parametrize("degenerate", ["constant", "collinear", "duplicate"])
def test_directions_without_spread_are_left_out(degenerate):
    X, y = rows(3)
    extra = {
        "constant": np.full(len(X), 7.0),
        "collinear": X[:, 0] + X[:, 1],
        "duplicate": X[:, 2],
    }[degenerate]
    X = np.column_stack([X, extra])
    ours, theirs = pair("LinearDiscriminantAnalysis", X, y)
    assert ours.scalings_.shape == theirs.scalings_.shape
    assert_same_answers(ours, theirs, X, y, 1e-6)


def test_nearly_collinear_features_keep_their_digits():
    X, y = rows(3, n=600)
    X = np.column_stack([X, X[:, 0] + 1e-2 * RNG.randn(len(X))])
    ours, theirs = pair("LinearDiscriminantAnalysis", X, y)
    np.testing.assert_allclose(ours.coef_, theirs.coef_, rtol=1e-6)


@pytest.mark.parametrize("solver", ["svd", "lsqr", "eigen"])
def test_units_and_offsets_cost_no_digits(solver):
    X, y = rows(3)
    X = np.add(X, [1e5, 0, 1e3, 0, 0]) * [1, 1e4, 1e-4, 1, 10]
    ours, theirs = pair("LinearDiscriminantAnalysis", X, y, solver=solver)
    assert_same_answers(ours, theirs, X, y, 1e-5)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"shrinkage": "auto"}, "shrinkage not supported"),
        ({"n_components": 9}, "n_components cannot be larger"),
        ({"priors": [-0.5, 0.5, 1]}, "priors must be non-negative"),
        ({"solver": "none"}, "solver"),
    ],
)
def test_linear_discriminant_says_scikit_learns_errors(options, words):
    X, y = rows(3)
    with pytest.raises((ValueError, NotImplementedError), match=words):
        discriminant_analysis.LinearDiscriminantAnalysis(**options).fit(X, y)


def test_lsqr_does_not_transform():
    X, y = rows(3)
    ours = discriminant_analysis.LinearDiscriminantAnalysis(solver="lsqr").fit(X, y)
    with pytest.raises(NotImplementedError, match="lsqr"):
        ours.transform(X)


def test_what_scikit_learn_warns_of_is_left_to_it():
    X, y = rows(3)
    for options in ({"priors": [1, 1, 1]}, {"solver": "lsqr", "priors": [0, 0.5, 0.5]}):
        with pytest.raises(accelsk.exceptions.FallbackError, match="priors"):
            discriminant_analysis.LinearDiscriminantAnalysis(**options).fit(X, y)
    lonely = np.where(np.arange(len(y)) == 5, "alone", y)
    with pytest.raises(accelsk.exceptions.FallbackError, match="one row"):
        discriminant_analysis.LinearDiscriminantAnalysis(solver="lsqr").fit(X, lonely)
    with pytest.raises(accelsk.exceptions.FallbackError, match="covariance_estimator"):
        discriminant_analysis.LinearDiscriminantAnalysis(
            solver="lsqr", covariance_estimator=sklearn.covariance.OAS()
        ).fit(X, y)


@pytest.mark.parametrize("name", ["LinearDiscriminantAnalysis", "QuadraticDiscriminantAnalysis"])
@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_discriminants_say_scikit_learns_errors(name, bad):
    X, y = rows(3)
    broken = X.copy()
    broken[7, 2] = bad
    est = getattr(discriminant_analysis, name)()
    with pytest.raises(ValueError, match=r"contains (NaN|infinity)"):
        est.fit(broken, y)
    est.fit(X, y)
    for method in METHODS:
        with pytest.raises(ValueError, match=r"contains (NaN|infinity)"):
            getattr(est, method)(broken)
        with pytest.raises(ValueError, match="features"):
            getattr(est, method)(X[:, :3])


QUADRATIC = [{}, {"reg_param": 0.2}, {"store_covariance": True}, {"reg_param": 1.0}]
if VERSION.release >= (1, 8):
    QUADRATIC += [
        {"solver": "eigen"},
        {"solver": "eigen", "shrinkage": 0.3, "store_covariance": True},
        {"solver": "eigen", "shrinkage": "auto", "store_covariance": True},
    ]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("priors", [None, "given"])
@pytest.mark.parametrize("n_classes", [2, 4])
@pytest.mark.parametrize("options", QUADRATIC, ids=str)
def test_quadratic_discriminant_is_scikit_learns(options, n_classes, priors, dtype):
    X, y = rows(n_classes)
    X = X.astype(dtype)
    if priors:
        priors = {2: [0.4, 0.6], 4: [0.1, 0.2, 0.3, 0.4]}[n_classes]
    ours, theirs = pair("QuadraticDiscriminantAnalysis", X, y, priors=priors, **options)
    rtol = 2e-3 if dtype == np.float32 else 1e-8
    assert_same_answers(ours, theirs, X, y, rtol)
    assert_same_answers(pickle.loads(pickle.dumps(ours)), theirs, X, y, rtol)
    up_to_sign(ours, theirs, "rotations_")
    assert_alike(ours, theirs, max(rtol, 1e-7), max(rtol, 1e-7))
    assert_same_answers(ours, theirs, X, y, rtol)


def test_classes_without_full_rank_are_left_to_scikit_learn():
    X, y = rows(2)
    for degenerate in (X[:, 0] + X[:, 1], np.full(len(X), 3.0)):
        with pytest.raises(accelsk.exceptions.FallbackError, match=r"collinear|full rank"):
            discriminant_analysis.QuadraticDiscriminantAnalysis().fit(
                np.column_stack([X, degenerate]), y
            )
    few = np.where(np.arange(len(y)) < 4, "few", y)
    with pytest.raises(accelsk.exceptions.FallbackError, match="no more rows"):
        discriminant_analysis.QuadraticDiscriminantAnalysis().fit(X, few)
    one = np.where(np.arange(len(y)) < 1, "alone", y)
    with pytest.raises(ValueError, match="only 1 sample"):
        discriminant_analysis.QuadraticDiscriminantAnalysis().fit(X, one)


def test_units_cost_quadratic_discriminants_no_digits():
    X, y = rows(3)
    X = np.add(X, [1e5, 0, 1e3, 0, 0]) * [1, 1e4, 1, 1, 10]
    ours, theirs = pair("QuadraticDiscriminantAnalysis", X, y)
    assert_same_answers(ours, theirs, X, y, 1e-6)


@pytest.mark.parametrize("name", ["LinearDiscriminantAnalysis", "QuadraticDiscriminantAnalysis"])
def test_discriminants_keep_a_memory_limit(name):
    X, y = rows(3, n=5000)
    with accelsk.config_context(device_memory_limit=50_000):
        ours, theirs = pair(name, X, y)
        assert_same_answers(ours, theirs, X, y, 1e-8)


@settings(max_examples=40, deadline=None)
@given(
    n_classes=st.integers(2, 4),
    d=st.integers(1, 5),
    offset=st.sampled_from([0.0, 10.0, 1e6]),
    apart=st.sampled_from([0.1, 1.0, 1e3]),
    seed=st.integers(0, 99),
)
def test_predictions_do_not_depend_on_where_classes_are(n_classes, d, offset, apart, seed):
    rng = np.random.RandomState(seed)
    y = np.arange(120) % n_classes
    X = rng.randn(120, d) + apart * rng.randn(n_classes, d)[y] + offset
    ours, theirs = pair("LinearDiscriminantAnalysis", X, y)
    np.testing.assert_allclose(
        ours.predict_proba(X), theirs.predict_proba(X), atol=1e-5 if apart > 1 else 1e-6
    )
