"""What is paid once and serves many calls: loading a library, moving fitted state.

A single small call is not worth it, many of them are. So calls that go to the slower place for
the sake of such a cost write down what they lost by it; once that is as much as the cost, it is
paid. No sequence of calls then takes more than twice what it would have taken had the right
decision been known from the start.
"""

from __future__ import annotations

import weakref
from typing import Any

from accelsk._locks import Lock

__all__ = ["Debts", "models", "process"]


class Debts:
    """What calls have lost so far, by what they waited for."""

    def __init__(self) -> None:
        self._lost: dict[Any, float] = {}
        self._lock = Lock()

    def lost(self, key: Any) -> float:
        """Return what was lost for the sake of `key`."""
        return self._lost.get(key, 0.0)

    def add(self, key: Any, seconds: float) -> None:
        """Write down a loss."""
        with self._lock:
            self._lost[key] = self._lost.get(key, 0.0) + seconds

    def settle(self, key: Any) -> None:
        """Forget what was lost: it is paid."""
        with self._lock:
            self._lost.pop(key, None)


class _ModelDebts(Debts):
    """Debts by estimator, which are forgotten with it."""

    def __init__(self) -> None:
        super().__init__()
        self._alive: dict[int, weakref.ref] = {}

    def lost(self, key: Any) -> float:
        reference = self._alive.get(id(key))
        return super().lost(id(key)) if reference is not None and reference() is key else 0.0

    def add(self, key: Any, seconds: float) -> None:
        identity = id(key)
        reference = self._alive.get(identity)
        if reference is None or reference() is not key:
            self._lost.pop(identity, None)
            self._alive[identity] = weakref.ref(key, lambda _: self._drop(identity))
        super().add(identity, seconds)

    def settle(self, key: Any) -> None:
        self._drop(id(key))

    def _drop(self, identity: int) -> None:
        self._alive.pop(identity, None)
        self._lost.pop(identity, None)


#: What calls of this process have lost for the sake of loading or compiling.
process = Debts()

#: What calls of an estimator have lost for the sake of moving its fitted state.
models = _ModelDebts()
