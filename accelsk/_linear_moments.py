"""What engines of linear models that rest on moments alone have in common."""

from __future__ import annotations

import abc
import inspect
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import sklearn

from accelsk._fitted_types import as_in_sklearn
from accelsk.algorithms.moments import DigitsLost, Moments
from accelsk.algorithms.residuals import Residuals, nearby
from accelsk.device.transfer import to_device
from accelsk.engines import inputs
from accelsk.engines.base import Call, Outcome, Rule, refuse
from accelsk.engines.moments import Block, MomentsEngine, blocks, moments, on_device
from accelsk.exceptions import Invalid, Refusal

__all__ = [
    "LONG",
    "QUIET",
    "ROUTING",
    "SPLITTER",
    "SPLITTER_PARAMETERS",
    "LinearOnMoments",
    "Problem",
    "Solved",
    "Warned",
    "error_rows",
    "few_features",
    "intercept_of",
    "of_model",
    "real_numbers",
]

#: Most of what is here works on the Gram matrix of the columns.
LONG = refuse("no more rows than features", lambda call: call.X.shape[:1] <= call.X.shape[-1:])

#: Steps on the way are not printed.
QUIET = refuse("verbose", lambda call: call.parameters["verbose"])

ROUTING = refuse(
    "metadata routing is enabled", lambda call: sklearn.get_config()["enable_metadata_routing"]
)


def _unrepeatable_split(call: Call) -> bool:
    """Whether splitting once leaves nothing, or something else, for scikit-learn."""
    cv = call.parameters["cv"]
    shared = isinstance(getattr(cv, "random_state", None), np.random.RandomState)
    return hasattr(cv, "__next__") or shared


def _further_parameters(call: Call) -> bool:
    """Whether there are arguments beyond those that scikit-learn's method names."""
    named = inspect.signature(getattr(call.original, call.method)).parameters
    return not call.arguments.keys() <= named.keys()


SPLITTER_PARAMETERS = refuse(
    Invalid("parameters for the splitter or the scorer without metadata routing"),
    _further_parameters,
)


SPLITTER = refuse("cv is an iterator or draws from a shared generator", _unrepeatable_split)


def few_features(most: int) -> Rule:
    """Return the rule for what the host does on the Gram matrix."""
    return refuse(f"more than {most} features", lambda call: call.X.shape[-1:] > (most,))


def real_numbers(call: Call, parameter: str) -> np.ndarray | None:
    """Return a hyperparameter as an array of floats where it is made of real numbers."""
    try:
        return np.asarray(call.parameters[parameter], dtype=np.float64)
    except (TypeError, ValueError):
        return None


def intercept_of(call: Call, found: Moments, coef: np.ndarray) -> Any:
    """Return the intercept that belongs to coefficients of shape (n_targets, n_features)."""
    if not call.parameters["fit_intercept"]:
        return 0.0
    intercept = found.Y_mean - coef.reshape(len(found.Y_mean), -1) @ found.X_mean
    return intercept if len(call.y.shape) == 2 else intercept[0]


class Warned:
    """Keeps warnings until the outcome is taken over, so that none is given twice."""

    def __init__(self) -> None:
        self._caught: list[warnings.WarningMessage] = []

    @contextmanager
    def listening(self) -> Iterator[None]:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            yield
        self._caught += caught

    def refuse_any(self, reason: str) -> None:
        """Refuse where there was a warning: it is for scikit-learn to give."""
        if self._caught:
            raise Refusal(reason)

    def announce(self) -> list[Callable[[], None]]:
        """Return what gives the warnings."""
        seen: dict[Any, Any] = {}
        return [
            partial(
                warnings.warn_explicit, w.message, w.category, w.filename, w.lineno, registry=seen
            )
            for w in self._caught
        ]


class _Sent(SimpleNamespace):
    """Attributes that go to the device when they are first asked for: of many models, none are."""

    def __getattribute__(self, name: str) -> Any:
        value = super().__getattribute__(name)
        if type(value) is np.ndarray or isinstance(value, np.generic):
            value = on_device(value)
            setattr(self, name, value)
        return value


