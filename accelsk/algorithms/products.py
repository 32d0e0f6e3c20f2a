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
    """

    def __init__(self, xp: Any, n_features: int, n_targets: int, chunk: int) -> None:
        self._xp = xp
        self._shape = (n_features, n_targets)
        self._wide = -(-(n_features + 1 + n_targets) // _ALIGNED) * _ALIGNED
        self._tall = -(-(n_features + 1) // _ALIGNED) * _ALIGNED
        self._tall = min(self._tall, self._wide)
        tiles = -(-self._tall // _TILE) * -(-self._wide // _TILE)
        most = _TILES // tiles if hasattr(xp, "cuda") else 1
        most = min(most, chunk // (8 * self._tall * self._wide))
        self._rows = max(1, chunk // (8 * self._wide))
        self._parts = max(1, min(most, self._rows // _FEWEST_ROWS))
        self._rows = -(-self._rows // self._parts) * self._parts
        self._block: Any = None
        self._total = xp.zeros((self._parts, self._tall, self._wide))
        self._squares = xp.zeros(n_targets)

    def slices(self, n_rows: int) -> Iterator[slice]:
        """Yield slices of `n_rows` rows, each no more than is summed at a time."""
        for start in range(0, n_rows, self._rows):
            yield slice(start, min(start + self._rows, n_rows))

    def _buffer(self, n_rows: int) -> Any:
        """Return an array for `n_rows` rows and a few empty ones, so that it splits evenly."""
        xp, (d, _) = self._xp, self._shape
        filled = -(-n_rows // self._parts) * self._parts
        if self._block is None or len(self._block) < filled:
            self._block = xp.zeros((filled, self._wide))
        block = self._block[:filled]
        block[n_rows:] = 0.0
        block[:n_rows, d] = 1.0
        return block

    def add(self, X: Any, X_shift: Any, Y: Any, Y_shift: Any, root: Any) -> Any:
        """Add a block of rows, each times its entry in `root`.

        Returns
        -------
        rows : array of shape (n_rows, n_features + 1 + n_targets)
            What was multiplied; valid until the next block.
        """
        xp, (d, k) = self._xp, self._shape
        block = self._buffer(len(X))
        rows = block[: len(X)]
        xp.subtract(X, X_shift, out=rows[:, :d])
        if Y is not None:
            xp.subtract(Y, Y_shift, out=rows[:, d + 1 : d + 1 + k])
        if root is not None:
            rows *= root[:, None]
        split = block.reshape(self._parts, -1, self._wide)
        add_products(self._total, split[:, :, : self._tall], split, xp)
        if Y is not None:
            targets = rows[:, d + 1 : d + 1 + k]
            self._squares += xp.ones(len(X)) @ (targets * targets)
        return rows[:, : d + 1 + k]

    def result(self) -> tuple[Any, Any]:
        """Return the products, and the sums of squares of the targets."""
        return self._total.sum(axis=0), self._squares
