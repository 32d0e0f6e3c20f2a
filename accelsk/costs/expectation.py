"""What a call is expected to take, and how that is said."""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["Expected"]


def _time(seconds: float) -> str:
    for unit, size in (("s", 1.0), ("ms", 1e-3)):
        if seconds >= size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds * 1e3:.2g} ms"


class Expected(NamedTuple):
    """What a call is expected to take, in seconds.

    Attributes
    ----------
    rows, columns : int
        The data of the call.
    engine : str
        The engine that would be the first to finish.
    cpu, gpu : float
        The call in scikit-learn and on that engine, arguments and results moved.
    cpu_once, gpu_once : float
        What has to be done once before: fetching fitted state, or loading a library, compiling,
        and having fitted state on the device.
    on_cpu : bool
        Where it is better run, everything considered.
    """

    rows: int
    columns: int
    engine: str
    cpu: float
    gpu: float
    cpu_once: float = 0.0
    gpu_once: float = 0.0
    on_cpu: bool = False

    @property
    def waits(self) -> bool:
        """Whether it is on the CPU only until the GPU is ready for it."""
        return self.on_cpu and self.gpu < self.cpu

    @property
    def size(self) -> str:
        return f"{self.rows:,} rows by {self.columns:,} columns"

    @property
    def reason(self) -> str:
        """Why the call runs on the CPU."""
        return (
            f"sooner on the CPU: {self.size}, expected {_time(self.cpu)} there, "
            f"{_time(self.gpu)} on the GPU{self._once('to get ready first', self.gpu_once)}"
        )

    def __str__(self) -> str:
        return (
            f"{self.size}, expected {_time(self.cpu)} on the CPU"
            f"{self._once('to fetch the model first', self.cpu_once)}, "
            f"{_time(self.gpu)} on the GPU{self._once('to get ready first', self.gpu_once)}"
        )

    @staticmethod
    def _once(what: str, seconds: float) -> str:
        return f" and {_time(seconds)} {what}" if seconds else ""
