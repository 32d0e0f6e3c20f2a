"""CUDA kernels of k-means: what a round needs beside one matrix product."""

from __future__ import annotations

import functools
from types import SimpleNamespace
from typing import Any

import numpy as np

__all__ = ["EMPTY", "RUNNING", "SETTLED", "WITHIN_TOL", "compiled", "kernels"]

#: What ``state[0]`` says: whether rounds go on, and if not, why.
RUNNING, SETTLED, WITHIN_TOL, EMPTY = range(4)

#: What kernels here and those for seeding have in common.
_COMMON = r"""
/* The sum over threads that differ in their lowest three bits. */
__device__ __forceinline__ double of_eight(double value) {
    value += __shfl_xor_sync(0xffffffffu, value, 4);
    value += __shfl_xor_sync(0xffffffffu, value, 2);
    return value + __shfl_xor_sync(0xffffffffu, value, 1);
}

/* The sum over a block of up to 1024 threads, for all of them. */
__device__ double of_block(double value, double* shared) {
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, warps = (blockDim.x + 31) / 32;
    for (int offset = 16; offset > 0; offset >>= 1)
        value += __shfl_xor_sync(0xffffffffu, value, offset);
    __syncthreads();
    if (lane == 0) shared[warp] = value;
    __syncthreads();
    value = 0;
    for (int other = 0; other < warps; ++other) value += shared[other];
    return value;
}
"""

