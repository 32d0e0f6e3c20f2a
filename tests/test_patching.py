"""`patch` and `unpatch`: what they change, and that nothing else does."""

from __future__ import annotations

import copy
import copyreg
import os
import pickle
import subprocess
import sys
import threading
import types
from pathlib import Path

import joblib
import pytest
import sklearn
import sklearn.cluster
import sklearn.ensemble
import sklearn.linear_model
import sklearn.naive_bayes
import sklearn.pipeline
import sklearn.svm
from sklearn.base import clone

import accelsk
import accelsk.linear_model
from accelsk import _names, patching, registry
from accelsk.estimator import STANDING, Accelerated, Counterpart

ROOT = Path(__file__).parent.parent

#: Where `patch` does not reach them: names of this module would be replaced.
PLAIN = types.SimpleNamespace(
    Ridge=sklearn.linear_model.Ridge,
    GaussianNB=sklearn.naive_bayes.GaussianNB,
    Pipeline=sklearn.pipeline.Pipeline,
)
_LINES = ([[0.0], [1.0], [2.0]], [0.0, 1.0, 2.0])


def _ours(cls):
    # not `issubclass`, which is true of originals while they are patched
    return isinstance(cls, type) and Counterpart in cls.__mro__


def _everything():
    """Return each name of each module of scikit-learn's that is loaded."""
    return {
        (path, name): value
        for path, module in list(sys.modules.items())
        if path.partition(".")[0] == "sklearn" and isinstance(module, types.ModuleType)
        for name, value in list(vars(module).items())
        if isinstance(value, (type, types.FunctionType))
    }


@pytest.fixture(autouse=True)
def _nothing_is_left():
    before = _everything(), dict(copyreg.dispatch_table), list(sys.meta_path)
    yield
    accelsk.unpatch()
    after = _everything()
    assert {key for key, value in before[0].items() if after.get(key) is not value} == set()
    assert [key for key, value in after.items() if _ours(value)] == []
    assert before[1:] == (dict(copyreg.dispatch_table), list(sys.meta_path))
    assert not STANDING
    assert "ACCELSK_ENABLED" not in os.environ
    assert not accelsk.is_patched()


@pytest.fixture
def user(monkeypatch):
    """A module of a user's that has imported a class already."""
    module = types.ModuleType("somebodys_module")
    exec(
        "from sklearn.linear_model import Ridge\nfrom sklearn.svm import SVC as Machine",
        vars(module),
    )
    monkeypatch.setitem(sys.modules, module.__name__, module)
    return module


def _run(code, *arguments, **environment):
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments],
        env={**os.environ, "PYTHONPATH": str(ROOT), **environment},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


# All and some


def test_every_counterpart_stands_under_its_public_name():
    accelsk.patch()
    classes = registry.accelerated_classes() | registry.composite_classes()
    for original, ours in classes.items():
        if original.__module__.startswith("sklearn."):
            path = _names.public_path(original)
            module, _, name = path.rpartition(".")
            assert getattr(sys.modules[module], name) is ours, path
            assert getattr(sys.modules[original.__module__], name) in (ours, original)
    for original, ours in registry.accelerated_functions().items():
        module, _, name = _names.public_path(original).rpartition(".")
        assert getattr(sys.modules[module], name) is ours


def test_every_module_with_counterparts_is_imported():
    code = """
import importlib, pkgutil, warnings
warnings.simplefilter("ignore")
import accelsk
from accelsk import _names, patching, registry
def found():
    return {*registry.accelerated_classes(), *registry.composite_classes(),
            *registry.accelerated_functions()}
patching._import(None)
known = found()
for module in pkgutil.walk_packages(accelsk.__path__, "accelsk.", onerror=lambda name: None):
    if not module.name.endswith(("__main__", "accelsk.umap", "accelsk.hdbscan", "_halving")):
        try:
            importlib.import_module(module.name)
        except ImportError:
            pass
print(sorted(_names.public_path(o) for o in found() - known))
"""
    assert _run(code) == "[]\n"


