"""What stays on the device between the estimators that a pipeline or a union holds.

scikit-learn's own code of a composite runs. Around it stands a `Run`, which knows the calls that
the composite is going to make, its `Part`s, and what becomes of the result of each. A dispatched
call asks for its part: the result may stay on the device exactly where what gets it next is of an
accelerated class, by a method that would run there. Everything else gets what it would get from
scikit-learn, and so does the caller.

Inside a part there is no run: what an estimator calls in turn is its own affair.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from typing import Any

import numpy as np

from accelsk import _sklearn, costs
from accelsk.config import current
from accelsk.data import NUMERIC, describe
from accelsk.device import probe
from accelsk.device.errors import loses_gpu, unmended
from accelsk.device.memory import is_full, is_out_of_memory, make_room
from accelsk.device.resident import Resident, Session, Source
from accelsk.device.transfer import is_device_array, to_device, to_host
from accelsk.engines.base import fits
from accelsk.estimator import Accelerated, Counterpart, DeviceState

__all__ = [
    "Block",
    "Part",
    "Run",
    "Segment",
    "claim",
    "cloned",
    "entered",
    "current_run",
    "is_ours",
    "joined",
    "mended",
    "rewinding",
    "sent_back",
    "takes",
    "usable",
]

logger = logging.getLogger("accelsk")

#: Of the device's memory, what rows may take that are held there beside what is made of them.
_SHARE = 4

#: From a result on the device to whether it may stay there. None asks ahead: may any?
Stays = Callable[[Any], bool]

_run: ContextVar[Run | None] = ContextVar("accelsk_run", default=None)


def is_ours(estimator: Any) -> bool:
    """Whether `estimator` is of one of accelsk's own classes, not of a subclass."""
    return isinstance(estimator, Counterpart) and type(estimator) is estimator._accelsk_class


def usable() -> bool:
    """Whether calls of this thread may run on a GPU."""
    return current().device != "cpu" and probe.unusable() is None


def takes(estimator: Any, method: str, X: Any = None, y: Any = None) -> bool:
    """Whether a method would run on the device, given X there.

    Parameters
    ----------
    estimator : object
        Whatever may stand in a pipeline.
    method : str
    X : device array, default=None
        None leaves open what depends on it.
    y : array-like, default=None
    """
    if not is_ours(estimator):
        return False
    if not isinstance(estimator, Accelerated):
        return estimator._accelsk_takes(method, X, y)
    from accelsk.dispatch import method_of, plan

    declared = method_of(type(estimator), method)
    if declared is None:
        # the one method of scikit-learn's mixins that hands on what it gets, untouched
        inherited = method == "fit_transform" and method_of(type(estimator), "transform")
        declared = method_of(type(estimator), "fit") if inherited else None
    if declared is None or method in vars(estimator):
        return False
    arguments = {} if y is None or "y" not in declared.signature.parameters else {"y": y}
    if X is not None:
        arguments[next(iter(declared.signature.parameters))] = X
    return plan(estimator, declared, (), arguments, partial=True).engine is not None


class Segment:
    """Parts that follow each other with nothing on the CPU between them.

    Nobody else sees the host data that they share, so these go to the device once.
    """

    def __init__(self) -> None:
        self._session = Session(repeats=False)
        self._known: dict[int, tuple[Any, Any]] = {}

    def stand_in(self, value: Any) -> Any:
        """Return what stands for `value`, on the device once it is asked for its elements."""
        if value is None or is_device_array(value):
            return value
        if id(value) not in self._known:
            # the value is kept, so that no other gets its identity
            self._known[id(value)] = (value, self._made(value))
        return self._known[id(value)][1]

    def _made(self, value: Any) -> Any:
        given = describe(value)
        plain = given.kind in ("numpy", "frame") and given.numeric and not given.narrow
        if not plain or len(given.shape) not in (1, 2) or 0 in given.shape:
            return value
        if _too_large(value):
            return value
        return Resident(Source(given, self._session))


