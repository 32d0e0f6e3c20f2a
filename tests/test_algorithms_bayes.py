"""Naive Bayes on NumPy in CuPy's place."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
import sklearn.naive_bayes
from alike import assert_alike, device, same  # noqa: F401
from scipy import sparse

import accelsk
from accelsk import naive_bayes

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


def test_bernoulli_naive_bayes_leaves_numpys_warnings_to_scikit_learn():
    with accelsk.config_context(on_fallback="log"):
        with pytest.warns(RuntimeWarning, match="invalid value"):
            naive_bayes.BernoulliNB(binarize=None).fit(COUNTS - 3, LABELS)
        model = naive_bayes.BernoulliNB(binarize=None).fit(COUNTS, LABELS)
        with pytest.warns(RuntimeWarning, match="invalid value"):
            model.predict(COUNTS)


@pytest.mark.filterwarnings("ignore:divide by zero")
@pytest.mark.parametrize("name", BAYES)
def test_naive_bayes_answers_extended_precision_in_it(name):
    X = COUNTS.astype(np.longdouble)
    with accelsk.config_context(on_fallback="log"):
        ours = getattr(naive_bayes, name)().fit(X, LABELS)
        assert_same_bayes(ours, getattr(sklearn.naive_bayes, name)().fit(X, LABELS), X, LABELS)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("offset", [0, 1e6])
def test_gaussian_moments_come_in_blocks_of_rows(offset, weighted):
    rng = np.random.RandomState(0)
    y = np.arange(5000) % 3
    X = rng.randn(5000, 12) * np.geomspace(0.1, 10, 12) + 3 * rng.randn(3, 12)[y] + offset
    weight = rng.rand(5000) if weighted else None
    theirs = sklearn.naive_bayes.GaussianNB().fit(X, y, weight)
    with accelsk.config_context(device_memory_limit=50_000):
        ours = naive_bayes.GaussianNB().fit(X, y, weight)
        assert_same_bayes(ours, theirs, X, y, 1e-7)


@pytest.mark.parametrize("method", METHODS)
def test_gaussian_predictions_of_rows_that_are_not_finite_are_errors(method):
    ours = naive_bayes.GaussianNB().fit(COUNTS, LABELS)
    for bad in (np.nan, np.inf):
        X = COUNTS.astype(float)
        X[3, 4] = bad
        with pytest.raises(ValueError, match=r"contains (NaN|infinity)"):
            getattr(ours, method)(X)
