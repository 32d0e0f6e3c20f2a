"""A metric of accelsk's in the place of a scorer is the mistake that it is with scikit-learn's."""

from __future__ import annotations

import functools
from typing import Any

from sklearn.metrics import _scorer

from accelsk import registry

__all__ = ["check_scoring", "plain"]


def plain(value: Any) -> Any:
    """Return scikit-learn's function where `value` is ours that stands for it."""
    original: Any = getattr(value, "__wrapped__", None)
    try:
        ours = registry.accelerated_functions().get(original)
    except TypeError:  # not hashable, so none of scikit-learn's
        return value
    return original if original is not None and value is ours else value


@functools.wraps(_scorer.check_scoring)
def check_scoring(*args: Any, **kwargs: Any) -> Any:
    # scikit-learn tells metrics by the module that they say they are from
    given = {name: plain(value) for name, value in kwargs.items()}
    return _scorer.check_scoring(*map(plain, args), **given)


check_scoring.__module__ = __name__
registry.add_function(_scorer.check_scoring, check_scoring)
