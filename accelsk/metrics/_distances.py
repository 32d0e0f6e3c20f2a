"""Distances between rows, and how well these fall into clusters."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.metrics import pairwise
from sklearn.metrics.cluster import _supervised, _unsupervised
from sklearn.utils import check_random_state

from accelsk.algorithms import metrics
from accelsk.algorithms.pairwise import distances, silhouettes
from accelsk.device.transfer import to_device, to_host
from accelsk.engines.base import Rule, only, refuse
from accelsk.exceptions import Invalid, Refusal
from accelsk.functions import FunctionCall, accelerated
from accelsk.metrics._inputs import arrays, coded, finite

__all__ = ["adjusted_rand_score", "pairwise_distances", "silhouette_samples", "silhouette_score"]

#: scikit-learn's names of the metrics, and those of `accelsk.algorithms`.
_METRICS = {
    "cityblock": "manhattan",
    "cosine": "cosine",
    "euclidean": "euclidean",
    "l1": "manhattan",
    "l2": "euclidean",
    "manhattan": "manhattan",
    "sqeuclidean": "sqeuclidean",
}

#: Elements of the largest table of clusters: 1 GB in float64.
_MOST_ELEMENTS = 1 << 27

#: Seconds for a distance: in scikit-learn's silhouettes, and in a matrix less what it takes to
#: come back from the device; and for the least call there (H200 machine, 16 cores, 2026-11-30).
_OF_SILHOUETTES, _OF_MATRICES, _LEAST = 1.3e-8, 5e-9, 5e-3

_KNOWN = only("metric", *_METRICS)

_NOT_FLOATING = refuse(
    "X is of another precision than float32 and float64",
    lambda call: call.argument("X").dtype not in (np.float32, np.float64),
)


@accelerated(
    _supervised.adjusted_rand_score,
    data=("labels_true", "labels_pred"),
    rules=(arrays(1, text=True),),
)
def adjusted_rand_score(call: FunctionCall) -> float:
    import cupy

    (true,), classes = coded(call, "labels_true")
    (predicted,), clusters = coded(call, "labels_pred")
    size = max(len(classes), len(clusters))
    if size * size > _MOST_ELEMENTS:
        raise Refusal("there are too many clusters for a table")
    return metrics.adjusted_rand(to_host(metrics.confusion(true, predicted, size, None, cupy)))


def _silhouettes_save(call: FunctionCall) -> float:
    sample_size = call.arguments.get("sample_size")
    n_rows = call.argument("X").shape[0]
    n_rows = n_rows if sample_size is None else min(n_rows, sample_size)
    return _OF_SILHOUETTES * n_rows**2 - _LEAST


def _result_dtype(call: FunctionCall) -> Any:
    """Return the dtype of distances: float32 where scikit-learn computes in it."""
    given = [call.argument(name) for name in ("X", "Y") if name in call.data]
    narrow = call.arguments["metric"] in ("cosine", "euclidean", "l2")
    single = all(array.dtype == np.float32 for array in given if array.given)
    return np.float32 if narrow and single else np.float64


def _silhouettes(call: FunctionCall, rows: Any = None) -> Any:
    """Return the silhouettes of all rows, or of those named."""
    import cupy

    X, labels = call.to_device("X"), call.argument("labels")
    if rows is not None:
        chosen = to_device(rows)
        taken = labels.array[chosen if labels.kind == "cupy" else rows]
        X, call = X[chosen], FunctionCall({**call.arguments, "labels": taken}, call.data)
    (codes,), clusters = coded(call, "labels")
    if not 1 < len(clusters) < len(X):
        raise Refusal(Invalid("there is one cluster only, or one for each row"))
    if len(X) * len(clusters) > _MOST_ELEMENTS:
        raise Refusal("there are too many clusters for a table")
    counts = cupy.bincount(codes, minlength=len(clusters))
    return silhouettes(X, codes, counts, _METRICS[call.arguments["metric"]], cupy)


_SILHOUETTE_RULES: tuple[Rule, ...] = (
    arrays(1, text=True, matrices=("X",)),
    _KNOWN,
    _NOT_FLOATING,
)


@accelerated(
    _unsupervised.silhouette_samples,
    data=("X", "labels"),
    options=("metric",),
    rules=_SILHOUETTE_RULES,
    saves=_silhouettes_save,
)
def silhouette_samples(call: FunctionCall) -> Any:
    return _silhouettes(call).astype(_result_dtype(call), copy=False)


@accelerated(
    _unsupervised.silhouette_score,
    data=("X", "labels"),
    options=("metric", "sample_size", "random_state"),
    rules=(
        *_SILHOUETTE_RULES,
        refuse(
            "sample_size is no positive number",
            lambda call: (
                not (
                    call.arguments["sample_size"] is None
                    or (
                        type(call.arguments["sample_size"]) is int
                        and call.arguments["sample_size"] > 0
                    )
                )
            ),
        ),
    ),
    saves=_silhouettes_save,
)
def silhouette_score(call: FunctionCall) -> float:
    sample_size = call.arguments["sample_size"]
    if sample_size is None:
        return finite(_silhouettes(call).mean())
    generator = check_random_state(call.arguments["random_state"])
    state = generator.get_state(legacy=False)
    try:
        rows = generator.permutation(call.argument("X").shape[0])[:sample_size]
        return finite(_silhouettes(call, rows).mean())
    except Exception:  # scikit-learn is to draw the same rows
        generator.set_state(state)
        raise


def _same_columns(call: FunctionCall) -> bool:
    X, Y = call.argument("X"), call.argument("Y")
    return not Y.given or (len(Y.shape) == 2 and X.shape[1] == Y.shape[1])


def _tables(call: FunctionCall) -> str | None:
    for name in ("X", "Y"):
        given = call.argument(name)
        if not given.given and name == "Y":
            continue
        if given.kind not in ("numpy", "cupy", "frame", "sequence") or not given.numeric:
            return f"{name} is not a plain array or frame of numbers ({given})"
        if len(given.shape) != 2 or 0 in given.shape:
            return Invalid(f"{name} is no matrix, or empty")
    return None if _same_columns(call) else Invalid("X and Y differ in their number of columns")


def _distances_save(call: FunctionCall) -> float:
    X, Y = call.argument("X"), call.argument("Y")
    return _OF_MATRICES * X.shape[0] * (Y if Y.given else X).shape[0] - _LEAST


@accelerated(
    pairwise.pairwise_distances,
    data=("X", "Y"),
    options=("metric", "n_jobs"),
    saves=_distances_save,
    rules=(
        Rule("X or Y is not a matrix of numbers", _tables),  # type: ignore[arg-type]
        _KNOWN,
    ),
)
def pairwise_distances(call: FunctionCall) -> Any:
    import cupy

    metric = _METRICS[call.arguments["metric"]]
    alone = call.arguments["Y"] is call.arguments["X"]
    X, Y = call.to_device("X"), None if alone else call.to_device("Y")
    return distances(X, Y, metric, _result_dtype(call), cupy)
