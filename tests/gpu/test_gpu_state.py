"""One truth: what a method answers with is what the fitted attributes and hyperparameters say."""

from __future__ import annotations

import copy
import pickle
import subprocess
import sys
import warnings
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from class_cases import Case, all_classes, case_of
from gpu_oracle import Raised, assert_same, assert_same_methods, fitted_names, original, outcomes
from parameter_options import options
from sklearn.base import clone
from test_gpu_every_class import every_class, fit, fits_on_gpu

import accelsk

pytestmark = pytest.mark.gpu


def methods_of(est: Any, data: Any) -> dict[str, Any]:
    with accelsk.config_context(on_fallback="log"):
        return outcomes(est, data)


def assert_agrees(est: Any, plain: Any, data: Any, case: Case) -> None:
    """Assert that the methods answer as those of scikit-learn's estimator in the same state."""
    assert_same_methods(methods_of(est, data), outcomes(plain, data), case)


def fit_in_scikit_learn(est: Any, data: Any) -> None:
    with accelsk.config_context(device="cpu"):
        fit(est, data)


@every_class
def test_a_fit_that_falls_back_replaces_the_device_model(cls: Any) -> None:
    case = case_of(cls)
    first, second = case.data(), case.data(5)
    actual, expected = cls(**case.parameters), original(cls, case)
    fit(actual, first)
    methods_of(actual, first)
    fit_in_scikit_learn(actual, second)
    fit(expected, second)
    assert_agrees(actual, expected, second, case)
    for name in fitted_names(expected):
        assert_same(getattr(actual, name), getattr(expected, name), 1e-9, name)


@every_class
def test_a_fit_on_the_gpu_replaces_one_in_scikit_learn(cls: Any) -> None:
    case = case_of(cls)
    first, second = case.data(), case.data(5)
    actual = cls(**case.parameters)
    fit_in_scikit_learn(actual, first)
    methods_of(actual, first)
    fit(actual, second)
    fresh = cls(**case.parameters)
    fit(fresh, second)
    results = methods_of(actual, second)
    values = not case.approximate
    assert_same_methods(results, methods_of(fresh, second), case, values=values)
    assert_agrees(copy.copy(actual), accelsk.to_sklearn(actual), second, case)


@every_class
def test_a_model_of_scikit_learns_answers_on_the_gpu(cls: Any, on_gpu: Any) -> None:
    case = case_of(cls)
    data = case.data()
    expected = original(cls, case)
    fit(expected, data)
    actual = accelsk.from_sklearn(copy.deepcopy(expected))
    assert type(actual) is cls
    assert_agrees(actual, expected, data, case)
    fit(cls(**case.parameters), data)  # a class may have no method but fit


@every_class
def test_assigned_and_edited_attributes_count(cls: Any, on_gpu: Any) -> None:
    on_gpu.expected = fits_on_gpu(cls)
    case = case_of(cls)
    data = case.data()
    base = cls(**case.parameters)
    fit(base, data)
    plain = accelsk.to_sklearn(copy.copy(base))
    names = [
        name
        for name, value in vars(plain).items()
        if name.endswith("_")
        and name[0] != "_"
        and isinstance(value, np.ndarray)
        and value.dtype.kind == "f"
    ]
    for name in names:
        assert_changes_count(plain, data, case, partial(_assign, name))
        assert_changes_count(plain, data, case, partial(_edit, name))


def assert_changes_count(plain: Any, data: Any, case: Case, change: Any) -> None:
    expected = copy.deepcopy(plain)
    change(expected)
    actual = accelsk.from_sklearn(copy.deepcopy(plain))
    methods_of(actual, data)
    change(actual)
    assert_agrees(actual, expected, data, case)


def _assign(name: str, est: Any) -> None:
    setattr(est, name, getattr(est, name) * 1.5)


def _edit(name: str, est: Any) -> None:
    getattr(est, name)[...] *= 1.5


@every_class
def test_an_attribute_edited_after_a_fit_on_the_gpu_counts(cls: Any) -> None:
    case = case_of(cls)
    data = case.data()
    actual = cls(**case.parameters)
    fit(actual, data)
    methods_of(actual, data)
    for fetched in (False, True):  # some attributes are at hand before they are fetched
        if fetched:
            assert fitted_names(actual)
        for name, value in vars(actual).items():
            if name.endswith("_") and _is_editable(value):
                value *= 1.25
        results = methods_of(actual, data)
        assert_same_methods(results, outcomes(plain_of(actual), data), case)


def _is_editable(value: Any) -> bool:
    return isinstance(value, np.ndarray) and value.dtype.kind == "f" and value.flags.writeable


def plain_of(est: Any) -> Any:
    return accelsk.to_sklearn(copy.copy(est))


