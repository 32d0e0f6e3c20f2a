"""Several elementwise steps in one kernel on a device, and the same in NumPy.

Each launch costs the interpreter, which the threads of a transfer need too.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

__all__ = ["about", "errors"]

_SOURCES = {
    "accelsk_about": (
        "T x, float64 shift",
        "float64 apart, float64 square, float64 there",
        """
        double value = x;
        bool missing = value != value;
        apart = missing ? 0.0 : value - shift;
        square = apart * apart;
        there = missing ? 0.0 : 1.0;
        """,
    ),
    "accelsk_errors": (
        "T y, U predicted, float64 shift",
        "float64 apart, float64 square, float64 error",
        """
        double value = y;
        apart = value - shift;
        square = apart * apart;
        error = (value - (double)predicted) * (value - (double)predicted);
        """,
    ),
}


@functools.cache
def _kernel(name: str) -> Any:
    import cupy

    return cupy.ElementwiseKernel(*_SOURCES[name], name)


def about(X: Any, shift: Any, xp: Any) -> Any:
    """Return ``[X - shift, (X - shift) ** 2, 1]`` side by side, zeros where a value is missing.

    Parameters
    ----------
    X : array of shape (n_rows, n_columns)
    shift : array of shape (n_columns,)
    xp : module
        The array namespace.

    Returns
    -------
    parts : array of shape (n_rows, 3 * n_columns), dtype=float64
    """
    parts = xp.empty((len(X), 3, X.shape[1]))
    apart, square, there = parts[:, 0], parts[:, 1], parts[:, 2]
    if hasattr(xp, "cuda"):
        _kernel("accelsk_about")(X, shift, apart, square, there)
    else:
        missing = xp.isnan(X)
        apart[...] = xp.where(missing, 0.0, X - shift)
        square[...] = apart * apart
        there[...] = ~missing
    return parts.reshape(len(X), -1)


def errors(Y: Any, predicted: Any, shift: Any, xp: Any) -> Any:
    """Return ``[Y - shift, (Y - shift) ** 2, (Y - predicted) ** 2]`` side by side, in float64.

    Parameters
    ----------
    Y, predicted : array of shape (n_rows, n_targets)
    shift : array of shape (n_targets,)
    xp : module
        The array namespace.

    Returns
    -------
    parts : array of shape (n_rows, 3 * n_targets), dtype=float64
    """
    parts = xp.empty((len(Y), 3, Y.shape[1]))
    apart, square, error = parts[:, 0], parts[:, 1], parts[:, 2]
    if hasattr(xp, "cuda"):
        _kernel("accelsk_errors")(Y, predicted, shift, apart, square, error)
    else:
        apart[...] = Y - shift
        square[...] = apart * apart
        error[...] = (Y.astype(np.float64, copy=False) - predicted) ** 2
    return parts.reshape(len(Y), -1)
