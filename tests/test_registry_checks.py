"""scikit-learn's own checks of estimators, for every accelerated class.

accelsk is made to believe that there is a GPU. Where there is none, engines fail in every call that
they plan, so that the checks go through planning, failing and falling back, too.
"""

import contextlib
import io
import warnings

import pytest
from class_cases import all_classes
from sklearn.utils._test_common.instance_generator import _construct_instances
from sklearn.utils.estimator_checks import estimator_checks_generator

from accelsk.device import probe


def _name(check):
    while hasattr(check, "func"):
        check = check.func
    return check.__name__


def _checks():
    """Yield an accelerated estimator, its original, and a check, as scikit-learn pairs them."""
    for key, cls in all_classes().items():
        if not cls._accelsk_original.__module__.startswith("sklearn."):
            continue
        for small in _construct_instances(cls._accelsk_original):
            for plain, check in estimator_checks_generator(small):
                est = cls(**plain.get_params(deep=False))
                yield pytest.param(est, plain, check, id=f"{key}-{_name(check)}")


def _run(check, est):
    """Return what the check raises, or None."""
    with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
        warnings.simplefilter("ignore")
        try:
            check(est)
        except Exception as error:
            return error


@pytest.mark.parametrize(("est", "plain", "check"), list(_checks()))
def test_a_check_that_the_original_passes_is_passed(est, plain, check, monkeypatch):
    monkeypatch.setattr(probe, "unusable", lambda: None)
    error = _run(check, est)
    if error is not None:
        if _run(check, plain) is not None:
            pytest.skip(f"scikit-learn's own class does not pass: {error}")
        raise error
