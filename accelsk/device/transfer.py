"""Arrays to the device and back."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator, Sequence
from time import perf_counter
from typing import Any

import numpy as np

from accelsk.device import staging, traffic
from accelsk.device.memory import free_pools, is_out_of_memory
from accelsk.device.pieces import Piece, pieces_of, pieces_of_columns
from accelsk.device.resident import Resident

__all__ = [
    "Columns",
    "Download",
    "begun",
    "is_device_array",
    "on_host",
    "settle",
    "to_device",
    "to_host",
]

#: Bytes that there is room for on a device that is full.
_LITTLE = 1 << 20


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

    upload = begun(array)
    result = upload.next() if hasattr(upload, "next") else cupy.asarray(upload)
    if dtype is not None:
        result = result.astype(dtype, copy=False)
    return result if order is None else cupy.asarray(result, order=order)


def begun(array: Any, rows: int | None = None) -> Any:
    """Return the upload of what is on the host, whose ``next()`` ends it; else `array` itself.

    Parameters
    ----------
    array : ndarray, Columns or array on the device
    rows : int, default=None
        The rows of a block: each ``next()`` gives the next one. None means all rows at once.
    """
    if isinstance(array, Resident):
        return array.on_device
    if isinstance(array, np.ndarray) and not is_device_array(array):
        staged = array.dtype.kind in "biufc" and staging.worthwhile(array.nbytes)
        return StagedUpload(array, rows) if staged else PlainUpload(array, rows)
    return ColumnsUpload(array, rows) if isinstance(array, Columns) else array


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


class PlainUpload:
    """A small array that goes to the device at once, by blocks of rows.

    Parameters
    ----------
    array : ndarray
    rows : int or None
    """

    def __init__(self, array: np.ndarray, rows: int | None = None) -> None:
        import cupy

        start = perf_counter()
        self._result = cupy.asarray(np.asarray(array, dtype=_native(array.dtype)))
        traffic.sent(self._result.nbytes, start)
        self._rows, self._given = rows, 0

    def next(self) -> Any:
        """Return the next block on the device."""
        if self._rows is None:
            return self._result
        self._given += self._rows
        return self._result[self._given - self._rows : self._given]

    def stop(self) -> None:
        """Do nothing: all has gone already."""


class StagedUpload:
    """A large array on its way to the device, by blocks of rows, through pinned buffers.

    Some blocks are under way ahead of the one that the caller has. The memory of a block is used
    again, so a block is valid only until the next one is asked for.

    Parameters
    ----------
    source : ndarray
    rows : int or None
    """

    #: How many blocks there are on the device.
    places = 3

    def __init__(self, source: Any, rows: int | None = None) -> None:
        import cupy

        self._start = perf_counter()
        self._source, self._given = source, 0
        self._shape, strides, dtype = self._layout()
        self._dtype = _native(dtype)
        # the axes in the order of memory: the device gets the layout that the host has
        self._axes = sorted(range(len(strides)), key=lambda axis: -abs(strides[axis]))
        self._rows = self._shape[0] if rows is None else min(rows, self._shape[0])
        starts = range(0, self._shape[0], self._rows)
        elements = self._rows * math.prod(self._shape[1:])
        self._memory = cupy.empty((min(self.places, len(starts)), elements), self._dtype)
        size = staging.UPLOAD.buffer_bytes
        groups = [
            [*self._pieces(slice(start, start + self._rows), self._place(number).data.ptr, size)]
            for number, start in enumerate(starts)
        ]
        places = len(self._memory)
        self._transfer = staging.begin_upload(groups, self._dtype, self._memory, places)

    def _layout(self) -> tuple[tuple[int, ...], tuple[int, ...], np.dtype]:
        """Return the shape, the strides and the dtype of what travels."""
        return self._source.shape, self._source.strides, self._source.dtype

    def _pieces(self, rows: slice, address: int, size: int) -> Iterator[Piece]:
        part = self._source[rows].transpose(self._axes)
        return pieces_of(part, address, self._dtype.itemsize, size)

    def _place(self, number: int) -> Any:
        return self._memory[number % len(self._memory)]

    def next(self) -> Any:
        """Return the next block on the device; the memory of the one before goes to another."""
        number = self._given
        if number:
            self._transfer.allow(1)
        self._transfer.finish(number)
        self._given += 1
        length = min(self._rows, self._shape[0] - number * self._rows)
        shape = (length, *self._shape[1:])
        held = self._place(number)[: math.prod(shape)]
        traffic.sent(held.nbytes, self._start)
        self._start = perf_counter()
        return held.reshape([shape[axis] for axis in self._axes]).transpose(np.argsort(self._axes))

    def stop(self) -> None:
        """Give up what has not gone yet; the host's memory may be written to again."""
        self._transfer.stop()


