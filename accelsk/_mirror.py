"""Modules of accelsk that hand out all that the scikit-learn module of the same name does.

There is a real file for every public module of scikit-learn, so that imports, pickles and editors
find them by ordinary means. Names are looked up in scikit-learn at each access, never copied: what
scikit-learn adds later (``sklearn.experimental``) or hands out lazily is there, too.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

__all__ = ["mirror"]


def mirror(
    module: str, original: str | None = None
) -> tuple[list[str], Callable[[str], Any], Callable[[], list[str]]]:
    """Return ``__all__``, ``__getattr__`` and ``__dir__`` for an accelsk module.

    Parameters
    ----------
    module : str
        Its ``__name__``.
    original : str, default=None
        The module to mirror; None means the one with ``sklearn`` in place of ``accelsk``.
    """
    source = importlib.import_module(original or module.replace("accelsk", "sklearn", 1))

    def get(name: str) -> Any:
        # a file of the import system (``__path__``) is never that of the original
        if name.startswith("__"):
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        try:
            value = getattr(source, name)
        except AttributeError:
            raise AttributeError(f"module {module!r} has no attribute {name!r}") from None
        return _own_submodule(module, source, name, value)

    def names() -> list[str]:
        return sorted({*vars(sys.modules[module]), *_public_names(source)})

    return _public_names(source), get, names


def _public_names(source: ModuleType) -> list[str]:
    # The list itself: importing from `sklearn.experimental` adds to it
    listed: list[str] | None = getattr(source, "__all__", None)
    return [name for name in dir(source) if name[0] != "_"] if listed is None else listed


def _own_submodule(module: str, source: ModuleType, name: str, value: Any) -> Any:
    """Return accelsk's module where `value` is the submodule `name` of the original."""
    if isinstance(value, ModuleType) and value.__name__ == f"{source.__name__}.{name}":
        try:
            return importlib.import_module(f"{module}.{name}")
        except ModuleNotFoundError as error:
            if error.name != f"{module}.{name}":
                raise
    return value
