"""Growing the trees of a random forest, all of them at once, one depth after the other.

The splits are exact: every value of a feature is a candidate, as in scikit-learn. Each feature is
sorted once, and the rows of each node keep that order as they are divided. A tree depends on its
rows and its seed alone, neither on the trees beside it nor on the number of them.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from accelsk.algorithms import forest_kernels as kernels
from accelsk.algorithms.forest_level import Children, Level, Rows, Splits, mixed
from accelsk.algorithms.forest_nodes import (
    Grown,
    Growth,
    Scale,
    class_impurity,
    decrease,
    integers,
    regression_values,
)

__all__ = ["grow"]

#: The most entries of a table of nodes by features.
_CHUNK = 2**24


class _Nodes(NamedTuple):
    """All nodes of one depth; see `Grown`."""

    tree: Any
    size: Any
    weight: Any
    classes: Any


class _Grove:
    """The trees that are grown at once."""

    def __init__(
        self, X: Any, y: Any, sorted_rows: Any, weight: Any, growth: Growth, scale: Scale, xp: Any
    ) -> None:
        self.growth, self.scale, self.xp = growth, scale, xp
        self.n_trees, n_samples = weight.shape
        drawn = xp.flatnonzero(weight > 0)
        self.tree_of = (drawn // n_samples).astype(np.int32)
        row = (drawn % n_samples).astype(np.int32)
        weight = weight.ravel()[drawn]
        self.weight = weight.astype(np.float64)
        counted = integers(weight, scale.weight, xp)
        moment = None
        if growth.n_classes == 0:
            moment = integers(self.weight * (y[row] - scale.centre), scale.moment, xp)
        self.rows = Rows(row, counted, moment, X, y, growth.n_classes)
        place = xp.full((self.n_trees, n_samples), -1, np.int32)
        place.ravel()[drawn] = xp.arange(len(drawn), dtype=np.int32)
        self.size = xp.bincount(self.tree_of, minlength=self.n_trees).astype(np.int32)
        self.start = xp.cumsum(self.size).astype(np.int32) - self.size
        self.order = kernels.arranged(sorted_rows, place, self.start, len(drawn), xp)
        self.leaf_of = xp.zeros(len(drawn), np.int32)

    def roots(self, seeds: Any) -> tuple[Level, Any]:
        """Return the level of all roots and whether each has more than one target."""
        xp, rows, growth = self.xp, self.rows, self.growth
        order, self.order = self.order, None  # which takes the most memory of all
        weight = kernels.summed(self.tree_of, rows.weight, self.n_trees, xp)
        moment = classes = None
        if growth.n_classes:
            group = self.tree_of * np.int32(growth.n_classes) + rows.y[rows.row]
            n_groups = self.n_trees * growth.n_classes
            classes = kernels.summed(group.astype(np.int32), rows.weight, n_groups, xp)
            classes = classes.reshape(self.n_trees, growth.n_classes)
            is_mixed = (classes > 0).sum(axis=1) > 1
        else:
            moment = kernels.summed(self.tree_of, rows.moment, self.n_trees, xp)
            y = rows.y[rows.row]
            other = (y != y[self.start][self.tree_of]).astype(np.int64)
            is_mixed = kernels.summed(self.tree_of, other, self.n_trees, xp) > 0
        tree, key = xp.arange(self.n_trees, dtype=np.int32), mixed(seeds.astype(np.uint64))
        level = Level(
            order, self.tree_of, self.start, self.size, weight, moment, classes, tree, key
        )
        return level, is_mixed

    def may_be_split(self, depth: int, nodes: Level | Children, is_mixed: Any) -> Any:
        """Say of nodes of one depth whether scikit-learn would look for a split."""
        growth = self.growth
        least = max(growth.min_samples_split, 2 * growth.min_samples_leaf)
        heavy = nodes.weight >= 2 * growth.min_weight_leaf * self.scale.weight
        return is_mixed & heavy & (nodes.size >= least) & (depth < growth.max_depth)

    def best(self, level: Level) -> Splits:
        """Return the best split of each node."""
        xp, growth = self.xp, self.growth
        per_chunk = max(1, _CHUNK // len(level.order))
        found = []
        for first in range(0, len(level.start), per_chunk):
            part = slice(first, first + per_chunk)
            tried = kernels.candidates(self.rows, level, part, growth.max_features, xp)
            splits = kernels.best_splits(
                self.rows,
                level,
                part,
                tried,
                criterion=growth.criterion,
                min_leaf=growth.min_samples_leaf,
                min_weight=max(1.0, growth.min_weight_leaf * self.scale.weight),
                least=np.finfo(np.float64).eps * self.scale.moment,
                xp=xp,
            )
            found.append(splits)
        if len(found) == 1:
            return found[0]
        return Splits(*(xp.concatenate(columns) for columns in zip(*found, strict=True)))

    def grow(self, seeds: Any) -> Grown:
        """Return the nodes of all trees; `seeds` are those of the features that are tried."""
        xp, growth = self.xp, self.growth
        level, is_mixed = self.roots(seeds)
        total = level.weight.astype(np.float64)
        nodes = [_Nodes(level.tree, level.size, level.weight, level.classes)]
        allowed = self.may_be_split(0, level, is_mixed)
        number, made, edges = level.tree, [], [0, self.n_trees]
        while len(number):
            splits = self.best(level)
            can = allowed & (splits.feature >= 0)
            if growth.min_impurity_decrease > 0:
                by = decrease(
                    level, splits.gain, total[level.tree], growth.criterion, self.scale, xp
                )
                can &= by + np.finfo(np.float64).eps >= growth.min_impurity_decrease
            which = xp.flatnonzero(can)
            split = xp.full(len(can), -1, np.int32)
            split[which] = xp.arange(len(which), dtype=np.int32)
            thresholds, children = kernels.children(self.rows, level, splits, which, xp)
            made.append((number[which], splits.feature[which], thresholds))
            goes_left, is_mixed, classes = kernels.divide(
                self.rows, level, splits, split, len(which), xp
            )
            active = self.may_be_split(len(nodes), children, is_mixed)
            level, number = self._next(
                level, split, number, children, classes, active, goes_left, edges[-1]
            )
            allowed = xp.ones(len(number), bool)
            if len(which):
                nodes.append(_Nodes(children.tree, children.size, children.weight, classes))
                edges.append(edges[-1] + 2 * len(which))
        return self._collected(nodes, made, edges)

    def _next(
        self,
        level: Level,
        split: Any,
        number: Any,
        children: Children,
        classes: Any,
        active: Any,
        goes_left: Any,
        first: int,
    ) -> tuple[Level, Any]:
        """Return the level of the children that may be split, and their numbers."""
        xp = self.xp
        keep = xp.flatnonzero(active)
        size = children.size[keep]
        ends = xp.cumsum(size).astype(np.int32) if len(keep) else size
        n_places = int(ends[-1]) if len(ends) else 0
        # with one more for what is not split
        place, position = (xp.full(len(active) + 1, -1, np.int32) for _ in range(2))
        place[keep] = ends - size
        position[keep] = xp.arange(len(keep), dtype=np.int32)
        sides = [xp.where(split >= 0, 2 * split + side, len(active)) for side in (0, 1)]
        leaves = [
            xp.where(split >= 0, first + 2 * split + side, number).astype(np.int32)
            for side in (0, 1)
        ]
        order, node_of = kernels.move(
            level,
            goes_left,
            (place[sides[0]], place[sides[1]]),
            (leaves[0], leaves[1]),
            (position[sides[0]], position[sides[1]]),
            n_places,
            self.leaf_of,
            xp,
        )
        lower = Level(
            order,
            node_of,
            ends - size,
            size,
            children.weight[keep],
            None if children.moment is None else children.moment[keep],
            None if classes is None else classes[keep],
            children.tree[keep],
            children.key[keep],
        )
        return lower, (first + keep).astype(np.int32)

    def _collected(self, nodes: list[_Nodes], splits: list[tuple], edges: list[int]) -> Grown:
        xp = self.xp
        n_nodes = edges[-1]
        feature, left = (xp.full(n_nodes, -1, np.int32) for _ in range(2))
        threshold = xp.full(n_nodes, -2.0)
        number = xp.concatenate([split[0] for split in splits])
        feature[number] = xp.concatenate([split[1] for split in splits])
        threshold[number] = xp.concatenate([split[2] for split in splits])
        # the children were numbered in the order of their parents
        left[number] = self.n_trees + 2 * xp.arange(len(number), dtype=np.int32)
        tree, size, weight = (
            xp.concatenate([getattr(part, name) for part in nodes])
            for name in ("tree", "size", "weight")
        )
        weight = weight / self.scale.weight
        if self.growth.n_classes:
            value = xp.concatenate([part.classes for part in nodes]) / self.scale.weight
            value = value / weight[:, None]
            impurity = class_impurity(value, self.growth.criterion, xp)
        else:
            value, impurity = regression_values(
                self.rows.y[self.rows.row],
                self.weight,
                self.leaf_of,
                left,
                weight,
                edges,
                self.growth.criterion,
                self.scale,
                xp,
            )
        return Grown(tree, size, feature, left, threshold, weight, impurity, value, edges)


def grow(
    X: Any, y: Any, sorted_rows: Any, weight: Any, seeds: Any, growth: Growth, scale: Scale, xp: Any
) -> Grown:
    """Return the nodes of one tree for each row of `weight`.

    Parameters
    ----------
    X : array of float32 of shape (n_features, n_samples)
        In C order.
    y : array of float64 of shape (n_samples,), of int32 codes where there are classes
    sorted_rows : array of int32 of shape (n_features, n_samples)
        The rows by the value of each feature.
    weight : array of shape (n_trees, n_samples)
        How much each row counts for in each tree; rows of weight zero are left out.
    seeds : array of int of shape (n_trees,)
    growth : Growth
    scale : Scale
    xp : module
        The array namespace.
    """
    return _Grove(X, y, sorted_rows, weight, growth, scale, xp).grow(seeds)
