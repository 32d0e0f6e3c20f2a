"""Arrays to the device and back."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from accelsk.device import traffic

__all__ = ["is_device_array", "on_host", "to_device", "to_host"]


def is_device_array(value: object) -> bool:
    """Whether `value` is a CuPy array or CuPy sparse matrix; imports nothing to find out.

    There are none as long as CuPy is not there with all its names: another thread may be importing
    it, and what is called ``cupy`` may be something else.
    """
    array = getattr(sys.modules.get("cupy"), "ndarray", None)
    if not isinstance(array, type):
        return False
    if isinstance(value, array):
        return True
    issparse = getattr(sys.modules.get("cupyx.scipy.sparse"), "issparse", None)
    return issparse is not None and issparse(value)


def to_device(array: Any, dtype: Any = None, order: str | None = None) -> Any:
    """Return `array` as a CuPy array.

    It travels in its own dtype and layout; both are changed on the device, where that is a
    hundred times faster. CUDA has no extended precision, so ``longdouble`` is narrowed first.

    Parameters
    ----------
    array : ndarray or cupy.ndarray
    dtype : dtype, default=None
        None keeps the dtype of `array`.
    order : {"C", "F"}, default=None
        None keeps the layout of `array`.
    """
    import cupy

    if isinstance(array, np.ndarray):
        if array.dtype.kind == "f" and array.dtype.itemsize > 8:
            array = array.astype(np.float64)
        array = np.asarray(array, dtype=array.dtype.newbyteorder("="))
        traffic.sent(array.nbytes)
    result = cupy.asarray(array)
    if dtype is not None:
        result = result.astype(dtype, copy=False)
    return result if order is None else cupy.asarray(result, order=order)


def to_host(value: Any) -> Any:
    """Return `value` with a CuPy array replaced by a NumPy one, also inside a tuple."""
    if isinstance(value, tuple):
        return tuple(to_host(item) for item in value)
    if not is_device_array(value):
        return value
    host = value.get()
    traffic.received(getattr(host, "nbytes", 0))
    return host


def on_host(value: Any) -> bool:
    """Whether the caller of a method with argument `value` expects NumPy arrays back."""
    return not is_device_array(value)
