"""Arrays on the device that are not CuPy's: tensors of PyTorch, frames of cuDF, and the like.

They are told by the protocols that libraries have for it, ``__cuda_array_interface__`` and DLPack,
or through ``sys.modules``; nothing is imported to find out. What comes in as one of them goes out
as one, without a copy.
"""

from __future__ import annotations

import functools
import logging
import sys
from collections.abc import Callable
from typing import Any

import numpy as np

from accelsk.device.resident import Resident, Session, Source

__all__ = ["adopted", "adopted_arguments", "in_kind"]

logger = logging.getLogger("accelsk")

#: Device types of DLPack: memory of a CUDA device, and managed memory.
_CUDA = (2, 13)


@functools.cache
def _exports(cls: type) -> bool:
    """Whether instances of `cls` may be arrays of another library on the device."""
    if cls is np.ndarray or cls.__module__.partition(".")[0] in ("cupy", "cupyx", "numpy"):
        return False
    return hasattr(cls, "__cuda_array_interface__") or hasattr(cls, "__dlpack_device__")


def _on_device(value: Any) -> bool:
    try:
        if hasattr(type(value), "__dlpack_device__"):
            return int(value.__dlpack_device__()[0]) in _CUDA
        return isinstance(value.__cuda_array_interface__, dict)
    except Exception:  # on the CPU, or something that its library does not export
        return False


def adopted(value: Any) -> Any:
    """Return what is on the device as CuPy has it, in the same memory; anything else as it is.

    What its library does not hand out, such as a tensor that requires a gradient, stays as it is.
    """
    cls: Any = type(value)
    if cls is np.ndarray or not (_exports(cls) or cls.__module__.startswith("cudf.core")):
        return value
    try:
        if cls.__module__.startswith("cudf.core"):
            return _of_frame(value)
        return _as_cupy(value) if _on_device(value) else value
    except Exception as error:
        logger.debug("an array of %s is not taken over", cls.__name__, exc_info=error)
        return value


def _as_cupy(value: Any) -> Any:
    import cupy

    try:
        array = cupy.from_dlpack(value)
    except Exception:
        array = cupy.asarray(value)
    return cupy.asarray(array)  # on the current device, if it was on another


class _FrameSource(Source):
    """A frame, or a column, of cuDF. scikit-learn gets it as pandas has it."""

    def __init__(self, frame: Any, argument: Any) -> None:
        super().__init__(argument, Session(repeats=False))
        self._frame = frame

    @functools.cached_property
    def on_device(self) -> Any:
        return self._frame.to_cupy(dtype=self.argument.dtype)

    @functools.cached_property
    def host(self) -> Any:
        return self._frame.to_pandas()

    @functools.cached_property
    def heading(self) -> Any:
        return self._frame[:0].to_pandas()

    @functools.cached_property
    def feature_names(self) -> np.ndarray | None:
        from accelsk._sklearn import get_feature_names

        return get_feature_names(self.heading) if self._frame.ndim == 2 else None


def _of_frame(value: Any) -> Any:
    cudf = sys.modules.get("cudf")
    if not isinstance(value, (cudf.DataFrame, cudf.Series)):  # type: ignore[union-attr]
        return value
    from accelsk.data import NUMERIC, Argument

    columns = [value[name] for name in value.columns] if value.ndim == 2 else [value]
    dtypes = [column.dtype for column in columns]
    plain = columns and all(
        isinstance(dtype, np.dtype) and dtype.kind in NUMERIC and not column.has_nulls
        for dtype, column in zip(dtypes, columns, strict=True)
    )
    dtype = np.result_type(*dtypes) if plain else None
    return Resident(_FrameSource(value, Argument(value, "frame", value.shape, dtype)))


def adopted_arguments(args: tuple, kwargs: dict[str, Any]) -> tuple[tuple, dict[str, Any], Any]:
    """Return arguments as CuPy has them, and what the result is to be like, None for no matter."""
    if not (any(map(_foreign, args)) or any(map(_foreign, kwargs.values()))):
        return args, kwargs, None
    first = args[0] if args else kwargs.get("X", kwargs.get("y"))
    args = tuple(map(adopted, args))
    kwargs = {name: adopted(value) for name, value in kwargs.items()}
    return args, kwargs, first if _foreign(first) else None


def _foreign(value: Any) -> bool:
    cls: Any = type(value)
    return cls is not np.ndarray and (_exports(cls) or cls.__module__.startswith("cudf.core"))


def in_kind(result: Any, like: Any) -> Any:
    """Return arrays on the device as those of the library that `like` comes from."""
    if isinstance(result, tuple):
        return tuple(in_kind(item, like) for item in result)
    array = getattr(sys.modules.get("cupy"), "ndarray", None)
    if array is None or not isinstance(result, array):
        return result
    convert = _converter(type(like).__module__.partition(".")[0])
    try:
        return result if convert is None else convert(result)
    except Exception as error:  # a dtype that the library does not have
        logger.debug("the result stays with CuPy", exc_info=error)
        return result


def _converter(package: str) -> Callable[[Any], Any] | None:
    """Return what makes an array of `package` of one of CuPy's, without a copy."""
    if package == "torch":
        return sys.modules["torch"].from_dlpack
    if package in ("jax", "jaxlib"):
        return sys.modules["jax"].dlpack.from_dlpack
    if package == "numba":
        return sys.modules["numba"].cuda.as_cuda_array
    return None
