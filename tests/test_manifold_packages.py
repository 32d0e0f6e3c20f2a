"""`accelsk.hdbscan` and `accelsk.umap`, on NumPy in CuPy's place, against their packages."""

from __future__ import annotations

import importlib
import importlib.util
import pickle
import types

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.metrics import adjusted_rand_score
from test_manifold import BLOBS, DIGITS, GRID, device, fitted, nearest

import accelsk
from accelsk.engines import cuml as cuml_engine
from accelsk.exceptions import FallbackError

__all__ = ["device"]


@pytest.mark.parametrize(("module", "package"), [("hdbscan", "hdbscan"), ("umap", "umap-learn")])
def test_a_package_that_is_missing_is_named_with_the_extra(module, package):
    if importlib.util.find_spec(module) is not None:
        pytest.skip(f"{package} is installed")
    with pytest.raises(ImportError, match=rf"needs {package}: pip install 'accelsk\[{module}\]'"):
        importlib.import_module(f"accelsk.{module}")


# hdbscan


@pytest.fixture
def hdbscan():
    """The package and accelsk's module over it."""
    original = pytest.importorskip("hdbscan")
    return types.SimpleNamespace(theirs=original, ours=importlib.import_module("accelsk.hdbscan"))


HOLES = DIGITS.copy()
HOLES[3, 2], HOLES[7, 1] = np.nan, np.inf


@pytest.mark.parametrize("X", [DIGITS, GRID, BLOBS.astype(np.float32), HOLES])
@pytest.mark.parametrize(
    "parameters",
    [
        {"algorithm": "prims_kdtree", "gen_min_span_tree": True},
        {"algorithm": "prims_balltree", "min_samples": 3, "alpha": 1.1, "metric": "l1"},
        {"algorithm": "prims_kdtree", "match_reference_implementation": True},
    ],
    ids=str,
)
def test_hdbscan_equals_the_exact_algorithms_of_hdbscan(hdbscan, X, parameters):
    ours = hdbscan.ours.HDBSCAN(**parameters).fit(X)
    theirs = hdbscan.theirs.HDBSCAN(**parameters).fit(X)
    found, expected = fitted(ours), fitted(theirs)
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        assert type(found[name]) is type(value), name
        if isinstance(value, np.ndarray):
            assert found[name].dtype == value.dtype, name
            np.testing.assert_array_equal(found[name], value, name)
    np.testing.assert_array_equal(ours.outlier_scores_, theirs.outlier_scores_)


@pytest.mark.parametrize("parameters", [{}, {"min_cluster_size": 15, "min_samples": 3}], ids=str)
def test_the_default_of_hdbscan_finds_the_same_clusters(hdbscan, parameters):
    ours = hdbscan.ours.HDBSCAN(**parameters).fit_predict(BLOBS)
    theirs = hdbscan.theirs.HDBSCAN(**parameters).fit_predict(BLOBS)
    assert adjusted_rand_score(ours, theirs) == 1


def test_what_hdbscan_computes_lazily_is_there(hdbscan):
    parameters = {"algorithm": "prims_kdtree", "gen_min_span_tree": True}
    ours = hdbscan.ours.HDBSCAN(**parameters).fit(DIGITS)
    theirs = hdbscan.theirs.HDBSCAN(**parameters).fit(DIGITS)
    for name in ("condensed_tree_", "single_linkage_tree_", "minimum_spanning_tree_"):
        np.testing.assert_array_equal(
            getattr(ours, name).to_numpy(), getattr(theirs, name).to_numpy()
        )
    assert ours.relative_validity_ == theirs.relative_validity_
    for one, other in zip(ours.exemplars_, theirs.exemplars_, strict=True):
        np.testing.assert_array_equal(one, other)
    np.testing.assert_array_equal(
        ours.dbscan_clustering(20.0, 5), theirs.dbscan_clustering(20.0, 5)
    )


