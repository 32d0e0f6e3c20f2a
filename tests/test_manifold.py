"""Clustering by trees and spectra, and manifold learning, on NumPy in CuPy's place."""

from __future__ import annotations

import contextlib
import pickle
import re
import sys
import types
import warnings

import device_double
import numpy as np
import pytest
import scipy.linalg
import sklearn.cluster
import sklearn.manifold
from scipy import sparse
from sklearn.datasets import load_digits, load_iris, make_blobs, make_s_curve
from sklearn.neighbors import NearestNeighbors

import accelsk
from accelsk import _density, _spectral, cluster, manifold
from accelsk.algorithms import spanning_tree, tsne
from accelsk.engines import cuml as cuml_engine
from accelsk.exceptions import FallbackError, Refusal

DIGITS = load_digits().data[:300]
FEW = DIGITS[:120]
IRIS = load_iris().data
BLOBS = make_blobs(400, n_features=6, centers=8, random_state=0)[0]
GRID = np.round(np.random.RandomState(0).randn(400, 3), 1)
CURVE = make_s_curve(500, random_state=0)[0]


def described(parameters):
    """Return what names a test in every process: parameters without addresses in memory."""
    return re.sub(r" at 0x\w+", "", str(parameters))


def nearest(rows, count, metric):
    """What cuML and the ranking of its candidates find."""
    algorithm = "brute" if metric in _density.ANGULAR else "kd_tree"
    search = NearestNeighbors(n_neighbors=count, metric=metric, algorithm=algorithm)
    rows = device_double.to_host(rows)
    return tuple(map(device_double.to_device, search.fit(rows).kneighbors(rows)))


@pytest.fixture(autouse=True)
def device(monkeypatch):
    device_double.install(monkeypatch)
    cupyx_linalg = types.ModuleType("cupyx.scipy.linalg")

    def solve_triangular(a, b, **options):
        solved = scipy.linalg.solve_triangular(*map(device_double.to_host, (a, b)), **options)
        return device_double.to_device(solved)

    cupyx_linalg.solve_triangular = solve_triangular
    monkeypatch.setitem(sys.modules, "cupyx.scipy.linalg", cupyx_linalg)
    sys.modules["cupyx.scipy"].sparse = sys.modules["cupyx.scipy.sparse"]
    for module in (_density, _spectral, manifold):
        monkeypatch.setattr(module, "nearest", nearest)

    def grow(rows, core, alpha, metric):
        host = map(device_double.to_host, (rows, core))
        return spanning_tree._grow_on_host(*host, alpha, metric)

    def distances(rows, nearest, metric):
        rows, nearest = map(device_double.to_host, (rows, nearest))
        found = [spanning_tree._distances(rows, rows[column], metric) for column in nearest.T]
        return device_double.to_device(np.array(found).T)

    monkeypatch.setattr(spanning_tree, "_grow_on_device", grow)
    monkeypatch.setattr(spanning_tree, "_distances_on_device", distances)
    affinities, descend = tsne.affinities, tsne.descend

    def host_affinities(distances, indices, perplexity, **namespaces):
        host = map(device_double.to_host, (distances, indices))
        return affinities(*host, perplexity, np, sparse)

    def host_descend(start, joint, schedule, xp):
        joint = joint if sparse.issparse(joint) else device_double.to_host(joint)
        found = descend(device_double.to_host(start), joint, schedule, np)
        return found._replace(embedding=device_double.to_device(found.embedding))

    monkeypatch.setattr(tsne, "affinities", host_affinities)
    monkeypatch.setattr(tsne, "descend", host_descend)
    monkeypatch.setattr(cuml_engine, "_silence", contextlib.nullcontext())
    loaded = {"neighbors.NearestNeighbors": object}
    monkeypatch.setattr(cuml_engine.CumlEngine, "_loaded", loaded)
    with accelsk.config_context(device="gpu", on_fallback="raise"):
        yield


def fitted(estimator):
    names = (name for name in vars(estimator) if name not in estimator.get_params())
    return {name: getattr(estimator, name) for name in names if name != "_accelsk_state"}


