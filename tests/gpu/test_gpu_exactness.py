"""Weights, labels, outputs and hard data, where an easier algorithm would be off."""

from __future__ import annotations

import warnings
from contextlib import nullcontext
from typing import Any

import numpy as np
import pytest
from class_cases import binary, blobs, classification, regression
from gpu_oracle import assert_same
from sklearn.datasets import load_digits, make_blobs
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import adjusted_rand_score

import accelsk
from accelsk.cluster import DBSCAN, KMeans
from accelsk.decomposition import PCA
from accelsk.linear_model import LinearRegression, LogisticRegression, Ridge
from accelsk.neighbors import KNeighborsClassifier, NearestNeighbors

pytestmark = pytest.mark.gpu


def pair(cls: Any, **parameters: Any) -> tuple[Any, Any]:
    return cls(**parameters), cls._accelsk_original(**parameters)


def weights(n: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 4, n).astype(np.float64)


# Linear models


@pytest.mark.parametrize("cls", [Ridge, LinearRegression])
@pytest.mark.parametrize("fit_intercept", [True, False])
@pytest.mark.parametrize("n_outputs", [None, 1, 3])
@pytest.mark.parametrize("weighted", [False, True])
def test_linear_models_with_weights_and_outputs(
    cls: Any, fit_intercept: bool, n_outputs: int | None, weighted: bool, on_gpu: Any
) -> None:
    X, y, new, _, _ = regression()
    if n_outputs is not None:
        y = np.column_stack([y * (i + 1) + X[:, i] for i in range(n_outputs)])
    weight = weights(len(X)) if weighted else None
    actual, expected = pair(cls, fit_intercept=fit_intercept)
    with on_gpu.allowed() if cls is Ridge and n_outputs == 1 else nullcontext():
        actual.fit(X, y, sample_weight=weight)
    expected.fit(X, y, sample_weight=weight)
    for name in ("coef_", "intercept_"):
        assert_same(getattr(actual, name), getattr(expected, name), 1e-9, name)
    assert_same(actual.predict(new), expected.predict(new), 1e-9)
    assert_same(actual.score(X, y, weight), expected.score(X, y, weight), 1e-9)


@pytest.mark.parametrize("cls", [Ridge, LinearRegression])
def test_a_whole_weight_is_a_repeated_row_and_zero_a_dropped_one(cls: Any) -> None:
    X, y, _, _, _ = regression()
    weight = weights(len(X)).astype(int)
    weighted = cls().fit(X, y, sample_weight=weight)
    repeated = cls().fit(np.repeat(X, weight, axis=0), np.repeat(y, weight))
    np.testing.assert_allclose(weighted.coef_, repeated.coef_, rtol=1e-9)
    np.testing.assert_allclose(weighted.intercept_, repeated.intercept_, rtol=1e-9)


@pytest.mark.parametrize("cls", [Ridge, LinearRegression])
@pytest.mark.parametrize("offset", [0.0, 1e3, 1e6])
def test_linear_models_far_from_the_origin(cls: Any, offset: float) -> None:
    X, y, _, _, _ = regression()
    actual, expected = (est.fit(X + offset, y + offset) for est in pair(cls))
    np.testing.assert_allclose(actual.coef_, expected.coef_, rtol=1e-7, atol=1e-9)
    np.testing.assert_allclose(actual.predict(X + offset), expected.predict(X + offset), rtol=1e-9)


def test_rank_deficient_data_has_the_solution_of_least_norm() -> None:
    X, y, _, _, _ = regression()
    X = np.c_[X, X[:, 0] + X[:, 1]]
    actual, expected = (est.fit(X, y) for est in pair(LinearRegression))
    assert actual.rank_ == expected.rank_ == 6
    np.testing.assert_allclose(actual.coef_, expected.coef_)


def test_nearly_collinear_data_keeps_its_accuracy(on_gpu: Any) -> None:
    X, y, _, _, _ = regression()
    X = np.c_[X, X[:, 0] + 1e-4 * np.random.default_rng(0).normal(size=len(X))]
    actual, expected = (est.fit(X, y) for est in pair(LinearRegression))
    np.testing.assert_allclose(actual.coef_, expected.coef_, rtol=1e-7)


