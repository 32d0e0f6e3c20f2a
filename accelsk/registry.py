"""Which accelerated class stands for which original."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import sys
import types
from collections.abc import Callable, Sequence
from typing import Any

from sklearn.base import BaseEstimator

from accelsk.engines.base import Engine
from accelsk.estimator import SLOT, Accelerated, Counterpart
from accelsk.introspection import remember

__all__ = [
    "accelerated_classes",
    "accelerated_functions",
    "add",
    "add_composite",
    "add_function",
    "composite_classes",
    "from_sklearn",
    "is_proxy",
    "register",
    "to_sklearn",
]

#: Packages other than scikit-learn with a module of accelsk's of the same name.
OTHER_PACKAGES = ("hdbscan", "umap")

_classes: dict[type, type[Accelerated]] = {}
_composites: dict[type, type[Counterpart]] = {}
_functions: dict[Callable[..., Any], Callable[..., Any]] = {}


def add(cls: type[Accelerated]) -> None:
    """Record `cls` as the accelerated class of its original. A later one takes its place."""
    remember(cls)
    _classes[cls._accelsk_original] = cls


def accelerated_classes() -> dict[type, type[Accelerated]]:
    """Return the accelerated classes that have been imported, by original."""
    return dict(_classes)


def add_composite(cls: type[Counterpart]) -> None:
    """Record `cls`, which has no engines, as what stands for its original: a pipeline, a search."""
    _composites[cls._accelsk_original] = cls


def composite_classes() -> dict[type, type[Counterpart]]:
    """Return the classes without engines of their own that have been imported, by original."""
    return dict(_composites)


def add_function(original: Callable[..., Any], ours: Callable[..., Any]) -> None:
    """Record `ours` as what stands for the public function `original` of scikit-learn."""
    _functions[original] = ours


def accelerated_functions() -> dict[Callable[..., Any], Callable[..., Any]]:
    """Return the functions of accelsk's that have been imported, by original."""
    return dict(_functions)


def register(
    original: type, engines: Sequence[Engine], *, name: str | None = None, module: str | None = None
) -> type[Accelerated]:
    """Make the accelerated class of an estimator.

    The same as the class statement ``class Name(Accelerated, original, engines=engines)``, which
    does for classes that need code of their own.

    Parameters
    ----------
    original : type
        A class that follows scikit-learn's conventions: hyperparameters are set in ``__init__``
        and nowhere else, fitted attributes in ``fit``.
    engines : sequence of Engine
        In the order in which they are asked whether they can run a call.
    name : str, default=None
        The name of the new class; None takes that of `original`.
    module : str, default=None
        The module in which the caller puts the class under `name`; pickles look for it there.
        None means the module that calls `register`.

    Returns
    -------
    cls : type
        A subclass of `original`, whose instances are instances of `original`.

    Raises
    ------
    TypeError
        If `original` is not a class with scikit-learn's ``get_params``, or is accelerated already;
        or if one of `engines` is not an `Engine`.
    ValueError
        If `engines` is empty.

    Examples
    --------
    An engine that takes no call yet; a whole one is in the README.

    >>> import accelsk
    >>> import sklearn.preprocessing
    >>> from accelsk.engines.cupy import CupyEngine
    >>> class RanksOnCupy(CupyEngine):
    ...     methods = ()
    ...     rules = ()
    >>> Ranks = accelsk.register(sklearn.preprocessing.QuantileTransformer, [RanksOnCupy()])
    >>> issubclass(Ranks, sklearn.preprocessing.QuantileTransformer)
    True
    """
    if not (isinstance(original, type) and hasattr(original, "get_params")):
        raise TypeError(f"{original!r} is not a class with scikit-learn's get_params")
    if issubclass(original, Accelerated):
        raise TypeError(f"{original.__name__} is accelerated already")
    if not isinstance(engines, Sequence):
        raise TypeError(f"engines must be a list of engines, got {engines!r}")
    if not engines:
        raise ValueError("engines is empty")
    for engine in engines:
        if not isinstance(engine, Engine):
            raise TypeError(f"an instance of a subclass of Engine is needed, got {engine!r}")
    if module is None:
        frame = inspect.currentframe()
        caller = frame.f_back if frame is not None else None
        module = caller.f_globals.get("__name__", __name__) if caller is not None else __name__
    name = name or original.__name__
    namespace = {"__module__": module, "__qualname__": name}
    return types.new_class(
        name, (Accelerated, original), {"engines": engines}, lambda body: body.update(namespace)
    )


