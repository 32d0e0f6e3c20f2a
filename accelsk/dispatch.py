"""The decorator around a method: plan the call, run it on an engine or in scikit-learn, report.

The three steps stay apart: `accelsk.planning` says where a call can run or why it cannot, without
running it; an engine runs it and may fail; `Accelerated._accelsk_adopt` takes over the fitted
state.
"""

from __future__ import annotations

import functools
import inspect
import logging
import os
import sys
import warnings
from collections.abc import Callable
from typing import Any

import joblib
import numpy as np
import sklearn

from accelsk import _sklearn, costs, residency
from accelsk._sklearn import AvailableIfDescriptor
from accelsk.config import Config, current
from accelsk.device.errors import leave_unmended, loses_gpu
from accelsk.device.foreign import adopted_arguments, in_kind
from accelsk.device.memory import is_full, is_out_of_memory, make_room, with_room
from accelsk.device.transfer import is_device_array, on_host, settle, to_host
from accelsk.engines import repeats
from accelsk.engines.base import Call, Engine, Outcome, fits
from accelsk.estimator import ATTEMPTS, SLOT, Accelerated, DeviceState
from accelsk.exceptions import (
    FallbackError,
    FallbackWarning,
    Invalid,
    LostModelError,
    Refusal,
    Sooner,
)
from accelsk.introspection import validates_input
from accelsk.planning import Method, Plan, failure, first_willing, plan
from accelsk.profiling.events import Stopwatch, heard, report

__all__ = [
    "Method",
    "Plan",
    "accelerate_methods",
    "diagnose",
    "method_of",
    "object_to",
    "plan",
]

logger = logging.getLogger("accelsk")


def _run(plan: Plan, estimator: Accelerated) -> Any:
    """Run the planned call on its engine and take over what comes of it."""
    engine, call = plan.engine, plan.call
    assert engine is not None
    assert call is not None
    anew = call.fits and not call.continues
    outcome = repeats.run(engine, call, None) if anew else _outcome_of_one_fit(engine, call)
    result = to_host(outcome.result) if call.on_host else outcome.result
    named = call.X.kind == "frame" or "feature_names_in_" in vars(estimator)
    if named and not anew and call.takes_features and call.X.given:
        # warns where one of the fit and this call had feature names and the other had not
        _sklearn.check_feature_names(estimator, call.X.heading, reset=False)
    if call.fits:
        attributes = {**_input_attributes(call), **outcome.attributes}
        estimator._accelsk_adopt(engine, outcome.model, attributes, rows=call.data.shape[:1])
    _announce(outcome)
    return estimator if call.method in ("fit", "partial_fit") else result


def _outcome_of_one_fit(engine: Engine, call: Call) -> Outcome:
    """Run a call that needs a model, anew where another thread has fitted the estimator meanwhile.

    An engine reads attributes beside the model: those may be of the later fit then.
    """
    for _ in range(ATTEMPTS):
        model, state = call.estimator._accelsk_answering(engine)
        outcome = repeats.run(engine, call, model)
        if call.fits or state.stands(call.estimator):
            return outcome
    raise Refusal("it is being fitted in other threads")


def _input_attributes(call: Call) -> dict[str, Any]:
    """Return what scikit-learn's input validation sets, where the class uses it."""
    if not validates_input(call.original):
        return {}
    if call.continues:
        names = getattr(call.estimator, "feature_names_in_", None)
    else:
        names = call.X.feature_names
    attributes: dict[str, Any] = {}
    if len(call.X.shape) == 2:
        attributes["n_features_in_"] = call.X.shape[1]
    if names is not None:
        attributes["feature_names_in_"] = names
    return attributes


def _announce(outcome: Outcome) -> None:
    for warn in outcome.announce:
        warn()


def _attempt(plan: Plan, estimator: Accelerated) -> tuple[Any, Plan]:
    """Return the result of the planned call and the plan; or the plan for what is next in turn."""
    call = plan.call
    assert call is not None
    rewind = _rewind(call)
    # what an estimator was fitted to before is idle while it is fitted anew
    keep = None if call.fits and not call.continues else estimator
    try:
        return with_room(lambda: _run(plan, estimator), keep, rewind), plan
    except Refusal as refusal:
        reason = refusal.reason
    except Exception as error:
        reason = diagnose(error)
    rewind()
    reasons = (*plan.reasons, reason)
    if isinstance(reason, Invalid):
        return None, Plan(plan.name, None, None, reasons)
    others = [engine for engine in plan.others if engine.unusable() is None]
    return None, first_willing(plan.name, call, others, current().reproducible, reasons)