@pytest.mark.parametrize(
    ("chosen", "patched"),
    [
        ("Ridge", {"sklearn.linear_model.Ridge"}),
        (PLAIN.Ridge, {"sklearn.linear_model.Ridge"}),
        (accelsk.linear_model.Ridge, {"sklearn.linear_model.Ridge"}),
        ("linear_model.Ridge", {"sklearn.linear_model.Ridge"}),
        ("sklearn.linear_model.Ridge", {"sklearn.linear_model.Ridge"}),
        (["SVC", "sklearn.svm.SVR"], {"sklearn.svm.SVC", "sklearn.svm.SVR"}),
        ("random_projection", None),
        ("sklearn.random_projection", None),
    ],
)
def test_some_are_patched(chosen, patched):
    result = accelsk.patch(chosen)
    if patched is None:
        names = ("GaussianRandomProjection", "SparseRandomProjection")
        patched = {f"sklearn.random_projection.{name}" for name in names}
    assert set(result.patched) == patched
    others = {
        ours for ours in STANDING if _names.public_path(ours._accelsk_original) not in patched
    }
    assert not others
    assert set(os.environ["ACCELSK_ENABLED"].split(",")) == patched


@pytest.mark.parametrize(
    "unknown",
    ["Rigde", "linear_modle", "sklearn.dummy", "", sklearn.linear_model.SGDRegressor],
)
def test_unknown_names_change_nothing(unknown):
    with pytest.raises(ValueError, match="names nothing"):
        accelsk.patch(["Ridge", unknown])
    assert sklearn.linear_model.Ridge is PLAIN.Ridge
    assert not accelsk.is_patched()


@pytest.mark.parametrize("odd", [3, None, b"Ridge", sklearn.linear_model])
def test_what_is_no_name_is_a_type_error_and_changes_nothing(odd):
    with pytest.raises(TypeError, match="classes, functions or names of them, got"):
        accelsk.patch(["Ridge", odd])
    assert sklearn.linear_model.Ridge is PLAIN.Ridge
    assert not accelsk.is_patched()


@pytest.mark.parametrize(
    ("typed", "meant"), [("Rigde", "Ridge"), ("sklearn.linear_modle", "sklearn.linear_model")]
)
def test_unknown_name_is_told_what_it_is_like(typed, meant):
    with pytest.raises(ValueError, match=f"has a counterpart of: is '{meant}' meant"):
        accelsk.patch(typed)


def test_an_error_halfway_changes_nothing(monkeypatch, user):
    made = []

    def failing(change, make=_names.Change.make):
        if len(made) == 20:
            raise MemoryError("halfway")
        made.append(change)
        make(change)

    monkeypatch.setattr(_names.Change, "make", failing)
    with pytest.raises(MemoryError, match="halfway"):
        accelsk.patch()
    assert user.Ridge is PLAIN.Ridge
    assert not any(_ours(value) for value in _everything().values())
    monkeypatch.undo()


def test_a_second_time_changes_nothing_more():
    first, second = accelsk.patch(), accelsk.patch()
    assert first.patched
    assert second == patching.PatchResult()
    accelsk.unpatch()
    accelsk.unpatch()


def test_more_can_be_added():
    accelsk.patch("Ridge")
    result = accelsk.patch()
    assert "sklearn.linear_model.Ridge" not in result.patched
    assert "sklearn.linear_model.Lasso" in result.patched
    assert os.environ["ACCELSK_ENABLED"] == "1"


def test_with_block_takes_back_what_it_did_and_nothing_else():
    accelsk.patch("Ridge")
    with accelsk.patched("svm"):
        assert _ours(sklearn.svm.SVC)
    assert not _ours(sklearn.svm.SVC)
    assert _ours(sklearn.linear_model.Ridge)
    assert os.environ["ACCELSK_ENABLED"] == "sklearn.linear_model.Ridge"


def test_blocks_may_overlap():
    with accelsk.patched("Ridge"):
        accelsk.patch()
    assert _ours(sklearn.linear_model.Ridge)
    assert os.environ["ACCELSK_ENABLED"] == "1"
    with accelsk.patched("Ridge") as result:
        assert result.patched == ()
    assert _ours(sklearn.linear_model.Ridge)


