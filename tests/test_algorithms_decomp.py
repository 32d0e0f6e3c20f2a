"""The engines of our own for moments, projections and neighbours, on NumPy in CuPy's place."""

from __future__ import annotations

import contextlib
import pickle

import device_double
import numpy as np
import pytest
import sklearn.covariance
import sklearn.decomposition
import sklearn.ensemble
import sklearn.metrics
import sklearn.naive_bayes
import sklearn.neighbors
import sklearn.random_projection
import sklearn.tree
from scipy import sparse

import accelsk
from accelsk import covariance, decomposition, ensemble, naive_bayes, neighbors, random_projection
from accelsk.algorithms import trees
from accelsk.engines import cuml as cuml_engine

RNG = np.random.RandomState(0)
ROWS = RNG.randn(300, 6) @ RNG.randn(6, 6) + 5
DTYPES = [np.float64, np.float32, np.int64]


@pytest.fixture(autouse=True)
def device(monkeypatch):
    device_double.install(monkeypatch)
    with accelsk.config_context(device="gpu", on_fallback="raise"):
        yield


def attributes(estimator):
    return {name: value for name, value in vars(estimator).items() if name.endswith("_")}


def tolerance(dtype, rtol):
    """What scikit-learn's own rounding leaves: it computes in float32 where X is float32."""
    return (2e-3, 2e-3) if dtype == np.float32 else (rtol, rtol)


def assert_alike(ours, theirs, rtol=1e-9, atol=1e-9, skip=()):
    """Fitted attributes agree by name, type, dtype, shape and value."""
    ours._accelsk_fetch()
    found, expected = attributes(ours), attributes(theirs)
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        if name in skip:
            continue
        same(found[name], value, rtol, atol, name)


def same(found, expected, rtol=1e-9, atol=1e-9, name="result"):
    assert type(found) is type(expected), (name, type(found), type(expected))
    if isinstance(expected, list):
        for one, other in zip(found, expected, strict=True):
            same(one, other, rtol, atol, name)
    elif isinstance(expected, (np.ndarray, np.generic)) and expected.dtype.kind in "fiub":
        assert found.dtype == expected.dtype, (name, found.dtype, expected.dtype)
        assert found.shape == expected.shape, name
        if expected.dtype == np.float32:
            rtol, atol = max(rtol, 2e-3), max(atol, 2e-3)
        np.testing.assert_allclose(found, expected, rtol, atol, err_msg=name)
    elif isinstance(expected, float):
        assert found == pytest.approx(expected, rel=rtol, abs=atol), name


# Covariance


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("assume_centered", [False, True])
@pytest.mark.parametrize("store_precision", [False, True])
@pytest.mark.parametrize("name", ["EmpiricalCovariance", "LedoitWolf"])
def test_covariance_is_scikit_learns(name, store_precision, assume_centered, dtype):
    X = (ROWS * 10).astype(dtype)
    options = {"store_precision": store_precision, "assume_centered": assume_centered}
    ours = getattr(covariance, name)(**options).fit(X)
    theirs = getattr(sklearn.covariance, name)(**options).fit(X)
    same(ours.mahalanobis(X), theirs.mahalanobis(X), 1e-3 if dtype == np.float32 else 1e-9)
    assert_alike(ours, theirs)
    assert ours.error_norm(np.eye(6)) == pytest.approx(theirs.error_norm(np.eye(6)), rel=1e-4)
    with accelsk.config_context(on_fallback="log"):
        assert ours.score(X) == pytest.approx(theirs.score(X), rel=1e-4)
    assert pickle.loads(pickle.dumps(ours)).mahalanobis(X) == pytest.approx(ours.mahalanobis(X))


