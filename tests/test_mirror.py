"""Every public module of scikit-learn is importable from accelsk, with the same names."""

import importlib
import inspect
import pickle
import pkgutil
import subprocess
import sys
import warnings

import pytest
import sklearn

import accelsk
from accelsk import registry

#: Packages that are no API: bundled libraries and data files.
_NO_API = ("sklearn.externals.", "sklearn.datasets.")


def _public_modules():
    for module in pkgutil.walk_packages(sklearn.__path__, "sklearn.", onerror=lambda name: None):
        parts = module.name.split(".")
        private = any(part[0] == "_" or part in ("tests", "conftest") for part in parts)
        if not private and not module.name.startswith(_NO_API):
            yield module.name.partition(".")[2]


MODULES = sorted(_public_modules())


def _import_pair(module):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # enable_hist_gradient_boosting says that it is no-op
        return (
            importlib.import_module(f"sklearn.{module}"),
            importlib.import_module(f"accelsk.{module}"),
        )


def _public_names(module):
    """Return the public names of a scikit-learn module, without submodules imported so far."""
    listed = getattr(module, "__all__", None)
    return listed or [
        name
        for name in dir(module)
        if name[0] != "_"
        and getattr(getattr(module, name), "__package__", None) != f"{module.__name__}.{name}"
        and getattr(getattr(module, name), "__name__", None) != f"{module.__name__}.{name}"
    ]


def _run(code):
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=120
    )


def _on_record():
    """Return what accelsk has of its own, by original."""
    functions: dict = registry.accelerated_functions()
    return {**functions, **registry.accelerated_classes(), **registry.composite_classes()}


@pytest.mark.parametrize("module", MODULES)
def test_every_name_of_a_public_module_is_scikit_learns_or_accelerated(module):
    original, mirrored = _import_pair(module)
    for name in _public_names(original):
        theirs, ours = getattr(original, name), getattr(mirrored, name)
        if inspect.ismodule(theirs) and f"{module}.{name}" in MODULES:
            assert ours is importlib.import_module(f"{mirrored.__name__}.{name}")
        elif ours is not theirs:
            assert _on_record().get(theirs) is ours, f"accelsk.{module}.{name} is neither"


@pytest.mark.parametrize("module", MODULES)
def test_all_and_dir_list_what_scikit_learn_lists(module):
    original, mirrored = _import_pair(module)
    # submodules are attributes once somebody has imported them
    names = {name for name in _public_names(original) if f"{module}.{name}" not in MODULES}
    assert names <= set(mirrored.__all__)
    assert names <= set(dir(mirrored))


@pytest.mark.parametrize("module", MODULES)
def test_a_module_is_a_file_and_says_what_it_is(module):
    _, mirrored = _import_pair(module)
    assert mirrored.__spec__.origin == mirrored.__file__
    assert inspect.getsource(mirrored)
    assert mirrored.__doc__.startswith(f"`sklearn.{module}`")


def test_the_package_hands_out_what_scikit_learn_does():
    own = {"get_config", "set_config", "config_context"}
    for name in sklearn.__all__:
        theirs, ours = getattr(sklearn, name), getattr(accelsk, name)
        if inspect.ismodule(theirs):
            assert ours is importlib.import_module(f"accelsk.{name}")
        else:
            assert (ours is theirs) == (name not in own), name
    assert set(sklearn.__all__) <= set(dir(accelsk))


def test_private_names_are_there_too():
    from sklearn.utils.validation import _check_sample_weight

    import accelsk.utils.validation

    assert accelsk.utils.validation._check_sample_weight is _check_sample_weight


def test_a_missing_name_is_an_attribute_error_that_names_the_module():
    with pytest.raises(AttributeError, match=r"module 'accelsk\.metrics' has no attribute 'nope'"):
        _ = accelsk.metrics.nope
    with pytest.raises(AttributeError, match="module 'accelsk' has no attribute 'nope'"):
        _ = accelsk.nope


@pytest.mark.parametrize(
    "line",
    [
        "from accelsk.metrics import accuracy_score",
        "import accelsk.metrics as m; m.accuracy_score",
        "import accelsk; accelsk.metrics.pairwise.euclidean_distances",
        "from accelsk import datasets; datasets.load_iris",
        "from accelsk.metrics.pairwise import rbf_kernel",
        "from accelsk.feature_extraction.text import TfidfVectorizer",
        "from accelsk.base import BaseEstimator, clone",
        "from accelsk.exceptions import NotFittedError, FallbackError",
        "from accelsk.metrics import *; accuracy_score",
        "import accelsk.utils.estimator_checks",
        "from accelsk.experimental import enable_iterative_imputer; "
        "from accelsk.impute import IterativeImputer",
        "import accelsk.impute; import accelsk.experimental.enable_iterative_imputer; "
        "accelsk.impute.IterativeImputer; assert 'IterativeImputer' in accelsk.impute.__all__",
    ],
)
def test_import_lines_work_in_a_fresh_process(line):
    result = _run(line)
    assert result.returncode == 0, result.stderr


def test_an_experimental_class_that_is_not_enabled_gives_scikit_learns_error():
    result = _run("from accelsk.impute import IterativeImputer")
    assert "enable_iterative_imputer" in result.stderr


def test_a_module_imports_no_other_part_of_scikit_learn_than_its_original():
    code = "import sys, {0}; print(sorted(m for m in sys.modules if m.startswith('sklearn.')))"
    plain = _run(code.format("sklearn.utils.metaestimators, sklearn.dummy"))
    mirrored = _run(code.format("accelsk.dummy"))
    assert set(eval(mirrored.stdout)) <= set(eval(plain.stdout))


def test_what_comes_through_a_mirror_pickles_as_scikit_learns():
    from accelsk.dummy import DummyClassifier

    assert b"accelsk" not in pickle.dumps(DummyClassifier())
