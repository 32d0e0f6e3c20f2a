"""Are the results of two sides the same, or as good?"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.manifold import trustworthiness
from sklearn.metrics import adjusted_rand_score

if TYPE_CHECKING:
    from benchmarks.operations import Operation

#: Rows that are looked at.
ROWS = 1_000

Compare = Callable[[np.ndarray, np.ndarray, np.ndarray], float]


def rows_of(n: int) -> np.ndarray:
    """Return the numbers of the rows that are compared, of `n`."""
    return np.linspace(0, n - 1, min(n, ROWS)).astype(int)


def outcome(operation: Operation, model: Any, result: Any, X: np.ndarray) -> np.ndarray:
    """Return some rows of a result, or of what a fitted model predicts."""
    rows = rows_of(len(X))
    if operation.method == "fit":
        return np.asarray(model.predict(X[rows]))
    first = result[0] if isinstance(result, tuple) else result
    return np.asarray(first)[rows]


def values(mine: np.ndarray, theirs: np.ndarray, X: np.ndarray) -> float:
    """Return the root mean square of the difference, relative to the spread of the values."""
    mine, theirs = mine.astype(float), theirs.astype(float)
    return float(np.sqrt(np.mean((mine - theirs) ** 2)) / (theirs.std() or 1))


def components(mine: np.ndarray, theirs: np.ndarray, X: np.ndarray) -> float:
    """Return `values` of the first eight columns, whose signs are free."""
    mine, theirs = mine[:, :8].astype(float), theirs[:, :8].astype(float)
    return values(mine * np.sign((mine * theirs).sum(axis=0)), theirs, X)


def labels(mine: np.ndarray, theirs: np.ndarray, X: np.ndarray) -> float:
    """Return the share of labels that differ."""
    return float(np.mean(mine != theirs))


def clusters(mine: np.ndarray, theirs: np.ndarray, X: np.ndarray) -> float:
    """Return how far the adjusted Rand index is from 1."""
    return float(1 - adjusted_rand_score(theirs, mine))


def score(mine: np.ndarray, theirs: np.ndarray, X: np.ndarray) -> float:
    """Return `labels` of classes and `values` of numbers: two random forests differ."""
    return labels(mine, theirs, X) if mine.dtype.kind in "iu" else values(mine, theirs, X)


def embedding(mine: np.ndarray, theirs: np.ndarray, X: np.ndarray) -> float:
    """Return by how much trustworthiness falls short of that of the other embedding."""
    first, second = (trustworthiness(X, placed, n_neighbors=10) for placed in (theirs, mine))
    return float(first - second)


CHECKS: dict[str, Compare] = {
    "values": values,
    "components": components,
    "labels": labels,
    "clusters": clusters,
    "score": score,
    "embedding": embedding,
}
