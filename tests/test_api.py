"""The public names are there, documented, and cost no import of a GPU library."""

from __future__ import annotations

import doctest
import importlib
import inspect
import os
import pkgutil
import subprocess
import sys
import warnings
from pathlib import Path

import pytest
from numpydoc_sections import missing_sections

import accelsk

ROOT = Path(__file__).parent.parent

#: Modules of accelsk's own, the mirrors of scikit-learn's left out.
CORE = sorted(
    module.name
    for module in pkgutil.walk_packages(accelsk.__path__, "accelsk.")
    if module.name.split(".")[1]
    in {
        *("algorithms", "composite", "config", "costs", "data", "device", "dispatch", "engines"),
        *("estimator", "exceptions", "explanation", "introspection", "profiling", "registry"),
        *("residency", "runtime", "support", "versions"),
        *("doctor", "patching", "pytest_plugin", "runner"),
    }
)


def _public():
    return [name for name in accelsk.__all__ if not name.startswith("_")]


def test_names_of_the_design_are_there():
    assert set(accelsk.__all__) >= {
        *("config_context", "enabled", "explain", "from_sklearn", "get_config", "install"),
        *("is_proxy", "profile", "register", "set_config", "to_sklearn"),
        *("info", "is_patched", "patch", "patched", "unpatch"),
    }
    assert all(hasattr(accelsk, name) for name in accelsk.__all__)
    assert accelsk.__version__


@pytest.mark.parametrize("name", _public())
def test_public_function_has_a_numpydoc_docstring(name):
    assert missing_sections(getattr(accelsk, name)) == []


@pytest.mark.parametrize("name", _public())
def test_public_function_has_types(name):
    signature = inspect.signature(getattr(accelsk, name))
    assert signature.return_annotation is not inspect.Signature.empty
    for parameter in signature.parameters.values():
        assert parameter.annotation is not inspect.Parameter.empty, parameter.name


@pytest.mark.parametrize("module", CORE)
def test_module_says_what_it_is_and_what_is_public(module):
    loaded = importlib.import_module(module)
    assert loaded.__doc__
    for name in getattr(loaded, "__all__", ()):
        assert hasattr(loaded, name)


@pytest.mark.parametrize("module", ["accelsk", *CORE])
def test_examples_in_docstrings_are_true(module):
    finder = doctest.DocTestFinder(exclude_empty=True)
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE)
    loaded = importlib.import_module(module)
    for test in finder.find(loaded, module):
        test.globs.update(vars(loaded))
        runner.run(test, out=lambda text: None if "***" in text else print(text))
    assert runner.failures == 0


@pytest.mark.parametrize("name", _public())
def test_public_function_has_an_example(name):
    tests = doctest.DocTestFinder().find(getattr(accelsk, name), name)
    assert any(test.examples for test in tests)


_IMPORT_ALL = """
import importlib, pkgutil, sys, warnings
warnings.simplefilter("ignore")
import accelsk
failed = []
for module in pkgutil.walk_packages(accelsk.__path__, "accelsk.", onerror=lambda name: None):
    if module.name.endswith("__main__"):
        continue
    try:
        importlib.import_module(module.name)
    except ImportError as error:
        original = module.name.replace("accelsk", "sklearn")
        failed.append((module.name, error.name or original))
heavy = {"cupy", "cuml", "cudf", "torch", "rmm", "pylibraft", "numba", "cuda"}
print(sorted(heavy & {name.partition(".")[0] for name in sys.modules}))
print(failed)
"""


def test_no_module_imports_a_gpu_library():
    done = subprocess.run(
        [sys.executable, "-c", _IMPORT_ALL],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=300,
        check=True,
    )
    heavy, failed = map(eval, done.stdout.splitlines()[-2:])
    missing = {package for _, package in failed}
    # umap-learn and hdbscan are extras, and bring numba with them
    assert set(heavy) <= (set() if {"umap", "hdbscan"} <= missing else {"numba"})
    # an older scikit-learn lacks modules of a newer one
    assert {name for name in missing if not name.startswith("sklearn.")} <= {"umap", "hdbscan"}


_CALL_ALL = """
import sys
import accelsk
from accelsk.linear_model import Ridge
model = Ridge().fit([[0.0], [1.0], [2.0]], [0.0, 1.0, 2.0])
model.predict([[1.0]])
accelsk.enabled()
accelsk.explain(Ridge())
accelsk.to_sklearn(model)
with accelsk.profile():
    model.predict([[1.0]])
print(sorted({"polars", "cudf", "torch"} & sys.modules.keys()))
"""


def test_calls_import_no_library_of_frames():
    done = subprocess.run(
        [sys.executable, "-c", _CALL_ALL],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    assert done.stdout.splitlines()[-1] == "[]"


def test_importing_changes_no_setting():
    code = """
import logging, sklearn, warnings
before = sklearn.get_config(), list(warnings.filters), logging.getLogger().handlers[:]
import accelsk, accelsk.linear_model, accelsk.cluster
assert before == (sklearn.get_config(), list(warnings.filters), logging.getLogger().handlers[:])
assert all(isinstance(h, logging.NullHandler) for h in logging.getLogger("accelsk").handlers)
"""
    subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        timeout=120,
        check=True,
    )


def test_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="nonsense"):
        _ = accelsk.nonsense


def test_star_import_gives_the_public_names():
    namespace = {}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        exec("from accelsk import *", namespace)
    assert set(accelsk.__all__) <= namespace.keys()
