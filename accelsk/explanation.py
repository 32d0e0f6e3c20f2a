"""`explain`: what would run where, and why, without running it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from accelsk.device.foreign import adopted
from accelsk.dispatch import method_of, plan
from accelsk.registry import is_proxy

if TYPE_CHECKING:
    from accelsk.costs import Expected

__all__ = ["Explanation", "explain"]


@dataclass(frozen=True)
class Explanation:
    """Where a call would run.

    Attributes
    ----------
    call : str
        The qualified name, such as ``"Ridge.fit"``.
    engine : str or None
        What would compute it; None means scikit-learn.
    reasons : tuple of str
        Why it would run in scikit-learn.
    obstacles : tuple of str
        What would keep it off a GPU even where one is usable and may be used.
    notes : tuple of str
        What differs on a GPU from scikit-learn, without keeping the call off it.
    expected : Expected or None
        The seconds that it is expected to take on either side, where that had a say.
    """

    call: str
    engine: str | None
    reasons: tuple[str, ...] = ()
    obstacles: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    expected: Expected | None = None

    def __str__(self) -> str:
        notes = [f"Note: {note}." for note in self.notes]
        if self.engine is not None:
            times = "" if self.expected is None else f": {self.expected}"
            return "\n".join([f"{self.call} runs on the GPU ({self.engine}){times}.", *notes])
        lines = [f"{self.call} runs in scikit-learn:"]
        lines += [f"  - {reason}" for reason in (*self.reasons, *self.obstacles)]
        if not self.obstacles and self.reasons:
            lines.append("Nothing else keeps it off a GPU.")
        return "\n".join([*lines, *notes])


def explain(estimator: Any, X: Any = None, y: Any = None, method: str = "fit") -> Explanation:
    """Print and return what a call would run on, and why, without running it.

    Only types and shapes are looked at: values (NaN, for one) can still send the call to
    scikit-learn.

    Parameters
    ----------
    estimator : estimator
    X : array-like of shape (n_samples, n_features), default=None
        The data of the call. None asks about the hyperparameters alone.
    y : array-like, default=None
    method : str, default="fit"

    Returns
    -------
    explanation : Explanation

    Raises
    ------
    TypeError
        If `estimator` is a class or no estimator at all, or `method` is no text.
    AttributeError
        If `estimator` has no such method.

    Examples
    --------
    >>> import accelsk
    >>> from accelsk.linear_model import Ridge
    >>> plan = accelsk.explain(Ridge(positive=True), [[0.0], [1.0], [2.0]], [0.0, 1.0, 2.0])
    Ridge.fit runs in scikit-learn:
    ...
    >>> plan.obstacles
    ('positive=True',)
    """
    explanation = _explain(estimator, X, y, method)
    print(explanation)
    return explanation


def _not_accelerated(estimator: Any) -> str:
    reason = f"{type(estimator).__name__} is not accelerated"
    values = estimator.get_params().items() if hasattr(estimator, "get_params") else ()
    parts = [name for name, value in values if not isinstance(value, type) and is_proxy(value)]
    return f"{reason} itself, but parts of it are: {', '.join(parts)}" if parts else reason


def _explain(estimator: Any, X: Any, y: Any, method: str) -> Explanation:
    if isinstance(estimator, type):
        raise TypeError(f"an instance is needed, not the class {estimator.__name__}")
    if not (hasattr(estimator, "fit") or hasattr(estimator, "get_params")):
        raise TypeError(f"an estimator is needed, got {estimator!r} (type {type(estimator)})")
    if not isinstance(method, str):
        raise TypeError(f"method must be the name of a method, got {method!r}")
    if not callable(getattr(estimator, method)):
        raise AttributeError(f"{method!r} of {type(estimator).__name__} is no method")
    name = f"{type(estimator).__name__}.{method}"
    if not is_proxy(estimator):
        return Explanation(name, None, (), (_not_accelerated(estimator),))
    dispatched = method_of(type(estimator), method)
    if dispatched is None:
        return Explanation(name, None, (), (f"no engine runs {method} itself",))
    given = {"X": adopted(X), "y": adopted(y)}
    arguments = {
        k: v for k, v in given.items() if k in dispatched.signature.parameters and v is not None
    }
    partial = X is None and "X" in dispatched.signature.parameters
    actual = plan(estimator, dispatched, (), arguments, partial=partial)
    if actual.engine is not None:
        return Explanation(
            dispatched.qualname, actual.engine.name, notes=actual.notes, expected=actual.expected
        )
    supposed = plan(estimator, dispatched, (), arguments, assume_usable=True, partial=partial)
    reasons = tuple(reason for reason in actual.reasons if reason not in supposed.reasons)
    return Explanation(
        dispatched.qualname, None, reasons, supposed.reasons, supposed.notes, actual.expected
    )
