"""CUDA kernels that find nearest rows: candidates in float32, distances and order in float64."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from accelsk.algorithms.distances import METRICS

__all__ = ["MOST", "SIDE", "kernels"]

#: Candidates of a row that a block can rank.
MOST = 2048

#: Rows and columns of a tile of `apart`.
SIDE = 64

_SOURCE = r"""
/* A warp for each row: the row about the middle in float32, and how far it is from there. With
   products, a query is -2 times itself and 1, a fitted row itself and its square. */
extern "C" __global__ void prepare(const Q* rows, const double* middle, const int n, const int d,
                                   const int wide, const int fitted, float* ready, double* far) {
    const int row = blockIdx.x * blockDim.y + threadIdx.y;
    if (row >= n) return;
    double s = 0;
    for (int f = threadIdx.x; f < wide; f += 32) {
        const float value = f < d ? (float)(rows[row * (long long)d + f] - middle[f]) : 0.0f;
        const double a = value, b = 0;
        STEP
        ready[row * (long long)wide + f] = PRODUCTS && !fitted ? (f == d ? 1 : -2 * value) : value;
    }
    for (int offset = 16; offset > 0; offset >>= 1) {
        const double other = __shfl_xor_sync(0xffffffffu, s, offset);
        s = JOIN(s, other);
    }
    if (threadIdx.x) return;
    far[row] = FINISH(s);
    if (PRODUCTS && fitted) ready[row * (long long)wide + d] = (float)s;
}

/* Distances of SIDE by SIDE rows, by a block of (16, 16) threads. */
extern "C" __global__ void apart(const float* queries, const float* rows, const int n, const int m,
                                 const int wide, float* distances) {
    __shared__ float left[16][SIDE], right[16][SIDE];
    const long long top = blockIdx.y * (long long)SIDE, first = blockIdx.x * (long long)SIDE;
    const int thread = threadIdx.y * 16 + threadIdx.x;
    float sums[4][4] = {};
    for (int start = 0; start < wide; start += 16) {
        for (int i = thread; i < SIDE * 16; i += 256) {
            const int row = i / 16, f = i % 16;
            left[f][row] = top + row < n ? queries[(top + row) * wide + start + f] : 0;
            right[f][row] = first + row < m ? rows[(first + row) * wide + start + f] : 0;
        }
        __syncthreads();
        for (int f = 0; f < 16; ++f)
            for (int i = 0; i < 4; ++i)
                for (int j = 0; j < 4; ++j) {
                    const float difference =
                        fabsf(left[f][threadIdx.y * 4 + i] - right[f][threadIdx.x * 4 + j]);
                    sums[i][j] = JOIN(sums[i][j], difference);
                }
        __syncthreads();
    }
    for (int i = 0; i < 4; ++i)
        for (int j = 0; j < 4; ++j) {
            const long long row = top + threadIdx.y * 4 + i, column = first + threadIdx.x * 4 + j;
            if (row < n && column < m) distances[row * m + column] = sums[i][j];
        }
}

/* A block for each query. A row among the k nearest is no farther in float32 than k rows are
   known to be, and twice what rounding may add: all such rows are ranked in float64. */
extern "C" __global__ void choose(const float* approximate, const Q* queries, const double* rows,
                                  const double* far, const double* reach, const double error,
                                  const int m, const int d, const int k, double* distances,
                                  long long* indices, bool* open) {
    __shared__ float least[1024], limit;
    __shared__ int found[MOST], count;
    __shared__ double exact[MOST];
    const float* mine = approximate + blockIdx.x * (long long)m;
    const Q* query = queries + blockIdx.x * (long long)d;
    const int thread = threadIdx.x, threads = blockDim.x;
    float lowest = 3.402823466e38f;
    int strange = 0;
    #pragma unroll 8
    for (int j = thread; j < m; j += threads) {
        const float value = mine[j];
        strange |= !(fabsf(value) <= 3.402823466e38f);
        lowest = fminf(lowest, value);
    }
    least[thread] = lowest;
    if (thread == 0) { count = 0; limit = 3.402823466e38f; }
    strange = __syncthreads_or(strange);
    int below = 0;
    for (int other = 0; other < threads; ++other)
        below += least[other] < lowest || (least[other] == lowest && other < thread);
    if (below == k - 1) {
        const double scale = far[blockIdx.x] + *reach;
        const double margin = error * scale * (PRODUCTS ? scale : 1.0);
        limit = __double2float_ru(lowest + 2 * margin);
    }
    __syncthreads();
    #pragma unroll 8
    for (int j = thread; j < m; j += threads)
        if (mine[j] <= limit) {
            const int at = atomicAdd(&count, 1);
            if (at < MOST) found[at] = j;
        }
    __syncthreads();
    const int candidates = count;
    if (strange || candidates > MOST || candidates < k) {
        if (thread == 0) open[blockIdx.x] = true;
        return;
    }
    for (int i = thread; i < candidates; i += threads) {
        const double* row = rows + found[i] * (long long)d;
        double s = 0;
        #pragma unroll 8
        for (int f = 0; f < d; ++f) {
            const double a = query[f], b = row[f];
            STEP
        }
        exact[i] = s;
    }
    __syncthreads();
    for (int i = thread; i < candidates; i += threads) {
        int rank = 0;
        for (int other = 0; other < candidates; ++other)
            rank += exact[other] < exact[i] ||
                    (exact[other] == exact[i] && found[other] < found[i]);
        if (rank < k) {
            distances[blockIdx.x * (long long)k + rank] = FINISH(exact[i]);
            indices[blockIdx.x * (long long)k + rank] = found[i];
        }
    }
}
"""

#: How sums of float32 are made of parts, and what becomes of the sum in the end.
_MACROS = {
    "euclidean": "#define PRODUCTS 1\n#define JOIN(a, b) ((a) + (b))\n#define FINISH(s) sqrt(s)\n",
    "manhattan": "#define PRODUCTS 0\n#define JOIN(a, b) ((a) + (b))\n#define FINISH(s) (s)\n",
    "chebyshev": (
        "#define PRODUCTS 0\n#define JOIN(a, b) ((a) > (b) ? (a) : (b))\n#define FINISH(s) (s)\n"
    ),
}


class Kernels:
    """The kernels for one metric and queries of one dtype."""

    def __init__(self, metric: str, dtype: Any) -> None:
        import cupy

        real = "float" if dtype == np.float32 else "double"
        head = f"typedef {real} Q;\n#define MOST {MOST}\n#define SIDE {SIDE}\n{_MACROS[metric]}"
        code = head + _SOURCE.replace("STEP", METRICS[metric].step)
        # products and sums are rounded apart, as in scikit-learn's trees
        module = cupy.RawModule(code=code, options=("--std=c++17", "--fmad=false"))
        self.prepare, self.apart, self.choose = map(
            module.get_function, ("prepare", "apart", "choose")
        )


_compiled = functools.cache(Kernels)


def kernels(metric: str, dtype: Any) -> Kernels:
    """Return the `Kernels` for a metric and the dtype of queries."""
    return _compiled(metric, np.dtype(dtype))
