"""The gradient of t-SNE: attraction along given edges, repulsion between all pairs."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from accelsk.algorithms.tsne_grid import grid_repulsion

__all__ = ["Forces", "dense_forces", "sparse_forces"]

_EPSILON = float(np.finfo(np.float64).eps)
_TINY = float(np.finfo(np.float32).tiny)

_THREADS = 256

#: Blocks that keep a device busy.
_BLOCKS = 2048

#: Points in the plane up to which repulsion is summed over pairs, beyond which over a grid.
_MOST_PAIRED = 60_000


class Forces(NamedTuple):
    """The gradient, and the Kullback-Leibler divergence where it was asked for (else infinity)."""

    gradient: Any
    error: float


def _degrees_of_freedom(start: Any) -> int:
    return max(start.shape[1] - 1, 1)


def _apart(embedding: Any, xp: Any) -> tuple[Any, Any]:
    """Return differences and squared distances of all pairs, in float64."""
    points = embedding.astype(np.float64)
    apart = points[:, None, :] - points[None]
    return apart, (apart * apart).sum(axis=-1)


def dense_forces(joint: Any, start: Any, xp: Any) -> Callable[[Any, float, bool], Forces]:
    """Return the function from an embedding to the forces of ``method="exact"``.

    Parameters
    ----------
    joint : array of shape (n_samples, n_samples)
    start : array of shape (n_samples, n_components)
    xp : module
        The array namespace.
    """
    freedom = _degrees_of_freedom(start)
    diagonal = xp.arange(len(start))

    def forces(embedding: Any, exaggeration: float, error: bool) -> Forces:
        points = embedding.astype(np.float64)
        kernel = _squared_distances(points, xp)
        kernel /= freedom
        kernel += 1
        kernel **= -(freedom + 1) / 2
        kernel[diagonal, diagonal] = 0
        share = xp.maximum(kernel / kernel.sum(), _EPSILON)
        wanted = exaggeration * joint
        divergence = np.inf
        if error:
            ratio = xp.log(xp.maximum(wanted, _EPSILON) / share)
            ratio[diagonal, diagonal] = 0
            divergence = float((wanted * ratio).sum())
        pull = (wanted - share) * kernel
        gradient = pull.sum(axis=1)[:, None] * points - pull @ points
        gradient *= 2.0 * (freedom + 1) / freedom
        return Forces(gradient.astype(embedding.dtype), divergence)

    return forces


def _squared_distances(points: Any, xp: Any) -> Any:
    """Return squared distances of all pairs from differences, dimension by dimension."""
    squared = xp.zeros((len(points), len(points)))
    for axis in points.T:
        apart = axis[:, None] - axis
        apart *= apart
        squared += apart
    return squared


def sparse_forces(joint: Any, start: Any, xp: Any) -> Callable[[Any, float, bool], Forces]:
    """Return the function from an embedding to the forces of ``method="barnes_hut"``.

    Parameters
    ----------
    joint : CSR matrix of shape (n_samples, n_samples)
    start : array of shape (n_samples, n_components)
        One to three components.
    xp : module
        The array namespace.
    """
    freedom = _degrees_of_freedom(start)
    attract, repel = (_on_host if xp is np else _on_device)(joint, start)
    if start.shape[1] == 2 and len(start) > _MOST_PAIRED:
        repel = grid_repulsion(len(start), xp)
    combine = _combined if xp is np else _combine_on_device()
    mass = float(joint.data.sum())
    factor = 2.0 * (freedom + 1) / freedom

    def forces(embedding: Any, exaggeration: float, error: bool) -> Forces:
        points = xp.ascontiguousarray(embedding, np.float32)
        push, total = repel(points)
        pull, divergence = attract(points, error)
        gradient = combine(pull, push, total, exaggeration, factor).astype(
            embedding.dtype, copy=False
        )
        if not error:
            return Forces(gradient, np.inf)
        # p is exaggerated on both sides of the ratio's weight, q is not
        offset = mass * (np.log(exaggeration) + np.log(float(total)))
        divergence = exaggeration * (float(divergence) + offset)
        return Forces(gradient, divergence)

    return forces


def _combined(pull: Any, push: Any, total: Any, exaggeration: float, factor: float) -> Any:
    """Return the gradient that attraction and repulsion add up to."""
    return ((exaggeration * pull - push / total) * factor).astype(np.float32)


@functools.cache
def _combine_on_device() -> Any:
    import cupy

    # one launch in place of five: of few points, launches are what takes the time
    kernel = cupy.ElementwiseKernel(
        "float32 pull, float32 push, raw float64 total, float64 exaggeration, float64 factor",
        "float32 gradient",
        "gradient = (exaggeration * pull - push / total[0]) * factor",
        "accelsk_tsne_gradient",
    )
    return lambda pull, push, total, *factors: kernel(pull, push, total.reshape(1), *factors)


def _kernel_of(squared: Any, freedom: int) -> Any:
    kernel = freedom / (freedom + squared)
    return kernel if freedom == 1 else kernel ** ((freedom + 1) / 2)


def _on_host(joint: Any, start: Any) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """Return the two forces in NumPy."""
    freedom = _degrees_of_freedom(start)
    edges = joint.tocoo()

    def attract(points: np.ndarray, error: bool) -> tuple[Any, float]:
        apart = (points[edges.row] - points[edges.col]).astype(np.float64)
        kernel = _kernel_of((apart * apart).sum(axis=1), freedom)
        pull = np.zeros(points.shape)
        np.add.at(pull, edges.row, (edges.data * kernel)[:, None] * apart)
        ratio = np.maximum(edges.data, _TINY) / kernel
        return pull.astype(np.float32), float((edges.data * np.log(ratio)).sum()) if error else 0.0

    def repel(points: np.ndarray) -> tuple[Any, float]:
        apart, squared = _apart(points, np)
        kernel = _kernel_of(squared, freedom)
        push = (kernel[:, :, None] ** 2 * apart).sum(axis=1)
        return push.astype(np.float32), max(float(kernel.sum()) - len(points), _EPSILON)

    return attract, repel


_CODE = r"""
#define D DIMENSIONS

