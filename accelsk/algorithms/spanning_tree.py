"""Minimum spanning trees of points, grown from the first one as Prim does.

Ties go where scikit-learn's loops let them go, and distances are summed in the same order in
float64, so that the tree is scikit-learn's, edge for edge.
"""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import numpy as np

__all__ = ["METRICS", "SpanningTree", "core_distances", "spanning_tree"]


class _Metric(NamedTuple):
    """How a distance comes from differences, in CUDA C."""

    add: str
    finish: str


#: The metrics by name, in the vocabulary of `accelsk.algorithms.neighbors`.
METRICS: dict[str, _Metric] = {
    "euclidean": _Metric("sum += apart * apart;", "sqrt(sum)"),
    "manhattan": _Metric("sum += fabs(apart);", "sum"),
    "chebyshev": _Metric("sum = fmax(sum, fabs(apart));", "sum"),
}

#: Steps of one launch: the host can be interrupted between launches.
_STEPS = 1 << 15

_THREADS = 512


class SpanningTree(NamedTuple):
    """The edges of a minimum spanning tree, in the order in which they were found.

    Attributes
    ----------
    source : ndarray of int64 of shape (n_samples - 1,)
        The point of the tree as it was to which the new point is nearest.
    point : ndarray of int64 of shape (n_samples - 1,)
        The new point.
    distance : ndarray of float64 of shape (n_samples - 1,)
    """

    source: np.ndarray
    point: np.ndarray
    distance: np.ndarray

    @property
    def previous(self) -> np.ndarray:
        """The point that was new before each one; the first point is 0."""
        return np.concatenate([np.zeros(1, np.int64), self.point[:-1]])


def spanning_tree(rows: Any, core: Any, alpha: float, metric: str, xp: Any) -> SpanningTree:
    """Return the minimum spanning tree of mutual reachability.

    The length of an edge is the largest of the distance over `alpha` and the core distances of
    both ends.

    Parameters
    ----------
    rows : array of shape (n_samples, n_features), dtype=float64
    core : array of shape (n_samples,), dtype=float64
        Zeros make it the tree of plain distances.
    alpha : float
    metric : {"euclidean", "manhattan", "chebyshev"}
    xp : module
        The array namespace.
    """
    grow = _grow_on_host if xp is np else _grow_on_device
    return grow(rows, core, alpha, metric)


def core_distances(rows: Any, nearest: Any, metric: str, xp: Any) -> Any:
    """Return the largest distance of each row to those that `nearest` names.

    Parameters
    ----------
    rows : array of shape (n_samples, n_features), dtype=float64
    nearest : array of int of shape (n_samples, n_neighbors)
    metric : {"euclidean", "manhattan", "chebyshev"}
    xp : module
        The array namespace.
    """
    if xp is not np:
        return _distances_on_device(rows, nearest, metric).max(axis=1)
    return np.max([_distances(rows, rows[column], metric) for column in nearest.T], axis=0)


def _distances(rows: np.ndarray, others: np.ndarray, metric: str) -> np.ndarray:
    """Return distances between rows, summed over the features one after the other.

    Every operation is an array of its own, so no product is fused with a sum: each result is
    rounded as in scikit-learn's loop.
    """
    total = np.zeros(len(rows))
    for a, b in zip(rows.T, others.T, strict=True):
        apart = np.abs(a - b)
        if metric == "euclidean":
            total += apart * apart
        elif metric == "manhattan":
            total += apart
        else:
            total = np.maximum(total, apart)
    return np.sqrt(total) if metric == "euclidean" else total