def _rewind(call: Call) -> Callable[[], None]:
    """Return what takes back the random numbers that an attempt to fit has drawn.

    So scikit-learn draws those that it would have drawn without the attempt.
    """
    if not call.fits or "random_state" not in call.parameters:
        return lambda: None
    generator = call.parameters["random_state"]
    if generator is None or generator is np.random:
        generator = np.random.mtrand._rand
    if not isinstance(generator, np.random.RandomState):
        return lambda: None
    return functools.partial(generator.set_state, generator.get_state(legacy=False))


def diagnose(error: Exception) -> str:
    """Return the reason to give for a failure of an engine, and see to what has to be done."""
    if is_out_of_memory(error):
        make_room(error)
        return "the GPU ran out of memory"
    return f"a CUDA error: {error}" if loses_gpu(error) else failure(error)


#: Arguments of these types are on the host, whatever they hold.
_HOST_TYPES = frozenset({np.ndarray, type(None), bool, int, float, str})


def _goes_plainly(estimator: Accelerated, method: Method, args: tuple, kwargs: dict) -> bool:
    """Whether a call can only go to scikit-learn, and nobody would hear why.

    This is what a small call costs, so it asks what is cheap to know only.
    """
    config = current()
    if config.device == "cpu" or _nothing_runs(estimator, method):
        return (
            (config.device == "cpu" or config.on_fallback == "log")
            # without CuPy there is no argument to bring back, without a model no attribute
            and "cupy" not in sys.modules
            and SLOT not in estimator.__dict__
            and id(estimator) not in DeviceState.restored
            and not heard()
        )
    data = args[0] if args else kwargs.get("X")
    if config.device == "gpu" or type(data) is not np.ndarray:
        return False
    if residency.current_run() is not None:  # the steps of a pipeline are weighed together
        return False
    state = estimator.__dict__.get(SLOT) or DeviceState.restored.get(id(estimator))
    if state is not None and (not state.fetched or fits(method.name)):
        return False  # there are attributes to fetch first
    return (
        costs.is_known_to_be_sooner(estimator, method.owner, method.name, data)
        and (len(args) < 2 or _HOST_TYPES.issuperset(map(type, args)))
        and (not kwargs or _HOST_TYPES.issuperset(map(type, kwargs.values())))
        and not heard()
    )


def _nothing_runs(estimator: Accelerated, method: Method) -> bool:
    """Whether none of the engines can be used."""
    for engine in estimator._accelsk_engines:
        if method.name in engine.methods and engine.unusable() is None:
            return False
    return True


def _dispatch(estimator: Accelerated, method: Method, args: tuple, kwargs: dict[str, Any]) -> Any:
    part = residency.claim(estimator, method.name)
    if _goes_plainly(estimator, method, args, kwargs):
        if part is None:
            return method.run_original(estimator, args, kwargs)
        with residency.entered(None):
            return method.run_original(estimator, args, kwargs)
    args, kwargs, like = adopted_arguments(args, kwargs)
    known = None
    if part is not None:
        known = part.expected(args, kwargs)
        args, kwargs = part.prepared(args, kwargs)
    watch, chosen = Stopwatch(), Plan(method.qualname, None, None)
    try:
        with watch, residency.entered(None):
            chosen, attempted = plan(estimator, method, args, kwargs, known=known), None
            if part is not None and chosen.call is not None:
                chosen.call.wanted_on_host = not part.stays()
            while chosen.engine is not None and chosen is not attempted:
                attempted = chosen
                result, chosen = _attempt(chosen, estimator)
            if chosen.engine is None:
                result = _fall_back(chosen, estimator, method, args, kwargs, part)
            elif part is not None:
                result = part.delivered(result)
            if is_device_array(result) and heard():
                settle()  # or the next call would be told to have taken the time
    except BaseException as error:
        if not isinstance(error, LostModelError) and (loses_gpu(error) or is_full(error)):
            leave_unmended()
        report(watch.event(chosen.name, None, chosen.reasons, error))
        raise
    costs.ran(estimator, method.owner, method.name, chosen.expected, chosen.engine)
    engine, reasons = (None, chosen.reasons) if chosen.engine is None else (chosen.engine.name, ())
    report(watch.event(chosen.name, engine, reasons))
    return result if like is None else in_kind(result, like)


