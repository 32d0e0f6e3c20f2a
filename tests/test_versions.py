"""Untested releases are told once; what a release lacks costs one class its GPU, no more."""

import ast
import importlib
import importlib.util
import logging
import subprocess
import sys
import types
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from sklearn.experimental import enable_halving_search_cv  # noqa: F401
from sklearn.linear_model import Ridge

import accelsk
from accelsk import _sklearn, versions
from accelsk.device import probe
from accelsk.engines.cuml import CumlEngine, CumlRegressor


class Plain(Ridge):
    """An estimator of this module's own, so that no accelerated class is disturbed."""


class _MineOnCuml(CumlRegressor):
    path = "linear_model.Mine"
    methods = ("fit", "predict")


class _OtherOnCuml(_MineOnCuml):
    path = "linear_model.Other"


_engine = _MineOnCuml()
Mine = accelsk.register(Plain, [_engine], name="Mine")

X = np.arange(12.0).reshape(6, 2) ** 1.5
Y = np.arange(6.0)


@pytest.fixture(autouse=True)
def nothing_warned_yet(monkeypatch):
    monkeypatch.setattr(versions, "_warned", set())


@pytest.mark.parametrize(
    ("package", "version"),
    [
        ("scikit-learn", "1.6.0"),
        ("scikit-learn", "1.6.1"),
        ("scikit-learn", "1.9.7"),
        ("scikit-learn", "1.9.dev0"),
        ("umap-learn", "0.5.7"),
        ("umap-learn", "0.5.12"),
        ("hdbscan", "0.8.44.post1"),
        ("cuml", "26.02.00"),
        ("cuml", "26.10.00a17"),
    ],
)
def test_a_tested_release_is_not_mentioned(package, version, caplog):
    versions.check(package, version)
    assert not caplog.records


@pytest.mark.parametrize(
    ("package", "version"),
    [
        ("scikit-learn", "1.5.2"),
        ("scikit-learn", "1.10.0"),
        ("scikit-learn", "2.0rc1"),
        ("umap-learn", "0.5.6"),
        ("umap-learn", "0.5.13"),
        ("hdbscan", "0.9"),
        ("cuml", "25.12.00"),
        ("cuml", "27.02.00"),
    ],
)
def test_an_untested_release_is_told_once(package, version, caplog):
    for _ in range(3):
        versions.check(package, version)
    (record,) = caplog.records
    assert record.levelno == logging.WARNING
    assert record.name == "accelsk"
    assert f"not with {version}" in record.message


def test_the_installed_scikit_learn_is_what_is_checked_at_import():
    code = "import sklearn; sklearn.__version__ = '1.10.0'; import accelsk; import accelsk.cluster"
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert result.stderr.count("accelsk is tested with scikit-learn 1.6 to 1.9, not with 1.10") == 1


def test_importing_accelsk_asks_for_no_other_version():
    code = (
        "import importlib.metadata as m; asked = []; version = m.version\n"
        "m.version = lambda name: asked.append(name) or version(name)\n"
        "import sklearn; asked.clear(); import accelsk; print(asked)"
    )
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert result.stdout.strip() == "[]"


def _fake_cuml(monkeypatch, version="26.10.00", **modules):
    """Put a cuML with these submodules in the place of the real one, and a GPU with it."""
    cuml = types.ModuleType("cuml")
    cuml.__path__ = []
    cuml.__version__ = version
    for name in [name for name in sys.modules if name.startswith("cuml.")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "cuml", cuml)
    for name, attributes in modules.items():
        module = types.ModuleType(f"cuml.{name}")
        module.__dict__.update(attributes)
        monkeypatch.setitem(sys.modules, f"cuml.{name}", module)
    monkeypatch.setattr(probe, "unusable", lambda: None)
    monkeypatch.setattr(CumlEngine, "_loaded", {})


@pytest.fixture
def engine():
    yield _engine
    vars(_engine).pop("_missing", None)


def _fit():
    with accelsk.profile(quiet=True) as results:
        model = Mine().fit(X, Y)
        model.predict(X)
    np.testing.assert_array_equal(model.coef_, Plain().fit(X, Y).coef_)
    return results.method_calls["Plain.fit"]


@pytest.mark.parametrize("modules", [{}, {"linear_model": {"Other": object}}])
def test_a_cuml_without_a_class_costs_that_class_its_gpu(monkeypatch, engine, modules):
    _fake_cuml(monkeypatch, **modules)
    stats = _fit()
    assert stats.cpu_calls == 1
    assert stats.fallback_reasons == {"the installed cuML has no linear_model.Mine"}
    assert engine.unusable() == "the installed cuML has no linear_model.Mine"
    assert _OtherOnCuml().unusable() is None


def test_the_reason_stands_in_the_plan_from_then_on(monkeypatch, engine):
    _fake_cuml(monkeypatch)
    _fit()
    assert accelsk.explain(Mine(), X, Y).reasons == ("the installed cuML has no linear_model.Mine",)


def test_a_private_name_of_cuml_that_has_moved_costs_a_fallback(monkeypatch, engine):
    _fake_cuml(monkeypatch, linear_model={"Mine": type("Mine", (), {})})
    stats = _fit()
    assert stats.cpu_calls == 1
    (reason,) = stats.fallback_reasons
    assert "cuml.internals" in reason


