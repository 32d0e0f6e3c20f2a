"""Where a call can run, or why it cannot: found without running it.

What is asked are hyperparameters, types and shapes, and where ``device="auto"`` is set, what the
call is expected to take on each side.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import sklearn
from sklearn.utils.validation import check_is_fitted

from accelsk import costs
from accelsk.config import current
from accelsk.engines.base import Call, Engine, OpenCall, bind
from accelsk.estimator import Accelerated
from accelsk.exceptions import Invalid, Sooner
from accelsk.introspection import overridden, replaced

__all__ = ["Method", "Plan", "failure", "first_willing", "plan"]

logger = logging.getLogger("accelsk")


@dataclass(frozen=True)
class Method:
    """A method of scikit-learn's that has engines.

    Attributes
    ----------
    owner : type
        The accelerated class.
    original : type
        The scikit-learn class.
    name : str
    function : callable
        scikit-learn's own function.
    signature : inspect.Signature
        Without the estimator itself.
    qualname : str
        The name in the log and in profiles.
    """

    owner: type
    original: type
    name: str
    function: Callable[..., Any]
    signature: inspect.Signature
    qualname: str

    def run_original(self, estimator: Any, args: tuple, kwargs: dict[str, Any]) -> Any:
        """Run scikit-learn's method, or what a class between it and `owner` makes of it."""
        # looked up anew: somebody may have put another function in its place
        ahead = Accelerated if type(estimator) is self.owner else self.owner
        found = getattr(super(ahead, estimator), self.name)
        if self._bare is not None and getattr(found, "__func__", None) is self.function:
            return self._bare(estimator, *args, **kwargs)
        return found(*args, **kwargs)

    @cached_property
    def _bare(self) -> Callable[..., Any] | None:
        """scikit-learn's function without its wrapper, where `owner`'s has the same one.

        That is what puts a result into the container that ``set_output`` asks for: once is enough.
        """
        ours = vars(self.owner).get(self.name)
        same = getattr(ours, "__code__", ours) is getattr(self.function, "__code__", None)
        return getattr(self.function, "__wrapped__", None) if same else None


@dataclass(frozen=True)
class Plan:
    """Where a call would run.

    Attributes
    ----------
    name : str
        The qualified name of the call.
    engine : Engine or None
        The engine that would run it; None means scikit-learn.
    call : Call or None
        The call that the engine would run.
    reasons : tuple of str
        Why it would run in scikit-learn; or on `engine` rather than on one asked before.
    notes : tuple of str
        What would be different on the engine, and is for the user to accept.
    others : tuple of Engine
        Those that have not been asked yet. They are in turn where `engine` hands the call on.
    expected : Expected or None
        What the call is expected to take, where that had a say.
    """

    name: str
    engine: Engine | None
    call: Call | None
    reasons: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    others: tuple[Engine, ...] = ()
    expected: costs.Expected | None = None

    @property
    def invalid(self) -> bool:
        """Whether scikit-learn is expected to reject the call with an error."""
        return any(isinstance(reason, Invalid) for reason in self.reasons)

    def __str__(self) -> str:
        if self.engine is not None:
            notes = "".join(f"; {note}" for note in self.notes)
            return f"{self.name}: on the GPU ({self.engine.name}){notes}"
        return f"{self.name}: in scikit-learn, because: " + "; ".join(self.reasons)