def _fall_back(
    chosen: Plan,
    estimator: Accelerated,
    method: Method,
    args: tuple,
    kwargs: dict[str, Any],
    part: residency.Part | None,
) -> Any:
    """Run scikit-learn's own method, on host arrays and host attributes."""
    config = current()
    invalid = chosen.invalid
    objects = config.on_fallback != "log" and not any(isinstance(r, Sooner) for r in chosen.reasons)
    if objects and config.on_fallback == "raise" and not invalid:
        # an error of scikit-learn's goes first, with and without a GPU
        invalid = plan(estimator, method, args, kwargs, assume_usable=True).invalid
    if objects and not invalid:
        object_to(config, chosen)
    goes_on = method.name == "partial_fit"
    if fits(method.name):
        _release_before_refit(estimator, goes_on=goes_on)
    data = args[0] if args else kwargs.get("X", kwargs.get("y"))
    if any(is_device_array(value) for value in (*args, *kwargs.values())):
        args = tuple(to_host(value) for value in args)
        kwargs = {name: to_host(value) for name, value in kwargs.items()}
    if fits(method.name) and not goes_on:
        with DeviceState.replaced(estimator):
            result = method.run_original(estimator, args, kwargs)
    else:
        result = method.run_original(estimator, args, kwargs)
    if invalid:  # it was expected to raise
        object_to(config, chosen)
    return result if part is not None or on_host(data) else residency.sent_back(result)


def _release_before_refit(estimator: Accelerated, *, goes_on: bool) -> None:
    """Have the attributes of an earlier fit on the host, where scikit-learn leaves them.

    A model that cannot be fetched any more does not keep its estimator from being fitted anew; a
    fit that goes on from it would start from nothing.
    """
    try:
        estimator._accelsk_release()
    except Exception as error:
        if goes_on:
            raise
        logger.debug("an earlier fit could not be fetched", exc_info=error)


def object_to(config: Config, chosen: Plan) -> None:
    """Do what ``on_fallback`` says, unless the CPU was asked for."""
    if config.device == "cpu" or config.on_fallback == "log":
        return
    error = FallbackError(chosen.name, chosen.reasons)
    if config.on_fallback == "raise":
        raise error
    warnings.warn(str(error), FallbackWarning, stacklevel=_caller() - 1)


#: Where the code lies between a user's call and a warning about it.
_NOT_THE_USERS = tuple(
    os.path.dirname(file) + os.sep for file in (__file__, sklearn.__file__, joblib.__file__)
)


def _caller() -> int:
    """Return how many frames up from here the user's code is."""
    frame, level = sys._getframe(), 1
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_NOT_THE_USERS):
        frame, level = frame.f_back, level + 1
    return level


def _wrap(method: Method) -> Callable[..., Any]:
    @functools.wraps(method.function)
    def accelerated(self: Accelerated, *args: Any, **kwargs: Any) -> Any:
        return _dispatch(self, method, args, kwargs)

    return accelerated


def accelerate_methods(cls: type[Accelerated]) -> None:
    """Replace the methods of `cls` that its engines can run.

    A method that scikit-learn offers on a condition only (``available_if``) stays so.
    """
    original = cls._accelsk_original
    for name in dict.fromkeys(name for engine in cls._accelsk_engines for name in engine.methods):
        attribute = inspect.getattr_static(original, name)
        conditional = isinstance(attribute, AvailableIfDescriptor)
        function = attribute.fn if conditional else attribute
        parameters = [*inspect.signature(function).parameters.values()][1:]
        signature = inspect.Signature(parameters)
        method = Method(cls, original, name, function, signature, f"{original.__name__}.{name}")
        wrapper = _wrap(method)
        wrapper._accelsk_method = method  # type: ignore[attr-defined]
        if conditional:
            wrapper = type(attribute)(wrapper, attribute.check, attribute.attribute_name)
        setattr(cls, name, wrapper)


def method_of(cls: type[Accelerated], name: str) -> Method | None:
    """Return the dispatched method `name` of `cls`, or None where none has engines."""
    attribute = inspect.getattr_static(cls._accelsk_class, name, None)
    function: Any = attribute.fn if isinstance(attribute, AvailableIfDescriptor) else attribute
    while function is not None and not hasattr(function, "_accelsk_method"):
        function = getattr(function, "__wrapped__", None)
    return None if function is None else function._accelsk_method
