"""Kernel density estimates, without the approximations that a tree allows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from accelsk.algorithms.distances import Metric, reduced

__all__ = ["KERNELS", "log_density"]

#: Elements of the largest intermediate array: 256 MB in float64.
_CHUNK = 1 << 25


def _inside(u: Any, value: Callable[[Any], Any], xp: Any) -> Any:
    """Return the logarithm of `value` of what is below one, else minus infinity."""
    inside = u < 1
    return xp.where(inside, xp.log(value(xp.where(inside, u, 0))), -np.inf)


#: The logarithm of a kernel at a distance of so many bandwidths, but for its norm.
KERNELS: dict[str, Callable[[Any, Any], Any]] = {
    "gaussian": lambda u, xp: -0.5 * u * u,
    "tophat": lambda u, xp: _inside(u, xp.ones_like, xp),
    "epanechnikov": lambda u, xp: _inside(u, lambda v: 1 - v * v, xp),
    "exponential": lambda u, xp: -u,
    "linear": lambda u, xp: _inside(u, lambda v: 1 - v, xp),
    "cosine": lambda u, xp: _inside(u, lambda v: xp.cos(0.5 * np.pi * v), xp),
}


def log_density(
    queries: Any,
    fitted: Any,
    weight: Any,
    kernel: str,
    bandwidth: float,
    metric: Metric,
    xp: Any,
) -> Any:
    """Return the logarithm of the density at each query, but for the norm of the kernel.

    Parameters
    ----------
    queries, fitted : array of shape (n, n_features), dtype=float64
        In C order.
    weight : array of shape (n_samples,) or None
    kernel : str
        One of `KERNELS`.
    bandwidth : float
    metric : Metric
    xp : module
        The array namespace.
    """
    n_features = queries.shape[1]
    total = len(fitted) if weight is None else float(weight.sum())
    log_weight = None if weight is None else xp.log(weight)
    result = xp.empty(len(queries))
    step = max(1, _CHUNK // len(fitted))
    columns = xp.arange(len(fitted))[None, :]
    for start in range(0, len(queries), step):
        lines = xp.arange(start, min(start + step, len(queries)))[:, None]
        sums = reduced(metric, queries, fitted, lines, columns, xp)
        logs = KERNELS[kernel](metric.finish(sums, n_features, metric.p, xp) / bandwidth, xp)
        if log_weight is not None:
            logs = logs + log_weight
        top = logs.max(axis=1, keepdims=True)
        top = xp.where(xp.isfinite(top), top, 0)
        result[start : start + step] = xp.log(xp.exp(logs - top).sum(axis=1)) + top[:, 0]
    return result - np.log(total)
