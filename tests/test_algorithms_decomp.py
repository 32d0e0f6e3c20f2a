"""The engines of our own for moments, projections and forests, on NumPy in CuPy's place."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
import sklearn.decomposition
import sklearn.ensemble
import sklearn.random_projection
import sklearn.tree
from alike import assert_alike, device, distinct, same, tolerance  # noqa: F401
from scipy import sparse

import accelsk
from accelsk import decomposition, ensemble, random_projection

RNG = np.random.RandomState(0)
ROWS = RNG.randn(300, 6) @ RNG.randn(6, 6) + 5
DTYPES = [np.float64, np.float32, np.int64]


# Decomposition


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("whiten", [False, True])
@pytest.mark.parametrize("n_components", [None, 2, 6])
@pytest.mark.parametrize("batch_size", [None, 70, 300])
def test_incremental_pca_is_scikit_learns(batch_size, n_components, whiten, dtype):
    X = (ROWS * 10).astype(dtype)
    options = {"n_components": n_components, "whiten": whiten, "batch_size": batch_size}
    ours = decomposition.IncrementalPCA(**options)
    theirs = sklearn.decomposition.IncrementalPCA(**options)
    same(ours.fit_transform(X), theirs.fit_transform(X), *tolerance(dtype, 1e-7))
    same(ours.transform(X), theirs.transform(X), *tolerance(dtype, 1e-7))
    coordinates = theirs.transform(X)
    same(
        ours.inverse_transform(coordinates),
        theirs.inverse_transform(coordinates),
        *tolerance(dtype, 1e-7),
    )
    assert_alike(ours, theirs, *tolerance(dtype, 1e-7))


@pytest.mark.parametrize("dtype", DTYPES)
def test_incremental_pca_goes_on_from_batch_to_batch(dtype):
    X = (ROWS * 10).astype(dtype)
    ours = decomposition.IncrementalPCA(3, batch_size=100)
    theirs = sklearn.decomposition.IncrementalPCA(3, batch_size=100)
    for batch in (X[:50], X[50:52], X[52:200], X[200:]):
        assert ours.partial_fit(batch) is ours
        theirs.partial_fit(batch)
        assert_alike(ours, theirs, *tolerance(dtype, 1e-6))
    ours.fit(X[:100]), theirs.fit(X[:100])
    ours = pickle.loads(pickle.dumps(ours))
    ours.partial_fit(X[100:]), theirs.partial_fit(X[100:])
    assert_alike(ours, theirs, *tolerance(dtype, 1e-6))


def test_partial_fit_keeps_feature_names_and_checks_them():
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(ROWS, columns=list("abcdef"))
    ours = decomposition.IncrementalPCA(2).partial_fit(frame[:100])
    ours.partial_fit(frame[100:])
    assert list(ours.feature_names_in_) == list("abcdef")
    with pytest.warns(UserWarning, match="valid feature names"):
        ours.partial_fit(ROWS)
    assert list(ours.feature_names_in_) == list("abcdef")
    with pytest.raises(ValueError, match="feature names should match"):
        ours.partial_fit(frame[list("fedcba")])
    with pytest.raises(ValueError, match="expecting 6 features"):
        ours.partial_fit(ROWS[:, :4])


def test_partial_fit_that_fails_leaves_the_model_before_it():
    ours = decomposition.IncrementalPCA(2).partial_fit(ROWS)
    before = ours.transform(ROWS)
    broken = ROWS.copy()
    broken[0, 0] = np.nan
    with pytest.raises(ValueError, match="NaN"):
        ours.partial_fit(broken)
    np.testing.assert_allclose(ours.transform(ROWS), before)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(300, 6), (20, 40), (40, 20)])
@pytest.mark.parametrize("algorithm", ["arpack", "randomized"])
def test_truncated_svd_is_scikit_learns(algorithm, shape, dtype):
    X = (np.random.RandomState(1).randn(*shape) * 10 + 3).astype(dtype)
    options = {"n_components": 3, "algorithm": algorithm, "random_state": 0}
    ours = decomposition.TruncatedSVD(**options)
    theirs = sklearn.decomposition.TruncatedSVD(**options, n_iter=50)
    same(ours.fit_transform(X), theirs.fit_transform(X), 1e-6, 1e-5)
    same(ours.transform(X), theirs.transform(X), 1e-6, 1e-5)
    same(ours.inverse_transform(X[:, :3]), theirs.inverse_transform(X[:, :3]), 1e-6, 1e-6)
    assert_alike(ours, theirs, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(300, 40), (40, 300)])
@pytest.mark.parametrize("layout", [sparse.csr_matrix, sparse.csc_array])
@pytest.mark.parametrize("normalizer", ["auto", "none", "LU"])
def test_truncated_svd_of_sparse_rows_draws_what_scikit_learn_draws(
    normalizer, layout, shape, dtype
):
    random = np.random.RandomState(1)
    X = layout(random.poisson(0.2, shape).astype(dtype))
    options = {"n_components": 4, "n_iter": 2, "power_iteration_normalizer": normalizer}
    ours = decomposition.TruncatedSVD(**options, random_state=3)
    theirs = sklearn.decomposition.TruncatedSVD(**options, random_state=3)
    same(ours.fit_transform(X), theirs.fit_transform(X), *tolerance(dtype, 1e-7))
    same(ours.transform(X), theirs.transform(X), *tolerance(dtype, 1e-7))
    same(ours.transform(X.toarray()), theirs.transform(X.toarray()), *tolerance(dtype, 1e-7))
    assert_alike(ours, theirs, *tolerance(dtype, 1e-7))


@pytest.mark.parametrize("algorithm", ["arpack", "randomized"])
def test_truncated_svd_says_scikit_learns_errors(algorithm):
    too_many = {"arpack": 6, "randomized": 7}[algorithm]
    words = {"arpack": "must be an integer", "randomized": "n_components"}[algorithm]
    with accelsk.config_context(on_fallback="log"), pytest.raises(ValueError, match=words):
        decomposition.TruncatedSVD(too_many, algorithm=algorithm).fit(ROWS)


def test_truncated_svd_keeps_small_singular_values():
    u, _ = np.linalg.qr(np.random.RandomState(0).randn(200, 5))
    v, _ = np.linalg.qr(np.random.RandomState(1).randn(30, 5))
    values = np.array([1e4, 10, 1e-1, 1e-2, 1e-3])
    ours = decomposition.TruncatedSVD(5).fit((u * values) @ v.T)
    np.testing.assert_allclose(ours.singular_values_, values, rtol=1e-7)
    np.testing.assert_allclose(np.abs((ours.components_ * v.T).sum(axis=1)), 1, atol=1e-7)


# Random projections


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.int64])
@pytest.mark.parametrize("name", ["GaussianRandomProjection", "SparseRandomProjection"])
def test_random_projection_is_scikit_learns(name, dtype):
    X = (distinct(100, 60) * 9).astype(dtype)
    options = {"n_components": 7, "random_state": 0, "compute_inverse_components": True}
    ours = getattr(random_projection, name)(**options)
    theirs = getattr(sklearn.random_projection, name)(**options)
    rtol = 1e-4 if dtype == np.float32 else 1e-9
    same(ours.fit_transform(X), theirs.fit_transform(X), rtol)
    same(ours.transform(X.astype(float)), theirs.transform(X.astype(float)), rtol, 1e-5)
    coordinates = theirs.transform(X)
    same(ours.inverse_transform(coordinates), theirs.inverse_transform(coordinates), rtol, 1e-5)
    with pytest.raises(ValueError):  # noqa: PT011 - NumPy's words for the shapes
        ours.inverse_transform(coordinates[:, :3])
    ours.compute_inverse_components = False
    with pytest.raises(accelsk.exceptions.FallbackError, match="without inverse components"):
        ours.inverse_transform(coordinates)


# Isolation forests


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"contamination": 0.1},
        {"max_features": 2, "contamination": 0.3},
        {"max_features": 0.5, "max_samples": 0.3},
        {"bootstrap": True, "max_samples": 100},
        {"max_samples": 1},
    ],
    ids=str,
)
@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.int64])
def test_isolation_forest_is_scikit_learns(dtype, options):
    X, Q = (distinct(500, 5, seed=s) * 10 for s in (0, 1))
    X[:, 3] = 7
    X, Q = X.astype(dtype), Q.astype(dtype)
    options = {"n_estimators": 20, "random_state": 3, **options}
    ours = ensemble.IsolationForest(**options).fit(X)
    theirs = sklearn.ensemble.IsolationForest(**options).fit(X)
    for method in ("score_samples", "decision_function", "predict"):
        same(getattr(ours, method)(Q), getattr(theirs, method)(Q), 1e-12, 1e-12)
    same(ours.fit_predict(X), theirs.fit_predict(X))
    assert_alike(ours, theirs)
    unfitted = vars(sklearn.ensemble.IsolationForest()).keys()
    assert ours._accelsk_fitted_names() >= vars(theirs).keys() - unfitted - {"n_features_in_"}
    assert vars(ours).keys() - {"_accelsk_state"} == vars(theirs).keys()
    for tree, expected in zip(ours.estimators_, theirs.estimators_, strict=True):
        assert tree.random_state == expected.random_state
        np.testing.assert_array_equal(tree.tree_.threshold, expected.tree_.threshold)
        np.testing.assert_array_equal(tree.tree_.n_node_samples, expected.tree_.n_node_samples)
        np.testing.assert_allclose(tree.tree_.impurity, expected.tree_.impurity, atol=1e-12)
    for rows, expected in zip(ours.estimators_samples_, theirs.estimators_samples_, strict=True):
        np.testing.assert_array_equal(rows, expected)
    again = pickle.loads(pickle.dumps(ours))
    same(again.predict(Q), theirs.predict(Q))
    same(accelsk.from_sklearn(theirs).score_samples(Q), theirs.score_samples(Q), 1e-12)


def test_isolation_forest_leaves_warnings_to_scikit_learn():
    with accelsk.config_context(on_fallback="log"), pytest.warns(UserWarning, match="max_samples"):
        ensemble.IsolationForest(n_estimators=3, max_samples=1000).fit(ROWS)
    with pytest.raises(ValueError, match="max_features must be"):
        ensemble.IsolationForest(n_estimators=3, max_features=7).fit(ROWS)
