"""Arrays to the device and back."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from time import perf_counter
from typing import Any

import numpy as np

from accelsk.device import staging, traffic
from accelsk.device.resident import Resident

__all__ = [
    "Columns",
    "Download",
    "begun",
    "is_device_array",
    "on_host",
    "to_device",
    "to_host",
]


def is_device_array(value: object) -> bool:
    """Whether `value` is a CuPy array, rows of one, or CuPy sparse matrix; imports nothing for it.

    There are none as long as CuPy is not there with all its names: another thread may be importing
    it, and what is called ``cupy`` may be something else.
    """
    if isinstance(value, Resident):
        return True
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
    array : ndarray, Columns or cupy.ndarray
    dtype : dtype, default=None
        None keeps the dtype of `array`.
    order : {"C", "F"}, default=None
        None keeps the layout of `array`.
    """
    import cupy

    result = begun(array)
    result = result.finish() if hasattr(result, "finish") else cupy.asarray(result)
    if dtype is not None:
        result = result.astype(dtype, copy=False)
    return result if order is None else cupy.asarray(result, order=order)


def begun(array: Any) -> Any:
    """Return the upload of what is on the host, which ``finish()`` ends; else `array` itself."""
    if isinstance(array, Resident):
        return array.on_device
    if isinstance(array, np.ndarray) and not is_device_array(array):
        return Upload(array)
    return ColumnsUpload(array) if isinstance(array, Columns) else array


class Columns:
    """A matrix whose columns are arrays of their own on the host, as in many frames.

    Parameters
    ----------
    columns : sequence of ndarray of shape (n_samples,)
    dtype : dtype
        Of the matrix. Each column travels in its own.
    """

    def __init__(self, columns: Sequence[np.ndarray], dtype: Any) -> None:
        self.columns = columns
        self.dtype = np.dtype(dtype)
        self.shape = (len(columns[0]), len(columns))
        self.nbytes = sum(column.nbytes for column in columns)

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, rows: slice) -> Columns:
        return Columns([column[rows] for column in self.columns], self.dtype)


class ColumnsUpload:
    """`Columns` on their way to the device, where they become a matrix in Fortran order."""

    def __init__(self, source: Columns) -> None:
        self._source = source
        self._parts = []
        dtypes = [_native(column.dtype) for column in source.columns]
        for dtype in dict.fromkeys(dtypes):
            places = [place for place, other in enumerate(dtypes) if other == dtype]
            self._parts.append((places, _Stack([source.columns[i] for i in places], dtype)))

    def finish(self) -> Any:
        """Return the matrix; the columns on the host may be written to again."""
        import cupy

        dtype = self._source.dtype
        if len(self._parts) == 1:
            return self._parts[0][1].finish().astype(dtype, copy=False).T
        result = cupy.empty(self._source.shape[::-1], dtype)
        for places, stack in self._parts:
            result[cupy.asarray(places)] = stack.finish()
        return result.T


class _Stack:
    """Columns of one dtype on their way to be the rows of a matrix."""

    def __init__(self, columns: list[np.ndarray], dtype: np.dtype) -> None:
        import cupy

        self._start, self._transfer = perf_counter(), None
        shape = (len(columns), len(columns[0]))
        if staging.worthwhile(shape[0] * shape[1] * dtype.itemsize):
            self._result = cupy.empty(shape, dtype)
            pieces = staging.pieces_of_columns(columns, dtype.itemsize)
            self._transfer = staging.begin_upload(pieces, self._result.data.ptr, dtype)
        else:
            self._result = cupy.asarray(np.stack(columns).astype(dtype, copy=False))

    def finish(self) -> Any:
        if self._transfer is not None:
            self._transfer.finish()
        traffic.sent(self._result.nbytes, self._start)
        return self._result


class Upload:
    """An array on its way to the device, where the bus is worth it ahead of its use.

    Parameters
    ----------
    array : ndarray
    """

    def __init__(self, array: np.ndarray) -> None:
        import cupy

        self._start = perf_counter()
        self._transfer = None
        dtype = _native(array.dtype)
        if array.dtype.kind not in "biufc" or not staging.worthwhile(array.nbytes):
            self._result = cupy.asarray(np.asarray(array, dtype=dtype))
        else:
            # the axes in the order of memory: the device gets the layout that the host has
            axes = sorted(range(array.ndim), key=lambda axis: -abs(array.strides[axis]))
            source = array.transpose(axes)
            target = cupy.empty(source.shape, dtype)
            self._result = target.transpose(np.argsort(axes))
            pieces = staging.pieces_of(source)
            self._transfer = staging.begin_upload(pieces, target.data.ptr, dtype)

    def finish(self) -> Any:
        """Return the array on the device; that on the host may be written to again."""
        if self._transfer is not None:
            self._transfer.finish()
        traffic.sent(self._result.nbytes, self._start)
        return self._result


def _native(dtype: np.dtype) -> np.dtype:
    """Return the dtype that travels: in the byte order of the machine, at most double."""
    if dtype.kind == "f" and dtype.itemsize > 8:
        return np.dtype(np.float64)
    return dtype.newbyteorder("=")


def to_host(value: Any) -> Any:
    """Return `value` with a CuPy array replaced by a NumPy one, also inside a tuple."""
    if isinstance(value, tuple):
        return tuple(to_host(item) for item in value)
    if not is_device_array(value):
        return value
    if isinstance(value, Resident):
        return value.get()
    if not staging.worthwhile(getattr(value, "nbytes", 0)):
        start = perf_counter()
        host = value.get()
        traffic.received(getattr(host, "nbytes", 0), start)
        return host
    host = np.empty(value.shape, value.dtype)
    Download(value, host).finish()
    return host


class Download:
    """An array on its way from the device.

    Parameters
    ----------
    array : cupy.ndarray
    target : ndarray
        Of the same shape and dtype, in C order.
    """

    def __init__(self, array: Any, target: np.ndarray) -> None:
        import cupy

        self._start = perf_counter()
        self._array = cupy.ascontiguousarray(array)  # kept until it has left
        pieces = staging.pieces_of(target)
        self._transfer = staging.begin_download(pieces, self._array.data.ptr)

    def finish(self) -> None:
        """Wait until the target is filled."""
        self._transfer.finish()
        traffic.received(self._array.nbytes, self._start)


def on_host(value: Any) -> bool:
    """Whether the caller of a method with argument `value` expects NumPy arrays back."""
    return not is_device_array(value) or getattr(value, "answers_on_host", False)
