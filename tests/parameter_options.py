"""The values that a class declares for its hyperparameters, walked one at a time."""

from __future__ import annotations

from collections.abc import Iterator
from numbers import Integral, Real
from typing import Any, NamedTuple

import numpy as np
from sklearn.utils._param_validation import Interval, Options, StrOptions

__all__ = ["Option", "options", "options_of"]


class Option(NamedTuple):
    """A value of one hyperparameter."""

    parameter: str
    value: Any

    def __str__(self) -> str:
        return f"{self.parameter}={self.value!r}"


def options(cls: Any) -> Iterator[Option]:
    """Yield every declared option, and numbers inside every declared interval."""
    for parameter in sorted(cls._get_param_names()):
        yield from options_of(cls, parameter)


def options_of(cls: Any, parameter: str) -> Iterator[Option]:
    """Yield the values of one hyperparameter; classes of values without a rule yield none."""
    seen = set()
    declared = getattr(cls, "_parameter_constraints", {})  # umap-learn and hdbscan declare none
    constraints = declared.get(parameter, "no_validation")
    if constraints == "no_validation":
        return
    for constraint in constraints:
        for value in _values(constraint):
            if repr(value) not in seen:
                seen.add(repr(value))
                yield Option(parameter, value)


def _values(constraint: Any) -> Iterator[Any]:
    if constraint is None:
        yield None
    elif isinstance(constraint, str):
        if constraint in ("boolean", "verbose"):
            yield from (False, True)
        elif constraint == "random_state":
            yield from (None, 3, np.random.RandomState(3))
    elif isinstance(constraint, StrOptions):
        yield from sorted(constraint.options - constraint.deprecated)
    elif isinstance(constraint, Options):
        yield from sorted(constraint.options, key=repr)
    elif isinstance(constraint, Interval):
        yield from _inside(constraint)
    elif constraint is bool:
        yield from (False, True)
    elif constraint is Integral:
        yield 1
    elif constraint is Real:
        yield 0.5


def _inside(interval: Interval) -> Iterator[Any]:
    """Yield the ends that belong to the interval, and values a little way in."""
    low, high = interval.left, interval.right
    if interval.type is Integral:
        candidates = [low, high, 1, 2, 5] if low is not None else [high, -1, 1]
    else:
        candidates = [low, high, 0.1, 0.5, 3.0] if low is not None else [high, -0.5, 0.5]
    for value in candidates:
        if value is not None and np.isfinite(value) and value in interval:
            yield int(value) if interval.type is Integral else float(value)