@pytest.mark.parametrize(
    "X", [np.zeros((9, 3)), ROWS[:, :1], ROWS[:4]], ids=["0", "column", "wide"]
)
@pytest.mark.parametrize("name", ["EmpiricalCovariance", "LedoitWolf"])
def test_covariance_of_degenerate_rows(name, X):
    ours = getattr(covariance, name)().fit(X)
    theirs = getattr(sklearn.covariance, name)().fit(X)
    assert_alike(ours, theirs, rtol=1e-6)


def test_covariance_leaves_half_precision_to_scikit_learn():
    with pytest.raises(accelsk.exceptions.FallbackError, match="half"):
        covariance.EmpiricalCovariance().fit(ROWS.astype(np.float16))


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


# Naive Bayes

COUNTS = np.random.RandomState(3).poisson(1.5, (400, 8))
LABELS = np.random.RandomState(4).choice(["b", "a", "c"], 400, p=[0.5, 0.3, 0.2])
METHODS = ("predict_joint_log_proba", "predict_log_proba", "predict_proba", "predict")
BAYES = {
    "GaussianNB": [{}, {"var_smoothing": 1e-3}, {"priors": [0.2, 0.3, 0.5]}],
    "MultinomialNB": [{}, {"alpha": 0.1, "fit_prior": False}, {"class_prior": [0.2, 0.3, 0.5]}],
    "ComplementNB": [{}, {"norm": True}, {"alpha": np.linspace(0.1, 1, 8)}],
    "BernoulliNB": [{}, {"binarize": 1.5}, {"binarize": None}],
    "CategoricalNB": [{}, {"min_categories": 12}, {"min_categories": [9] * 8, "alpha": 2}],
}
BAYES_CASES = [(name, options) for name, cases in BAYES.items() for options in cases]


def assert_same_bayes(ours, theirs, X, y, rtol=1e-9):
    for method in METHODS:
        same(getattr(ours, method)(X), getattr(theirs, method)(X), rtol)
    assert ours.score(X, y) == theirs.score(X, y)
    assert_alike(ours, theirs, rtol)


@pytest.mark.filterwarnings("ignore:divide by zero")
@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.int64])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize(("name", "options"), BAYES_CASES)
def test_naive_bayes_is_scikit_learns(name, options, weighted, dtype):
    X = (COUNTS.clip(0, 1) if options.get("binarize", 0) is None else COUNTS).astype(dtype)
    weight = np.random.RandomState(5).rand(len(X)) if weighted else None
    ours = getattr(naive_bayes, name)(**options).fit(X, LABELS, weight)
    theirs = getattr(sklearn.naive_bayes, name)(**options).fit(X, LABELS, weight)
    rtol = 1e-4 if (name, dtype) == ("GaussianNB", np.float32) else 1e-9
    assert_same_bayes(ours, theirs, X, LABELS, rtol)
    with accelsk.config_context(on_fallback="log"):
        assert_same_bayes(accelsk.from_sklearn(theirs), theirs, X, LABELS)
    reloaded = pickle.loads(pickle.dumps(ours))
    same(reloaded.predict_proba(X), theirs.predict_proba(X), rtol)


@pytest.mark.filterwarnings("ignore:divide by zero")
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize(("name", "options"), BAYES_CASES)
def test_naive_bayes_goes_on_from_batch_to_batch(name, options, weighted):
    X = COUNTS.clip(0, 1) if options.get("binarize", 0) is None else COUNTS
    weight = np.random.RandomState(5).rand(len(X))
    ours = getattr(naive_bayes, name)(**options)
    theirs = getattr(sklearn.naive_bayes, name)(**options)
    order = np.argsort(LABELS)  # the first batch has one class only
    for rows in (order[:50], order[50:200], order[200:201], order[201:]):
        for est in (ours, theirs):
            est.partial_fit(
                X[rows], LABELS[rows], ["a", "b", "c"], weight[rows] if weighted else None
            )
        assert_alike(ours, theirs)
    assert_same_bayes(ours, theirs, X, LABELS)
    ours.fit(X[100:], LABELS[100:]), theirs.fit(X[100:], LABELS[100:])
    ours = pickle.loads(pickle.dumps(ours))
    ours.partial_fit(X[:100], LABELS[:100]), theirs.partial_fit(X[:100], LABELS[:100])
    assert_same_bayes(ours, theirs, X, LABELS)


