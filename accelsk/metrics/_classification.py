"""Scores of predicted labels and probabilities, and of rankings."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.metrics import _classification, _ranking

from accelsk.algorithms import metrics
from accelsk.device.transfer import to_device, to_host
from accelsk.engines.base import only, refuse
from accelsk.exceptions import Invalid, Refusal
from accelsk.functions import FunctionCall, accelerated
from accelsk.metrics._inputs import arrays, coded, few_classes, finite, weight

__all__ = [
    "accuracy_score",
    "average_precision_score",
    "balanced_accuracy_score",
    "confusion_matrix",
    "log_loss",
    "roc_auc_score",
]

_LABELS = ("y_true", "y_pred", "sample_weight")
_SCORES = ("y_true", "y_score", "sample_weight")

#: A matrix of more classes is not for the device to hold.
_MOST_CLASSES = 4096


def _probabilities(call: Any) -> str:
    """Return how the argument is named: differently from scikit-learn 1.9 on."""
    return "y_proba" if "y_proba" in call.arguments else "y_pred"


def _comparable(call: FunctionCall) -> tuple[Any, Any]:
    """Return labels that scikit-learn would compare as they are, or their codes, on the device."""
    import cupy

    if not all(call.argument(name).numeric for name in ("y_true", "y_pred")):
        return _coded_pair(call)
    pair = []
    for name in ("y_true", "y_pred"):
        labels = call.to_device(name)
        if labels.dtype.kind == "f" and not bool((labels % 1 == 0).all()):
            raise Refusal(Invalid(f"{name} is continuous"))
        n = len(labels)
        if labels.dtype.kind != "b" and float(labels.max()) - float(labels.min()) > n // 2:
            few_classes(len(cupy.unique(labels)), n)
        pair.append(labels)
    return pair[0], pair[1]


def _coded_pair(call: FunctionCall) -> tuple[Any, Any]:
    """Return codes of text. Those of the truth serve every candidate of a search."""
    (true,), classes = coded(call, "y_true")
    predicted = np.asarray(call.argument("y_pred").array)
    if classes.dtype.kind in "OU" and predicted.dtype.kind == classes.dtype.kind:
        place = np.minimum(np.searchsorted(classes, predicted), len(classes) - 1)
        if (classes[place] == predicted).all():
            return true, to_device(place)
    (true, predicted), _ = coded(call, "y_true", "y_pred")
    return true, predicted


@accelerated(
    _classification.accuracy_score,
    data=_LABELS,
    options=("normalize",),
    rules=(arrays(1, text=True), only("normalize", True, False)),
)
def accuracy_score(call: FunctionCall) -> float:
    import cupy

    true, predicted = _comparable(call)
    weights = weight(call)
    right = true == predicted
    if call.arguments["normalize"]:
        return finite(metrics.average(right, weights, cupy))
    return finite(right.sum() if weights is None else weights @ right.astype(np.float64))


def _confusion(call: FunctionCall) -> np.ndarray:
    """Return the confusion matrix on the host."""
    import cupy

    (true, predicted), classes = coded(call, "y_true", "y_pred")
    if len(classes) > _MOST_CLASSES:
        raise Refusal(f"there are more than {_MOST_CLASSES} classes")
    return to_host(metrics.confusion(true, predicted, len(classes), weight(call), cupy))


@accelerated(_classification.balanced_accuracy_score, data=_LABELS, rules=(arrays(1, text=True),))
def balanced_accuracy_score(call: FunctionCall) -> float:
    table = _confusion(call)
    counts = table.sum(axis=1)
    if not (counts > 0).all():
        raise Refusal("a class is not in y_true, or without weight there")
    return finite(np.mean(np.diag(table) / counts))


@accelerated(
    _classification.confusion_matrix,
    data=_LABELS,
    options=("normalize",),
    rules=(arrays(1, text=True), only("normalize", None, "true", "pred", "all")),
)
def confusion_matrix(call: FunctionCall) -> Any:
    import cupy

    table = _confusion(call)
    if len(table) == 1:
        raise Refusal("there is one class only")
    given = call.argument("sample_weight")
    if not given.given or (given.dtype is not None and given.dtype.kind in "biu"):
        table = table.astype(np.int64)
    axis: Any = {"true": 1, "pred": 0}.get(call.arguments["normalize"])
    if call.arguments["normalize"] is not None:
        totals = table.sum(axis=axis, keepdims=True)
        table = table / np.where(totals == 0, 1, totals)
    return cupy.asarray(table)


@accelerated(
    _classification.log_loss,
    data=("y_true", "y_proba", "sample_weight")
    if "y_proba" in _classification.log_loss.__wrapped__.__code__.co_varnames
    else _LABELS,
    options=("normalize",),
    rules=(
        arrays(1, 2, text=True),
        only("normalize", True, False),
        refuse(
            "the probabilities are not floating point",
            lambda call: getattr(call.argument(_probabilities(call)).dtype, "kind", "") != "f",
        ),
    ),
)
def log_loss(call: FunctionCall) -> float:
    import cupy

    (true,), classes = coded(call, "y_true")
    probability = call.to_device(_probabilities(call))
    if probability.dtype.itemsize > 8:
        raise Refusal("the probabilities are of extended precision")
    if probability.ndim == 1:
        probability = probability[:, None]
    if bool((probability < 0).any() | (probability > 1).any()):
        raise Refusal(Invalid("a probability is not between 0 and 1"))
    if probability.shape[1] == 1:
        probability = cupy.concatenate([1 - probability, probability], axis=1)
    if len(classes) != probability.shape[1]:
        raise Refusal(Invalid("y_true has more or fewer classes than there are probabilities"))
    # half of what scikit-learn bears with, where sums are rounded differently
    tolerance = np.sqrt(np.finfo(probability.dtype).eps) / 2
    if bool((cupy.abs(probability.sum(axis=1) - 1) > tolerance).any()):
        raise Refusal("the probabilities do not sum to one")
    normalize = call.arguments["normalize"]
    return finite(metrics.log_loss(true, probability, weight(call), normalize, cupy))


def _of_two_sides(call: FunctionCall, positive: Any) -> Any:
    """Return the weight, which both the positives and the negatives have."""
    weights = weight(call)
    of_positives = positive if weights is None else positive & (weights > 0)
    of_others = ~positive if weights is None else ~positive & (weights > 0)
    if not bool(of_positives.any() & of_others.any()):
        raise Refusal("the positives or the negatives are missing or have no weight")
    return weights


@accelerated(
    _ranking.roc_auc_score,
    data=_SCORES,
    options=("average", "max_fpr", "multi_class"),
    rules=(
        arrays(1, text=True),
        only("average", "macro", "micro", "weighted", "samples", None),
        only("max_fpr", None, 1.0),
        only("multi_class", "raise", "ovr", "ovo"),
        refuse("y_score is not numeric", lambda call: not call.argument("y_score").numeric),
    ),
)
def roc_auc_score(call: FunctionCall) -> float:
    import cupy

    (true,), classes = coded(call, "y_true")
    if len(classes) != 2:
        raise Refusal("y_true does not have two classes")
    positive = true == 1
    score = call.to_device("y_score", np.float64)
    return finite(metrics.roc_auc(positive, score, _of_two_sides(call, positive), cupy))


@accelerated(
    _ranking.average_precision_score,
    data=_SCORES,
    options=("average", "pos_label"),
    rules=(
        arrays(1, text=True),
        only("average", "macro", "micro", "weighted", "samples", None),
        refuse("y_score is not numeric", lambda call: not call.argument("y_score").numeric),
    ),
)
def average_precision_score(call: FunctionCall) -> float:
    import cupy

    (true,), classes = coded(call, "y_true")
    found = np.flatnonzero(classes == call.arguments["pos_label"])
    if len(classes) != 2 or len(found) != 1:
        raise Refusal("y_true does not have two classes, one of them pos_label")
    positive = true == int(found[0])
    score = call.to_device("y_score", np.float64)
    weights = _of_two_sides(call, positive)
    return finite(metrics.average_precision(positive, score, weights, cupy))
