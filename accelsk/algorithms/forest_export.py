"""The trees of a forest as scikit-learn has them, from those grown on the device."""

from __future__ import annotations

from numbers import Integral
from typing import Any

import numpy as np
from sklearn.base import clone

from accelsk import _sklearn
from accelsk.algorithms.forest_growth import Grown
from accelsk.device.transfer import to_host

__all__ = ["exported", "n_features_tried"]

_NONE = -1
_UNDEFINED = -2


def n_features_tried(max_features: Any, n_features: int) -> int:
    """Return how many features a split looks at, as scikit-learn resolves ``max_features``."""
    if max_features is None:
        return n_features
    if max_features in ("sqrt", "log2"):
        return max(1, int(getattr(np, max_features)(n_features)))
    if isinstance(max_features, Integral):
        return int(max_features)
    return max(1, int(max_features * n_features))


def exported(grown: Grown, forest: Any, seeds: list[int], n_classes: int | None) -> list[Any]:
    """Return the fitted trees with all that scikit-learn's own would have.

    Parameters
    ----------
    grown : Grown
    forest : BaseForest
        Whose hyperparameters the trees get.
    seeds : list of int
    n_classes : int or None
        None in a regression.
    """
    template = clone(forest.estimator).set_params(
        **{name: getattr(forest, name) for name in forest.estimator_params}
    )
    fitted: dict[str, Any] = {
        "n_features_in_": forest.n_features_in_,
        "n_outputs_": 1,
        "max_features_": n_features_tried(template.max_features, forest.n_features_in_),
    }
    if n_classes is not None:
        fitted |= {
            "n_classes_": np.int64(n_classes),
            "classes_": np.arange(n_classes, dtype=np.float64),
        }
    parameters, trees = template.get_params(deep=False), []
    for seed, tree in zip(seeds, _trees(grown, forest.n_features_in_, n_classes), strict=True):
        one = type(template)(**{**parameters, "random_state": seed})
        one.__dict__.update(fitted, tree_=tree)
        trees.append(one)
    return trees


def _trees(grown: Grown, n_features: int, n_classes: int | None) -> list[Any]:
    """Return the nodes as scikit-learn numbers them: a node, what is left of it, what is right."""
    tree, size, feature, left = (
        to_host(getattr(grown, name)).astype(np.intp)
        for name in ("tree", "size", "feature", "left")
    )
    levels = [np.arange(*edges) for edges in zip(grown.levels[:-1], grown.levels[1:], strict=True)]
    inner = [nodes[left[nodes] >= 0] for nodes in levels]
    below = np.ones(len(tree), np.intp)  # how many nodes a branch has
    for nodes in inner[::-1]:
        below[nodes] += below[left[nodes]] + below[left[nodes] + 1]
    number, depth = np.zeros((2, len(tree)), np.intp)
    for nodes in inner:
        children = left[nodes]
        number[children] = number[nodes] + 1
        number[children + 1] = number[nodes] + 1 + below[children]
        depth[children] = depth[children + 1] = depth[nodes] + 1
    roots = levels[0]
    ends = np.cumsum(below[roots])
    place = (ends - below[roots])[tree] + number

    blank = _sklearn.Tree(n_features, np.array([n_classes or 1], np.intp), 1)
    nodes = np.zeros(len(tree), blank.__getstate__()["nodes"].dtype)
    is_inner = left >= 0
    child = np.maximum(left, 0)
    columns = {
        "left_child": np.where(is_inner, number[child], _NONE),
        "right_child": np.where(is_inner, number[np.minimum(child + 1, len(tree) - 1)], _NONE),
        "feature": np.where(is_inner, feature, _UNDEFINED),
        "threshold": to_host(grown.threshold),
        "impurity": to_host(grown.impurity),
        "n_node_samples": size,
        "weighted_n_node_samples": to_host(grown.weight),
        # with no missing values in training, scikit-learn sends them to the larger side
        "missing_go_to_left": is_inner & (2 * size[child] > size),
    }
    for name, column in columns.items():
        nodes[name][place] = column
    value = to_host(grown.value).reshape(len(tree), 1, -1)
    values = np.empty_like(value)
    values[place] = value
    deepest = np.zeros(len(roots), np.intp)
    np.maximum.at(deepest, tree, depth)
    trees = []
    for first, end, most in zip(ends - below[roots], ends, deepest, strict=True):
        one = _sklearn.Tree(n_features, np.array([n_classes or 1], np.intp), 1)
        one.__setstate__(
            {
                "max_depth": int(most),
                "node_count": int(end - first),
                "nodes": nodes[first:end].copy(),
                "values": values[first:end].copy(),
            }
        )
        trees.append(one)
    return trees
