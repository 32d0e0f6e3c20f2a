"""What the trees of a random forest say of rows on the device."""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import numpy as np

__all__ = ["Voters", "joined", "voters", "voters_of_grown", "voters_of_trees", "votes"]

_LEAF = -1


class Voters(NamedTuple):
    """The nodes of trees as a walk from root to leaf wants them.

    Attributes
    ----------
    nodes : array of int32 of shape (n_nodes, 4)
        The bits of the threshold in float32, the feature, the left and the right child; the
        feature is -1 in a leaf.
    value : array of float64 of shape (n_nodes, n_values)
    roots : array of int32
    """

    nodes: Any
    value: Any
    roots: Any


def voters(
    feature: Any, threshold: Any, left: Any, right: Any, value: Any, roots: Any, xp: Any
) -> Voters:
    """Return the nodes of trees in the form for `votes`.

    Parameters
    ----------
    feature, left, right, roots : arrays of int
        Negative children make a leaf.
    threshold : array of float64
        No float32 lies between it and the largest one that is not above it, so that this one
        divides rows in float32 as well.
    value : array of float64 of shape (n_nodes, n_values)
    xp : module
        The array namespace.
    """
    near = threshold.astype(np.float32)
    below = xp.nextafter(near, np.float32(-np.inf))
    near = xp.where(near.astype(np.float64) > threshold, below, near)
    nodes = xp.empty((len(feature), 4), np.int32)
    nodes[:, 0] = near.view(np.int32)
    nodes[:, 1] = xp.where(left < 0, _LEAF, feature)
    nodes[:, 2] = left
    nodes[:, 3] = right
    return Voters(nodes, xp.ascontiguousarray(value, dtype=np.float64), roots.astype(np.int32))


def voters_of_grown(grown: Any, xp: Any) -> Voters:
    """Return the trees grown on the device."""
    value = grown.value if grown.value.ndim == 2 else grown.value[:, None]
    right = xp.where(grown.left < 0, -1, grown.left + 1)
    roots = xp.arange(grown.n_trees)
    return voters(grown.feature, grown.threshold, grown.left, right, value, roots, xp)


def voters_of_trees(trees: list[Any], xp: Any) -> Voters:
    """Return the trees of scikit-learn's for the device."""
    parts = [tree.tree_ for tree in trees]
    counts = np.array([part.node_count for part in parts])
    roots = np.concatenate([[0], np.cumsum(counts)[:-1]])
    shift = np.repeat(roots, counts)
    left, right = (
        np.concatenate([getattr(part, name) for part in parts])
        for name in ("children_left", "children_right")
    )
    leaf = left < 0
    value = np.concatenate([part.value[:, 0, :] for part in parts])
    return voters(
        xp.asarray(np.concatenate([part.feature for part in parts])),
        xp.asarray(np.concatenate([part.threshold for part in parts])),
        xp.asarray(np.where(leaf, -1, left + shift)),
        xp.asarray(np.where(leaf, -1, right + shift)),
        xp.asarray(value),
        xp.asarray(roots),
        xp,
    )


def joined(parts: list[Voters], xp: Any) -> Voters:
    """Return the trees of all `parts`."""
    if len(parts) == 1:
        return parts[0]
    nodes, roots, first = [], [], 0
    for part in parts:
        shifted = part.nodes.copy()
        shifted[:, 2:] += np.int32(first) * (shifted[:, 1:2] != _LEAF)
        nodes.append(shifted)
        roots.append(part.roots + np.int32(first))
        first += len(shifted)
    value = xp.concatenate([part.value for part in parts])
    return Voters(xp.concatenate(nodes), value, xp.concatenate(roots))


@functools.cache
def _kernel() -> Any:
    import cupy

    return cupy.RawKernel(
        r"""
        typedef long long i64;
        extern "C" __global__ void votes(
            const float* X, i64 n, i64 d, const int4* nodes, const double* value, int n_values,
            const int* roots, int n_trees, const unsigned char* skip, int skips, double* sums)
        {
            const i64 row = (i64)blockIdx.x * blockDim.x + threadIdx.x;
            if (row >= n) return;
            const float* x = X + row * d;
            double single = 0;
            for (int tree = 0; tree < n_trees; ++tree) {
                if (skips && skip[tree * n + row]) continue;
                int at = roots[tree];
                int4 node = nodes[at];
                while (node.y >= 0) {
                    at = x[node.y] <= __int_as_float(node.x) ? node.z : node.w;
                    node = nodes[at];
                }
                if (n_values == 1) single += value[at];
                else for (int k = 0; k < n_values; ++k)
                    sums[row * n_values + k] += value[(i64)at * n_values + k];
            }
            if (n_values == 1) sums[row] = single;
        }
        """,
        "votes",
    )


def votes(X: Any, forest: Voters, xp: Any, skip: Any = None) -> Any:
    """Return the sums, tree after tree, of the values of the leaf of each row.

    Parameters
    ----------
    X : array of float32 of shape (n_samples, n_features)
    forest : Voters
    xp : module
        The array namespace.
    skip : array of bool of shape (n_trees, n_samples), default=None
        Rows of which a tree has no say.

    Returns
    -------
    sums : array of float64 of shape (n_samples, n_values)
    """
    n, n_values = len(X), forest.value.shape[1]
    sums = xp.zeros((n, n_values))
    if hasattr(xp, "RawKernel"):
        X = xp.ascontiguousarray(X)
        args = (
            X,
            np.int64(n),
            np.int64(X.shape[1]),
            forest.nodes,
            forest.value,
            np.int32(n_values),
            forest.roots,
            np.int32(len(forest.roots)),
            forest.roots if skip is None else skip,
            np.int32(skip is not None),
            sums,
        )
        _kernel()((-(-n // 128),), (128,), args)
        return sums
    return xp.asarray(_votes(np.asarray(X), [np.asarray(part) for part in forest], skip))


def _votes(X: np.ndarray, forest: list[np.ndarray], skip: Any) -> np.ndarray:
    (nodes, values, roots), rows = forest, np.arange(len(X))
    sums = np.zeros((len(X), values.shape[1]))
    threshold = np.ascontiguousarray(nodes[:, 0]).view(np.float32)
    feature, left, right = nodes[:, 1:].T
    for tree, root in enumerate(roots):
        at = np.full(len(X), root)
        while (feature[at] >= 0).any():
            goes_left = X[rows, np.maximum(feature[at], 0)] <= threshold[at]
            below = np.where(goes_left, left[at], right[at])
            at = np.where(feature[at] >= 0, below, at)
        value = values[at]
        sums = sums + (
            value if skip is None else np.where(np.asarray(skip[tree])[:, None], 0.0, value)
        )
    return sums
