"""What is known of an argument before anything is computed is what scikit-learn will read."""

from __future__ import annotations

import sys
import warnings

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst
from scipy import sparse
from sklearn.utils.validation import check_array, column_or_1d

from accelsk.data import describe
from accelsk.device.transfer import is_device_array, on_host, to_host
from accelsk.engines.base import Call
from accelsk.engines.inputs import matrix_refusals

FLOATS = [np.float64, np.float32]

DTYPES = ["?", "b", "u1", "i2", "i8", "u8", "f2", "f4", "f8", "g", ">f4", ">f8", ">i4"]


def _travels(X):
    """Return whether X may go to the device."""
    call = Call(None, object, "fit", {"X": X})
    return next(matrix_refusals(call), None) is None


def _cast(X):
    """Return X as an engine takes it: float32 where it is float32, else float64."""
    known = describe(X)
    dtype = np.float32 if known.dtype == np.float32 else np.float64
    return np.asarray(known.array, dtype=dtype)


def _theirs(X):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return check_array(X, dtype=FLOATS)
        except Exception as error:
            return type(error)


def _assert_as_scikit_learn_reads(X, expected=None):
    """Assert that X travels as scikit-learn reads it.

    Unless it is `expected` to be "invalid", so that scikit-learn rejects it, or "unread", so that
    scikit-learn alone knows what to make of it.
    """
    theirs = _theirs(X)
    if expected is not None:
        assert not _travels(X)
        assert expected == "unread" or isinstance(theirs, type), f"scikit-learn takes {describe(X)}"
        return
    assert _travels(X), describe(X)
    assert not isinstance(theirs, type), f"scikit-learn rejects {describe(X)}: {theirs}"
    ours = _cast(X)
    assert (ours.dtype, ours.shape) == (theirs.dtype, theirs.shape)
    np.testing.assert_array_equal(ours, theirs)
    assert describe(X).array.dtype == check_array(X).dtype


# Arrays


@pytest.mark.parametrize("dtype", DTYPES)
def test_arrays_of_numbers(dtype):
    X = np.arange(12).reshape(4, 3).astype(dtype)
    known = describe(X)
    assert (known.kind, known.shape, known.dtype) == ("numpy", (4, 3), np.dtype(dtype))
    assert known.numeric
    assert known.given
    if dtype != "g":  # check_array leaves longdouble to be cast
        _assert_as_scikit_learn_reads(X)


@given(
    st.sampled_from([d for d in DTYPES if d != "g"]).flatmap(
        lambda dtype: npst.arrays(
            dtype,
            npst.array_shapes(min_dims=1, max_dims=3, min_side=0, max_side=4),
            elements={
                "allow_nan": False,
                "allow_infinity": False,
                "min_value": -100,
                "max_value": 100,
            }
            if np.dtype(dtype).kind == "f"
            else None,
        )
    ),
    st.sampled_from(["C", "F", "strided", "reversed", "read-only", "list", "object"]),
)
def test_arrays_in_any_shape_layout_and_container(X, layout):
    if layout == "F":
        X = np.asfortranarray(X)
    elif layout == "strided":
        X = np.repeat(X, 2, axis=0)[::2]
    elif layout == "reversed":
        X = X[::-1]
    elif layout == "read-only":
        X.flags.writeable = False
    elif layout == "list":
        X = X.tolist()
    elif layout == "object":
        X = X.astype(object)
    if _travels(X):
        _assert_as_scikit_learn_reads(X)


