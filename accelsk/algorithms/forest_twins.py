"""The kernels that grow trees, in NumPy. `forest_kernels` says what they do."""

from __future__ import annotations

from typing import Any

import numpy as np

from accelsk.algorithms.forest_level import GOLDEN, SAME, Children, Level, Rows, Splits, mixed

__all__ = ["arranged", "best_splits", "candidates", "children", "divide", "move", "summed"]


def _keys(level: Level, part: slice) -> np.ndarray:
    """Return by what the features of each node are put into an order."""
    features = np.arange(len(level.order), dtype=np.uint64)
    return mixed(level.key[part][:, None] ^ mixed(features)[None, :])


def arranged(by_value: np.ndarray, place: np.ndarray, order: np.ndarray) -> None:
    for feature, rows in enumerate(by_value):
        in_turn = place[:, rows]
        order[feature] = in_turn[in_turn >= 0]


def candidates(rows: Rows, level: Level, part: slice, max_features: int) -> np.ndarray:
    features = np.arange(len(level.order))
    start, size = level.start[part], level.size[part]
    low, high = (
        rows.X[features[:, None], rows.row[level.order[:, place]]].T
        for place in (start, start + size - 1)
    )
    varies = high > low + SAME
    if max_features >= len(features):
        return varies
    turn = np.argsort(_keys(level, part), axis=1)
    in_turn = np.take_along_axis(varies, turn, axis=1)
    among = np.broadcast_to(features < max_features, varies.shape)
    # where none of these varies, the first that does is looked at, too
    none: Any = ~(in_turn & among).any(axis=1)
    among = among | (none[:, None] & (features == in_turn.argmax(axis=1)[:, None]))
    tried = np.zeros_like(varies)
    np.put_along_axis(tried, turn, among & in_turn, axis=1)
    return tried


def best_splits(
    rows: Rows,
    level: Level,
    part: slice,
    tried: np.ndarray,
    criterion: str,
    min_leaf: int,
    min_weight: float,
    least: float,
) -> Splits:
    n = len(tried)
    result = Splits(
        np.full(n, -1, np.int32),
        np.zeros(n, np.int32),
        np.full(n, -np.inf),
        np.zeros(n, np.int64),
        np.zeros(n, np.int64),
    )
    keys = _keys(level, part)
    for at in range(n):
        node, best_key = part.start + at, None
        places = slice(level.start[node], level.start[node] + level.size[node])
        for feature in np.flatnonzero(tried[at]):
            ids = level.order[feature, places]
            x = rows.X[feature, rows.row[ids]]
            n_left, gain, *sums = _best_split(
                rows, level, node, ids, x, criterion, min_leaf, min_weight, least
            )
            better = gain > result.gain[at]
            # of equals, the one that comes first by chance
            equal = best_key is not None and gain == result.gain[at]
            if better or (equal and keys[at, feature] < best_key):
                best_key = keys[at, feature]
                for column, value in zip(result, (feature, n_left, gain, *sums), strict=True):
                    column[at] = value
    return result


def _times_log(value: Any) -> Any:
    return value * np.log(value, out=np.zeros_like(value), where=value > 0)