def test_float32_linear_models_are_as_exact_as_float64() -> None:
    X, y, _, _, _ = regression()
    X32, y32 = (X + 1000).astype(np.float32), y.astype(np.float32)
    truth = LinearRegression._accelsk_original().fit(X32.astype(float), y32.astype(float))
    actual = LinearRegression().fit(X32, y32)
    assert actual.coef_.dtype == np.float32
    np.testing.assert_allclose(actual.coef_, truth.coef_, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("labels", ["int", "str", "object", "bool", "float", "negative"])
def test_labels_of_any_type_come_back(labels: str) -> None:
    X, y, new, _, _ = binary() if labels == "bool" else classification()
    y = {
        "int": y,
        "str": np.array(["rain", "snow", "sun"])[y],
        "object": np.array(["rain", "snow", "sun"], dtype=object)[y],
        "bool": y == 1,
        "float": y.astype(np.float32),
        "negative": y - 5,
    }[labels]
    for cls, parameters in ((LogisticRegression, {}), (KNeighborsClassifier, {})):
        actual, expected = (est.fit(X, y) for est in pair(cls, **parameters))
        assert_same(actual.classes_, expected.classes_, 0, "classes_")
        assert_same(actual.predict(new), expected.predict(new), 0, "predict")
        assert_same(actual.score(X, y), expected.score(X, y), 0, "score")


@pytest.mark.parametrize("data", [binary, classification])
@pytest.mark.parametrize(
    "parameters",
    [
        {},
        {"C": 0.01},
        {"C": np.inf},
        {"fit_intercept": False},
        {"class_weight": "balanced"},
        {"class_weight": {0: 1.0, 1: 5.0}},
        {"solver": "newton-cg"},
    ],
    ids=str,
)
def test_logistic_regression_finds_the_optimum(data: Any, parameters: Any) -> None:
    X, y, new, _, _ = data()
    truth = LogisticRegression._accelsk_original(**{**parameters, "tol": 1e-10, "max_iter": 10_000})
    actual, same = pair(LogisticRegression, **{**parameters, "max_iter": 10_000})
    for est in (truth, actual, same):
        est.fit(X, y)
    off = np.abs(actual.predict_proba(new) - truth.predict_proba(new)).max()
    usual = np.abs(same.predict_proba(new) - truth.predict_proba(new)).max()
    assert off <= max(3 * usual, 1e-4)
    for name in ("coef_", "intercept_", "n_iter_"):
        left, right = getattr(actual, name), getattr(same, name)
        assert_same(left, right, 1, name, values=False)


def test_logistic_regression_with_weights() -> None:
    X, y, new, _, _ = classification()
    weight = weights(len(X))
    actual, expected = (
        est.fit(X, y, sample_weight=weight) for est in pair(LogisticRegression, tol=1e-6)
    )
    np.testing.assert_allclose(actual.predict_proba(new), expected.predict_proba(new), atol=1e-4)


def test_logistic_regression_warns_where_it_did_not_converge() -> None:
    X, y, _, _, _ = classification()
    found = []
    for est in pair(LogisticRegression, max_iter=1):
        with pytest.warns(ConvergenceWarning) as caught:
            est.fit(X, y)
        found.append((est.n_iter_.tolist(), [str(w.message).splitlines()[0] for w in caught]))
    assert found[0][0] == found[1][0]
    assert found[0][1][0].partition("(")[0] == found[1][1][0].partition("(")[0]


# Clusters


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.int64])
@pytest.mark.parametrize("init", ["k-means++", "random"])
@pytest.mark.parametrize("weighted", [False, True])
def test_kmeans_gives_the_clusters_of_the_same_seed(dtype: Any, init: str, weighted: bool) -> None:
    if dtype == np.float32 and init == "random":
        pytest.skip("rounding decides where such a start ends")
    X = (10 * blobs().X).astype(dtype)
    weight = weights(len(X)) if weighted else None
    for seed in range(5):
        # and where a cluster is halved
        n_clusters = 4 if dtype == np.float32 else 6
        actual, expected = pair(
            KMeans, n_clusters=n_clusters, init=init, n_init=2, random_state=seed
        )
        actual.fit(X, sample_weight=weight)
        expected.fit(X, sample_weight=weight)
        assert_same(actual.labels_, expected.labels_, 0, "labels_")
        assert_same(actual.cluster_centers_, expected.cluster_centers_, 1e-9, "centers")
        assert_same(actual.inertia_, expected.inertia_, 1e-5 if dtype == np.float32 else 1e-9)
        assert actual.n_iter_ == expected.n_iter_