def test_children_are_told_afterwards_what_they_were_told_before(monkeypatch):
    monkeypatch.setenv("ACCELSK_ENABLED", "svm")
    with accelsk.patched("Ridge"):
        assert os.environ["ACCELSK_ENABLED"] == "sklearn.linear_model.Ridge"
    assert os.environ["ACCELSK_ENABLED"] == "svm"
    accelsk.patch("Ridge")
    accelsk.unpatch()
    assert "ACCELSK_ENABLED" not in os.environ


def test_with_block_ends_with_an_error():
    with pytest.raises(ZeroDivisionError), accelsk.patched():
        raise ZeroDivisionError
    assert sklearn.linear_model.Ridge is PLAIN.Ridge


def test_what_was_assigned_since_stays():
    accelsk.patch("Ridge")
    mine = sklearn.linear_model.Ridge = type("Mine", (), {})
    accelsk.unpatch()
    assert sklearn.linear_model.Ridge is mine
    sklearn.linear_model.Ridge = PLAIN.Ridge


# Names that others have


def test_names_of_user_modules_are_replaced_and_put_back(user):
    machine = user.Machine
    result = accelsk.patch()
    assert {"somebodys_module.Ridge", "somebodys_module.Machine"} <= set(result.rebound)
    assert user.Ridge is accelsk.linear_model.Ridge
    assert user.Machine is sklearn.svm.SVC
    accelsk.unpatch()
    assert (user.Ridge, user.Machine) == (PLAIN.Ridge, machine)


def test_names_of_user_modules_stay_if_that_is_asked(user):
    assert accelsk.patch(rebind=False).rebound == ()
    assert user.Ridge is PLAIN.Ridge
    assert _ours(sklearn.linear_model.Ridge)
    with accelsk.patched():
        assert _ours(user.Ridge)
    assert user.Ridge is PLAIN.Ridge


def test_main_is_a_module_of_the_users():
    code = """
from sklearn.linear_model import Ridge
import accelsk
result = accelsk.patch()
assert "__main__.Ridge" in result.rebound
print(Ridge.__module__)
accelsk.unpatch()
print(Ridge.__module__)
"""
    assert _run(code).split() == ["accelsk.linear_model", "sklearn.linear_model._ridge"]


def test_accelerators_and_scikit_learn_keep_what_they_hold(monkeypatch):
    for name in ("cuml.something", "sklearnex.something", "sklearn._something"):
        module = types.ModuleType(name)
        module.Ridge = PLAIN.Ridge
        monkeypatch.setitem(sys.modules, name, module)
    accelsk.patch()
    assert sys.modules["cuml.something"].Ridge is PLAIN.Ridge
    assert sys.modules["sklearnex.something"].Ridge is PLAIN.Ridge
    assert sys.modules["sklearn._something"].Ridge is PLAIN.Ridge


def test_lazy_modules_are_not_loaded(monkeypatch):
    class Lazy(types.ModuleType):
        def __getattribute__(self, name):
            raise AssertionError("it would be loaded")

    monkeypatch.setitem(sys.modules, "lazy_module", Lazy("lazy_module"))
    accelsk.patch("Ridge")


def test_another_patchers_class_is_put_back(monkeypatch, user):
    class Ridge(PLAIN.Ridge):
        """As scikit-learn-intelex has it."""

    monkeypatch.setattr(sklearn.linear_model, "Ridge", Ridge)
    user.Ridge = Ridge
    accelsk.patch()
    assert sklearn.linear_model.Ridge is user.Ridge is accelsk.linear_model.Ridge
    assert accelsk.linear_model.Ridge._accelsk_original is PLAIN.Ridge
    accelsk.unpatch()
    assert sklearn.linear_model.Ridge is user.Ridge is Ridge
    monkeypatch.undo()


