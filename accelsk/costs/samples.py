"""Data and hyperparameters on which each class can be tried at any size, made from its tags."""

from __future__ import annotations

import functools
import inspect
from typing import Any, NamedTuple

import numpy as np
from sklearn.base import is_classifier

from accelsk.costs.decision import name_of

__all__ = ["Sample", "arguments", "forget", "new", "sample", "takes_labels_only"]

#: What it costs to spread work over all cores has to be measured, too.
_SPREAD = {"n_jobs": -1}

#: What a class is tried with, where its defaults do not do: several, where a size depends on it.
_PARAMETERS: dict[str, tuple[dict[str, Any], ...]] = {
    "cluster.AgglomerativeClustering": ({"linkage": "single"},),
    "cluster.HDBSCAN": ({"copy": True},),
    "cluster.KMeans": ({"n_clusters": 8}, {"n_clusters": 48}),
    "cluster.SpectralClustering": ({"affinity": "nearest_neighbors"},),
    "decomposition.IncrementalPCA": ({"n_components": 4},),
    "decomposition.PCA": ({"n_components": 4}, {"n_components": 7}),
    "decomposition.TruncatedSVD": ({"n_components": 4},),
    "ensemble.IsolationForest": ({"n_estimators": 10}, _SPREAD | {"n_estimators": 50}),
    "ensemble.RandomForestClassifier": ({"n_estimators": 5}, _SPREAD | {"n_estimators": 20}),
    "ensemble.RandomForestRegressor": ({"n_estimators": 5}, _SPREAD | {"n_estimators": 20}),
    "kernel_ridge.KernelRidge": ({"kernel": "rbf"},),
    "linear_model.ElasticNet": ({"alpha": 0.1},),
    "linear_model.Lasso": ({"alpha": 0.1},),
    "manifold.TSNE": ({"max_iter": 250},),
    "neighbors.KNeighborsClassifier": ({"n_neighbors": 5}, {"n_neighbors": 20}),
    "neighbors.KNeighborsRegressor": ({"n_neighbors": 5}, {"n_neighbors": 20}),
    "neighbors.NearestNeighbors": ({"n_neighbors": 5}, {"n_neighbors": 20}),
    "random_projection.GaussianRandomProjection": ({"n_components": 8}, {"n_components": 64}),
    "random_projection.SparseRandomProjection": ({"n_components": 8}, {"n_components": 64}),
    "svm.LinearSVC": ({"dual": False},),
    "svm.LinearSVR": ({"dual": False, "loss": "squared_epsilon_insensitive"},),
    "umap.UMAP": ({"n_epochs": 50},),
}

_CLUSTERS = 8
_CATEGORIES = 12


class Sample(NamedTuple):
    """Rows and a target. Where a class takes labels only, X is None."""

    X: Any
    y: Any


def new(cls: Any, variant: int = 0) -> Any:
    """Return an unfitted estimator; where there is a seed, it is set."""
    choices = _PARAMETERS.get(name_of(cls._accelsk_class) or "", ({},))
    parameters = dict(choices[variant % len(choices)])
    if "random_state" in cls._get_param_names():
        parameters["random_state"] = 0
    return cls(**parameters)


@functools.lru_cache(maxsize=1)
def _pool(elements: int) -> np.ndarray:
    return np.random.default_rng(0).normal(size=elements)


def _numbers(elements: int) -> np.ndarray:
    # one pool serves all sizes up to its own
    return _pool(1 << max(16, (elements - 1).bit_length()))[:elements]


# a few sizes are asked for by one class after the other


@functools.lru_cache(maxsize=16)
def _rows(rows: int, columns: int, dtype: str) -> np.ndarray:
    """Return clusters that overlap a little."""
    noise = _numbers(rows * columns).reshape(rows, columns)
    centers = np.random.default_rng(1).normal(0, 2, (_CLUSTERS, columns))
    X = centers[np.arange(rows) % _CLUSTERS]
    X += noise
    return X.astype(dtype, copy=False)


@functools.lru_cache(maxsize=16)
def _categories(rows: int, columns: int) -> np.ndarray:
    return np.random.default_rng(2).integers(0, _CATEGORIES, (rows, columns))


@functools.lru_cache(maxsize=16)
def _classes(rows: int) -> np.ndarray:
    """Return three classes by cluster, with some that are wrong."""
    codes = np.arange(rows) % _CLUSTERS
    noisy = np.random.default_rng(4).random(rows) < 0.05
    return np.where(noisy, (codes + 1) % 3, codes % 3)


@functools.lru_cache(maxsize=16)
def _target(rows: int, columns: int) -> np.ndarray:
    """Return what depends on the first few columns."""
    few = _rows(rows, columns, "float64")[:, :4]
    return few.sum(axis=1) + np.random.default_rng(5).normal(size=rows)


def forget() -> None:
    """Let go of all data."""
    for made in (_pool, _rows, _categories, _classes, _target):
        made.cache_clear()


@functools.cache
def takes_labels_only(cls: Any) -> bool:
    """Whether methods of a class have no X."""
    from sklearn.utils import get_tags

    return not get_tags(new(cls)).input_tags.two_d_array


def sample(cls: Any, rows: int, columns: int, dtype: Any = np.float64) -> Sample:
    """Return data of a kind that `cls` takes."""
    from sklearn.utils import get_tags

    estimator = new(cls)
    tags = get_tags(estimator)
    if takes_labels_only(cls):
        return Sample(None, np.random.default_rng(3).integers(0, 100, rows))
    if tags.input_tags.categorical:
        return Sample(_categories(rows, columns), np.arange(rows) % 2)
    X = _rows(rows, columns, np.dtype(dtype).name)
    if tags.input_tags.positive_only:
        X = np.floor(np.abs(X))
    y = _classes(rows) if is_classifier(estimator) else _target(rows, columns)
    return Sample(X, y)


def arguments(estimator: Any, method: str, data: Sample) -> dict[str, Any] | None:
    """Return the arguments of a method, or None where it needs others than data."""
    signature = inspect.signature(getattr(estimator, method))
    known = {"X": data.X, "Z": data.X, "X_test": data.X, "y": data.y, "Y": data.y}
    if data.X is not None and data.y is not data.X and not method.startswith(("fit", "score")):
        known["y"] = None  # it is no argument of theirs, though some take it
    given: dict[str, Any] = {}
    for name, parameter in signature.parameters.items():
        if known.get(name) is not None:
            given[name] = known[name]
        elif parameter.default is parameter.empty and parameter.kind is not parameter.VAR_KEYWORD:
            return None
    return given
