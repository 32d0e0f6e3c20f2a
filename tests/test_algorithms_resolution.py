"""What a forest cannot resolve is told from chance."""

from __future__ import annotations

import numpy as np
import pytest

from accelsk.algorithms.resolution import variance_within_bins


def _data(n, signal):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, 30))
    return X, signal(X) + rng.normal(size=n)


@pytest.mark.parametrize("n", [3_000, 20_000, 50_000])
@pytest.mark.parametrize("signal", [lambda X: 0 * X[:, 0], lambda X: X.sum(axis=1)])
def test_a_target_without_tails_is_resolved(n, signal):
    assert variance_within_bins(*_data(n, signal), 1024, np) < 0.003


@pytest.mark.parametrize("n", [3_000, 20_000, 50_000])
def test_a_target_that_varies_in_the_tail_of_a_feature_is_not(n):
    assert variance_within_bins(*_data(n, lambda X: np.exp(2 * X[:, 3])), 1024, np) > 0.05


def test_the_share_is_what_bins_cost():
    # every feature is one step function of its bin, but for a line within the last bin
    x = np.arange(10_240.0)
    y = np.where(x < 10_230, 0.0, x - 10_234.5)
    assert variance_within_bins(x[:, None], y, 1024, np) == pytest.approx(1.0)
    assert variance_within_bins(x[:, None], np.floor(x / 10), 1024, np) == 0


def test_no_more_rows_than_bins_and_a_constant_target_lose_nothing():
    X, y = _data(1_000, lambda X: np.exp(2 * X[:, 3]))
    assert variance_within_bins(X, y, 1024, np) == 0
    X, y = _data(5_000, lambda X: X[:, 0])
    assert variance_within_bins(X, np.ones(5_000), 1024, np) == 0
