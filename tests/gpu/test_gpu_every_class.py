"""Each accelerated class fitted on the device, against scikit-learn's."""

from __future__ import annotations

import copy
import warnings
from typing import Any

import numpy as np
import pytest
from class_cases import all_classes, case_of, not_imported
from gpu_oracle import assert_same, assert_same_methods, fitted_names, original, outcomes

import accelsk
from accelsk.dispatch import method_of

pytestmark = pytest.mark.gpu


def _parameter(key: str, cls: Any) -> Any:
    # umap-learn compiles at its first call: once is enough
    marks = [pytest.mark.xdist_group("umap")] if key.startswith("umap") else []
    return pytest.param(cls, id=key, marks=marks)


every_class = pytest.mark.parametrize(
    "cls", [_parameter(key, cls) for key, cls in all_classes().items()]
)


def fits_on_gpu(cls: Any) -> bool:
    """Whether an engine runs the fit; some classes only transform there."""
    return any("fit" in engine.methods for engine in cls._accelsk_engines)


def fit(est: Any, data: Any, method: str = "fit") -> Any:
    """Call a method that fits and return what it returns."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        arguments = (data.y,) if data.X is None else (data.X, data.y)
        return getattr(est, method)(*arguments)


def test_modules_import_unless_an_optional_package_is_missing(on_gpu: Any) -> None:
    on_gpu.expected = False
    assert set(not_imported) <= {"umap", "hdbscan"}, not_imported


@every_class
def test_fitted_attributes_equal_scikit_learns(cls: Any, on_gpu: Any) -> None:
    on_gpu.expected = fits_on_gpu(cls)
    case = case_of(cls)
    data = case.data()
    actual, expected = cls(**case.parameters), original(cls, case)
    fit(actual, data)
    fit(expected, data)
    names = [name for name in fitted_names(expected) if name not in case.absent]
    assert set(fitted_names(actual)) - set(case.absent) == set(names)
    for name in names:
        exact = not case.approximate and name not in case.vague
        left, right = getattr(actual, name), getattr(expected, name)
        assert_same(left, right, case.rtol, name, values=exact, shape=name not in case.vague)
    missing = set(vars(expected)) - set(vars(actual)) - set(case.absent)
    assert not missing, f"methods of scikit-learn may need {missing}"


def _plain(value: Any) -> bool:
    return value is None or isinstance(value, (str, bool, int, float, np.generic))


@every_class
def test_private_values_equal_scikit_learns(cls: Any, on_gpu: Any) -> None:
    """What scikit-learn's own methods, and its tests, read beside the fitted attributes."""
    on_gpu.expected = fits_on_gpu(cls)
    case = case_of(cls)
    actual, expected = cls(**case.parameters), original(cls, case)
    fit(actual, case.data())
    fit(expected, case.data())
    for name, value in vars(expected).items():
        if name.endswith("_") or name in case.absent or not _plain(value):
            continue
        found = getattr(actual, name)
        assert type(found) is type(value), name
        if isinstance(value, (float, np.floating)) and not case.approximate:
            assert found == pytest.approx(value, rel=case.rtol), name
        elif not isinstance(value, (float, np.floating, int, np.integer)):
            assert found == value, name


@every_class
def test_methods_equal_scikit_learns(cls: Any) -> None:
    case = case_of(cls)
    data = case.data()
    actual, expected = cls(**case.parameters), original(cls, case)
    fit(actual, data)
    fit(expected, data)
    with accelsk.config_context(on_fallback="log"):
        results = outcomes(actual, data)
    assert_same_methods(results, outcomes(expected, data), case, values=not case.approximate)


@every_class
def test_methods_agree_with_the_fitted_attributes(cls: Any) -> None:
    case = case_of(cls)
    data = case.data()
    actual = cls(**case.parameters)
    fit(actual, data)
    with accelsk.config_context(on_fallback="log"):
        results = outcomes(actual, data)
    plain = accelsk.to_sklearn(copy.copy(actual))
    assert_same_methods(results, outcomes(plain, data), case)


@every_class
def test_every_dispatched_method_runs_on_the_gpu(cls: Any) -> None:
    case = case_of(cls)
    data = case.data()
    names = {name for engine in cls._accelsk_engines for name in engine.methods}
    for name in [name for name in names if name.startswith("fit")]:
        fit(cls(**case.parameters), data, name)
    actual = cls(**case.parameters)
    fit(actual, data)
    with accelsk.profile(quiet=True) as results, accelsk.config_context(on_fallback="log"):
        outcomes(actual, data)
    for name in names:
        if method_of(cls, name) is None or name.startswith("fit") or not hasattr(actual, name):
            continue
        stats = results.method_calls.get(f"{cls._accelsk_original.__name__}.{name}")
        if stats is not None:
            # scikit-learn rejects some of the calls
            rejected = sum(stats.errors.values())
            assert stats.cpu_calls == rejected, f"{name}: {stats.fallback_reasons}"


@every_class
def test_fit_predict_and_fit_transform_equal_scikit_learns(cls: Any) -> None:
    case = case_of(cls)
    data = case.data()
    names = [n for n in ("fit_predict", "fit_transform") if hasattr(cls(**case.parameters), n)]
    if not names:
        fit(cls(**case.parameters), data)
    for name in names:
        actual = fit(cls(**case.parameters), data, name)
        expected = fit(original(cls, case), data, name)
        exact = not case.approximate and not case.vague
        assert_same(actual, expected, case.rtol, name, values=exact)


@every_class
def test_float32_stays_float32_where_it_does_in_scikit_learn(cls: Any) -> None:
    case = case_of(cls)
    data = case.data()
    if data.X is None:
        pytest.skip("takes labels only")
    data = data._replace(X=data.X.astype(np.float32), new=data.new.astype(np.float32))
    actual, expected = cls(**case.parameters), original(cls, case)
    fit(actual, data)
    fit(expected, data)
    with accelsk.config_context(on_fallback="log"):
        results = outcomes(actual, data)
    assert_same_methods(results, outcomes(expected, data), case, values=False)
    for name in set(fitted_names(expected)) - set(case.absent):
        left, right = getattr(actual, name), getattr(expected, name)
        assert_same(left, right, case.rtol, name, values=False, shape=name not in case.vague)
    if case.approximate:
        return
    # the truth is what float64 gives for the same numbers: float32 may be off in scikit-learn
    exact = data._replace(X=data.X.astype(np.float64), new=data.new.astype(np.float64))
    truth = original(cls, case)
    fit(truth, exact)
    for name, value in outcomes(truth, exact).items():
        if isinstance(value, np.ndarray) and value.dtype.kind == "f":
            np.testing.assert_allclose(
                results[name], value, rtol=1e-3, atol=1e-3 * np.abs(value).max(), err_msg=name
            )


@every_class
def test_the_same_seed_gives_the_same_result(cls: Any, on_gpu: Any) -> None:
    case = case_of(cls)
    data = case.data()
    with on_gpu.allowed(), accelsk.config_context(reproducible=True):
        first, second = (cls(**case.parameters) for _ in range(2))
        fit(first, data)
        fit(second, data)
        assert_same_methods(outcomes(first, data), outcomes(second, data), case)
        for name in set(fitted_names(first)) - set(case.absent):
            assert_same(getattr(first, name), getattr(second, name), 1e-12, name)
    on_gpu.expected = False
