"""Rows on their way to the device and back, block by block, while the device computes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from accelsk.device.transfer import is_device_array, to_device, to_host

__all__ = ["BLOCK_BYTES", "map_rows", "row_blocks"]

#: What a block of the widest array takes.
BLOCK_BYTES = 1 << 25


def rows_at_a_time(arrays: Sequence[Any]) -> int:
    """Return how many rows of the arrays together make a block."""
    width = max(a.nbytes // max(len(a), 1) for a in arrays if a is not None)
    return max(1, BLOCK_BYTES // max(width, 1))


def row_blocks(arrays: Sequence[Any], rows: int | None = None) -> Iterator[tuple[Any, ...]]:
    """Yield consecutive blocks of rows of each array on the device.

    The next block travels while the caller computes on this one, so a block is valid only until
    the next one is asked for. What is on the device already is sliced.

    Parameters
    ----------
    arrays : sequence of ndarray, cupy.ndarray or None
        With the same number of rows, at least one of them given. None stays None in each block.
    rows : int, default=None
        The rows of a block. None means as many as take `BLOCK_BYTES`.

    Yields
    ------
    blocks : tuple of cupy.ndarray or None
        In the dtypes in which the arrays came.
    """
    n_rows = next(len(a) for a in arrays if a is not None)
    step = rows or rows_at_a_time(arrays)
    for start in range(0, n_rows, step):
        yield tuple(None if a is None else to_device(a[start : start + step]) for a in arrays)


def map_rows(
    function: Callable[..., Any], arrays: Sequence[Any], host: bool, rows: int | None = None
) -> Any:
    """Return what `function` gives for consecutive blocks of rows, joined.

    Parameters
    ----------
    function : callable
        From blocks on the device, one of each array, to an array on the device with as many
        rows, or a tuple of such arrays.
    arrays : sequence of ndarray, cupy.ndarray or None
        As in `row_blocks`.
    host : bool
        Whether the result is to be on the host: each block travels back while the next one is
        computed.
    rows : int, default=None
        As in `row_blocks`.

    Returns
    -------
    result : ndarray, cupy.ndarray, or tuple of them
    """
    parts: list[Any] = []
    for blocks in row_blocks(arrays, rows):
        part = function(*blocks)
        parts.append(to_host(part) if host else part)
    if isinstance(parts[0], tuple):
        return tuple(_joined(list(column)) for column in zip(*parts, strict=True))
    return _joined(parts)


def _joined(parts: list[Any]) -> Any:
    if len(parts) == 1:
        return parts[0]
    if is_device_array(parts[0]):
        import cupy

        return cupy.concatenate(parts)
    return np.concatenate(parts)
