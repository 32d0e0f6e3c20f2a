"""How fast this machine is, next to the one that the coefficients come from.

Processor and bus are measured, in some 50 ms and only once a GPU is in use, which has taken
seconds to get ready. The device tells its own speed: cores, clock, memory.
"""

from __future__ import annotations

import ctypes
import logging
import math
import os
import platform
from collections.abc import Callable, Mapping
from contextlib import suppress
from time import perf_counter
from typing import Any

import numpy as np

from accelsk.device import probe

__all__ = ["describe", "device_speeds", "factors", "memory", "speeds"]

logger = logging.getLogger("accelsk")

#: CUdevice_attribute: what the speed of a device follows from.
_CLOCK, _PROCESSORS, _MEMORY_CLOCK, _BUS_WIDTH, _DOUBLE_RATIO = 13, 16, 36, 37, 87

#: A factor beyond this one is taken for a fault of the measurement.
_MOST = 32.0


def describe() -> dict[str, Any]:
    """Return what coefficients depend on."""
    import sklearn

    gpu = probe.gpu()
    return {
        "gpu": None if gpu is None else gpu.name,
        "driver": None if gpu is None else list(gpu.driver),
        "processor": _processor(),
        "cores": cores(),
        "versions": {"scikit-learn": sklearn.__version__, "cuml": _cuml_version()},
    }


def memory() -> float:
    """Return the bytes that are free on the host, or that the device has, whichever is less."""
    found = []
    with suppress(ValueError, OSError, AttributeError):  # not every system tells
        found.append(float(os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")))
    if (gpu := probe.gpu()) is not None:
        found.append(float(gpu.memory))
    return min(found, default=math.inf)


def cores() -> int:
    """Return the processors that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _processor() -> str:
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as info:
            names = (line for line in info if line.startswith("model name"))
            return next(names).partition(":")[2].strip()
    except (OSError, StopIteration):
        return platform.machine()


def _cuml_version() -> str | None:
    from importlib.metadata import PackageNotFoundError, version

    for name in ("cuml-cu13", "cuml-cu12", "cuml"):
        try:
            return version(name)
        except PackageNotFoundError:
            continue
    return None


def _best(function: Callable[[], object], repeats: int = 3) -> float:
    times = []
    for _ in range(repeats):
        start = perf_counter()
        function()
        times.append(perf_counter() - start)
    return min(times)


def _interpret() -> None:
    small, total = np.ones(4), 0.0
    for _ in range(300):
        total += float(small.sum())


def speeds() -> dict[str, float]:
    """Measure this machine: seconds of small tasks. Takes a GPU in use."""
    from accelsk.device.transfer import to_device, to_host

    large = np.ones(2**21)  # 16 MB
    square = np.ones((700, 700))
    there = to_device(large)
    return {
        "cpu call": _best(_interpret),
        "cpu memory": _best(large.copy),
        "cpu flops": _best(lambda: square @ square),
        "gpu bus": _best(lambda: to_host(to_device(large))) + 0 * len(there),
        **device_speeds(),
    }


def device_speeds() -> dict[str, float]:
    """Return the seconds, up to a factor, that the device takes by its attributes."""
    driver = ctypes.CDLL("libcuda.so.1")
    device, value = ctypes.c_int(), ctypes.c_int()
    if driver.cuDeviceGet(ctypes.byref(device), 0) != 0:
        return {}

    def ask(attribute: int) -> int:
        failed = driver.cuDeviceGetAttribute(ctypes.byref(value), attribute, device)
        return 0 if failed else value.value

    found: dict[str, float] = {}
    if bandwidth := ask(_MEMORY_CLOCK) * ask(_BUS_WIDTH):
        found["gpu memory"] = 1e9 / bandwidth
    if work := ask(_PROCESSORS) * ask(_CLOCK):
        found["gpu flops"] = 1e9 * max(ask(_DOUBLE_RATIO), 1) / work
    return found


def factors(here: Mapping[str, float], there: Mapping[str, float]) -> dict[str, float]:
    """Return how much longer work takes here than there, by place and kind."""
    found = {
        kind: min(max(here[kind] / there[kind], 1 / _MOST), _MOST)
        for kind in here.keys() & there.keys()
        if there[kind] > 0 and here[kind] > 0
    }
    if "cpu call" in found:  # a call of the device is made by the processor
        found["gpu call"] = found["cpu call"]
    return found