# Sums are float64 and run in an order that depends on the shapes only, so a fit repeats bit by bit.
# The rounds: `assign`, `accumulate`, `update`. Each returns at once after the last round, so that
# the host may ask for rounds before it knows whether they are needed.
_ROUNDS = r"""
enum { HALTED, ROUNDS, CHANGED, TICKET, DOUBTED, IN_DOUBT };
enum { RUNNING, SETTLED, WITHIN_TOL, EMPTY };

/* The rows about their mean, and the sum of their squares. */
extern "C" __global__ void centre(const T* X, const T* mean, const long long size, const int d,
                                  T* centred, double* partial) {
    __shared__ double shared[32];
    double sum = 0;
    for (long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x; i < size;
         i += gridDim.x * (long long)blockDim.x) {
        const T value = X[i] - mean[i % d];
        centred[i] = value;
        sum += (double)value * value;
    }
    sum = of_block(sum, shared);
    if (threadIdx.x == 0) partial[blockIdx.x] = sum;
}

/* What the shifts of the centres take off the lead of a row, by its label. */
struct Shifts {
    double largest, second;
    int farthest;

    __device__ void add(double shift, int center) {
        if (shift > largest) { second = largest; largest = shift; farthest = center; }
        else if (shift > second) second = shift;
    }

    __device__ double cost(double own, int label) const {
        return (own + (label == farthest ? second : largest)) * (1 + 1e-12);
    }
};

/* For a whole warp. */
__device__ Shifts all_shifts(const double* shifts, const int k) {
    Shifts mine = {0, 0, -1};
    for (int c = threadIdx.x % 32; c < k; c += 32) mine.add(sqrt(shifts[c]), c);
    for (int offset = 16; offset > 0; offset >>= 1) {
        const double largest = __shfl_xor_sync(0xffffffffu, mine.largest, offset);
        const double second = __shfl_xor_sync(0xffffffffu, mine.second, offset);
        const int farthest = __shfl_xor_sync(0xffffffffu, mine.farthest, offset);
        mine.add(largest, farthest);
        if (second > mine.second) mine.second = second;
    }
    return mine;
}

/* By how much the centre of a row is nearer than any other, whatever rounding has done. `least`
   and `next` are short of the squared norm of the row. */
__device__ float lead(double least, double next, double square, double heaviest, int d) {
    const double error = (8 + 4 * sqrt((double)d)) * EPSILON * 2 * (square + heaviest);
    const double near = square + least + error, far = square + next + error;
    const double sum = sqrt(near > 0 ? near : 0) + sqrt(far > 0 ? far : 0);
    return sum > 0 ? __double2float_rd((next - least - 2 * error) / sum) : 0;
}

/* The squared norm of each row, by eight threads. */
extern "C" __global__ void square(const T* X, const int n, const int d, double* squares) {
    const int lane = threadIdx.x & 7;
    const long long row = (blockIdx.x * (long long)blockDim.x + threadIdx.x) >> 3;
    const T* here = X + (row < n ? row : n - 1) * d;
    double sum = 0;
    for (int f = lane; f < d; f += 8) sum += (double)here[f] * here[f];
    sum = of_eight(sum);
    if (lane == 0 && row < n) squares[row] = sum;
}

/* A thread for each row: the nearest centre, the first among equals, from the products of
   centres and rows. */
extern "C" __global__ void assign(const T* products, const T* norms, const int n, const int d,
                                  const int k, const int* before, const double* shifts,
                                  const double* squares, int* labels, float* leads, int* state) {
    if (state[HALTED]) return;
    const int row = blockIdx.x * blockDim.x + threadIdx.x;
    const bool bounds = leads && before;
    Shifts moved = {0, 0, -1};
    if (bounds) moved = all_shifts(shifts, k);
    int differs = 0, doubted = 0;
    if (row < n) {
        int nearest = 0;
        T least = norms[0] - 2 * products[row], next = (T)FAR_AWAY, heaviest = norms[0];
        #pragma unroll 4
        for (int c = 1; c < k; ++c) {
            const T norm = norms[c], apart = norm - 2 * products[c * (long long)n + row];
            if (apart < least) { next = least; least = apart; nearest = c; }
            else if (apart < next) next = apart;
            if (norm > heaviest) heaviest = norm;
        }
        const int old = before ? before[row] : -1;
        if (bounds)
            doubted = old < 0 || !(leads[row] > moved.cost(sqrt(shifts[old]), old));
        differs = before && old != nearest;
        labels[row] = nearest;
        if (leads) leads[row] = lead(least, next, squares[row], heaviest, d);
    }
    if (bounds) {
        doubted = __syncthreads_count(doubted);
        if (threadIdx.x == 0 && doubted) atomicAdd(state + DOUBTED, doubted);
    }
    if (__syncthreads_or(differs) && threadIdx.x == 0) state[CHANGED] = 1;
}

/* A thread for each row: whether its centre can have ceased to be the nearest. If so, all
   distances of the row are computed anew by the warp. */
extern "C" __global__ void sift(const T* X, const T* turned, const T* norms, const int n,
                                const int d, const int k, const int* before, const double* shifts,
                                const double* squares, int* labels, float* leads, int* state) {
    if (state[HALTED]) return;
    const long long row = blockIdx.x * (long long)blockDim.x + threadIdx.x;
    const int lane = threadIdx.x % 32;
    const Shifts moved = all_shifts(shifts, k);
    int doubted = 0;
    if (row < n) {
        const int label = before[row];
        const float left =
            __double2float_rd(leads[row] - moved.cost(sqrt(shifts[label]), label));
        doubted = !(left > 0);
        leads[row] = left;
        labels[row] = label;
    }
    unsigned waiting = __ballot_sync(0xffffffffu, doubted);
    if (lane == 0 && waiting) atomicAdd(state + DOUBTED, __popc(waiting));
    int differs = 0;
    while (waiting) {
        const int which = __ffs(waiting) - 1;
        waiting &= waiting - 1;
        const long long here = row - lane + which;
        double least = FAR_AWAY, next = FAR_AWAY, heaviest = 0;
        int nearest = 0;
        for (int start = 0; start < k; start += 32) {
            const int c = start + lane;
            const bool there = c < k;
            double product = 0;
            for (int f0 = 0; f0 < d; f0 += 32) {
                const T value = f0 + lane < d ? X[here * d + f0 + lane] : (T)0;
                const int stop = d - f0 < 32 ? d - f0 : 32;
                for (int f = 0; f < stop; ++f) {
                    const double x = __shfl_sync(0xffffffffu, value, f);
                    if (there) product += x * turned[(f0 + f) * (long long)k + c];
                }
            }
            if (!there) continue;
            const double norm = norms[c], apart = norm - 2 * product;
            if (apart < least) { next = least; least = apart; nearest = c; }
            else if (apart < next) next = apart;
            if (norm > heaviest) heaviest = norm;
        }
        __syncwarp();
        for (int offset = 16; offset > 0; offset >>= 1) {
            const double other = __shfl_xor_sync(0xffffffffu, least, offset);
            const double second = __shfl_xor_sync(0xffffffffu, next, offset);
            const double norm = __shfl_xor_sync(0xffffffffu, heaviest, offset);
            const int center = __shfl_xor_sync(0xffffffffu, nearest, offset);
            const bool better = other < least || (other == least && center < nearest);
            const double loser = better ? least : other;
            if (better) { least = other; nearest = center; }
            next = fmin(fmin(next, second), loser);
            heaviest = fmax(heaviest, norm);
        }
        if (lane == 0) {
            differs |= before[here] != nearest;
            labels[here] = nearest;
            leads[here] = lead(least, next, squares[here], heaviest, d);
        }
    }
    if (__syncthreads_or(differs) && threadIdx.x == 0) state[CHANGED] = 1;
}

/* Sums of rows by label, of some labels and 32 features in a block of (32, groups) threads. Each
   group of threads takes rows of its own and has sums of its own, which no other thread writes
   to. Given the labels before, sums of the block that are those by these labels are brought up to
   date by the rows that have changed theirs. */
#define AHEAD 8
extern "C" __global__ void __launch_bounds__(256, 4) accumulate(
    const T* X, const int* before, const int* labels, const T* weight, const int n, const int d,
    const int k, const int some, const int rows, const int* state, double* partial,
    double* mass_partial)
{
    extern __shared__ double shared[];
    if (state && state[HALTED]) return;
    const int lane = threadIdx.x, group = threadIdx.y, groups = blockDim.y;
    const int thread = group * 32 + lane, threads = groups * 32;
    const int feature = blockIdx.x * 32 + lane;
    const bool inside = feature < d, counts = blockIdx.x == 0 && lane == 0;
    const int lowest = blockIdx.z * some, here = k - lowest < some ? k - lowest : some;
    const long long first = blockIdx.y * (long long)rows;
    const long long stop = first + rows < n ? first + rows : n;
    if (before) {
        int differs = 0;
        for (long long row = first + thread; row < stop; row += threads)
            differs |= before[row] != labels[row];
        if (!__syncthreads_or(differs)) return;
    }
    double* sums = shared + group * some * 32;
    double* mass = shared + groups * some * 32 + group * some;
    for (int i = thread; i < groups * some * 33; i += threads) shared[i] = 0;
    __syncthreads();
    for (long long row = first + group; row < stop; row += groups * AHEAD) {
        T values[AHEAD], weights[AHEAD];
        int to[AHEAD], from[AHEAD];
        #pragma unroll
        for (int i = 0; i < AHEAD; ++i) {
            const long long at = row + i * groups;
            const bool there = at < stop;
            int new_label = !there ? -1 : labels ? labels[at] : 0;
            int old_label = there && before ? before[at] : -1;
            if (new_label == old_label) new_label = old_label = -1;
            to[i] = new_label - lowest;
            from[i] = old_label - lowest;
            const bool adds = to[i] >= 0 && to[i] < here, takes = from[i] >= 0 && from[i] < here;
            if (!adds) to[i] = -1;
            if (!takes) from[i] = -1;
            values[i] = (adds || takes) && inside ? X[at * d + feature] : (T)0;
            weights[i] = (adds || takes) && weight ? weight[at] : (T)1;
        }
        #pragma unroll
        for (int i = 0; i < AHEAD; ++i) {
            const double value = (double)values[i] * weights[i];
            if (to[i] >= 0) {
                sums[to[i] * 32 + lane] += value;
                if (counts) mass[to[i]] += weights[i];
            }
            if (from[i] >= 0) {
                sums[from[i] * 32 + lane] -= value;
                if (counts) mass[from[i]] -= weights[i];
            }
        }
    }
    __syncthreads();
    for (int i = thread; i < here * 32; i += threads) {
        const int column = blockIdx.x * 32 + i % 32;
        if (column >= d) continue;
        double* target = partial + (blockIdx.y * (long long)k + lowest + i / 32) * d + column;
        double sum = before ? *target : 0;
        for (int g = 0; g < groups; ++g) sum += shared[g * some * 32 + i];
        *target = sum;
    }
    if (blockIdx.x == 0)
        for (int c = thread; c < here; c += threads) {
            double* target = mass_partial + blockIdx.y * (long long)k + lowest + c;
            double sum = before ? *target : 0;
            for (int g = 0; g < groups; ++g) sum += shared[groups * some * 32 + g * some + c];
            *target = sum;
        }
}

/* A block of (128, 8) threads for each centre; the last block to end closes the round. */
extern "C" __global__ void update(const double* partial, const double* mass_partial,
                                  const int parts, const int d, const int k, const T* centers,
                                  const double* tol, double* sums, double* mass, T* moved,
                                  T* turned, T* norms, double* shifts, int* state) {
    __shared__ double part[8][128];
    __shared__ bool last;
    if (state[HALTED]) return;
    const int c = blockIdx.x, lane = threadIdx.x, slice = threadIdx.y;
    const int thread = slice * 128 + lane;
    double heavy = 0;
    for (int p = thread; p < parts; p += 1024) heavy += mass_partial[p * (long long)k + c];
    part[slice][lane] = heavy;
    __syncthreads();
    for (int half = 512; half > 0; half /= 2) {
        if (thread < half) (&part[0][0])[thread] += (&part[0][0])[thread + half];
        __syncthreads();
    }
    heavy = part[0][0];
    __syncthreads();
    double shift = 0, norm = 0;
    for (int start = 0; start < d; start += 128) {
        const int f = start + lane;
        double sum = 0;
        if (f < d)
            for (int p = slice; p < parts; p += 8) sum += partial[(p * (long long)k + c) * d + f];
        part[slice][lane] = sum;
        __syncthreads();
        if (slice == 0 && f < d) {
            for (int other = 1; other < 8; ++other) sum += part[other][lane];
            sums[c * (long long)d + f] = sum;
            const T before = centers[c * (long long)d + f];
            const T now = heavy > 0 ? (T)(sum / heavy) : before;
            moved[c * (long long)d + f] = now;
            turned[f * (long long)k + c] = now;
            shift += ((double)now - before) * ((double)now - before);
            norm += (double)now * now;
        }
        __syncthreads();
    }
    if (slice == 0) { part[0][lane] = shift; part[1][lane] = norm; }
    __syncthreads();
    for (int half = 64; half > 0; half /= 2) {
        if (slice < 2 && lane < half) part[slice][lane] += part[slice][lane + half];
        __syncthreads();
    }
    if (thread == 0) {
        shifts[c] = part[0][0];
        norms[c] = (T)part[1][0];
        mass[c] = heavy;
        __threadfence();
        last = atomicAdd(state + TICKET, 1) == k - 1;
    }
    __syncthreads();
    if (!last) return;
    __threadfence();
    double total = 0;
    int empty = 0;
    for (int other = thread; other < k; other += 1024) {
        total += ((volatile double*)shifts)[other];
        empty |= ((volatile double*)mass)[other] == 0;
    }
    part[slice][lane] = total;
    empty = __syncthreads_or(empty);
    for (int half = 512; half > 0; half /= 2) {
        if (thread < half) (&part[0][0])[thread] += (&part[0][0])[thread + half];
        __syncthreads();
    }
    if (thread) return;
    state[TICKET] = 0;
    state[ROUNDS] += 1;
    state[IN_DOUBT] = state[DOUBTED];
    state[DOUBTED] = 0;
    if (empty) { state[HALTED] = EMPTY; return; }
    if (!state[CHANGED]) state[HALTED] = SETTLED;
    else if (part[0][0] <= *tol) state[HALTED] = WITHIN_TOL;
    state[CHANGED] = 0;
}

/* Eight threads for each row: its weighted squared distance from its centre. */
extern "C" __global__ void apart(const T* X, const T* centers, const int* labels, const T* weight,
                                 const int n, const int d, double* partial, int* present) {
    __shared__ double shared[32];
    const int lane = threadIdx.x & 7, group = threadIdx.x >> 3, groups = blockDim.x >> 3;
    double total = 0;
    for (long long base = blockIdx.x * (long long)groups; base < n;
         base += gridDim.x * (long long)groups) {
        const long long row = base + group < n ? base + group : n - 1;
        const int label = labels[row];
        const T* here = X + row * d;
        const T* there = centers + label * (long long)d;
        double sum = 0;
        #pragma unroll 4
        for (int f = lane; f < d; f += 8) {
            const double difference = (double)here[f] - there[f];
            sum += difference * difference;
        }
        sum = of_eight(sum);
        if (lane == 0 && base + group < n) {
            total += weight ? sum * weight[row] : sum;
            present[label] = 1;
        }
    }
    total = of_block(total, shared);
    if (threadIdx.x == 0) partial[blockIdx.x] = total;
}
"""

_NAMES = ("centre", "square", "assign", "sift", "accumulate", "update", "apart")


def compiled(source: str, names: tuple[str, ...], dtype: Any, **constants: Any) -> SimpleNamespace:
    """Return kernels for rows of one dtype by their names."""
    import cupy

    constants["EPSILON"] = float(np.finfo(dtype).eps)
    constants["FAR_AWAY"] = "__longlong_as_double(0x7ff0000000000000LL)"
    head = [f"typedef {'float' if dtype == np.float32 else 'double'} T;"]
    head += [f"#define {name} {value}" for name, value in constants.items()]
    code = "\n".join([*head, _COMMON, source])
    module = cupy.RawModule(code=code, options=("--std=c++17",))
    return SimpleNamespace(**{name: module.get_function(name) for name in names})


@functools.cache
def _rounds(dtype: Any) -> SimpleNamespace:
    return compiled(_ROUNDS, _NAMES, dtype)


def kernels(dtype: Any) -> SimpleNamespace:
    """Return the kernels of the rounds for rows of `dtype`: each takes grid, block, arguments."""
    return _rounds(np.dtype(dtype))
