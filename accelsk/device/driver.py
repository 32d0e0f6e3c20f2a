"""What the driver tells of the first GPU, without a CUDA context and without any GPU library."""

from __future__ import annotations

import ctypes
import os
from dataclasses import dataclass

from accelsk.device import probe

__all__ = ["Description", "describe"]

_CONCURRENT_MANAGED_ACCESS = 89  # CUdevice_attribute
_GIB = 1 << 30


@dataclass(frozen=True)
class Description:
    """The first visible GPU and its driver, as far as they are there.

    Attributes
    ----------
    device : str or None
    driver : str or None
    cuda : tuple of int or None
        The CUDA version that the driver supports.
    managed : bool or None
        Whether managed memory can be used.
    error : str or None
        What the driver says where there is no device.
    """

    device: str | None = None
    driver: str | None = None
    cuda: tuple[int, int] | None = None
    managed: bool | None = None
    error: str | None = None


def describe() -> Description:
    """Return what there is to know."""
    try:
        library = probe._load_driver()
    except probe._Unusable as error:
        return Description(error=str(error))
    number = ctypes.c_int()
    library.cuInit(0)
    library.cuDriverGetVersion(ctypes.byref(number))
    cuda = (number.value // 1000, number.value % 1000 // 10)
    version, free = _management()
    driver = f"{version}, supports CUDA {cuda[0]}.{cuda[1]}"
    try:
        gpu = probe._query(library)
    except probe._Unusable as error:
        return Description(driver=driver, cuda=cuda, error=str(error))
    device = ctypes.c_int()
    library.cuDeviceGet(ctypes.byref(device), 0)
    code = library.cuDeviceGetAttribute(ctypes.byref(number), _CONCURRENT_MANAGED_ACCESS, device)
    memory = f"{gpu.memory / _GIB:.1f} GiB" + ("" if free is None else f" ({free / _GIB:.1f} free)")
    capability = ".".join(map(str, gpu.capability))
    return Description(
        f"{gpu.name}, compute capability {capability}, {memory}",
        driver,
        cuda,
        bool(number.value) if code == 0 else None,
    )


class _Memory(ctypes.Structure):
    _fields_ = (
        ("total", ctypes.c_ulonglong),
        ("free", ctypes.c_ulonglong),
        ("used", ctypes.c_ulonglong),
    )


def _management() -> tuple[str, int | None]:
    """Return the version of the driver and the free memory of its first device, from NVML.

    NVML counts all devices; where only some are visible, the free memory is not told.
    """
    try:
        library = ctypes.CDLL("libnvidia-ml.so.1")
    except OSError:
        return "version unknown", None
    if library.nvmlInit_v2() != 0:
        return "version unknown", None
    try:
        text = ctypes.create_string_buffer(96)
        known = library.nvmlSystemGetDriverVersion(text, len(text)) == 0
        handle, memory = ctypes.c_void_p(), _Memory()
        told = (
            os.environ.get("CUDA_VISIBLE_DEVICES", "0").startswith("0")
            and library.nvmlDeviceGetHandleByIndex_v2(0, ctypes.byref(handle)) == 0
            and library.nvmlDeviceGetMemoryInfo(handle, ctypes.byref(memory)) == 0
        )
    finally:
        library.nvmlShutdown()
    return text.value.decode() if known else "version unknown", memory.free if told else None
