"""Repulsion between all pairs of points in the plane, through a grid and Fourier transforms.

Points are spread over the nodes of a grid, the kernels of t-SNE are convolved over the grid, and
the potentials are read off at the points. So it costs a few passes over the points where pairs
would cost their square.

References
----------
G. C. Linderman, M. Rachh, J. G. Hoskins, S. Steinerberger and Y. Kluger, "Fast interpolation-based
t-SNE for improved visualization of single-cell RNA-seq data", Nature Methods 16 (2019).
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

__all__ = ["grid_repulsion"]

#: The distance of nodes in units of the kernel, and how many there may be along a side: where the
#: points need more, the nodes are twice as far apart.
_SPACING = 1 / 6
_MOST_NODES = 2400

#: The number of nodes grows in steps, so that the kernels need seldom be transformed again.
_STEP = 48

_THREADS = 256


class _Grid(NamedTuple):
    """A square grid from the corner ``low``."""

    low: tuple[float, float]
    n_nodes: int
    spacing: float

    @property
    def half(self) -> float:
        """Half the length of a side."""
        return self.n_nodes * self.spacing / 2


def grid_repulsion(n: int, xp: Any) -> Callable[[Any], tuple[Any, Any]]:
    """Return the function from `n` points to repulsive forces and the sum of the kernel.

    Parameters
    ----------
    n : int
    xp : module
        The array namespace.

    Returns
    -------
    repel : callable
        From an array of shape (n, 2) to forces of the same shape, which are not yet divided by
        the sum over all pairs of ``1 / (1 + squared distance)``, and that sum.
    """
    spread, read = (_on_host if xp is np else _on_device)(n)
    kernels = functools.lru_cache(maxsize=2)(functools.partial(_transformed_kernels, xp=xp))

    def repel(points: Any) -> tuple[Any, Any]:
        grid = _grid_of(points, xp)
        size = 2 * grid.n_nodes
        # about the middle, so that forces are differences of small numbers
        middle = xp.asarray([corner + grid.half for corner in grid.low])
        centered = points.astype(np.float64) - middle
        charges = xp.concatenate([xp.ones((n, 1)), centered], axis=1)
        nodes = spread(centered, charges, grid)
        near, nearer = kernels(grid.n_nodes, grid.spacing)
        transformed = xp.fft.rfft2(nodes, s=(size, size))
        spectra = xp.concatenate([transformed[:1] * near, transformed * nearer])
        kept = slice(grid.n_nodes)
        potentials = xp.fft.irfft2(spectra, s=(size, size))[:, kept, kept]
        found = read(centered, xp.ascontiguousarray(potentials), grid)
        push = centered * found[:, 1:2] - found[:, 2:]
        total = xp.maximum(found[:, 0].sum() - n, np.finfo(np.float64).eps)
        return push.astype(np.float32), total

    return repel


def _grid_of(points: Any, xp: Any) -> _Grid:
    """Return a grid in which all points lie."""
    corners = xp.stack([points.min(axis=0), points.max(axis=0)])
    (left, bottom), (right, top) = (corners.get() if hasattr(corners, "get") else corners).tolist()
    side, spacing = max(right - left, top - bottom), _SPACING
    while side / spacing > _MOST_NODES:
        spacing *= 2
    n_nodes = (int(side / spacing + 2) // _STEP + 1) * _STEP
    spare = (n_nodes * spacing - side) / 2
    return _Grid((left - spare, bottom - spare), n_nodes, spacing)


def _transformed_kernels(n_nodes: int, spacing: float, xp: Any) -> tuple[Any, Any]:
    """Return the transforms of ``1 / (1 + d**2)`` and of its square, over a periodic grid."""
    steps = xp.arange(2 * n_nodes)
    offsets = xp.minimum(steps, 2 * n_nodes - steps) * spacing
    squared = offsets * offsets
    kernel = 1 / (1 + squared[:, None] + squared)
    return xp.fft.rfft2(kernel), xp.fft.rfft2(kernel * kernel)


def _stencil(centered: np.ndarray, grid: _Grid) -> tuple[np.ndarray, np.ndarray]:
    """Return the three nodes nearest each point along both axes, and their weights."""
    at = (centered + grid.half) / grid.spacing
    node = np.clip(at.astype(np.int64), 1, grid.n_nodes - 2)
    t = at - (node + 0.5)
    weights = np.stack([t * (t - 1) / 2, 1 - t * t, t * (t + 1) / 2], axis=-1)
    return node[:, :, None] + np.arange(-1, 2), weights


def _on_host(n: int) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """Return what spreads charges over the grid and what reads potentials, in NumPy."""

    def spread(centered: Any, charges: Any, grid: _Grid) -> np.ndarray:
        nodes, weights = _stencil(centered, grid)
        found = np.zeros((charges.shape[1], grid.n_nodes, grid.n_nodes))
        for i in range(3):
            for j in range(3):
                share = weights[:, 0, i] * weights[:, 1, j]
                for layer, charge in zip(found, charges.T, strict=True):
                    np.add.at(layer, (nodes[:, 0, i], nodes[:, 1, j]), share * charge)
        return found

    def read(centered: Any, potentials: Any, grid: _Grid) -> np.ndarray:
        nodes, weights = _stencil(centered, grid)
        found = np.zeros((len(potentials), n))
        for i in range(3):
            for j in range(3):
                share = weights[:, 0, i] * weights[:, 1, j]
                found += share * potentials[:, nodes[:, 0, i], nodes[:, 1, j]]
        return found.T

    return spread, read


_CODE = r"""
/* The first of the three nodes nearest a point along an axis, and their weights. */
__device__ __forceinline__ int stencil(double at, double spacing, int n_nodes, double* weights) {
    at = at / spacing + n_nodes * 0.5;
    const int node = min(max((int)at, 1), n_nodes - 2);
    const double t = at - (node + 0.5);
    weights[0] = t * (t - 1) / 2; weights[1] = 1 - t * t; weights[2] = t * (t + 1) / 2;
    return node - 1;
}

