"""What follows from an object standing under the name of its original: instances and pickles."""

from __future__ import annotations

import copyreg
import functools
import sys
from collections.abc import Callable, Iterable
from pydoc import locate
from typing import Any

from accelsk._names import public_path
from accelsk.estimator import STANDING, PlainCall

__all__ = ["stand_in", "step_down"]


def stand_in(replacements: dict[Any, Any]) -> None:
    """Have the values stand for the keys; call it once the names are changed."""
    STANDING.update(ours for ours in replacements.values() if isinstance(ours, type))
    _forget_instance_checks(replacements.values())
    for original, ours in replacements.items():
        if not isinstance(original, type):
            _pickle_as(ours, public_path(original).rpartition(".")[0])
        elif not _is_findable(original):
            copyreg.dispatch_table.setdefault(original, _reduce)


def step_down(replacements: dict[Any, Any]) -> None:
    """Take that back."""
    STANDING.difference_update(replacements.values())
    _forget_instance_checks(replacements.values())
    for original, ours in replacements.items():
        if not isinstance(original, type):
            _pickle_as(ours, None)
        elif copyreg.dispatch_table.get(original) is _reduce:
            del copyreg.dispatch_table[original]


def _is_findable(original: type) -> bool:
    """Whether pickle finds a class under the name that it has."""
    return getattr(sys.modules.get(original.__module__), original.__qualname__, None) is original


class _Maker:
    """Makes an empty instance of a class; as a pickle, the class is named, not stored."""

    def __init__(self, cls: type) -> None:
        self._cls = cls

    def __call__(self) -> Any:
        return object.__new__(self._cls)

    def __reduce__(self) -> tuple[Callable[..., Any], tuple]:
        cls = PlainCall(locate, f"{self._cls.__module__}.{self._cls.__qualname__}")
        return functools.partial, (copyreg._reconstructor, cls, object, None)  # type: ignore[attr-defined]


def _reduce(instance: Any) -> tuple[Any, ...]:
    return _Maker(type(instance)), (), instance.__getstate__()


def _pickle_as(function: Any, module: str | None) -> None:
    """Have pickle look for a function in `module`, where it stands while patched, or at home.

    A function is pickled as its name. Under that of scikit-learn's it loads without accelsk.
    """
    if module is None:
        function.__module__ = vars(function).pop(_HOME, function.__module__)
    else:
        vars(function).setdefault(_HOME, function.__module__)
        function.__module__ = module


#: Where a function notes its own module.
_HOME = "_accelsk_module"


def _forget_instance_checks(classes: Iterable[Any]) -> None:
    """Have ``isinstance`` ask again: abstract classes remember what they have answered."""
    for cls in classes:
        if isinstance(cls, type):
            cls._abc_caches_clear()  # type: ignore[attr-defined]
