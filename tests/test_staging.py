"""Staged transfers: each element arrives where it belongs, from any layout, in any thread.

Device memory is memory of the host here: what the tests show is the way through the buffers, not
CUDA.
"""

from __future__ import annotations

import ctypes
import threading
import types
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from device_double import DeviceArray, install
from hypothesis import given
from hypothesis import strategies as st

import accelsk
from accelsk.device import staging, stream, traffic, transfer


class Placed(DeviceArray):
    """An array on the device that tells its address."""

    @property
    def data(self):
        return types.SimpleNamespace(ptr=self.ctypes.data)

    def __array_finalize__(self, other):
        pass


class _Event:
    def __init__(self, **_):
        pass

    def synchronize(self):
        pass

    def record(self, stream):
        pass


class _Stream:
    ptr = 0

    def __init__(self, **_):
        pass

    def record(self):
        return _Event()

    def wait_event(self, event):
        assert isinstance(event, _Event)


def _pinned(size):
    class Pinned(ctypes.Array):
        _type_, _length_ = ctypes.c_ubyte, size
        ptr = property(ctypes.addressof)

    return Pinned()


def _memcpy(target, source, size, kind, stream):
    assert source
    assert target
    ctypes.memmove(target, source, size)


@pytest.fixture
def cuda(monkeypatch):
    """Put in CUDA's place what copies on the host, and have everything travel staged."""
    import sys

    install(monkeypatch)
    cupy = sys.modules["cupy"]
    current = _Stream()
    cupy.cuda = types.SimpleNamespace(
        Stream=_Stream,
        Event=_Event,
        alloc_pinned_memory=_pinned,
        get_current_stream=lambda: current,
        runtime=types.SimpleNamespace(
            getDevice=lambda: 0,
            setDevice=lambda device: None,
            memcpyAsync=_memcpy,
            memcpyHostToDevice=1,
            memcpyDeviceToHost=2,
        ),
    )
    cupy.empty = lambda shape, dtype: np.empty(shape, dtype).view(Placed)
    cupy.ascontiguousarray = lambda a: np.ascontiguousarray(a.view(np.ndarray)).view(Placed)
    monkeypatch.setattr(staging, "_LEAST_BYTES", 1)
    monkeypatch.setattr(staging, "_executors", {})
    accelsk.set_config(pinned_memory=1)  # the smallest buffers there are, of 64 KiB


def _matrix(rows=700, columns=60, dtype=np.float64):
    return np.arange(rows * columns).reshape(rows, columns).astype(dtype)


LAYOUTS = {
    "C": lambda X: X,
    "F": np.asfortranarray,
    "every other row": lambda X: np.repeat(X, 2, axis=0)[::2],
    "every other column": lambda X: np.repeat(X, 2, axis=1)[:, ::2],
    "backwards": lambda X: X[::-1, ::-1],
    "rows of F": lambda X: np.asfortranarray(np.vstack([X, X]))[: len(X)],
    "read-only": lambda X: np.frombuffer(X.tobytes(), X.dtype).reshape(X.shape),
    "broadcast": lambda X: np.broadcast_to(X[0], X.shape),
    "one column": lambda X: X[:, 1],
    "three axes": lambda X: np.moveaxis(X.reshape(len(X), 6, -1), 1, 0),
}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", ["f4", "f8", "i2", "?", ">f8", "f2", "c16", "u8"])
def test_what_arrives_is_what_was_sent(cuda, layout, dtype):
    X = LAYOUTS[layout](_matrix(dtype=dtype))
    arrived = transfer.to_device(X)
    assert (arrived.dtype, arrived.shape) == (X.dtype.newbyteorder("="), X.shape)
    assert (arrived.view(np.ndarray) == X).all()
    back = transfer.to_host(arrived)
    assert back.flags.c_contiguous
    assert (back == X).all()


def test_extended_precision_is_narrowed_on_the_way(cuda):
    X = _matrix(dtype=np.longdouble)
    arrived = transfer.to_device(X)
    assert arrived.dtype == np.float64
    assert (arrived.view(np.ndarray) == X).all()


def test_layout_is_kept_for_the_device_to_change(cuda):
    X = np.asfortranarray(_matrix())
    assert transfer.to_device(X).flags.f_contiguous
    assert transfer.to_device(X[::2]).strides == np.asfortranarray(X[::2]).strides


def test_rows_wider_than_a_buffer_are_cut(cuda):
    X = np.asfortranarray(_matrix(3, 40_000)).T[::-1]
    assert (transfer.to_device(X).view(np.ndarray) == X).all()