_WITHOUT = """
import importlib, warnings
module, name = {module!r}, {name!r}
delattr(importlib.import_module(module), name)
import accelsk
from accelsk.device import probe
from accelsk.support import import_accelerated
from accelsk.linear_model import Ridge

print(set(import_accelerated()) <= {{"hdbscan", "umap"}})
probe.unusable = lambda: None
with accelsk.profile(quiet=True) as results:
    Ridge().fit([[0.0], [1.0], [3.0]], [0.0, 1.0, 2.0]).predict([[2.0]])
print(all(stats.fallback_reasons for stats in results.method_calls.values()))
"""


@pytest.mark.parametrize(
    ("module", "name"),
    [
        ("sklearn.neighbors._kd_tree", "kernel_norm"),
        ("sklearn.utils._set_output", "_get_output_config"),
        ("sklearn.utils.optimize", "_newton_cg"),
    ],
)
def test_a_private_name_of_scikit_learn_that_has_moved_costs_no_import(module, name):
    code = _WITHOUT.format(module=module, name=name)
    if name == "_get_output_config":  # scikit-learn itself has bound it where it needs it
        code = "import sklearn.preprocessing, sklearn.compose, sklearn.pipeline\n" + code
    code = "import sklearn.linear_model, sklearn.neighbors\n" + code
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout.split() == ["True", "True"], done.stderr


def test_an_untested_cuml_is_told_at_its_first_use(monkeypatch, engine, caplog):
    _fake_cuml(monkeypatch, version="28.04.00")
    assert not caplog.records
    _fit()
    _fit()
    assert [r.message for r in caplog.records if r.levelno == logging.WARNING] == [
        "accelsk is tested with cuml 26, not with 28.04.00"
    ]


# Private names of scikit-learn


_SOURCES = sorted(Path(accelsk.__file__).parent.rglob("*.py"))


def _is_module(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except ModuleNotFoundError:  # its parent is no package
        return False


def _is_public(module: str, name: str) -> bool:
    """Whether a public module of scikit-learn's has `name`, of `module`, in its ``__all__``."""
    package = module.partition("._")[0]
    if name.startswith("_") or module == package:
        return not name.startswith("_")
    public = importlib.import_module(package)
    return name in public.__all__ or name in vars(public)  # what is experimental is told so late


def _names_of_scikit_learn(tree: ast.AST) -> Iterator[tuple[str, str]]:
    """Yield the module and the name of whatever is taken from scikit-learn."""
    modules: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            modules.update((a.asname or a.name, a.name) for a in node.names)
        elif isinstance(node, ast.ImportFrom) and not node.level:
            for alias in node.names:
                name = f"{node.module}.{alias.name}"
                if node.module.partition(".")[0] == "sklearn" and _is_module(name):
                    modules[alias.asname or alias.name] = name
                else:
                    yield node.module, alias.name
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            module = modules.get(ast.unparse(node.value))
            if module is not None:
                yield module, node.attr


@pytest.mark.parametrize("path", _SOURCES, ids=lambda path: path.stem)
def test_private_names_of_scikit_learn_stand_in_one_module(path):
    if path.stem == "_sklearn":
        return
    private = {
        f"{module}.{name}"
        for module, name in _names_of_scikit_learn(ast.parse(path.read_text()))
        if module.partition(".")[0] == "sklearn" and not _is_public(module, name)
    }
    dunder = {name for name in private if name.endswith("__")}
    assert not private - dunder


@pytest.mark.parametrize(
    ("code", "private"),
    [
        ("from sklearn.utils import _safe_indexing", True),
        ("from sklearn.ensemble._bagging import MAX_INT", True),
        ("from sklearn.cluster import _spectral\n_spectral.discretize", True),
        ("import sklearn.cluster._spectral as s\ns.discretize", True),
        ("import sklearn.cluster._spectral\nsklearn.cluster._spectral.discretize", True),
        ("from sklearn.linear_model._ridge import Ridge", False),
        ("from sklearn.linear_model import _ridge\n_ridge.Ridge", False),
        ("from sklearn.utils.validation import check_is_fitted", False),
    ],
)
def test_a_private_name_is_told_from_a_public_one(code, private):
    found = [not _is_public(*name) for name in _names_of_scikit_learn(ast.parse(code))]
    assert any(found) == private


@pytest.mark.parametrize("name", sorted(_sklearn.PRIVATE))
def test_a_declared_private_name_is_where_it_is_declared(name):
    private = _sklearn.PRIVATE[name]
    if private.installed:
        assert callable(private.find()) or not private.called
        assert not _is_public(private.module, private.name)


def test_the_declared_releases_are_tested_ones():
    first, last = versions.TESTED["scikit-learn"]
    for private in _sklearn.PRIVATE.values():
        assert first <= private.first <= private.last <= last, private


def test_only_declared_private_names_are_used_and_each_of_them_is():
    used = set()
    for path in _SOURCES:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and node.module == "accelsk._sklearn":
                used.update(alias.name for alias in node.names)
            elif isinstance(node, ast.Attribute) and ast.unparse(node.value) == "_sklearn":
                used.add(node.attr)
            elif isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant):
                used.update({node.slice.value} if ast.unparse(node.value) == "PRIVATE" else ())
    declared = set(_sklearn.PRIVATE)
    assert declared <= used
    assert used - declared <= set(_sklearn.__all__)


def test_importing_a_class_looks_no_private_name_up():
    code = (
        "from accelsk import _sklearn; found = []\n"
        "_sklearn.Private.find = lambda self: found.append(self.name)\n"
        "from accelsk.linear_model import Ridge; print(found)"
    )
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert result.stdout.strip() == "[]"
