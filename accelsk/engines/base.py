"""What an engine is: it says whether it can run a call, runs it, and hands over fitted state.

The three steps stay apart. `Engine.refusals` is a pure function of hyperparameters and of what
is known about the data; it needs no GPU. `Engine.run` computes, and may fail in any way: the
call then goes to scikit-learn. `Engine.attributes` gives the fitted attributes of scikit-learn.
"""

from __future__ import annotations

import abc
import contextlib
import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from numbers import Real
from typing import Any, NamedTuple

from sklearn.exceptions import NotFittedError
from sklearn.utils.validation import check_is_fitted

from accelsk.data import Argument, describe
from accelsk.device.transfer import on_host

__all__ = ["Call", "Engine", "OpenCall", "Outcome", "Rule", "only", "refuse"]


class Call:
    """One call of a method of an accelerated estimator.

    Parameters
    ----------
    estimator : Accelerated
        Engines read hyperparameters and fitted attributes from it; they write nothing to it.
    original : type
        The scikit-learn class.
    method : str
    arguments : mapping
        The arguments by name, defaults filled in, as scikit-learn's signature binds them.

    Attributes
    ----------
    fits : bool
        Whether the method fits the estimator.
    continues : bool
        Whether it goes on from an earlier fit.
    parameters : dict
        The hyperparameters by name.
    """

    def __init__(
        self, estimator: Any, original: type, method: str, arguments: Mapping[str, Any]
    ) -> None:
        self.estimator = estimator
        self.original = original
        self.method = method
        self.arguments = arguments
        #: Where the result goes, if not where the data are.
        self.wanted_on_host: bool | None = None
        self._described: dict[str, Argument] = {}

    @property
    def fits(self) -> bool:
        return fits(self.method)

    @cached_property
    def continues(self) -> bool:
        if self.method != "partial_fit":
            return False
        try:
            check_is_fitted(self.estimator)
        except NotFittedError:
            return False
        return True

    @cached_property
    def parameters(self) -> dict[str, Any]:
        return self.estimator.get_params(deep=False)

    def argument(self, name: str) -> Argument:
        """Return what is known of the argument `name`, which may be missing."""
        if name not in self._described:
            self._described[name] = describe(self.arguments.get(name))
        return self._described[name]

    @property
    def takes_features(self) -> bool:
        """Whether ``X`` has the columns that the estimator was fitted on."""
        return "X" in self.arguments and self.method != "inverse_transform"

    @property
    def data(self) -> Argument:
        """What the method works on: ``X``, or ``y`` or ``Y`` where it has no ``X``."""
        return self.argument(next((n for n in ("X", "y") if n in self.arguments), "Y"))

    @property
    def on_host(self) -> bool:
        """Whether the result is to be on the host."""
        return on_host(self.data.value) if self.wanted_on_host is None else self.wanted_on_host

    @property
    def X(self) -> Argument:  # noqa: N802
        return self.argument("X")

    @property
    def y(self) -> Argument:
        return self.argument("y")

    @property
    def sample_weight(self) -> Argument:
        return self.argument("sample_weight")

    def refusals(self, engine: Engine) -> Iterator[str]:
        """Yield the reasons that keep the call off `engine`."""
        return engine.refusals(self)


class _Unknown(Exception):  # noqa: N818 - not an error: the answer is open
    pass


class OpenCall(Call):
    """A call of which not all arguments are known: rules that look at others are left open."""

    def argument(self, name: str) -> Argument:
        if name not in self.arguments:
            raise _Unknown(name)
        return super().argument(name)

    def refusals(self, engine: Engine) -> Iterator[str]:
        for rule in engine.every_rule():
            with contextlib.suppress(_Unknown):
                if (reason := rule.reason(self)) is not None:
                    yield reason


def fits(method: str) -> bool:
    """Whether a method of this name fits its estimator."""
    return method in ("fit", "partial_fit") or method.startswith("fit_")


class Rule(NamedTuple):
    """A declared condition that keeps a call off an engine.

    Attributes
    ----------
    text : str
        What the table of supported calls says, such as ``"positive=True"``.
    test : callable
        From a `Call` to the reason (a str) or None.
    fit_only : bool
        Whether the rule only concerns methods that fit.
    about : str or None
        The hyperparameter or argument that the rule is about, where it is about one: without
        that there is nothing to tell in the table.
    """

    text: str
    test: Callable[[Call], str | None]
    fit_only: bool = True
    about: str | None = None

    def reason(self, call: Call) -> str | None:
        """Return why the rule keeps `call` off the engine, or None."""
        return self.test(call) if call.fits or not self.fit_only else None


def _same(value: Any, choice: Any) -> bool:
    if isinstance(choice, (str, bool)) or choice is None:
        return type(value) is type(choice) and value == choice
    return isinstance(value, Real) and not isinstance(value, bool) and value == choice