def assert_alike(ours, theirs, rtol=0.0, atol=0.0):
    """Fitted attributes agree by name, type, dtype, shape and value."""
    ours._accelsk_fetch()
    found, expected = fitted(ours), fitted(theirs)
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        assert type(found[name]) is type(value), name
        if isinstance(value, np.ndarray):
            assert (found[name].dtype, found[name].shape) == (value.dtype, value.shape), name
            for field in value.dtype.names or (...,):
                np.testing.assert_allclose(found[name][field], value[field], rtol, atol, name)
        elif sparse.issparse(value):
            assert abs(found[name] - value).max() <= atol
        else:
            assert found[name] == value, name


# HDBSCAN


COPY = {"copy": True}


@pytest.mark.parametrize("X", [DIGITS, GRID, BLOBS.astype(np.float32), DIGITS.astype(int)])
@pytest.mark.parametrize(
    "parameters",
    [
        {},
        {"min_samples": 1},
        {"min_cluster_size": 20, "alpha": 1.2, "store_centers": "both"},
        {"algorithm": "ball_tree", "allow_single_cluster": True},
        {"metric": "manhattan", "cluster_selection_method": "leaf"},
        {"metric": "infinity", "min_samples": 10, "max_cluster_size": 50},
    ],
    ids=described,
)
def test_hdbscan_equals_scikit_learn_label_for_label(X, parameters):
    ours = cluster.HDBSCAN(**COPY, **parameters).fit(X)
    assert_alike(ours, sklearn.cluster.HDBSCAN(**COPY, **parameters).fit(X))
    assert isinstance(ours.labels_, np.ndarray)


def test_hdbscan_counts_the_point_itself():
    X = np.array([[0.0], [1.0], [2.0], [10.0], [11.0], [12.0]])
    ours = cluster.HDBSCAN(2, min_samples=2, **COPY).fit(X)
    assert sorted(ours._single_linkage_tree_["value"]) == [1, 1, 1, 1, 8]


def test_hdbscan_cuts_its_tree_as_scikit_learn_does():
    ours = cluster.HDBSCAN(**COPY).fit(BLOBS)
    theirs = sklearn.cluster.HDBSCAN(**COPY).fit(BLOBS)
    for distance in (0.5, 2.0, 5.0):
        np.testing.assert_array_equal(
            ours.dbscan_clustering(distance), theirs.dbscan_clustering(distance)
        )


def test_hdbscan_gives_the_warning_that_scikit_learn_gives_once():
    def given(cls):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            cls().fit(BLOBS)
        return [(w.category, str(w.message)) for w in caught]

    assert given(cluster.HDBSCAN) == given(sklearn.cluster.HDBSCAN)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_rows_that_are_not_finite_are_left_to_scikit_learn(value):
    X = DIGITS.copy()
    X[[3, 50], 2] = value
    with pytest.raises(FallbackError, match="NaN or infinity"):
        cluster.HDBSCAN(**COPY).fit(X)
    with accelsk.config_context(on_fallback="log"):
        ours = cluster.HDBSCAN(**COPY).fit(X)
    np.testing.assert_array_equal(ours.labels_, sklearn.cluster.HDBSCAN(**COPY).fit_predict(X))


@pytest.mark.parametrize(
    "parameters",
    [{"algorithm": "brute"}, {"metric": "cosine"}, {"metric_params": {}}, {"metric": np.dot}],
    ids=described,
)
def test_what_hdbscan_leaves_to_scikit_learn(parameters):
    with pytest.raises(FallbackError):
        cluster.HDBSCAN(**COPY, **parameters).fit(BLOBS)


# AgglomerativeClustering


@pytest.mark.parametrize("X", [DIGITS, GRID, BLOBS.astype(np.float32), DIGITS.astype(int)])
@pytest.mark.parametrize(
    "parameters",
    [
        {},
        {"n_clusters": None, "distance_threshold": 1.0},
        {"n_clusters": 5, "metric": "l1", "compute_distances": True},
        {"metric": "chebyshev", "compute_full_tree": False},
    ],
    ids=described,
)
def test_single_linkage_equals_scikit_learn(X, parameters):
    ours = cluster.AgglomerativeClustering(linkage="single", **parameters).fit(X)
    theirs = sklearn.cluster.AgglomerativeClustering(linkage="single", **parameters).fit(X)
    assert_alike(ours, theirs)