def test_what_another_patcher_puts_back_too_late_goes_with_the_next_unpatch():
    accelsk.patch("Ridge")
    found, sklearn.linear_model.Ridge = (
        sklearn.linear_model.Ridge,
        type("Ridge", (PLAIN.Ridge,), {}),
    )
    accelsk.unpatch()
    sklearn.linear_model.Ridge = found  # as the other one found it
    accelsk.unpatch()
    assert sklearn.linear_model.Ridge is PLAIN.Ridge


# Inside of scikit-learn


_IMPORT_ALL_WHILE_PATCHED = """
import importlib, pkgutil, sys, warnings
warnings.simplefilter("ignore")
import sklearn, accelsk
from accelsk.estimator import Counterpart

def ours(value):
    return isinstance(value, type) and Counterpart in value.__mro__

accelsk.patch()
for module in pkgutil.walk_packages(sklearn.__path__, "sklearn.", onerror=lambda name: None):
    if "tests" not in module.name and "externals" not in module.name:
        try:
            importlib.import_module(module.name)
        except ImportError:
            pass
modules = {k: m for k, m in sys.modules.items() if k.partition(".")[0] == "sklearn"}
held = [(k, n) for k, m in modules.items() for n, v in vars(m).items() if ours(v) and "._" in k]
derived = [v for m in modules.values() for v in vars(m).values()
           if ours(v) and not v.__module__.startswith("accelsk")]
print(bool(held), derived)
accelsk.unpatch()

def flat(value, depth=4):
    yield value
    if depth and isinstance(value, dict):
        for pair in list(value.items()):
            yield from flat(pair, depth - 1)
    elif depth and isinstance(value, (list, tuple, set, frozenset)):
        for item in list(value):
            yield from flat(item, depth - 1)
    elif depth and isinstance(value, sklearn.base.BaseEstimator):
        yield from flat(vars(value), depth - 1)

left = [(k, n) for k, m in modules.items() for n, v in list(vars(m).items())
        if n != "__builtins__" and any(ours(x) or isinstance(x, Counterpart) for x in flat(v))]
print(left)
"""


def test_nothing_is_left_in_modules_first_imported_while_patched():
    assert _run(_IMPORT_ALL_WHILE_PATCHED).splitlines()[-2:] == ["True []", "[]"]


def test_searches_that_have_to_be_enabled_are_patched_where_they_are():
    code = """
import accelsk
print(any("Halving" in name for name in accelsk.patch().patched))
from sklearn.experimental import enable_halving_search_cv
print(any("HalvingGridSearchCV" in name for name in accelsk.patch().patched))
accelsk.unpatch()
from sklearn.model_selection import HalvingGridSearchCV
print(HalvingGridSearchCV.__module__)
"""
    there = "sklearn.model_selection._search_successive_halving"
    assert _run(code).split() == ["False", "True", there]


def test_tables_of_classes_get_the_originals_back(monkeypatch):
    module = types.ModuleType("sklearn._tables")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    accelsk.patch("Ridge")
    cls = sklearn.linear_model.Ridge
    module.keys = {int: 0, cls: {"alpha": [1]}, str: 1}
    module.nested = {"a": [cls, (cls, 1)], "b": {cls}}
    module.pipeline = sklearn.pipeline.make_pipeline(cls(alpha=3))
    accelsk.unpatch()
    assert list(module.keys.items()) == [(int, 0), (PLAIN.Ridge, {"alpha": [1]}), (str, 1)]
    assert module.nested == {"a": [PLAIN.Ridge, (PLAIN.Ridge, 1)], "b": {PLAIN.Ridge}}
    assert type(module.pipeline) is PLAIN.Pipeline
    assert type(module.pipeline[0]) is PLAIN.Ridge
    assert module.pipeline[0].alpha == 3


def test_all_estimators_are_the_same():
    from sklearn.utils import all_estimators

    before = [name for name, _ in all_estimators()]
    with accelsk.patched():
        found = all_estimators()
        assert [name for name, _ in found] == before
        standing = {cls for cls in STANDING if cls._accelsk_original.__module__[:7] == "sklearn"}
        assert standing <= {cls for _, cls in found}
    assert [name for name, _ in all_estimators()] == before