def plan(
    estimator: Accelerated,
    method: Method,
    args: tuple,
    kwargs: dict[str, Any],
    *,
    assume_usable: bool = False,
    partial: bool = False,
    known: costs.Expected | None = None,
) -> Plan:
    """Return where a call would run, without running it and without looking at elements.

    Parameters
    ----------
    estimator : Accelerated
    method : Method
    args, kwargs
        The arguments of the call.
    assume_usable : bool, default=False
        Answer as if the configuration, and every engine in this process, allowed the call.
    partial : bool, default=False
        Whether arguments are left out on purpose: what depends on them is left open.
    known : Expected, default=None
        Where the call is sooner, if that is not to be weighed for it alone.
    """

    def refused(*reasons: str) -> Plan:
        return Plan(method.qualname, None, None, tuple(dict.fromkeys(reasons)))

    engines = [e for e in estimator._accelsk_engines if method.name in e.methods]
    if not assume_usable:
        if current().device == "cpu":
            return refused("device='cpu' is set")
        unusable = [engine.unusable() for engine in engines]
        engines = [engine for engine, why in zip(engines, unusable, strict=True) if why is None]
        if not engines:
            return refused(*(why for why in unusable if why is not None))
    weighed = not (assume_usable or partial) and current().device == "auto"
    estimate = known
    if known is None and weighed:
        estimate = _weigh(estimator, method, args, kwargs, engines)
    if estimate is not None and estimate.on_cpu and not estimate.waits:
        return _sooner(method, estimate)
    cls: Any = type(estimator)
    names = overridden(cls, estimator._accelsk_class, method.name)
    names += replaced(estimator, estimator._accelsk_class, method.name)
    if names:
        return refused(f"{cls.__name__} overrides {', '.join(names)}")
    if vars(estimator).get("_skl_callbacks"):
        return refused("callbacks are set")
    try:
        arguments = bind(method.signature, args, kwargs, partial=partial)
        kind = OpenCall if partial else Call
        call = kind(estimator, method.original, method.name, arguments)
        _validate(call)
    except Exception as error:  # scikit-learn has its own words for each: it will say them
        return refused(Invalid(f"scikit-learn rejects it ({type(error).__name__})"))
    reproducible = current().reproducible and not assume_usable
    chosen = first_willing(method.qualname, call, engines, reproducible)
    if estimate is None or chosen.engine is None:
        return chosen
    if chosen.engine.name != estimate.engine and known is None:  # the fastest one cannot do it
        estimate = _weigh(estimator, method, args, kwargs, [chosen.engine])
    if estimate is not None and estimate.on_cpu:
        return _sooner(method, estimate)
    return replace(chosen, expected=estimate)


def _weigh(
    estimator: Accelerated,
    method: Method,
    args: tuple,
    kwargs: dict[str, Any],
    engines: Sequence[Engine],
) -> costs.Expected | None:
    data = args[0] if args else kwargs.get("X", kwargs.get("y"))
    try:
        return costs.weigh(estimator, method.owner, method.name, data, engines)
    except Exception as error:  # an estimate is not worth a call
        logger.debug("no estimate of %s", method.qualname, exc_info=error)
        return None


def _sooner(method: Method, estimate: costs.Expected) -> Plan:
    """Return the plan of a call that scikit-learn is expected to finish sooner."""
    return Plan(method.qualname, None, None, (Sooner(estimate.reason),), expected=estimate)


def first_willing(
    name: str,
    call: Call,
    engines: Sequence[Engine],
    reproducible: bool,
    reasons: tuple[str, ...] = (),
) -> Plan:
    """Return the plan for the first of `engines` that can run `call`.

    `reasons` are those of engines that were asked before.
    """
    for position, engine in enumerate(engines, 1):
        try:
            refusals = [*call.refusals(engine)]
            note = engine.unrepeatable(call)
        except Exception as error:
            refusals, note = [failure(error)], None
        if note and reproducible:
            refusals.append(f"reproducible=True is set, and {note}")
        if not refusals:
            notes = (note,) if note else ()
            return Plan(name, engine, call, reasons, notes, tuple(engines[position:]))
        reasons += tuple(refusals)
    return Plan(name, None, None, tuple(dict.fromkeys(reasons)))


def _validate(call: Call) -> None:
    """Raise where scikit-learn would raise before it looks at the elements."""
    estimator = call.estimator
    if call.fits:
        declared = hasattr(estimator, "_parameter_constraints")  # not by everybody's estimators
        if declared and not sklearn.get_config()["skip_parameter_validation"]:
            estimator._validate_params()
        if not call.continues:
            if call.takes_features:
                _ = call.X.feature_names  # raises for names that scikit-learn rejects
            return
    check_is_fitted(estimator)
    if not (call.takes_features and call.X.given):
        return
    n_features = getattr(estimator, "n_features_in_", None)
    if len(call.X.shape) == 2 and n_features not in (None, call.X.shape[1]):
        raise ValueError("the number of features differs")
    fitted, given = getattr(estimator, "feature_names_in_", None), call.X.feature_names
    if fitted is not None and given is not None and list(fitted) != list(given):
        raise ValueError("the feature names differ")


def failure(error: Exception) -> str:
    """Return the reason to give where an engine failed."""
    logger.debug("an engine failed", exc_info=error)
    first_line = str(error).strip().partition("\n")[0]
    return f"the engine failed: {type(error).__name__}: {first_line}"