@given(
    st.integers(1, 900),
    st.lists(st.sampled_from(["f4", "f8", "i1", "i8", "?"]), min_size=1, max_size=40),
)
def test_columns_become_a_matrix(cuda, rows, dtypes):
    columns = [np.arange(rows).astype(d) + np.array(7, d) for d in dtypes]
    source = transfer.Columns(columns, np.result_type(*dtypes))
    arrived = transfer.to_device(source, np.float64)
    assert arrived.dtype == np.float64
    assert (arrived.view(np.ndarray) == np.column_stack(columns)).all()
    blocks = [block.copy() for (block,) in stream.row_blocks([source], rows=7)]
    assert (np.vstack(blocks).view(np.ndarray) == np.column_stack(columns)).all()


@pytest.mark.parametrize("n_rows", [1, 6, 7, 8, 700])
def test_blocks_of_rows_follow_each_other(cuda, n_rows):
    X, y = _matrix(n_rows), np.arange(n_rows)
    blocks = [(a.copy(), b, c.copy()) for a, b, c in stream.row_blocks([X, None, y], rows=7)]
    assert (np.vstack([a for a, _, _ in blocks]).get() == X).all()
    assert (np.concatenate([c for _, _, c in blocks]).get() == y).all()
    assert all(b is None for _, b, _ in blocks)
    assert {len(a) for a, _, _ in blocks[:-1]} <= {7}


@pytest.mark.parametrize("host", [True, False])
@pytest.mark.parametrize("rows", [None, 7, 700])
def test_mapped_rows_come_back_joined(cuda, host, rows):
    X = _matrix()
    double, total = stream.map_rows(lambda b: (b * 2, b.sum(axis=1)), [X], host, rows)
    assert isinstance(double, DeviceArray) is not host
    assert (np.asarray(double) == X * 2).all()
    assert (np.asarray(total) == X.sum(axis=1)).all()
    assert (np.asarray(stream.map_rows(lambda b: b + 1, [X], host, rows)) == X + 1).all()


def test_threads_transfer_at_once(cuda):
    barrier = threading.Barrier(8)

    def there_and_back(number):
        X = _matrix() + number
        barrier.wait()
        return all((transfer.to_host(transfer.to_device(X)) == X).all() for _ in range(5))

    with ThreadPoolExecutor(8) as threads:
        assert all(threads.map(there_and_back, range(8)))


def test_fault_in_a_thread_is_raised_where_the_transfer_was_asked_for(cuda, monkeypatch):
    def failing(self, slot, host, dtype):
        raise MemoryError("no pinned memory")

    monkeypatch.setattr(staging._Lane, "fill", failing)
    with pytest.raises(MemoryError, match="pinned"):
        transfer.to_device(_matrix())


def test_rows_that_are_not_asked_for_are_given_up(cuda):
    X = _matrix(70_000)
    blocks = stream.row_blocks([X], rows=10)
    (first,) = next(blocks)
    assert (first.view(np.ndarray) == X[:10]).all()
    blocks.close()
    before = X[20].copy()
    X[20] = -1  # nothing reads it any more
    assert (transfer.to_device(before).view(np.ndarray) == before).all()


def test_blocks_hold_no_more_of_the_device_than_a_few_of_them(cuda, monkeypatch):
    import sys

    allocated = []

    def empty(shape, dtype):
        allocated.append(np.empty(shape, dtype).view(Placed))
        return allocated[-1]

    monkeypatch.setattr(sys.modules["cupy"], "empty", empty)
    X = _matrix(7000)
    total = sum(block.sum() for (block,) in stream.row_blocks([X], rows=10))
    assert total == X.sum()
    assert sum(a.nbytes for a in allocated) == transfer.StagedUpload.places * X[:10].nbytes


def test_bytes_are_counted_once(cuda):
    X = _matrix()
    before = traffic.moved()
    transfer.to_host(transfer.to_device(X))
    list(stream.row_blocks([X], rows=50))
    after = traffic.moved()
    assert after.uploaded - before.uploaded == 2 * X.nbytes
    assert after.downloaded - before.downloaded == X.nbytes


def test_without_pinned_memory_the_plain_way_is_taken(cuda, monkeypatch):
    monkeypatch.setattr(staging, "begin_upload", None)
    monkeypatch.setattr(staging, "begin_download", None)
    X = _matrix()
    with accelsk.config_context(pinned_memory=0):
        assert (transfer.to_host(transfer.to_device(X)) == X).all()


@pytest.mark.parametrize("value", [-1, 1.5, "many", True])
def test_amount_of_pinned_memory_is_checked(value):
    with pytest.raises(ValueError, match="pinned_memory must be"):
        accelsk.set_config(pinned_memory=value)