def test_estimator_checks_of_scikit_learn_pass():
    from sklearn.utils.estimator_checks import check_estimator

    with accelsk.patched("MinMaxScaler"):
        from sklearn.preprocessing import MinMaxScaler

        check_estimator(MinMaxScaler())


# Instances


@pytest.mark.parametrize("patched", ["Ridge", "StandardScaler", "GaussianNB", "UMAP"])
def test_plain_instances_are_instances_of_the_public_class(patched):
    pairs = registry.accelerated_classes().items()
    (original, ours), *_ = [pair for pair in pairs if pair[0].__name__ == patched] or [(None, None)]
    if original is None:
        pytest.skip("its package is not installed")

    class Derived(original):
        pass

    plain, derived = original(), Derived()
    for _ in range(2):  # abstract classes remember their answers
        assert not isinstance(plain, ours)
        with accelsk.patched([original]):
            assert isinstance(plain, ours)
            assert isinstance(derived, ours)
            assert isinstance(ours(), ours)
            assert issubclass(original, ours)
            assert not isinstance(object(), ours)
            assert not issubclass(dict, ours)
            assert not accelsk.is_proxy(plain)
            assert not isinstance(plain, (Accelerated, Counterpart))
            assert not isinstance(plain, type("Mine", (ours,), {}))
        assert not isinstance(plain, ours)
        assert not issubclass(original, ours)


def test_other_classes_are_told_apart():
    with accelsk.patched():
        from sklearn.linear_model import ElasticNet, Lasso, Ridge

        assert isinstance(Lasso(), ElasticNet)  # as in scikit-learn
        assert not isinstance(ElasticNet(), Lasso)
        assert not isinstance(Ridge(), Lasso)
        assert not isinstance(PLAIN.Ridge(), Lasso)


def test_classes_with_other_metaclasses_can_be_derived():
    from abc import ABC, abstractmethod
    from typing import Generic, Protocol, TypeVar

    T = TypeVar("T")

    class Shape(Protocol):
        def fit(self, X, y): ...

    class Abstract(ABC):
        @abstractmethod
        def fit(self, X, y): ...

    with accelsk.patched():
        from sklearn.preprocessing import StandardScaler

        class Mine(StandardScaler, Shape, Abstract, Generic[T]):
            pass

        assert Mine().fit([[1.0], [2.0]]).mean_ == [1.5]


@pytest.mark.parametrize("cls", [PLAIN.Ridge, PLAIN.GaussianNB, PLAIN.Pipeline])
def test_plain_instances_can_be_copied_and_pickled(cls, tmp_path):
    arguments = ([("step", PLAIN.Ridge())],) if cls is PLAIN.Pipeline else ()
    plain = cls(*arguments)
    with accelsk.patched():
        assert type(copy.copy(plain)) is type(copy.deepcopy(plain)) is type(clone(plain)) is cls
        for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
            assert isinstance(pickle.loads(pickle.dumps(plain, protocol)), cls)
        joblib.dump(plain, tmp_path / "it")
        assert isinstance(joblib.load(tmp_path / "it"), cls)
        assert joblib.hash(plain) == joblib.hash(cls(*arguments))


_LOAD = """
import pickle, sys
class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "accelsk":
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
if sys.argv[2] == "without":
    sys.meta_path.insert(0, Absent())
for model in pickle.load(open(sys.argv[1], "rb")):
    print(type(model).__module__, *model.predict([[1.0]]))
"""


@pytest.mark.parametrize("place", ["with", "without"])
def test_pickles_made_while_patched_load_anywhere(place, tmp_path):
    path = tmp_path / "models"
    plain = PLAIN.GaussianNB().fit(_LINES[0], [0, 1, 1])
    with accelsk.patched():
        ours = [
            sklearn.linear_model.Ridge(alpha=0).fit(*_LINES),
            sklearn.naive_bayes.GaussianNB().fit(_LINES[0], [0, 1, 1]),
        ]
        path.write_bytes(pickle.dumps([*ours, plain]))
    modules = [line.split()[0] for line in _run(_LOAD, str(path), place).splitlines()]
    if place == "with":
        assert modules == ["accelsk.linear_model", "accelsk.naive_bayes", "sklearn.naive_bayes"]
    else:
        assert modules == ["sklearn.linear_model._ridge", *["sklearn.naive_bayes"] * 2]


