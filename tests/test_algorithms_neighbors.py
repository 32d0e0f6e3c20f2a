"""Neighbours and densities on NumPy in CuPy's place."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
import sklearn.metrics
import sklearn.neighbors
from alike import device, distinct, same  # noqa: F401

import accelsk
from accelsk import neighbors

GRID = np.random.RandomState(6).randint(0, 9, (300, 3)).astype(float)
CLOUD = np.random.RandomState(8).randn(300, 4) + 20
METRIC_CASES = [
    {"metric": "euclidean"},
    {"metric": "manhattan"},
    {"metric": "chebyshev"},
    {"metric": "minkowski", "p": 3},
    {"metric": "minkowski", "p": 1.5},
    {"metric": "sqeuclidean", "algorithm": "brute"},
    {"metric": "canberra"},
    {"metric": "cosine"},
]


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("options", METRIC_CASES, ids=str)
def test_neighbors_are_scikit_learns(options, dtype):
    X, Q = distinct(300, 4, dtype), distinct(80, 4, dtype, 1)
    ours = neighbors.NearestNeighbors(n_neighbors=7, **options).fit(X)
    theirs = sklearn.neighbors.NearestNeighbors(n_neighbors=7, **options).fit(X)
    for queries in (Q, None):
        found, expected = ours.kneighbors(queries), theirs.kneighbors(queries)
        np.testing.assert_array_equal(found[1], expected[1])
        assert found[0].dtype == expected[0].dtype
        assert found[1].dtype == expected[1].dtype
        # scikit-learn computes differences or products in float32 where it has both in float32
        np.testing.assert_allclose(found[0], expected[0], 1e-9 if dtype == np.float64 else 1e-4)
    with accelsk.config_context(on_fallback="log"):
        again = accelsk.from_sklearn(theirs).kneighbors(Q)
    np.testing.assert_array_equal(again[1], theirs.kneighbors(Q)[1])


@pytest.mark.parametrize("options", METRIC_CASES, ids=str)
@pytest.mark.parametrize("sort_results", [False, True])
def test_radius_neighbors_are_scikit_learns(options, sort_results):
    X, Q = distinct(300, 4), distinct(80, 4, seed=1)
    radius = {"canberra": 1.2, "cosine": 0.2}.get(options["metric"], 3.0)
    ours = neighbors.NearestNeighbors(radius=radius, **options).fit(X)
    theirs = sklearn.neighbors.NearestNeighbors(radius=radius, **options).fit(X)
    for queries in (Q, None):
        found = ours.radius_neighbors(queries, sort_results=sort_results)
        expected = theirs.radius_neighbors(queries, sort_results=sort_results)
        assert_same_neighbors(found, expected, sort_results)
    indices = ours.radius_neighbors(Q, radius / 2, return_distance=False)
    expected = theirs.radius_neighbors(Q, radius / 2, return_distance=False)
    assert [set(i) for i in indices] == [set(i) for i in expected]
    graph = ours.radius_neighbors_graph(Q, mode="distance")
    np.testing.assert_allclose(
        graph.toarray(), theirs.radius_neighbors_graph(Q, mode="distance").toarray()
    )


def assert_same_neighbors(found, expected, in_order):
    assert all(one.dtype == object and one.shape == (len(expected[0]),) for one in found)
    for distances, indices, d, i in zip(*found, *expected, strict=True):
        assert distances.dtype == d.dtype
        assert indices.dtype == i.dtype
        order, theirs = np.argsort(indices), np.argsort(i)
        np.testing.assert_array_equal(indices[order], i[theirs])
        np.testing.assert_allclose(distances[order], d[theirs], rtol=1e-9)
        if in_order:
            assert (np.diff(distances) >= 0).all()


@pytest.mark.parametrize("metric", ["euclidean", "manhattan", "chebyshev"])
@pytest.mark.parametrize("radius", [1, np.sqrt(2), 2, 3])
def test_radius_includes_its_boundary(radius, metric):
    options = {"radius": radius, "metric": metric, "algorithm": "kd_tree"}
    for scale, shift in ((1, 0), (0.1, 7.3)):
        X = GRID * scale + shift
        ours = neighbors.NearestNeighbors(**options).fit(X)
        theirs = sklearn.neighbors.NearestNeighbors(**options).fit(X)
        found = ours.radius_neighbors(X, radius * scale)
        assert_same_neighbors(found, theirs.radius_neighbors(X, radius * scale), False)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_precomputed_distances(dtype):
    X = distinct(120, 4)
    matrix = sklearn.metrics.pairwise_distances(X).astype(dtype)
    ours = neighbors.NearestNeighbors(metric="precomputed", radius=4).fit(matrix)
    theirs = sklearn.neighbors.NearestNeighbors(metric="precomputed", radius=4).fit(matrix)
    for queries in (matrix[:30], None):
        for found, expected in zip(
            ours.kneighbors(queries), theirs.kneighbors(queries), strict=True
        ):
            same(found, expected)
        assert_same_neighbors(
            ours.radius_neighbors(queries), theirs.radius_neighbors(queries), False
        )
    with pytest.raises(ValueError, match="Negative values"):
        ours.kneighbors(-matrix[:3])
    with pytest.raises(ValueError, match="must be square"):
        neighbors.NearestNeighbors(metric="precomputed").fit(matrix[:50])
    with pytest.raises(ValueError, match=r"requires shape|expecting 120 features"):
        ours.kneighbors(matrix[:, :50])


def test_a_metric_set_after_the_fit_does_not_count():
    X = distinct(100, 3)
    ours = neighbors.NearestNeighbors(metric="manhattan").fit(X).set_params(metric="chebyshev")
    theirs = sklearn.neighbors.NearestNeighbors(metric="manhattan").fit(X)
    np.testing.assert_allclose(ours.kneighbors(X)[0], theirs.kneighbors(X)[0])


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.int64])
@pytest.mark.parametrize("outputs", [None, 1, 2])
@pytest.mark.parametrize("weights", ["uniform", "distance", None])
def test_regression_is_scikit_learns(weights, outputs, dtype):
    X, Q = distinct(200, 3), distinct(50, 3, seed=1)
    Q[:5] = X[:5]
    y = (
        np.random.RandomState(2).randn(*([200] if outputs is None else [200, outputs])) * 9
    ).astype(dtype)
    ours = neighbors.KNeighborsRegressor(4, weights=weights).fit(X, y)
    theirs = sklearn.neighbors.KNeighborsRegressor(4, weights=weights).fit(X, y)
    same(ours.predict(Q), theirs.predict(Q), 1e-6 if dtype == np.float32 else 1e-9)
    # scikit-learn sums float32 in float32
    digits = 1e-6 if dtype == np.float32 else 1e-9
    assert ours.score(X[:90], y[:90]) == pytest.approx(theirs.score(X[:90], y[:90]), abs=digits)
    assert ours._accelsk_fetch() is None
    same(ours._y, theirs._y)
    with accelsk.config_context(on_fallback="log"):
        same(accelsk.from_sklearn(theirs).predict(Q), theirs.predict(Q), 1e-6)


def test_an_algorithm_that_lacks_the_metric_is_scikit_learns_error():
    with pytest.raises(ValueError, match="not valid"):
        neighbors.NearestNeighbors(algorithm="kd_tree", metric="cosine").fit(CLOUD)
    model = neighbors.NearestNeighbors().fit(CLOUD)
    with pytest.raises(ValueError, match="return_distance must be True"):
        model.radius_neighbors(CLOUD, sort_results=True, return_distance=False)


KERNELS = ["gaussian", "tophat", "epanechnikov", "exponential", "linear", "cosine"]


def assert_same_density(found, expected):
    """Where there is little density scikit-learn's trees leave rounding errors of the others."""
    some = expected > -12
    np.testing.assert_allclose(found[some], expected[some], 1e-7, 1e-7)
    np.testing.assert_allclose(np.exp(found), np.exp(expected), 1e-9, 1e-12)


