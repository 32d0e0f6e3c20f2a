"""Trees of a forest held against scikit-learn's."""

from __future__ import annotations

from typing import Any

import numpy as np

__all__ = ["agreeing_nodes", "assert_same_trees", "pair"]


def pair(cls: Any, X: Any, y: Any, sample_weight: Any = None, **parameters: Any) -> tuple[Any, Any]:
    """Return a forest of ours and scikit-learn's; leaves are large, so that no splits tie."""
    parameters = {
        "n_estimators": 4,
        "max_features": None,
        "min_samples_leaf": 6,
        "random_state": 0,
        **parameters,
    }
    return tuple(
        kind(**parameters).fit(X, y, sample_weight) for kind in (cls, cls._accelsk_original)
    )


def assert_same_trees(ours: Any, theirs: Any) -> None:
    """But for splits of the same gain, which are chosen among by chance."""
    agreed = 0
    for left, right in zip(ours.estimators_, theirs.estimators_, strict=True):
        assert left.random_state == right.random_state
        assert set(vars(left)) == set(vars(right))
        for name in ("max_features_", "n_outputs_", "n_features_in_"):
            assert getattr(left, name) == getattr(right, name)
        agreed += agreeing_nodes(left.tree_, right.tree_)
    assert agreed >= 5 * len(ours.estimators_)


def agreeing_nodes(a: Any, b: Any) -> int:
    """Return how many nodes of two trees agree before splits of the same gain part them."""
    todo, count = [(0, 0)], 0
    while todo:
        i, j = todo.pop()
        assert a.n_node_samples[i] == b.n_node_samples[j]
        for name in ("weighted_n_node_samples", "value", "impurity"):
            left, right = getattr(a, name)[i], getattr(b, name)[j]
            np.testing.assert_allclose(left, right, rtol=1e-9, atol=1e-12)
        count += 1
        below = [(tree.children_left[k], tree.children_right[k]) for tree, k in ((a, i), (b, j))]
        if below[0][0] < 0 or below[1][0] < 0:
            # rounding keeps scikit-learn from seeing that all weight is on one class
            assert below[0][0] == below[1][0] or a.impurity[i] < 1e-12
        elif (a.feature[i], a.threshold[i]) == (b.feature[j], b.threshold[j]):
            assert a.missing_go_to_left[i] == b.missing_go_to_left[j]
            todo += zip(*below, strict=True)
        else:
            np.testing.assert_allclose(gain(a, i), gain(b, j), rtol=1e-9)
    return count


def gain(tree: Any, node: int) -> float:
    spread = tree.impurity * tree.weighted_n_node_samples
    return spread[node] - spread[tree.children_left[node]] - spread[tree.children_right[node]]
