"""`DeviceState`: a fitted model on a device, and what becomes of it when the device fails."""

from __future__ import annotations

import functools
import itertools
import logging
import os
import weakref
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from typing import TYPE_CHECKING, Any, ClassVar

from accelsk._locks import Lock
from accelsk.device.errors import leave_unmended, loses_gpu
from accelsk.device.forks import abandon
from accelsk.device.memory import gives_back, with_room
from accelsk.engines.base import Engine
from accelsk.exceptions import LostModelError
from accelsk.fingerprints import compared_names, fingerprint, fingerprint_of_private

if TYPE_CHECKING:
    from accelsk.estimator import Accelerated

__all__ = ["SLOT", "DeviceState"]

logger = logging.getLogger("accelsk")

#: The name under which an instance holds its `DeviceState`. It never leaves the process.
SLOT = "_accelsk_state"

#: The seconds after which a fork waits no more for another thread to end a fetch.
_PATIENCE = 30.0


def put(estimator: Any, own: dict[str, Any]) -> None:
    """Have `own` be the ``__dict__`` of `estimator`.

    Other threads see the one before or this one, never half of it, and may be going through the
    one before: that is not to change its size any more.
    """
    object.__setattr__(estimator, "__dict__", own)


class DeviceState:
    """A fitted model on an engine, and how it stands to the attributes on the host.

    Where device memory runs out, the attributes move to the host and the model is given up: it is
    made from the attributes again when it is needed. Whoever computes with it at that moment has
    a reference of its own. Where the device is lost with attributes on it, the state stays and
    says so, until the estimator has been fitted anew.

    Parameters
    ----------
    engine : Engine
    model : object
        The engine's fitted model.
    estimator : Accelerated
        Whose model it is.
    own : dict, default=None
        What its ``__dict__`` is going to be, if that is not what it is.
    fetched : bool
        Whether the fitted attributes are on the host already.

    Attributes
    ----------
    moved : bool
        Whether the model has been given up.
    lost : str or None
        Why the attributes cannot be had any more.
    """

    #: Every state there is, by identity.
    live: ClassVar = weakref.WeakValueDictionary[int, "DeviceState"]()

    #: The states of estimators that were fitted elsewhere, by the identity of the estimator. Their
    #: ``__dict__`` stays what scikit-learn made it: a prediction changes nothing that can be seen.
    restored: ClassVar[dict[int, DeviceState]] = {}

    #: How many rows the model was fitted on, where that is known.
    rows: int | None = None

    _clock: ClassVar = itertools.count()

    def __init__(
        self,
        engine: Engine,
        model: Any,
        estimator: Accelerated,
        own: dict[str, Any] | None = None,
        *,
        fetched: bool,
    ) -> None:
        self.engine = engine
        self.model = model
        self.fetched = fetched
        self.moved = False
        self.lost: str | None = None
        self._given: dict[str, Any] = {}
        self._lock = Lock()
        forget = functools.partial(self._forget, id(estimator))
        self._owner = weakref.ref(estimator, forget if fetched else None)
        own = estimator.__dict__ if own is None else own
        self._fingerprint = self._take_fingerprint(estimator, own)
        self._used = next(self._clock)
        self.live[id(self)] = self

    @classmethod
    def of(cls, estimator: Accelerated) -> DeviceState | None:
        """Return the state of `estimator`, if it has one."""
        state: DeviceState | None = estimator.__dict__.get(SLOT) or cls.restored.get(id(estimator))
        if state is None or state.belongs_to(estimator):
            return state
        return state._handed_to(estimator)

    def belongs_to(self, estimator: Accelerated) -> bool:
        """Whether this is the estimator's own state, not one copied with a ``__dict__``."""
        return self._owner() is estimator

    def _handed_to(self, estimator: Accelerated) -> DeviceState | None:
        """Return a state for a copy of the owner as long as there is anything to fetch."""
        with self._lock:
            if self.fetched:
                # may be since the copy was made
                put(estimator, {**self._given, **estimator.__dict__})
                self.drop(estimator)
                return None
            state = DeviceState(self.engine, self.model, estimator, fetched=False)
            state.rows, state.lost = self.rows, self.lost
        estimator.__dict__[SLOT] = state
        return state

    @classmethod
    def drop(cls, estimator: Accelerated) -> None:
        """Forget the state of `estimator`, if it has one."""
        own = estimator.__dict__
        if SLOT in own:
            put(estimator, {name: value for name, value in own.items() if name != SLOT})
        cls.restored.pop(id(estimator), None)

    def stands(self, estimator: Accelerated) -> bool:
        """Whether no other fit has taken its place."""
        return estimator.__dict__.get(SLOT, self.restored.get(id(estimator))) is self

    def release(self, estimator: Accelerated) -> None:
        """Have the attributes on the host and forget the state."""
        with self._lock:
            self.fetch(estimator)
            if self.stands(estimator):
                self.drop(estimator)

    @classmethod
    @contextmanager
    def replaced(cls, estimator: Accelerated) -> Iterator[None]:
        """Forget a state that cannot be fetched, unless what is done within raises an error.

        A fit would take what is left of the earlier one for the whole of it.
        """
        own = estimator.__dict__
        if SLOT not in own:
            yield
            return
        names = estimator._accelsk_fitted_names() | {SLOT}
        left = {name: own[name] for name in own if name in names}
        put(estimator, {name: own[name] for name in own if name not in names})
        try:
            yield
        except BaseException:
            put(estimator, {**left, **estimator.__dict__})
            raise

    @classmethod
    def _forget(cls, key: int, _: object) -> None:
        cls.restored.pop(key, None)

    @classmethod
    def held_still(cls, estimator: Accelerated) -> AbstractContextManager:
        """Return what keeps other threads from putting an earlier fit's attributes in place."""
        state = estimator.__dict__.get(SLOT)
        return nullcontext() if state is None else state._lock

    def __reduce__(self) -> tuple[type, tuple]:
        # where a class of somebody's own puts the whole ``__dict__`` into a pickle or copy
        return type(None), ()

    def fetch(self, estimator: Accelerated) -> None:
        """Put the fitted attributes on `estimator`, once.

        Raises
        ------
        LostModelError
            Where the device is lost, and they with it.
        """
        with self._lock:
            if self.fetched:
                return
            if self.lost is not None:
                raise LostModelError(self.lost)
            name = type(estimator).__name__
            try:
                attributes = with_room(
                    lambda: self.engine.attributes(estimator, self.model), keep=estimator
                )
            except Exception as error:
                if loses_gpu(error) or self.engine.unusable() is not None:
                    self._lose(estimator, self.engine.unusable() or str(error))
                    raise LostModelError(self.lost) from error
                error.add_note(f"The fitted attributes of this {name} could not leave the GPU.")
                raise
            self._take(estimator, attributes)

    def _lose(self, estimator: Accelerated, reason: str) -> None:
        """Keep what is left and take note that the rest is lost."""
        with suppress(Exception):
            own = estimator.__dict__
            if own.get(SLOT) is self:
                put(estimator, {**self.engine.remains(self.model), **own})
        self.lost = _farewell(type(estimator).__name__, reason)
        self.model = None
        leave_unmended()

    def _take(self, estimator: Accelerated, attributes: dict[str, Any]) -> None:
        own = estimator.__dict__
        if own.get(SLOT) is self:  # otherwise another fit has taken its place
            own = {**own, **{name: attributes[name] for name in attributes if name not in own}}
            # those that were at hand before may have been changed since
            self._fingerprint = self._take_fingerprint(estimator, own) | self._fingerprint
            put(estimator, own)
        self._given = attributes
        self.fetched = True

    def model_for(self, estimator: Accelerated, engine: Engine) -> tuple[Any, bool]:
        """Return the model, and whether it is one of `engine` that agrees with the attributes.

        Assignments are seen by ``Accelerated.__setattr__``; this finds changes made in place.
        """
        model = self.model  # first, as another thread may give it up
        if self.moved or self.engine is not engine or self.lost is not None:
            return None, False
        self._used = next(self._clock)
        if self._agrees(estimator):
            return model, True
        with self._lock:  # attributes may just have been put in their place
            return model, self._agrees(estimator)

    def _agrees(self, estimator: Accelerated) -> bool:
        own = estimator.__dict__
        if own.get(SLOT, self.restored.get(id(estimator))) is not self:
            return False
        return self._fingerprint == self._take_fingerprint(estimator, own)

    def _take_fingerprint(self, estimator: Accelerated, own: dict[str, Any]) -> dict[str, Any]:
        engine = self.engine
        compared = compared_names(estimator._accelsk_class, engine.methods, engine.per_row)
        return {
            name: fingerprint_of_private(value) if name.startswith("_") else fingerprint(value)
            for name, value in list(own.items())
            if name in compared
        }

    @classmethod
    def _every(cls) -> list[DeviceState]:
        states = (reference() for reference in cls.live.valuerefs())
        return [state for state in states if state is not None]

    @classmethod
    def fetch_all(cls) -> None:
        """Fetch whatever is on the device alone: CUDA does not survive what comes next."""
        for state in cls._every():
            owner = state._owner()
            if owner is None or state.fetched or state.lost is not None:
                continue
            if not state._lock.acquire(_PATIENCE):
                continue
            try:
                state.fetch(owner)
            except LostModelError as error:  # it was said that the GPU is out of use
                logger.debug("%s", error)
            except Exception as error:
                logger.warning("A fitted %s stays on the GPU: %s", type(owner).__name__, error)
            finally:
                state._lock.release()

    @classmethod
    def forked(cls) -> None:
        """Have no model on the device, which is that of the parent; what it alone has is lost."""
        for state in cls._every():
            if not state.fetched and state.lost is None:  # fitted while the fetching went on
                name = type(state._owner()).__name__
                state.lost = _farewell(name, "CUDA cannot be used in a forked process")
            abandon(state.model)
            state.moved, state.model = True, None

    @classmethod
    def move_idle(cls, keep: object) -> list[str]:
        """Move models to the host, the one that was used longest ago first.

        Parameters
        ----------
        keep : estimator or None
            Its model stays.

        Returns
        -------
        names : list of str
            The classes of the estimators whose models have moved.
        """
        moved = []
        for state in sorted(cls._every(), key=lambda state: state._used):
            owner = state._owner()
            if owner is not None and owner is not keep and state._move(owner):
                moved.append(type(owner).__name__)
        return moved

    def _move(self, owner: Accelerated) -> bool:
        """Give the model up, its attributes on the host; return whether that was possible."""
        # a state that is locked is in use, maybe by a thread that waits for one of ours
        if self.moved or self.lost is not None or not self._lock.acquire(timeout=0):
            return False
        try:
            if not self.stands(owner):
                return False
            if not self.fetched:
                self._take(owner, self.engine.attributes(owner, self.model))
            # it stays in its place, where another thread may be putting the next one
            self.moved, self.model = True, None
        except Exception as error:
            logger.debug("a fitted %s stays on the GPU", type(owner).__name__, exc_info=error)
            return False
        finally:
            self._lock.release()
        return True


os.register_at_fork(before=DeviceState.fetch_all, after_in_child=DeviceState.forked)


@gives_back
def _models(keep: object) -> list[str]:
    return DeviceState.move_idle(keep)


def _farewell(name: str, reason: str) -> str:
    return (
        f"The fitted attributes of this {name} were on the GPU and are lost with it ({reason}). "
        "Fit it again: everything runs in scikit-learn from now on."
    )
