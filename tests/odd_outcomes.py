"""What comes of a call, and in what that differs from what comes of it in scikit-learn."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse
from sklearn.base import BaseEstimator

__all__ = ["Outcome", "differences", "outcome"]


class Outcome(NamedTuple):
    """What came of a call: what it returned or raised, and what it warned of."""

    result: Any
    error: tuple[type, str] | None
    warnings: list[tuple[type, str]]


_NUMBER = re.compile(r"[-+]?\d+(\.\d+)?(e[-+]?\d+)?")
_ADDRESS = re.compile(r"0x[0-9a-f]+")


def outcome(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Outcome:
    """Return what comes of a call."""
    result, error = None, None
    with warnings.catch_warnings(record=True) as caught, np.errstate(all="ignore"):
        warnings.simplefilter("always")
        try:
            result = function(*args, **kwargs)
        except Exception as raised:
            error = (type(raised), _ADDRESS.sub("0x", str(raised)))
    told = {
        (w.category, _NUMBER.sub("#", str(w.message)))
        for w in caught
        # about the arithmetic of the one who does it, or between an old library and a new one
        if not issubclass(w.category, (RuntimeWarning, DeprecationWarning))
    }
    return Outcome(result, error, sorted(told, key=str))


def differences(ours: Outcome, theirs: Outcome, rtol: float, *, values: bool = True) -> str | None:
    """Return in what an outcome differs from scikit-learn's, or None."""
    if ours.error != theirs.error:
        return f"raised {ours.error}\n   not {theirs.error}"
    if ours.warnings != theirs.warnings:
        return f"warned {ours.warnings}\n   not {theirs.warnings}"
    return _unlike(ours.result, theirs.result, rtol, values)


def _unlike(ours: Any, theirs: Any, rtol: float, values: bool) -> str | None:
    if isinstance(ours, BaseEstimator) and isinstance(theirs, BaseEstimator):
        return None
    if type(ours) is not type(theirs):
        return f"{type(ours)} not {type(theirs)}"
    if isinstance(theirs, (list, tuple)):
        if len(ours) != len(theirs):
            return f"{len(ours)} not {len(theirs)} items"
        pairs = zip(ours, theirs, strict=True)
        return next(filter(None, (_unlike(*pair, rtol, values) for pair in pairs)), None)
    if sparse.issparse(theirs):
        ours, theirs = ours.toarray(), theirs.toarray()
    if not isinstance(theirs, (np.ndarray, np.generic, float)):
        plain = isinstance(theirs, (str, int, dict))
        return f"{ours!r} not {theirs!r}" if plain and values and ours != theirs else None
    a, b = np.asarray(ours), np.asarray(theirs)
    if (a.dtype, a.shape) != (b.dtype, b.shape):
        return f"{a.dtype} {a.shape} not {b.dtype} {b.shape}"
    if not values:
        return None
    if b.dtype.kind == "O":
        return _unlike(a.tolist(), b.tolist(), rtol, values)
    if b.dtype.kind not in "fc":
        return None if np.array_equal(a, b) else f"{a.ravel()[:6]} not {b.ravel()[:6]}"
    return _apart(a, b, rtol)


def _apart(a: np.ndarray, b: np.ndarray, rtol: float) -> str | None:
    rtol = max(rtol, {2: 1e-3, 4: 1e-4}.get(b.dtype.itemsize, 0))
    finite = np.abs(b[np.isfinite(b)])
    scale = finite.max() if finite.size else 1.0
    with np.errstate(all="ignore"):
        near = np.isclose(a, b, rtol=rtol, atol=max(rtol * scale, 1e-12), equal_nan=True)
    return None if near.all() else f"{a[~near][:4]} not {b[~near][:4]} (of {scale:.1e})"