def test_kmeans_inertia_over_twenty_seeds() -> None:
    X, _ = make_blobs(2000, 5, centers=20, cluster_std=0.3, random_state=0)
    found = [
        [est.fit(X).inertia_ for est in pair(KMeans, n_clusters=20, random_state=seed)]
        for seed in range(20)
    ]
    actual, expected = np.transpose(found)
    np.testing.assert_allclose(actual, expected, rtol=1e-6)


def test_kmeans_from_given_centers_and_without_tolerance() -> None:
    X = blobs().X
    for est in (found := pair(KMeans, n_clusters=4, init=X[:4], n_init=1, tol=0)):
        est.fit(X)
    assert_same(found[0].labels_, found[1].labels_, 0)
    assert found[0].n_iter_ == found[1].n_iter_


def test_kmeans_with_fewer_distinct_points_than_clusters(on_gpu: Any) -> None:
    X = np.repeat([[0.0, 0], [1, 1], [2, 2]], 20, axis=0)
    counts = []
    with on_gpu.allowed():
        for est in pair(KMeans, n_clusters=5, random_state=0):
            with pytest.warns(ConvergenceWarning, match="distinct clusters"):
                counts.append(len(np.unique(est.fit(X).labels_)))
    assert counts == [3, 3]
    on_gpu.expected = False


def test_kmeans_draws_what_scikit_learn_draws_from_a_random_state() -> None:
    X = blobs().X
    left, right = np.random.RandomState(0), np.random.RandomState(0)
    KMeans(4, random_state=left).fit(X)
    KMeans._accelsk_original(4, random_state=right).fit(X)
    assert left.randint(10**6) == right.randint(10**6)


def test_kmeans_on_digits() -> None:
    X, _ = load_digits(return_X_y=True)
    actual, expected = (est.fit(X) for est in pair(KMeans, n_clusters=10, random_state=0))
    assert adjusted_rand_score(actual.labels_, expected.labels_) == 1
    assert actual.inertia_ == pytest.approx(expected.inertia_, rel=1e-9)


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.int64])
@pytest.mark.parametrize("offset", [0, 1e4])
def test_dbscan_at_the_very_edge_of_eps(dtype: Any, offset: float) -> None:
    grid = np.stack(np.meshgrid(np.arange(10.0), np.arange(10.0)), -1).reshape(-1, 2)
    X = (grid * 3 + offset).astype(dtype)
    for eps in (2.999, 3, 3.001):
        actual, expected = (est.fit(X) for est in pair(DBSCAN, eps=eps, min_samples=4))
        assert_same(actual.labels_, expected.labels_, 0, "labels_")
        assert_same(actual.core_sample_indices_, expected.core_sample_indices_, 0)
        assert_same(actual.components_, expected.components_, 0)


def test_dbscan_with_weights() -> None:
    X = blobs().X
    weight = weights(len(X))
    actual, expected = (est.fit(X, sample_weight=weight) for est in pair(DBSCAN, eps=1.0))
    assert_same(actual.labels_, expected.labels_, 0)


# Components


@pytest.mark.parametrize("n_components", [None, 1, 3, 0.5, 0.95, 0.999999])
@pytest.mark.parametrize("whiten", [False, True])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_pca_keeps_the_components_that_scikit_learn_keeps(
    n_components: Any, whiten: bool, dtype: Any
) -> None:
    X, _, new, _, _ = regression()
    X, new = X.astype(dtype), new.astype(dtype)
    actual, expected = (est.fit(X) for est in pair(PCA, n_components=n_components, whiten=whiten))
    rtol = 1e-4 if dtype == np.float32 else 1e-9
    for name in (
        "components_",
        "explained_variance_",
        "explained_variance_ratio_",
        "mean_",
        "singular_values_",
        "noise_variance_",
        "n_components_",
    ):
        assert_same(getattr(actual, name), getattr(expected, name), rtol, name)
    there = expected.transform(new)
    assert_same(actual.transform(new), there, rtol)
    assert_same(actual.inverse_transform(there), expected.inverse_transform(there), rtol)


