"""KMeans on the double of a device gives the clusters that scikit-learn gives."""

from __future__ import annotations

import device_double
import numpy as np
import pytest
import sklearn.cluster
from sklearn.datasets import make_blobs

import accelsk
from accelsk.cluster import KMeans

METHODS = ("predict", "transform", "score")


@pytest.fixture(autouse=True)
def device(monkeypatch):
    device_double.install(monkeypatch)
    with accelsk.config_context(device="gpu", on_fallback="raise"):
        yield


def _pair(X, sample_weight=None, **parameters):
    mine = KMeans(**parameters).fit(X, sample_weight=sample_weight)
    return mine, sklearn.cluster.KMeans(**parameters).fit(X, sample_weight=sample_weight)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize(
    "parameters",
    [
        {},
        {"init": "random", "n_init": 3},
        {"tol": 0, "algorithm": "elkan"},
        {"n_clusters": 40},
        {"n_clusters": 1},
        {"max_iter": 2},
    ],
)
@pytest.mark.parametrize("weighted", [False, True])
def test_clusters_and_methods_are_scikit_learns(dtype, parameters, weighted):
    X, _ = make_blobs(700, 5, centers=9, random_state=1)
    X = (X + 100).astype(dtype)
    weight = np.random.default_rng(0).uniform(0.1, 2, len(X)) if weighted else None
    mine, theirs = _pair(X, weight, **{"random_state": 4, **parameters})
    np.testing.assert_array_equal(mine.labels_, theirs.labels_)
    assert mine.labels_.dtype == theirs.labels_.dtype
    assert mine.n_iter_ == theirs.n_iter_
    close = 1e-12 if dtype is np.float64 else 1e-5
    np.testing.assert_allclose(mine.cluster_centers_, theirs.cluster_centers_, rtol=close)
    np.testing.assert_allclose(mine.inertia_, theirs.inertia_, rtol=100 * close)
    for method in METHODS:
        actual, expected = getattr(mine, method)(X), getattr(theirs, method)(X)
        assert getattr(actual, "dtype", None) == getattr(expected, "dtype", None)
        np.testing.assert_allclose(actual, expected, rtol=1e-2 * close**0.5, atol=close)
    np.testing.assert_allclose(
        KMeans(**{"random_state": 4, **parameters}).fit_transform(X, sample_weight=weight),
        mine.transform(X),
    )


def test_a_model_fitted_by_scikit_learn_answers():
    X, _ = make_blobs(200, 3, centers=4, random_state=0)
    plain = sklearn.cluster.KMeans(4, init=lambda X, k, random_state: X[:k], n_init=1).fit(X)
    mine = accelsk.from_sklearn(plain)
    for method in METHODS:
        np.testing.assert_allclose(getattr(mine, method)(X), getattr(plain, method)(X))


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize(
    "parameters",
    [{}, {"n_init": 3}, {"init": "random"}, {"tol": 0}, {"algorithm": "elkan"}, {"init": "rows"}],
)
def test_what_scikit_learn_keeps_of_a_fit_is_there(parameters, dtype):
    X = make_blobs(300, 4, centers=5, random_state=0)[0].astype(dtype)
    if parameters.get("init") == "rows":
        parameters = {"init": X[:5]}
    mine, theirs = _pair(X, **{"n_clusters": 5, "random_state": 0, **parameters})
    mine._accelsk_fetch()
    assert set(vars(theirs)) <= set(vars(mine))
    for name in ("_n_init", "_algorithm", "_tol", "_n_threads", "_n_features_out"):
        found, expected = getattr(mine, name), getattr(theirs, name)
        assert type(found) is type(expected), name
        assert found == (pytest.approx(expected, rel=1e-5) if name == "_tol" else expected)


@pytest.mark.parametrize("offset", [0, 1e6])
def test_a_row_is_at_no_distance_from_itself(offset):
    X, _ = make_blobs(300, 4, centers=5, random_state=0)
    model = KMeans(5, random_state=0).fit(X + offset)
    centers = model.cluster_centers_
    apart = model.transform(centers)
    assert (np.diag(apart) == 0).all()
    exact = np.sqrt(((centers[:, None] - centers) ** 2).sum(axis=-1))
    np.testing.assert_allclose(apart, exact, rtol=1e-9)


@pytest.mark.parametrize("seed", range(5))
def test_several_clusters_that_run_empty(seed):
    X, _ = make_blobs(300, 3, centers=9, random_state=seed)
    init = np.repeat(X[:2], [4, 5], axis=0)
    mine, theirs = _pair(X, n_clusters=9, init=init, n_init=1)
    np.testing.assert_array_equal(mine.labels_, theirs.labels_)
    assert mine.n_iter_ == theirs.n_iter_


@pytest.mark.parametrize("seed", range(5))
def test_of_runs_that_come_to_the_same_the_first_one_counts(seed):
    X, _ = make_blobs(200, 3, centers=4, cluster_std=0.5, random_state=1)
    mine, theirs = _pair(X, n_clusters=4, n_init=6, random_state=seed)
    np.testing.assert_array_equal(mine.labels_, theirs.labels_)
