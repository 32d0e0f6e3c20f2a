"""What the time of a call grows with: for each class a few products of sizes, in one table.

A term is a product of letters, ``"nds"`` for rows times columns times the smaller of both; its
coefficient is measured (`accelsk.tuning`). All coefficients are at least zero and all letters
grow with the data, so that more data never is expected to take less time.

======  ==============================================================================
letter  stands for
======  ==============================================================================
1       one: what any call takes
n       rows of the data of the call
d       their columns; in a sparse matrix the mean number of stored elements of a row
s       the smaller of both
e       elements of the data beyond those that fit into the caches of a processor
m       rows that the model was fitted on
l       the logarithm of m; where trees are limited, their depth
h       bytes of an element over eight where the data have to go to the device, else 0
k, t, i what the class says: clusters, neighbours, components; trees; repetitions
j       one where ``n_jobs`` spreads the work, else 0; t then is the trees for each job
======  ==============================================================================
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from numbers import Real
from typing import Any

__all__ = ["ALIASES", "STATE", "WORK", "Work", "letters"]

#: Elements that fit into the caches: 32 MiB of float64.
_CACHED = 2**22

#: Methods that do what another one does, as far as time is concerned.
ALIASES = {
    "fit_predict": "fit",
    "partial_fit": "fit",
    "predict_log_proba": "predict_proba",
    "predict_joint_log_proba": "predict_proba",
    "score": "predict",
}

#: The time that fitted state takes from the device to the host, and back.
STATE = ("fetch", "restore")

_FIT = ("1", "n", "nd", "e", "nds", "sss", "dd", "ddd")
_APPLY = ("1", "n", "nd", "e")
_STATE = ("1", "m", "d", "md", "dd")

#: A hyperparameter, and what counts where it is no number of things: there may be no such one.
Letter = tuple[str | None, float | Callable[[Any, Mapping[str, float]], float]]


@dataclass(frozen=True)
class Work:
    """What the time of one class grows with.

    Attributes
    ----------
    fit, apply, state : tuple of str
        Terms of methods that fit, of the others, and of moving the fitted state.
    letters : dict
        The hyperparameter behind each letter of the class's own.
    output : str
        The size of what a transformation returns.
    parallel : bool
        Whether scikit-learn spreads it over ``n_jobs``.
    """

    fit: tuple[str, ...] = _FIT
    apply: tuple[str, ...] = _APPLY
    state: tuple[str, ...] = _STATE
    letters: dict[str, Letter] = field(default_factory=dict)
    output: str = ""
    parallel: bool = False

    @functools.cached_property
    def parameters(self) -> tuple[str, ...]:
        """The hyperparameters that matter."""
        names = [name for name, _ in self.letters.values() if name is not None]
        names += ["n_jobs", "max_depth"] * self.parallel
        names += [name for name in ("eps", "degree") if self.letters and self.output]
        return tuple(names)

    def by_training_rows(self, method: str) -> bool:
        """Whether the time of a method depends on the rows that the model was fitted on."""
        return not method.startswith("fit") and any("m" in t or "l" in t for t in self.apply)

    def terms(self, method: str, *, on_cpu: bool) -> tuple[str, ...]:
        """Return the terms of `method`."""
        if method in STATE:
            return self.state
        fits = method.startswith("fit")
        terms = self.fit if fits else self.apply
        if fits and method != "fit":  # it transforms, too
            terms = tuple(dict.fromkeys((*terms, *self.apply)))
        if on_cpu:
            return terms
        terms = tuple(term for term in terms if term != "e")
        return (*terms, "hnd", f"h{self.output}") if self.output else (*terms, "hnd")


def _projected(estimator: Any, sizes: Mapping[str, float]) -> float:
    """Return the components that Johnson and Lindenstrauss ask for."""
    eps = float(estimator.eps)
    return 4 * math.log(max(sizes["n"], 2)) / (eps**2 / 2 - eps**3 / 3)


def _monomials(estimator: Any, sizes: Mapping[str, float]) -> float:
    degree = estimator.degree if isinstance(estimator.degree, int) else max(estimator.degree)
    return math.comb(int(sizes["d"]) + degree, degree)


def _smaller(estimator: Any, sizes: Mapping[str, float]) -> float:
    return sizes["s"]


def _components(name: str = "n_components", missing: Any = _smaller) -> dict[str, Letter]:
    return {"k": (name, missing)}


_PROJECTION = Work(
    fit=("1", "d", "dk"),
    apply=("1", "n", "nd", "nk", "ndk"),
    state=("1", "dk"),
    letters=_components(missing=_projected),
    output="nk",
)
_DECOMPOSITION = Work(
    fit=(*_FIT, "ndk", "dkk"),
    apply=("1", "n", "nd", "nk", "ndk", "ddd"),  # the likelihood inverts a covariance
    state=("1", "d", "dk", "dd"),
    letters=_components(),
    output="nk",
)
_COVARIANCE = Work(apply=(*_APPLY, "ndd", "ddd"), state=("1", "d", "dd"))
_ENCODING = Work(fit=("1", "nd", "nld"), apply=("1", "n", "nd", "e"), state=("1", "d"), output="nd")
_SCALING = Work(fit=("1", "n", "nd", "e"), output="nd", state=("1", "d"))
_LINEAR = Work(state=("1", "d"))
_NEIGHBORS = Work(
    fit=("1", "nd", "nld", "e"),
    apply=("1", "n", "nk", "nd", "nld", "nm", "nmd"),
    letters={"k": ("n_neighbors", 5.0)},
    output="nk",
)
_KERNEL = Work(
    fit=("1", "nd", "nn", "nnd"), apply=("1", "n", "nd", "nm", "nmd"), state=("1", "m", "md")
)
_TREES = Work(
    fit=("1", "j", "n", "t", "nt", "ntl", "ntdl"),
    apply=("1", "j", "t", "n", "nd", "nt", "ntl"),
    state=("1", "t", "mt"),
    letters={"t": ("n_estimators", 100.0)},
    parallel=True,
)
_PAIRS = Work(
    fit=("1", "n", "nd", "nl", "nld", "nn", "nnd"),
    apply=("1", "n", "nd", "nl", "nm", "nmd"),
    state=("1", "m", "md"),
)

#: By the class below ``accelsk``. A class that is not listed has the terms of `Work`.
WORK: dict[str, Work] = {
    "cluster.AgglomerativeClustering": _PAIRS,
    "cluster.DBSCAN": _PAIRS,
    "cluster.HDBSCAN": _PAIRS,
    "cluster.KMeans": Work(
        fit=("1", "n", "k", "nd", "nki", "ndki"),
        apply=("1", "n", "nd", "nk", "ndk"),
        state=("1", "m", "k", "dk"),
        letters={"k": ("n_clusters", 8.0), "i": ("n_init", 1.0)},
        output="nk",
    ),
    "cluster.SpectralClustering": _PAIRS,
    **{
        f"covariance.{name}": _COVARIANCE
        for name in ("EmpiricalCovariance", "LedoitWolf", "OAS", "ShrunkCovariance")
    },
    "decomposition.IncrementalPCA": _DECOMPOSITION,
    "decomposition.PCA": _DECOMPOSITION,
    "decomposition.TruncatedSVD": _DECOMPOSITION,
    "ensemble.IsolationForest": Work(
        fit=("1", "j", "t", "n", "nd"),
        apply=("1", "j", "t", "n", "nt"),
        state=("1", "t"),
        letters={"t": ("n_estimators", 100.0)},
        parallel=True,
    ),
    "ensemble.RandomForestClassifier": _TREES,
    "ensemble.RandomForestRegressor": _TREES,
    "hdbscan.HDBSCAN": _PAIRS,
    "kernel_ridge.KernelRidge": Work(
        fit=("1", "nd", "nn", "nnd", "nnn"), apply=_KERNEL.apply, state=_KERNEL.state
    ),
    **{
        f"linear_model.{name}": _LINEAR
        for name in ("ElasticNet", "Lasso", "LinearRegression", "LogisticRegression", "Ridge")
    },
    "manifold.SpectralEmbedding": _PAIRS,
    "manifold.TSNE": Work(
        fit=("1", "nd", "ni", "nli", "nn", "nnd"), letters={"i": ("max_iter", 1000.0)}
    ),
    "neighbors.KNeighborsClassifier": _NEIGHBORS,
    "neighbors.KNeighborsRegressor": _NEIGHBORS,
    "neighbors.KernelDensity": _NEIGHBORS,
    "neighbors.NearestNeighbors": _NEIGHBORS,
    "preprocessing.LabelBinarizer": _ENCODING,
    "preprocessing.LabelEncoder": _ENCODING,
    "preprocessing.MaxAbsScaler": _SCALING,
    "preprocessing.MinMaxScaler": _SCALING,
    "preprocessing.OneHotEncoder": _ENCODING,
    "preprocessing.PolynomialFeatures": Work(
        fit=("1", "d", "k"),
        apply=("1", "n", "nd", "nk"),
        state=("1", "k"),
        letters={"k": (None, _monomials)},
        output="nk",
    ),
    "preprocessing.StandardScaler": _SCALING,
    "preprocessing.TargetEncoder": _ENCODING,
    "random_projection.GaussianRandomProjection": _PROJECTION,
    "random_projection.SparseRandomProjection": _PROJECTION,
    "svm.SVC": _KERNEL,
    "svm.SVR": _KERNEL,
    "umap.UMAP": Work(
        fit=("1", "n", "nd", "nl", "nld", "nn", "nnd"), apply=_PAIRS.apply, state=_PAIRS.state
    ),
}


def letters(
    work: Work,
    estimator: Any,
    rows: float,
    columns: float,
    *,
    width: float = 1.0,
    moves: bool = True,
    fitted: float | None = None,
    jobs: float = 1.0,
) -> dict[str, float]:
    """Return what the letters stand for in one call.

    Parameters
    ----------
    work : Work
    estimator : object
        It has the hyperparameters.
    rows, columns : float
        Of the data of the call.
    width : float, default=1.0
        Bytes of an element over eight.
    moves : bool, default=True
        Whether the data have to go to the device.
    fitted : float, default=None
        The rows that the model was fitted on; None means as many as there are now.
    jobs : float, default=1.0
        How many times faster ``n_jobs`` makes what is spread.
    """
    trained = rows if fitted is None else fitted
    sizes = {
        "1": 1.0,
        "n": rows,
        "d": columns,
        "s": min(rows, columns),
        "e": max(0.0, rows * columns * width - _CACHED),
        "m": trained,
        "l": math.log2(max(trained, 2)),
        "h": width if moves else 0.0,
        "k": 1.0,
        "t": 1.0,
        "i": 1.0,
        "j": float(jobs > 1),
    }
    for letter, (name, otherwise) in work.letters.items():
        value = None if name is None else getattr(estimator, name, None)
        if not isinstance(value, Real) or isinstance(value, bool) or value < 1:
            value = otherwise(estimator, sizes) if callable(otherwise) else otherwise
        sizes[letter] = float(value)
    if "t" in work.letters:
        sizes["t"] /= jobs
        depth = getattr(estimator, "max_depth", None)
        if isinstance(depth, Real):
            sizes["l"] = min(sizes["l"], float(depth))
    return sizes
