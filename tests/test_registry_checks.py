"""scikit-learn's own checks of estimators, for every accelerated class."""

import device_double
import pytest
from class_cases import all_classes
from sklearn_checks import checks

from accelsk.device import probe

CHECKS = list(checks())
#: Checks that fail where engines run, and why that is right or has to be (2026-11-30, with
#: scikit-learn 1.6.1 and 1.9.1).
_EXPECTED = {
    ("svm.LinearSVR", "check_regressor_data_not_an_array"): (
        "liblinear, which takes what is not an array, stops short of the minimum"
    ),
}


def _param(check):
    return pytest.param(check, id=f"{check.key}-{check.name}")


def _assert_passed(check):
    error = check.error()
    if error is not None:
        if check.error_of_the_original() is not None:
            pytest.skip(f"scikit-learn's own class does not pass: {error}")
        raise error


@pytest.mark.parametrize("check", [_param(check) for check in CHECKS])
def test_a_check_is_passed_where_engines_fail(check, monkeypatch):
    """Every call is planned, fails on the engine for want of CuPy, and falls back."""
    if probe.unusable() is None:
        pytest.skip("there is a GPU here")
    monkeypatch.setattr(probe, "unusable", lambda: None)
    _assert_passed(check)


def _on_cupy(key):
    return any(engine.name == "cupy" for engine in all_classes()[key]._accelsk_engines)


@pytest.mark.parametrize("check", [_param(check) for check in CHECKS if _on_cupy(check.key)])
def test_a_check_is_passed_where_our_own_engines_run(check, monkeypatch):
    """On NumPy in the place of CuPy."""
    if probe.unusable() is None:
        pytest.skip("there is a GPU here")
    if (reason := _EXPECTED.get((check.key, check.name))) is not None:
        pytest.xfail(reason)
    device_double.install(monkeypatch)
    _assert_passed(check)
