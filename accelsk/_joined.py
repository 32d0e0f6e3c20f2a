"""What is common to composites that put the results of several transformers side by side."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from accelsk import registry, residency
from accelsk.composite import Composite
from accelsk.device.resident import Resident
from accelsk.device.transfer import is_device_array, to_host
from accelsk.profiling.events import Stopwatch, report
from accelsk.residency import Block, Part, Segment, Stays, is_ours, takes

__all__ = ["Joining", "standing_in"]


class Joining(Composite):
    """Mixin for a union of transformers: what they give is joined on the device where it stays."""

    #: Whether all transformers get the same X.
    _accelsk_same_data = True

    def _accelsk_held(self, method: str) -> list[Any]:
        """Return the transformers that `method` calls, in order; strings among them."""
        raise NotImplementedError

    def _accelsk_transformers(self, method: str) -> list[Any]:
        try:
            held = self._accelsk_held(method)
        except (AttributeError, TypeError, ValueError):  # scikit-learn will say what is wrong
            return []
        return [one for one in held if not (one is None or isinstance(one, str))]

    def _accelsk_takes(self, method: str, X: Any, y: Any) -> bool:
        held = self._accelsk_transformers(method)
        named = isinstance(X, Resident) and X.feature_names is not None
        if named and "passthrough" in self._accelsk_held(method):
            return False  # scikit-learn notes the names of what it passes through
        X = X if self._accelsk_same_data else None
        return bool(held) and all(takes(one, method, X, y) for one in held)

    def _accelsk_takes_targets(self) -> bool:
        return all(
            is_ours(one) and (not isinstance(one, Composite) or one._accelsk_takes_targets())
            for one in self._accelsk_transformers("fit")
        )

    def _accelsk_parts(self, method: str, y: Any, stays: Stays) -> list[Part]:
        held = self._accelsk_transformers(method)
        same = self._accelsk_same_data and sum(map(is_ours, held)) > 1
        twice = method == "fit_transform" and stays(None)
        parts: list[Part] = []
        segment = Segment()
        for one in held:
            if is_ours(one):
                data = segment if same else (Segment() if twice else None)
                parts.append(Block(one, method, _dense(stays), segment, data))
            else:
                segment = Segment()
        return parts

    def _hstack(self, Xs: Any, **kwargs: Any) -> Any:
        if not any(map(is_device_array, Xs)):
            return super()._hstack(Xs, **kwargs)
        with Stopwatch() as watch:
            result = residency.joined(Xs)
        run = residency.current_run()
        if result is not None and run is not None:
            report(watch.event(run.name, "cupy"))
        if result is None:
            return super()._hstack([to_host(X) for X in Xs], **kwargs)
        return result


def _dense(stays: Stays) -> Stays:
    """Return whether a block may stay on the device for what it becomes part of."""

    def block_stays(result: Any) -> bool:
        plain = result is None or (getattr(result, "ndim", 0) == 2 and not hasattr(result, "nnz"))
        return plain and stays(None)

    return block_stays


def standing_in(module: str, original: Callable[..., Any], cls: Any) -> Callable[..., Any]:
    """Return a function like `original`, which makes a composite, that makes one of accelsk's."""

    @functools.wraps(original)
    def ours(*args: Any, **kwargs: Any) -> Any:
        return cls(**original(*args, **kwargs).get_params(deep=False))

    ours.__module__ = module
    registry.add_function(original, ours)
    return ours
