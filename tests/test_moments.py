"""Moments of rows and what rests on them, on NumPy, held against a calculation in full."""

from __future__ import annotations

import itertools
from dataclasses import fields
from functools import reduce

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from accelsk.algorithms import products
from accelsk.algorithms.class_moments import ClassAccumulator, GroupAccumulator
from accelsk.algorithms.moments import (
    Accumulator,
    DigitsLost,
    first_estimate,
    merged,
    without,
)


@st.composite
def data(draw, min_rows=1):
    """Draw X, Y (or None) and weights (or None): any offset and scale, constant columns too."""
    rng = np.random.default_rng(draw(st.integers(0, 10_000)))
    n, d, k = draw(st.integers(min_rows, 60)), draw(st.integers(1, 9)), draw(st.integers(0, 3))
    offset, scale = draw(st.sampled_from([0.0, 10.0, -1e6])), draw(st.sampled_from([1.0, 1e-3]))
    X = rng.normal(size=(n, d)) * scale + offset
    X[:, rng.random(d) < 0.2] = draw(st.sampled_from([0.0, 0.1, 1e6 + 0.3]))
    X = X.astype(draw(st.sampled_from([np.float64, np.float32, np.int64])))
    Y = rng.normal(size=(n, k)) * scale + offset if k else None
    weight = draw(st.sampled_from([None, rng.uniform(0.1, 5, n), rng.integers(0, 3, n) + 1.0]))
    return X, Y, weight


def exact(X, Y=None, weight=None):
    """Return the moments in extended precision."""
    X = X.astype(np.longdouble)
    w = np.ones(len(X)) if weight is None else weight.astype(np.longdouble)
    X_mean = w @ X / w.sum()
    Xc = X - X_mean
    found = {"weight": w.sum(), "X_mean": X_mean, "gram": (Xc * w[:, None]).T @ Xc}
    if Y is not None:
        Y = Y.astype(np.longdouble)
        found["Y_mean"] = w @ Y / w.sum()
        Yc = Y - found["Y_mean"]
        found |= {"XY": (Xc * w[:, None]).T @ Yc, "YY": w @ (Yc * Yc)}
    return found


def close(moments, expected, digits=1e-10):
    """Compare with `exact`, to `digits` of what is summed and the rounding of the means."""
    weight = float(expected["weight"])
    assert moments.weight == pytest.approx(weight, rel=1e-13)
    X_root, X_ulp = _scales(expected["gram"].diagonal(), expected["X_mean"], weight)
    np.testing.assert_allclose(moments.X_mean, expected["X_mean"].astype(float), 1e-13, 1e-13)
    assert (np.abs(moments.gram - expected["gram"]) <= _bound(X_root, X_ulp, digits)).all()
    assert (moments.gram == moments.gram.T).all()
    if "XY" in expected:
        Y_root, Y_ulp = _scales(expected["YY"], expected["Y_mean"], weight)
        both = _bound(np.append(X_root, Y_root), np.append(X_ulp, Y_ulp), digits)
        d = len(X_root)
        np.testing.assert_allclose(moments.Y_mean, expected["Y_mean"].astype(float), 1e-13, 1e-13)
        assert (np.abs(moments.XY - expected["XY"]) <= both[:d, d:]).all()
        assert (np.abs(moments.YY - expected["YY"]) <= np.diagonal(both)[d:]).all()


def _scales(squares, mean, weight):
    """Return roots of sums of squares, and what one digit less of the mean makes of them."""
    ulp = 4 * np.finfo(float).eps * np.abs(mean).astype(float) * np.sqrt(weight)
    return np.sqrt(squares.astype(float)), ulp


def _bound(root, ulp, digits):
    rounding = np.outer(ulp, root + ulp)
    return digits * np.outer(root, root) + rounding + rounding.T


