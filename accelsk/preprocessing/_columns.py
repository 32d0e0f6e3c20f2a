"""Columns of categories: numbers are coded on the device, strings on the host."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
from sklearn.preprocessing._encoders import OneHotEncoder

from accelsk.algorithms import categories as algorithm
from accelsk.data import NUMERIC
from accelsk.device.transfer import is_device_array, to_device, to_host
from accelsk.engines.base import Call, Rule
from accelsk.exceptions import Invalid, Refusal

__all__ = ["COLUMNS", "Column", "Categories", "columns_of", "fitted_categories"]

Column = Any  #: ndarray of strings, or cupy.ndarray of numbers


def _refusals(call: Call) -> Iterator[str]:
    X = call.X
    if not call.takes_features:
        return
    if X.kind == "sparse":
        yield "X is sparse"
    elif X.kind not in ("numpy", "cupy", "frame", "sequence"):
        yield f"X is not a plain array or frame ({X})"
    elif len(X.shape) != 2:
        yield Invalid(f"X has {len(X.shape)} dimensions")
    elif 0 in X.shape:
        yield Invalid("X is empty")
    elif X.dtype == np.float16:
        yield "X is float16"
    elif X.kind == "frame" and not X.numeric and not hasattr(X.value, "iloc"):
        yield f"X has columns of several types ({X})"
    elif X.kind != "frame" and X.dtype is not None and X.dtype.kind not in NUMERIC + "OU":
        yield f"X has dtype {X.dtype}"


#: What keeps a table of categories off the device.
COLUMNS = Rule(
    "X is sparse, or a polars frame with columns of several types",
    lambda call: next(_refusals(call), None),
    fit_only=False,
)


def columns_of(call: Call) -> list[Column]:
    """Return the columns of ``X``, each in its own dtype as scikit-learn takes it."""
    X = call.X
    if X.kind == "frame" and hasattr(X.value, "iloc"):
        return [_column(_of_series(X.value.iloc[:, i])) for i in range(X.shape[1])]
    array = X.array
    if X.kind == "sequence" and array.dtype.kind not in NUMERIC:
        array = np.array(X.value, dtype=object)
    if array.dtype.kind in NUMERIC:
        array = to_device(array)
    return [_column(array[:, i]) for i in range(array.shape[1])]


def _of_series(series: Any) -> np.ndarray:
    array = np.asarray(series)
    if array.dtype.kind not in NUMERIC + "OU" or array.dtype == np.float16:
        raise Refusal(f"X has a column of dtype {series.dtype}")
    return array


def _column(array: Any) -> Column:
    return array if array.dtype.kind in "OU" else to_device(array)


def _is_nan(value: Any) -> bool:
    return isinstance(value, float) and value != value


def _of_objects(values: np.ndarray) -> list[Any]:
    """Return the distinct values as scikit-learn sorts them: strings, None, NaN."""
    found = set(values.tolist())
    missing = [None] * (None in found) + [np.nan] * any(map(_is_nan, found))
    strings = [value for value in found if isinstance(value, str)]
    if not all(isinstance(v, str) or v is None or _is_nan(v) for v in found):
        raise Refusal("X has a column of objects that are not strings")
    return sorted(strings) + missing


def fitted_categories(call: Call, X: list[Column]) -> tuple[list[Categories], list[np.ndarray]]:
    """Return the categories of each column, found or given by the caller, and their counts."""
    if isinstance(call.parameters["categories"], str):
        pairs = [Categories.found(column) for column in X]
        return [categories for categories, _ in pairs], [counts for _, counts in pairs]
    given = [Categories(values) for values in _given(call)]
    counts = [known.counts(column) for known, column in zip(given, X, strict=True)]
    return given, counts


def _given(call: Call) -> list[np.ndarray]:
    """Return the categories that the caller lists, as scikit-learn checks and keeps them."""
    X = call.X
    row = X.value.iloc[:1] if hasattr(X.value, "iloc") else to_host(X.array[:1])
    listed = call.parameters["categories"]
    try:
        return OneHotEncoder(categories=listed, handle_unknown="ignore").fit(row).categories_
    except ValueError as error:
        raise Refusal(Invalid(f"scikit-learn rejects it ({error})")) from error


class Categories:
    """The categories of one column.

    Parameters
    ----------
    values : ndarray of shape (n_categories,)
        As they stand in ``categories_``.
    """

    def __init__(self, values: np.ndarray) -> None:
        self.values = values
        self._numbers: Any = None
        self._table: dict[Any, int] = {}
        self._nan: int | None = None
        if values.dtype.kind in "OU":
            for code, value in enumerate(values.tolist()):
                if isinstance(value, str) or value is None:
                    self._table[value] = code
                elif _is_nan(value):
                    self._nan = code
                else:
                    raise Refusal("a column has categories that are neither strings nor numbers")
        elif values.dtype.kind in NUMERIC:
            self._numbers = _sortable(to_device(values))
        else:
            raise Refusal(f"a column has categories of dtype {values.dtype}")

    @classmethod
    def found(cls, column: Column) -> tuple[Categories, np.ndarray]:
        """Return the categories of a column, and how often each occurs."""
        if not is_device_array(column):
            categories = cls(np.array(_of_objects(column), dtype=column.dtype))
            return categories, categories.counts(column)
        xp = sys.modules["cupy"]
        values, counts = algorithm.distinct(_sortable(column), xp)
        host = to_host(values).view(bool) if column.dtype == bool else to_host(values)
        if host.dtype.kind == "f" and np.isinf(host).any():
            raise Refusal(Invalid("X contains infinity"))
        return cls(host), to_host(counts)

    def __len__(self) -> int:
        return len(self.values)

    def counts(self, column: Column) -> np.ndarray:
        """Return how often each category occurs."""
        xp = sys.modules["cupy"]
        return to_host(algorithm.counts_of(self.codes(column), len(self), xp))

    def codes(self, column: Column) -> Any:
        """Return the code of each row on the device; their number for an unknown category."""
        if is_device_array(column) == (self._numbers is None):
            raise Refusal("a column has another type than its categories")
        if self._numbers is None:
            return to_device(self._codes_on_host(column))
        xp = sys.modules["cupy"]
        codes = algorithm.codes_of(_sortable(column), self._numbers, xp)
        if column.dtype.kind == "f" and bool(xp.isinf(column).any()):
            raise Refusal(Invalid("X contains infinity"))
        return codes

    def _codes_on_host(self, column: np.ndarray) -> np.ndarray:
        code, unknown = self._table.get, len(self.values)
        codes = np.array([code(value, unknown) for value in column.tolist()], dtype=np.int64)
        if self._nan is not None:
            for row in np.flatnonzero(codes == unknown):
                if _is_nan(column[row]):
                    codes[row] = self._nan
        return codes


def _sortable(values: Any) -> Any:
    """Return booleans as numbers."""
    return values.view(np.uint8) if values.dtype == bool else values
