"""What each accelerated class is tried on, and how near its results must be to scikit-learn's.

A class that is not listed in `CASES` gets a case by its tags, with hyperparameters at their
defaults, and has to be exact.
"""

from __future__ import annotations

import functools
import importlib
import pkgutil
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
from sklearn.base import is_classifier, is_regressor

import accelsk
from accelsk.registry import accelerated_classes

__all__ = ["Case", "Data", "all_classes", "case_of", "key_of", "not_imported"]


class Data(NamedTuple):
    """Training data and new data. Where X is None, `y` is all that a method takes."""

    X: Any
    y: Any
    new: Any
    new_y: Any
    codes: Any = None


def _rows(seed: int, n: int) -> np.ndarray:
    return np.random.default_rng(seed).normal([3, -1, 0, 10, 0.5, 2], [2, 1, 0.5, 3, 1, 4], (n, 6))


def _split(X: Any, y: Any, n_new: int = 40) -> Data:
    return Data(X[n_new:], y[n_new:], X[:n_new], y[:n_new])


@functools.cache
def regression(seed: int = 0) -> Data:
    """Six features, of which four matter."""
    X = _rows(seed, 240)
    noise = np.random.default_rng(seed + 1).normal(0, 0.5, len(X))
    return _split(X, X @ [1.5, -2.0, 3.0, 0.5, 0.0, 0.0] + 7 + noise)


@functools.cache
def classification(seed: int = 0) -> Data:
    """Three classes that overlap a little."""
    X = _rows(seed, 240)
    y = np.arange(len(X)) % 3
    X[:, 0] += 3 * y
    X[:, 2] -= 1.0 * (y == 1)
    return _split(X, y)


@functools.cache
def binary(seed: int = 0) -> Data:
    """Two classes that overlap a little."""
    X, y, new, new_y, _ = classification(seed)
    return Data(X, np.minimum(y, 1), new, np.minimum(new_y, 1))


@functools.cache
def blobs(seed: int = 0) -> Data:
    """Four clusters, well apart."""
    rng = np.random.default_rng(seed)
    y = np.arange(240) % 4
    centers = np.array([[0, 0, 0, 5.0], [9, 0, 1, 0], [0, 9, -1, 2], [9, 9, 0, 1]])
    return _split(centers[y] + rng.normal(0, 0.8, (240, 4)), y)


def few_blobs(seed: int = 0) -> Data:
    """The same with fewer rows, for what takes its time."""
    X, y, new, new_y, _ = blobs(seed)
    return Data(X[:60], y[:60], new, new_y)


@functools.cache
def counts(seed: int = 0) -> Data:
    """Non-negative whole numbers, and three classes."""
    rng = np.random.default_rng(seed)
    y = np.arange(240) % 3
    rates = np.array([[1, 5, 2, 1], [4, 1, 2, 3], [2, 2, 6, 1.0]])
    return _split(rng.poisson(rates[y]).astype(np.float64), y)


@functools.cache
def categories(seed: int = 0) -> Data:
    """Categories as whole numbers, and two classes."""
    rng = np.random.default_rng(seed)
    y = np.arange(240) % 2
    X = rng.integers(0, [3, 4, 2], (240, 3))
    X[:, 0] = (X[:, 0] + y * rng.integers(0, 2, 240)) % 3
    return _split(X, y)


@functools.cache
def label_data(seed: int = 0) -> Data:
    """Labels and nothing else."""
    y = np.random.default_rng(seed).integers(0, 5, 240) * 3
    codes = np.random.default_rng(seed).integers(0, 5, 40)
    return Data(None, y, y[:40], None, codes)


