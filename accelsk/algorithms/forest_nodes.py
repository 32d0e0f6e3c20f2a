"""The nodes of trees grown on the device: how they are to grow, what they hold, in integers.

Sums of integers do not depend on their order, sums of floating-point numbers do. So what is
summed up is multiplied by a power of two that leaves no digit of weight behind.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from accelsk.algorithms.forest_kernels import summed
from accelsk.algorithms.forest_level import Level

__all__ = [
    "Growth",
    "Grown",
    "Scale",
    "class_impurity",
    "decrease",
    "integers",
    "regression_values",
    "scale_of",
]

#: The largest sum that integers on the device hold, with room for rounding, as a power of two.
_BITS = 61

#: With room for products below the largest number of all.
_LARGEST_POWER = 900


@dataclass(frozen=True)
class Growth:
    """How trees are grown, under scikit-learn's names.

    Attributes
    ----------
    criterion : {"gini", "entropy", "squared_error", "poisson"}
    n_classes : int
        Zero in a regression.
    max_features : int
    max_depth : int
    min_samples_split, min_samples_leaf : int
    min_weight_leaf : float
    min_impurity_decrease : float
    """

    criterion: str
    n_classes: int
    max_features: int
    max_depth: int
    min_samples_split: int
    min_samples_leaf: int
    min_weight_leaf: float
    min_impurity_decrease: float


@dataclass(frozen=True)
class Scale:
    """The powers of two by which real numbers are multiplied to become integers.

    Attributes
    ----------
    weight : float
    moment : float
        For weight times the difference of the target and `centre`.
    raw : float
        For weight times target.
    spread : float
        For what adds up to impurities.
    centre : float
    """

    weight: float
    moment: float
    raw: float
    spread: float
    centre: float


@dataclass
class Grown:
    """The nodes of some trees: the roots, then level by level.

    Attributes
    ----------
    tree, size, feature, left : arrays of int32
        ``feature`` and ``left`` are -1 in a leaf; the right child follows the left one.
    threshold, weight, impurity : arrays of float64
    value : array of float64 of shape (n_nodes,) or (n_nodes, n_classes)
    levels : list of int
        Where each level begins, and where the last one ends.
    """

    tree: Any
    size: Any
    feature: Any
    left: Any
    threshold: Any
    weight: Any
    impurity: Any
    value: Any
    levels: list[int]

    @property
    def n_trees(self) -> int:
        """How many roots there are."""
        return self.levels[1]


def _power(total: float) -> float:
    """Return the largest power of two that takes `total` to no more than the integers hold."""
    return 1.0 if total == 0 else 2.0 ** min(_BITS - int(np.frexp(total)[1]), _LARGEST_POWER)


def scale_of(y: Any, n_classes: int, total: float, *, counts: bool, criterion: str) -> Scale:
    """Return the scale for weights that come to `total` at most.

    Parameters
    ----------
    y : array
        The targets of all rows, so that no tree depends on those beside it.
    n_classes : int
    total : float
    counts : bool
        Whether the weights are whole numbers.
    criterion : str
    """
    weight = 1.0 if counts else _power(total)
    if n_classes:
        return Scale(weight, 1.0, 1.0, 1.0, 0.0)
    centre = 0.0 if criterion == "poisson" else float(y.mean())
    low, high = float(y.min()), float(y.max())
    reach, largest = max(high - centre, centre - low), max(abs(low), abs(high))
    spread = (high - low) ** 2
    if criterion == "poisson":
        spread = largest * (1 + np.log(max(total, 1.0)))
    moment, raw, spread = (_power(total * value) for value in (reach, largest, spread))
    return Scale(weight, moment, raw, spread, centre)


def integers(value: Any, factor: float, xp: Any) -> Any:
    """Return `value` as multiples of the inverse of `factor`."""
    return xp.rint(value * factor).astype(np.int64)


def decrease(level: Level, gain: Any, total: Any, criterion: str, scale: Scale, xp: Any) -> Any:
    """Return the decrease of impurity by each split, weighted as scikit-learn weighs it.

    Parameters
    ----------
    level : Level
    gain : array of float64
        Of the split of each node.
    total : array of float64
        The weight of the root above each node.
    criterion : str
    scale : Scale
    xp : module
    """
    weight = level.weight.astype(np.float64)
    if criterion == "squared_error":
        by = gain * (scale.weight / scale.moment) ** 2 / weight**2
    elif criterion == "poisson":
        moment = level.moment.astype(np.float64)
        by = gain - moment * xp.log(moment / weight)
        by = by * (scale.weight / scale.moment) / weight
    else:
        classes = level.classes.astype(np.float64)
        if criterion == "gini":
            by = (gain - (classes**2).sum(axis=1) / weight) / weight
        else:
            logs = xp.log(xp.where(classes > 0, classes, 1))
            by = gain - (classes * logs).sum(axis=1) + weight * xp.log(weight)
            by = by / weight / np.log(2)
    return by * weight / total


def regression_values(
    target: Any,
    row_weight: Any,
    leaf_of: Any,
    left: Any,
    weight: Any,
    edges: list[int],
    criterion: str,
    scale: Scale,
    xp: Any,
) -> tuple[Any, Any]:
    """Return the mean target of each node, to the last digit, and its impurity.

    Parameters
    ----------
    target, row_weight : arrays of float64
        Of each row of each tree.
    leaf_of : array of int32
        The leaf that it is in.
    left, weight, edges
        See `Grown`.
    criterion : {"squared_error", "poisson"}
    scale : Scale
    xp : module
    """
    n_nodes = len(left)
    levels = [xp.arange(a, b) for a, b in pairwise(edges)]
    inner = [nodes[left[nodes] >= 0] for nodes in levels[::-1]]

    def sums(value: Any, factor: float) -> Any:
        return summed(leaf_of, integers(value, factor, xp), n_nodes, xp)

    product = row_weight * target
    coarse = scale.raw
    rest = product - xp.rint(product * coarse) / coarse
    fine = coarse * 2.0 ** (_BITS - int(np.frexp(float(len(product)))[1]))
    parts = [sums(product, coarse), sums(rest, fine)]
    for nodes in inner:
        for part in parts:
            part[nodes] = part[left[nodes]] + part[left[nodes] + 1]
    moment = parts[0] / coarse + parts[1] / fine
    value = moment / weight
    mean = value[leaf_of]
    if criterion == "squared_error":
        spread = sums(row_weight * (target - mean) ** 2, scale.spread)
        spread = spread / scale.spread
    else:
        ratio = xp.where(target > 0, target / xp.where(mean > 0, mean, 1), 1)
        spread = sums(product * xp.log(ratio), scale.spread) / scale.spread
        logs = moment * xp.log(xp.where(value > 0, value, 1))
    for nodes in inner:
        a, b = left[nodes], left[nodes] + 1
        if criterion == "squared_error":
            between = weight[a] * weight[b] / weight[nodes] * (value[a] - value[b]) ** 2
        else:
            between = logs[a] + logs[b] - logs[nodes]
        spread[nodes] = spread[a] + spread[b] + between
    return value, xp.maximum(spread / weight, 0)


def class_impurity(share: Any, criterion: str, xp: Any) -> Any:
    """Return the impurity of nodes with these shares of classes."""
    if criterion == "gini":
        return 1 - (share**2).sum(axis=1)
    return -(share * xp.log2(xp.where(share > 0, share, 1))).sum(axis=1)
