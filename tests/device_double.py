"""NumPy in the place of CuPy, so that engines run from end to end where there is no GPU.

The double is stricter than NumPy where CuPy is: it does not mix with arrays on the host, and
what NumPy gives as a scalar it gives as an array without dimensions.
"""

from __future__ import annotations

import contextlib
import functools
import sys
import types
from typing import Any

import numpy as np
from scipy import linalg, sparse

__all__ = ["DeviceArray", "install", "installed", "to_device", "to_host"]


class DeviceArray(np.ndarray):
    """An array that passes for one on the device."""

    def get(self, order: str = "C") -> np.ndarray:
        return np.array(self.view(np.ndarray), order=order)

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
        if any(type(value) is np.ndarray and value.ndim for value in inputs):
            raise TypeError("an array on the host meets one on the device")
        if any(isinstance(value, _Csr) for value in inputs):
            return NotImplemented
        return _wrapped(getattr(ufunc, method)(*_plain(inputs), **_plain(kwargs)))

    def __array_function__(self, function: Any, types: Any, args: Any, kwargs: Any) -> Any:
        return _wrapped(function(*_plain(args), **_plain(kwargs)))


def _plain(value: Any) -> Any:
    if isinstance(value, DeviceArray):
        return value.view(np.ndarray)
    if isinstance(value, (tuple, list)):
        return type(value)(_plain(item) for item in value)
    if isinstance(value, dict):
        return {name: _plain(item) for name, item in value.items()}
    return value


def _wrapped(value: Any) -> Any:
    if isinstance(value, (np.ndarray, np.generic)) and not isinstance(value, DeviceArray):
        return np.asarray(value).view(DeviceArray)
    if isinstance(value, tuple):
        items = [_wrapped(item) for item in value]
        return type(value)(*items) if hasattr(value, "_fields") else tuple(items)
    return value


def _asarray(value: Any, dtype: Any = None, order: Any = None) -> DeviceArray:
    """Return `value` on the device: a copy, unless it is there already."""
    copy = not isinstance(value, DeviceArray)
    return _wrapped(np.array(_plain(value), dtype, order=order or "K", copy=copy or None))


class _Namespace(types.ModuleType):
    """A module whose functions are NumPy's, on the device."""

    def __init__(self, name: str, original: Any) -> None:
        super().__init__(name)
        self._original = original

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._original, name)
        if isinstance(value, type) or not callable(value):
            return value
        return lambda *args, **kwargs: _wrapped(value(*_plain(args), **_plain(kwargs)))


class _Csr:
    """As much of a sparse matrix on the device as the engines use."""

    __array_ufunc__ = None

    def __init__(self, matrix: Any) -> None:
        self._matrix = matrix

    def __matmul__(self, other: DeviceArray) -> DeviceArray:
        return _wrapped(self._matrix @ _plain(other))

    @property
    def dtype(self) -> np.dtype:
        return self._matrix.dtype

    @property
    def shape(self) -> tuple[int, ...]:
        return self._matrix.shape

    def astype(self, dtype: Any) -> _Csr:
        return _Csr(self._matrix.astype(dtype))

    def __rmatmul__(self, other: DeviceArray) -> DeviceArray:
        return _wrapped(_plain(other) @ self._matrix)

    @property
    def data(self) -> DeviceArray:
        return _wrapped(self._matrix.data)

    @data.setter
    def data(self, values: DeviceArray) -> None:
        self._matrix.data = _plain(values)

    @property
    def T(self) -> _Csr:  # noqa: N802
        return _Csr(self._matrix.T.tocsr())


def _sparse(kind: Any, value: Any, shape: Any = None) -> _Csr:
    return _Csr(kind(value._matrix if isinstance(value, _Csr) else _plain(value), shape=shape))


def install(monkeypatch: Any) -> None:
    """Have accelsk believe that there is a GPU, on which arrays are `DeviceArray`."""
    from accelsk.device import probe

    cupy = _Namespace("cupy", np)
    cupy.ndarray = DeviceArray  # type: ignore[attr-defined]
    cupy.asarray = _asarray  # type: ignore[attr-defined]
    cupy.asnumpy = lambda value: np.asarray(_plain(value))  # type: ignore[attr-defined]
    cupy.get_array_module = lambda value: cupy if isinstance(value, DeviceArray) else np  # type: ignore[attr-defined]
    cupy.linalg = _Namespace("cupy.linalg", np.linalg)  # type: ignore[attr-defined]
    on_device = types.ModuleType("cupyx.scipy.sparse")
    on_device.issparse = lambda value: isinstance(value, _Csr)  # type: ignore[attr-defined]
    on_device.csr_matrix = functools.partial(_sparse, sparse.csr_matrix)  # type: ignore[attr-defined]
    on_device.csc_matrix = functools.partial(_sparse, sparse.csc_matrix)  # type: ignore[attr-defined]
    cupyx = types.ModuleType("cupyx")
    # NumPy raises LinAlgError without being told to
    cupyx.errstate = lambda **_: contextlib.nullcontext()  # type: ignore[attr-defined]
    for name, module in {
        "cupy": cupy,
        "cupyx": cupyx,
        "cupyx.scipy": types.ModuleType("cupyx.scipy"),
        "cupyx.scipy.linalg": _Namespace("cupyx.scipy.linalg", linalg),
        "cupyx.scipy.sparse": on_device,
    }.items():
        monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.setattr(probe, "unusable", lambda: None)


def installed() -> bool:
    """Whether the double is in place."""
    return getattr(sys.modules.get("cupy"), "ndarray", None) is DeviceArray


def to_device(array: Any) -> Any:
    """Return `array` on the device, the double or a real one."""
    return sys.modules["cupy"].asarray(array)


def to_host(array: Any) -> np.ndarray:
    """Return `array` on the host."""
    return sys.modules["cupy"].asnumpy(array)
