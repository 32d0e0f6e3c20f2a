"""Functions of scikit-learn's that try the GPU first: what `accelsk.dispatch` is for methods.

A function of ours is made from scikit-learn's, from a function that computes the same on the
device, and from what keeps a call off it. Data on the host go up where the GPU was asked for or
where the function says that it pays; data on the device are the ordinary case, in a search.
"""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any

import numpy as np

from accelsk import dispatch, registry
from accelsk.config import current
from accelsk.data import Argument, describe
from accelsk.device import probe
from accelsk.device.foreign import adopted_arguments, in_kind
from accelsk.device.memory import with_room
from accelsk.device.transfer import is_device_array, on_host, to_device, to_host
from accelsk.engines.base import Rule, bind
from accelsk.engines.on_device import import_cupy
from accelsk.exceptions import Invalid, Refusal, Sooner
from accelsk.profiling.events import Stopwatch, report

__all__ = ["FunctionCall", "accelerated"]

#: Seconds that CuPy and a CUDA context take to start, about (H200 machine, 2026-11-30).
_START = 2.0

#: As it stands in the profile.
_ENGINE = "cupy"


class FunctionCall:
    """One call of a function.

    Parameters
    ----------
    arguments : dict
        By name, defaults filled in.
    data : sequence of str
        Which of them are arrays.

    Attributes
    ----------
    parameters : dict
        The arguments, under the name that rules of engines know.
    fits : bool
        True: there are no other calls.
    """

    fits = True

    def __init__(self, arguments: dict[str, Any], data: Sequence[str]) -> None:
        self.arguments = arguments
        self.data = tuple(name for name in data if name in arguments)

    @property
    def parameters(self) -> dict[str, Any]:
        return self.arguments

    @cached_property
    def described(self) -> dict[str, Argument]:
        """What is known of each array."""
        return {name: describe(self.arguments[name]) for name in self.data}

    def argument(self, name: str) -> Argument:
        """Return what is known of the argument `name`."""
        return self.described[name]

    @cached_property
    def on_device(self) -> bool:
        """Whether one of the arrays is on the device."""
        return any(is_device_array(self.arguments[name]) for name in self.data)

    @cached_property
    def answers_on_host(self) -> bool:
        """Whether the caller expects NumPy arrays back."""
        return all(on_host(self.arguments[name]) for name in self.data)

    def to_device(self, name: str, dtype: Any = None) -> Any:
        """Return the array `name` on the device; None stays None.

        Raises
        ------
        Refusal
            Where it holds NaN or infinity.
        """
        import cupy

        given = self.argument(name)
        if not given.given:
            return None
        array = to_device(given.array)
        if array.dtype.kind == "f" and not bool(cupy.isfinite(array).all()):
            raise Refusal(Invalid(f"{name} contains NaN or infinity"))
        return array if dtype is None else array.astype(dtype, copy=False)


def accelerated(
    original: Callable[..., Any],
    *,
    data: Sequence[str],
    options: Sequence[str] = (),
    rules: Sequence[Rule] = (),
    saves: Callable[[FunctionCall], float] = lambda call: 0.0,
) -> Callable[[Callable[[FunctionCall], Any]], Callable[..., Any]]:
    """Return a decorator that makes a function of ours for `original` from one on the device.

    Parameters
    ----------
    original : callable
        scikit-learn's function.
    data : sequence of str
        The arguments that are arrays.
    options : sequence of str
        The other arguments that the function on the device, or a rule, knows. All others have to
        be left at their defaults.
    rules : sequence of Rule
        What keeps a call off the device.
    saves : callable
        The seconds that an upload is expected to save where nothing is on the device.
    """

    def decorate(compute: Callable[[FunctionCall], Any]) -> Callable[..., Any]:
        function = _Function(original, compute, data, options, rules, saves)

        @functools.wraps(original)
        def ours(*args: Any, **kwargs: Any) -> Any:
            return function(args, kwargs)

        ours.__module__ = compute.__module__
        ours.on_device = function.on_device  # type: ignore[attr-defined]
        registry.add_function(original, ours)
        return ours

    return decorate


