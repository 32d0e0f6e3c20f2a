"""`Accelerated`, the mixin that makes a scikit-learn class an accelerated one.

An accelerated class is a real subclass of scikit-learn's. After a fit on an engine, the engine's
model sits in one slot of the instance (`SLOT`) and the fitted attributes appear on first access:
Python calls ``__getattr__`` only for names that are missing, which fetches them all, and from
then on they are ordinary attributes. So there is one truth: the attributes, which the device
model stands for until they are fetched, and must agree with afterwards.
"""

from __future__ import annotations

import contextlib
import copy
import copyreg
import functools
import sys
import warnings
from abc import ABCMeta
from collections.abc import Callable, Sequence
from pydoc import locate
from typing import Any, ClassVar

import sklearn
from sklearn.base import BaseEstimator
from sklearn.exceptions import InconsistentVersionWarning

from accelsk.engines.base import Engine
from accelsk.exceptions import LostModelError, Refusal
from accelsk.introspection import assigned_names
from accelsk.state import SLOT, DeviceState, put

__all__ = ["ATTEMPTS", "SLOT", "STANDING", "Accelerated", "Counterpart", "DeviceState", "PlainCall"]

#: The classes that stand under the names of their originals now, as `accelsk.patch` has put them.
STANDING: set[type] = set()

#: Set by scikit-learn's input validation rather than by a fit itself.
_INPUT_NAMES = frozenset({"n_features_in_", "feature_names_in_"})

#: How often a call begins anew because another thread has fitted the estimator meanwhile.
ATTEMPTS = 8


@functools.cache
def _watched_names(cls: Any) -> frozenset[str]:
    return assigned_names(cls) | _INPUT_NAMES | set(cls._get_param_names())


class PlainCall:
    """Pickles as a call of an importable function, so that nothing is stored by value."""

    def __init__(self, function: Callable[..., Any], *args: Any) -> None:
        self._call = (function, args)

    def __reduce__(self) -> tuple[Callable[..., Any], tuple]:
        return self._call


@functools.cache
def _parameter_names(cls: Any, _: Callable[..., None]) -> tuple[str, ...]:
    return tuple(super(Counterpart, cls)._get_param_names())


def _portable(accelerated: type, original: type) -> PlainCall:
    """Return what loads as `accelerated` where that can be imported, else as `original`."""
    found: list[Any] = [_named(accelerated), original]
    defining = sys.modules.get(original.__module__)
    if getattr(defining, original.__qualname__, None) is not original:
        # patched where it is defined: pickle finds another class under its name
        found[1] = _named(original)
    return PlainCall(next, PlainCall(filter, None, found))


def _named(cls: type) -> PlainCall:
    return PlainCall(locate, f"{cls.__module__}.{cls.__qualname__}")


