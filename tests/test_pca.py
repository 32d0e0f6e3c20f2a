"""PCA and truncated SVD from moments, on NumPy in CuPy's place."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
import sklearn.decomposition
from alike import assert_alike, device, same, tolerance  # noqa: F401
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.decomposition._pca import _infer_dimension

import accelsk
import accelsk.algorithms.decomposition
from accelsk import decomposition
from accelsk.algorithms import spectra
from accelsk.algorithms.decomposition import likeliest_dimension

RNG = np.random.RandomState(0)
ROWS = RNG.randn(300, 6) * [6, 5, 4, 3, 2, 1] @ np.linalg.qr(RNG.randn(6, 6))[0] + 5
DTYPES = [np.float64, np.float32, np.int64]
SHAPES = {
    "tall": ROWS * 10,
    "square": RNG.randn(12, 11) * 10 + 3,
    "wide": RNG.randn(9, 25) * 10 + 3,
    "column": ROWS[:, :1] * 10,
}


def with_singular_values(values, n, d, seed=0):
    """Return centred rows with the given singular values, plus an offset."""
    rng = np.random.RandomState(seed)
    left = rng.randn(n, len(values))
    u, _ = np.linalg.qr(left - left.mean(axis=0))
    v, _ = np.linalg.qr(rng.randn(d, len(values)))
    return (u * values) @ v.T


def pair(name, X, **options):
    return (
        getattr(decomposition, name)(**options).fit(X),
        getattr(sklearn.decomposition, name)(**options).fit(X),
    )


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("whiten", [False, True])
@pytest.mark.parametrize("n_components", [None, 0, 1, 2, 0.8, "mle"])
@pytest.mark.parametrize("svd_solver", ["auto", "full", "covariance_eigh"])
@pytest.mark.parametrize("shape", SHAPES)
def test_pca_is_scikit_learns(shape, svd_solver, n_components, whiten, dtype):
    X = SHAPES[shape].astype(dtype)
    if n_components == 2 and shape == "column":
        pytest.skip("more components than columns")
    if n_components == "mle" and shape in ("wide", "square"):
        pytest.skip("no maximum likelihood with fewer rows, or an arbitrary one")
    if n_components == 0 and svd_solver == "auto" and shape == "wide":
        pytest.skip("scikit-learn has the same result under 'full'")
    options = {"svd_solver": svd_solver, "n_components": n_components, "whiten": whiten}
    ours, theirs = pair("PCA", X, **options)
    rtol = tolerance(dtype, 1e-7)
    null = n_components is None and shape == "wide"
    if null:  # the last component is arbitrary
        names = ("components_", "explained_variance_", "explained_variance_ratio_")
        for est in (ours, theirs):
            for name in (*names, "singular_values_"):
                setattr(est, name, getattr(est, name)[:-1])
    assert_alike(ours, theirs, *rtol)
    assert ours._fit_svd_solver == theirs._fit_svd_solver
    same(ours.transform(X), theirs.transform(X), *rtol)
    if ours.n_components_ != 0:
        coordinates = theirs.transform(X)
        same(ours.inverse_transform(coordinates), theirs.inverse_transform(coordinates), *rtol)
    assert ours.get_feature_names_out().tolist() == theirs.get_feature_names_out().tolist()
    if not null:
        again = decomposition.PCA(**options)
        same(again.fit_transform(X), theirs.fit_transform(X), *rtol)
        assert_alike(again, theirs, *rtol)
        same(pickle.loads(pickle.dumps(ours)).transform(X), theirs.transform(X), *rtol)


@pytest.mark.parametrize("svd_solver", ["arpack", "randomized"])
@pytest.mark.parametrize("shape", ["tall", "square", "wide"])
@pytest.mark.parametrize("dtype", DTYPES)
def test_approximate_pca_is_exact(dtype, shape, svd_solver):
    X = SHAPES[shape].astype(dtype)
    options = {"svd_solver": svd_solver, "n_components": 3, "random_state": 0}
    ours = decomposition.PCA(**options)
    theirs = sklearn.decomposition.PCA(**options, iterated_power=30)
    rtol = tolerance(dtype, 1e-6)
    same(ours.fit_transform(X), theirs.fit_transform(X), *rtol)
    assert_alike(ours, theirs, *rtol)


def test_arpack_without_n_components_keeps_one_less():
    ours, theirs = pair("PCA", ROWS, svd_solver="arpack", random_state=0)
    assert ours.n_components_ == theirs.n_components_ == 5
    assert_alike(ours, theirs, 1e-7)


@pytest.mark.parametrize(
    ("X", "options", "words"),
    [
        (ROWS, {"n_components": 7}, "n_components=7 must be between"),
        (ROWS, {"n_components": 0.5, "svd_solver": "arpack"}, "must be between 1"),
        (ROWS, {"n_components": "mle", "svd_solver": "randomized"}, "cannot be a string"),
        (ROWS, {"n_components": 0, "svd_solver": "randomized"}, "must be between 1"),
        (ROWS, {"n_components": 6, "svd_solver": "arpack"}, "strictly less"),
        (ROWS[:, :1], {"svd_solver": "arpack"}, "must be between 1"),
        (ROWS[:4], {"n_components": "mle"}, "only supported if"),
        (np.where(ROWS > 9, np.nan, ROWS), {}, "NaN"),
        (np.where(ROWS > 9, np.inf, ROWS), {}, "infinity"),
    ],
)
def test_pca_says_scikit_learns_errors(X, options, words):
    with pytest.raises(ValueError, match=words):
        decomposition.PCA(**options).fit(X)


def test_nothing_to_transform_is_scikit_learns_error():
    ours = decomposition.PCA(2).fit(ROWS)
    with pytest.raises(ValueError, match="Expected 2D array"):
        ours.transform(None)


@pytest.mark.parametrize("values", [[1e5, 1e3, 1, 1e-3], [1e6, 1e6, 1e-1, 1e-1]])
@pytest.mark.parametrize("method", ["fit", "fit_transform"])
def test_pca_has_what_the_covariance_loses(method, values):
    X = with_singular_values(np.array(values), 400, 4) + 3
    for solver in ("full", "randomized"):
        ours = decomposition.PCA(svd_solver=solver, random_state=0)
        getattr(ours, method)(X)
        np.testing.assert_allclose(ours.singular_values_, values, rtol=1e-6)


def test_units_that_differ_cost_no_digits():
    X = np.random.RandomState(0).randn(500, 12) * np.geomspace(1e7, 1e-6, 12) + 3
    ours = decomposition.PCA(svd_solver="full")
    with pytest.raises(accelsk.exceptions.FallbackError, match="rank-deficient"):
        ours.fit(X)  # the least is below what float64 has beside the largest
    X = X[:, :8]
    ours, theirs = pair("PCA", X, svd_solver="full")
    assert_alike(ours, theirs, 1e-7, 0)


def test_rank_deficient_rows_are_left_to_an_svd():
    X = np.hstack([ROWS, ROWS[:, :1] + ROWS[:, 1:2]])
    with pytest.raises(accelsk.exceptions.FallbackError, match="rank-deficient"):
        decomposition.PCA(svd_solver="full").fit(X)
    ours, theirs = pair("PCA", X, svd_solver="full", n_components=6)
    np.testing.assert_allclose(ours.singular_values_, theirs.singular_values_, rtol=1e-9)
    assert ours.noise_variance_ == pytest.approx(theirs.noise_variance_, abs=1e-12)
    decomposition.PCA().fit(X)  # scikit-learn takes the covariance, too


@pytest.mark.parametrize("offset", [0, 1e3, 1e6])
def test_components_of_float32_have_the_digits_of_float64(offset):
    X = (np.random.RandomState(0).randn(4000, 10) * np.geomspace(1, 100, 10) + offset).astype("f4")
    ours = decomposition.PCA(3).fit(X)
    theirs = sklearn.decomposition.PCA(3, svd_solver="full").fit(X.astype(float))
    np.testing.assert_allclose(ours.explained_variance_, theirs.explained_variance_, rtol=1e-7)
    np.testing.assert_allclose(ours.components_, theirs.components_, atol=1e-7)
    # the mean is an attribute in float32
    apart = 1e-5 + offset * float(np.finfo(np.float32).eps)
    np.testing.assert_allclose(ours.transform(X), theirs.transform(X), rtol=1e-5, atol=apart)


@pytest.mark.parametrize("n_components", [2, None])
@pytest.mark.parametrize("whiten", [False, True])
@pytest.mark.parametrize("dtype", DTYPES)
def test_scores_of_rows_are_scikit_learns(dtype, whiten, n_components):
    X = (ROWS * 10).astype(dtype)
    ours, theirs = pair("PCA", X, n_components=n_components, whiten=whiten)
    same(ours.score_samples(X), theirs.score_samples(X), *tolerance(dtype, 1e-7))
    assert type(ours.score(X)) is float
    assert ours.score(X) == pytest.approx(
        theirs.score(X), rel=1e-3 if dtype == np.float32 else 1e-6
    )
    same(ours.get_covariance(), theirs.get_covariance(), *tolerance(dtype, 1e-7))


def test_pca_keeps_a_memory_limit():
    X = np.random.RandomState(0).randn(5000, 12) + 3
    with accelsk.config_context(device_memory_limit=50_000):
        ours, theirs = pair("PCA", X, n_components=3)
        assert_alike(ours, theirs)
        same(ours.fit_transform(X), theirs.fit_transform(X), 1e-7)
        with pytest.raises(accelsk.exceptions.FallbackError, match="device_memory_limit"):
            decomposition.PCA(3).fit(X.T)


@settings(max_examples=60, deadline=None)
@given(
    n=st.integers(3, 40),
    d=st.integers(1, 12),
    decades=st.floats(0, 6),
    kept=st.integers(1, 12),
    seed=st.integers(0, 99),
)
def test_singular_values_are_those_of_an_svd(n, d, decades, kept, seed):
    n, kept = max(n, d + 1), min(kept, d)
    X = with_singular_values(np.logspace(0, -decades, d), n, d, seed)

    def again(right):
        return (X @ right).T @ (X @ right)

    found = spectra.from_gram(X.T @ X, kept, np, least=1e-12, again=again)
    values = np.linalg.svd(X, compute_uv=False)
    np.testing.assert_allclose(found.values, values[:kept], rtol=1e-9)
    np.testing.assert_allclose(found.vectors @ found.vectors.T, np.eye(kept), atol=1e-12)
    np.testing.assert_allclose(
        np.linalg.norm(X @ found.vectors.T, axis=0), values[:kept], rtol=1e-8
    )


@pytest.mark.parametrize(("n", "d", "k"), [(100, 6, 2), (500, 20, 5), (50, 3, 1), (300, 40, 39)])
def test_the_likeliest_dimension_is_scikit_learns(n, d, k):
    X = np.random.RandomState(n).randn(n, d)
    X[:, :k] *= 5
    variance = np.linalg.svd(X - X.mean(axis=0), compute_uv=False) ** 2 / (n - 1)
    assert likeliest_dimension(variance, n) == _infer_dimension(variance, n)


def test_truncated_svd_keeps_small_singular_values_of_tall_rows():
    values = np.array([1e4, 10, 1e-1, 1e-2])
    X = with_singular_values(values, 400, 4)
    ours = decomposition.TruncatedSVD(3).fit(X)
    np.testing.assert_allclose(ours.singular_values_, values[:3], rtol=1e-9)


@pytest.mark.parametrize("n_components", [None, 2, 5])
def test_incremental_pca_of_few_rows_at_a_time(n_components):
    X = np.random.RandomState(0).randn(50, 12) * 3 + 1
    ours, theirs = pair("IncrementalPCA", X, n_components=n_components, batch_size=6)
    assert_alike(ours, theirs, 1e-7, 1e-7)


def test_incremental_pca_resolves_small_components():
    X = with_singular_values(np.array([1e4, 1.0, 1e-1, 1e-2]), 400, 4) + 3
    ours, theirs = pair("IncrementalPCA", X, n_components=3, batch_size=100)
    assert_alike(ours, theirs, 1e-7, 0)


@pytest.mark.parametrize("shape", [(400, 60), (60, 400)])
def test_large_matrices_are_approximated_as_scikit_learn_does(shape, monkeypatch):
    monkeypatch.setattr(accelsk.algorithms.decomposition, "MOST_EXACT", 50)
    X = np.random.RandomState(1).randn(*shape) + 3
    options = {"n_components": 4, "random_state": 3}
    for name, more in {
        "PCA": {"svd_solver": "randomized", "iterated_power": 2},
        "TruncatedSVD": {"n_iter": 2},
    }.items():
        ours, theirs = pair(name, X, **options, **more)
        assert_alike(ours, theirs, 1e-7, 1e-7)


def test_components_of_wide_rows_are_orthonormal():
    X = with_singular_values(np.logspace(0, -9, 15), 16, 40) + 3
    ours = decomposition.PCA(svd_solver="full").fit(X)
    theirs = sklearn.decomposition.PCA(svd_solver="full").fit(X)
    np.testing.assert_allclose(ours.components_ @ ours.components_.T, np.eye(16), atol=1e-12)
    np.testing.assert_allclose(ours.singular_values_[:-1], np.logspace(0, -9, 15), rtol=1e-5)
    np.testing.assert_allclose(ours.components_[:10], theirs.components_[:10], atol=1e-8)


def test_attributes_at_hand_need_no_device(monkeypatch):
    ours = decomposition.PCA(2).fit(ROWS)
    components = ours.components_.copy()

    def broken(value):
        raise RuntimeError("no device")

    monkeypatch.setattr("accelsk.engines.cupy.to_host", broken)
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(ours)).components_, components)


@pytest.mark.parametrize("decades", [1, 5])
@pytest.mark.parametrize("name", ["PCA", "TruncatedSVD"])
def test_many_columns_are_decomposed_where_they_are(name, decades):
    X = with_singular_values(np.logspace(0, -decades, 110), 300, 110)
    n = 100 if name == "TruncatedSVD" else None
    ours = getattr(decomposition, name)(**({"n_components": n} if n else {"svd_solver": "full"}))
    ours.fit(X)
    np.testing.assert_allclose(ours.singular_values_, np.logspace(0, -decades, 110)[:n], rtol=1e-8)
    _, _, vectors = np.linalg.svd(X, full_matrices=False)
    same(np.abs((ours.components_ * vectors[:n]).sum(axis=1)), np.ones(len(vectors[:n])), 1e-6)