def _arrays():
    yield "0d", np.array(3.0), "invalid"
    yield "1d", np.arange(3.0), "invalid"
    yield "3d", np.ones((2, 2, 2)), "invalid"
    yield "no rows", np.ones((0, 2)), "invalid"
    yield "no columns", np.ones((2, 0)), "invalid"
    yield "complex", np.eye(2) * 1j, "invalid"
    yield "text", np.array([["a"]]), "unread"
    yield "numbers as text", np.array([["1"]]), "unread"
    yield "bytes", np.array([[b"a"]]), "unread"
    yield "dates", np.array([["2020-01-01"]], dtype="M8[D]"), "unread"
    yield "records", np.zeros(2, dtype="f8,f8"), "unread"
    yield "objects", np.array([[1, 2.5]], dtype=object), "unread"
    yield "matrix", np.eye(2).view(np.matrix), "unread"
    yield "masked", np.ma.masked_array([[1.0, 2.0]], [[True, False]]), "unread"
    yield "subclass", np.eye(2).view(type("Mine", (np.ndarray,), {})), "unread"
    yield "sparse", sparse.csr_matrix(np.eye(2)), "unread"
    yield "sparse array", sparse.coo_array(np.eye(2)), "unread"
    yield "nothing", None, "invalid"


@pytest.mark.parametrize(
    ("X", "refused"), [c[1:] for c in _arrays()], ids=[c[0] for c in _arrays()]
)
def test_arrays_that_do_not_travel(X, refused):
    _assert_as_scikit_learn_reads(X, refused)


def test_memmap_travels_without_a_copy(tmp_path):
    X = np.memmap(tmp_path / "X", dtype="f4", mode="w+", shape=(4, 3))
    assert _travels(X)
    assert np.shares_memory(describe(X).array, X)


def test_array_is_not_copied():
    X = np.ones((3, 2))
    assert describe(X).array is X


# Lists and scalars


def _lists():
    yield [[1, 2], [3, 4]], None
    yield [[1.5, True]], None
    yield ((1, 2), (3, 4)), None
    yield [np.ones(2), np.zeros(2)], None
    yield [[1], [2, 3]], "unread"
    yield [["a", "b"]], "unread"
    yield [[1, None]], "unread"
    yield [[2**70, 1]], "unread"
    yield [], "invalid"
    yield [1, 2], "invalid"
    yield {1, 2}, "unread"
    yield range(3), "unread"
    yield (i for i in [1]), "unread"
    yield "text", "unread"
    yield 3.0, "unread"
    yield object(), "unread"


@pytest.mark.parametrize(("X", "refused"), [*_lists()], ids=lambda v: str(v)[:20])
def test_lists(X, refused):
    _assert_as_scikit_learn_reads(X, refused)


@pytest.mark.parametrize("value", [True, 1, 1.5, np.float32(1), np.int8(3), np.True_])
def test_scalars(value):
    known = describe(value)
    assert (known.kind, known.shape, known.dtype) == ("scalar", (), np.asarray(value).dtype)


def test_list_is_read_once():
    known = describe([[1, 2]])
    assert known.array is known.array
    assert known.array.dtype == np.asarray([[1, 2]]).dtype


@pytest.mark.parametrize("container", [list, tuple])
def test_list_does_not_show_that_it_is_of_float32(container):
    X = container(np.ones((3, 2), np.float32))
    assert describe(X).dtype == np.float64
    assert describe(X).narrow
    assert not describe(container(np.ones((3, 2)))).narrow
    _assert_as_scikit_learn_reads(X)


class _Refusing:
    def __array__(self, dtype=None, copy=None):
        raise TypeError("no implicit conversion to a NumPy array")

    @property
    def dtypes(self):
        raise RuntimeError("do not ask")


@pytest.mark.parametrize("value", [_Refusing(), [_Refusing(), _Refusing()], (_Refusing(),)])
def test_what_cannot_be_read_is_left_to_scikit_learn(value):
    assert describe(value).kind == "other"


class _Arraylike:
    def __array__(self, dtype=None, copy=None):
        return np.eye(2)


class _Framelike(_Arraylike):
    columns = ("a", "b")


def test_what_becomes_an_array_is_read_as_a_list_is():
    argument = describe(_Arraylike())
    assert _travels(_Arraylike())
    assert (argument.kind, argument.shape) == ("sequence", (2, 2))
    np.testing.assert_array_equal(argument.array, np.eye(2))