def _too_large(X: Any) -> bool:
    """Whether rows take too much of the device's memory to be held there."""
    gpu = probe.gpu()
    limit = current().device_memory_limit or (None if gpu is None else gpu.memory)
    shape = getattr(X, "shape", ())
    return limit is not None and 8 * int(np.prod(shape)) * _SHARE > limit


class Part:
    """A call that a composite makes of an estimator that it holds.

    Parameters
    ----------
    estimator : estimator
    method : str
    stays : callable
    segment : Segment
        Where ``y`` and the like are shared.
    data : Segment, default=None
        Where ``X`` is, if it is asked for more than once.
    following : sequence of (estimator, str)
        The calls after it to which results are handed on.
    """

    def __init__(
        self,
        estimator: Any,
        method: str,
        stays: Stays,
        segment: Segment,
        data: Segment | None = None,
        following: Sequence[tuple[Any, str]] = (),
    ) -> None:
        self.estimator = estimator
        self.method = method
        self._stays = stays
        self._segment = segment
        self._data = None if _writes(estimator) else data
        self._following = following

    def covers(self, method: str) -> bool:
        """Whether a call of `method` is this part, or a half of it."""
        halves = ("fit", "transform") if self.method == "fit_transform" else ()
        return method == self.method or method in halves

    def stays(self, result: Any = None) -> bool:
        """Whether a result on the device may stay there; without one: whether any may."""
        makes_frames = self.method in ("transform", "fit_transform") and (
            _sklearn.get_output_config("transform", self.estimator)["dense"] != "default"
        )
        return not makes_frames and self._stays(result)

    def expected(self, args: tuple, kwargs: dict[str, Any]) -> costs.Expected | None:
        """Return where this and what follows it are sooner as a whole, where that is known."""
        X = args[0] if args else kwargs.get("X")
        if not self._following or is_device_array(X) or current().device != "auto":
            return None
        from accelsk.costs.chain import weigh_chain

        return weigh_chain([(self.estimator, self.method), *self._following], X)

    def delivered(self, result: Any) -> Any:
        """Return the result where it is wanted."""
        items = result if isinstance(result, tuple) else (result,)
        if not any(map(is_device_array, items)):
            return result
        return result if self.stays(result) else to_host(result)

    def prepared(self, args: tuple, kwargs: dict[str, Any]) -> tuple[tuple, dict[str, Any]]:
        """Return the arguments, host data that others get as well replaced by what is shared."""
        if _too_large(args[0] if args else kwargs.get("X")):
            # rows come and go in blocks
            self._stays, self._data = lambda _: False, None
        shared = self._segment if fits(self.method) else None
        holders = {"X": self._data, "y": shared, "sample_weight": shared}
        names = ["X", *["y"] * len(args)]
        return (
            tuple(
                _stand_in(holders[name], value) for name, value in zip(names, args, strict=False)
            ),
            {name: _stand_in(holders.get(name), value) for name, value in kwargs.items()},
        )


class Block(Part):
    """A part whose result is joined with others: an array, for scikit-learn to multiply."""

    def delivered(self, result: Any) -> Any:
        result = super().delivered(result)
        return result.on_device if isinstance(result, Resident) else result


def _stand_in(segment: Segment | None, value: Any) -> Any:
    return value if segment is None else segment.stand_in(value)


def _writes(estimator: Any) -> bool:
    """Whether an estimator may write into X."""
    return any(getattr(estimator, name, True) is False for name in ("copy", "copy_X"))


class Run:
    """One call of a composite.

    Parameters
    ----------
    name : str
        As it stands in the profile.
    parts : sequence of Part
        In the order of their calls.
    stays : callable
        What becomes of the composite's own result.
    """

    def __init__(self, name: str, parts: Sequence[Part], stays: Stays) -> None:
        self.name = name
        self.stays = stays
        self._waiting: dict[int, list[Part]] = {}
        self._clones: list[Any] = []
        for part in parts:
            self._waiting.setdefault(id(part.estimator), []).append(part)

    def claim(self, estimator: Any, method: str) -> Part | None:
        """Return the part that a call is; each is given once, but for fits without a result."""
        waiting = self._waiting.get(id(estimator))
        if not waiting or not waiting[0].covers(method):
            return None
        return waiting[0] if method in ("fit", "partial_fit") else waiting.pop(0)

    def cloned(self, original: Any, clone: Any) -> None:
        """Take note that the composite may call a clone in the place of what it holds."""
        if id(original) in self._waiting:
            self._waiting[id(clone)] = self._waiting[id(original)]
            self._clones.append(clone)


