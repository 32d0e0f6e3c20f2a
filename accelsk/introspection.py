"""What the methods of a scikit-learn class read and assign, from their compiled code.

Two questions are answered for every supported release of scikit-learn without a table to keep:
which attributes a fit sets (so that a fit on the GPU replaces exactly those), and which of its
own methods a method may call (so that a user's override of one of them is never bypassed).
"""

from __future__ import annotations

import dis
import functools
import inspect
from collections.abc import Iterator, Set
from operator import is_
from types import CodeType, FunctionType, MappingProxyType
from typing import Any

from sklearn.base import BaseEstimator

from accelsk._sklearn import BOOKKEEPING

__all__ = [
    "assigned_names",
    "overridden",
    "reached_names",
    "remember",
    "replaced",
    "used_names",
    "validates_input",
]


def _functions(attribute: object) -> Iterator[FunctionType]:
    """Yield the plain functions behind a method, property, wrapper or descriptor."""
    if isinstance(attribute, property):
        candidates = [attribute.fget, attribute.fset]
    elif isinstance(attribute, (classmethod, staticmethod)):
        candidates = [attribute.__func__]
    else:  # `available_if` keeps the function under `fn`, `cached_property` under `func`
        candidates = [getattr(attribute, "fn", None) or getattr(attribute, "func", attribute)]
    for candidate in candidates:
        if callable(candidate):
            function = inspect.unwrap(candidate)
            if isinstance(function, FunctionType):
                yield function


