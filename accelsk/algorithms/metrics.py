"""Scores of predictions, in float64, from arrays of NumPy or CuPy.

Labels come as codes, the positions in the sorted classes. A weight is None or has one element for
each row. What scikit-learn answers with a warning or an error is not met here: that is for the
caller to see.
"""

from __future__ import annotations

from typing import Any

import numpy as np

__all__ = [
    "adjusted_rand",
    "average",
    "average_precision",
    "confusion",
    "determination",
    "log_loss",
    "mean_error",
    "medians",
    "roc_auc",
]


def average(values: Any, weight: Any, xp: Any) -> Any:
    """Return the weighted mean of each column, or of a vector."""
    if weight is None:
        return values.mean(axis=0, dtype=np.float64)
    weight = weight.astype(np.float64, copy=False)
    return (weight @ values.astype(np.float64, copy=False)) / weight.sum()


# Regression: targets and predictions of shape (n_samples, n_outputs)


def mean_error(y: Any, predicted: Any, weight: Any, kind: str, xp: Any) -> Any:
    """Return the mean error of each output.

    Parameters
    ----------
    y, predicted : array of shape (n_samples, n_outputs), dtype=float64
    weight : array or None
    kind : {"squared", "absolute", "squared_log"}
    xp : module
        The array namespace.
    """
    if kind == "squared_log":
        y, predicted = xp.log1p(y), xp.log1p(predicted)
    difference = y - predicted
    error = xp.abs(difference) if kind == "absolute" else difference * difference
    return average(error, weight, xp)


def medians(y: Any, predicted: Any, xp: Any) -> Any:
    """Return the median absolute error of each output."""
    error = xp.sort(xp.abs(y - predicted), axis=0)
    n = len(error)
    return (error[(n - 1) // 2] + error[n // 2]) / 2


def determination(y: Any, predicted: Any, weight: Any, xp: Any) -> tuple[Any, Any]:
    """Return for each output the squares about the predictions and about the mean."""
    residual, deviation = y - predicted, y - average(y, weight, xp)
    if weight is None:
        return (residual * residual).sum(axis=0), (deviation * deviation).sum(axis=0)
    return weight @ (residual * residual), weight @ (deviation * deviation)


# Classification


def confusion(true: Any, predicted: Any, n_classes: int, weight: Any, xp: Any) -> Any:
    """Return how often, or with what weight, a class was taken for another.

    Parameters
    ----------
    true, predicted : array of int
        Codes below `n_classes`.
    n_classes : int
    weight : array or None
    xp : module
        The array namespace.
    """
    pairs = true.astype(np.int64) * n_classes + predicted
    if weight is not None:
        weight = weight.astype(np.float64, copy=False)
    counts = xp.bincount(pairs, weights=weight, minlength=n_classes * n_classes)
    return counts.reshape(n_classes, n_classes)


def log_loss(true: Any, probability: Any, weight: Any, normalize: bool, xp: Any) -> Any:
    """Return the mean, or the sum, of the negative logarithms of the probabilities of the truth.

    Parameters
    ----------
    true : array of int
        Codes.
    probability : array of shape (n_samples, n_classes)
        Clipped by the resolution of its dtype, as scikit-learn does.
    weight : array or None
    normalize : bool
    xp : module
        The array namespace.
    """
    eps = np.finfo(probability.dtype).eps
    of_truth = probability[xp.arange(len(true)), true]
    loss = -xp.log(xp.clip(of_truth, eps, 1 - eps).astype(np.float64))
    if normalize:
        return average(loss, weight, xp)
    return loss.sum() if weight is None else weight.astype(np.float64) @ loss


def _tallies(positive: Any, score: Any, weight: Any, xp: Any) -> tuple[Any, Any]:
    """Return the weights of positives and negatives no lower than each distinct score."""
    order = xp.argsort(-score)
    score = score[order]
    hits = positive[order].astype(np.float64)
    misses = 1 - hits
    if weight is not None:
        weight = weight[order].astype(np.float64)
        hits, misses = hits * weight, misses * weight
    last = xp.nonzero(xp.append(score[1:] != score[:-1], xp.ones(1, dtype=bool)))[0]
    return xp.cumsum(hits)[last], xp.cumsum(misses)[last]


def roc_auc(positive: Any, score: Any, weight: Any, xp: Any) -> Any:
    """Return the area under the curve of true against false positive rates.

    Parameters
    ----------
    positive : array of bool
        Holds both values, both with weight.
    score : array of float
    weight : array or None
    xp : module
        The array namespace.
    """
    hits, misses = _tallies(positive, score, weight, xp)
    start = xp.zeros(1)
    x, y = xp.append(start, misses), xp.append(start, hits)
    area = (xp.diff(x) * (y[1:] + y[:-1])).sum() / 2
    return area / (hits[-1] * misses[-1])


def average_precision(positive: Any, score: Any, weight: Any, xp: Any) -> Any:
    """Return the mean of the precisions at each score, weighted by what they add to the recall.

    The parameters are those of `roc_auc`; the negatives may be missing.
    """
    hits, misses = _tallies(positive, score, weight, xp)
    total = hits + misses
    precision = hits / xp.where(total > 0, total, 1)
    added = xp.diff(xp.append(xp.zeros(1), hits))
    return (added * precision).sum() / hits[-1]


# Clustering


def adjusted_rand(table: np.ndarray) -> float:
    """Return the Rand index adjusted for chance, of a contingency table on the host."""
    n = int(table.sum())
    squares, of_rows, of_columns = (
        int((counts.astype(np.int64) ** 2).sum())
        for counts in (table, table.sum(axis=1), table.sum(axis=0))
    )
    both, neither = squares - n, n * n - of_rows - of_columns + squares
    first, second = of_rows - squares, of_columns - squares
    if first == 0 and second == 0:
        return 1.0
    chance = (both + first) * (first + neither) + (both + second) * (second + neither)
    return 2.0 * (both * neither - first * second) / chance
