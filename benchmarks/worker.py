"""One side: a process that holds the data and times its calls, as it is told to.

Started by `benchmarks.sides.Side`, which holds the other end of a pipe.
"""

from __future__ import annotations

import importlib
import sys
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np

from benchmarks import data
from benchmarks.checks import outcome
from benchmarks.operations import Operation

#: Seconds between two looks at the memory of the device.
_GLANCE = 0.002


@contextmanager
def peak_memory() -> Iterator[dict[str, int]]:
    """Give the bytes of host and device memory that the block held at its most beyond its start."""
    found: dict[str, int] = {}
    cupy = sys.modules.get("cupy")
    if cupy is not None:
        cupy.get_default_memory_pool().free_all_blocks()
    before = _resident("VmRSS")
    # the kernel begins anew with the highest mark
    Path("/proc/self/clear_refs").write_text("5")
    used = _DeviceMemory() if cupy is not None else None
    yield found
    found["host_bytes"] = max(_resident("VmHWM") - before, 0)
    if used is not None:
        found["device_bytes"] = used.end()


def _resident(field: str) -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(f"{field}:"):
            return int(line.split()[1]) * 1024
    return 0


class _DeviceMemory:
    """The most that the device's memory was used, looked at by a thread now and then."""

    def __init__(self) -> None:
        from cupy.cuda import runtime

        self._look = lambda: runtime.memGetInfo()
        free, _ = self._look()
        self._at_start = self._least = free
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def _watch(self) -> None:
        while not self._over.wait(_GLANCE):
            self._least = min(self._least, self._look()[0])

    def end(self) -> int:
        self._over.set()
        self._thread.join()
        return int(self._at_start - self._least)


class Worker:
    """What the other end of the pipe may call.

    Parameters
    ----------
    package : {"sklearn", "accelsk"}
        Where the classes are taken from. Patched or not, it is the same for the worker.
    """

    def __init__(self, package: str) -> None:
        self._accelerated = package == "accelsk"
        if self._accelerated:
            import accelsk

            accelsk.install()

    def prepare(self, operation: Operation, folder: Path) -> None:
        """Load the data, and fit the model where only what comes after is timed."""
        self._operation = operation
        self._X, self._y = data.load(folder)
        self._model = self._new()
        if operation.fitted_on is not None:
            rows = slice(operation.fitted_on)
            self._model.fit(self._X[rows], self._y[rows])
        self._given = (self._X, self._y) if operation.needs_y and self._fits else (self._X,)

    @property
    def _fits(self) -> bool:
        return self._operation.fitted_on is None

    def _new(self) -> Any:
        package, _, path = self._operation.path.partition(".")
        if self._accelerated:
            package = "accelsk" if package == "sklearn" else f"accelsk.{package}"
        module, _, name = path.rpartition(".")
        module = ".".join(filter(None, (package, module)))
        return getattr(importlib.import_module(module), name)(**self._operation.parameters)

    def call(self) -> float:
        """Run the method once and return the seconds until the device is idle."""
        method = getattr(self._model, self._operation.method)
        start = perf_counter()
        self._result = method(*self._given)
        if (cupy := sys.modules.get("cupy")) is not None:
            cupy.cuda.Device().synchronize()
        return perf_counter() - start

    def first_call(self) -> dict[str, float]:
        """Run the method once and return its seconds and the memory that it took."""
        with peak_memory() as found:
            seconds = self.call()
        return {"seconds": seconds, **found}

    def outcome(self) -> np.ndarray:
        """Return what other sides' results are compared with."""
        return outcome(self._operation, self._model, self._result, self._X)

    def release(self) -> None:
        """Forget data, model and result."""
        del self._X, self._y, self._model, self._given, self._result


def main(descriptor: str, package: str) -> None:
    """Answer calls of `Worker`'s methods until told to end."""
    warnings.simplefilter("ignore")
    worker = Worker(package)
    with Connection(int(descriptor)) as line:
        while (message := line.recv()) is not None:
            name, *arguments = message
            try:
                line.send((True, getattr(worker, name)(*arguments)))
            except Exception as error:
                line.send((False, f"{type(error).__name__}: {error}"[:300]))


if __name__ == "__main__":
    main(*sys.argv[1:])
