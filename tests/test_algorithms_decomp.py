"""The engines of our own for moments, projections and neighbours, on NumPy in CuPy's place."""

from __future__ import annotations

import pickle

import device_double
import numpy as np
import pytest
import sklearn.covariance
import sklearn.decomposition
import sklearn.naive_bayes
from scipy import sparse

import accelsk
from accelsk import covariance, decomposition, naive_bayes

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