def test_the_functions_of_hdbscan_take_a_model_from_the_gpu(hdbscan):
    parameters = {"algorithm": "prims_kdtree", "prediction_data": True}
    ours = hdbscan.ours.HDBSCAN(**parameters).fit(BLOBS)
    theirs = hdbscan.theirs.HDBSCAN(**parameters).fit(BLOBS)
    new = BLOBS[:50] + 0.1
    for one, other in zip(
        hdbscan.ours.approximate_predict(ours, new),
        hdbscan.theirs.approximate_predict(theirs, new),
        strict=True,
    ):
        np.testing.assert_array_equal(one, other)
    np.testing.assert_array_equal(
        hdbscan.ours.all_points_membership_vectors(ours),
        hdbscan.theirs.all_points_membership_vectors(theirs),
    )


def test_a_model_of_hdbscan_survives_pickling_and_cloning(hdbscan):
    ours = hdbscan.ours.HDBSCAN(min_cluster_size=8).fit(BLOBS)
    loaded = pickle.loads(pickle.dumps(ours))
    assert type(loaded) is hdbscan.ours.HDBSCAN
    np.testing.assert_array_equal(loaded.labels_, ours.labels_)
    assert clone(ours).min_cluster_size == 8
    assert type(accelsk.to_sklearn(ours)) is hdbscan.theirs.HDBSCAN


@pytest.mark.parametrize(
    "parameters",
    [{"algorithm": "generic"}, {"metric": "canberra"}, {"metric": "minkowski", "p": 3}],
    ids=str,
)
def test_what_hdbscan_keeps(hdbscan, parameters, tmp_path):
    with pytest.raises(FallbackError):
        hdbscan.ours.HDBSCAN(**parameters).fit(BLOBS)
    with pytest.raises(FallbackError, match="cached"):
        hdbscan.ours.HDBSCAN(memory=str(tmp_path)).fit(BLOBS)


@pytest.mark.parametrize("parameters", [{"min_cluster_size": 1}, {"alpha": 1}], ids=str)
def test_errors_of_hdbscan_are_its_own(hdbscan, parameters):
    with (
        accelsk.config_context(on_fallback="log"),
        pytest.raises(ValueError, match=r".") as ours,
    ):
        hdbscan.ours.HDBSCAN(**parameters).fit(BLOBS)
    with pytest.raises(ValueError, match=r".") as theirs:
        hdbscan.theirs.HDBSCAN(**parameters).fit(BLOBS)
    assert str(ours.value) == str(theirs.value)


# umap-learn


class _UMAPModel:
    """As much of cuML's UMAP as the engine uses: new rows go where the nearest fitted one is."""

    @classmethod
    def _params_from_cpu(cls, model):
        return {}

    def __init__(self, **parameters):
        pass

    def _sync_attrs_from_cpu(self, model):
        self.fitted = model

    def transform(self, X):
        distances = ((np.asarray(X)[:, None] - self.fitted._raw_data) ** 2).sum(axis=2)
        return accelsk.device.transfer.to_device(self.fitted.embedding_[distances.argmin(axis=1)])


@pytest.fixture
def umap(monkeypatch):
    """The package and accelsk's module over it, with umap-learn's layout in place of cuML's."""
    original = pytest.importorskip("umap")
    module = importlib.import_module("accelsk.umap")

    def layout(self, X, n_epochs, init, random_state, **options):
        start = self._start(X, self.graph_.tocoo(), n_epochs or 500, init, random_state)
        init = start if isinstance(start, str) else start.get()
        return original.UMAP._fit_embed_data(self, X, n_epochs, init, random_state)

    monkeypatch.setattr(module._Fitting, "_fit_embed_data", layout)
    monkeypatch.setattr(module, "nearest", nearest)
    interop = types.ModuleType("cuml.internals.interop")
    interop.UnsupportedOnGPU = type("UnsupportedOnGPU", (Exception,), {})
    for name in ("cuml", "cuml.internals"):
        monkeypatch.setitem(importlib.sys.modules, name, types.ModuleType(name))
    monkeypatch.setitem(importlib.sys.modules, "cuml.internals.interop", interop)
    monkeypatch.setitem(cuml_engine.CumlEngine._loaded, "manifold.UMAP", _UMAPModel)
    return types.SimpleNamespace(theirs=original, ours=module)