@pytest.mark.parametrize("name", ["MultinomialNB", "ComplementNB", "BernoulliNB"])
@pytest.mark.parametrize("layout", [sparse.csr_matrix, sparse.csc_array])
def test_naive_bayes_takes_sparse_counts(name, layout):
    X = layout(COUNTS)
    ours = getattr(naive_bayes, name)().fit(X, LABELS)
    theirs = getattr(sklearn.naive_bayes, name)().fit(X, LABELS)
    assert_same_bayes(ours, theirs, X, LABELS)


@pytest.mark.parametrize(
    ("name", "options", "match"),
    [
        ("MultinomialNB", {}, "Negative values"),
        ("CategoricalNB", {}, "Negative values"),
        ("GaussianNB", {"priors": [0.5, 0.5]}, "Number of priors"),
        ("GaussianNB", {"priors": [0.5, 0.5, 0.5]}, "sum of the priors"),
        ("BernoulliNB", {"class_prior": [1]}, "Number of priors"),
        ("CategoricalNB", {"min_categories": 1.5}, "min_categories"),
    ],
)
def test_naive_bayes_says_scikit_learns_errors(name, options, match):
    with pytest.raises(ValueError, match=match):
        getattr(naive_bayes, name)(**options).fit(COUNTS - ("Negative" in match), LABELS)


def test_partial_fit_of_naive_bayes_says_scikit_learns_errors():
    with pytest.raises(ValueError, match="classes must be passed"):
        naive_bayes.GaussianNB().partial_fit(COUNTS, LABELS)
    model = naive_bayes.GaussianNB().partial_fit(COUNTS, LABELS, ["a", "b", "c"])
    with pytest.raises(ValueError, match="is not the same as on last call"):
        model.partial_fit(COUNTS, LABELS, ["a", "b"])
    with accelsk.config_context(on_fallback="log"), pytest.raises(ValueError, match="do not exist"):
        naive_bayes.GaussianNB().partial_fit(COUNTS, LABELS, ["a", "b"])


def test_gaussian_naive_bayes_far_from_the_origin():
    X = np.random.RandomState(0).randn(500, 3) + 1e6
    y = np.random.RandomState(1).randint(0, 2, 500)
    ours = naive_bayes.GaussianNB().fit(X, y)
    assert_alike(ours, sklearn.naive_bayes.GaussianNB().fit(X, y), 1e-8)


# Neighbours and densities


class _Search:
    """Stands for cuML's brute search, in float32 by scikit-learn where there is no cuML."""

    def __init__(self, metric):
        self._search = sklearn.neighbors.NearestNeighbors(algorithm="brute", metric=metric)

    def fit(self, rows):
        self._search.fit(device_double.to_host(rows))

    def kneighbors(self, queries, n_neighbors):
        found = self._search.kneighbors(device_double.to_host(queries), n_neighbors)
        return tuple(device_double.to_device(array) for array in found)


@pytest.fixture
def search(monkeypatch):
    if device_double.installed():
        engine = neighbors.NeighborsOnCuml
        monkeypatch.setattr(engine, "new_model", lambda self, metric, **_: _Search(metric))
        monkeypatch.setattr(engine, "load", lambda self: None)
        monkeypatch.setattr(cuml_engine, "_silence", contextlib.nullcontext())


GRID = np.random.RandomState(6).randint(0, 9, (300, 3)).astype(float)
QUERIES = np.random.RandomState(7).randint(0, 9, (80, 3)) + 0.5
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


def distinct(n, d, dtype=np.float64, seed=0):
    return (np.random.RandomState(seed).randn(n, d) * 3 + 1).astype(dtype)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("options", METRIC_CASES, ids=str)
