"""The kernels that grow trees. `forest_kernels` says what they do, and does it in NumPy, too."""

from __future__ import annotations

import functools
from typing import Any

__all__ = ["WARPS", "launch", "on_device"]

#: How many warps a block has, where each has a node to itself.
WARPS = 4

_SOURCE = r"""
typedef long long i64;
typedef unsigned long long u64;
#define FULL 0xffffffffu

__device__ i64 scanned(i64 value, int lane) {
    for (int step = 1; step < 32; step <<= 1) {
        const i64 other = __shfl_up_sync(FULL, value, step);
        if (lane >= step) value += other;
    }
    return value;
}

__device__ u64 mixed(u64 value) {
    value += 0x9E3779B97F4A7C15ull;
    value = (value ^ (value >> 30)) * 0xBF58476D1CE4E5B9ull;
    value = (value ^ (value >> 27)) * 0x94D049BB133111EBull;
    return value ^ (value >> 31);
}

__device__ double times_log(double value) { return value > 0 ? value * log(value) : 0.0; }

extern "C" __global__ void arranged(
    const int* by_value, i64 n_samples, const int* place, const i64* start, i64 n_trees,
    i64 n_features, i64 stride, int* order)
{
    const int lane = threadIdx.x & 31;
    const i64 task = (i64)blockIdx.x * (blockDim.x >> 5) + (threadIdx.x >> 5);
    if (task >= n_trees * n_features) return;
    const i64 feature = task / n_trees, tree = task % n_trees;
    const int* rows = by_value + feature * n_samples;
    int* to = order + feature * stride + start[tree];
    for (i64 tile = 0; tile < n_samples; tile += 32) {
        const int id = tile + lane < n_samples
            ? place[tree * n_samples + rows[tile + lane]] : -1;
        const unsigned drawn = __ballot_sync(FULL, id >= 0);
        if (id >= 0) to[__popc(drawn & ((1u << lane) - 1))] = id;
        to += __popc(drawn);
    }
}

extern "C" __global__ void candidates(
    const int* order, i64 stride, const int* row, const float* X, i64 n_samples,
    const int* start, const int* size, const u64* key, i64 n_nodes, int n_features,
    int max_features, unsigned char* tried)
{
    const int lane = threadIdx.x & 31;
    const i64 node = (i64)blockIdx.x * (blockDim.x >> 5) + (threadIdx.x >> 5);
    if (node >= n_nodes) return;
    unsigned char* varies = tried + node * n_features;
    const i64 first = start[node], last = first + size[node] - 1;
    for (int f = lane; f < n_features; f += 32) {
        const int* ids = order + f * stride;
        const float* column = X + f * n_samples;
        varies[f] = column[row[ids[last]]] > column[row[ids[first]]] + 1e-7f;
    }
    if (max_features >= n_features) return;
    __syncwarp();
    // in the order of their keys; 2 marks those that are tried
    u64 passed = 0;
    int n_varying = 0;
    for (int count = 0; count < n_features; ++count) {
        if (count >= max_features && n_varying > 0) break;
        u64 least = ~0ull;
        int which = -1;
        for (int f = lane; f < n_features; f += 32) {
            const u64 own = mixed(key[node] ^ mixed(f));
            if ((count == 0 || own > passed) && (which < 0 || own < least)) {
                least = own; which = f;
            }
        }
        for (int step = 16; step > 0; step >>= 1) {
            const u64 other = __shfl_xor_sync(FULL, least, step);
            const int other_which = __shfl_xor_sync(FULL, which, step);
            if (other_which >= 0 && (which < 0 || other < least)) {
                least = other; which = other_which;
            }
        }
        passed = least;
        const bool found = varies[which] != 0;
        __syncwarp();
        if (found && lane == 0) varies[which] = 2;
        n_varying += found;
        __syncwarp();
    }
    for (int f = lane; f < n_features; f += 32) varies[f] = varies[f] == 2;
}

extern "C" __global__ void best_splits(
    const int* order, i64 stride, const int* row, const float* X, i64 n_samples,
    const i64* weight, const i64* moment, const int* code, int n_classes,
    const int* start, const int* size, const i64* node_weight, const i64* node_moment,
    const i64* node_classes, const int* pair_node, const int* pair_feature, i64 n_pairs,
    int n_features, int criterion, int min_leaf, double min_weight, double least,
    int* n_left, double* gain, i64* weight_left, i64* moment_left)
{
    extern __shared__ i64 shared[];
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    const i64 pair = (i64)blockIdx.x * (blockDim.x >> 5) + warp;
    if (pair >= n_pairs) return;
    const i64 node = pair_node[pair], feature = pair_feature[pair];
    const int* ids = order + feature * stride + start[node];
    const float* column = X + feature * n_samples;
    const int count = size[node];
    const i64 total = node_weight[node];
    const i64 whole = n_classes ? 0 : node_moment[node];
    i64* carried = shared + (i64)warp * n_classes;
    for (int c = lane; c < n_classes; c += 32) carried[c] = 0;
    __syncwarp();

    i64 weight_before = 0, moment_before = 0, best_weight = 0, best_moment = 0;
    double best = __longlong_as_double(0xfff0000000000000LL);
    int best_left = 0;
    for (int tile = 0; tile < count; tile += 32) {
        const int i = tile + lane;
        const bool inside = i < count;
        const int id = inside ? ids[i] : 0;
        const int r = inside ? row[id] : 0;
        const i64 w = inside ? weight[id] : 0;
        const float x = inside ? column[r] : 0.0f;
        float next = __shfl_down_sync(FULL, x, 1);
        if (lane == 31 && i + 1 < count) next = column[row[ids[i + 1]]];
        const i64 left = weight_before + scanned(w, lane);
        weight_before = __shfl_sync(FULL, left, 31);
        const i64 right = total - left;
        bool valid = i + 1 < count && next > x + 1e-7f && i + 1 >= min_leaf
            && count - i - 1 >= min_leaf && left >= min_weight && right >= min_weight;
        i64 sum = 0;
        double found;
        if (n_classes) {
            const int mine = inside ? code[r] : -1;
            double a = 0, b = 0;
            for (int c = 0; c < n_classes; ++c) {
                const i64 l = carried[c] + scanned(mine == c ? w : 0, lane);
                __syncwarp();
                if (lane == 31) carried[c] = l;
                __syncwarp();
                const double p = l, q = node_classes[node * n_classes + c] - l;
                if (criterion == 0) { a += p * p; b += q * q; }
                else { a += times_log(p); b += times_log(q); }
            }
            const double p = left, q = right;
            found = criterion == 0 ? a / p + b / q
                : (a - times_log(p)) + (b - times_log(q));
        } else {
            sum = moment_before + scanned(inside ? moment[id] : 0, lane);
            moment_before = __shfl_sync(FULL, sum, 31);
            const double l = sum, r_ = whole - sum, p = left, q = right;
            if (criterion == 2) {
                const double d = l * q - r_ * p;
                found = d * d / (p * q);
            } else {
                valid = valid && l > least && r_ > least;
                found = valid ? l * log(l / p) + r_ * log(r_ / q) : 0.0;
            }
        }
        if (valid && found > best) {
            best = found; best_left = i + 1; best_weight = left; best_moment = sum;
        }
    }
    for (int step = 16; step > 0; step >>= 1) {
        const double other = __shfl_xor_sync(FULL, best, step);
        const int other_left = __shfl_xor_sync(FULL, best_left, step);
        const i64 other_weight = __shfl_xor_sync(FULL, best_weight, step);
        const i64 other_moment = __shfl_xor_sync(FULL, best_moment, step);
        if (other > best || (other == best && other_left < best_left)) {
            best = other; best_left = other_left;
            best_weight = other_weight; best_moment = other_moment;
        }
    }
    if (lane == 0) {
        const i64 at = node * n_features + feature;
        gain[at] = best; n_left[at] = best_left;
        weight_left[at] = best_weight; moment_left[at] = best_moment;
    }
}

extern "C" __global__ void choose(
    const int* n_left, const double* gain, const i64* weight_left, const i64* moment_left,
    const u64* key, i64 n_nodes, int n_features,
    int* best_feature, int* best_left, double* best_gain, i64* best_weight, i64* best_moment)
{
    const i64 node = (i64)blockIdx.x * blockDim.x + threadIdx.x;
    if (node >= n_nodes) return;
    const double none = __longlong_as_double(0xfff0000000000000LL);
    double best = none;
    int which = -1;
    for (int f = 0; f < n_features; ++f) {
        const double found = gain[node * n_features + f];
        if (found == none) continue;
        // of equals, the one that comes first by chance
        if (which < 0 || found > best || (found == best
                && mixed(key[node] ^ mixed(f)) < mixed(key[node] ^ mixed(which)))) {
            best = found; which = f;
        }
    }
    const i64 at = node * n_features + (which < 0 ? 0 : which);
    best_feature[node] = which;
    best_gain[node] = best;
    best_left[node] = which < 0 ? 0 : n_left[at];
    best_weight[node] = which < 0 ? 0 : weight_left[at];
    best_moment[node] = which < 0 ? 0 : moment_left[at];
}

extern "C" __global__ void children(
    const int* order, i64 stride, const int* row, const float* X, i64 n_samples,
    const int* start, const int* size, const i64* weight, const i64* moment, const int* tree,
    const u64* key, const int* feature, const int* n_left, const double* gain,
    const i64* weight_left, const i64* moment_left, const i64* which, i64 n_splits,
    int has_moment, double* threshold, int* child_tree, int* child_size, i64* child_weight,
    i64* child_moment, u64* child_key)
{
    const i64 split = (i64)blockIdx.x * blockDim.x + threadIdx.x;
    if (split >= n_splits) return;
    const i64 node = which[split], left = 2 * split, right = left + 1;
    const int* ids = order + feature[node] * stride + start[node] + n_left[node];
    const float* column = X + feature[node] * n_samples;
    threshold[split] = (double)column[row[ids[-1]]] / 2.0 + (double)column[row[ids[0]]] / 2.0;
    child_tree[left] = child_tree[right] = tree[node];
    child_size[left] = n_left[node];
    child_size[right] = size[node] - n_left[node];
    child_weight[left] = weight_left[node];
    child_weight[right] = weight[node] - weight_left[node];
    if (has_moment) {
        child_moment[left] = moment_left[node];
        child_moment[right] = moment[node] - moment_left[node];
    }
    child_key[left] = mixed(key[node]);
    child_key[right] = mixed(key[node] ^ 0x9E3779B97F4A7C15ull);
}

extern "C" __global__ void divide(
    const int* order, i64 stride, const int* node_of, i64 n_places, const int* start,
    const int* feature, const int* n_left, const int* split_index, const int* row,
    const i64* weight, const double* y, const int* code, int n_classes,
    unsigned char* goes_left, unsigned char* mixed, u64* child_classes)
{
    const i64 place = (i64)blockIdx.x * blockDim.x + threadIdx.x;
    if (place >= n_places) return;
    const int node = node_of[place];
    if (split_index[node] < 0) return;
    const int* ids = order + (i64)feature[node] * stride;
    const int id = ids[place], edge = start[node] + n_left[node];
    const bool left = place < edge;
    goes_left[id] = left;
    const i64 child = 2 * (i64)split_index[node] + !left;
    if (n_classes)
        atomicAdd(child_classes + child * n_classes + code[row[id]],
                  (u64)weight[id]);
    else if (y[row[id]] != y[row[ids[left ? start[node] : edge]]])
        mixed[child] = 1;
}

extern "C" __global__ void move(
    const int* order, int* order_out, i64 stride, i64 stride_out,
    const unsigned char* goes_left,
    const int* start, const int* size, const int* to_left, const int* to_right,
    const int* leaf_left, const int* leaf_right, const int* node_left, const int* node_right,
    i64 n_nodes, i64 n_features, int* node_of, int* leaf_of)
{
    const int lane = threadIdx.x & 31;
    const i64 task = (i64)blockIdx.x * (blockDim.x >> 5) + (threadIdx.x >> 5);
    if (task >= n_nodes * n_features) return;
    const i64 feature = task / n_nodes, node = task % n_nodes;
    const int left_to = to_left[node], right_to = to_right[node];
    if (feature > 0 && left_to < 0 && right_to < 0) return;
    const int* from = order + feature * stride + start[node];
    int* to = order_out + feature * stride_out;
    const int count = size[node];
    int n_left = 0, n_right = 0;
    for (int tile = 0; tile < count; tile += 32) {
        const bool inside = tile + lane < count;
        const int id = inside ? from[tile + lane] : 0;
        const bool left = inside && goes_left[id], right = inside && !left;
        const unsigned lefts = __ballot_sync(FULL, left), rights = __ballot_sync(FULL, right);
        const unsigned below = (1u << lane) - 1;
        if (inside) {
            const int first = left ? left_to : right_to;
            if (first >= 0) {
                const int place = first + (left ? n_left + __popc(lefts & below)
                                                : n_right + __popc(rights & below));
                to[place] = id;
                if (feature == 0) node_of[place] = left ? node_left[node] : node_right[node];
            } else if (feature == 0) {
                leaf_of[id] = left ? leaf_left[node] : leaf_right[node];
            }
        }
        n_left += __popc(lefts); n_right += __popc(rights);
    }
}

extern "C" __global__ void summed(
    const int* group, const i64* value, i64 n, u64* sums)
{
    const i64 i = (i64)blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) atomicAdd(sums + group[i], (u64)value[i]);
}
"""


def on_device(xp: Any) -> bool:
    """Whether `xp` is CuPy rather than NumPy."""
    return hasattr(xp, "RawModule")


@functools.cache
def _module() -> Any:
    import cupy

    # contraction to fused operations would break ties between mirrored splits
    return cupy.RawModule(code=_SOURCE, options=("--std=c++14", "--fmad=false"))


def launch(name: str, n_threads: int, args: tuple, *, block: int, shared: int = 0) -> None:
    """Run a kernel with so many threads, none where there are none."""
    if n_threads:
        grid = -(-n_threads // block)
        _module().get_function(name)((grid,), (block,), args, shared_mem=shared)
