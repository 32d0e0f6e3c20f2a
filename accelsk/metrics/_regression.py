"""Errors of predicted numbers."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
from sklearn.metrics import _regression

from accelsk.algorithms import metrics
from accelsk.engines.base import only
from accelsk.exceptions import Invalid, Refusal
from accelsk.functions import FunctionCall, accelerated
from accelsk.metrics._inputs import arrays, finite, weight

__all__ = [
    "mean_absolute_error",
    "mean_squared_error",
    "mean_squared_log_error",
    "median_absolute_error",
    "r2_score",
    "root_mean_squared_error",
    "root_mean_squared_log_error",
]

_regression_metric = partial(
    accelerated,
    data=("y_true", "y_pred", "sample_weight"),
    options=("multioutput",),
    rules=(arrays(1, 2), only("multioutput", "uniform_average")),
)


def _targets(call: FunctionCall) -> tuple[Any, Any]:
    """Return the targets and what was predicted, of shape (n_samples, n_outputs), in float64."""
    pair = [call.to_device(name, np.float64) for name in ("y_true", "y_pred")]
    pair = [y[:, None] if y.ndim == 1 else y for y in pair]
    if pair[0].shape != pair[1].shape:
        raise Refusal(Invalid("y_true and y_pred have different numbers of outputs"))
    return pair[0], pair[1]


def _errors(call: FunctionCall, kind: str) -> Any:
    import cupy

    y, predicted = _targets(call)
    if kind == "squared_log" and bool((y < 0).any() | (predicted < 0).any()):
        raise Refusal("there are negative values")
    return metrics.mean_error(y, predicted, weight(call), kind, cupy)


@_regression_metric(_regression.mean_squared_error)
def mean_squared_error(call: FunctionCall) -> float:
    return finite(_errors(call, "squared").mean())


@_regression_metric(_regression.root_mean_squared_error)
def root_mean_squared_error(call: FunctionCall) -> float:
    return finite((_errors(call, "squared") ** 0.5).mean())


@_regression_metric(_regression.mean_absolute_error)
def mean_absolute_error(call: FunctionCall) -> float:
    return finite(_errors(call, "absolute").mean())


@_regression_metric(_regression.mean_squared_log_error)
def mean_squared_log_error(call: FunctionCall) -> float:
    return finite(_errors(call, "squared_log").mean())


@_regression_metric(_regression.root_mean_squared_log_error)
def root_mean_squared_log_error(call: FunctionCall) -> float:
    return finite((_errors(call, "squared_log") ** 0.5).mean())


@accelerated(
    _regression.median_absolute_error,
    data=("y_true", "y_pred"),
    options=("multioutput",),
    rules=(arrays(1, 2), only("multioutput", "uniform_average")),
)
def median_absolute_error(call: FunctionCall) -> float:
    import cupy

    return finite(metrics.medians(*_targets(call), cupy).mean())


@_regression_metric(_regression.r2_score)
def r2_score(call: FunctionCall) -> float:
    import cupy

    y, predicted = _targets(call)
    if len(y) < 2:
        raise Refusal("the score of one row is not defined")
    of_residuals, of_y = metrics.determination(y, predicted, weight(call), cupy)
    if not bool((of_y > 0).all()):
        raise Refusal("y_true is constant")
    return finite((1 - of_residuals / of_y).mean())
