"""k-means on NumPy, held against scikit-learn."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.cluster import KMeans
from sklearn.cluster import kmeans_plusplus as their_seeds
from sklearn.exceptions import ConvergenceWarning

from accelsk.algorithms import kmeans


@st.composite
def rows(draw, min_rows=8, dtypes=(np.float64,)):
    """Draw rows in blobs, about their middle as the algorithms want them."""
    rng = np.random.default_rng(draw(st.integers(0, 10_000)))
    n, d = draw(st.integers(min_rows, 60)), draw(st.integers(1, 5))
    centers = rng.normal(size=(4, d)) * draw(st.sampled_from([1.0, 10.0]))
    X = centers[rng.integers(0, 4, n)] + rng.normal(size=(n, d))
    return (X - X.mean(axis=0)).astype(draw(st.sampled_from(dtypes)))


@st.composite
def weights(draw, n):
    """Draw weights for n rows: none, whole numbers with zeros, or anything."""
    kind = draw(st.sampled_from(["none", "whole", "any"]))
    rng = np.random.default_rng(draw(st.integers(0, 100)))
    if kind == "none":
        return None
    return rng.integers(0, 3, n) + 0.0 if kind == "whole" else rng.uniform(0.1, 5, n)


@given(st.data(), st.integers(0, 1000), st.integers(1, 6))
def test_seeds_are_those_of_scikit_learn(data, seed, n_clusters):
    X = data.draw(rows())
    weight = data.draw(weights(len(X)))
    if weight is None or (weight > 0).sum() < n_clusters:
        weight = np.ones(len(X))
    theirs, _ = their_seeds(X, n_clusters, sample_weight=weight, random_state=seed)
    random_state = np.random.RandomState(seed)
    ours = kmeans.kmeans_plusplus(X, n_clusters, weight, random_state, np)
    np.testing.assert_allclose(ours, theirs)


def _lloyd(X, seeds, weight, max_iter=300, tol=0.0):
    return kmeans.lloyd(
        X,
        seeds,
        weight,
        max_iter=max_iter,
        tol=tol,
        xp=np,
    )


def _theirs(X, seeds, weight, max_iter=300, tol=0.0):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model = KMeans(len(seeds), init=seeds, n_init=1, max_iter=max_iter, algorithm="lloyd")
        return model.set_params(tol=tol).fit(X, sample_weight=weight)


@given(
    st.data(), st.integers(1, 6), st.sampled_from([1, 2, 300]), st.sampled_from([0.0, 1e-4, 0.1])
)
def test_iterations_are_those_of_scikit_learn(data, n_clusters, max_iter, tol):
    X = data.draw(rows())
    weight = data.draw(weights(len(X)))
    if weight is not None and (weight > 0).sum() < n_clusters:
        weight = None
    seeds = X[data.draw(st.permutations(range(len(X))))[:n_clusters]]
    theirs = _theirs(X, seeds, weight, max_iter, tol)
    ours = _lloyd(X, seeds, weight, max_iter, float(X.var(axis=0).mean()) * tol)
    np.testing.assert_allclose(ours.centers, theirs.cluster_centers_, atol=1e-9)
    np.testing.assert_array_equal(ours.labels, theirs.labels_)
    assert ours.inertia == pytest.approx(theirs.inertia_, abs=1e-9)
    assert ours.n_iter == theirs.n_iter_


@pytest.mark.parametrize("weight", [None, np.arange(1.0, 31)])
def test_empty_cluster_takes_the_row_that_is_farthest_as_in_scikit_learn(weight):
    X = np.random.default_rng(3).normal(size=(30, 2))
    X -= X.mean(axis=0)
    seeds = np.array([[0.0, 0.0], [100.0, 100.0], [200.0, 0.0]])
    ours, theirs = _lloyd(X, seeds, weight), _theirs(X, seeds, weight)
    assert len(set(ours.labels)) == 3
    np.testing.assert_allclose(ours.centers, theirs.cluster_centers_, atol=1e-9)
    np.testing.assert_array_equal(ours.labels, theirs.labels_)


def test_fewer_distinct_rows_than_clusters_end():
    X = np.repeat([[-1.0, 0.0], [1.0, 0.0]], 5, axis=0)
    ours = _lloyd(X, X[[0, 1, 9]], None)
    assert ours.inertia == 0
    assert len(set(ours.labels)) == 2


@given(st.data())
def test_weight_means_repeated_rows(data):
    X = data.draw(rows())
    weight = np.random.default_rng(0).integers(1, 4, len(X))
    seeds = X[:3]
    ours = _lloyd(X, seeds, weight + 0.0)
    repeated = _lloyd(np.repeat(X, weight, axis=0), seeds, None)
    np.testing.assert_allclose(ours.centers, repeated.centers, atol=1e-9)
    assert ours.inertia == pytest.approx(repeated.inertia)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_centres_keep_the_dtype(dtype):
    X = np.random.default_rng(0).normal(size=(50, 3)).astype(dtype)
    result = _lloyd(X, X[:4], None)
    assert result.centers.dtype == dtype
    assert isinstance(result.inertia, float)


def test_long_data_is_summed_in_chunks(monkeypatch):
    X = np.random.default_rng(0).normal(size=(200, 3))
    whole = _lloyd(X, X[:4], None)
    monkeypatch.setattr(kmeans, "_CHUNK", 64)
    np.testing.assert_allclose(_lloyd(X, X[:4], None).centers, whole.centers)
