"""The trees of a forest as scikit-learn has them, from what cuML exports."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from accelsk import _sklearn

__all__ = ["completed"]

_NO_CHILD = -1


def _impurity(value: np.ndarray, criterion: str) -> np.ndarray:
    """Return the impurity of class distributions of shape (n_nodes, n_classes)."""
    if criterion == "gini":
        return 1 - (value**2).sum(axis=1)
    logs = np.log2(value, out=np.zeros_like(value), where=value > 0)
    return -(value * logs).sum(axis=1)


def _deviance(mean: np.ndarray) -> np.ndarray:
    return mean * np.log(mean, out=np.zeros_like(mean), where=mean > 0)


#: The decrease of a regression criterion by a split, from the share of the left side and the
#: means of the left side, the right side and both.
_BETWEEN: dict[str, Callable[..., np.ndarray]] = {
    "squared_error": lambda share, a, b, both: share * (1 - share) * (a - b) ** 2,
    "poisson": lambda share, a, b, both: (
        share * _deviance(a) + (1 - share) * _deviance(b) - _deviance(both)
    ),
}


def _levels(left: np.ndarray, right: np.ndarray) -> list[np.ndarray]:
    """Return the inner nodes, the deepest level first."""
    levels, nodes = [], np.array([0])
    while len(nodes := nodes[left[nodes] != _NO_CHILD]):
        levels.append(nodes)
        nodes = np.concatenate([left[nodes], right[nodes]])
    return levels[::-1]


def completed(tree: Any, criterion: str, class_weight: np.ndarray | None = None) -> Any:
    """Return `tree` with values, weights and impurities in every node.

    cuML's trees hold a value in each leaf and a count in each node, nothing else. From these
    follow the values, weighted counts and impurities on which ``feature_importances_``, pruning
    and plots of trees rest. In a regression tree the rows of one leaf count as equal, which
    leaves the decrease of impurity by each split exact.

    Parameters
    ----------
    tree : sklearn.tree._tree.Tree
        With one output.
    criterion : {"gini", "entropy", "squared_error", "poisson"}
    class_weight : ndarray of shape (n_classes,), default=None
        The weight of a row of each class; the leaves hold weighted shares.
    """
    state = tree.__getstate__()
    nodes, values = state["nodes"].copy(), state["values"][:, 0, :].copy()
    left, right = nodes["left_child"], nodes["right_child"]
    count = nodes["n_node_samples"].astype(np.float64)
    if class_weight is None:
        weight = count
    else:
        # a share p of weight is a share p / w of rows
        rows = np.divide(values, class_weight, out=np.zeros_like(values), where=class_weight > 0)
        total = rows.sum(axis=1)
        weight = np.divide(count, total, out=np.zeros_like(count), where=total > 0)
    spread = np.zeros(len(nodes))
    for level in _levels(left, right):
        a, b = left[level], right[level]
        weight[level] = weight[a] + weight[b]
        share_a = (weight[a] / weight[level])[:, None]
        values[level] = share_a * values[a] + (1 - share_a) * values[b]
        if criterion in _BETWEEN:
            share = share_a[:, 0]
            between = _BETWEEN[criterion](share, values[a, 0], values[b, 0], values[level, 0])
            spread[level] = between + share * spread[a] + (1 - share) * spread[b]
    nodes["weighted_n_node_samples"] = weight
    nodes["impurity"] = spread if criterion in _BETWEEN else _impurity(values, criterion)
    inner = left != _NO_CHILD
    # with no missing values in training, scikit-learn sends them to the larger side
    nodes["missing_go_to_left"] = 0
    nodes["missing_go_to_left"][inner] = count[left[inner]] > count[right[inner]]
    nodes["feature"][~inner] = nodes["threshold"][~inner] = -2
    result = _sklearn.Tree(tree.n_features, tree.n_classes, tree.n_outputs)
    result.__setstate__({**state, "nodes": nodes, "values": values[:, None, :]})
    return result