def test_wide_pca_is_right_wherever_it_runs(on_gpu: Any) -> None:
    X = np.random.default_rng(0).normal(size=(20, 50))
    with on_gpu.allowed():
        actual, expected = (est.fit(X) for est in pair(PCA, n_components=5))
        np.testing.assert_allclose(actual.transform(X), expected.transform(X), rtol=1e-7, atol=1e-9)
    on_gpu.expected = False


# Neighbours


@pytest.mark.parametrize("metric", ["euclidean", "manhattan", "chebyshev"])
@pytest.mark.parametrize("offset", [0, 1e4])
def test_neighbors_are_those_of_float64(metric: str, offset: float) -> None:
    X, _, new, _, _ = regression()
    X, new = X + offset, new + offset
    actual, expected = (est.fit(X) for est in pair(NearestNeighbors, metric=metric))
    for queries, count in ((new, 5), (new, 1), (None, 5), (X, 3), (new, len(X))):
        left = actual.kneighbors(queries, count)
        right = expected.kneighbors(queries, count)
        assert_same(left[1], right[1], 0, "indices")
        assert_same(left[0], right[0], 1e-9, "distances")
    assert_same(
        actual.kneighbors(new, return_distance=False),
        expected.kneighbors(new, return_distance=False),
        0,
    )


def test_neighbors_without_x_leave_the_row_itself_out() -> None:
    X = regression().X
    X = np.r_[X, X[:10]]  # with twins
    distances, indices = NearestNeighbors(n_neighbors=4).fit(X).kneighbors()
    assert (indices != np.arange(len(X))[:, None]).all()
    expected, _ = NearestNeighbors._accelsk_original(n_neighbors=4).fit(X).kneighbors()
    np.testing.assert_allclose(distances, expected, rtol=1e-9)


def test_a_graph_of_neighbors_is_scikit_learns() -> None:
    X = regression().X
    for mode in ("connectivity", "distance"):
        actual, expected = (
            est.fit(X).kneighbors_graph(mode=mode) for est in pair(NearestNeighbors)
        )
        assert_same(actual, expected, 1e-9)


@pytest.mark.parametrize("weighting", ["uniform", "distance"])
@pytest.mark.parametrize("count", [1, 4, 15])
def test_votes_of_neighbors(weighting: str, count: int) -> None:
    X, y, new, _, _ = classification()
    new = np.r_[new, X[:10]]  # some at no distance
    actual, expected = (
        est.fit(X, y) for est in pair(KNeighborsClassifier, n_neighbors=count, weights=weighting)
    )
    assert_same(actual.predict_proba(new), expected.predict_proba(new), 1e-9)
    assert_same(actual.predict(new), expected.predict(new), 0)


def test_a_metric_without_an_engine_falls_back(on_gpu: Any) -> None:
    X, y, new, _, _ = classification()
    for metric in ("braycurtis", "correlation"):
        with on_gpu.falls_back("metric"):
            actual = KNeighborsClassifier(metric=metric, algorithm="brute").fit(X, y)
            labels = actual.predict(new)
        expected = KNeighborsClassifier._accelsk_original(metric=metric, algorithm="brute")
        assert_same(labels, expected.fit(X, y).predict(new), 0)


# Digits, end to end


def test_a_pipeline_on_digits() -> None:
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    X, y = load_digits(return_X_y=True)
    scores = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        for pca, logistic in zip(pair(PCA, n_components=30), pair(LogisticRegression), strict=True):
            pipeline = make_pipeline(StandardScaler(), pca, logistic).fit(X[:1200], y[:1200])
            scores.append(pipeline.score(X[1200:], y[1200:]))
    assert scores[0] == pytest.approx(scores[1], abs=0.01)


def test_a_model_of_scikit_learns_predicts_on_the_gpu_and_back(on_gpu: Any) -> None:
    X, y, new, _, _ = classification()
    plain = KNeighborsClassifier._accelsk_original().fit(X, y)
    model = accelsk.from_sklearn(plain)
    assert_same(model.predict(new), plain.predict(new), 0)
    assert on_gpu.count("KNeighborsClassifier.predict") == 1
    back = accelsk.to_sklearn(model)
    assert type(back) is type(plain)
    assert_same(back.predict(new), plain.predict(new), 0)
