"""Pipelines and the like of accelsk beside those of scikit-learn, and what moves inside them."""

from __future__ import annotations

from contextlib import contextmanager
from typing import Any

import device_double
import numpy as np
from sklearn.base import BaseEstimator, TransformerMixin

import accelsk
from accelsk.device import traffic

__all__ = ["Moved", "OnCpu", "data", "moved", "ours", "up"]


class OnCpu(TransformerMixin, BaseEstimator):
    """A transformer as anyone could write it. It gets what scikit-learn would give it."""

    def __init__(self, factor: float = 2.0) -> None:
        self.factor = factor

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> OnCpu:
        self.given_ = [type(value) for value in (X, y, sample_weight)]
        assert not any(isinstance(v, device_double.DeviceArray) for v in (X, y, sample_weight))
        self.n_features_in_ = X.shape[1]
        return self

    def transform(self, X: Any) -> Any:
        assert type(X).__module__.partition(".")[0] in ("numpy", "pandas"), type(X)
        return X * self.factor

    def inverse_transform(self, X: Any) -> Any:
        assert type(X) is np.ndarray
        return X / self.factor

    def get_feature_names_out(self, names: Any = None) -> Any:
        return np.array([f"x{i}" for i in range(self.n_features_in_)], dtype=object)


def ours(estimator: Any) -> Any:
    """Return accelsk's estimator that equals a plain one, all that it holds included."""
    return accelsk.from_sklearn(estimator)


def up(value: Any) -> Any:
    return np.asarray(value).view(device_double.DeviceArray)


class Moved:
    """What has been moved inside a ``with`` block.

    Attributes
    ----------
    uploaded, downloaded : int
    """


@contextmanager
def moved() -> Any:
    result = Moved()
    before = traffic.moved()
    yield result
    after = traffic.moved()
    result.uploaded = after[0] - before[0]
    result.downloaded = after[1] - before[1]


def data(n: int = 4000, d: int = 6, dtype: Any = np.float64) -> tuple[np.ndarray, np.ndarray]:
    """Return X and labels of two classes."""
    rng = np.random.default_rng(0)
    X = (rng.normal(size=(n, d)) * np.arange(1, d + 1) + 1).astype(dtype)
    return X, (X[:, 0] - X[:, 1] + rng.normal(size=n) > 0).astype(np.int64)
