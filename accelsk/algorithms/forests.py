"""What the trees of a fitted forest say of rows on the device."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

__all__ = ["Nodes", "leaf_sums", "packed"]


@dataclass(frozen=True)
class Nodes:
    """The nodes of all trees, one tree after the other.

    Attributes
    ----------
    feature : array of int64
        -1 in a leaf.
    threshold : array of float64
        A row goes to the left where its feature is at most that.
    left, right : array of int64
    value : array of float64
        Of each leaf.
    roots : array of int64 of shape (n_trees,)
    depth : int
        The most nodes on a path.
    """

    feature: Any
    threshold: Any
    left: Any
    right: Any
    value: Any
    roots: Any
    depth: int


def packed(
    trees: Sequence[Any], features: Sequence[Any], values: Sequence[np.ndarray], xp: Any
) -> Nodes:
    """Return the nodes of scikit-learn's trees on the device.

    Parameters
    ----------
    trees : sequence of sklearn.tree._tree.Tree
    features : sequence of ndarray of int
        The column of X that each tree takes for each of its features.
    values : sequence of ndarray of shape (n_nodes,)
        Of the nodes of each tree; those of the leaves count.
    xp : module
        The array namespace.
    """
    counts = np.array([tree.node_count for tree in trees])
    roots = np.concatenate([[0], np.cumsum(counts)[:-1]])
    shift = np.repeat(roots, counts)
    left = np.concatenate([tree.children_left for tree in trees])
    right = np.concatenate([tree.children_right for tree in trees])
    leaf = left < 0
    feature = np.concatenate(
        [
            columns[np.maximum(tree.feature, 0)]
            for tree, columns in zip(trees, features, strict=True)
        ]
    )
    return Nodes(
        feature=xp.asarray(np.where(leaf, -1, feature).astype(np.int64)),
        threshold=xp.asarray(np.concatenate([tree.threshold for tree in trees])),
        left=xp.asarray(np.where(leaf, 0, left + shift).astype(np.int64)),
        right=xp.asarray(np.where(leaf, 0, right + shift).astype(np.int64)),
        value=xp.asarray(np.concatenate(values)),
        roots=xp.asarray(roots.astype(np.int64)),
        depth=max(tree.max_depth for tree in trees),
    )


@functools.cache
def _kernel() -> Any:
    import cupy

    return cupy.ElementwiseKernel(
        "raw float32 X, raw int64 feature, raw float64 threshold, raw int64 left, "
        "raw int64 right, raw float64 value, raw int64 roots, int64 n_trees, int64 d, int64 row",
        "float64 total",
        """
        double sum = 0;
        for (long long tree = 0; tree < n_trees; ++tree) {
            long long node = roots[tree];
            while (feature[node] >= 0)
                node = (double)X[row * d + feature[node]] <= threshold[node]
                    ? left[node] : right[node];
            sum += value[node];
        }
        total = sum;
        """,
        "accelsk_leaf_sums",
    )


def leaf_sums(X: Any, nodes: Nodes, xp: Any) -> Any:
    """Return the sum over all trees of the value of the leaf of each row, in float64.

    Parameters
    ----------
    X : array of shape (n_samples, n_features), dtype=float32
        In C order.
    nodes : Nodes
    xp : module
        The array namespace.
    """
    rows = xp.arange(len(X))
    if hasattr(xp, "ElementwiseKernel"):
        return _kernel()(
            X,
            nodes.feature,
            nodes.threshold,
            nodes.left,
            nodes.right,
            nodes.value,
            nodes.roots,
            len(nodes.roots),
            X.shape[1],
            rows,
        )
    total = xp.zeros(len(X))
    for root in nodes.roots:
        node = xp.full(len(X), int(root))
        for _ in range(nodes.depth):
            feature = nodes.feature[node]
            goes_left = X[rows, xp.maximum(feature, 0)] <= nodes.threshold[node]
            child = xp.where(goes_left, nodes.left[node], nodes.right[node])
            node = xp.where(feature < 0, node, child)
        total = total + nodes.value[node]
    return total