def only(parameter: str, *choices: Any, fit_only: bool = True) -> Rule:
    """Run only where the hyperparameter is one of `choices`.

    A hyperparameter that the installed scikit-learn does not have is no obstacle.
    """

    def test(call: Call) -> str | None:
        if parameter not in call.parameters:
            return None
        value = call.parameters[parameter]
        if any(_same(value, choice) for choice in choices):
            return None
        return f"{parameter}={value!r}"

    if len(choices) == 1 and isinstance(choices[0], bool):
        text = f"{parameter}={not choices[0]}"
    else:
        text = f"{parameter} other than {' or '.join(map(repr, choices))}"
    return Rule(text, test, fit_only, parameter)


def refuse(text: str, test: Callable[[Call], Any], *, fit_only: bool = True) -> Rule:
    """Do not run where `test` is true of the call; `text` is the reason."""
    return Rule(text, lambda call: text if test(call) else None, fit_only)


@dataclass
class Outcome:
    """What an engine gives back.

    Attributes
    ----------
    result : object
        What the method returns, as a device array where the engine has one. None from a method
        that returns the estimator.
    model : object
        From a method that fits: the engine's own fitted model.
    attributes : dict
        From a method that fits: fitted attributes that are at hand already. They are set at
        once, the others on first access.
    announce : list of callable
        Gives the warnings that scikit-learn would have given. Called once the outcome is taken
        over, so that a call that ends in scikit-learn after all does not warn twice.
    """

    result: Any = None
    model: Any = None
    attributes: dict[str, Any] = field(default_factory=dict)
    announce: list[Callable[[], None]] = field(default_factory=list)


class Engine(abc.ABC):
    """A way of computing some methods of one estimator.

    Attributes
    ----------
    name : str
        As it stands in the profile and in the table of supported calls.
    methods : tuple of str
        The methods that it can run.
    rules : tuple of Rule
        What keeps a call off it.
    per_row : frozenset of str
        Fitted attributes with a row for each row of the training data, and which no method
        reads: changing one in place does not make the model stale.
    repeats : bool
        Whether two fits with the same explicit ``random_state`` give the same result, as they do
        in scikit-learn.
    """

    name: str
    methods: tuple[str, ...] = ()
    rules: tuple[Rule, ...] = ()
    per_row: frozenset[str] = frozenset()
    repeats: bool = True

    @abc.abstractmethod
    def unusable(self) -> str | None:
        """Return why the engine cannot be used in this process, or None. Cheap."""

    def load(self) -> None:  # noqa: B027 - an engine with nothing to import needs none
        """Import what the engine needs, so that the first call does not have to."""

    def every_rule(self) -> tuple[Rule, ...]:
        """Return the rules in force, with those that a family of engines has in common."""
        return self.rules

    def refusals(self, call: Call) -> Iterator[str]:
        """Yield the reasons that keep `call` off the engine. Touches no GPU and no element.

        Rules take for granted what other rules see to, that X has two dimensions for one: where
        there is a reason, it does not matter that another rule failed.
        """
        refused, failure = False, None
        for rule in self.every_rule():
            try:
                reason = rule.reason(call)
            except Exception as error:
                failure = error
                continue
            if reason is not None:
                refused = True
                yield reason
        if failure is not None and not refused:
            raise failure

    def unrepeatable(self, call: Call) -> str | None:
        """Return why `call` could differ from run to run where scikit-learn's would not, or None.

        With ``reproducible=True`` such a call runs in scikit-learn; otherwise the plan says so.
        """
        if self.repeats or not call.fits or call.parameters.get("random_state") is None:
            return None
        return "on the GPU the same random_state does not give the same result again"

    @abc.abstractmethod
    def run(self, call: Call, model: Any) -> Outcome:
        """Run `call`.

        Parameters
        ----------
        call : Call
        model : object
            The fitted model; None for a method that fits anew. A method that goes on from it
            leaves it as it was and gives back another one.

        Raises
        ------
        Refusal
            Where the data or the result show that scikit-learn must do it.
        Exception
            Any other failure. The call goes to scikit-learn.
        """

    @abc.abstractmethod
    def attributes(self, estimator: Any, model: Any) -> dict[str, Any]:
        """Return the fitted attributes as scikit-learn has them: host arrays, its dtypes."""

    def remains(self, model: Any) -> dict[str, Any]:
        """Return those fitted attributes that are left where the device is lost: those on the host.

        Touches no device. Without the others an estimator is not whole, but may predict.
        """
        return {}

    @abc.abstractmethod
    def restore(self, estimator: Any) -> Any:
        """Return a model made from the fitted attributes of `estimator`, which are on the host.

        Raises
        ------
        Refusal
            Where the engine cannot hold such a model.
        """


def bind(
    signature: inspect.Signature, args: tuple, kwargs: dict[str, Any], *, partial: bool = False
) -> dict[str, Any]:
    """Return the arguments by name, the estimator left out.

    Defaults are filled in, unless arguments may be missing (`partial`).

    Raises
    ------
    TypeError
        Where the arguments do not fit the signature.
    """
    bound = (signature.bind_partial if partial else signature.bind)(*args, **kwargs)
    if not partial:
        bound.apply_defaults()
    arguments = dict(bound.arguments)
    for name, parameter in signature.parameters.items():
        if parameter.kind is inspect.Parameter.VAR_KEYWORD:
            arguments.update(arguments.pop(name, {}))
    return arguments
