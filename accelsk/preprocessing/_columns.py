"""Columns of categories: numbers are coded on the device, strings on the host."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from sklearn.preprocessing._encoders import OneHotEncoder

from accelsk.algorithms import categories as algorithm
from accelsk.data import NUMERIC
from accelsk.device.transfer import to_device, to_host
from accelsk.engines.base import Call, Rule
from accelsk.exceptions import Invalid, Refusal

__all__ = ["COLUMNS", "Column", "Categories", "columns_of", "fitted_categories"]


class Strings(NamedTuple):
    """A column of strings, coded.

    Attributes
    ----------
    values : list
        The distinct values, in the order in which they turned up; None and NaN may be among them.
    codes : array of int of shape (n_samples,)
        Positions in `values`, on the device.
    dtype : dtype
        Of the column as it came.
    """

    values: list[Any]
    codes: Any
    dtype: np.dtype


Column = Any  #: `Strings`, or an array of numbers on the device


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
    elif X.numeric and not _is_plain(X.dtype):
        yield f"X has dtype {X.dtype}, and so would its categories"
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
    if array.dtype.kind not in "OU" and not _is_plain(series.dtype):
        raise Refusal(f"X has a column of dtype {series.dtype}")
    return array


def _is_plain(dtype: Any) -> bool:
    """Whether categories in a dtype are the same on the device."""
    if not isinstance(dtype, np.dtype) or dtype.kind not in NUMERIC:
        return False
    return dtype.isnative and (dtype.kind != "f" or dtype.itemsize in (4, 8))


def _column(array: Any) -> Column:
    if array.dtype.kind not in "OU":
        return to_device(array)
    codes, values = _factorized(array)
    if not all(isinstance(v, str) or v is None or _is_nan(v) for v in values):
        raise Refusal("X has a column of objects that are not strings")
    return Strings(values, to_device(codes), array.dtype)


def _factorized(array: np.ndarray) -> tuple[np.ndarray, list[Any]]:
    """Return the codes and the distinct values of a column."""
    pandas = sys.modules.get("pandas")
    if pandas is not None and array.dtype == object:
        codes, values = pandas.factorize(array)
        if (codes >= 0).all():  # it takes None and NaN for one
            return codes, values.tolist()
    listed = array.tolist()
    values = list(set(listed))
    place = {value: code for code, value in enumerate(values)}
    return np.fromiter(map(place.__getitem__, listed), np.int64, len(listed)), values


def _is_nan(value: Any) -> bool:
    return isinstance(value, float) and value != value


def _sorted(values: list[Any]) -> list[Any]:
    """Return the distinct values as scikit-learn sorts them: strings, None, NaN."""
    missing = [None] * (None in values) + [np.nan] * any(map(_is_nan, values))
    return sorted(value for value in values if isinstance(value, str)) + missing


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
        if isinstance(column, Strings):
            categories = cls(np.array(_sorted(column.values), dtype=column.dtype))
            return categories, categories.counts(column)
        import cupy

        values, counts = algorithm.distinct(_sortable(column), cupy)
        host = to_host(values).view(bool) if column.dtype == bool else to_host(values)
        if host.dtype.kind == "f" and np.isinf(host).any():
            raise Refusal(Invalid("X contains infinity"))
        return cls(host), to_host(counts)

    def __len__(self) -> int:
        return len(self.values)

    def counts(self, column: Column) -> np.ndarray:
        """Return how often each category occurs."""
        import cupy

        return to_host(algorithm.counts_of(self.codes(column), len(self), cupy))

    def codes(self, column: Column) -> Any:
        """Return the code of each row on the device; their number for an unknown category."""
        if isinstance(column, Strings) != (self._numbers is None):
            raise Refusal("a column has another type than its categories")
        if isinstance(column, Strings):
            return to_device(np.array([self._code(v) for v in column.values]))[column.codes]
        import cupy

        codes = algorithm.codes_of(_sortable(column), self._numbers, cupy)
        if column.dtype.kind == "f" and bool(cupy.isinf(column).any()):
            raise Refusal(Invalid("X contains infinity"))
        return codes

    def _code(self, value: Any) -> int:
        unknown = len(self.values)
        if _is_nan(value):
            return unknown if self._nan is None else self._nan
        return self._table.get(value, unknown)


def _sortable(values: Any) -> Any:
    """Return booleans as numbers."""
    return values.view(np.uint8) if values.dtype == bool else values