@pytest.mark.filterwarnings("ignore:divide by zero")
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("bandwidth", ["scott", "silverman", 0.3, 2])
def test_kernel_density_is_scikit_learns(bandwidth, kernel, weighted):
    X, Q = distinct(200, 3), distinct(60, 3, seed=1)
    Q[:20] = X[:20] + 0.05
    weight = np.random.RandomState(5).rand(200) if weighted else None
    options = {"bandwidth": bandwidth, "kernel": kernel, "rtol": 0}
    ours = neighbors.KernelDensity(**options).fit(X, sample_weight=weight)
    theirs = sklearn.neighbors.KernelDensity(**options).fit(X, sample_weight=weight)
    assert ours.bandwidth_ == theirs.bandwidth_
    found, expected = ours.score_samples(Q), theirs.score_samples(Q)
    assert_same_density(found, expected)
    assert found.dtype == expected.dtype
    near = Q[expected > -12]
    assert ours.score(near) == pytest.approx(theirs.score(near))
    assert type(ours.score(near)) is type(theirs.score(near))
    if kernel in ("gaussian", "tophat"):
        same(ours.sample(5, random_state=0), theirs.sample(5, random_state=0))
    with accelsk.config_context(on_fallback="log"):
        again = pickle.loads(pickle.dumps(ours)).score_samples(Q)
    assert_same_density(again, expected)


@pytest.mark.parametrize("metric", ["manhattan", "chebyshev", "canberra"])
@pytest.mark.parametrize("n_features", [1, 2, 5, 12])
def test_kernel_density_in_other_metrics_and_dimensions(n_features, metric):
    X, Q = distinct(100, n_features), distinct(20, n_features, seed=1)
    options = {"metric": metric, "kernel": "epanechnikov", "bandwidth": 200.0, "rtol": 0}
    if metric == "canberra":
        options["algorithm"] = "ball_tree"
    ours = neighbors.KernelDensity(**options).fit(X)
    theirs = sklearn.neighbors.KernelDensity(**options).fit(X)
    np.testing.assert_allclose(ours.score_samples(Q), theirs.score_samples(Q), 1e-9, 1e-9)
    ours.kernel = "gaussian"
    theirs.kernel = "gaussian"
    np.testing.assert_allclose(ours.score_samples(Q), theirs.score_samples(Q), 1e-9, 1e-9)