def accumulated(X, Y, weight, cuts=(), chunk=1 << 20):
    """Return the moments of rows that come in blocks."""
    accumulator = Accumulator(np, chunk=chunk)
    edges = [0, *sorted({c % len(X) for c in cuts} - {0}), len(X)]
    for start, stop in itertools.pairwise(edges):
        rows = slice(start, stop)
        accumulator.add(X[rows], *(None if a is None else a[rows] for a in (Y, weight)))
    return accumulator.result()


@given(data(), st.lists(st.integers(0, 100), max_size=4), st.sampled_from([100, 1 << 20]))
def test_moments_do_not_depend_on_blocks_and_lose_nothing_to_an_offset(given_rows, cuts, chunk):
    X, Y, weight = given_rows
    found = accumulated(X, Y, weight, cuts, chunk)
    assert found.n_samples == len(X)
    close(found, exact(X, Y, weight), 1e-9)


@given(data(), st.integers(0, 1000))
def test_moments_merge_in_any_order(given_rows, seed):
    X, Y, weight = given_rows
    rng = np.random.default_rng(seed)
    order = rng.permutation(len(X))
    parts = np.array_split(order, rng.integers(1, min(5, len(X)) + 1))
    found = [
        accumulated(*(None if a is None else a[rows] for a in (X, Y, weight))) for rows in parts
    ]
    together = reduce(merged, found)
    assert together.n_samples == len(X)
    close(together, exact(X, Y, weight), 1e-6)


def test_a_part_is_taken_away():
    rng = np.random.default_rng(0)
    X, Y, weight = rng.normal(size=(90, 4)) + 1e3, rng.normal(size=(90, 2)), rng.uniform(1, 2, 90)
    rest = without(accumulated(X, Y, weight), accumulated(X[30:], Y[30:], weight[30:]))
    assert rest.n_samples == 30
    close(rest, exact(X[:30], Y[:30], weight[:30]))


@pytest.mark.parametrize("rest", [slice(0), slice(1), slice(2)])
def test_what_is_left_of_almost_everything_has_no_digits(rest):
    X = np.random.default_rng(0).normal(size=(5000, 2))
    total, part = accumulated(X, None, None), accumulated(X[rest.stop :], None, None)
    with pytest.raises(DigitsLost):
        without(total, part)


def test_moments_about_zero():
    rng = np.random.default_rng(0)
    X, Y, w = rng.normal(size=(50, 3)) + 2, rng.normal(size=(50, 2)) - 1, rng.uniform(1, 2, 50)
    found = accumulated(X, Y, w).about_zero()
    np.testing.assert_allclose(found.gram, (X * w[:, None]).T @ X)
    np.testing.assert_allclose(found.XY, (X * w[:, None]).T @ Y)
    np.testing.assert_allclose(found.YY, w @ (Y * Y))
    assert not found.X_mean.any()
    assert not found.Y_mean.any()


def test_moments_move_to_the_host_whole():
    moved = accumulated(np.ones((3, 2)), np.ones(3), None).on_host()
    assert {field.name for field in fields(moved)} >= {"gram", "YY"}
    assert type(moved.weight) is float
    assert moved.n_samples == 3


@pytest.mark.parametrize("value", [0.0, 0.1, 1e6 + 0.3, -7.7e-5])
def test_a_constant_column_has_no_spread_at_all(value):
    X = np.full((5000, 1), value)
    assert first_estimate(X, np) == value
    found = accumulated(X, None, np.random.default_rng(0).random(5000))
    assert found.X_mean == value
    assert found.gram == 0
    assert found.loss == 0


def test_an_estimate_far_off_shows_as_a_loss():
    X = np.concatenate([np.zeros((2000, 1)), np.full((98_000, 1), 1e3)])
    X += np.random.default_rng(0).normal(size=X.shape)
    first = Accumulator(np)
    for start in range(0, len(X), 2000):
        first.add(X[start : start + 2000])
    assert first.result().loss > 30
    again = Accumulator(np, (first.result().X_mean, None))
    again.add(X)
    assert again.result().loss < 1.01
    close(again.result(), exact(X), 1e-13)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_what_is_not_finite_shows_in_the_sums(bad):
    X = np.ones((20, 3))
    X[7, 1] = bad
    with np.errstate(invalid="ignore"):
        found = accumulated(X, None, np.zeros(20) + (np.arange(20) != 7))
    assert not np.isfinite(np.diagonal(found.gram)).all()