def test_functions_are_pickled_as_those_of_scikit_learn(tmp_path):
    from sklearn.metrics import make_scorer, mean_squared_error

    plain = {o: (f, f.__module__) for o, f in registry.accelerated_functions().items()}
    with accelsk.patched():
        from sklearn.metrics import mean_squared_error as ours

        scorer = make_scorer(ours)
        blob = pickle.dumps(scorer)
        assert b"accelsk" not in blob
        assert pickle.loads(blob)._score_func is ours
        assert all(pickle.loads(pickle.dumps(f)) is f for f, _ in plain.values())
    assert {o: (f, f.__module__) for o, f in registry.accelerated_functions().items()} == plain
    assert all(pickle.loads(pickle.dumps(f)) is f for f, _ in plain.values())
    assert pickle.loads(blob)._score_func is mean_squared_error


def test_a_metric_is_no_scorer_while_patched():
    with accelsk.patched():
        from sklearn.metrics import check_scoring, f1_score, roc_auc_score

        for metric in (f1_score, roc_auc_score):
            with pytest.raises(ValueError, match="make_scorer"):
                check_scoring(PLAIN.GaussianNB(), scoring=metric)


def test_old_pickles_load_while_patched():
    blobs = [
        pickle.dumps(PLAIN.Ridge().fit(*_LINES)),
        pickle.dumps(PLAIN.GaussianNB().fit(_LINES[0], [0, 1, 1])),
    ]
    with accelsk.patched():
        ridge, bayes = map(pickle.loads, blobs)
        assert isinstance(ridge, sklearn.linear_model.Ridge)
        assert isinstance(bayes, sklearn.naive_bayes.GaussianNB)
        assert list(bayes.predict([[2.0]])) == [1]


# Threads and children


def test_threads_may_patch_at_once():
    errors = []

    def work():
        try:
            for _ in range(5):
                with accelsk.patched(["Ridge", "SVC"]):
                    assert _ours(sklearn.linear_model.Ridge)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert sklearn.linear_model.Ridge is PLAIN.Ridge


def test_package_that_is_not_imported_yet_is_patched_at_its_import(tmp_path):
    for name in ("umap", "hdbscan"):
        pytest.importorskip({"umap": "umap", "hdbscan": "hdbscan"}[name])
    code = """
import sys, accelsk
result = accelsk.patch()
print({"umap", "hdbscan"} & sys.modules.keys(), any("umap" in name for name in result.patched))
import umap
print(umap.UMAP.__module__, "hdbscan" in sys.modules, umap.__spec__.loader.__class__.__name__)
from hdbscan import HDBSCAN
print(HDBSCAN.__module__, [f for f in sys.meta_path if type(f).__module__.startswith("accelsk")])
accelsk.unpatch()
import hdbscan
print(umap.UMAP.__module__, hdbscan.HDBSCAN.__module__)
"""
    lines = _run(code).splitlines()
    assert lines[0] == "set() False"
    assert lines[1].split()[:2] == ["accelsk.umap", "False"]
    assert lines[2] == "accelsk.hdbscan []"
    assert lines[3] == "umap.umap_ hdbscan.hdbscan_"


def test_importing_accelsk_imports_none_of_this():
    code = """
import sys, accelsk
names = ("patching", "_start", "runner", "doctor", "pytest_plugin", "__main__")
print([name for name in names if f"accelsk.{name}" in sys.modules])
"""
    assert _run(code) == "[]\n"


@pytest.mark.parametrize("value", ["0", "off", ""])
def test_unpatch_leaves_an_environment_that_wants_no_patch(value):
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("ACCELSK_ENABLED", value)
        accelsk.unpatch()
        assert os.environ["ACCELSK_ENABLED"] == value
        accelsk.patch("Ridge")
        accelsk.unpatch()
        assert os.environ["ACCELSK_ENABLED"] == value