class Counterpart(BaseEstimator, metaclass=ABCMeta):
    """Mixin for a class of accelsk's that stands for one of scikit-learn's.

    What is common to accelerated estimators and to those that only pass data on, such as a
    pipeline: copies, pickles that load as the original where accelsk is absent, the link to
    scikit-learn's page.
    """

    _accelsk_original: ClassVar[type]
    _accelsk_class: ClassVar[type]
    _doc_link_module = "accelsk"

    @classmethod
    def _accelsk_stand_in(cls, kwargs: dict[str, Any]) -> None:
        """Make `cls` the counterpart of the class behind `Counterpart`."""
        mro = cls.__mro__
        # what stands before `Counterpart` is accelsk's own
        cls._accelsk_original = mro[mro.index(Counterpart) + 1]
        cls._accelsk_class = cls
        cls.__doc__ = cls._accelsk_original.__doc__
        if not getattr(cls._accelsk_original, "_sklearn_auto_wrap_output_keys", True):
            kwargs.setdefault("auto_wrap_output_keys", None)

    @classmethod
    def __subclasshook__(cls, other: type) -> Any:
        """While `cls` stands under the name of its original, instances of that are its own, too."""
        if cls in STANDING:
            return cls in other.__mro__ or cls._accelsk_original in other.__mro__
        if not hasattr(cls, "_accelsk_class"):  # a mixin
            return cls in other.__mro__
        return NotImplemented

    def _accelsk_fetch(self) -> None:
        """Have every fitted attribute on the host."""

    @classmethod
    def _get_param_names(cls) -> list[str]:
        if getattr(cls, "_accelsk_class", None) is not cls:  # it may come and go
            return super()._get_param_names()
        # scikit-learn reads the signature anew each time, several times in a call
        return [*_parameter_names(cls, cls.__init__)]

    def __sklearn_clone__(self) -> Any:
        from accelsk import residency

        clone = super().__sklearn_clone__()
        residency.cloned(self, clone)
        return clone

    # Copies and pickles see host state only

    def __getstate__(self) -> dict[str, Any]:
        self._accelsk_fetch()
        state = dict(super().__getstate__())
        state.pop(SLOT, None)
        if self._accelsk_keeps_version():
            # scikit-learn checks the version where the pickle loads as a class of its own
            state["_sklearn_version"] = sklearn.__version__
        return state

    @classmethod
    def _accelsk_keeps_version(cls) -> bool:
        """Whether scikit-learn would write its version into a pickle: for classes of its own."""
        its_own = cls._accelsk_original.__module__.startswith("sklearn.")
        return its_own and cls is cls._accelsk_class

    def __setstate__(self, state: dict[str, Any]) -> None:
        unknown = "pre-0.18" if self._accelsk_keeps_version() else sklearn.__version__
        version = state.pop("_sklearn_version", unknown)
        state.pop(SLOT, None)  # no pickle of ours has it
        if version != sklearn.__version__:
            warnings.warn(
                InconsistentVersionWarning(
                    estimator_name=type(self).__name__,
                    current_sklearn_version=sklearn.__version__,
                    original_sklearn_version=version,
                ),
                stacklevel=2,
            )
        super().__setstate__(state)

    def __copy__(self) -> Counterpart:
        self._accelsk_fetch()
        duplicate = type(self).__new__(type(self))
        duplicate.__setstate__(self.__getstate__())
        return duplicate

    def __deepcopy__(self, memo: dict[int, Any]) -> Counterpart:
        self._accelsk_fetch()
        duplicate = memo[id(self)] = type(self).__new__(type(self))
        duplicate.__setstate__(copy.deepcopy(self.__getstate__(), memo))
        return duplicate

    def __reduce_ex__(self, protocol: Any) -> Any:
        self._accelsk_fetch()
        if type(self) is not self._accelsk_class:
            return super().__reduce_ex__(protocol)
        cls = _portable(self._accelsk_class, self._accelsk_original)
        return copyreg._reconstructor, (cls, object, None), self.__getstate__()  # type: ignore[attr-defined]

    # The link in the HTML representation leads to scikit-learn's page of the original

    def _doc_link_url_param_generator(self) -> dict[str, str]:
        module = self._accelsk_original.__module__
        public = ".".join(part for part in module.split(".") if not part.startswith("_"))
        return {"estimator_module": public, "estimator_name": self._accelsk_original.__name__}


