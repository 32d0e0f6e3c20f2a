"""accelsk and the installed cuML agree on what cuML has and takes. No GPU is needed.

Runs where cuML is installed. What cuML refuses, a plan has to refuse too: a plan that is complete
says before a call where it will run.
"""

from __future__ import annotations

import ast
import functools
import importlib
import importlib.util
import inspect
import pkgutil
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from class_cases import all_classes, case_of, key_of, not_imported
from parameter_options import Option, options
from sklearn.utils._param_validation import InvalidParameterError

import accelsk
from accelsk.dispatch import method_of, plan
from accelsk.engines.base import Call, bind
from accelsk.engines.cuml import CumlEngine
from accelsk.exceptions import Refusal

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("cuml") is None, reason="cuML is not installed"
)

#: Engines that build on a cuML class made for another estimator of scikit-learn's.
BUILDING_BLOCKS = {
    "cluster.HDBSCAN": "core distances come from a search for neighbours",
    "hdbscan.HDBSCAN": "core distances come from a search for neighbours",
    "neighbors.KNeighborsClassifier": "votes are counted here, cuML finds the neighbours",
    "neighbors.KNeighborsRegressor": "means are taken here, cuML finds the neighbours",
}

#: Engines that fit by an algorithm of their own and hand cuML no hyperparameters.
OWN_FIT = {
    **BUILDING_BLOCKS,
    "neighbors.NearestNeighbors": "cuML searches by brute force, whatever the algorithm",
}

#: Methods, and methods of one class, that are left to scikit-learn, with the reason.
DELEGATED = {
    "get_feature_names_out": "names only",
    "kneighbors_graph": "built from kneighbors, which is dispatched",
    "radius_neighbors_graph": "built from radius_neighbors",
    "fit_predict": "calls fit",
    "fit_transform": "calls fit and transform",
    "generate_prediction_data": "hdbscan's own, on the host",
    "get_params": "hyperparameters only",
    "set_params": "hyperparameters only",
    "get_metadata_routing": "no computation",
    "sparsify": "changes the format of coef_ on the host",
    "densify": "changes the format of coef_ on the host",
    "partial_fit": "cuML's differs from scikit-learn's, see the class",
    "error_norm": "on the small matrix of covariance_, on the host",
    "sample": "random draws, which have to be scikit-learn's",
    "get_covariance": "a product of small matrices, on the host",
    "get_precision": "the inverse of a small matrix, on the host",
    "UMAP.inverse_transform": "umap-learn's descent from graph to data, on the host",
    "EmpiricalCovariance.score": "the covariance of new data, then small matrices, on the host",
    "LedoitWolf.score": "the covariance of new data, then small matrices, on the host",
}


def cuml_engines() -> Iterator[tuple[str, Any, Any]]:
    for key, cls in all_classes().items():
        for engine in cls._accelsk_engines:
            if isinstance(engine, CumlEngine):
                yield key, cls, engine


each_engine = pytest.mark.parametrize(
    ("key", "cls", "engine"),
    [
        pytest.param(key, cls, engine, id=f"{key}-{type(engine).__name__}")
        for key, cls, engine in cuml_engines()
    ],
)


def located(path: str) -> Any:
    module, _, name = path.rpartition(".")
    return getattr(importlib.import_module(module), name)


@functools.cache
def counterparts() -> dict[type, Any]:
    """Return the cuML classes that name an original, by original."""
    import cuml

    found = {}
    for module in pkgutil.iter_modules(cuml.__path__, "cuml."):
        if module.name.rpartition(".")[2] in ("accel", "benchmark", "dask", "testing"):
            continue
        try:
            members = vars(importlib.import_module(module.name))
        except ImportError:
            continue
        for value in list(members.values()):
            path = getattr(value, "_cpu_class_path", None)
            if isinstance(value, type) and isinstance(path, str):
                try:
                    found[located(path)] = value
                except ImportError:  # umap-learn and hdbscan are optional
                    continue
    return found


@each_engine
def test_the_cuml_class_is_there_and_names_the_original(key: str, cls: Any, engine: Any) -> None:
    path = getattr(engine.model_class, "_cpu_class_path", None)
    if key in BUILDING_BLOCKS or path is None:
        assert engine.model_class.__module__.startswith("cuml.")
        return
    assert located(path) is cls._accelsk_original


