"""What holds for every accelerated class, so that a new one is tested the day it is registered."""

import importlib
import inspect
import pickle
import re
import subprocess
import sys
import warnings

import pytest
from class_cases import all_classes, case_of
from comparison import outcome_of
from sklearn.base import clone
from sklearn.utils import get_tags

import accelsk
from accelsk.estimator import _INPUT_NAMES
from accelsk.introspection import BOOKKEEPING, assigned_names

CLASSES = list(all_classes().values())
every_class = pytest.mark.parametrize("cls", CLASSES, ids=list(all_classes()))


def _original(cls):
    return cls._accelsk_original


def _fitted(cls, case):
    """Return the estimator, plain or accelerated, fitted in scikit-learn."""
    data = case.data()
    arguments = (data.y,) if data.X is None else (data.X, data.y)
    with warnings.catch_warnings(), accelsk.config_context(device="cpu"):
        warnings.simplefilter("ignore")
        return cls(**case.parameters).fit(*arguments)


def _public_members(cls):
    return {name: value for name, value in inspect.getmembers(cls) if name[0] != "_"}


def _signature(function):
    """Return the parameters of a function: annotations name the class that has it."""
    parameters = inspect.signature(function).parameters.values()
    return [(p.name, p.kind, repr(p.default)) for p in parameters]


# The class


@every_class
def test_it_can_be_imported_under_the_name_that_it_has(cls):
    module = importlib.import_module(cls.__module__)
    assert getattr(module, cls.__qualname__) is cls
    assert cls.__name__ == _original(cls).__name__


@every_class
def test_signature_and_documentation_are_the_originals(cls):
    original = _original(cls)
    assert cls.__doc__ == original.__doc__
    assert _signature(cls) == _signature(original)
    assert _signature(cls.__init__) == _signature(original.__init__)


@every_class
def test_methods_have_the_originals_signature_and_documentation(cls):
    ours, theirs = _public_members(cls), _public_members(_original(cls))
    assert set(ours) == set(theirs)
    for name, member in theirs.items():
        assert inspect.getdoc(ours[name]) == inspect.getdoc(member), name
        if inspect.isroutine(member):
            assert _signature(ours[name]) == _signature(member), name


@every_class
def test_it_is_a_subclass_of_all_that_the_original_is(cls):
    assert cls is not _original(cls)
    assert all(issubclass(cls, base) for base in _original(cls).__mro__)


def test_accelerated_classes_are_related_as_the_originals_are():
    for child in CLASSES:
        for parent in CLASSES:
            related = issubclass(_original(child), _original(parent))
            assert issubclass(child, parent) == related, (child, parent)


@every_class
def test_an_original_is_no_instance_of_it(cls):
    assert not isinstance(_original(cls)(**case_of(cls).parameters), cls)
    assert accelsk.is_proxy(cls)
    assert not accelsk.is_proxy(_original(cls))


@every_class
def test_engines_run_methods_that_the_original_has(cls):
    for engine in cls._accelsk_engines:
        assert engine.name
        assert engine.methods
        for name in engine.methods:
            assert inspect.getattr_static(_original(cls), name)


# The instance


@every_class
def test_hyperparameters_are_the_originals(cls):
    parameters = case_of(cls).parameters
    ours, theirs = cls(**parameters), _original(cls)(**parameters)
    assert repr(ours.get_params()) == repr(theirs.get_params())
    assert repr(ours) == repr(theirs)
    for name in theirs.get_params(deep=False):
        marker = object()
        assert ours.set_params(**{name: marker}) is ours
        assert ours.get_params(deep=False)[name] is marker
    with pytest.raises(ValueError, match="no_such_parameter"):
        ours.set_params(no_such_parameter=1)


@every_class
def test_a_clone_is_an_unfitted_instance_of_the_same_class(cls):
    fitted = _fitted(cls, case_of(cls))
    copy = clone(fitted)
    assert type(copy) is cls
    assert repr(copy.get_params()) == repr(fitted.get_params())
    assert set(vars(copy)) == set(vars(cls(**case_of(cls).parameters)))


