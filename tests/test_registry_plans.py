"""What the rules of every accelerated class say of hyperparameters, ordinary and hostile."""

import functools
import inspect
import warnings

import numpy as np
import pytest
import sklearn
from class_cases import all_classes, case_of, key_of
from parameter_options import options_of

import accelsk
from accelsk.dispatch import method_of, plan
from accelsk.engines.base import Call, bind, fits

every_class = pytest.mark.parametrize("cls", all_classes().values(), ids=all_classes())

#: Classes that do not run on a GPU with their default hyperparameters, and with which they do.
_NOT_BY_DEFAULT = {"cluster.AgglomerativeClustering": {"linkage": "single"}}

_HOSTILE = (
    object(),
    "no such option",
    "",
    -1,
    0,
    10**30,
    float("nan"),
    float("inf"),
    -0.5,
    True,
    None,
    [],
    {},
    (1, 2),
    [None, "a"],
    {"a": None},
    np.float32(0.5),
    np.int8(3),
    np.array([1.0, 2.0]),
    np.array([["a", "b"]], dtype=object),
    np.zeros((0, 3)),
    lambda *args: args,
    type,
)


def _methods(cls):
    return dict.fromkeys(name for engine in cls._accelsk_engines for name in engine.methods)


def _arguments(cls, name, *, new=False):
    """Return what a method of this name is given, by keyword."""
    data = case_of(cls).data()
    given = {"X": data.new, "y": data.new_y} if new else {"X": data.X, "y": data.y}
    given["X_test"] = data.new
    if name == "inverse_transform":
        given = {"X": data.codes, "y": data.codes}
    if data.X is None and name != "inverse_transform":
        given["y"] = data.y
    parameters = inspect.signature(getattr(cls, name)).parameters
    if name == "partial_fit":
        given["classes"] = None if data.y is None else np.unique(data.y)
    return {key: value for key, value in given.items() if key in parameters and value is not None}


@functools.cache
def _fitted(cls):
    """Return an estimator of the class that was fitted in scikit-learn."""
    with warnings.catch_warnings(), accelsk.config_context(device="cpu"):
        warnings.simplefilter("ignore")
        return cls(**case_of(cls).parameters).fit(**_arguments(cls, "fit"))


def _validates(cls):
    """Whether hyperparameters are checked before anything is done with them."""
    return hasattr(cls, "_parameter_constraints")


def _declared(cls, parameter):
    original = cls._accelsk_original
    return [option.value for option in options_of(original, parameter)] if _validates(cls) else []


def _plan(est, name, arguments):
    return plan(est, method_of(type(est), name), (), arguments, assume_usable=True)


def _assert_well_formed(made, cls, *, rules_may_fail=False):
    if made.engine is None:
        assert made.reasons
        assert all(isinstance(reason, str) and reason.strip() for reason in made.reasons)
        failed = any("the engine failed" in reason for reason in made.reasons)
        assert rules_may_fail or not failed, made
    else:
        assert made.engine in cls._accelsk_engines
        assert not made.reasons
    assert str(made)


@every_class
def test_a_fit_with_default_hyperparameters_can_run_on_a_gpu(cls):
    required = [
        p
        for p in inspect.signature(cls).parameters.values()
        if p.default is p.empty and p.kind is p.POSITIONAL_OR_KEYWORD
    ]
    parameters = {p.name: case_of(cls).parameters[p.name] for p in required}
    parameters |= _NOT_BY_DEFAULT.get(key_of(cls), {})
    for name in filter(fits, _methods(cls)):
        made = _plan(cls(**parameters), name, _arguments(cls, name))
        assert made.engine is not None, made


@every_class
def test_every_declared_method_can_run_on_a_gpu(cls):
    for name in _methods(cls):
        if name == "inverse_transform":
            continue  # what it takes depends on what the model gives
        parameters = {**case_of(cls).parameters, **_NOT_BY_DEFAULT.get(key_of(cls), {})}
        est = cls(**parameters) if fits(name) else _fitted(cls)
        made = _plan(est, name, _arguments(cls, name, new=not fits(name)))
        assert made.engine is not None, made


@every_class
def test_no_value_of_a_hyperparameter_makes_a_plan_fail(cls):
    case, fitted = case_of(cls), _fitted(cls)
    for parameter in sorted(cls._get_param_names()):
        for value in (*_declared(cls, parameter), *_HOSTILE):
            for name in _methods(cls):
                if fits(name):
                    est = cls(**{**case.parameters, parameter: value})
                else:
                    est = sklearn.base.clone(fitted)
                    vars(est).update(vars(fitted) | {parameter: value})
                arguments = _arguments(cls, name, new=not fits(name))
                made = _plan(est, name, arguments)
                validated = fits(name) and _validates(cls)
                _assert_well_formed(made, cls, rules_may_fail=not validated)
                with sklearn.config_context(skip_parameter_validation=True):
                    made = _plan(est, name, arguments)
                    _assert_well_formed(made, cls, rules_may_fail=True)


@every_class
def test_no_rule_fails_on_a_declared_value(cls):
    case = case_of(cls)
    for parameter in sorted(cls._get_param_names()):
        for value in _declared(cls, parameter):
            est = cls(**{**case.parameters, parameter: value})
            for name in filter(fits, _methods(cls)):
                method = method_of(cls, name)
                arguments = bind(method.signature, (), _arguments(cls, name))
                call = Call(est, method.original, name, arguments)
                for engine in cls._accelsk_engines:
                    assert all(engine.refusals(call))


_DATA = {
    "strings": [["a", "b"], ["c", "d"], ["a", "c"]],
    "one dimension": [1.0, 2.0, 3.0],
    "three dimensions": np.zeros((3, 2, 2)),
    "ragged": [[1.0], [1.0, 2.0], [3.0]],
    "empty": np.zeros((0, 3)),
    "no columns": np.zeros((3, 0)),
    "one element": [[1.0]],
    "objects": np.array([[1, None], [2, "x"], [3, 4]], dtype=object),
    "complex": np.zeros((3, 2), dtype=complex),
    "dates": np.zeros((3, 2), dtype="M8[s]"),
    "a string": "abc",
    "a number": 3.0,
    "nothing": None,
    "a class": object,
    "a masked array": np.ma.masked_invalid([[1.0, np.nan], [0.0, 1.0], [2.0, 3.0]]),
    "a matrix": np.asmatrix(np.eye(3)) if hasattr(np, "asmatrix") else None,
}


@every_class
@pytest.mark.parametrize("X", _DATA.values(), ids=_DATA)
@pytest.mark.filterwarnings("ignore")
def test_no_data_makes_a_plan_fail(cls, X):
    for name in _methods(cls):
        est = cls(**case_of(cls).parameters) if fits(name) else _fitted(cls)
        parameters = method_of(cls, name).signature.parameters
        for y in (np.arange(3), X):
            arguments = {"X": X, "y": y, "sample_weight": [1.0, 2.0, 3.0]}
            given = {key: arguments[key] for key in arguments if key in parameters}
            _assert_well_formed(_plan(est, name, given), cls)