def test_every_counterpart_that_cuml_has_is_accelerated() -> None:
    accelerated = {cls._accelsk_original for cls in all_classes().values()}
    missing = [original.__name__ for original in counterparts() if original not in accelerated]
    assert not missing


@pytest.mark.parametrize("cls", all_classes().values(), ids=all_classes().keys())
def test_every_method_of_cumls_is_dispatched_or_delegated(cls: Any) -> None:
    original = cls._accelsk_original
    model_class = counterparts().get(original)
    if model_class is None:
        pytest.skip("cuML has no counterpart")
    public = [
        name
        for name in dir(model_class)
        if name[0] != "_"
        and callable(inspect.getattr_static(model_class, name, None))
        and inspect.getattr_static(original, name, None) is not None
    ]
    left = [
        name
        for name in public
        if method_of(cls, name) is None
        and not {name, f"{original.__name__}.{name}"} & set(DELEGATED)
    ]
    assert not left


def fit_call(cls: Any, option: Option | None) -> tuple[Any, dict[str, Any]]:
    case = case_of(cls)
    given = {} if option is None else {option.parameter: option.value}
    data = case.data()
    names = method_of(cls, "fit").signature.parameters  # type: ignore[union-attr]
    arguments = {k: v for k, v in (("X", data.X), ("y", data.y)) if k in names}
    return cls(**{**case.parameters, **given}), arguments


@each_engine
def test_what_a_plan_accepts_cuml_takes(key: str, cls: Any, engine: Any) -> None:
    if key in OWN_FIT or "fit" not in engine.methods:
        pytest.skip(OWN_FIT.get(key, "the engine does not fit"))
    refused = []
    for option in (None, *options(cls._accelsk_original)):
        est, arguments = fit_call(cls, option)
        try:
            if hasattr(est, "_parameter_constraints"):  # umap-learn declares none
                est._validate_params()
        except InvalidParameterError:
            continue
        method = method_of(cls, "fit")
        assert method is not None
        planned = plan(est, method, (), arguments, assume_usable=True)
        if planned.engine is not engine:
            assert planned.reasons or planned.engine is not None
            continue
        call = Call(est, method.original, "fit", bind(method.signature, (), arguments))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                engine.new_model(**engine.parameters(call))
            except Refusal as refusal:
                if "cuML" in refusal.reason:
                    refused.append(f"{option}: {refusal}")
    assert not refused


@each_engine
def test_the_methods_of_interop_are_there(key: str, cls: Any, engine: Any) -> None:
    if not hasattr(engine.model_class, "_cpu_class_path"):
        pytest.skip("cuML has no interop for it; the engine does without")
    for name in ("_params_from_cpu", "_sync_attrs_from_cpu", "_sync_attrs_to_cpu"):
        assert callable(getattr(engine.model_class, name))


def imports_of_cuml() -> list[tuple[str, str]]:
    """Return every name that accelsk imports from cuML or below, from its source."""
    root = Path(accelsk.__file__).parent
    return sorted(
        {
            (node.module, alias.name)
            for path in root.rglob("*.py")
            for node in ast.walk(ast.parse(path.read_text()))
            if isinstance(node, ast.ImportFrom)
            and node.module is not None
            and node.module.partition(".")[0] in ("cuml", "pylibraft", "rmm", "treelite", "cupy")
            for alias in node.names
        }
    )


@pytest.mark.parametrize(("module", "name"), imports_of_cuml(), ids=".".join)
def test_what_accelsk_imports_exists(module: str, name: str) -> None:
    found = importlib.import_module(module)
    assert hasattr(found, name) or importlib.util.find_spec(f"{module}.{name}") is not None


def test_the_log_level_can_be_read_and_set() -> None:
    from cuml.internals import logger

    level = logger.get_level()
    logger.set_level(logger.level_enum.off)
    assert logger.get_level() == logger.level_enum.off
    logger.set_level(level)
    assert logger.get_level() == level


def test_lists_of_exceptions_name_classes_that_exist() -> None:
    keys = {key_of(cls) for cls in all_classes().values()}
    absent = {key for key in {*BUILDING_BLOCKS, *OWN_FIT} if key.partition(".")[0] in not_imported}
    assert {*BUILDING_BLOCKS, *OWN_FIT} - absent <= keys
