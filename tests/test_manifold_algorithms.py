"""Spanning trees, spectral embeddings and t-SNE, on NumPy, against scikit-learn's own pieces."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse
from scipy.spatial.distance import squareform
from sklearn.cluster import _hierarchical_fast
from sklearn.cluster._hdbscan import _linkage
from sklearn.datasets import load_digits, make_moons, make_s_curve
from sklearn.manifold import _t_sne, spectral_embedding
from sklearn.metrics import DistanceMetric, pairwise_distances
from sklearn.metrics.pairwise import rbf_kernel
from sklearn.neighbors import NearestNeighbors, kneighbors_graph

from accelsk.algorithms import spectral, tsne
from accelsk.algorithms.spanning_tree import METRICS, core_distances, spanning_tree
from accelsk.algorithms.tsne_forces import dense_forces, sparse_forces
from accelsk.algorithms.tsne_grid import grid_repulsion

DIGITS = load_digits().data[:300]


def rows(seed, n=80, ties=False):
    X = np.random.RandomState(seed).randn(n, 3)
    return np.round(X, 1) if ties else X


# Spanning trees


@settings(deadline=None, max_examples=30)
@given(
    seed=st.integers(0, 1000),
    ties=st.booleans(),
    metric=st.sampled_from(sorted(METRICS)),
    alpha=st.sampled_from([1.0, 1.3]),
    n_neighbors=st.integers(1, 8),
)
def test_the_tree_of_mutual_reachability_is_that_of_scikit_learn(
    seed, ties, metric, alpha, n_neighbors
):
    X = rows(seed, ties=ties)
    found = NearestNeighbors(n_neighbors=n_neighbors, metric=metric, algorithm="kd_tree").fit(X)
    distances, indices = found.kneighbors(X)
    core = core_distances(X, indices, metric, np)
    np.testing.assert_array_equal(core, distances[:, -1])
    expected = _linkage.mst_from_data_matrix(X, core, DistanceMetric.get_metric(metric), alpha)
    tree = spanning_tree(X, core, alpha, metric, np)
    np.testing.assert_array_equal(tree.source, expected["current_node"])
    np.testing.assert_array_equal(tree.point, expected["next_node"])
    np.testing.assert_array_equal(tree.distance, expected["distance"])


@settings(deadline=None, max_examples=20)
@given(seed=st.integers(0, 1000), ties=st.booleans(), metric=st.sampled_from(sorted(METRICS)))
def test_without_core_distances_the_tree_is_that_of_single_linkage(seed, ties, metric):
    X = rows(seed, ties=ties)
    expected = _hierarchical_fast.mst_linkage_core(X, DistanceMetric.get_metric(metric))
    tree = spanning_tree(X, np.zeros(len(X)), 1.0, metric, np)
    found = np.column_stack([tree.previous, tree.point, tree.distance])
    np.testing.assert_array_equal(found, expected)


# Spectral embeddings


@pytest.mark.parametrize("gamma", [1 / 64, 0.001])
def test_the_rbf_affinity_is_that_of_scikit_learn(gamma):
    affinity = spectral.rbf_affinity(DIGITS, gamma, np)
    np.testing.assert_allclose(affinity, rbf_kernel(DIGITS, gamma=gamma), rtol=0, atol=1e-13)
    assert (np.diag(affinity) == 1).all()


@pytest.mark.parametrize("n", [40, 700])  # all eigenvectors at once, and by a Krylov method
@pytest.mark.parametrize("kind", ["rbf", "neighbors"])
def test_the_embedding_is_that_of_scikit_learn(n, kind):
    X = make_s_curve(n, random_state=0)[0]
    if kind == "rbf":
        affinity = rbf_kernel(X, gamma=1.0)
    else:
        graph = kneighbors_graph(X, 8, include_self=True)
        affinity = 0.5 * (graph + graph.T).toarray()
    expected = spectral_embedding(affinity, n_components=4, drop_first=False, random_state=0)
    found = spectral.embed(affinity.copy(), 4, np)
    np.testing.assert_allclose(found.coordinates, expected, rtol=0, atol=1e-8 * abs(expected).max())
    assert found.eigenvalues[0] == pytest.approx(0, abs=1e-12)
    assert (np.diff(found.eigenvalues) > 0).all()


def test_eigenvalues_that_coincide_are_all_found():
    part = rbf_kernel(make_moons(150, noise=0.1, random_state=0)[0], gamma=3.0)
    affinity = np.kron(np.eye(4), part)
    found = spectral.embed(affinity, 4, np)
    np.testing.assert_allclose(found.eigenvalues[:4], 0, atol=1e-12)
    assert found.eigenvalues[4] > 1e-3


def test_a_graph_is_connected_where_every_node_is_reached():
    chain = np.eye(50) + np.eye(50, k=1) + np.eye(50, k=-1)
    assert spectral.connected(chain, np)
    chain[20, 21] = chain[21, 20] = 0
    assert not spectral.connected(chain, np)


# t-SNE


@pytest.fixture(scope="module")
def probabilities():
    """Joint probabilities of neighbours and of all pairs: ours, and scikit-learn's."""
    count = 91
    found = NearestNeighbors(n_neighbors=count).fit(DIGITS)
    graph = found.kneighbors_graph(mode="distance")
    graph.data **= 2
    squared = pairwise_distances(DIGITS, squared=True)
    return (
        tsne.affinities(*found.kneighbors(), 30.0, np, sparse),
        _t_sne._joint_probabilities_nn(graph, 30.0, 0),
        tsne.dense_affinities(squared.copy(), 30.0, np),
        _t_sne._joint_probabilities(squared, 30.0, 0),
    )