def _grow_on_host(rows: np.ndarray, core: np.ndarray, alpha: float, metric: str) -> SpanningTree:
    n = len(rows)
    reach = np.full(n, np.inf)
    source = np.zeros(n, np.int64)
    outside = np.ones(n, bool)
    tree = SpanningTree(*(np.empty(n - 1, dtype) for dtype in (np.int64, np.int64, np.float64)))
    current = 0
    for step in range(n - 1):
        outside[current] = False
        here = np.broadcast_to(rows[current], rows.shape)
        edge = _distances(here, rows, metric) / alpha
        edge = np.maximum(np.maximum(edge, core), core[current])
        closer = outside & (edge < reach)
        reach[closer], source[closer] = edge[closer], current
        current = int(np.where(outside, reach, np.inf).argmin())
        tree.source[step], tree.point[step] = source[current], current
        tree.distance[step] = reach[current]
    return tree


_KERNEL = r"""
/* A thread for each row and one that is near. */
extern "C" __global__ void distances(const double* by_row, const long long* nearest,
                                     const long long n_pairs, const int n_neighbors,
                                     const int n_features, double* found) {
    const long long pair = blockIdx.x * (long long)blockDim.x + threadIdx.x;
    if (pair >= n_pairs) return;
    const double* here = by_row + pair / n_neighbors * n_features;
    const double* there = by_row + nearest[pair] * n_features;
    double sum = 0;
    for (int f = 0; f < n_features; ++f) {
        double apart = here[f] - there[f];
        ADD
    }
    found[pair] = FINISH;
}

struct Best { double reach; long long point; };

__device__ __forceinline__ Best nearer(Best a, Best b) {
    bool first = a.reach < b.reach || (a.reach == b.reach && a.point < b.point);
    return first ? a : b;
}

__device__ __forceinline__ Best of_warp(Best mine) {
    for (int offset = 16; offset > 0; offset >>= 1) {
        Best other;
        other.reach = __shfl_down_sync(0xffffffffu, mine.reach, offset);
        other.point = __shfl_down_sync(0xffffffffu, mine.point, offset);
        mine = nearer(mine, other);
    }
    return mine;
}

/* The nearest of all threads, for the first warp only until the next barrier. */
__device__ Best of_block(Best mine, Best* shared) {
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, n_warps = blockDim.x / 32;
    mine = of_warp(mine);
    if (lane == 0) shared[warp] = mine;
    __syncthreads();
    return warp == 0 ? of_warp(shared[lane < n_warps ? lane : 0]) : mine;
}

/* All blocks are resident (a cooperative launch); the counter only ever grows. */
__device__ void wait_for_all(unsigned long long* counter, unsigned long long target) {
    __syncthreads();
    if (threadIdx.x == 0) {
        __threadfence();
        atomicAdd(counter, 1ULL);
        while (*(volatile unsigned long long*)counter < target) {}
        __threadfence();
    }
    __syncthreads();
}

/* reach < 0 marks a point of the tree. Blocks hand each other their nearest points in two
   buffers by turns, so that one barrier a step is enough. */
extern "C" __global__ void __launch_bounds__(512) grow(
    const double* by_row, const double* by_feature, const double* core, const double alpha,
    const long long n, const int n_features, const long long start, const long long stop,
    double* reach, long long* source, unsigned long long* counter,
    double* block_reach, long long* block_point, long long* block_source,
    long long* out_source, long long* out_point, double* out_distance)
{
    __shared__ Best shared[32], chosen;
    const double infinity = __longlong_as_double(0x7ff0000000000000LL);
    long long current = start == 0 ? 0 : out_point[start - 1];
    for (long long step = start; step < stop; ++step) {
        const double* here = by_row + current * n_features;
        const double here_core = core[current];
        Best mine = {infinity, 0x7fffffffffffffffLL};
        for (long long j = blockIdx.x * (long long)blockDim.x + threadIdx.x; j < n;
             j += gridDim.x * (long long)blockDim.x) {
            double known = reach[j];
            if (known < 0) continue;
            if (j == current) { reach[j] = -1; continue; }
            double sum = 0;
            #pragma unroll 8
            for (int f = 0; f < n_features; ++f) {
                double apart = here[f] - by_feature[f * n + j];
                ADD
            }
            double edge = FINISH;
            if (alpha != 1) edge /= alpha;
            edge = fmax(fmax(edge, core[j]), here_core);
            if (edge < known) { reach[j] = known = edge; source[j] = current; }
            mine = nearer(mine, Best{known, j});
        }
        Best best = of_block(mine, shared);
        const int buffer = (step & 1) * gridDim.x;
        if (threadIdx.x == 0) {
            block_reach[buffer + blockIdx.x] = best.reach;
            block_point[buffer + blockIdx.x] = best.point;
            block_source[buffer + blockIdx.x] = best.point < n ? source[best.point] : 0;
        }
        wait_for_all(counter, (unsigned long long)(step - start + 1) * gridDim.x);
        mine = Best{infinity, 0x7fffffffffffffffLL};
        for (int block = threadIdx.x; block < gridDim.x; block += blockDim.x) {
            Best other = {((volatile double*)block_reach)[buffer + block],
                          ((volatile long long*)block_point)[buffer + block]};
            mine = nearer(mine, other);
        }
        best = of_block(mine, shared);
        if (threadIdx.x == 0) chosen = best;
        __syncthreads();
        best = chosen;
        current = best.point;
        if (blockIdx.x == 0) {
            for (int block = threadIdx.x; block < gridDim.x; block += blockDim.x)
                if (((volatile long long*)block_point)[buffer + block] == current) {
                    out_source[step] = ((volatile long long*)block_source)[buffer + block];
                    out_point[step] = current;
                    out_distance[step] = best.reach;
                }
        }
    }
}
"""


