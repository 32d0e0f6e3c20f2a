"""Arguments are bound as scikit-learn binds them, and rules say what keeps a call off an engine."""

from __future__ import annotations

import inspect

import numpy as np
import pytest

from accelsk.engines.base import Call, OpenCall, Rule, bind, only, refuse
from accelsk.exceptions import Invalid


def _signature(function):
    parameters = [*inspect.signature(function).parameters.values()][1:]
    return inspect.Signature(parameters)


def test_arguments_are_bound_by_name_with_defaults():
    def fit(self, X, y=None, *, sample_weight=None, **params):
        pass

    signature = _signature(fit)
    assert bind(signature, (1,), {}) == {"X": 1, "y": None, "sample_weight": None}
    assert bind(signature, (1,), {"sample_weight": 2, "z": 3}) == {
        "X": 1,
        "y": None,
        "sample_weight": 2,
        "z": 3,
    }
    assert bind(signature, (), {"y": 2}, partial=True) == {"y": 2}
    with pytest.raises(TypeError, match="missing a required argument: 'X'"):
        bind(signature, (), {})
    with pytest.raises(TypeError, match="too many positional"):
        bind(signature, (1, 2, 3), {})


def test_only_tells_values_from_what_merely_equals_them():
    class Call:
        fits = True
        parameters = None

    def refused(rule, value):
        Call.parameters = {"p": value}
        return rule.test(Call) is not None

    assert [refused(only("p", True), v) for v in (True, 1, np.True_, "True")] == [
        False,
        True,
        True,
        True,
    ]
    assert [refused(only("p", 0), v) for v in (0, 0.0, np.int64(0), False, None)] == [
        False,
        False,
        False,
        True,
        True,
    ]
    assert [refused(only("p", None, "a"), v) for v in (None, "a", "b")] == [False, False, True]
    assert not refused(only("unknown", 1), 2)


def test_reason_of_refuse_is_its_text():
    rule = refuse("too odd", lambda call: call == 1)
    assert (rule.test(1), rule.test(2)) == ("too odd", None)


def test_rule_for_fits_leaves_other_methods_alone():
    rule = Rule("never", lambda call: "never")
    fit, predict = (Call(None, object, method, {}) for method in ("fit", "predict"))
    assert (rule.reason(fit), rule.reason(predict)) == ("never", None)
    assert rule._replace(fit_only=False).reason(predict) == "never"


def test_open_call_leaves_open_what_depends_on_what_is_not_known():
    class Rules:
        def every_rule(self):
            return (
                refuse("X is large", lambda call: call.X.shape > (3,)),
                refuse("y is large", lambda call: call.y.shape > (3,)),
                refuse("always", lambda call: True),
            )

    call = OpenCall(None, object, "fit", {"X": np.ones((5, 2))})
    assert [*call.refusals(Rules())] == ["X is large", "always"]


@pytest.mark.parametrize(
    ("method", "fits"),
    [("fit", True), ("fit_transform", True), ("partial_fit", True), ("predict", False)],
)
def test_names_of_methods_tell_which_fit(method, fits):
    assert Call(None, object, method, {}).fits is fits


def test_argument_is_described_once():
    call = Call(None, object, "fit", {"X": [[1, 2]]})
    assert call.X is call.X
    assert not call.sample_weight.given


def test_invalid_reason_is_a_text_like_any_other():
    assert Invalid("bad") == "bad"
    assert isinstance(refuse(Invalid("bad"), lambda call: True).test(None), Invalid)
