"""What the steps of growing trees hand to each other."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

__all__ = ["GOLDEN", "SAME", "Children", "Level", "Rows", "Splits", "mixed"]

#: scikit-learn's: values of a feature closer than that are one (in float32).
SAME = np.float32(1e-7)

GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_FACTORS = (np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB))
_SHIFTS = (np.uint64(30), np.uint64(27), np.uint64(31))


class Rows(NamedTuple):
    """The rows on which trees are grown, those of one tree after those of another.

    Attributes
    ----------
    row : array of int32
        The row of `X`.
    weight : array of int64
        How much it counts for.
    moment : array of int64 or None
        Weight times target; None where there are classes.
    X : array of float32 of shape (n_features, n_samples)
    y : array of float64, or of int32 where there are classes
        By row of `X`.
    n_classes : int
        Zero where there are none.
    """

    row: Any
    weight: Any
    moment: Any
    X: Any
    y: Any
    n_classes: int


class Level(NamedTuple):
    """The nodes of one depth that may be split.

    Attributes
    ----------
    order : array of int32 of shape (n_features, ...)
        Positions in `Rows`, by node, and within a node by the value of each feature.
    node : array of int32
        The node of each place in `order`.
    start, size : arrays of int32
        The places of each node in `order`.
    weight, moment : arrays of int64
        The sums over each node.
    classes : array of int64 of shape (n_nodes, n_classes) or None
        The weight of each class.
    tree : array of int32
    key : array of uint64
        What the features that are tried depend on.
    """

    order: Any
    node: Any
    start: Any
    size: Any
    weight: Any
    moment: Any
    classes: Any
    tree: Any
    key: Any


class Children(NamedTuple):
    """The two children of each node that is split, in turn; see `Level`."""

    tree: Any
    size: Any
    weight: Any
    moment: Any
    key: Any


class Splits(NamedTuple):
    """The best split of each node.

    Attributes
    ----------
    feature : array of int32
        -1 where there is no split.
    n_left : array of int32
    gain : array of float64
        What the features were compared by.
    weight_left, moment_left : arrays of int64
    """

    feature: Any
    n_left: Any
    gain: Any
    weight_left: Any
    moment_left: Any


def mixed(value: Any) -> Any:
    """Return another number for each number, as if by chance (the finaliser of splitmix64)."""
    value = value + GOLDEN
    value = (value ^ (value >> _SHIFTS[0])) * _FACTORS[0]
    value = (value ^ (value >> _SHIFTS[1])) * _FACTORS[1]
    return value ^ (value >> _SHIFTS[2])