def test_foreign_frames_are_left_to_scikit_learn():
    assert not _travels(_Framelike())


# pandas


def _frames():
    pd = pytest.importorskip("pandas")
    two = [1, 0]

    def frame(**columns):
        return pd.DataFrame({name: np.array(two, dtype) for name, dtype in columns.items()})

    yield "floats", frame(a="f8", b="f8"), None
    yield "float32", frame(a="f4", b="f4"), None
    yield "mixed floats", frame(a="f4", b="f8"), None
    yield "half and single", frame(a="f2", b="f4"), None
    yield "small integers and float32", frame(a="i1", b="f4"), None
    yield "integers and float32", frame(a="i8", b="f4"), None
    yield "signed and unsigned", frame(a="u8", b="i8"), None
    yield "bool", frame(a="?", b="?"), None
    yield "bool and float32", frame(a="?", b="f4"), None
    yield "Int64", pd.DataFrame({"a": pd.array(two, dtype="Int64")}), "unread"
    yield "Float32", pd.DataFrame({"a": pd.array(two, dtype="Float32")}), "unread"
    yield "Int64 with NA", pd.DataFrame({"a": pd.array([1, None], dtype="Int64")}), "unread"
    yield "boolean", pd.DataFrame({"a": pd.array([True, False], dtype="boolean")}), "unread"
    yield "sparse", pd.DataFrame({"a": pd.arrays.SparseArray([1.0, 0.0])}), "unread"
    yield "text", pd.DataFrame({"a": ["x", "y"]}), "unread"
    yield "objects", pd.DataFrame({"a": [1, 2.5]}, dtype=object), "unread"
    yield "categories", pd.DataFrame({"a": pd.Categorical(two)}), "unread"
    yield "dates", pd.DataFrame({"a": pd.to_datetime(["2020-01-01"])}), "unread"
    yield "duplicate names", pd.DataFrame(np.eye(2), columns=["a", "a"]), "unread"
    yield "no rows", pd.DataFrame({"a": np.array([], float)}), "invalid"
    yield "no columns", pd.DataFrame(index=[0, 1]), "unread"
    yield "a row index of its own", pd.DataFrame({"a": [1.0, 2.0]}, index=[5, 3]), None
    yield "a series", pd.Series([1.0, 2.0]), "invalid"


def _frame_names():
    return [name for name, _, _ in _frames()] if "pandas" in sys.modules or _has("pandas") else []


def _has(package):
    import importlib.util

    return importlib.util.find_spec(package) is not None


@pytest.mark.parametrize("name", _frame_names())
def test_pandas_frames(name):
    X, refused = next((X, refused) for n, X, refused in _frames() if n == name)
    _assert_as_scikit_learn_reads(X, refused)


@pytest.mark.parametrize(
    "make",
    [
        lambda pd: pd.Series([1, 2], dtype="Int64"),
        lambda pd: pd.Series([1, None], dtype="Int64"),
        lambda pd: pd.Series([True, False], dtype="boolean"),
        lambda pd: pd.Series([True, False]),
        lambda pd: pd.Series([1.0, 2.0], dtype="f4"),
        lambda pd: pd.Series(["a", "b"]),
        lambda pd: pd.Series(["a", "b"], dtype=object),
        lambda pd: pd.Series(["a", "b"], dtype="string"),
        lambda pd: pd.Series(["a", "b"], dtype="category"),
        lambda pd: pd.Series([2, 1], dtype="category"),
    ],
)
def test_labels_in_a_pandas_series_are_read_as_scikit_learn_reads_them(make):
    y = make(pytest.importorskip("pandas"))
    known = describe(y)
    if known.kind == "frame":
        theirs = column_or_1d(y)
        assert known.array.dtype == theirs.dtype
        assert known.array.tolist() == theirs.tolist()
    else:
        assert known.kind == "other"


