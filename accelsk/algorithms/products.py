"""The product of a tall matrix with itself, block by block, so that it fills the device."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

__all__ = ["Product", "add_products"]

#: Rows and columns of the tile of a product that one multiprocessor works on, and tiles that keep
#: all of them busy (an H200 has 132).
_TILE, _TILES = 128, 264

#: Columns are padded to a multiple, so that rows are aligned.
_ALIGNED = 8

#: Targets up to which their own products are computed along with the others.
_FEW_TARGETS = 32

#: A product of fewer rows than this is not split further.
_FEWEST_ROWS = 64


def add_products(total: Any, left: Any, right: Any, xp: Any) -> None:
    """Add the product of each ``left[i].T`` and ``right[i]`` to ``total[i]``.

    Parameters
    ----------
    total : array of shape (n_products, p, q), dtype=float64, C order
    left : array of shape (n_products, n_rows, p), dtype=float64
        Like `right` with a contiguous last axis, and as a view of C-ordered memory.
    right : array of shape (n_products, n_rows, q), dtype=float64
    xp : module
        The array namespace.
    """
    cuda = getattr(xp, "cuda", None)
    if cuda is None:
        total += xp.matmul(left.transpose(0, 2, 1), right)
        return
    from cupy.cuda import cublas, device

    n_products, n_rows, p = left.shape
    q, item = right.shape[2], total.itemsize
    one = np.ones(1)
    handle = device.get_cublas_handle()
    mode = cublas.getPointerMode(handle)
    cublas.setPointerMode(handle, cublas.CUBLAS_POINTER_MODE_HOST)
    try:
        # cuBLAS counts by columns: what it sees is the transpose of each of the three
        cublas.dgemmStridedBatched(
            handle,
            cublas.CUBLAS_OP_N,
            cublas.CUBLAS_OP_T,
            q,
            p,
            n_rows,
            one.ctypes.data,
            right.data.ptr,
            right.strides[1] // item,
            right.strides[0] // item,
            left.data.ptr,
            left.strides[1] // item,
            left.strides[0] // item,
            one.ctypes.data,
            total.data.ptr,
            q,
            p * q,
            n_products,
        )
    finally:
        cublas.setPointerMode(handle, mode)


class Product:
    """The sum over rows of products of the columns of ``[X - shift, 1, Y - shift]``.

    Parameters
    ----------
    xp : module
        The array namespace.
    n_features : int
    n_targets : int
    chunk : int
        Bytes of a block in float64.
    n_rows : int
        About how many rows come at a time.
    """

    def __init__(self, xp: Any, n_features: int, n_targets: int, chunk: int, n_rows: int) -> None:
        self._xp = xp
        self._shape = (n_features, n_targets)
        self._wide = _aligned(n_features + 1 + n_targets)
        # products of targets with targets come along where there are few
        self._whole = n_targets <= _FEW_TARGETS
        self._tall = self._wide if self._whole else _aligned(n_features + 1)
        tiles = -(-self._tall // _TILE) * -(-self._wide // _TILE)
        most = _TILES // tiles if hasattr(xp, "cuda") else 1
        most = min(most, chunk // (8 * self._tall * self._wide))
        self._rows = max(1, chunk // (8 * self._wide))
        self._parts = max(1, min(most, self._rows // _FEWEST_ROWS, n_rows // _FEWEST_ROWS))
        self._rows = -(-self._rows // self._parts) * self._parts
        self._block: Any = None
        self._has_ones = False
        self._total = xp.zeros((self._parts, self._tall, self._wide))
        self._squares = None if self._whole else xp.zeros(n_targets)

    def slices(self, n_rows: int) -> Iterator[slice]:
        """Yield slices of `n_rows` rows, each no more than is summed at a time."""
        for start in range(0, n_rows, self._rows):
            yield slice(start, min(start + self._rows, n_rows))

    def _buffer(self, n_rows: int, *, weighted: bool) -> Any:
        """Return an array for `n_rows` rows and a few empty ones, so that it splits evenly."""
        d = self._shape[0]
        filled = -(-n_rows // self._parts) * self._parts
        if self._block is None or len(self._block) < filled:
            self._block = self._xp.zeros((filled, self._wide))
            self._has_ones = False
        block = self._block[:filled]
        if not self._has_ones:
            self._block[:, d] = 1.0
        if n_rows < filled:
            block[n_rows:] = 0.0
        self._has_ones = n_rows == filled and not weighted
        return block

    def add(self, X: Any, X_shift: Any, Y: Any, Y_shift: Any, root: Any) -> Any:
        """Add a block of rows, each times its entry in `root`.

        Returns
        -------
        rows : array of shape (n_rows, n_features + 1 + n_targets)
            What was multiplied; valid until the next block.
        """
        xp, (d, k) = self._xp, self._shape
        n_rows = len(X)
        block = self._buffer(n_rows, weighted=root is not None)
        rows = block[:n_rows, : d + 1 + k]
        xp.subtract(X, X_shift, out=rows[:, :d])
        targets = rows[:, d + 1 :]
        if Y is not None:
            xp.subtract(Y, Y_shift, out=targets)
        if root is not None:
            xp.multiply(rows, root[:, None], out=rows)
        split = block.reshape(self._parts, -1, self._wide)
        add_products(self._total, split[:, :, : self._tall], split, xp)
        if self._squares is not None:
            self._squares += xp.ones(n_rows) @ (targets * targets)
        return rows

    def result(self) -> tuple[Any, Any]:
        """Return the products, and the sums of squares of the targets."""
        d, k = self._shape
        total = self._total.sum(axis=0)
        squares = self._squares
        return total, total.diagonal()[d + 1 : d + 1 + k] if squares is None else squares


def _aligned(n: int) -> int:
    return -(-n // _ALIGNED) * _ALIGNED
