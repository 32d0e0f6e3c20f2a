"""Every declared value of every hyperparameter, each alone, against scikit-learn's results."""

from __future__ import annotations

import copy
import warnings
from typing import Any

import pytest
from class_cases import Case, Data, all_classes, case_of
from gpu_oracle import Raised, assert_same, assert_same_methods, fitted_names, original, outcomes
from parameter_options import Option, options_of

pytestmark = pytest.mark.gpu

_PARAMETERS = [
    pytest.param(cls, parameter, id=f"{key}-{parameter}")
    for key, cls in all_classes().items()
    for parameter in sorted(cls._accelsk_original._get_param_names())
    if any(True for _ in options_of(cls._accelsk_original, parameter))
]


def _fitted(est: Any, data: Data) -> tuple[Any, list[type]]:
    """Return the fitted estimator, or the error, and the categories of what was warned."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            data = copy.deepcopy(data)  # copy_X=False spoils it
            est.fit(*((data.y,) if data.X is None else (data.X, data.y)))
        except Exception as error:
            est = Raised(type(error), str(error))
    # a RuntimeWarning comes from NumPy, about a logarithm or quotient on the way
    categories = {w.category for w in caught if w.category is not RuntimeWarning}
    return est, sorted(categories, key=str)


@pytest.mark.parametrize(("cls", "parameter"), _PARAMETERS)
def test_each_value_alone_gives_scikit_learns_result(
    cls: Any, parameter: str, on_gpu: Any, capfd: Any
) -> None:
    case = case_of(cls)
    on_gpu.expected = False  # some values are for scikit-learn alone
    failures = []
    for option in options_of(cls._accelsk_original, parameter):
        try:
            with on_gpu.allowed():
                _compare(cls, case, option)
        except AssertionError as error:
            failures.append(f"{option}: {error}")
    assert not failures, "\n\n".join(failures)


def _compare(cls: Any, case: Case, option: Option) -> None:
    data = case.data()
    given = {option.parameter: option.value}
    expected, warned = _fitted(original(cls, case, **copy.deepcopy(given)), data)
    actual, warned_here = _fitted(cls(**{**case.parameters, **copy.deepcopy(given)}), data)
    assert type(actual) is (Raised if isinstance(expected, Raised) else cls), actual
    if isinstance(expected, Raised):
        assert actual == expected
        return
    drawn = option.parameter == "random_state" and option.value is None
    inexact = bool({option.parameter, str(option)} & set(case.inexact_parameters))
    if not (case.approximate or inexact):
        assert warned_here == warned
    values = not (case.approximate or drawn or inexact)
    for name in set(fitted_names(expected)) - set(case.absent):
        exact = values and name not in case.vague
        left, right = getattr(actual, name), getattr(expected, name)
        assert_same(left, right, case.rtol, name, values=exact, shape=exact)
    assert_same_methods(outcomes(actual, data), outcomes(expected, data), case, values=values)
