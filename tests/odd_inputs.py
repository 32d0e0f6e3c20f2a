"""Arguments that few people pass, and all of which scikit-learn has an answer to.

`ODD_X`, `ODD_Y` and `ODD_WEIGHTS` hold functions from ordinary data to odd data, by name.
"""

from __future__ import annotations

import array
import collections
import itertools
import tempfile
import warnings
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pandas as pd
from scipy import sparse

__all__ = [
    "DTYPES",
    "LAYOUTS",
    "NARROW",
    "ODD_WEIGHTS",
    "ODD_X",
    "ODD_Y",
    "OVERFLOWING",
    "Conversion",
]

try:
    import polars
except ImportError:
    polars = None
try:
    import pyarrow  # noqa: F401 - pandas asks for it
except ImportError:
    arrow = False
else:
    arrow = True

Conversion = Callable[[np.ndarray], Any]


# Layouts


def _strided(X: np.ndarray) -> np.ndarray:
    wide = np.zeros(tuple(2 * size for size in X.shape), X.dtype)
    inner = tuple(slice(None, None, 2) for _ in X.shape)
    wide[inner] = X
    return wide[inner]


def _reversed(X: np.ndarray) -> np.ndarray:
    turned = tuple(slice(None, None, -1) for _ in X.shape)
    return np.ascontiguousarray(X[turned])[turned]


def _read_only(X: np.ndarray) -> np.ndarray:
    X = X.copy()
    X.flags.writeable = False
    return X


def _memory_mapped(X: np.ndarray) -> np.ndarray:
    with tempfile.NamedTemporaryFile() as file:
        mapped = np.memmap(file.name, X.dtype, "w+", shape=X.shape)
    mapped[...] = X
    return mapped


def _mapped_read_only(X: np.ndarray) -> np.ndarray:
    with tempfile.NamedTemporaryFile(suffix=".npy") as file:
        np.save(file.name, X)
        return np.load(file.name, mmap_mode="r")


def _unaligned(X: np.ndarray) -> np.ndarray:
    raw = np.zeros(X.nbytes + 1, np.uint8)
    result = raw[1:].view(X.dtype).reshape(X.shape)
    result[...] = X
    return result


def _broadcast(X: np.ndarray) -> np.ndarray:
    """Columns that are one and the same in memory."""
    return np.broadcast_to(X[:, :1], X.shape)


def _field(X: np.ndarray) -> np.ndarray:
    records = np.zeros(X.shape, [("pad", "i1"), ("value", X.dtype)])
    records["value"] = X
    return records["value"]


class _Subclass(np.ndarray):
    pass


LAYOUTS: dict[str, Conversion] = {
    "Fortran order": np.asfortranarray,
    "strided": _strided,
    "negative strides": _reversed,
    "read-only": _read_only,
    "memory map": _memory_mapped,
    "memory map, read-only": _mapped_read_only,
    "unaligned": _unaligned,
    "broadcast": _broadcast,
    "field of records": _field,
    "transposed": lambda X: np.ascontiguousarray(X.T).T,
}

# Dtypes


def _whole(dtype: str, scale: float = 4) -> Conversion:
    def convert(X: np.ndarray) -> np.ndarray:
        X = np.rint(X * scale)
        return (np.abs(X) if np.dtype(dtype).kind == "u" else X).astype(dtype)

    return convert


def _to(dtype: Any) -> Conversion:
    return lambda X: X.astype(dtype)


