"""Modules of accelsk that hand out all that the scikit-learn module of the same name does."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from typing import Any

__all__ = ["mirror"]


def mirror(module: str) -> tuple[list[str], Callable[[str], Any], Callable[[], list[str]]]:
    """Return ``__all__``, ``__getattr__`` and ``__dir__`` for an accelsk module.

    Parameters
    ----------
    module : str
        Its ``__name__``; the original has ``sklearn`` in place of ``accelsk``.
    """
    original = importlib.import_module(module.replace("accelsk", "sklearn", 1))
    names = sorted(getattr(original, "__all__", [n for n in dir(original) if n[0] != "_"]))

    def get(name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        return getattr(original, name)

    def names_of() -> list[str]:
        return sorted({*vars(sys.modules[module]), *names})

    return names, get, names_of
