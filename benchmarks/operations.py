"""What is measured: the operations and shapes of the table that cuml.accel publishes.

The smallest and the largest shape of each operation are those of its documentation (26.10); the
three between, which it does not give, hold the same number of values each, in few, in some and in
many columns.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

SHAPE_NAMES = ("small", "thin", "balanced", "wide", "large")

Shape = tuple[int, int]


@dataclass(frozen=True)
class Operation:
    """One method of one estimator, at several shapes of X.

    Attributes
    ----------
    path : str
        Package, module and class as scikit-learn, umap-learn or hdbscan have it.
    method : str
    shapes : tuple of (int, int)
        Rows and columns of X, in the order of `SHAPE_NAMES`.
    data : str
        A key of `benchmarks.data.MAKERS`.
    check : str
        A key of `benchmarks.checks.CHECKS`: how results of two sides are compared.
    parameters : dict
        Hyperparameters that are not the default.
    fitted_on : int or None
        Rows that a model is fitted on before its `method` is timed on all of X; None where the
        method itself fits.
    """

    path: str
    method: str
    shapes: tuple[Shape, ...]
    data: str
    check: str
    parameters: dict[str, Any] = field(default_factory=dict)
    fitted_on: int | None = None

    @property
    def name(self) -> str:
        return f"{self.path.rpartition('.')[2]}.{self.method}"

    @property
    def needs_y(self) -> bool:
        return self.data in ("regression", "classes", "categories")


_MEDIUM = ((7_812_500, 32), (1_953_125, 128), (244_140, 1024))
_FIT = ((50_000, 128), *_MEDIUM, (5_000_000, 128))
_PREDICT = ((195_312, 128), *_MEDIUM, (5_000_000, 128))
_POINTS = ((2_000, 32), (16_000, 8), (8_000, 16), (4_000, 32), (32_000, 32))
_EMBEDDED = ((2_000, 64), (20_000, 16), (10_000, 32), (5_000, 64), (50_000, 64))
_PLACED = ((390_625, 64), (7_812_500, 16), (3_906_250, 32), (1_953_125, 64), (7_812_500, 64))
_NEIGHBOURS = ((2_000, 128), (16_000, 32), (8_000, 64), (4_000, 128), (32_000, 128))
_REDUCED = ((10_000, 1024), (1_953_125, 128), (244_140, 1024), (61_035, 4096), (1_000_000, 1024))
_PROJECTED = ((48_828, 1024), (1_953_125, 128), (244_140, 1024), (61_035, 4096), (2_441_406, 1024))
_GROWN = ((50_000, 128), (976_562, 32), (244_140, 128), (30_517, 1024), (1_953_125, 128))
_ENCODED = ((195_312, 32), (3_906_250, 8), (1_953_125, 16), (976_562, 32), (7_812_500, 32))
_RECODED = ((781_250, 32), (7_812_500, 8), (3_906_250, 16), (1_953_125, 32), (15_625_000, 32))
_MARGINS = ((2_000, 64), (16_000, 16), (8_000, 32), (4_000, 64), (32_000, 64))

_SEED = {"random_state": 0}
_KMEANS = {"n_clusters": 8, "n_init": 1, **_SEED}
#: What a model that predicts is fitted on.
_SOME = 10_000
_ALL = max(n for n, _ in _NEIGHBOURS)


def _linear(name: str, data: str = "regression", **parameters: Any) -> list[Operation]:
    path, check = f"sklearn.linear_model.{name}", "values" if data == "regression" else "labels"
    return [
        Operation(path, "fit", _FIT, data, check, parameters),
        Operation(path, "predict", _PREDICT, data, check, parameters, fitted_on=_SOME),
    ]


def _forest(name: str, data: str) -> list[Operation]:
    path, check = f"sklearn.ensemble.{name}", "score"
    return [
        Operation(path, "fit", _GROWN, data, check, _SEED),
        Operation(path, "predict", _PREDICT, data, check, _SEED, fitted_on=_SOME),
    ]


OPERATIONS = [
    *_linear("LinearRegression"),
    *_linear("Ridge"),
    *_linear("Lasso", alpha=0.01),
    *_linear("ElasticNet", alpha=0.01),
    *_linear("LogisticRegression", "classes"),
    Operation("sklearn.cluster.DBSCAN", "fit_predict", _POINTS, "blobs", "clusters", {"eps": 3.0}),
    Operation("sklearn.cluster.HDBSCAN", "fit_predict", _POINTS, "blobs", "clusters"),
    Operation("sklearn.cluster.KMeans", "fit_predict", _FIT, "blobs", "clusters", _KMEANS),
    Operation(
        "sklearn.cluster.KMeans", "predict", _PREDICT, "blobs", "clusters", _KMEANS, fitted_on=_SOME
    ),
    Operation("sklearn.manifold.TSNE", "fit_transform", _EMBEDDED, "blobs", "embedding", _SEED),
    Operation("umap.UMAP", "fit_transform", _EMBEDDED, "blobs", "embedding", _SEED),
    Operation("umap.UMAP", "transform", _PLACED, "blobs", "embedding", _SEED, fitted_on=_SOME),
    Operation("sklearn.neighbors.KNeighborsClassifier", "predict", _NEIGHBOURS, "classes", "labels",
              fitted_on=_ALL),
    Operation("sklearn.neighbors.KNeighborsRegressor", "predict", _NEIGHBOURS, "regression",
              "values", fitted_on=_ALL),
    Operation("sklearn.neighbors.NearestNeighbors", "kneighbors", _NEIGHBOURS, "blobs", "values",
              fitted_on=_ALL),
    Operation("sklearn.neighbors.KernelDensity", "score_samples", _NEIGHBOURS, "blobs", "values",
              fitted_on=_ALL),
    Operation("sklearn.decomposition.PCA", "fit_transform", _REDUCED, "regression", "components",
              {"n_components": 128, **_SEED}),
    Operation("sklearn.decomposition.PCA", "transform", _PROJECTED, "regression", "components",
              {"n_components": 32, **_SEED}, fitted_on=_SOME),
    *_forest("RandomForestClassifier", "classes"),
    *_forest("RandomForestRegressor", "regression"),
    Operation("sklearn.preprocessing.StandardScaler", "fit_transform", _FIT, "regression",
              "values"),
    Operation("sklearn.preprocessing.StandardScaler", "transform", _PREDICT, "regression",
              "values", fitted_on=_SOME),
    Operation("sklearn.preprocessing.TargetEncoder", "fit_transform", _ENCODED, "categories",
              "values", {"target_type": "continuous", **_SEED}),
    Operation("sklearn.preprocessing.TargetEncoder", "transform", _RECODED, "categories", "values",
              {"target_type": "continuous", **_SEED}, fitted_on=_SOME),
    Operation("sklearn.svm.SVC", "fit", _MARGINS, "classes", "labels"),
    Operation("sklearn.svm.SVC", "predict", _MARGINS, "classes", "labels", fitted_on=2_000),
]  # fmt: skip
