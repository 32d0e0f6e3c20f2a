"""What happened here and in scikit-learn, side by side."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np


def outcome_of(function: Callable[[], Any]) -> tuple[Any, Any, list[tuple[type, str]]]:
    """Return what `function` returns, the error it raises and the warnings it gives."""
    result, error = None, None
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            result = function()
        except Exception as raised:
            error = (type(raised), str(raised))
    return result, error, [(w.category, str(w.message)) for w in caught]


def fitted(estimator: Any) -> dict[str, Any]:
    """Return the fitted attributes of an estimator, private ones included."""
    if hasattr(estimator, "_accelsk_fetch"):
        estimator._accelsk_fetch()
    return {
        name: value
        for name, value in vars(estimator).items()
        if name not in inspect.signature(type(estimator)).parameters
        and not name.startswith(("_accelsk", "_sklearn", "_skl_", "_metadata"))
        and name not in ("_parent_callback_ctx", "_callback_fit_ctx")
    }


def assert_same(
    ours: Any, theirs: Any, where: str = "result", tolerance: float | None = None
) -> None:
    """Assert that two results are of one type, dtype and shape, and close in value."""
    assert type(ours) is type(theirs), f"{where}: {type(ours)} against {type(theirs)}"
    if isinstance(theirs, dict):
        assert ours.keys() == theirs.keys(), f"{where}: {ours.keys() ^ theirs.keys()}"
        for name in theirs:
            assert_same(ours[name], theirs[name], f"{where}.{name}", tolerance)
    elif isinstance(theirs, (list, tuple)):
        assert len(ours) == len(theirs), where
        for i, (a, b) in enumerate(zip(ours, theirs, strict=True)):
            assert_same(a, b, f"{where}[{i}]", tolerance)
    elif isinstance(theirs, (np.ndarray, np.generic, float)):
        a, b = np.asarray(ours), np.asarray(theirs)
        assert a.dtype == b.dtype, f"{where}: {a.dtype} against {b.dtype}"
        assert a.shape == b.shape, f"{where}: {a.shape} against {b.shape}"
        if b.dtype.kind in "fc":
            tolerance = tolerance or (1e-4 if b.dtype.itemsize <= 4 else 1e-9)
            np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance, err_msg=where)
        else:
            np.testing.assert_array_equal(a, b, err_msg=where)
    elif isinstance(theirs, (str, int, bool, type(None))):
        assert ours == theirs, where
