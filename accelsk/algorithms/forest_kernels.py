"""The steps of growing trees: on the device by kernels, elsewhere by their twins in NumPy.

The rows of a node lie next to each other in the order of every feature, so one warp walks over
one node in the order of one feature. All sums are of integers: they do not depend on the order
in which they are taken, so that two fits give the same trees to the last bit.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from accelsk.algorithms import forest_twins as twins
from accelsk.algorithms.forest_cuda import WARPS, launch, on_device
from accelsk.algorithms.forest_level import Children, Level, Rows, Splits

__all__ = [
    "CRITERIA",
    "arranged",
    "best_splits",
    "candidates",
    "children",
    "divide",
    "move",
    "summed",
]

#: The criteria by the number that the kernels know them by.
CRITERIA = {"gini": 0, "entropy": 1, "squared_error": 2, "poisson": 3}


def _plain(value: Any) -> Any:
    """Return arrays as NumPy's own, where something else stands in for CuPy's."""
    if isinstance(value, np.ndarray):
        return np.asarray(value)
    if isinstance(value, tuple):
        items = map(_plain, value)
        return type(value)(*items) if hasattr(value, "_fields") else tuple(items)
    return value


def _on(xp: Any, value: Any) -> Any:
    """Return what a twin gives as arrays of `xp`."""
    if isinstance(value, tuple):
        items = (_on(xp, item) for item in value)
        return type(value)(*items) if hasattr(value, "_fields") else tuple(items)
    return None if value is None else xp.asarray(value)


def _or(value: Any, other: Any) -> Any:
    """Return `other`, which a kernel will not look at, where there is no value."""
    return other if value is None else value


def arranged(by_value: Any, place: Any, start: Any, n_places: int, xp: Any) -> Any:
    """Return the rows of each tree by the value of each feature, as an order for `Level`.

    Parameters
    ----------
    by_value : array of int32 of shape (n_features, n_samples)
        The rows of all by the value of each feature.
    place : array of int32 of shape (n_trees, n_samples)
        The position of a row of a tree in `Rows`; -1 where the tree has not got it.
    start : array of int32
        Where each tree begins.
    n_places : int
        How many rows all trees have.
    xp : module
    """
    n_features, n_samples = by_value.shape
    order = xp.empty((n_features, n_places), np.int32)
    if on_device(xp):
        args = (
            by_value,
            np.int64(n_samples),
            place,
            start.astype(np.int64),
            np.int64(len(place)),
            np.int64(n_features),
            np.int64(n_places),
            order,
        )
        launch("arranged", 32 * n_features * len(place), args, block=32 * WARPS)
    else:
        twins.arranged(*(_plain(value) for value in (by_value, place, order)))
    return order


def candidates(rows: Rows, level: Level, part: slice, max_features: int, xp: Any) -> Any:
    """Return which features are to be looked at for a split of each node of a part of the level.

    As in scikit-learn, features that do not vary are drawn with the others, and drawing goes on
    until one that varies is found.

    Returns
    -------
    tried : array of bool of shape (n_nodes, n_features)
    """
    if not on_device(xp):
        return _on(xp, twins.candidates(_plain(rows), _plain(level), part, max_features))
    n_features, stride = level.order.shape
    start = level.start[part]
    tried = xp.zeros((len(start), n_features), np.uint8)
    args = (
        level.order,
        np.int64(stride),
        rows.row,
        rows.X,
        np.int64(rows.X.shape[1]),
        start,
        level.size[part],
        level.key[part],
        np.int64(len(start)),
        np.int32(n_features),
        np.int32(max_features),
        tried,
    )
    launch("candidates", 32 * len(start), args, block=32 * WARPS)
    return tried.view(bool)


def best_splits(
    rows: Rows,
    level: Level,
    part: slice,
    tried: Any,
    *,
    criterion: str,
    min_leaf: int,
    min_weight: float,
    least: float,
    xp: Any,
) -> Splits:
    """Return the best split of each node of a part of the level.

    Parameters
    ----------
    rows : Rows
    level : Level
    part : slice
    tried : array of bool of shape (n_nodes, n_features)
    criterion : {"gini", "entropy", "squared_error", "poisson"}
    min_leaf : int
        The fewest rows on either side.
    min_weight : float
        The least weight on either side.
    least : float
        With "poisson", the moment of each side is above that.
    xp : module
        The array namespace.
    """
    limits = (min_leaf, min_weight, least)
    if not on_device(xp):
        plain = (_plain(rows), _plain(level), part, _plain(tried))
        return _on(xp, twins.best_splits(*plain, criterion, *limits))
    n_nodes, n_features = tried.shape
    node, feature = (index.astype(np.int32) for index in xp.nonzero(tried))
    found = (
        xp.empty(tried.shape, np.int32),
        xp.full(tried.shape, -np.inf),
        xp.empty(tried.shape, np.int64),
        xp.empty(tried.shape, np.int64),
    )
    args = (
        level.order,
        np.int64(level.order.shape[1]),
        rows.row,
        rows.X,
        np.int64(rows.X.shape[1]),
        rows.weight,
        _or(rows.moment, rows.weight),
        rows.y,
        np.int32(rows.n_classes),
        level.start[part],
        level.size[part],
        level.weight[part],
        _or(level.moment, level.weight)[part],
        _or(level.classes, level.weight)[part],
        node,
        feature,
        np.int64(len(node)),
        np.int32(n_features),
        np.int32(CRITERIA[criterion]),
        np.int32(min_leaf),
        np.float64(min_weight),
        np.float64(least),
        *found,
    )
    shared = 8 * WARPS * rows.n_classes
    launch("best_splits", 32 * len(node), args, block=32 * WARPS, shared=shared)
    result = Splits(
        xp.empty(n_nodes, np.int32),
        xp.empty(n_nodes, np.int32),
        xp.empty(n_nodes, np.float64),
        xp.empty(n_nodes, np.int64),
        xp.empty(n_nodes, np.int64),
    )
    chosen = (*found, level.key[part], np.int64(n_nodes), np.int32(n_features), *result)
    launch("choose", n_nodes, chosen, block=128)
    return result


def children(rows: Rows, level: Level, splits: Splits, which: Any, xp: Any) -> tuple[Any, Children]:
    """Return the thresholds of the nodes that are split, and their children.

    Parameters
    ----------
    rows : Rows
    level : Level
    splits : Splits
    which : array of int
        The nodes that are split.
    xp : module
    """
    if not on_device(xp):
        plain = (_plain(value) for value in (rows, level, splits, which))
        return _on(xp, twins.children(*plain))
    n = len(which)
    thresholds = xp.empty(n, np.float64)
    result = Children(
        xp.empty(2 * n, np.int32),
        xp.empty(2 * n, np.int32),
        xp.empty(2 * n, np.int64),
        None if level.moment is None else xp.empty(2 * n, np.int64),
        xp.empty(2 * n, np.uint64),
    )
    args = (
        level.order,
        np.int64(level.order.shape[1]),
        rows.row,
        rows.X,
        np.int64(rows.X.shape[1]),
        level.start,
        level.size,
        level.weight,
        _or(level.moment, level.weight),
        level.tree,
        level.key,
        *splits,
        which.astype(np.int64),
        np.int64(n),
        np.int32(level.moment is not None),
        thresholds,
        result.tree,
        result.size,
        result.weight,
        _or(result.moment, result.weight),
        result.key,
    )
    launch("children", n, args, block=128)
    return thresholds, result


def divide(rows: Rows, level: Level, splits: Splits, split: Any, n_splits: int, xp: Any) -> tuple:
    """Say of each row of the nodes that are split where it goes.

    Parameters
    ----------
    rows : Rows
    level : Level
    splits : Splits
    split : array of int32
        The number of each node among those that are split; -1 where it is not.
    n_splits : int
    xp : module

    Returns
    -------
    goes_left : array of uint8
        By position in `rows`.
    is_mixed : array of bool
        Whether a child has more than one target. The children of a split are two in turn.
    classes : array of int64 of shape (n_children, n_classes), or None
    """
    goes_left = xp.zeros(len(rows.row), np.uint8)
    is_mixed = xp.zeros(2 * n_splits, np.uint8)
    classes = xp.zeros((2 * n_splits, rows.n_classes), np.int64) if rows.n_classes else None
    if on_device(xp):
        args = (
            level.order,
            np.int64(level.order.shape[1]),
            level.node,
            np.int64(len(level.node)),
            level.start,
            splits.feature,
            splits.n_left,
            split,
            rows.row,
            rows.weight,
            rows.y,
            rows.y,
            np.int32(rows.n_classes),
            goes_left,
            is_mixed,
            _or(classes, is_mixed),
        )
        launch("divide", len(level.node), args, block=256)
    else:
        values = (rows, level, splits, split, goes_left, is_mixed, classes)
        twins.divide(*(_plain(value) for value in values))
    if classes is not None:
        return goes_left, (classes > 0).sum(axis=1) > 1, classes
    return goes_left, is_mixed.view(bool), None


def move(
    level: Level,
    goes_left: Any,
    to: tuple[Any, Any],
    leaf: tuple[Any, Any],
    node: tuple[Any, Any],
    n_places: int,
    leaf_of: Any,
    xp: Any,
) -> tuple[Any, Any]:
    """Return the order of the next level and the node of each place in it.

    Parameters
    ----------
    level : Level
    goes_left : array of uint8
    to : pair of arrays of int32
        For each node, the first place of its left and of its right child; -1 for a leaf.
    leaf : pair of arrays of int32
        What to write into `leaf_of` for the rows of a child that is a leaf.
    node : pair of arrays of int32
        The numbers of the children that are no leaves, in the next level.
    n_places : int
        How many rows the next level has.
    leaf_of : array of int32
        By position in the rows. Written to.
    xp : module
    """
    n_features, n_nodes = len(level.order), len(level.start)
    order = xp.empty((n_features, n_places), np.int32)
    node_of = xp.empty(n_places, np.int32)
    if on_device(xp):
        args = (
            level.order,
            order,
            np.int64(level.order.shape[1]),
            np.int64(n_places),
            goes_left,
            level.start,
            level.size,
            *to,
            *leaf,
            *node,
            np.int64(n_nodes),
            np.int64(n_features),
            node_of,
            leaf_of,
        )
        launch("move", 32 * n_nodes * n_features, args, block=32 * WARPS)
    else:
        values = (level, goes_left, to, leaf, node, order, node_of, leaf_of)
        twins.move(*(_plain(value) for value in values))
    return order, node_of


def summed(group: Any, value: Any, n_groups: int, xp: Any) -> Any:
    """Return the sums of integers by group.

    Parameters
    ----------
    group : array of int32
    value : array of int64
    n_groups : int
    xp : module
    """
    sums = xp.zeros(n_groups, np.int64)
    if on_device(xp):
        args = (group, value, np.int64(len(value)), sums)
        launch("summed", len(value), args, block=256)
    else:
        twins.summed(_plain(group), _plain(value), _plain(sums))
    return sums