@functools.cache
def _kernels(metric: str) -> tuple[Any, Any]:
    import cupy

    add, finish = METRICS[metric]
    code = _KERNEL.replace("ADD", add).replace("FINISH", finish)
    # products and sums are rounded apart, as in scikit-learn's compiled loops
    options = ("--fmad=false",)
    grow = cupy.RawKernel(code, "grow", options=options, enable_cooperative_groups=True)
    return grow, cupy.RawKernel(code, "distances", options=options)


def _distances_on_device(rows: Any, nearest: Any, metric: str) -> Any:
    """Return the distances of each row to those that `nearest` names."""
    import cupy

    found = cupy.empty(nearest.shape)
    arguments = (
        cupy.ascontiguousarray(rows),
        cupy.ascontiguousarray(nearest.astype(np.int64, copy=False)),
        np.int64(nearest.size),
        np.int32(nearest.shape[1]),
        np.int32(rows.shape[1]),
        found,
    )
    _kernels(metric)[1]((-(-nearest.size // _THREADS),), (_THREADS,), arguments)
    return found


def _grow_on_device(rows: Any, core: Any, alpha: float, metric: str) -> SpanningTree:
    import cupy

    n, n_features = rows.shape
    processors = cupy.cuda.Device().attributes["MultiProcessorCount"]
    blocks = max(1, min(processors, -(-n // _THREADS)))
    by_row = cupy.ascontiguousarray(rows)
    by_feature = cupy.ascontiguousarray(rows.T)
    core = cupy.ascontiguousarray(core)
    reach = cupy.full(n, np.inf)
    source = cupy.zeros(n, np.int64)
    passed = [cupy.empty(2 * blocks, dtype) for dtype in (np.float64, np.int64, np.int64)]
    edges = [cupy.empty(n - 1, dtype) for dtype in (np.int64, np.int64, np.float64)]
    for start in range(0, n - 1, _STEPS):
        counter = cupy.zeros(1, np.uint64)
        arguments = (
            by_row,
            by_feature,
            core,
            np.float64(alpha),
            np.int64(n),
            np.int32(n_features),
            np.int64(start),
            np.int64(min(start + _STEPS, n - 1)),
            reach,
            source,
            counter,
            *passed,
            *edges,
        )
        _kernels(metric)[0]((blocks,), (_THREADS,), arguments)
    return SpanningTree(*(edge.get() for edge in edges))