def _codes(code: CodeType) -> Iterator[CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _codes(constant)


@functools.cache
def _reached_codes(cls: type, method: str) -> dict[str, tuple[CodeType, ...]]:
    """Map each attribute of `cls` that `method` may use, itself included, to its code."""
    reached: dict[str, tuple[CodeType, ...]] = {}
    pending = [method]
    while pending:
        name = pending.pop()
        if name in reached:
            continue
        codes = tuple(
            code
            for klass in cls.__mro__
            if name in vars(klass) and klass not in (BaseEstimator, object)
            for function in _functions(vars(klass)[name])
            for code in _codes(function.__code__)
        )
        reached[name] = codes
        pending.extend(
            used
            for code in codes
            for used in code.co_names
            if inspect.getattr_static(cls, used, None)
        )
    return reached


@functools.cache
def reached_names(cls: type, method: str) -> frozenset[str]:
    """Return the attributes of `cls` that `method`, or what it calls, may use.

    The answer errs on the side of too many: any name in the code counts.
    """
    return frozenset(_reached_codes(cls, method))


@functools.cache
def used_names(cls: type, methods: tuple[str, ...]) -> frozenset[str]:
    """Return the names in the code of `methods` of `cls`, and of what they call of it."""
    return frozenset(
        name
        for method in methods
        for codes in _reached_codes(cls, method).values()
        for code in codes
        for name in code.co_names
    )


@functools.cache
def assigned_names(cls: type, methods: tuple[str, ...] = ("fit",)) -> frozenset[str]:
    """Return the instance attributes that `methods` of `cls` may set: its fitted state.

    What ``__init__`` sets under a plain name is no part of that, whoever else assigns to such a
    name: an attribute of some other object may have it, too.
    """
    parameters = set(cls._get_param_names()) if hasattr(cls, "_get_param_names") else set()
    initial = {name for name in _stored_names(cls, ("__init__",)) if name.strip("_") == name}
    return _stored_names(cls, methods) - parameters - initial - BOOKKEEPING


def _stored_names(cls: type, methods: tuple[str, ...]) -> frozenset[str]:
    return frozenset(
        instruction.argval
        for method in methods
        for codes in _reached_codes(cls, method).values()
        for code in codes
        for instruction in dis.get_instructions(code)
        if instruction.opname == "STORE_ATTR"
    )


#: What accelerated classes, and those behind them, held when accelsk first saw them.
_contents: dict[type, dict[str, Any]] = {}

#: Stands for a name that a class does not have.
_ABSENT = object()


def remember(accelerated: type) -> None:
    """Have on record what `accelerated` is made of, so that later changes are noticed."""
    for klass in accelerated.__mro__:
        _contents.setdefault(klass, dict(vars(klass)))


class _Watch:
    """Tells at little cost whether classes still hold what they hold now under some names."""

    def __init__(self, classes: tuple[type, ...], names: Set[str]) -> None:
        self._all = [vars(klass) for klass in classes]
        self._sizes = [*map(len, self._all)]
        watched = [(held, name) for held in self._all for name in names & held.keys()]
        self._held = [held for held, _ in watched]
        self._names = [name for _, name in watched]
        self._values = [held[name] for held, name in watched]

    def untouched(self) -> bool:
        # every call asks, so there is no loop in Python here
        now = map(MappingProxyType.get, self._held, self._names)
        return [*map(len, self._all)] == self._sizes and all(map(is_, now, self._values))


_watches: dict[tuple[type, str], _Watch] = {}


@functools.cache
def _used(accelerated: type, method: str) -> frozenset[str]:
    """Return the names whose redefinition changes what scikit-learn's `method` does."""
    names = reached_names(accelerated, method) | assigned_names(accelerated, ("fit", method))
    return frozenset(name for name in names if not name.startswith("__"))


@functools.cache
def _ancestors(accelerated: type) -> frozenset[type]:
    return frozenset(accelerated.__mro__)


def _changed(klass: type, names: Set[str]) -> Set[str]:
    """Return which of `names` are in `klass` other than they were, or no longer."""
    now, then = vars(klass), _contents.get(klass, {})
    return {
        name
        for name in names & (now.keys() | then.keys())
        if now.get(name, _ABSENT) is not then.get(name, _ABSENT)
    }


def _untouched(accelerated: type, method: str) -> bool:
    """Whether nobody has changed what `method` uses of `accelerated` and what is behind it."""
    watch = _watches.get((accelerated, method))
    if watch is not None and watch.untouched():
        return True
    used = _used(accelerated, method)
    if any(_changed(klass, used) for klass in accelerated.__mro__):
        return False
    _watches[accelerated, method] = _Watch(accelerated.__mro__, used)
    return True


def overridden(cls: Any, accelerated: Any, method: str) -> tuple[str, ...]:
    """Return what is redefined of the names that scikit-learn's `method` would use.

    By a subclass, or by somebody who has put another function into one of the classes since:
    both can change from call to call.

    Parameters
    ----------
    cls : type
        The accelerated class itself or a subclass of it made by a user.
    accelerated : type
        The accelerated class.
    method : str
        The method that is being called. A redefinition of the method itself does not count where
        it is running already, having asked for the original through ``super()``.
    """
    untouched = _untouched(accelerated, method)
    if untouched and cls is accelerated:
        return ()
    used, known = _used(accelerated, method), _ancestors(accelerated)
    names: set[str] = set()
    behind = False
    for klass in cls.__mro__:
        if klass not in known:
            found: Set[str] = used & vars(klass).keys()
        elif untouched:
            found = frozenset()
        else:
            found = _changed(klass, used)
        if found:
            names |= found if behind else found - {method}
        behind = behind or klass is accelerated
    return tuple(sorted(names))


def replaced(estimator: Any, accelerated: Any, method: str) -> tuple[str, ...]:
    """Return what an instance itself redefines of the names that scikit-learn's `method` uses."""
    names = reached_names(accelerated, method) & vars(estimator).keys()
    return tuple(sorted(name for name in names if callable(vars(estimator)[name])))


#: What scikit-learn's classes call to check their input, which sets ``n_features_in_``.
_VALIDATORS = frozenset({"validate_data", "_validate_data", "_check_n_features", "n_features_in_"})


@functools.cache
def validates_input(cls: type) -> bool:
    """Whether the fit of `cls` records the number and the names of the features."""
    return any(
        not _VALIDATORS.isdisjoint(code.co_names)
        for codes in _reached_codes(cls, "fit").values()
        for code in codes
    )