def test_a_product_in_parts_is_the_product(monkeypatch):
    class Device:
        cuda = None  # as where products are split to fill a device

        def __getattr__(self, name):
            return getattr(np, name)

    monkeypatch.setattr(products, "_FEWEST_ROWS", 4)
    rng = np.random.default_rng(0)
    X, Y, root = rng.normal(size=(203, 5)), rng.normal(size=(203, 2)), rng.random(203)
    product = products.Product(Device(), 5, 2, 1 << 14, 203)
    assert product._parts > 1
    for rows in product.slices(203):
        product.add(X[rows], X[0], Y[rows], Y[0], root[rows])
    total, squares = product.result()
    whole = np.hstack([X - X[0], np.ones((203, 1)), Y - Y[0]]) * root[:, None]
    np.testing.assert_allclose(total[:6, :8], whole[:, :6].T @ whole, atol=1e-12)
    np.testing.assert_allclose(squares, (whole[:, 6:] ** 2).sum(axis=0))


# Classes and other groups


@st.composite
def classes(draw):
    X, Y, weight = draw(data(min_rows=3))
    n_classes = draw(st.integers(1, 4))
    codes = np.random.default_rng(draw(st.integers(0, 99))).integers(0, n_classes, len(X))
    return X + (codes * draw(st.sampled_from([0, 100])))[:, None], Y, weight, codes, n_classes


@pytest.mark.parametrize("keep", ["squares", "within"])
@given(case=classes(), block=st.integers(1, 70))
def test_moments_of_classes(keep, case, block):
    X, _, weight, codes, n_classes = case
    accumulator = ClassAccumulator(np, n_classes, keep)
    for start in range(0, len(X), block):
        rows = slice(start, start + block)
        accumulator.add(X[rows], codes[rows], None if weight is None else weight[rows])
    found = accumulator.result().on_host()
    np.testing.assert_array_equal(found.n_samples, np.bincount(codes, minlength=n_classes))
    within, bound = np.zeros((2, X.shape[1], X.shape[1]))
    for label in np.unique(codes):
        rows = codes == label
        expected = exact(X[rows], None, None if weight is None else weight[rows])
        total = float(expected["weight"])
        assert found.weight[label] == pytest.approx(total)
        np.testing.assert_allclose(found.mean[label], expected["X_mean"].astype(float), 1e-12, 1e-9)
        scales = _scales(expected["gram"].diagonal(), expected["X_mean"], total)
        within += expected["gram"].astype(float)
        bound += 16 * _bound(*scales, 1e-10)
        if keep == "squares":
            squares = np.diagonal(expected["gram"]).astype(float)
            assert (
                np.abs(found.squares[label] - squares) <= 16 * _bound(*scales, 1e-10).diagonal()
            ).all()
    if keep == "within":
        assert (np.abs(found.within - within) <= bound).all()
        assert (found.within == found.within.T).all()


@given(classes(), st.integers(1, 70))
def test_moments_of_groups_are_those_of_their_rows(case, block):
    X, Y, weight, codes, n_groups = case
    accumulator = GroupAccumulator(np, n_groups)
    for start in range(0, len(X), block):
        rows = slice(start, start + block)
        parts = (None if a is None else a[rows] for a in (Y, weight))
        accumulator.add(X[rows], codes[rows], *parts)
    with np.errstate(invalid="ignore"):  # a group without rows
        found = accumulator.result()
    for label in np.unique(codes):
        rows = codes == label
        parts = [None if a is None else a[rows] for a in (Y, weight)]
        assert found[label].n_samples == rows.sum()
        close(found[label], exact(X[rows], *parts), 1e-9)