def of_model(model: Any) -> SimpleNamespace:
    """Return on the device what methods read of a linear model, wherever it was fitted."""
    return _Sent(coef_=np.asarray(model.coef_), intercept_=model.intercept_)


class LinearOnMoments(MomentsEngine):
    """A linear model whose fit looks at moments.

    Attributes
    ----------
    outputs : bool
        Whether ``y`` may have several columns.
    options : tuple of str
        The hyperparameters on which the types of fitted attributes depend.
    """

    methods = ("fit", "predict", "score")
    linear = True
    outputs: bool = False
    options: tuple[str, ...] = ("fit_intercept",)

    def every_rule(self) -> tuple[Rule, ...]:
        return (
            *super().every_rule(),
            inputs.EXTENDED_PRECISION,
            inputs.PRECISION,
            inputs.target_rule(outputs=self.outputs),
        )

    def finished(
        self,
        call: Call,
        found: Moments,
        attributes: dict[str, Any],
        warned: Warned,
        **example: Any,
    ) -> Outcome:
        """Return the outcome of a fit with these attributes, and its intercept.

        `example` has hyperparameters for the fit that shows the types of attributes.
        """
        coef = np.asarray(attributes["coef_"])
        if not np.isfinite(coef).all():
            raise Refusal("the coefficients are not finite")
        attributes["intercept_"] = intercept_of(call, found, coef)
        attributes = as_in_sklearn(call, attributes, *self.options, **example)
        model = of_model(SimpleNamespace(**attributes))
        return Outcome(model=model, attributes=attributes, announce=warned.announce())

    def restore(self, estimator: Any) -> SimpleNamespace:
        return of_model(estimator)

    def predictor(self, call: Call, model: Any) -> Callable[[Any], Any]:
        return lambda X: X @ model.coef_.T + model.intercept_


class Problem(NamedTuple):
    """What there is to solve, on the host.

    Attributes
    ----------
    found : Moments
        About zero where there is no intercept.
    centred : Moments
        The same, always about the mean.
    residuals : Residuals
        For one target.
    """

    found: Moments
    centred: Moments
    residuals: Residuals


def error_rows(call: Call, found: Moments, base: np.ndarray) -> Iterator[Block]:
    """Yield the rows of the call with the errors of coefficients in the place of ``y``."""
    X_mean, Y_mean, coef = to_device(found.X_mean), to_device(found.Y_mean), to_device(base)
    for X, Y, weight in blocks(call):
        yield Block(X, Y - Y_mean - (X - X_mean) @ coef, weight)


class Solved(LinearOnMoments, abc.ABC):
    """One pass for the moments, then a solution on the host.

    Where it fits so well that its errors drown in rounding, another pass is for those.
    """

    def fit(self, call: Call, X: Any) -> Outcome:
        centred = moments(call)
        found = centred if call.parameters["fit_intercept"] else centred.about_zero()
        problem = Problem(found, centred, Residuals.plain(found))
        try:
            try:
                return self._solved(call, problem)
            except DigitsLost:
                return self._solved(call, problem._replace(residuals=self._closer(call, found)))
        except DigitsLost as error:
            raise Refusal(str(error)) from error

    @staticmethod
    def _closer(call: Call, found: Moments) -> Residuals:
        base = nearby(found)
        errors = moments(call, rows=partial(error_rows, call, found, base))
        if not call.parameters["fit_intercept"]:
            errors = errors.about_zero()
        return Residuals.about(found, base[:, 0], errors)

    def _solved(self, call: Call, problem: Problem) -> Outcome:
        warned = Warned()
        attributes = self.solve(call, problem, warned)
        return self.finished(call, problem.found, attributes, warned, **self.example(call))

    @abc.abstractmethod
    def solve(self, call: Call, problem: Problem, warned: Warned) -> dict[str, Any]:
        """Return the fitted attributes but for the intercept."""

    def example(self, call: Call) -> dict[str, Any]:
        """Return what `finished` takes."""
        return {}