def _best_split(
    rows: Rows,
    level: Level,
    node: int,
    ids: np.ndarray,
    x: np.ndarray,
    criterion: str,
    min_leaf: int,
    min_weight: float,
    least: float,
) -> tuple[int, float, int, int]:
    left = np.cumsum(rows.weight[ids])[:-1]
    right = level.weight[node] - left
    n_left = np.arange(1, len(ids))
    valid = (
        (x[1:] > x[:-1] + SAME)
        & (np.minimum(n_left, len(ids) - n_left) >= min_leaf)
        & (np.minimum(left, right) >= min_weight)
    )
    p, q = left.astype(np.float64), right.astype(np.float64)
    moment = np.zeros(len(left), np.int64)
    with np.errstate(all="ignore"):
        if rows.n_classes:
            is_class = rows.y[rows.row[ids]][:, None] == np.arange(rows.n_classes)
            l = np.cumsum(is_class * rows.weight[ids][:, None], axis=0)[:-1]  # noqa: E741
            r = (level.classes[node] - l).astype(np.float64)
            l = l.astype(np.float64)  # noqa: E741
            if criterion == "gini":
                gain = (l * l).sum(axis=1) / p + (r * r).sum(axis=1) / q
            else:
                gain = _times_log(l).sum(axis=1) - _times_log(p)
                gain = gain + (_times_log(r).sum(axis=1) - _times_log(q))
        else:
            moment = np.cumsum(rows.moment[ids])[:-1]
            l, r = moment.astype(np.float64), (level.moment[node] - moment).astype(np.float64)  # noqa: E741
            if criterion == "squared_error":
                d = l * q - r * p
                gain = d * d / (p * q)
            else:
                valid &= (l > least) & (r > least)
                gain = l * np.log(l / p) + r * np.log(r / q)
    gain = np.where(valid, gain, -np.inf)
    if not valid.any():
        return 0, -np.inf, 0, 0
    best = int(gain.argmax())
    return best + 1, gain[best], left[best], moment[best]


def children(rows: Rows, level: Level, splits: Splits, which: np.ndarray) -> tuple:
    edge = level.start[which] + splits.n_left[which]
    below, above = (
        rows.X[splits.feature[which], rows.row[level.order[splits.feature[which], place]]]
        for place in (edge - 1, edge)
    )
    thresholds = below.astype(np.float64) / 2 + above.astype(np.float64) / 2

    def both(left: np.ndarray, right: np.ndarray) -> np.ndarray:
        return np.stack([left, right], axis=1).reshape(-1)

    def parted(whole: np.ndarray, left: np.ndarray) -> np.ndarray:
        return both(left[which], whole[which] - left[which])

    key = level.key[which]
    return thresholds, Children(
        both(level.tree[which], level.tree[which]),
        parted(level.size, splits.n_left),
        parted(level.weight, splits.weight_left),
        None if level.moment is None else parted(level.moment, splits.moment_left),
        both(mixed(key), mixed(key ^ GOLDEN)),
    )


def divide(
    rows: Rows,
    level: Level,
    splits: Splits,
    split: np.ndarray,
    goes_left: np.ndarray,
    mixed: np.ndarray,
    classes: np.ndarray | None,
) -> None:
    place = np.flatnonzero(split[level.node] >= 0)
    node = level.node[place]
    ids = level.order[splits.feature[node], place]
    edge = level.start[node] + splits.n_left[node]
    left = place < edge
    goes_left[ids] = left
    child = 2 * split[node] + ~left
    if classes is not None:
        np.add.at(classes, (child, rows.y[rows.row[ids]]), rows.weight[ids])
    else:
        first = level.order[splits.feature[node], np.where(left, level.start[node], edge)]
        mixed[child[rows.y[rows.row[ids]] != rows.y[rows.row[first]]]] = 1


def move(
    level: Level,
    goes_left: np.ndarray,
    to: tuple,
    leaf: tuple,
    node: tuple,
    order: np.ndarray,
    node_of: np.ndarray,
    leaf_of: np.ndarray,
) -> None:
    for k in range(len(level.start)):
        places = slice(level.start[k], level.start[k] + level.size[k])
        for side in (0, 1):
            for feature in range(len(level.order)):
                ids = level.order[feature, places]
                ids = ids[goes_left[ids] == 1 - side]
                first = to[side][k]
                if first >= 0:
                    order[feature, first : first + len(ids)] = ids
                    node_of[first : first + len(ids)] = node[side][k]
                else:
                    leaf_of[ids] = leaf[side][k]


def summed(group: np.ndarray, value: np.ndarray, sums: np.ndarray) -> None:
    np.add.at(sums, group, value)