DTYPES: dict[str, Conversion] = {
    "float32": _to(np.float32),
    "float16": _to(np.float16),
    "longdouble": _to(np.longdouble),
    "big-endian float64": _to(">f8"),
    "big-endian float32": _to(">f4"),
    "big-endian int32": _whole(">i4"),
    "int8": _whole("i1"),
    "uint8": _whole("u1"),
    "uint16": _whole("u2"),
    "int32": _whole("i4"),
    "int64": _whole("i8"),
    "uint64": _whole("u8"),
    "int64 beyond 2**53": lambda X: np.rint(X * 4).astype(np.int64) * (1 << 52) + 1,
    "bool": lambda X: np.median(X, axis=0) < X,
    "objects": _to(object),
    "objects of arrays": lambda X: _objects([*X.copy()], (len(X),)),
    "objects of fractions": lambda X: _objects([Fraction(x) for x in X.flat], X.shape),
    "objects of int": lambda X: _whole("i8")(X).astype(object),
    "objects of numpy.float32": lambda X: _objects([np.float32(x) for x in X.flat], X.shape),
    "objects with None": lambda X: _one(X.astype(object), None),
    "objects with text": lambda X: _one(X.astype(object), "x"),
    "objects that are numbers as text": lambda X: X.astype(str).astype(object),
    "text": lambda X: X.astype(str),
    "bytes": lambda X: X.astype(str).astype("S"),
    "complex": lambda X: X + 1j,
    "complex without imaginary part": _to(np.complex128),
    "dates": lambda X: X.astype("i8").astype("M8[D]"),
    "durations": lambda X: X.astype("i8").astype("m8[D]"),
    "records": lambda X: X.copy().view([(f"f{i}", X.dtype) for i in range(X.shape[-1])]),
    "masked, nothing masked": np.ma.masked_array,
    "masked": lambda X: np.ma.masked_array(X, X.max(axis=0) - 0.1 < X),
    "matrix": lambda X: _matrix(X),
    "subclass": lambda X: X.view(_Subclass),
}


def _matrix(X: np.ndarray) -> np.ndarray:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that the class is not recommended
        return np.matrix(X)


def _objects(items: list[Any], shape: tuple[int, ...]) -> np.ndarray:
    result = np.empty(len(items), object)
    result[:] = items
    return result.reshape(shape)