class _Function:
    def __init__(
        self,
        original: Callable[..., Any],
        compute: Callable[[FunctionCall], Any],
        data: Sequence[str],
        options: Sequence[str],
        rules: Sequence[Rule],
        saves: Callable[[FunctionCall], float],
    ) -> None:
        self.original = original
        self.name = original.__name__
        self.compute = compute
        self.data = data
        self.rules = rules
        self.saves = saves
        self.signature = inspect.signature(original)
        known = {*data, *options}
        self.fixed = {
            name: parameter.default
            for name, parameter in self.signature.parameters.items()
            if name not in known and parameter.kind is not inspect.Parameter.VAR_KEYWORD
        }
        self.known = known | self.fixed.keys()

    def __call__(self, args: tuple, kwargs: dict[str, Any]) -> Any:
        args, kwargs, like = adopted_arguments(args, kwargs)
        reasons: tuple[str, ...] = ()
        result = engine = failure = None
        try:
            with Stopwatch() as watch:
                call, reasons = self.plan(args, kwargs)
                if call is not None:
                    result, reasons = self.attempt(call)
                    engine = None if reasons else _ENGINE
                if engine is None:
                    result = self.fall_back(reasons, args, kwargs)
        except Exception as error:
            failure = error
            raise
        finally:
            report(watch.event(self.name, engine, reasons, failure))
        return in_kind(result, like)

    def on_device(self, *args: Any, **kwargs: Any) -> Any:
        """Return the result as part of a call that is reported itself.

        Raises
        ------
        Refusal
            Where the call does not fit the device.
        """
        call = FunctionCall(bind(self.signature, args, kwargs), self.data)
        for reason in self.refusals(call):
            raise Refusal(reason)
        return self.compute(call)

    def plan(
        self, args: tuple, kwargs: dict[str, Any]
    ) -> tuple[FunctionCall | None, tuple[str, ...]]:
        """Return the call, or None and why it is none for the device."""
        device = current().device
        if device == "cpu":
            return None, ("device='cpu' is set",)
        if (reason := probe.unusable()) is not None:
            return None, (reason,)
        try:
            call = FunctionCall(bind(self.signature, args, kwargs), self.data)
        except TypeError as error:
            return None, (Invalid(f"scikit-learn rejects it ({type(error).__name__})"),)
        reasons = tuple(self.refusals(call))
        if reasons:
            return None, reasons
        if device == "auto" and not call.on_device:
            start = 0.0 if "cupy" in sys.modules else _START
            if not self.saves(call) > start:
                return None, (Sooner("sooner on the CPU: the data are on the host"),)
        return call, ()

    def refusals(self, call: FunctionCall) -> list[str]:
        """Return what keeps `call` off the device."""
        reasons = [
            f"{name}={value!r}" if name in self.fixed else f"{name} is given"
            for name, value in call.arguments.items()
            if name not in self.known or (name in self.fixed and not self.is_default(name, value))
        ]
        for rule in self.rules:
            test: Callable[[Any], str | None] = rule.test  # asks no more than there is
            try:
                reason = test(call)
            except Exception as error:
                reason = Invalid(f"scikit-learn rejects it ({type(error).__name__})")
            if reason is not None:
                reasons.append(reason)
        return reasons

    def is_default(self, name: str, value: Any) -> bool:
        """Whether the argument `name` is as if it had not been given."""
        default = self.fixed[name]
        return value is default or (type(value) is type(default) and value == default)

    def attempt(self, call: FunctionCall) -> tuple[Any, tuple[str, ...]]:
        """Return the result and no reason, or why there is none."""
        try:
            import_cupy()
            return with_room(lambda: self.computed(call)), ()
        except Refusal as refusal:
            return None, (refusal.reason,)
        except Exception as error:
            return None, (dispatch.diagnose(error),)

    def computed(self, call: FunctionCall) -> Any:
        """Return the result where the caller expects it."""
        result = self.compute(call)
        return to_host(result) if call.answers_on_host else result

    def fall_back(self, reasons: tuple[str, ...], args: tuple, kwargs: dict[str, Any]) -> Any:
        """Run scikit-learn's own function on host arrays."""
        plan = dispatch.Plan(self.name, None, None, reasons)
        invalid = plan.invalid
        if not invalid and not any(isinstance(reason, Sooner) for reason in reasons):
            dispatch.object_to(current(), plan)
        values = (*args, *kwargs.values())
        answers_on_host = all(map(on_host, values))
        if any(map(is_device_array, values)):
            args = tuple(map(to_host, args))
            kwargs = {name: to_host(value) for name, value in kwargs.items()}
        result = self.original(*args, **kwargs)
        if invalid:  # it was expected to raise
            dispatch.object_to(current(), plan)
        if not answers_on_host and isinstance(result, np.ndarray) and result.dtype.kind in "biuf":
            return to_device(result)
        return result