def is_proxy(instance_or_class: Any) -> bool:
    """Whether a class is accelerated, or an instance one of such a class.

    Parameters
    ----------
    instance_or_class : object

    Returns
    -------
    is_proxy : bool
        True for accelerated classes, their subclasses, and instances of either.

    Examples
    --------
    >>> import accelsk
    >>> from accelsk.linear_model import Ridge
    >>> import sklearn.linear_model
    >>> accelsk.is_proxy(Ridge), accelsk.is_proxy(sklearn.linear_model.Ridge())
    (True, False)
    """
    cls = instance_or_class if isinstance(instance_or_class, type) else type(instance_or_class)
    return issubclass(cls, Accelerated) and bool(cls._accelsk_engines)


def _transfer(source: Any, cls: Any) -> Any:
    target = cls.__new__(cls)
    own = {name: value for name, value in vars(source).items() if name != SLOT}
    target.__dict__.update(own)
    return target


def _converted(value: Any, convert: Callable[[Any], Any]) -> Any:
    """Return `value` with the estimators in it, and in lists and the like, converted."""
    if type(value) in (list, tuple):
        return type(value)(_converted(item, convert) for item in value)
    if type(value) is dict:
        return {name: _converted(item, convert) for name, item in value.items()}
    return convert(value) if isinstance(value, BaseEstimator) else value


def _with_parts(composite: Any, convert: Callable[[Any], Any]) -> Any:
    """Return a composite with what it holds converted."""
    for name, value in vars(composite).items():
        composite.__dict__[name] = _converted(value, convert)
    return composite


def to_sklearn(est: Any) -> Any:
    """Return the plain scikit-learn estimator that equals an accelerated one.

    Parameters
    ----------
    est : estimator
        An instance of an accelerated class, or a pipeline or the like from accelsk: what that
        holds is converted, too.

    Returns
    -------
    plain : estimator
        An instance of scikit-learn's class with the same hyperparameters and fitted attributes.
        Arrays are shared, not copied.

    Raises
    ------
    TypeError
        If `est` is not an instance of an accelerated class, or is one of a user's subclass.

    Examples
    --------
    >>> import accelsk
    >>> from accelsk.linear_model import Ridge
    >>> type(accelsk.to_sklearn(Ridge(alpha=2.0))).__module__
    'sklearn.linear_model._ridge'
    """
    _require_instance(est)
    if not _is_ours(est):
        raise TypeError(f"{type(est).__name__} is not an accelerated class")
    est._accelsk_fetch()
    plain = _transfer(est, est._accelsk_original)
    if isinstance(est, Accelerated):
        return plain
    return _with_parts(plain, lambda part: to_sklearn(part) if _is_ours(part) else part)


def _is_ours(est: Any) -> bool:
    """Whether `est` is of a class of accelsk's itself, not of a subclass."""
    return isinstance(est, Counterpart) and type(est) is getattr(est, "_accelsk_class", None)


def from_sklearn(est: Any) -> Any:
    """Return the accelerated estimator that equals a plain scikit-learn one.

    A model that was fitted on a CPU then predicts on the GPU.

    Parameters
    ----------
    est : estimator
        An instance of a class that has an accelerated class. Of a pipeline or the like, what it
        holds is converted as far as there are such classes.

    Returns
    -------
    accelerated : estimator
        With the same hyperparameters and fitted attributes. Arrays are shared, not copied.

    Raises
    ------
    TypeError
        If there is no accelerated class for the type of `est`, or `est` is accelerated already.

    Examples
    --------
    >>> import accelsk, sklearn.linear_model
    >>> accelsk.from_sklearn(sklearn.linear_model.Ridge(alpha=2.0)).alpha
    2.0
    """
    _require_instance(est)
    if isinstance(est, Counterpart):
        raise TypeError(f"{type(est).__name__} is accelerated already")
    cls = _find(type(est))
    if cls is None:
        raise TypeError(f"{type(est).__name__} has no accelerated class")
    accelerated = _transfer(est, cls)
    if issubclass(cls, Accelerated):
        return accelerated

    def accelerate(part: Any) -> Any:
        known = not isinstance(part, Counterpart) and _find(type(part)) is not None
        return from_sklearn(part) if known else part

    return _with_parts(accelerated, accelerate)


def _require_instance(est: Any) -> None:
    if isinstance(est, type):
        raise TypeError(f"an instance is needed, not the class {est.__name__}")


def _find(original: type) -> type[Counterpart] | None:
    """Return the class that stands for `original`, importing the module that would define it."""
    package, _, rest = original.__module__.partition(".")
    if original not in _classes and package in ("sklearn", *OTHER_PACKAGES):
        module = f"accelsk.{rest.partition('.')[0] if package == 'sklearn' else package}"
        if module not in sys.modules and importlib.util.find_spec(module) is not None:
            importlib.import_module(module)
    return _classes.get(original) or _composites.get(original)
