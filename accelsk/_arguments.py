"""Checks of arguments that public functions have in common."""

from __future__ import annotations

from typing import Any

import numpy as np

__all__ = ["check_flag"]


def check_flag(name: str, value: Any) -> None:
    """Raise a TypeError where an argument is neither True nor False.

    A function in its place, for one, is what a decorator without parentheses gives.
    """
    if not isinstance(value, (bool, np.bool_)):
        raise TypeError(f"{name} must be True or False, got {value!r}")
