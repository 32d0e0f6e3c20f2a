"""Greedy k-means++ on a device: no distance and no draw goes through the host."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from accelsk.algorithms.kmeans_device import THREADS, blocks_of_eight, pointer
from accelsk.algorithms.kmeans_kernels import compiled

__all__ = ["kmeans_plusplus"]

_SOURCE = r"""
/* A block for each candidate: the row where the weighted distances add up to its draw. */
extern "C" __global__ void draw(const double* cumulative, const double* draws, const double* reach,
                                const T* X, const int n, const int d, long long* candidates,
                                double* rows) {
    __shared__ int found;
    if (threadIdx.x == 0) {
        const double wanted = draws[blockIdx.x] * *reach;
        int low = 0, high = n;
        while (low < high) {
            const int middle = low + (high - low) / 2;
            if (cumulative[middle] < wanted) low = middle + 1; else high = middle;
        }
        found = low < n ? low : n - 1;
        candidates[blockIdx.x] = found;
    }
    __syncthreads();
    for (int f = threadIdx.x; f < d; f += blockDim.x)
        rows[blockIdx.x * (long long)d + f] = X[found * (long long)d + f];
}

/* Eight threads for each row: its squared distance from the nearest centre if a candidate
   became one. The last block to end chooses the candidate that leaves least. */
extern "C" __global__ void weigh(const T* X, const double* rows, const T* weight,
                                 const T* closest, const int n, const int d, const int trials,
                                 const long long* candidates, T* distances, double* partial,
                                 int* ticket, long long* chosen, int* best, double* reach) {
    __shared__ double shared[32];
    __shared__ bool last;
    const int lane = threadIdx.x & 7, group = threadIdx.x >> 3, groups = blockDim.x >> 3;
    double total[TRIALS];
    #pragma unroll
    for (int t = 0; t < TRIALS; ++t) total[t] = 0;
    for (long long base = blockIdx.x * (long long)groups; base < n;
         base += gridDim.x * (long long)groups) {
        const long long row = base + group < n ? base + group : n - 1;
        double sum[TRIALS];
        #pragma unroll
        for (int t = 0; t < TRIALS; ++t) sum[t] = 0;
        #pragma unroll 4
        for (int f = lane; f < d; f += 8) {
            const double value = X[row * d + f];
            #pragma unroll
            for (int t = 0; t < TRIALS; ++t)
                if (t < trials) {
                    const double difference = value - rows[t * (long long)d + f];
                    sum[t] += difference * difference;
                }
        }
        #pragma unroll
        for (int t = 0; t < TRIALS; ++t)
            if (t < trials) {
                sum[t] = of_eight(sum[t]);
                if (lane == 0 && base + group < n) {
                    T apart = (T)sum[t];
                    if (closest && closest[row] < apart) apart = closest[row];
                    distances[t * (long long)n + row] = apart;
                    total[t] += weight ? (double)apart * weight[row] : (double)apart;
                }
            }
    }
    #pragma unroll
    for (int t = 0; t < TRIALS; ++t)
        if (t < trials) {
            const double sum = of_block(total[t], shared);
            if (threadIdx.x == 0) partial[blockIdx.x * TRIALS + t] = sum;
        }
    if (threadIdx.x == 0) {
        __threadfence();
        last = atomicAdd(ticket, 1) == gridDim.x - 1;
    }
    __syncthreads();
    if (!last) return;
    __threadfence();
    T least = 0;
    int winner = 0;
    for (int t = 0; t < trials; ++t) {
        double sum = 0;
        for (int block = threadIdx.x; block < gridDim.x; block += blockDim.x)
            sum += ((volatile double*)partial)[block * TRIALS + t];
        const T left = (T)of_block(sum, shared);
        if (t == 0 || left < least) { least = left; winner = t; }
    }
    if (threadIdx.x) return;
    *ticket = 0;
    *best = winner;
    *chosen = candidates[winner];
    *reach = least;
}

/* The distances that the chosen candidate leaves, and the same weighted. */
extern "C" __global__ void keep(const T* distances, const int* best, const T* weight, const int n,
                                T* closest, double* weighted) {
    const int row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= n) return;
    const T apart = distances[*best * (long long)n + row];
    closest[row] = apart;
    weighted[row] = weight ? (T)(apart * weight[row]) : apart;
}
"""

#: Candidates for which registers are set aside: a multiple of this.
_TRIALS = 8

_compiled = functools.cache(compiled)


def _kernels(dtype: Any, trials: int) -> tuple[Any, int]:
    """Return the kernels for so many candidates, and how many they can have."""
    most = -(-trials // _TRIALS) * _TRIALS
    return _compiled(_SOURCE, ("draw", "weigh", "keep"), np.dtype(dtype), TRIALS=most), most


def kmeans_plusplus(X: Any, n_clusters: int, weight: Any, first: Any, draws: Any) -> Any:
    """Return initial centres by greedy k-means++, as `kmeans.kmeans_plusplus` does.

    Parameters
    ----------
    X : cupy.ndarray of shape (n_samples, n_features)
        In C order.
    n_clusters : int
    weight : cupy.ndarray of shape (n_samples,) or None
    first : cupy.ndarray of int of shape (1,)
        The row of the first centre.
    draws : cupy.ndarray of shape (n_clusters - 1, n_trials)
        Between 0 and 1: what chooses the candidates for each other centre.

    Returns
    -------
    centers : cupy.ndarray of shape (n_clusters, n_features)
    """
    import cupy

    (n, d), n_trials = X.shape, draws.shape[1]
    kernel, most = _kernels(X.dtype, n_trials)
    shape = (np.int32(n), np.int32(d))
    chosen, candidates = cupy.empty(n_clusters, np.int64), cupy.empty(n_trials, np.int64)
    candidates[...] = first
    rows = X[candidates].astype(np.float64)
    distances, closest = cupy.empty((n_trials, n), X.dtype), cupy.empty(n, X.dtype)
    weighted, cumulative = cupy.empty(n), cupy.empty(n)
    blocks = blocks_of_eight(n)
    partial = cupy.empty((blocks, most))
    ticket, best, reach = cupy.zeros(1, np.int32), cupy.empty(1, np.int32), cupy.empty(1)
    weight = pointer(weight)
    for c in range(n_clusters):
        if c:
            kept = (distances, best, weight, np.int32(n), closest, weighted)
            kernel.keep((-(-n // THREADS),), (THREADS,), kept)
            cupy.cumsum(weighted, out=cumulative)
            wanted = (cumulative, draws[c - 1], reach, X, *shape, candidates, rows)
            kernel.draw((n_trials,), (THREADS,), wanted)
        trials = np.int32(n_trials if c else 1)
        given = (X, rows, weight, closest if c else pointer(None), *shape, trials, candidates)
        into = (distances, partial, ticket, chosen[c:], best, reach)
        kernel.weigh((blocks,), (THREADS,), (*given, *into))
    return X[chosen]