class Accelerated(Counterpart):
    """Mixin for scikit-learn estimators whose methods try other engines first.

    A class statement that names engines makes an accelerated class::

        class Ridge(Accelerated, sklearn.linear_model.Ridge, engines=[RidgeOnCuml()]): ...

    Every method that one of the engines can run is replaced by one that plans the call, runs it
    on the first engine that can, and otherwise runs scikit-learn's own. Subclasses of an
    accelerated class need not know: what they override runs, always.

    Parameters
    ----------
    engines : sequence of Engine
        In the order in which they are asked.
    """

    _accelsk_engines: ClassVar[tuple[Engine, ...]] = ()

    def __init_subclass__(cls, engines: Sequence[Engine] = (), **kwargs: Any) -> None:
        if engines:
            from accelsk.dispatch import accelerate_methods

            cls._accelsk_stand_in(kwargs)
            cls._accelsk_engines = tuple(engines)
            accelerate_methods(cls)
        super().__init_subclass__(**kwargs)
        if engines:
            from accelsk import registry

            registry.add(cls)

    # Fitted state

    def _accelsk_held(self) -> bool:
        """Whether there may be a model on the device."""
        return SLOT in self.__dict__ or id(self) in DeviceState.restored

    def _accelsk_minds(self, name: str) -> bool:
        """Whether there may be a model on the device that an attribute would make stale."""
        return self._accelsk_held() and name in self._accelsk_watched_names()

    @classmethod
    def _accelsk_fitted_names(cls) -> frozenset[str]:
        return assigned_names(cls._accelsk_class)

    @classmethod
    def _accelsk_watched_names(cls) -> frozenset[str]:
        """Return what a method may read: setting one of these makes a device model stale."""
        return _watched_names(cls._accelsk_class)

    def _accelsk_fetch(self) -> None:
        """Have every fitted attribute on the host; the device model stays."""
        while (state := DeviceState.of(self)) is not None and not state.fetched:
            state.fetch(self)  # another thread may have fitted it anew by then

    def _accelsk_release(self) -> None:
        """Have every fitted attribute on the host and drop the device model."""
        while (state := DeviceState.of(self)) is not None:
            state.release(self)

    def _accelsk_adopt(
        self, engine: Engine, model: Any, attributes: dict[str, Any], rows: tuple[int, ...] = ()
    ) -> None:
        """Take over what `engine` fitted on so many rows, in place of all earlier fitted state."""
        _watch_attributes()
        earlier = _INPUT_NAMES | self._accelsk_fitted_names() | {SLOT}
        with DeviceState.held_still(self):
            own = {name: value for name, value in self.__dict__.items() if name not in earlier}
            own.update(attributes)
            own[SLOT] = state = DeviceState(engine, model, self, own, fetched=False)
            state.rows = rows[0] if rows else None
            # `check_is_fitted` wants to see one; a `__getattr__` of the user's fetches none
            seen = any(name.endswith("_") and not name.startswith("__") for name in own)
            if not seen or type(self).__getattr__ is not Accelerated.__getattr__:
                own = self._accelsk_fetched(own)
            put(self, own)
            DeviceState.restored.pop(id(self), None)

    def _accelsk_fetched(self, own: dict[str, Any]) -> dict[str, Any]:
        """Return what `own`, with a state in it, is once the attributes are there."""
        stand_in = object.__new__(type(self))
        put(stand_in, own)
        own[SLOT].fetch(stand_in)
        return stand_in.__dict__

    def _accelsk_model(self, engine: Engine) -> Any:
        """Return the fitted model of `engine`, made from the attributes where need be."""
        return self._accelsk_answering(engine)[0]

    def _accelsk_answering(self, engine: Engine) -> tuple[Any, DeviceState]:
        """Return the same, and the state that it belongs to."""
        for _ in range(ATTEMPTS):
            state = DeviceState.of(self)
            if state is not None:
                model, current = state.model_for(self, engine)
                if current:
                    return model, state
                if not state.stands(self):
                    continue
            self._accelsk_release()
            before = dict(self.__dict__)
            model = engine.restore(self)
            _watch_attributes()
            state = DeviceState(engine, model, self, fetched=True)
            now = self.__dict__
            if SLOT not in now and all(now.get(name) is before[name] for name in before):
                DeviceState.restored[id(self)] = state
                return model, state
        raise Refusal("it is being fitted in other threads")

    def __setstate__(self, state: dict[str, Any]) -> None:
        if self._accelsk_held():
            _let_go(self)  # it stands for what is replaced
            DeviceState.drop(self)
        super().__setstate__(state)

    def __dir__(self) -> list[str]:
        try:
            self._accelsk_fetch()
        except Exception:  # a fault of the GPU is no reason not to complete a name
            return [*object.__dir__(self)]
        return [*super().__dir__()]


# What follows is part of `Accelerated` from the first model on a device on: a fit in scikit-learn
# asks for a dozen attributes that are missing, and sets another dozen, each of them some tenths of
# a microsecond that a process without a GPU need not lose


def _getattr(self: Accelerated, name: str) -> Any:
    while True:
        state = self.__dict__.get(SLOT)
        to_fetch = state is not None and not (state.fetched and state.belongs_to(self))
        if to_fetch and name in self._accelsk_fitted_names():
            try:
                self._accelsk_fetch()
            except LostModelError:
                if name not in self.__dict__:  # it is not among what is left
                    raise
        # Python comes here too when a property raised an AttributeError (NotFittedError is one);
        # looking the name up again raises that same error.
        try:
            return object.__getattribute__(self, name)
        except AttributeError:
            if self.__dict__.get(SLOT) is state:  # otherwise another thread has fitted it anew
                raise


def _setattr(self: Accelerated, name: str, value: Any) -> None:
    # a fit in scikit-learn comes here a dozen times: mostly there is nothing to release
    if (SLOT in self.__dict__ or DeviceState.restored) and self._accelsk_minds(name):
        _let_go(self)
    super(Accelerated, self).__setattr__(name, value)


def _delattr(self: Accelerated, name: str) -> None:
    if (SLOT in self.__dict__ or DeviceState.restored) and self._accelsk_minds(name):
        _let_go(self)
    super(Accelerated, self).__delattr__(name)


def _let_go(estimator: Accelerated) -> None:
    """Have the attributes on the host before one changes; lost ones keep it from nothing."""
    with contextlib.suppress(LostModelError):
        estimator._accelsk_release()


def _watch_attributes() -> None:
    if "__getattr__" in Accelerated.__dict__:
        return
    methods = {"__setattr__": _setattr, "__delattr__": _delattr, "__getattr__": _getattr}
    for name, function in methods.items():
        setattr(Accelerated, name, function)