@every_class
def test_tags_are_the_originals(cls):
    parameters = case_of(cls).parameters
    assert get_tags(cls(**parameters)) == get_tags(_original(cls)(**parameters))


@every_class
def test_set_output_is_there_where_it_is_in_the_original(cls):
    parameters = case_of(cls).parameters
    ours, theirs = cls(**parameters), _original(cls)(**parameters)
    assert hasattr(ours, "set_output") == hasattr(theirs, "set_output")


@every_class
def test_metadata_requests_are_the_originals(cls):
    parameters = case_of(cls).parameters
    ours, theirs = cls(**parameters), _original(cls)(**parameters)
    if hasattr(theirs, "get_metadata_routing"):
        # that of `RidgeCV` and its classifier never ends unless routing is enabled
        assert outcome_of(lambda: repr(ours.get_metadata_routing())) == outcome_of(
            lambda: repr(theirs.get_metadata_routing())
        )


# Fitted state


@every_class
def test_all_that_a_fit_sets_is_known_beforehand(cls):
    fitted = _fitted(_original(cls), case_of(cls))
    new = set(vars(fitted)) - set(vars(clone(fitted)))
    assert new <= assigned_names(cls) | _INPUT_NAMES | BOOKKEEPING


@every_class
def test_documented_attributes_are_known_beforehand(cls):
    known = assigned_names(cls) | _INPUT_NAMES | set(cls._get_param_names())
    for name in _documented_attributes(_original(cls)):
        assert name in known or inspect.getattr_static(cls, name, None), name


def _documented_attributes(cls):
    section = re.search(
        r"\n( *)Attributes\n +-{4,}\n(.*?)(\n *\n\1\S[^\n]*\n\1-{3,}|$)", cls.__doc__, re.S
    )
    if section is None:
        return []
    indent = section[1]
    lines = re.findall(rf"^{indent}(\w[\w, ]*?) ?:", section[2], re.M)
    return [name for line in lines for name in line.split(", ")]


def test_documented_attributes_are_found():
    from sklearn.decomposition import PCA

    assert {"components_", "n_features_in_"} <= set(_documented_attributes(PCA))


# Pickles in fresh processes

_LOAD = """
import pickle, sys, warnings
{block}
with open({path!r}, "rb") as stream:
    pickles = pickle.load(stream)
for name, module, data in pickles:
    est = pickle.loads(data)
    assert type(est).__name__ == name.rpartition(".")[2], name
    assert type(est).__module__ == module, (type(est), module)
    assert hasattr(est, "get_params") and not hasattr(est, "_accelsk_state"), name
    print(name)
"""


_WITHOUT_ACCELSK = """
class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "accelsk":
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Absent())
"""


def _load_in_fresh_process(path, block=""):
    code = _LOAD.format(path=str(path), block=block)
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    return result.stdout.split()


@pytest.fixture(scope="module")
def pickles():
    """Return name, class and pickle of each class, fitted."""
    return [
        (name, cls, pickle.dumps(_fitted(cls, case_of(cls)))) for name, cls in all_classes().items()
    ]


def test_pickles_load_as_accelerated_classes(pickles, tmp_path):
    path = tmp_path / "pickles"
    path.write_bytes(pickle.dumps([(name, cls.__module__, data) for name, cls, data in pickles]))
    assert _load_in_fresh_process(path) == list(all_classes())


def test_pickles_load_as_the_originals_without_accelsk(pickles, tmp_path):
    path = tmp_path / "pickles"
    path.write_bytes(
        pickle.dumps([(name, _original(cls).__module__, data) for name, cls, data in pickles])
    )
    assert _load_in_fresh_process(path, _WITHOUT_ACCELSK) == list(all_classes())


def test_every_module_with_accelerated_classes_is_in_the_list():
    from accelsk.support import MODULES, import_accelerated

    found = {cls.__module__.split(".")[1] for cls in CLASSES}
    assert found | set(import_accelerated()) == set(MODULES)