@pytest.mark.parametrize(
    "parameters", [{"linkage": "ward"}, {"metric": "cosine"}, {"connectivity": np.eye(400)}]
)
def test_other_linkages_are_left_to_scikit_learn(parameters):
    with pytest.raises(FallbackError):
        cluster.AgglomerativeClustering(**{"linkage": "single", **parameters}).fit(BLOBS)


@pytest.mark.parametrize(
    "parameters",
    [{"n_clusters": None}, {"n_clusters": 500}, {"distance_threshold": 1.0}],
    ids=described,
)
def test_errors_of_agglomerative_clustering_are_scikit_learns(parameters):
    with pytest.raises(ValueError, match=r".") as theirs:
        sklearn.cluster.AgglomerativeClustering(linkage="single", **parameters).fit(BLOBS)
    with pytest.raises(ValueError, match=r".") as ours:
        cluster.AgglomerativeClustering(linkage="single", **parameters).fit(BLOBS)
    assert str(ours.value) == str(theirs.value)


# Spectral methods


@pytest.mark.parametrize(
    "parameters",
    [
        {},
        {"affinity": "rbf"},
        {"affinity": "rbf", "gamma": 0.5, "n_components": 4},
        {"n_neighbors": 20, "eigen_solver": "arpack"},
    ],
    ids=described,
)
def test_the_spectral_embedding_is_scikit_learns(parameters):
    ours = manifold.SpectralEmbedding(random_state=0, **parameters)
    result = ours.fit_transform(CURVE)
    theirs = sklearn.manifold.SpectralEmbedding(random_state=0, **parameters).fit(CURVE)
    assert_alike(ours, theirs, rtol=1e-6, atol=1e-9)
    np.testing.assert_array_equal(result, ours.embedding_)


def test_a_given_affinity_is_taken_as_it_is():
    affinity = sklearn.manifold.SpectralEmbedding(affinity="rbf").fit(CURVE).affinity_matrix_
    ours = manifold.SpectralEmbedding(affinity="precomputed").fit(affinity)
    theirs = sklearn.manifold.SpectralEmbedding(affinity="precomputed").fit(affinity)
    assert_alike(ours, theirs, rtol=1e-6, atol=1e-9)
    affinity[3, 4] += 1
    with pytest.raises(FallbackError, match="not symmetric"):
        manifold.SpectralEmbedding(affinity="precomputed").fit(affinity)


def test_a_graph_in_parts_has_no_certain_embedding():
    with pytest.raises(FallbackError, match="not connected"):
        manifold.SpectralEmbedding(n_neighbors=5).fit(BLOBS)
    with pytest.raises(FallbackError, match="coincide"):
        manifold.SpectralEmbedding(affinity="rbf", gamma=10.0).fit(IRIS)


@pytest.mark.parametrize(
    "parameters",
    [
        {},
        {"affinity": "nearest_neighbors", "n_neighbors": 20},
        {"assign_labels": "discretize"},
        {"assign_labels": "cluster_qr", "n_components": 4},
        {"n_init": 1, "random_state": np.random.RandomState(5)},
    ],
    ids=described,
)
def test_spectral_clusters_are_scikit_learns(parameters):
    parameters = {"n_clusters": 3, "random_state": 0, **parameters}
    ours = cluster.SpectralClustering(**pickle.loads(pickle.dumps(parameters))).fit(IRIS)
    theirs = sklearn.cluster.SpectralClustering(**parameters).fit(IRIS)
    assert_alike(ours, theirs, atol=1.0 if "affinity" in parameters else 1e-12)


def test_a_graph_in_parts_is_clustered_with_scikit_learns_warning():
    parameters = {"affinity": "nearest_neighbors", "n_clusters": 8, "random_state": 0}
    with pytest.warns(UserWarning, match="not fully connected") as caught:
        ours = cluster.SpectralClustering(**parameters).fit(BLOBS)
    assert len(caught) == 1
    # up to 1.6 scikit-learn itself may miss one of the vectors that tell the parts apart
    true = make_blobs(400, n_features=6, centers=8, random_state=0)[1]
    assert sklearn.metrics.adjusted_rand_score(ours.labels_, true) == 1