def test_the_joint_probabilities_are_those_of_scikit_learn(probabilities):
    ours, theirs, dense_ours, dense_theirs = probabilities
    assert abs(ours - theirs).max() < 1e-12 * theirs.max()
    np.testing.assert_allclose(squareform(dense_ours), dense_theirs, rtol=1e-9)


@pytest.mark.parametrize("n_components", [1, 2, 3])
def test_gradient_and_error_are_those_of_scikit_learn(probabilities, n_components):
    ours, theirs, dense_ours, dense_theirs = probabilities
    Y = np.random.RandomState(0).randn(300, n_components).astype(np.float32) * 3
    shape = (max(n_components - 1, 1), 300, n_components)
    error, gradient = _t_sne._kl_divergence_bh(Y.ravel(), theirs * 4, *shape, angle=0.0)
    found = sparse_forces(ours, Y, np)(Y, 4.0, True)
    np.testing.assert_allclose(found.gradient.ravel(), gradient, atol=1e-5 * abs(gradient).max())
    assert found.error == pytest.approx(error, rel=1e-4)
    error, gradient = _t_sne._kl_divergence(Y.ravel(), dense_theirs * 4, *shape)
    found = dense_forces(dense_ours, Y, np)(Y, 4.0, True)
    np.testing.assert_allclose(found.gradient.ravel(), gradient, atol=1e-6 * abs(gradient).max())
    assert found.error == pytest.approx(error, rel=1e-9)


def test_the_descent_ends_where_that_of_scikit_learn_ends(probabilities):
    start = tsne.scaled_principal_components(DIGITS, 2, np)
    schedule = tsne.Schedule(12.0, 50.0, 400, 300, 1e-7)
    found = tsne.descend(start, probabilities[2], schedule, np)
    expected = _t_sne.TSNE(method="exact", max_iter=400, random_state=0).fit(DIGITS)
    assert found.n_iter == expected.n_iter_
    assert found.kl_divergence == pytest.approx(expected.kl_divergence_, abs=0.05)
    assert found.embedding.dtype == np.float32


def test_no_iteration_after_the_exploration_leaves_the_error_unknown(probabilities):
    start = tsne.scaled_principal_components(DIGITS, 2, np)
    schedule = tsne.Schedule(12.0, 50.0, 250, 300, 1e-7)
    found = tsne.descend(start, probabilities[2], schedule, np)
    expected = _t_sne.TSNE(method="exact", max_iter=250).fit(DIGITS)
    assert (found.n_iter, found.kl_divergence) == (expected.n_iter_, expected.kl_divergence_)


def test_the_start_is_that_of_scikit_learn():
    coordinates = _t_sne.PCA(2, svd_solver="full").fit_transform(DIGITS).astype(np.float32)
    expected = coordinates / np.std(coordinates[:, 0]) * 1e-4
    found = tsne.scaled_principal_components(DIGITS, 2, np)
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-9)


@pytest.mark.parametrize("scale", [1e-4, 0.1, 1.0, 10.0])
def test_repulsion_over_a_grid_is_near_that_of_all_pairs(scale):
    Y = (np.random.RandomState(0).randn(800, 2) * scale + 3).astype(np.float32)
    apart = (Y[:, None] - Y[None]).astype(np.float64)
    kernel = 1 / (1 + (apart**2).sum(axis=2))
    expected = (kernel[:, :, None] ** 2 * apart).sum(axis=1)
    push, total = grid_repulsion(len(Y), np)(Y)
    assert push.dtype == np.float32
    assert np.linalg.norm(push - expected) < 0.006 * np.linalg.norm(expected)
    assert total == pytest.approx(kernel.sum() - len(Y), rel=0.003)


def test_the_grid_grows_coarser_rather_than_without_bounds():
    Y = np.random.RandomState(0).randn(100, 2).astype(np.float32) * 5000
    assert grid_repulsion(len(Y), np)(Y)[0].shape == (100, 2)