#: Without neighbours that are equally far.
ROWS = DIGITS + np.random.RandomState(0).rand(*DIGITS.shape)
Y = np.arange(len(DIGITS)) % 3


@pytest.mark.filterwarnings("ignore:n_jobs value")
@pytest.mark.parametrize(
    ("parameters", "y"),
    [
        ({}, None),
        ({"init": "pca"}, None),
        ({"random_state": 0, "init": "random", "n_components": 3}, None),
        ({"metric": "cosine", "init": np.random.RandomState(0).randn(300, 2)}, None),
        ({"n_neighbors": 5, "metric": "manhattan", "disconnection_distance": 90.0}, None),
        ({}, Y),
        ({"target_metric": "l2", "target_weight": 0.3}, Y.astype(float)),
    ],
    ids=["default", "components", "random", "cosine", "cut", "classes", "numbers"],
)
def test_the_graph_is_that_of_umap_learn(umap, parameters, y):
    parameters = {"n_epochs": 20, **parameters}
    ours = umap.ours.UMAP(**parameters)
    result = ours.fit_transform(ROWS, y)
    theirs = umap.theirs.UMAP(**parameters).fit(ROWS, y)
    assert fitted(ours).keys() == fitted(theirs).keys()
    assert abs(ours.graph_ - theirs.graph_).max() < 1e-5
    assert result.dtype == theirs.embedding_.dtype
    np.testing.assert_array_equal(np.isnan(result), np.isnan(theirs.embedding_))
    np.testing.assert_array_equal(result, ours.embedding_)
    assert list(ours.get_feature_names_out()) == list(theirs.get_feature_names_out())


def test_new_rows_are_transformed_on_the_device_and_on_the_host(umap):
    ours = umap.ours.UMAP(n_epochs=20).fit(DIGITS)
    np.testing.assert_array_equal(ours.transform(DIGITS), ours.embedding_)
    on_device = ours.transform(DIGITS[:20])
    np.testing.assert_array_equal(on_device, ours.embedding_[:20])
    loaded = pickle.loads(pickle.dumps(ours))
    np.testing.assert_array_equal(loaded.transform(DIGITS[:20]), on_device)
    with accelsk.config_context(device="cpu"):
        assert ours.transform(DIGITS[:20]).shape == (20, 2)
        assert ours.inverse_transform(ours.embedding_[:2]).shape == (2, 64)


def test_the_index_for_the_host_is_made_when_it_is_needed(umap, monkeypatch):
    made = []

    def nearest_neighbors(X, n_neighbors, *arguments, **options):
        index = umap.ours.NNDescent.__new__(umap.ours.NNDescent)
        index._angular_trees = False
        made.append((X.shape, n_neighbors))
        return None, None, index

    monkeypatch.setattr(umap.ours.umap_, "nearest_neighbors", nearest_neighbors)
    parameters = {"n_epochs": 20, "force_approximation_algorithm": True}
    index = umap.ours.UMAP(**parameters).fit(DIGITS)._knn_search_index
    assert isinstance(index, umap.ours.NNDescent)
    assert not made
    assert index._angular_trees is False
    assert made == [(DIGITS.shape, 15)]
    assert type(index) is umap.ours.NNDescent
    with pytest.raises(AttributeError):
        _ = index.nothing


def test_a_seed_that_cannot_be_kept_is_left_to_umap_learn_on_request(umap):
    with (
        accelsk.config_context(reproducible=True),
        pytest.raises(FallbackError, match="reproducible"),
    ):
        umap.ours.UMAP(n_epochs=20, random_state=0).fit(DIGITS)


@pytest.mark.parametrize(
    "parameters",
    [
        {"densmap": True},
        {"output_dens": True},
        {"unique": True},
        {"init": "tswspectral"},
        {"metric": "canberra"},
        {"output_metric": "haversine"},
        {"n_epochs": [20, 30]},
        {"n_epochs": 5},
        {"transform_mode": "graph"},
        {"n_neighbors": 300},
        {"verbose": True},
    ],
    ids=str,
)
def test_what_umap_keeps(umap, parameters):
    with pytest.raises(FallbackError):
        umap.ours.UMAP(**parameters).fit(DIGITS)
