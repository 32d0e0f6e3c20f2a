"""scikit-learn's own checks of estimators, with every call on the GPU that can run there."""

from __future__ import annotations

from typing import Any

import pytest
from sklearn_checks import Check, checks

pytestmark = pytest.mark.gpu

_IN_DICT = "the device model of an estimator fitted in scikit-learn shows in its __dict__"

#: Checks that the original passes and the accelerated class does not, and why.
_EXPECTED = {
    ("random_projection.GaussianRandomProjection", "check_dict_unchanged"): _IN_DICT,
    ("random_projection.SparseRandomProjection", "check_dict_unchanged"): _IN_DICT,
    ("svm.LinearSVR", "check_regressor_data_not_an_array"): (
        "liblinear, which takes what is not an array, stops short of the minimum"
    ),
}


@pytest.mark.parametrize("check", [pytest.param(c, id=f"{c.key}-{c.name}") for c in checks()])
def test_a_check_that_the_original_passes_is_passed(check: Check, on_gpu: Any) -> None:
    on_gpu.expected = False  # many checks are about input that scikit-learn rejects
    if (reason := _EXPECTED.get((check.key, check.name))) is not None:
        pytest.xfail(reason)
    with on_gpu.allowed():
        error = check.error()
    if error is not None:
        if check.error_of_the_original() is not None:
            pytest.skip(f"scikit-learn's own class does not pass: {error}")
        raise error