@every_class
def test_a_hyperparameter_set_after_the_fit_counts(cls: Any) -> None:
    case = case_of(cls)
    data = case.data()
    actual = cls(**case.parameters)
    fit(actual, data)
    results = methods_of(actual, data)
    plain = accelsk.to_sklearn(copy.copy(actual))
    for parameter, value in options(cls._accelsk_original):
        before = getattr(plain, parameter)
        ties = f"{parameter}={value!r}" in case.inexact_parameters
        if _no_bearing(parameter) or parameter in case.unsettable or ties:
            continue
        for est in (actual, plain):
            est.set_params(**{parameter: copy.deepcopy(value)})
        try:
            assert_agrees(actual, plain, data, case)
        except AssertionError as error:
            raise AssertionError(f"after {parameter}={value!r}: {error}") from error
        for est in (actual, plain):
            est.set_params(**{parameter: before})
    assert_same_methods(methods_of(actual, data), results, case)


def _no_bearing(parameter: str) -> bool:
    """Whether a hyperparameter concerns the course of a computation only, by its name."""
    return parameter in ("n_jobs", "verbose", "copy", "copy_X", "working_memory", "cache_size")


@every_class
def test_a_refit_that_raises_leaves_what_scikit_learn_leaves(cls: Any) -> None:
    case = case_of(cls)
    data = case.data()
    if data.X is None:
        bad = (np.ones((3, 2, 2)),)
    else:
        X = data.X.astype(np.float64)
        X[3, 1] = np.nan
        bad = (X, data.y[:-1])
    actual = cls(**case.parameters)
    fit(actual, data)
    plain = accelsk.to_sklearn(copy.copy(actual))
    raised = []
    for est in (actual, plain):
        try:
            with warnings.catch_warnings(), accelsk.config_context(on_fallback="log"):
                warnings.simplefilter("ignore")
                est.fit(*bad)
            raised.append(None)
        except Exception as error:
            raised.append(Raised(type(error), str(error)))
    assert raised[0] == raised[1]
    assert_agrees(actual, plain, data, case)


@every_class
def test_copies_are_independent(cls: Any) -> None:
    case = case_of(cls)
    data = case.data()
    actual = cls(**case.parameters)
    fit(actual, data)
    results = methods_of(actual, data)
    duplicate = copy.deepcopy(actual)
    assert_same_methods(methods_of(duplicate, data), results, case)
    fit(duplicate, case.data(5))
    assert_same_methods(methods_of(actual, data), results, case)
    assert not fitted_names(clone(actual)) or data.X is None or not vars(clone(actual)).get("coef_")


_LOAD = """
import pickle, sys, warnings
sys.path[:0] = {path!r}
warnings.simplefilter("ignore")
import accelsk
from gpu_oracle import outcomes
accelsk.set_config(device="gpu")  # as in the process that fitted them
with open(sys.argv[1], "rb") as file:
    models = pickle.load(file)
found = {{}}
for key, (model, data) in models.items():
    with accelsk.profile(quiet=True) as results:
        answers = outcomes(model, data)
    gpu = sum(stats.gpu_calls for stats in results.method_calls.values())
    found[key] = type(model).__module__, gpu, answers
with open(sys.argv[2], "wb") as file:
    pickle.dump(found, file)
"""


@pytest.fixture(scope="module")
def loaded_elsewhere(tmp_path_factory: Any) -> dict[str, Any]:
    """Every fitted model pickled here, and what it answers in a fresh process."""
    models, here = {}, {}
    with accelsk.config_context(device="gpu"):
        for key, cls in all_classes().items():
            case = case_of(cls)
            model = cls(**case.parameters)
            fit(model, case.data())
            models[key] = (model, case.data())
            with accelsk.profile(quiet=True) as results:
                answers = methods_of(model, case.data())
            gpu = sum(stats.gpu_calls for stats in results.method_calls.values())
            here[key] = (gpu, answers)
    folder = tmp_path_factory.mktemp("pickles")
    source, target = folder / "models", folder / "answers"
    source.write_bytes(pickle.dumps(models))
    script = _LOAD.format(path=[str(Path(__file__).parent), *sys.path])
    subprocess.run([sys.executable, "-c", script, source, target], check=True, timeout=120)
    there = pickle.loads(target.read_bytes())
    return {key: (here[key], there[key]) for key in models}


@pytest.mark.xdist_group("pickles")  # the fixture is for one process
@pytest.mark.parametrize("key", all_classes())
def test_a_pickle_answers_on_the_gpu_in_a_fresh_process(
    key: str, loaded_elsewhere: Any, on_gpu: Any
) -> None:
    on_gpu.expected = False  # the calls were made by the fixture and in the other process
    cls = all_classes()[key]
    (gpu_here, here), (module, gpu_there, there) = loaded_elsewhere[key]
    assert module == cls.__module__
    assert gpu_there == gpu_here
    assert_same_methods(there, here, case_of(cls))