/* Sums in whole numbers do not depend on their order, so that the same points repeat. */
extern "C" __global__ void spread(const double* points, const double* charges, const int n,
                                  const double spacing, const int n_nodes, const double scale,
                                  unsigned long long* nodes) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    const size_t side = n_nodes;
    double wx[3], wy[3];
    const int x = stencil(points[2 * i], spacing, n_nodes, wx);
    const int y = stencil(points[2 * i + 1], spacing, n_nodes, wy);
    for (int p = 0; p < 3; ++p)
        for (int q = 0; q < 3; ++q)
            for (int c = 0; c < 3; ++c)
                atomicAdd(nodes + (c * side + x + p) * side + y + q, (unsigned long long)
                          __double2ll_rn(wx[p] * wy[q] * charges[3 * i + c] * scale));
}

extern "C" __global__ void read(const double* points, const double* potentials, const int n,
                                const double spacing, const int n_nodes, double* found) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    const size_t side = n_nodes;
    double wx[3], wy[3], sum[4] = {0, 0, 0, 0};
    const int x = stencil(points[2 * i], spacing, n_nodes, wx);
    const int y = stencil(points[2 * i + 1], spacing, n_nodes, wy);
    for (int c = 0; c < 4; ++c)
        for (int p = 0; p < 3; ++p)
            for (int q = 0; q < 3; ++q)
                sum[c] += wx[p] * wy[q] * potentials[(c * side + x + p) * side + y + q];
    for (int c = 0; c < 4; ++c) found[4 * i + c] = sum[c];
}
"""


@functools.cache
def _kernels() -> tuple[Any, Any]:
    import cupy

    return cupy.RawKernel(_CODE, "spread"), cupy.RawKernel(_CODE, "read")


def _on_device(n: int) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """Return what spreads charges over the grid and what reads potentials, in CUDA."""
    import cupy

    spread_kernel, read_kernel = _kernels()
    blocks = (-(-n // _THREADS),)

    def spread(centered: Any, charges: Any, grid: _Grid) -> Any:
        # products of weights are below 2, charges below `half` or 1, sums below 2**62
        scale = 2.0 ** (61 - np.ceil(np.log2(n * max(grid.half, 1.0))))
        nodes = cupy.zeros((3, grid.n_nodes, grid.n_nodes), np.uint64)
        arguments = (
            cupy.ascontiguousarray(centered),
            cupy.ascontiguousarray(charges),
            np.int32(n),
            np.float64(grid.spacing),
            np.int32(grid.n_nodes),
            np.float64(scale),
            nodes,
        )
        spread_kernel(blocks, (_THREADS,), arguments)
        return nodes.view(np.int64) / scale

    def read(centered: Any, potentials: Any, grid: _Grid) -> Any:
        found = cupy.empty((n, 4))
        arguments = (
            cupy.ascontiguousarray(centered),
            potentials,
            np.int32(n),
            np.float64(grid.spacing),
            np.int32(grid.n_nodes),
            found,
        )
        read_kernel(blocks, (_THREADS,), arguments)
        return found

    return spread, read
