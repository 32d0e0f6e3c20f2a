"""What stands for the estimators of scikit-learn that hold others: pipelines, unions, searches."""

from __future__ import annotations

import functools
import inspect
import math
from collections.abc import Callable, Sequence
from typing import Any

from accelsk import residency
from accelsk._sklearn import AvailableIfDescriptor
from accelsk.config import current
from accelsk.device.foreign import adopted_arguments, in_kind
from accelsk.device.transfer import is_device_array, on_host, to_host
from accelsk.engines.base import fits
from accelsk.estimator import Counterpart
from accelsk.residency import Part, Run, Stays

__all__ = ["Composite"]

#: Host data of fewer bytes travel sooner than it is found out that they may stay. Each call is then
#: weighed for itself.
_SMALL = 1 << 16


class Composite(Counterpart):
    """Mixin for counterparts without engines of their own, which keep data on the device.

    ::

        class Pipeline(Composite, sklearn.pipeline.Pipeline, stands_in=True): ...

    Parameters
    ----------
    stands_in : bool, default=False
        Whether the class statement makes accelsk's own class, not a user's subclass of it.
    methods : sequence of str
        The methods whose calls of what the composite holds are told by `_accelsk_parts`.
    """

    def __init_subclass__(
        cls, *, stands_in: bool = False, methods: Sequence[str] = (), **kwargs: Any
    ) -> None:
        if stands_in:
            cls._accelsk_stand_in(kwargs)
        super().__init_subclass__(**kwargs)
        if stands_in:
            # after scikit-learn has wrapped them for `set_output`: it need not do so twice
            for name in methods:
                _keep_on_device(cls, name)
            from accelsk import registry

            registry.add_composite(cls)

    def _accelsk_takes(self, method: str, X: Any, y: Any) -> bool:
        """Whether X, on the device or not known yet, is taken there by all that get it."""
        return False

    def _accelsk_takes_targets(self) -> bool:
        """Whether all that get ``y`` and the like take them on the device."""
        return False

    def _accelsk_parts(self, method: str, y: Any, stays: Stays) -> list[Part]:
        """Return the calls that `method` is going to make of what the composite holds.

        Parameters
        ----------
        method : str
        y : array-like or None
        stays : callable
            What becomes of the result of the composite.
        """
        return []


def _keep_on_device(cls: type[Composite], name: str) -> None:
    """Have the data stay on the device where they can inside a method of `cls`."""
    original = cls._accelsk_original
    attribute = inspect.getattr_static(original, name)
    conditional = isinstance(attribute, AvailableIfDescriptor)
    function = attribute.fn if conditional else attribute

    @functools.wraps(function)
    def kept(self: Any, *args: Any, **kwargs: Any) -> Any:
        # looked up anew: somebody may have put another function in its place
        method = getattr(super(Counterpart, self), name)
        return _call(self, name, method, args, kwargs)

    ours: Any = kept
    if conditional:
        ours = type(attribute)(kept, attribute.check, attribute.attribute_name)
    setattr(cls, name, ours)


def _call(
    composite: Any, name: str, method: Callable[..., Any], args: tuple, kwargs: dict[str, Any]
) -> Any:
    """Run scikit-learn's method of a composite, data on the device between what takes them."""
    part = residency.claim(composite, name)
    if not _eligible(composite, args[0] if args else kwargs.get("X")):
        with residency.entered(None):
            return method(*args, **kwargs)
    args, kwargs, like = adopted_arguments(args, kwargs)
    X, y = _data(args, kwargs)
    answers_on_device = not on_host(X)
    stays: Stays = (lambda _: answers_on_device) if part is None else part.stays
    if part is not None:
        args, kwargs = part.prepared(args, kwargs)
    args, kwargs = _bearable(composite, name, args, kwargs)
    qualname = f"{composite._accelsk_original.__name__}.{name}"

    def run(again: bool) -> Any:
        if again:
            with residency.entered(None):
                return method(*map(to_host, args), **{k: to_host(v) for k, v in kwargs.items()})
        parts = composite._accelsk_parts(name, y, stays)
        with residency.entered(Run(qualname, parts, stays)):
            return method(*args, **kwargs)

    rewind = residency.rewinding(composite) if fits(name) else lambda: None
    result = residency.mended(run, rewind)
    if result is composite:
        return result
    if part is not None:
        return part.delivered(result)
    if not answers_on_device:
        return to_host(result)
    return in_kind(residency.sent_back(result), like)


def _eligible(composite: Any, X: Any) -> bool:
    # callbacks get to see what steps hand each other
    watched = bool(vars(composite).get("_skl_callbacks"))
    if not residency.is_ours(composite) or not residency.usable() or watched:
        return False
    return current().device != "auto" or not _small(X)


def _small(X: Any) -> bool:
    """Whether X is on the host and too small to be worth the question."""
    plain = type(X).__module__.partition(".")[0] in ("numpy", "pandas", "polars")
    return plain and 8 * math.prod(getattr(X, "shape", ())) < _SMALL


def _data(args: tuple, kwargs: dict[str, Any]) -> tuple[Any, Any]:
    return (
        args[0] if args else kwargs.get("X"),
        args[1] if len(args) > 1 else kwargs.get("y"),
    )


def _bearable(
    composite: Any, name: str, args: tuple, kwargs: dict[str, Any]
) -> tuple[tuple, dict[str, Any]]:
    """Return the arguments, on the host where something on the CPU would get them."""
    X, y = _data(args, kwargs)
    keeps_X = not is_device_array(X) or composite._accelsk_takes(name, X, y)
    keeps_others = composite._accelsk_takes_targets()
    keeps = (keeps_X, *[keeps_others] * len(args))
    return (
        tuple(value if kept else to_host(value) for value, kept in zip(args, keeps, strict=False)),
        {
            name: value if (keeps_X if name == "X" else keeps_others) else to_host(value)
            for name, value in kwargs.items()
        },
    )