def test_names_of_a_frame_are_those_that_scikit_learn_keeps():
    pd = pytest.importorskip("pandas")
    assert describe(pd.DataFrame({"a": [1.0]})).feature_names.tolist() == ["a"]
    assert describe(pd.DataFrame([[1.0]])).feature_names is None
    assert describe(np.ones((1, 1))).feature_names is None
    with pytest.raises(TypeError, match="feature names"):
        _ = describe(pd.DataFrame([[1.0, 2.0]], columns=["a", 1])).feature_names


# polars


def _polars():
    pl = pytest.importorskip("polars")

    def frame(**dtypes):
        return pl.DataFrame({n: [1, 0] for n in dtypes}).cast(
            {n: getattr(pl, dtype) for n, dtype in dtypes.items()}
        )

    yield "floats", frame(a="Float64", b="Float64"), None
    yield "float32", frame(a="Float32", b="Float32"), None
    yield "integers and float32", frame(a="Int64", b="Float32"), None
    yield "small integers and float32", frame(a="Int8", b="Float32"), None
    yield "small integers", frame(a="UInt8", b="Int8"), None
    yield "signed and unsigned", frame(a="UInt64", b="Int64"), None
    yield "bool", frame(a="Boolean"), "unread"
    yield "nulls", pl.DataFrame({"a": [1, None]}), "unread"
    yield "text", pl.DataFrame({"a": ["1", "2"]}), "unread"
    yield "decimals", pl.DataFrame({"a": [1, 2]}).cast({"a": pl.Decimal(10, 2)}), "unread"
    yield "wide integers", frame(a="Int128"), "unread"
    yield "arrays", pl.DataFrame({"a": [[1, 2]]}, schema={"a": pl.Array(pl.Int64, 2)}), "unread"
    yield "chunks", pl.concat([frame(a="Float64")] * 3, rechunk=False), None


@pytest.mark.parametrize("i", range(13))
def test_polars_frames(i):
    _, X, refused = [*_polars()][i]
    _assert_as_scikit_learn_reads(X, refused)


def test_polars_series():
    pl = pytest.importorskip("polars")
    assert describe(pl.Series([1.0, 2.0], dtype=pl.Float32)).array.dtype == np.float32
    assert describe(pl.Series(["a", "b"])).array.tolist() == ["a", "b"]
    assert describe(pl.Series([1, None])).dtype is None


# Texts and arrays on a device


def test_text_of_an_argument():
    assert str(describe(np.ones((2, 3)))) == "ndarray of 2 x 3 float64"
    assert str(describe("abc")) == "str of no dimensions"


class _DeviceArray:
    shape, dtype = (2, 2), np.dtype(np.float32)

    def get(self):
        return np.ones((2, 2), np.float32)


@pytest.fixture
def cupy(monkeypatch):
    """Have modules that pass for CuPy."""
    import types

    module = types.ModuleType("cupy")
    module.ndarray = _DeviceArray
    matrices = types.ModuleType("cupyx.scipy.sparse")
    matrices.issparse = lambda value: False
    monkeypatch.setitem(sys.modules, "cupy", module)
    monkeypatch.setitem(sys.modules, "cupyx.scipy.sparse", matrices)


@pytest.mark.usefixtures("cupy")
def test_device_arrays_are_recognised_and_come_back():
    known = describe(_DeviceArray())
    assert (known.kind, known.shape, known.dtype) == ("cupy", (2, 2), np.float32)
    assert known.array is known.value
    pair = to_host((_DeviceArray(), "x"))
    assert pair[0].tolist() == [[1, 1], [1, 1]]
    assert pair[1] == "x"
    assert not on_host(_DeviceArray())
    assert on_host(np.ones(1))


def test_without_cupy_nothing_is_a_device_array():
    assert not is_device_array(_DeviceArray())
    assert "cupy" not in sys.modules or sys.modules["cupy"].ndarray is not _DeviceArray
