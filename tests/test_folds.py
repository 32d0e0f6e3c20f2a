"""Moments of the folds of a cross-validation."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.model_selection import KFold, LeaveOneOut, ShuffleSplit, TimeSeriesSplit

from accelsk.algorithms.folds import FoldMoments, consecutive, folds_of
from accelsk.algorithms.moments import Accumulator
from accelsk.algorithms.path_cv import held_out_errors


def moments_of(X, y, weight=None):
    sums = Accumulator(np)
    sums.add(X, y, weight)
    return sums.result()


def assert_same_moments(found, expected):
    assert found.n_samples == expected.n_samples
    for name in ("weight", "X_mean", "gram", "Y_mean", "XY", "YY"):
        one, other = getattr(found, name), getattr(expected, name)
        scale = np.abs(other).max() + 1e-300
        np.testing.assert_allclose(one / scale, other / scale, rtol=1e-8, atol=1e-8, err_msg=name)


SPLITTERS = [
    KFold(5),
    KFold(3, shuffle=True, random_state=0),
    ShuffleSplit(4, random_state=1),
    TimeSeriesSplit(4),
]


@given(
    splitter=st.sampled_from(SPLITTERS),
    n_samples=st.integers(12, 60),
    step=st.integers(1, 60),
    offset=st.sampled_from([0.0, 1e6]),
    weighted=st.booleans(),
)
def test_each_fold_has_the_moments_of_its_rows(splitter, n_samples, step, offset, weighted):
    rng = np.random.RandomState(n_samples)
    X, y = rng.randn(n_samples, 3) + offset, rng.randn(n_samples)
    weight = rng.rand(n_samples) + 0.1 if weighted else None
    splits = list(splitter.split(X))
    folds = folds_of(splits, n_samples)
    sums = FoldMoments(folds, np)
    for start in range(0, n_samples, step):
        rows = slice(start, start + step)
        sums.add(X[rows], y[rows, None], None if weight is None else weight[rows])
    total, train, test = sums.result(sums.parts())
    everything = np.arange(n_samples)
    for found, rows in zip(
        (total, *train, *test),
        (everything, *(t for t, _ in splits), *(t for _, t in splits)),
        strict=True,
    ):
        part = None if weight is None else weight[rows]
        assert_same_moments(found, moments_of(X[rows], y[rows], part))


@given(st.integers(2, 40), st.integers(2, 20))
def test_consecutive_folds_are_those_of_kfold(n_samples, n_folds):
    n_folds = min(n_samples, n_folds)
    found = consecutive(n_samples, n_folds)
    for fold, (train, test) in enumerate(KFold(n_folds).split(np.zeros(n_samples))):
        assert (np.flatnonzero(found.test[fold][found.codes]) == test).all()
        assert (np.flatnonzero(found.train[fold][found.codes]) == train).all()


@pytest.mark.parametrize(
    "splits",
    [
        [(np.array([0, 0, 1]), np.array([2]))],
        [(np.array([0, 1]), np.array([1, 2]))],
        list(LeaveOneOut().split(np.zeros(100))),
        list(ShuffleSplit(12, random_state=0).split(np.zeros(2000))),
    ],
    ids=["twice", "train and test", "too many", "too many overlaps"],
)
def test_folds_that_are_no_groups_of_rows_are_none(splits):
    assert folds_of(splits, max(max(t.max(), s.max()) for t, s in splits) + 1) is None


def test_masks_are_indices_too():
    train = np.arange(10) < 6
    found = folds_of([(train, ~train)], 10)
    assert (found.train[0][found.codes] == train).all()


def test_errors_of_rows_left_out_are_those_of_the_data():
    rng = np.random.RandomState(0)
    X, coefs = rng.randn(200, 4) + 100, rng.randn(4, 7)
    y = X @ coefs[:, 0] + rng.randn(200)
    train, test = moments_of(X[:150], y[:150]), moments_of(X[150:], y[150:])
    intercepts = y[:150].mean() - X[:150].mean(axis=0) @ coefs
    expected = ((y[150:, None] - X[150:] @ coefs - intercepts) ** 2).mean(axis=0)
    np.testing.assert_allclose(held_out_errors(train, test, coefs), expected, rtol=1e-9)
    expected = ((y[150:, None] - X[150:] @ coefs) ** 2).mean(axis=0)
    np.testing.assert_allclose(
        held_out_errors(train.about_zero(), test, coefs), expected, rtol=1e-9
    )