@pytest.mark.usefixtures("search")
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
@pytest.mark.usefixtures("search")
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
@pytest.mark.usefixtures("search")
def test_radius_includes_its_boundary(radius, metric):
    options = {"radius": radius, "metric": metric, "algorithm": "kd_tree"}
    for scale, shift in ((1, 0), (0.1, 7.3)):
        X = GRID * scale + shift
        ours = neighbors.NearestNeighbors(**options).fit(X)
        theirs = sklearn.neighbors.NearestNeighbors(**options).fit(X)
        found = ours.radius_neighbors(X, radius * scale)
        assert_same_neighbors(found, theirs.radius_neighbors(X, radius * scale), False)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.usefixtures("search")
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


@pytest.mark.usefixtures("search")
def test_a_metric_set_after_the_fit_does_not_count():
    X = distinct(100, 3)
    ours = neighbors.NearestNeighbors(metric="manhattan").fit(X).set_params(metric="chebyshev")
    theirs = sklearn.neighbors.NearestNeighbors(metric="manhattan").fit(X)
    np.testing.assert_allclose(ours.kneighbors(X)[0], theirs.kneighbors(X)[0])


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.int64])
@pytest.mark.parametrize("outputs", [None, 1, 2])
@pytest.mark.parametrize("weights", ["uniform", "distance", None])
@pytest.mark.usefixtures("search")
def test_regression_is_scikit_learns(weights, outputs, dtype):
    X, Q = distinct(200, 3), distinct(50, 3, seed=1)
    Q[:5] = X[:5]
    y = (
        np.random.RandomState(2).randn(*([200] if outputs is None else [200, outputs])) * 9
    ).astype(dtype)
    ours = neighbors.KNeighborsRegressor(4, weights=weights).fit(X, y)
    theirs = sklearn.neighbors.KNeighborsRegressor(4, weights=weights).fit(X, y)
    same(ours.predict(Q), theirs.predict(Q), 1e-6 if dtype == np.float32 else 1e-9)
    assert ours.score(X[:90], y[:90]) == pytest.approx(theirs.score(X[:90], y[:90]))
    assert ours._accelsk_fetch() is None
    same(ours._y, theirs._y)
    with accelsk.config_context(on_fallback="log"):
        same(accelsk.from_sklearn(theirs).predict(Q), theirs.predict(Q), 1e-6)


@pytest.mark.usefixtures("search")
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


# Trees of random forests


@pytest.mark.parametrize("criterion", ["squared_error", "poisson", "gini", "entropy"])
def test_completed_trees_have_values_and_importances(criterion):
    X = distinct(300, 4)
    if criterion in ("gini", "entropy"):
        y = (X[:, 0] + X[:, 1] > 1).astype(int) + (X[:, 2] > 2)
        plain = sklearn.tree.DecisionTreeClassifier(criterion=criterion, max_depth=6).fit(X, y)
    else:
        y = np.exp(X[:, 0] / 3) + np.abs(X[:, 1])
        plain = sklearn.tree.DecisionTreeRegressor(criterion=criterion, max_depth=6).fit(X, y)
    state = plain.tree_.__getstate__()
    inner = state["nodes"]["left_child"] >= 0
    nodes, values = state["nodes"].copy(), state["values"].copy()
    nodes["impurity"] = nodes["weighted_n_node_samples"] = 0
    values[inner] = 0
    bare = type(plain.tree_)(4, plain.tree_.n_classes, 1)
    bare.__setstate__({**state, "nodes": nodes, "values": values})
    tree = trees.completed(bare, criterion)
    np.testing.assert_allclose(tree.value, plain.tree_.value)
    np.testing.assert_allclose(tree.weighted_n_node_samples, plain.tree_.weighted_n_node_samples)
    np.testing.assert_allclose(
        tree.compute_feature_importances(), plain.tree_.compute_feature_importances()
    )
