"""Is there a usable GPU, and if not, why.

The answer is found without importing CuPy or cuML and without making a CUDA context: the
installed distributions say which CUDA major version is needed, and the driver library is asked
directly. `unusable` is cheap after its first call.
"""

from __future__ import annotations

import ctypes
import importlib.metadata
import importlib.util
import logging
import multiprocessing
import os
import sys
import threading
from dataclasses import dataclass
from typing import Any

__all__ = ["GPU", "disable", "gpu", "unusable"]

logger = logging.getLogger("accelsk")

#: Compute capability that cuML needs, by CUDA major version (RAPIDS installation requirements).
_CAPABILITY = {12: (7, 0), 13: (7, 5)}
_CUDA_SUCCESS = 0
_CAPABILITY_MAJOR, _CAPABILITY_MINOR = 75, 76  # CUdevice_attribute


@dataclass(frozen=True)
class GPU:
    """The first visible GPU.

    Attributes
    ----------
    name : str
    capability : tuple of int
        Compute capability, (major, minor).
    driver : tuple of int
        The CUDA version that the driver supports, (major, minor).
    memory : int
        Device memory in bytes.
    """

    name: str
    capability: tuple[int, int]
    driver: tuple[int, int]
    memory: int


class _Unusable(Exception):  # noqa: N818 - carries a reason, it is not an error
    pass


def _installed_cuda() -> int:
    """Return the CUDA major version of the installed cuML."""
    for major in _CAPABILITY:
        try:
            importlib.metadata.version(f"cuml-cu{major}")
        except importlib.metadata.PackageNotFoundError:
            continue
        return major
    # cuML from conda or a source build carries no such name: ask for the least, its import tells
    return min(_CAPABILITY)


def _require_packages() -> None:
    for package in ("cupy", "cuml"):
        spec = importlib.util.find_spec(package)
        if spec is None or spec.origin is None:  # a mere folder of that name has no origin
            raise _Unusable(
                f"{package} is not installed (pip install 'accelsk[cuda13]', or [cuda12] for a "
                "driver of CUDA 12)"
            )


def _load_driver() -> ctypes.CDLL:
    try:
        return ctypes.CDLL("libcuda.so.1")
    except OSError:
        raise _Unusable("no NVIDIA driver (libcuda.so.1 was not found)") from None


def _query(driver: ctypes.CDLL) -> GPU:
    def ask(function: str, *arguments: Any) -> None:
        code = getattr(driver, function)(*arguments)
        if code != _CUDA_SUCCESS:
            raise _Unusable(f"the NVIDIA driver cannot be used ({function} gave error {code})")

    ask("cuInit", 0)
    number = ctypes.c_int()
    ask("cuDriverGetVersion", ctypes.byref(number))
    version = (number.value // 1000, number.value % 1000 // 10)
    ask("cuDeviceGetCount", ctypes.byref(number))
    if number.value == 0:
        visible = os.environ.get("CUDA_VISIBLE_DEVICES")
        hint = "" if visible is None else f" (CUDA_VISIBLE_DEVICES={visible!r})"
        raise _Unusable(f"no GPU is visible{hint}")
    device = ctypes.c_int()
    ask("cuDeviceGet", ctypes.byref(device), 0)
    name = ctypes.create_string_buffer(256)
    ask("cuDeviceGetName", name, len(name), device)
    capability = []
    for attribute in (_CAPABILITY_MAJOR, _CAPABILITY_MINOR):
        ask("cuDeviceGetAttribute", ctypes.byref(number), attribute, device)
        capability.append(number.value)
    memory = ctypes.c_size_t()
    ask("cuDeviceTotalMem_v2", ctypes.byref(memory), device)
    text = name.value.decode(errors="replace")
    return GPU(text, (capability[0], capability[1]), version, memory.value)


def _require_fit(gpu: GPU, cuda: int) -> None:
    if gpu.driver[0] < cuda:
        raise _Unusable(
            f"the NVIDIA driver is too old: it supports CUDA {gpu.driver[0]}.{gpu.driver[1]}, the "
            f"installed cuML needs CUDA {cuda}"
        )
    if gpu.capability < _CAPABILITY[cuda]:
        have, need = (".".join(map(str, c)) for c in (gpu.capability, _CAPABILITY[cuda]))
        raise _Unusable(f"{gpu.name} has compute capability {have}, cuML needs {need}")


def _probe() -> tuple[GPU | None, str | None]:
    global _initialised
    try:
        _require_packages()
        driver = _load_driver()
        _initialised = True
        gpu = _query(driver)
        _require_fit(gpu, _installed_cuda())
        return gpu, None
    except _Unusable as unusable:
        reason = str(unusable)
    except Exception as error:  # an incomplete driver, a mock in the place of a package
        reason = f"looking for a GPU failed ({type(error).__name__}: {error})"
    # a worker process need not repeat what its parent has said
    level = logging.WARNING if multiprocessing.parent_process() is None else logging.INFO
    logger.log(level, "No GPU is used, everything runs in scikit-learn: %s", reason)
    return None, reason


_lock = threading.Lock()
_found: tuple[GPU | None, str | None] | None = None
_disabled: str | None = None
_initialised = False  # whether the probe has initialised CUDA, which nothing undoes


def _probed() -> tuple[GPU | None, str | None]:
    """Return what `_probe` finds; it looks once, and says once that there is nothing."""
    global _found
    if _found is None:
        with _lock:
            if _found is None:
                _found = _probe()
    return _found


def disable(reason: str) -> None:
    """Take the GPU out of use for the rest of the process."""
    global _disabled
    with _lock:
        first, _disabled = _disabled is None, _disabled or reason
    if first:
        logger.warning("The GPU is out of use in this process: %s", reason)


def unusable() -> str | None:
    """Return why no GPU can be used in this process, or None if one can."""
    return _disabled or (_found or _probed())[1]


def gpu() -> GPU | None:
    """Return what is known about the GPU, or None if there is none that can be used."""
    return None if unusable() else _probed()[0]


def _forked() -> None:
    # CUDA does not survive a fork: the child computes on the CPU, silently, as it may well be a
    # worker among many. Where the parent has not touched CUDA, the child may look for itself.
    global _disabled, _lock
    _lock = threading.Lock()  # another thread of the parent may have held it
    if _found is None:
        touched = _initialised or any(sys.modules.get(name) for name in ("cupy", "cuml"))
    else:
        touched = _found[1] is None  # otherwise there was no GPU to lose, and that is the reason
    if touched:
        _disabled = _disabled or "CUDA cannot be used in a forked process"


os.register_at_fork(after_in_child=_forked)