@dataclass(frozen=True)
class Case:
    """How one class is tried.

    Attributes
    ----------
    data : callable
        From a seed to `Data`.
    parameters : dict
    approximate : bool
        Whether scikit-learn's own algorithm is approximate, so that two fits agree in quality
        only. The fitted attributes then agree by type, dtype and shape.
    rtol, method_rtol : float
        For fitted attributes, and for what methods return.
    vague : dict
        Fitted attributes (or methods) whose values may differ, with the reason.
    inexact_parameters : dict
        Hyperparameters, or single values such as ``"metric='hamming'"``, that leave scikit-learn's
        result to chance or to how far it iterates, with the reason.
    unsettable : dict
        Hyperparameters that scikit-learn does not answer for when they are set after a fit, with
        the reason.
    absent : dict
        Attributes that scikit-learn's estimator has and the accelerated one need not, with the
        reason.
    """

    data: Callable[..., Data]
    parameters: dict[str, Any] = field(default_factory=dict)
    approximate: bool = False
    rtol: float = 1e-9
    method_rtol: float | None = None
    vague: dict[str, str] = field(default_factory=dict)
    inexact_parameters: dict[str, str] = field(default_factory=dict)
    unsettable: dict[str, str] = field(default_factory=dict)
    absent: dict[str, str] = field(default_factory=dict)


_SIGNS = "eigenvectors have no sign"
_ITERATIONS = "another solver takes another number of steps"
_STOPS = "scikit-learn stops sooner"
_TIES = {"metric='hamming'": "all rows are at the same distance"}
_DESCENT = {"n_iter_": _ITERATIONS, "dual_gap_": "a difference at the level of rounding"}
_SAMPLES = {"estimators_samples_": "a forest from the GPU does not know its bootstrap samples"}

CASES: dict[str, Case] = {
    "cluster.AgglomerativeClustering": Case(blobs, {"n_clusters": 4, "linkage": "single"}),
    "cluster.DBSCAN": Case(blobs, {"eps": 1.2}),
    "cluster.HDBSCAN": Case(blobs, {"min_cluster_size": 10}, rtol=1e-5),
    "cluster.KMeans": Case(blobs, {"n_clusters": 4}),
    "cluster.SpectralClustering": Case(
        blobs,
        {"n_clusters": 4, "affinity": "nearest_neighbors"},
        rtol=1e-5,
        vague={"labels_": "clusters have no order"},
    ),
    "covariance.EmpiricalCovariance": Case(regression),
    "covariance.LedoitWolf": Case(regression),
    "covariance.OAS": Case(regression),
    "covariance.ShrunkCovariance": Case(regression),
    "decomposition.IncrementalPCA": Case(regression, {"n_components": 3, "batch_size": 50}),
    "decomposition.PCA": Case(regression),
    "decomposition.TruncatedSVD": Case(
        regression,
        {"n_components": 3},
        rtol=1e-6,
        inexact_parameters=dict.fromkeys(
            ("n_iter", "n_oversamples", "power_iteration_normalizer", "tol"),
            "how near scikit-learn's approximation comes",
        ),
    ),
    "discriminant_analysis.LinearDiscriminantAnalysis": Case(
        classification, vague=dict.fromkeys(("scalings_", "transform"), _SIGNS)
    ),
    "discriminant_analysis.QuadraticDiscriminantAnalysis": Case(
        classification, vague={"rotations_": _SIGNS}
    ),
    "ensemble.IsolationForest": Case(
        regression, {"n_estimators": 5}, approximate=True, absent=_SAMPLES
    ),
    "ensemble.RandomForestClassifier": Case(
        classification,
        {"n_estimators": 5},
        approximate=True,
        rtol=1e-5,
    ),
    "ensemble.RandomForestRegressor": Case(
        regression,
        {"n_estimators": 5},
        approximate=True,
        rtol=1e-5,
    ),
    "hdbscan.HDBSCAN": Case(blobs, {"min_cluster_size": 10}, approximate=True),
    "kernel_ridge.KernelRidge": Case(regression, {"kernel": "rbf", "gamma": 0.05}, rtol=1e-7),
    "linear_model.ElasticNet": Case(
        regression, {"alpha": 0.1, "tol": 1e-10}, rtol=1e-6, vague=_DESCENT
    ),
    "linear_model.Lasso": Case(regression, {"alpha": 0.1, "tol": 1e-10}, rtol=1e-6, vague=_DESCENT),
    "linear_model.ElasticNetCV": Case(regression, rtol=1e-6, vague=_DESCENT),
    "linear_model.LassoCV": Case(regression, rtol=1e-6, vague=_DESCENT),
    "linear_model.LogisticRegression": Case(
        classification,
        {"C": 0.05, "tol": 1e-7, "max_iter": 1000},
        rtol=1e-5,
        vague={"n_iter_": "rounding may decide about the last steps"},
    ),
    # of clusters well apart the embedding is arbitrary
    "manifold.SpectralEmbedding": Case(regression, rtol=1e-6),
    "manifold.TSNE": Case(few_blobs, {"perplexity": 8.0, "max_iter": 300}, approximate=True),
    "naive_bayes.CategoricalNB": Case(categories),
    "naive_bayes.ComplementNB": Case(counts),
    "naive_bayes.MultinomialNB": Case(counts),
    "neighbors.KernelDensity": Case(
        blobs,
        inexact_parameters=dict.fromkeys(("atol", "rtol"), _STOPS),
        unsettable=dict.fromkeys(("atol", "rtol"), _STOPS),
    ),
    "neighbors.KNeighborsClassifier": Case(classification, inexact_parameters=_TIES),
    "neighbors.KNeighborsRegressor": Case(regression, inexact_parameters=_TIES),
    "neighbors.NearestNeighbors": Case(blobs, inexact_parameters=_TIES),
    "preprocessing.LabelBinarizer": Case(label_data),
    "preprocessing.LabelEncoder": Case(label_data),
    "preprocessing.OneHotEncoder": Case(categories),
    "preprocessing.PolynomialFeatures": Case(
        regression,
        unsettable=dict.fromkeys(
            ("degree", "include_bias", "interaction_only"), "it returns memory it never wrote"
        ),
    ),
    "preprocessing.TargetEncoder": Case(categories),
    "random_projection.GaussianRandomProjection": Case(
        regression, {"n_components": 3, "compute_inverse_components": True}
    ),
    "random_projection.SparseRandomProjection": Case(
        regression, {"n_components": 3, "compute_inverse_components": True}
    ),
    "svm.LinearSVC": Case(
        classification,
        {"tol": 1e-8, "max_iter": 100_000, "dual": False},
        rtol=1e-3,
        vague={"n_iter_": _ITERATIONS},
        inexact_parameters=dict.fromkeys(("max_iter", "tol"), _STOPS),
    ),
    "svm.LinearSVR": Case(
        regression,
        {
            "tol": 1e-8,
            "max_iter": 100_000,
            "random_state": 0,
            "dual": False,
            "loss": "squared_epsilon_insensitive",
        },
        rtol=1e-3,
        vague={"n_iter_": _ITERATIONS},
        inexact_parameters=dict.fromkeys(("max_iter", "tol"), _STOPS),
    ),
    "svm.SVC": Case(binary, approximate=True, method_rtol=1e-2),
    "svm.SVR": Case(regression, approximate=True, method_rtol=1e-2),
    "umap.UMAP": Case(
        blobs,
        {"n_epochs": 30},
        approximate=True,
        vague=dict.fromkeys(
            ("transform", "inverse_transform"), "negative samples are drawn by chance"
        ),
    ),
}


