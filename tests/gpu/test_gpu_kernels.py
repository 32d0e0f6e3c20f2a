"""Kernels of accelsk's own against the array-namespace code that they stand for, on NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from accelsk.algorithms import kernels, kmeans, nearest, neighbors

pytestmark = pytest.mark.gpu


@pytest.fixture(autouse=True)
def no_call_is_dispatched(on_gpu: Any) -> None:
    on_gpu.expected = False


def _groups(n: int, d: int, k: int, dtype: Any) -> np.ndarray:
    rng = np.random.default_rng(n)
    return (rng.normal(size=(n, d)) + 9 * rng.normal(size=(k, d))[np.arange(n) % k]).astype(dtype)


_SHAPES = [(5000, 7, 6), (3001, 100, 20), (700, 300, 5), (900, 3, 200), (50, 1, 1)]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("shape", _SHAPES, ids=str)
@pytest.mark.parametrize("weighted", [False, True])
def test_k_means_takes_the_rounds_of_the_reference(shape: Any, dtype: Any, weighted: bool) -> None:
    import cupy

    X, k = _groups(*shape, dtype), shape[-1]
    weight = np.random.default_rng(1).uniform(0.2, 2, len(X)).astype(dtype) if weighted else None
    there = None if weight is None else cupy.asarray(weight)
    digits = 1e-12 if dtype is np.float64 else 1e-5
    rows, mean, variance = kmeans.centred(cupy.asarray(X), cupy)
    expected = kmeans.centred(X.astype(np.float64), np)
    np.testing.assert_allclose(rows.get(), expected[0], atol=10 * digits)
    np.testing.assert_allclose(mean.get(), expected[1], rtol=digits, atol=digits)
    np.testing.assert_allclose(float(variance), expected[2], rtol=digits)
    X = rows.get()
    seeds = kmeans.kmeans_plusplus(X, k, weight, np.random.RandomState(5), np)
    found = kmeans.kmeans_plusplus(rows, k, there, np.random.RandomState(5), cupy)
    if dtype is np.float64:  # in float32 rounding may decide between rows
        np.testing.assert_array_equal(found.get(), seeds)
    for max_iter, tol in ((300, 0.0), (2, 0.0), (40, 0.5)):
        options = {"max_iter": max_iter, "tol": tol}
        theirs = kmeans.lloyd(X, seeds, weight, xp=np, **options)
        ours = kmeans.lloyd(rows, cupy.asarray(seeds), there, xp=cupy, **options)
        if dtype is np.float32:
            assert (ours.labels.get() != theirs.labels).mean() < 0.01
            np.testing.assert_allclose(ours.inertia, theirs.inertia, rtol=1e-3)
            continue
        np.testing.assert_array_equal(ours.labels.get(), theirs.labels)
        np.testing.assert_allclose(ours.centers.get(), theirs.centers, rtol=digits, atol=digits)
        np.testing.assert_allclose(ours.inertia, theirs.inertia, rtol=10 * digits)
        assert (ours.n_iter, ours.distinct) == (theirs.n_iter, theirs.distinct)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("weighted", [False, True])
def test_k_means_moves_rows_to_empty_clusters_as_the_reference(dtype: Any, weighted: bool) -> None:
    import cupy

    X = _groups(600, 4, 9, dtype)
    weight = np.random.default_rng(1).uniform(0.2, 2, len(X)).astype(dtype) if weighted else None
    there = None if weight is None else cupy.asarray(weight)
    seeds = np.repeat(X[:1], 9, axis=0)
    theirs = kmeans.lloyd(X, seeds, weight, max_iter=100, tol=0, xp=np)
    ours = kmeans.lloyd(cupy.asarray(X), cupy.asarray(seeds), there, max_iter=100, tol=0, xp=cupy)
    if dtype is np.float64:
        np.testing.assert_array_equal(ours.labels.get(), theirs.labels)
        assert ours.n_iter == theirs.n_iter
    assert ours.distinct == theirs.distinct == 9
    np.testing.assert_allclose(ours.inertia, theirs.inertia, rtol=1e-2)


def test_k_means_sifts_rows_without_a_change_to_the_result(monkeypatch: Any) -> None:
    """However few rows are looked at, the rounds are those of all rows."""
    import cupy

    from accelsk.algorithms import kmeans_device

    X = cupy.asarray(np.random.default_rng(0).normal(size=(30_000, 12)))
    results = []
    for share in (1.01, 10**9):
        monkeypatch.setattr(kmeans_device, "_DOUBTS", share)
        results.append(kmeans.lloyd(X, X[:17], None, max_iter=200, tol=0, xp=cupy))
    sifted, plain = results
    np.testing.assert_array_equal(sifted.labels.get(), plain.labels.get())
    np.testing.assert_allclose(sifted.centers.get(), plain.centers.get(), rtol=1e-9, atol=1e-12)
    assert sifted.n_iter == plain.n_iter


def test_k_means_repeats_bit_by_bit() -> None:
    import cupy

    X = cupy.asarray(np.random.default_rng(0).normal(size=(40_000, 30)))
    runs = [kmeans.lloyd(X, X[:11], None, max_iter=40, tol=0, xp=cupy) for _ in range(2)]
    np.testing.assert_array_equal(runs[0].centers.get(), runs[1].centers.get())
    assert runs[0].inertia == runs[1].inertia


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("metric", nearest.METRICS)
@pytest.mark.parametrize("count", [1, 5, 129, 500])
def test_nearest_rows_are_those_of_all_distances(metric: str, dtype: Any, count: int) -> None:
    import cupy

    rng = np.random.default_rng(0)
    for d, offset, decimals in ((3, 0, 1), (40, 100, 9), (17, 0, 9)):
        rows = np.round(rng.normal(size=(3000, d)) + offset, decimals)
        queries = np.round(rng.normal(size=(130, d)) + offset, decimals).astype(dtype)
        found = nearest.Landmarks(cupy.asarray(rows), metric, cupy).nearest(
            cupy.asarray(queries), count
        )
        expected = nearest.Landmarks(rows, metric, np).nearest(queries, count)
        for ours, theirs in zip(found, expected, strict=True):
            np.testing.assert_array_equal(ours.get(), theirs)


def test_nearest_rows_among_copies_and_far_away() -> None:
    """Where float32 tells too little, all distances are looked through."""
    import cupy

    copies = np.repeat(np.arange(4.0)[:, None], 1000, axis=0)
    far = 1e25 * np.random.default_rng(0).normal(size=(3000, 4))
    for rows in (copies, far):
        found = nearest.Landmarks(cupy.asarray(rows), "euclidean", cupy).nearest(
            cupy.asarray(rows[::500]), 7
        )
        expected = nearest.Landmarks(rows, "euclidean", np).nearest(rows[::500], 7)
        for ours, theirs in zip(found, expected, strict=True):
            np.testing.assert_array_equal(ours.get(), theirs)


@pytest.mark.parametrize("n_classes", [2, 9, 130, 300])
@pytest.mark.parametrize("weights", ["uniform", "distance", None])
def test_votes_are_those_of_the_reference(weights: str | None, n_classes: int) -> None:
    import cupy

    rng = np.random.default_rng(0)
    codes = rng.integers(n_classes, size=500).astype(np.int32)
    indices = rng.integers(500, size=(200, 15))
    apart = np.sort(rng.uniform(size=(200, 15)), axis=1)
    apart[:20, 0] = 0
    given = (codes, indices, apart)
    found = neighbors.votes(*map(cupy.asarray, given), weights, n_classes, cupy)
    np.testing.assert_array_equal(found.get(), neighbors.votes(*given, weights, n_classes, np))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_gaussian_similarities(dtype: Any) -> None:
    import cupy

    X, Y = (np.random.default_rng(i).normal(5, 1, (90, 7)).astype(dtype) for i in (0, 1))
    kernel = kernels.Kernel("rbf", gamma=0.3)
    found = kernels.matrix(cupy.asarray(X), cupy.asarray(Y), kernel, cupy)
    assert found.dtype == dtype
    digits = 1e-12 if dtype is np.float64 else 1e-5
    np.testing.assert_allclose(found.get(), kernels.matrix(X, Y, kernel, np), rtol=digits)