def claim(estimator: Any, method: str) -> Part | None:
    """Return the part that a call is of the composite that is running, if it is one."""
    run = _run.get()
    return None if run is None else run.claim(estimator, method)


def cloned(original: Any, clone: Any) -> None:
    """Take note of a clone."""
    run = _run.get()
    if run is not None:
        run.cloned(original, clone)


def current_run() -> Run | None:
    """Return the run that the code of a composite is part of."""
    return _run.get()


@contextmanager
def entered(run: Run | None) -> Iterator[None]:
    """Have `run` be the one that calls are parts of; None for the inside of a part."""
    if run is None and _run.get() is None:
        yield
        return
    token = _run.set(run)
    try:
        yield
    finally:
        _run.reset(token)


def joined(Xs: Sequence[Any]) -> Any:
    """Return matrices side by side on the device, or None where they are to be on the host."""
    run = _run.get()
    if run is None or not any(map(is_device_array, Xs)):
        return None
    columns = []
    for X in Xs:
        if not is_device_array(X):
            X = None if not hasattr(X, "__array__") else np.asarray(X)
        if X is None or X.ndim != 2 or X.dtype.kind not in NUMERIC or hasattr(X, "nnz"):
            return None
        columns.append(X)
    if len({len(X) for X in columns}) > 1:  # scikit-learn has the words for it
        return None
    import cupy

    try:
        result = cupy.concatenate([to_device(X) for X in columns], axis=1)
        return result if run.stays(result) else to_host(result)
    except Exception as error:
        if not is_out_of_memory(error):
            raise
        make_room(error)
        return None


def mended(run: Callable[[bool], Any], rewind: Callable[[], None]) -> Any:
    """Return what `run` gives, in a second go where a fault of the GPU has spoilt the first.

    A single call goes to scikit-learn by itself. What many have in common may be gone: a step of a
    pipeline that was fitted, what it handed on, a score that scikit-learn put NaN for.

    Parameters
    ----------
    run : callable
        Told whether this is the second go, for which nothing may be on the device between calls.
    rewind : callable
        Takes back the random numbers that have been drawn.
    """
    if not usable():
        return run(False)
    before = unmended()
    try:
        result = run(False)
        if not usable():
            DeviceState.fetch_all()  # what can be had, and the rest is known to be lost then
        if unmended() == before:
            return result
    except Exception as error:
        if unmended() == before and not loses_gpu(error) and not is_full(error):
            raise
        make_room(error)
        logger.info("run again without data on the GPU", exc_info=error)
    rewind()
    return run(True)


def rewinding(*values: Any) -> Callable[[], None]:
    """Return what takes back the random numbers that a fit draws, by what `values` hold."""
    generators = [np.random.mtrand._rand]
    for value in values:
        held = [value]
        with suppress(Exception):  # scikit-learn will say what is wrong with it
            held += value.get_params(deep=True).values()
        held += [getattr(one, "random_state", None) for one in held]
        generators += [one for one in held if isinstance(one, np.random.RandomState)]
    states = [generator.get_state(legacy=False) for generator in generators]

    def rewind() -> None:
        for generator, state in zip(generators, states, strict=True):
            generator.set_state(state)

    return rewind


def sent_back(result: Any) -> Any:
    """Return what scikit-learn gave for data on the device: arrays that can be there are there."""
    if isinstance(result, tuple):
        return tuple(sent_back(item) for item in result)
    if type(result) is np.ndarray and result.ndim and result.dtype.kind in NUMERIC:
        return to_device(result)
    return result