class _StagedColumns(StagedUpload):
    """Columns of one dtype, in a list, that become a matrix in Fortran order."""

    def _layout(self) -> tuple[tuple[int, ...], tuple[int, ...], np.dtype]:
        first = self._source[0]
        return (len(first), len(self._source)), (1, len(first)), first.dtype

    def _pieces(self, rows: slice, address: int, size: int) -> Iterator[Piece]:
        part = [column[rows] for column in self._source]
        return pieces_of_columns(part, address, self._dtype.itemsize, size)


class ColumnsUpload:
    """`Columns` on their way to the device, where they become a matrix in Fortran order."""

    def __init__(self, source: Columns, rows: int | None = None) -> None:
        self._source = source
        self._parts: list[tuple[list[int], Any]] = []
        dtypes = [_native(column.dtype) for column in source.columns]
        try:
            for dtype in dict.fromkeys(dtypes):
                places = [place for place, other in enumerate(dtypes) if other == dtype]
                columns = [source.columns[place] for place in places]
                self._parts.append((places, _stacked(columns, dtype, rows)))
        except BaseException:
            self.stop()
            raise

    def next(self) -> Any:
        """Return the next block on the device."""
        import cupy

        blocks = [(places, upload.next()) for places, upload in self._parts]
        dtype, first = self._source.dtype, blocks[0][1]
        if len(blocks) == 1:
            return first.astype(dtype, copy=False)
        result = cupy.empty((self._source.shape[1], len(first)), dtype)
        for places, block in blocks:
            result[cupy.asarray(places)] = block.T
        return result.T

    def stop(self) -> None:
        """Give up what has not gone yet; the host's memory may be written to again."""
        for _, upload in self._parts:
            upload.stop()


def _stacked(columns: list[np.ndarray], dtype: np.dtype, rows: int | None) -> Any:
    """Return the upload of columns of one dtype as a matrix."""
    if staging.worthwhile(len(columns) * len(columns[0]) * dtype.itemsize):
        return _StagedColumns(columns, rows)
    return PlainUpload(np.stack(columns).T, rows)


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
    try:
        return _downloaded(value)
    except Exception as error:
        if not is_out_of_memory(error) or not getattr(value, "ndim", 0) or hasattr(value, "nnz"):
            raise
    # what is not contiguous there is made so first: there is room for some rows of it at least
    free_pools()
    host = np.empty(value.shape, value.dtype)
    step = max(1, _LITTLE * len(value) // max(value.nbytes, 1))
    for start in range(0, len(value), step):
        host[start : start + step] = _got(value[start : start + step])
    return host


def _downloaded(value: Any) -> Any:
    if not staging.worthwhile(getattr(value, "nbytes", 0)):
        return _got(value)
    host = np.empty(value.shape, value.dtype)
    Download(value, host).finish()
    return host


def _got(value: Any) -> Any:
    start = perf_counter()
    host = value.get()
    traffic.received(getattr(host, "nbytes", 0), start)
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
        size = staging.DOWNLOAD.buffer_bytes
        pieces = pieces_of(target, self._array.data.ptr, target.itemsize, size)
        self._transfer = staging.begin_download([*pieces], self._array)

    def finish(self) -> None:
        """Wait until the target is filled."""
        self._transfer.finish(0)
        traffic.received(self._array.nbytes, self._start)


def on_host(value: Any) -> bool:
    """Whether the caller of a method with argument `value` expects NumPy arrays back."""
    return not is_device_array(value) or getattr(value, "answers_on_host", False)


def settle() -> None:
    """Wait until the device has done what the current thread has asked of it."""
    cuda = getattr(sys.modules.get("cupy"), "cuda", None)
    if cuda is not None:
        cuda.get_current_stream().synchronize()
