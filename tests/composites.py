"""Pipelines and the like of accelsk beside those of scikit-learn, and what moves inside them."""

from __future__ import annotations

from contextlib import contextmanager
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.cluster import KMeans
from sklearn.compose import ColumnTransformer, make_column_selector
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.naive_bayes import GaussianNB
from sklearn.pipeline import FeatureUnion, make_pipeline, make_union
from sklearn.preprocessing import MinMaxScaler, OneHotEncoder, PolynomialFeatures, StandardScaler

import accelsk
from accelsk.device import traffic
from accelsk.device.transfer import is_device_array, to_device

__all__ = [
    "PIPELINES",
    "TRANSFORMERS",
    "Moved",
    "OnCpu",
    "answers",
    "data",
    "frame",
    "moved",
    "ours",
    "up",
]


class OnCpu(TransformerMixin, BaseEstimator):
    """A transformer as anyone could write it. It gets what scikit-learn would give it."""

    def __init__(self, factor: float = 2.0) -> None:
        self.factor = factor

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> OnCpu:
        self.given_ = [type(value) for value in (X, y, sample_weight)]
        assert not any(is_device_array(v) for v in (X, y, sample_weight))
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
    """Return an array on the device."""
    return to_device(np.asarray(value))


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


PIPELINES = {
    "all": make_pipeline(StandardScaler(), MinMaxScaler(), LogisticRegression()),
    "first on the CPU": make_pipeline(OnCpu(), StandardScaler(), LogisticRegression()),
    "last on the CPU": make_pipeline(StandardScaler(), MinMaxScaler(), GaussianNB()).set_params(
        gaussiannb=KMeans(3, n_init=1, random_state=0)
    ),
    "on the CPU between": make_pipeline(
        StandardScaler(), OnCpu(), MinMaxScaler(), LogisticRegression()
    ),
    "nested": make_pipeline(
        make_pipeline(StandardScaler(), PolynomialFeatures(2)),
        make_pipeline(MinMaxScaler(), make_pipeline(LogisticRegression())),
    ),
    "nested with the CPU": make_pipeline(
        make_pipeline(StandardScaler(), OnCpu()), MinMaxScaler(), LogisticRegression()
    ),
    "passed through": make_pipeline(
        StandardScaler(), "passthrough", None, MinMaxScaler(), LogisticRegression()
    ),
    "union": make_pipeline(
        StandardScaler(), make_union(MinMaxScaler(), PolynomialFeatures(2)), LogisticRegression()
    ),
    "union with the CPU": make_pipeline(
        make_union(MinMaxScaler(), OnCpu(), StandardScaler()), LogisticRegression()
    ),
    "union of pipelines": make_pipeline(
        make_union(make_pipeline(StandardScaler(), MinMaxScaler()), "passthrough", "drop"),
        LogisticRegression(),
    ),
    "weighted union": make_pipeline(
        FeatureUnion(
            [("p", "passthrough"), ("s", StandardScaler()), ("m", MinMaxScaler())],
            transformer_weights={"p": 0.5, "m": 2.0},
        ),
        LogisticRegression(),
    ),
    "regression": make_pipeline(StandardScaler(), PolynomialFeatures(2), Ridge()),
}

METHODS = (
    "predict",
    "predict_proba",
    "predict_log_proba",
    "decision_function",
    "transform",
    "score",
)


def answers(pipeline, X, y):
    for method in METHODS:
        if hasattr(pipeline, method):
            arguments = (X, y) if method == "score" else (X,)
            yield method, getattr(pipeline, method)(*arguments)


TRANSFORMERS = {
    "numbers": ColumnTransformer(
        [("s", StandardScaler(), ["c0", "c1"]), ("m", MinMaxScaler(), ["c2"])]
    ),
    "the rest passed through": ColumnTransformer(
        [("s", StandardScaler(), ["c0", "c1"]), ("d", "drop", ["text"])], remainder="passthrough"
    ),
    "the rest scaled": ColumnTransformer(
        [("p", "passthrough", ["c1"]), ("d", "drop", ["text"])], remainder=StandardScaler()
    ),
    "dense categories": ColumnTransformer(
        [
            ("o", OneHotEncoder(sparse_output=False), ["text", "whole"]),
            ("s", make_pipeline(StandardScaler(), PolynomialFeatures(2)), ["c0", "c1"]),
        ]
    ),
    "sparse categories": ColumnTransformer(
        [("o", OneHotEncoder(), ["text", "whole"]), ("s", StandardScaler(), ["c0", "c1"])],
        sparse_threshold=0,
    ),
    "sparse result": ColumnTransformer(
        [("o", OneHotEncoder(), ["text", "whole"]), ("s", StandardScaler(), ["c0"])],
        sparse_threshold=1.0,
    ),
    "the CPU among them": ColumnTransformer(
        [("s", StandardScaler(), ["c0"]), ("c", OnCpu(), ["c1"]), ("m", MinMaxScaler(), ["c0"])],
        transformer_weights={"s": 0.5, "c": 2.0},
    ),
    "chosen by a function": ColumnTransformer(
        [("s", StandardScaler(), make_column_selector(dtype_include=float))]
    ),
    "nothing": ColumnTransformer([("d", "drop", ["c0"])]),
}


def frame(n=400):
    X, y = data(n)
    import pandas as pd

    result = pd.DataFrame(X, columns=[f"c{i}" for i in range(X.shape[1])])
    result["text"] = np.array(["u", "v", "w"])[np.arange(n) % 3]
    result["whole"] = np.arange(n) % 5
    return result, y
