"""What is known about an argument before anything is computed: a plan rests on it."""

from __future__ import annotations

import functools
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import sparse

from accelsk import _sklearn
from accelsk.device.resident import Resident
from accelsk.device.transfer import Columns, is_device_array

__all__ = ["NUMERIC", "Argument", "describe"]

#: The dtypes that travel to the device: boolean, integers, floating point.
NUMERIC = "biuf"


@dataclass(frozen=True)
class Argument:
    """An argument as a method received it, and what could be told of it cheaply.

    Attributes
    ----------
    value : object
        As the caller gave it.
    kind : {"none", "numpy", "cupy", "frame", "sequence", "scalar", "sparse", "other"}
        ``"other"`` is anything that only scikit-learn knows how to read.
    shape : tuple of int
    dtype : dtype or None
        As scikit-learn sees it. None where there is no one dtype.
    narrow : bool
        Whether the values are of a narrower dtype than `dtype`, as in a list or a polars frame,
        where scikit-learn does not see it. A class that takes any dtype keeps it.
    """

    value: Any
    kind: str
    shape: tuple[int, ...] = ()
    dtype: np.dtype | None = None
    narrow: bool = False

    @property
    def given(self) -> bool:
        """Whether the argument is there at all."""
        return self.kind != "none"

    @property
    def numeric(self) -> bool:
        """Whether the dtype is one that travels to the device."""
        return self.dtype is not None and self.dtype.kind in NUMERIC

    @functools.cached_property
    def array(self) -> Any:
        """The argument as an ndarray or cupy.ndarray; without a copy where that is possible."""
        if self.kind == "frame":
            pandas = hasattr(self.value, "iloc")  # which would make objects of mixed columns
            return np.asarray(self.value, dtype=self.dtype if pandas else None)
        if isinstance(self.value, Resident):
            # text stays on the host
            return self.value.on_device if self.numeric else np.asarray(self.value)
        return self.value if self.kind == "cupy" else np.asarray(self.value)

    @functools.cached_property
    def source(self) -> Any:
        """What travels to the device: `array`, or the columns of a frame without one in memory."""
        if self.kind != "frame" or len(self.shape) != 2:
            return self.array
        if not hasattr(self.value, "iloc"):
            columns = [column.to_numpy() for column in self.value.get_columns()]
        # no public name tells it; without this one, columns are as right and somewhat slower
        elif getattr(getattr(self.value, "_mgr", None), "nblocks", 0) == 1:
            return self.array
        else:
            columns = [self.value.iloc[:, place].to_numpy() for place in range(self.shape[1])]
        return Columns(columns, self.dtype)

    @property
    def feature_names(self) -> np.ndarray | None:
        """The column names where scikit-learn would keep them.

        Raises
        ------
        TypeError
            Where scikit-learn would raise it: for names of mixed types.
        """
        if isinstance(self.value, Resident):
            return self.value.feature_names
        return _sklearn.get_feature_names(self.value) if self.kind == "frame" else None

    @property
    def heading(self) -> Any:
        """What scikit-learn finds the column names in, as it would in the argument."""
        return self.value.heading if isinstance(self.value, Resident) else self.value

    def __str__(self) -> str:
        dtype = "" if self.dtype is None else f" {self.dtype}"
        size = " x ".join(map(str, self.shape)) or "no dimensions"
        return f"{type(self.value).__name__} of {size}{dtype}"


def _frame_dtype(dtypes: Sequence[Any]) -> np.dtype | None:
    """Return the dtype of a frame's columns together, None unless all are plain and numeric."""
    if dtypes and all(isinstance(d, np.dtype) and d.kind in NUMERIC for d in dtypes):
        return np.result_type(*dtypes)
    return None


def _describe_pandas(value: Any) -> Argument:
    if value.ndim == 2 and not value.columns.is_unique:
        return Argument(value, "other")  # scikit-learn rejects it from 1.9 on
    dtypes = list(value.dtypes) if value.ndim == 2 else [value.dtype]
    dtype = _frame_dtype(dtypes)
    if dtype is None and value.ndim == 1:
        if value.dtype.kind in NUMERIC:
            return Argument(value, "other")  # Int64, boolean: scikit-learn reads them as floats
        if value.dtype == object:
            dtype = np.dtype(object)
    return Argument(value, "frame", value.shape, dtype)


def _describe_polars(value: Any, polars: Any) -> Argument:
    columns = value.get_columns() if isinstance(value, polars.DataFrame) else [value]
    if not all(c.dtype.is_numeric() and c.null_count() == 0 for c in columns):
        return Argument(value, "frame", value.shape, None)
    dtype = _frame_dtype([value.head(1).to_numpy().dtype])
    return _without_dtype(value, "frame", value.shape, dtype)


def _without_dtype(
    value: Any, kind: str, shape: tuple[int, ...], dtype: np.dtype | None
) -> Argument:
    """Return what is known of a container that has no dtype for scikit-learn to see.

    Where it takes float32 and float64 alike, it makes float64 of such a matrix.
    """
    if dtype is not None and dtype.kind == "f" and dtype.itemsize < 8 and len(shape) == 2:
        return Argument(value, kind, shape, np.dtype(np.float64), narrow=True)
    return Argument(value, kind, shape, dtype)


def _describe_frame(value: Any) -> Argument | None:
    pandas = sys.modules.get("pandas")
    if pandas is not None and isinstance(value, (pandas.DataFrame, pandas.Series)):
        return _describe_pandas(value)
    polars = sys.modules.get("polars")
    if polars is not None and isinstance(value, (polars.DataFrame, polars.Series)):
        return _describe_polars(value, polars)
    return None


def describe(value: Any) -> Argument:
    """Return what is known of `value`, looking at its type and shape but not at its elements.

    A list or tuple is the exception: its elements have to be read to know their type. What
    cannot be read is left to scikit-learn, which has the words for it.
    """
    try:
        return _describe(value)
    except Exception:
        return Argument(value, "other")


def _describe(value: Any) -> Argument:
    if value is None:
        return Argument(value, "none")
    if type(value) in (np.ndarray, np.memmap):
        return Argument(value, "numpy", value.shape, value.dtype)
    if is_device_array(value):
        issparse = getattr(sys.modules.get("cupyx.scipy.sparse"), "issparse", None)
        kind = "sparse" if issparse is not None and issparse(value) else "cupy"
        return Argument(value, kind, value.shape, value.dtype)
    if isinstance(value, (bool, int, float, np.number, np.bool_)):
        return Argument(value, "scalar", (), np.asarray(value).dtype)
    if sparse.issparse(value):
        return Argument(value, "sparse", value.shape, value.dtype)
    if (frame := _describe_frame(value)) is not None:
        return frame
    # what can be made an array and has no dtype is read by scikit-learn as a list is
    if isinstance(value, (list, tuple)) or _is_like_a_list(value):
        array = np.asarray(value)
        argument = _without_dtype(value, "sequence", array.shape, array.dtype)
        argument.__dict__["array"] = array
        return argument
    return Argument(value, "other")


#: What has one of these is no list: scikit-learn asks it for more than numbers.
_MORE_THAN_A_LIST = ("dtype", "dtypes", "columns", "__dataframe__")


def _is_like_a_list(value: Any) -> bool:
    return hasattr(type(value), "__array__") and not any(
        hasattr(value, name) for name in _MORE_THAN_A_LIST
    )
