"""What a forked child does with what it has from the device of its parent: nothing at all."""

from __future__ import annotations

import ctypes

__all__ = ["abandon"]


def abandon(value: object) -> None:
    """Keep `value` from ever being destroyed: what it holds can only be freed through CUDA."""
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(value))
