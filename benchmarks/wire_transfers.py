"""Transfers alone: from page-locked memory, the plain way, and as accelsk makes them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import numpy as np

__all__ = ["transfers"]

Timed = Callable[[Callable[[], Any]], float]

#: Bytes that a thread writes at a time, where memory of the host is written to.
_PIECE = 4 << 20
_WRITERS = 16

#: Bytes up and down of calls that do both: `transform` of a PCA, of a scaler, and
#: `inverse_transform` of a PCA.
_BOTH_WAYS = ((400, 32), (400, 400), (32, 400))


def transfers(X: np.ndarray, timed: Timed) -> Iterator[dict[str, Any]]:
    """Yield what transfers of X in several layouts take.

    Parameters
    ----------
    X : ndarray of shape (n_rows, n_columns), dtype=float32
    timed : callable
        From a function without arguments to its seconds.
    """
    for row in (*_both_ways(timed), *_uploads(X, timed), *_downloads(X, timed)):
        yield {"side": "accelsk", **row}


def _layouts(X: np.ndarray) -> dict[str, Any]:
    import pandas as pd

    names = [f"x{j}" for j in range(X.shape[1])]
    return {
        "float32, C": X,
        "float64, C": X.astype(np.float64),
        "float32, F": np.asfortranarray(X),
        "float32, every other row": np.repeat(X, 2, axis=0)[::2],
        "float32, every other column": np.repeat(X, 2, axis=1)[:, ::2],
        "int16, C": (X * 1000).astype(np.int16),
        "pandas, one block": pd.DataFrame(X),
        "pandas, column by column": pd.DataFrame(
            {name: np.ascontiguousarray(X[:, j]) for j, name in enumerate(names)}
        ),
    }


def _synchronised(call: Callable[..., Any], *arguments: Any) -> Callable[[], None]:
    import cupy

    def run() -> None:
        call(*arguments)
        cupy.cuda.get_current_stream().synchronize()

    return run


class _Wire:
    """Page-locked memory and memory on the device, between which bytes are copied."""

    def __init__(self, n_bytes: int) -> None:
        import cupy

        self.host = cupy.cuda.alloc_pinned_memory(n_bytes)
        self.device = cupy.empty(n_bytes, np.uint8)
        self.stream = cupy.cuda.Stream(non_blocking=True)

    def copy(self, *, up: bool) -> None:
        """Begin to copy all of it."""
        import cupy

        runtime = cupy.cuda.runtime
        ends = (self.device.data.ptr, self.host.ptr)
        kind = runtime.memcpyHostToDevice if up else runtime.memcpyDeviceToHost
        runtime.memcpyAsync(
            *(ends if up else ends[::-1]), self.device.nbytes, kind, self.stream.ptr
        )

    def copied(self, *, up: bool) -> None:
        self.copy(up=up)
        self.stream.synchronize()


def _both_ways(timed: Timed) -> Iterator[dict[str, Any]]:
    for megabytes in _BOTH_WAYS:
        up, down = (_Wire(n * 10**6) for n in megabytes)

        def run(up: _Wire = up, down: _Wire = down) -> None:
            up.copy(up=True)
            down.copy(up=False)
            up.stream.synchronize()
            down.stream.synchronize()

        sizes = {"up": up.device.nbytes, "down": down.device.nbytes}
        row = {"case": "pinned copies at once", "data": "bytes", "method": "both ways", **sizes}
        yield {**row, "bytes": sum(sizes.values()), "seconds": timed(run)}


def _uploads(X: np.ndarray, timed: Timed) -> Iterator[dict[str, Any]]:
    import cupy
    import pandas as pd

    from accelsk.data import describe
    from accelsk.device.transfer import to_device

    for name, given in _layouts(X).items():
        n_bytes = given.size * 4 if isinstance(given, pd.DataFrame) else given.nbytes
        row = {"data": name, "bytes": n_bytes, "method": "upload"}
        wire = _Wire(n_bytes)
        yield {**row, "case": "pinned copy", "seconds": timed(partial(wire.copied, up=True))}
        del wire

        def staged(given: Any = given) -> Any:
            return to_device(describe(given).source)

        yield {**row, "case": "staged", "seconds": timed(_synchronised(staged))}
        if name.endswith(", C"):
            plain = timed(_synchronised(cupy.asarray, given))
            yield {**row, "case": "cupy.asarray", "seconds": plain}


def _downloads(X: np.ndarray, timed: Timed) -> Iterator[dict[str, Any]]:
    """Yield downloads, and what it takes to write as much to memory of the host.

    Memory that a program has just been given has no pages yet: the operating system makes them,
    zeroed, when they are first written to. No download to new memory is faster than that.
    """
    import cupy

    from accelsk.device.transfer import Download, to_host

    for dtype in ("float32", "float64", "int16"):
        there = cupy.asarray(X).astype(dtype)
        row = {"data": f"{dtype}, C", "bytes": there.nbytes, "method": "download"}
        wire = _Wire(there.nbytes)
        yield {**row, "case": "pinned copy", "seconds": timed(partial(wire.copied, up=False))}
        del wire
        yield {**row, "case": "staged", "seconds": timed(partial(to_host, there))}
        old = np.zeros(there.shape, there.dtype)
        old[:] = 1
        into = timed(lambda there=there, old=old: Download(there, old).finish())  # type: ignore[misc]
        yield {**row, "case": "staged, into memory in use", "seconds": into}
        yield {**row, "case": "cupy.get", "seconds": timed(there.get)}
        with ThreadPoolExecutor(_WRITERS) as writers:
            new = timed(lambda n=there.nbytes: _written(np.empty(n, np.uint8), writers))  # type: ignore[misc]
            yield {**row, "case": f"{_WRITERS} threads write new memory", "seconds": new}
            again = timed(partial(_written, old.reshape(-1).view(np.uint8), writers))
            yield {**row, "case": f"{_WRITERS} threads write memory in use", "seconds": again}


def _written(target: np.ndarray, writers: ThreadPoolExecutor) -> None:
    def write(start: int) -> None:
        target[start : start + _PIECE] = 1

    list(writers.map(write, range(0, len(target), _PIECE)))