def _one(X: np.ndarray, value: Any) -> np.ndarray:
    """Return a copy with one element replaced."""
    X = X.copy()
    X[(len(X) // 2, *[0] * (X.ndim - 1))] = value
    return X


# Containers


class _WithArray:
    """Something that can be read as an array and is none."""

    def __init__(self, X: np.ndarray) -> None:
        self._X = X
        self.shape = X.shape

    def __array__(self, dtype: Any = None, copy: Any = None) -> np.ndarray:
        return np.asarray(self._X, dtype)

    def __len__(self) -> int:
        return len(self._X)

    def __getitem__(self, key: Any) -> Any:
        return self._X[key]


def _frame(X: np.ndarray, **options: Any) -> pd.DataFrame:
    return pd.DataFrame(X, columns=[f"f{i}" for i in range(X.shape[1])], **options)


def _mixed(X: np.ndarray) -> pd.DataFrame:
    frame = _frame(X)
    for name, dtype in zip(
        frame, ("float32", "int64", "bool", "float16", "int8", "uint8"), strict=False
    ):
        frame[name] = (frame[name] > 1 if dtype == "bool" else np.abs(frame[name])).astype(dtype)
    return frame


def _columns(dtype: Any, *, missing: bool = False) -> Conversion:
    """A frame whose first column is of another dtype."""

    def convert(X: np.ndarray) -> pd.DataFrame:
        frame = _frame(X)
        whole = str(dtype).lower().startswith(("int", "bool", "categ", "uint"))
        column = pd.Series(np.rint(X[:, 0]) if whole else X[:, 0])
        column = (column > column.median()) if "bool" in str(dtype) else column
        column = column.astype("int64") if str(dtype).startswith("category") else column
        frame["f0"] = column.astype(dtype)
        if missing:
            frame.loc[3, "f0"] = None
        return frame

    return convert


_FORMATS = ("csr", "csc", "coo", "bsr", "dia", "dok", "lil")


def _sparse(name: str) -> Conversion:
    return lambda X: getattr(sparse, name)(X)


def _wide_indices(X: Any) -> Any:
    X.indices, X.indptr = X.indices.astype(np.int64), X.indptr.astype(np.int64)
    return X


def _unsorted(X: Any) -> Any:
    for first, last in itertools.pairwise(X.indptr):
        X.indices[first:last] = X.indices[first:last][::-1].copy()
        X.data[first:last] = X.data[first:last][::-1].copy()
    X.has_sorted_indices = False
    return X


def _twice(X: Any) -> Any:
    """Each element in two parts."""
    parts = np.repeat(X.data / 2, 2)
    return sparse.csr_matrix((parts, np.repeat(X.indices, 2), X.indptr * 2), shape=X.shape)


def _with_zeros(X: Any) -> Any:
    X.data[::3] = 0
    return X


CONTAINERS: dict[str, Conversion] = {
    "list": lambda X: X.tolist(),
    "tuples": lambda X: tuple(map(tuple, X.tolist())),
    "tuple of arrays": lambda X: (*X,),
    "deque": lambda X: collections.deque(X.tolist()),
    "range": lambda X: range(len(X)),
    "list of arrays": lambda X: [*X],
    "list of columns": lambda X: [row[:, None] for row in X],
    "list of frames": lambda X: [pd.Series(row) for row in X],
    "list of float32 arrays": lambda X: [*X.astype(np.float32)],
    "list of ints and floats": lambda X: [[int(row[0]), *row[1:]] for row in X.tolist()],
    "list of bools": lambda X: (X > 1).tolist(),
    "ragged list": lambda X: [[1.0], *X.tolist()[1:]],
    "list with None": lambda X: _one(X.astype(object), None).tolist(),
    "list with text": lambda X: _one(X.astype(object), "x").tolist(),
    "huge ints": lambda X: [[10**30, *row[1:]] for row in X.tolist()],
    "has __array__": _WithArray,
    "generator": lambda X: (row for row in X),
    "set": lambda X: set(X[:, 0].tolist()),
    "dict": lambda X: {"a": X[:, 0], "b": X[:, 0]},
    "str": lambda X: "abc",
    "number": lambda X: 3.0,
    "None": lambda X: None,
    "array without dimensions": lambda X: np.array(3.0),
    "memoryview": lambda X: memoryview(np.ascontiguousarray(X)),
    "array.array": lambda X: array.array("d", X[:, 0].tolist()),
    **{name: _sparse(f"{name}_matrix") for name in _FORMATS},
    **{f"{name} array": _sparse(f"{name}_array") for name in _FORMATS},
    "CSR of float32": lambda X: sparse.csr_matrix(X.astype(np.float32)),
    "CSR of int": lambda X: sparse.csr_matrix(np.rint(X).astype(int)),
    "CSR of bool": lambda X: sparse.csr_matrix(X > 1),
    "CSR of int64 indices": lambda X: _wide_indices(sparse.csr_matrix(X)),
    "CSC of int64 indices": lambda X: _wide_indices(sparse.csc_matrix(X)),
    "CSR of unsorted indices": lambda X: _unsorted(sparse.csr_matrix(X)),
    "CSR with duplicates": lambda X: _twice(sparse.csr_matrix(X)),
    "CSR with zeros": lambda X: _with_zeros(sparse.csr_matrix(X)),
    "COO with duplicates": lambda X: _twice(sparse.csr_matrix(X)).tocoo(),
    "CSR with NaN": lambda X: sparse.csr_matrix(_one(X, np.nan)),
    "CSR with infinity": lambda X: sparse.csr_matrix(_one(X, np.inf)),
    "CSR of nothing": lambda X: sparse.csr_matrix(X.shape),
    "CSR of no rows": lambda X: sparse.csr_matrix(X[:0]),
    "CSR of one row": lambda X: sparse.csr_matrix(X[:1]),
    "CSR of complex": lambda X: sparse.csr_matrix(X + 1j),
    "frame": _frame,
    "frame of mixed dtypes": _mixed,
    "frame of float32": lambda X: _frame(X.astype(np.float32)),
    "frame with gaps in its index": lambda X: _frame(X, index=np.arange(len(X)) * 7 + 3),
    "frame with a nullable column": _columns("Float64"),
    "frame with a nullable column, NA": _columns("Float64", missing=True),
    "frame with a column of Int64": _columns("Int64"),
    "frame with a column of Int64, NA": _columns("Int64", missing=True),
    "frame with a column of boolean": _columns("boolean"),
    "frame with a column of categories": _columns("category"),
    "frame with a column of objects": _columns("object"),
    "frame with a column of text": _columns("str"),
    "frame with a sparse column": _columns(pd.SparseDtype("float64", 0.0)),
    "frame of sparse columns": lambda X: _frame(X).astype(pd.SparseDtype("float64", 0.0)),
    "frame of nullable columns": lambda X: _frame(X).astype("Float32"),
    "frame of objects": lambda X: _frame(X).astype(object),
    "frame of bool": lambda X: _frame(X > 1),
    "frame with a column of dates": _columns("datetime64[ns]"),
    "frame with a column of durations": _columns("timedelta64[ns]"),
    "frame with a column of complex": _columns("complex128"),
    "frame in Fortran order": lambda X: _frame(np.asfortranarray(X)),
    "frame of levels as names": lambda X: pd.DataFrame(
        X, columns=pd.MultiIndex.from_product([["a"], range(X.shape[1])])
    ),
    "frame of numbers as names": pd.DataFrame,
    "frame of mixed names": lambda X: _frame(X).rename(columns={"f0": 0}),
    "frame with a name twice": lambda X: _frame(X).rename(columns={"f0": "f1"}),
    "frame without columns": lambda X: _frame(X)[[]],
    "series": lambda X: pd.Series(X[:, 0]),
}
if arrow:
    CONTAINERS |= {
        "frame with an Arrow column": _columns("float64[pyarrow]"),
        "frame with an Arrow column, NA": _columns("float64[pyarrow]", missing=True),
        "frame of Arrow columns": lambda X: _frame(X).astype("float32[pyarrow]"),
        "Arrow table": lambda X: __import__("pyarrow").Table.from_pandas(_frame(X)),
    }
if polars is not None:
    CONTAINERS |= {
        "polars": lambda X: polars.DataFrame(_frame(X).to_dict("list")),
        "polars of mixed dtypes": lambda X: polars.DataFrame(
            {"a": X[:, 0].astype(np.float32), "b": np.rint(X[:, 1]).astype(int)}
            | {f"f{i}": X[:, i] for i in range(2, X.shape[1])}
        ),
        "polars with null": lambda X: polars.DataFrame(
            {f"f{i}": _one(X[:, i].astype(object), None).tolist() for i in range(X.shape[1])}
        ),
        "polars of float32 with null": lambda X: polars.DataFrame(
            {f"f{i}": _one(X[:, i].astype(object), None).tolist() for i in range(X.shape[1])},
            schema=dict.fromkeys([f"f{i}" for i in range(X.shape[1])], polars.Float32),
        ),
        "polars of bool": lambda X: polars.DataFrame({"a": X[:, 0] > 1, "b": X[:, 0] > 0}),
        "polars, lazy": lambda X: polars.LazyFrame(_frame(X).to_dict("list")),
        "polars with text": lambda X: polars.DataFrame(
            {"a": X[:, 0].astype(str)} | {f"f{i}": X[:, i] for i in range(1, X.shape[1])}
        ),
    }


# Shapes and values

SHAPES: dict[str, Conversion] = {
    "one row": lambda X: X[:1],
    "two rows": lambda X: X[:2],
    "one column": lambda X: X[:, :1],
    "one number": lambda X: X[:1, :1],
    "no rows": lambda X: X[:0],
    "no columns": lambda X: X[:, :0],
    "no rows and columns": lambda X: X[:0, :0],
    "empty list": lambda X: [],
    "list of an empty list": lambda X: [[]],
    "one dimension": lambda X: X[:, 0],
    "three dimensions": lambda X: X[:, :, None],
    "more columns than rows": lambda X: np.hstack([X[:5]] * 3) + np.arange(3 * X.shape[1]) ** 2 % 7,
}

VALUES: dict[str, Conversion] = {
    "NaN": lambda X: _one(X, np.nan),
    "all NaN": lambda X: X * np.nan,
    "a column of NaN": lambda X: np.where(np.arange(X.shape[1]) == 0, np.nan, X),
    "infinity": lambda X: _one(X, np.inf),
    "minus infinity": lambda X: _one(X, -np.inf),
    "infinity in both directions": lambda X: _one(np.where(X[0, 0] == X, -np.inf, X), np.inf),
    "float32 with infinity": lambda X: _one(X.astype(np.float32), np.inf),
    "float16 with NaN": lambda X: _one(X.astype(np.float16), np.nan),
    "huge": lambda X: X * 1e300,
    "one huge": lambda X: _one(X, 1e308),
    "beyond float32": lambda X: X * 1e39,
    "tiny": lambda X: X * 1e-300,
    "subnormal": lambda X: X * 1e-310,
    "far from zero": lambda X: X + 1e3,
    "zeros": lambda X: X * 0,
    "negative zeros": lambda X: X * 0 * -1.0,
    "constant": lambda X: X * 0 + 3,
    "a constant column": lambda X: np.where(np.arange(X.shape[1]) == 0, 3.3, X),
    "all rows alike": lambda X: np.broadcast_to(np.rint(X[0]), X.shape).copy(),
    "the same column twice": lambda X: np.hstack([X, X[:, :1]]),
    "largest int64": lambda X: np.where(X > 2, np.iinfo("i8").max, 1),
    "largest uint64": lambda X: np.where(X > 2, np.iinfo("u8").max, np.uint64(1)),
}

ODD_X = LAYOUTS | DTYPES | CONTAINERS | SHAPES | VALUES

#: With these scikit-learn computes in float32 or less.
NARROW = {
    name for name in ODD_X if "float32" in name or "float16" in name or "Arrow columns" in name
}
NARROW |= {"frame of nullable columns", "frame of mixed dtypes"}

#: With these it computes what overflows, or is nothing but rounding.
OVERFLOWING = {
    "beyond 2**53",
    "beyond float32",
    "huge",
    "int64 beyond 2**53",
    "largest int64",
    "largest uint64",
    "one huge",
}

ODD_Y: dict[str, Conversion] = {
    **{name: LAYOUTS[name] for name in LAYOUTS if name not in ("broadcast", "transposed")},
    "float64": _to(np.float64),
    "float32": _to(np.float32),
    "float16": _to(np.float16),
    "longdouble": _to(np.longdouble),
    "big-endian": lambda y: y.astype(y.dtype.newbyteorder(">")),
    "int8": _whole("i1", 1),
    "uint8": _whole("u1", 1),
    "uint64": _whole("u8", 1),
    "bool": lambda y: y > np.median(y),
    "objects": _to(object),
    "objects of text": lambda y: np.rint(y).astype(int).astype(str).astype(object),
    "objects with None": lambda y: _one(y.astype(object), None),
    "objects of several types": lambda y: _one(y.astype(object), "x"),
    "text": lambda y: np.rint(y).astype(int).astype(str),
    "bytes": lambda y: np.rint(y).astype(int).astype("S"),
    "complex": lambda y: y + 1j,
    "dates": lambda y: y.astype("i8").astype("M8[D]"),
    "masked": lambda y: np.ma.masked_array(y, y == y[0]),
    "subclass": lambda y: y.view(_Subclass),
    "list": lambda y: y.tolist(),
    "tuple": lambda y: tuple(y.tolist()),
    "array.array": lambda y: array.array("d", y.tolist()),
    "memoryview": lambda y: memoryview(np.ascontiguousarray(y)),
    "matrix": lambda X: _matrix(X),
    "list of text": lambda y: np.rint(y).astype(int).astype(str).tolist(),
    "list of bool": lambda y: (y > np.median(y)).tolist(),
    "list of bool and int": lambda y: [bool(y[0]), *np.rint(y[1:]).astype(int).tolist()],
    "beyond 2**53": lambda y: np.rint(y).astype(np.int64) + (1 << 53),
    "one row": lambda y: y[None, :],
    "frame of two columns": lambda y: pd.DataFrame({"a": y, "b": y}),
    "series of bool": lambda y: pd.Series(y > np.median(y)),
    "series of boolean": lambda y: pd.Series(y > np.median(y)).astype("boolean"),
    "series of objects": lambda y: pd.Series(y).astype(object),
    "series of dates": lambda y: pd.Series(y.astype("i8").astype("M8[s]")),
    "series of categories of text, one unused": lambda y: pd.Series(
        pd.Categorical(np.rint(y).astype(int).astype(str), [*map(str, range(-40, 80))])
    ),
    "has __array__": _WithArray,
    "range": lambda y: range(len(y)),
    "None": lambda y: None,
    "number": lambda y: 1.0,
    "str": lambda y: "abc",
    "set": lambda y: {1.0, 2.0},
    "column": lambda y: y[:, None],
    "column as a list": lambda y: y[:, None].tolist(),
    "two columns": lambda y: np.c_[y, y[::-1]],
    "one column of a frame": lambda y: pd.DataFrame({"y": y}),
    "no columns": lambda y: np.empty((len(y), 0)),
    "three dimensions": lambda y: y[:, None, None],
    "too short": lambda y: y[:-1],
    "too long": lambda y: np.r_[y, y[:1]],
    "empty": lambda y: y[:0],
    "series": lambda y: pd.Series(y, index=np.arange(len(y)) * 3 + 1),
    "series of categories": lambda y: pd.Series(np.rint(y).astype(int)).astype("category"),
    "series of text": lambda y: pd.Series(np.rint(y).astype(int).astype(str)),
    "series of Int64": lambda y: pd.Series(np.rint(y)).astype("Int64"),
    "series of Int64, NA": lambda y: pd.Series(_one(np.rint(y), np.nan)).astype("Int64"),
    "series of Float64": lambda y: pd.Series(y).astype("Float64"),
    "sparse": lambda y: sparse.csr_matrix(y[:, None]),
    "NaN": lambda y: _one(y.astype(float), np.nan),
    "infinity": lambda y: _one(y.astype(float), np.inf),
    "huge": lambda y: y * 1e300,
    "tiny": lambda y: y * 1e-310,
    "far from zero": lambda y: y + 10**6,
    "fractions": lambda y: y + 0.25,
    "negative": lambda y: -y - 1,
    "constant": lambda y: y * 0 + 1,
    "all differ": lambda y: np.arange(len(y)),
    "largest int64": lambda y: np.where(y > y[0], np.iinfo("i8").max, 1),
    "largest uint64": lambda y: np.where(y > y[0], np.iinfo("u8").max, np.uint64(1)),
}
if arrow:
    ODD_Y["Arrow series"] = lambda y: pd.Series(y).astype("float64[pyarrow]")
    ODD_Y["Arrow series of text"] = lambda y: pd.Series(np.rint(y).astype(int).astype(str)).astype(
        "string[pyarrow]"
    )
if polars is not None:
    ODD_Y["polars"] = polars.Series
    ODD_Y["polars of text"] = lambda y: polars.Series(np.rint(y).astype(int).astype(str))

ODD_WEIGHTS: dict[str, Conversion] = {
    **{name: LAYOUTS[name] for name in ("strided", "negative strides", "read-only", "unaligned")},
    "float32": _to(np.float32),
    "float16": _to(np.float16),
    "longdouble": _to(np.longdouble),
    "big-endian": _to(">f8"),
    "int64": _whole("i8"),
    "bool": lambda w: w > 1,
    "objects": _to(object),
    "objects with None": lambda w: _one(w.astype(object), None),
    "text": lambda w: w.astype(str),
    "complex": lambda w: w + 1j,
    "list": lambda w: w.tolist(),
    "list of int": lambda w: [1 + int(x) for x in w],
    "tuple": lambda w: tuple(w.tolist()),
    "array.array": lambda w: array.array("d", w.tolist()),
    "matrix": lambda X: _matrix(X),
    "masked": lambda w: np.ma.masked_array(w, w > 1.5),
    "subclass": lambda w: w.view(_Subclass),
    "frame": lambda w: pd.DataFrame({"w": w}),
    "sparse": lambda w: sparse.csr_matrix(w[:, None]),
    "uint8": _whole("u1"),
    "zero for every third": lambda w: np.where(np.arange(len(w)) % 3 == 0, 0, w),
    "series with NA": lambda w: pd.Series(_one(w, np.nan)).astype("Float64"),
    "series": lambda w: pd.Series(w, index=np.arange(len(w)) * 3 + 1),
    "series of Int64": lambda w: pd.Series(np.rint(w)).astype("Int64"),
    "has __array__": _WithArray,
    "number": lambda w: 2.0,
    "int": lambda w: 2,
    "True": lambda w: True,
    "zero": lambda w: 0.0,
    "NaN for all": lambda w: float("nan"),
    "str": lambda w: "abc",
    "column": lambda w: w[:, None],
    "two columns": lambda w: np.c_[w, w],
    "too short": lambda w: w[:-1],
    "empty": lambda w: w[:0],
    "negative": lambda w: -w,
    "one negative": lambda w: _one(w, -1.0),
    "zeros": lambda w: w * 0,
    "all zero but one": lambda w: _one(w * 0, 1.0),
    "NaN": lambda w: _one(w, np.nan),
    "infinity": lambda w: _one(w, np.inf),
    "huge": lambda w: w * 1e300,
    "tiny": lambda w: w * 1e-300,
}
