"""`profile`: collect what ran where for the length of a ``with`` block."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from accelsk.profiling.events import Event, listening
from accelsk.profiling.report import render

__all__ = ["MethodStats", "ProfileResults", "profile"]


@dataclass
class MethodStats:
    """The calls of one method.

    Attributes
    ----------
    gpu_calls, cpu_calls : int
        How many ran on the GPU and in scikit-learn.
    gpu_time, cpu_time : float
        How long they took, in seconds; without other accelerated methods that they called.
    fallback_reasons : set of str
        Why calls ran in scikit-learn.
    """

    gpu_calls: int = 0
    gpu_time: float = 0.0
    cpu_calls: int = 0
    cpu_time: float = 0.0
    fallback_reasons: set[str] = field(default_factory=set)


class ProfileResults:
    """What a `profile` saw. It grows while the ``with`` block runs.

    Attributes
    ----------
    method_calls : dict of str to MethodStats
        By qualified name, such as ``"Ridge.fit"``, in the order of the first call.
    """

    def __init__(self) -> None:
        self.method_calls: dict[str, MethodStats] = {}
        self._lock = threading.Lock()

    def _add(self, event: Event) -> None:
        with self._lock:
            stats = self.method_calls.setdefault(event.name, MethodStats())
            if event.engine is None:
                stats.cpu_calls += 1
                stats.cpu_time += event.duration
                stats.fallback_reasons.update(event.reasons)
            else:
                stats.gpu_calls += 1
                stats.gpu_time += event.duration

    def __str__(self) -> str:
        with self._lock:
            return render(self.method_calls)

    def __repr__(self) -> str:
        return f"<ProfileResults of {len(self.method_calls)} methods>"


@contextmanager
def profile(quiet: bool = False) -> Iterator[ProfileResults]:
    """Report which calls ran on the GPU, which in scikit-learn and why, and how long they took.

    Profiles nest, and see the calls of every thread of the process.

    Parameters
    ----------
    quiet : bool, default=False
        Do not print the report at the end of the block.

    Yields
    ------
    results : ProfileResults

    Examples
    --------
    >>> import accelsk
    >>> from accelsk.linear_model import Ridge
    >>> with accelsk.profile(quiet=True) as results, accelsk.config_context(device="cpu"):
    ...     model = Ridge().fit([[0.0], [1.0], [2.0]], [0.0, 1.0, 2.0])
    >>> results.method_calls["Ridge.fit"].cpu_calls
    1
    """
    results = ProfileResults()
    try:
        with listening(results._add):
            yield results
    finally:
        if not quiet:
            print(results)