__device__ __forceinline__ float kernel_of(float squared) {
#if D == 3
    float share = 2.0f / (2.0f + squared);
    return share * sqrtf(share);
#else
    return __fdividef(1.0f, 1.0f + squared);
#endif
}

/* A thread for each point, a row of blocks for each part of the others. */
extern "C" __global__ void repel(const float* points, const int n, const int part,
                                 float* push, double* total) {
    __shared__ float tile[THREADS * D];
    const int i = blockIdx.x * THREADS + threadIdx.x;
    const int first = blockIdx.y * part, last = min(n, first + part);
    float here[D], force[D];
    for (int d = 0; d < D; ++d) { here[d] = i < n ? points[i * D + d] : 0; force[d] = 0; }
    double sum = 0;
    for (int base = first; base < last; base += THREADS) {
        const int count = min(THREADS, last - base);
        __syncthreads();
        for (int k = threadIdx.x; k < count * D; k += THREADS) tile[k] = points[base * D + k];
        __syncthreads();
        float tile_sum = 0, tile_force[D];
        for (int d = 0; d < D; ++d) tile_force[d] = 0;
        #pragma unroll 8
        for (int k = 0; k < count; ++k) {
            float apart[D], squared = 0;
            for (int d = 0; d < D; ++d) {
                apart[d] = here[d] - tile[k * D + d];
                squared += apart[d] * apart[d];
            }
            const float value = kernel_of(squared);
            tile_sum += value;
            for (int d = 0; d < D; ++d) tile_force[d] += value * value * apart[d];
        }
        sum += tile_sum;
        for (int d = 0; d < D; ++d) force[d] += tile_force[d];
    }
    if (i < n) {
        const size_t at = (size_t)blockIdx.y * n + i;
        for (int d = 0; d < D; ++d) push[at * D + d] = force[d];
        total[at] = sum;
    }
}

/* A warp for each point. */
extern "C" __global__ void attract(const float* points, const int n, const int* starts,
                                   const int* others, const float* joint, const bool with_error,
                                   float* pull, double* error) {
    const int i = (blockIdx.x * blockDim.x + threadIdx.x) / 32, lane = threadIdx.x % 32;
    if (i >= n) return;
    float here[D], force[D];
    for (int d = 0; d < D; ++d) { here[d] = points[i * D + d]; force[d] = 0; }
    double sum = 0;
    for (int k = starts[i] + lane; k < starts[i + 1]; k += 32) {
        const int j = others[k];
        const float p = joint[k];
        float apart[D], squared = 0;
        for (int d = 0; d < D; ++d) {
            apart[d] = here[d] - points[j * D + d];
            squared += apart[d] * apart[d];
        }
        const float value = kernel_of(squared);
        for (int d = 0; d < D; ++d) force[d] += p * value * apart[d];
        if (with_error) sum += p * log(fmax((double)p, 1.1754943508222875e-38) / value);
    }
    for (int offset = 16; offset > 0; offset >>= 1) {
        for (int d = 0; d < D; ++d) force[d] += __shfl_down_sync(0xffffffffu, force[d], offset);
        sum += __shfl_down_sync(0xffffffffu, sum, offset);
    }
    if (lane == 0) {
        for (int d = 0; d < D; ++d) pull[i * D + d] = force[d];
        error[i] = sum;
    }
}
"""


@functools.cache
def _kernels(dimensions: int) -> tuple[Any, Any]:
    import cupy

    code = _CODE.replace("DIMENSIONS", str(dimensions)).replace("THREADS", str(_THREADS))
    return cupy.RawKernel(code, "attract"), cupy.RawKernel(code, "repel")


def _on_device(joint: Any, start: Any) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """Return the two forces in CUDA. Sums are in a fixed order: the same start repeats."""
    import cupy

    n, dimensions = start.shape
    attraction, repulsion = _kernels(dimensions)
    blocks = -(-n // _THREADS)
    parts = max(1, min(blocks, _BLOCKS // blocks))
    part = -(-blocks // parts) * _THREADS
    parts = -(-n // part)
    starts, others = joint.indptr.astype(np.int32), joint.indices.astype(np.int32)
    weights = joint.data.astype(np.float32)
    pushes = cupy.empty((parts, n, dimensions), np.float32)
    totals = cupy.empty((parts, n))
    pull = cupy.empty((n, dimensions), np.float32)
    errors = cupy.empty(n)

    def attract(points: Any, error: bool) -> tuple[Any, Any]:
        arguments = (points, np.int32(n), starts, others, weights, np.bool_(error), pull, errors)
        attraction((-(-n * 32 // _THREADS),), (_THREADS,), arguments)
        return pull, errors.sum() if error else 0.0

    def repel(points: Any) -> tuple[Any, Any]:
        arguments = (points, np.int32(n), np.int32(part), pushes, totals)
        repulsion((blocks, parts), (_THREADS,), arguments)
        total = cupy.maximum(totals.sum() - n, _EPSILON)
        return pushes.sum(axis=0), total

    return attract, repel