def key_of(cls: type) -> str:
    """Return the module below accelsk and the name of an accelerated class."""
    return f"{cls.__module__.partition('.')[2]}.{cls.__name__}"


#: The modules of accelsk that cannot be imported, with the error.
not_imported: dict[str, str] = {}


@functools.cache
def all_classes() -> dict[str, type]:
    """Return every accelerated class of accelsk itself that can be imported, by `key_of`."""
    for module in pkgutil.iter_modules(accelsk.__path__):
        if module.name.startswith("_"):
            continue
        try:
            importlib.import_module(f"accelsk.{module.name}")
        except Exception as error:
            not_imported[module.name] = f"{type(error).__name__}: {error}"
    classes = [c for c in accelerated_classes().values() if c.__module__.startswith("accelsk.")]
    return dict(sorted((key_of(cls), cls) for cls in classes))


def case_of(cls: Any) -> Case:
    """Return the case of an accelerated class; where there is a seed, it is set."""
    plain = cls._accelsk_original
    case = CASES.get(key_of(cls)) or _default_case(plain)
    if "random_state" in plain._get_param_names():
        return replace(case, parameters={"random_state": 0, **case.parameters})
    return case


def _default_case(plain: Any) -> Case:
    try:
        est = plain()
    except TypeError:  # it has a parameter without a default
        return Case(regression)
    if is_classifier(est):
        return Case(classification)
    return Case(regression if is_regressor(est) else blobs)