# t-SNE


@pytest.mark.parametrize(
    "parameters",
    [
        {},
        {"init": "random", "n_components": 3},
        {"method": "exact", "max_iter": 500},
        {"metric": "l1", "perplexity": 10, "learning_rate": 100.0, "max_iter": 500},
        {"init": np.random.RandomState(0).randn(120, 2) * 1e-4, "max_iter": 500},
    ],
    ids=["default", "random", "exact", "l1", "array"],
)
def test_tsne_is_as_good_as_scikit_learns(parameters):
    ours = manifold.TSNE(random_state=0, **parameters)
    result = ours.fit_transform(FEW)
    theirs = sklearn.manifold.TSNE(random_state=0, **parameters).fit(FEW)
    found, expected = fitted(ours), fitted(theirs)
    ours._accelsk_fetch()
    found = fitted(ours)
    assert found.keys() == expected.keys()
    assert {k: type(v) for k, v in found.items()} == {k: type(v) for k, v in expected.items()}
    assert result.dtype == ours.embedding_.dtype == theirs.embedding_.dtype
    assert result.shape == theirs.embedding_.shape
    assert ours.learning_rate_ == theirs.learning_rate_
    # of so few rows, rounding decides which of several minima is found
    assert ours.kl_divergence_ <= theirs.kl_divergence_ * 1.4
    trust = sklearn.manifold.trustworthiness
    assert trust(FEW, result) >= trust(FEW, theirs.embedding_) - 0.01
    assert list(ours.get_feature_names_out()) == list(theirs.get_feature_names_out())


@pytest.mark.parametrize("metric", ["cosine", "correlation"])
def test_angles_are_searched_among_rows_of_unit_length(metric):
    found = _density._nearest_by_angle(device_double.to_device(IRIS), 6, metric)
    search = NearestNeighbors(n_neighbors=6, metric=metric, algorithm="brute").fit(IRIS)
    expected = search.kneighbors(IRIS)[0]
    np.testing.assert_allclose(device_double.to_host(found[0]), expected, atol=1e-12)
    with_zeros = np.vstack([IRIS, np.zeros(4)])
    with pytest.raises(Refusal, match="without direction"):
        _density._nearest_by_angle(device_double.to_device(with_zeros), 6, metric)


def test_no_iteration_after_the_exploration_leaves_the_error_of_scikit_learn():
    ours = manifold.TSNE(max_iter=250).fit(FEW)
    theirs = sklearn.manifold.TSNE(max_iter=250).fit(FEW)
    for name in ("kl_divergence_", "n_iter_"):
        found, expected = getattr(ours, name), getattr(theirs, name)
        assert (type(found), found) == (type(expected), expected)


def test_tsne_repeats_with_the_same_seed():
    first, second = (
        manifold.TSNE(init="random", random_state=3, max_iter=300).fit_transform(FEW)
        for _ in range(2)
    )
    np.testing.assert_array_equal(first, second)


@pytest.mark.parametrize(
    "parameters",
    [
        {"metric": "canberra"},
        {"verbose": 1},
        {"method": "exact", "metric": "l1"},
        {"init": np.zeros((3, 2))},
        {"init": np.zeros((120, 2), int)},
    ],
    ids=["canberra", "verbose", "exact l1", "short init", "whole init"],
)
def test_what_tsne_leaves_to_scikit_learn(parameters):
    with pytest.raises(FallbackError):
        manifold.TSNE(**parameters).fit(FEW)


@pytest.mark.parametrize("parameters", [{"perplexity": 300}, {"n_components": 4}], ids=described)
def test_errors_of_tsne_are_scikit_learns(parameters):
    with pytest.raises(ValueError, match=r".") as theirs:
        sklearn.manifold.TSNE(**parameters).fit(FEW)
    with pytest.raises(ValueError, match=r".") as ours:
        manifold.TSNE(**parameters).fit(FEW)
    assert str(ours.value) == str(theirs.value)
