"""What is loaded and compiled in this process: the first use of an engine costs seconds."""

from __future__ import annotations

import os
from time import monotonic

__all__ = ["compiled", "family", "loading", "loads", "mark", "remaining"]

#: Libraries that have computed something in this process: "cupy", "cuml".
_loaded: set[str] = set()

#: Methods, by qualified name and engine, that have run here.
_compiled: set[tuple[str, str]] = set()

#: When a thread began to load everything, while it is at it.
_loading_since: float | None = None


def family(engine: str) -> str:
    """Return the library that an engine needs."""
    return "cuml" if engine == "cuml" else "cupy"


def loads(engine: str) -> bool:
    """Whether the library of an engine has yet to be loaded."""
    return family(engine) not in _loaded


def compiled(method: str, engine: str) -> bool:
    """Whether a method has run on an engine in this process."""
    return (method, engine) in _compiled


def mark(engine: str, method: str | None = None) -> None:
    """Have on record that an engine is there, and that it has run a method."""
    _loaded.add("cupy")  # cuML computes on it
    _loaded.add(family(engine))
    if method is not None:
        _compiled.add((method, engine))


def loading(under_way: bool) -> None:
    """Have on record that a thread loads the libraries, or has ended."""
    global _loading_since
    _loading_since = monotonic() if under_way else None


def remaining(load: float) -> float:
    """Return what is left of the seconds that it takes to load a library."""
    since = _loading_since
    return load if since is None else max(load - (monotonic() - since), load / 10)


def _forked() -> None:
    _loaded.clear()  # CUDA does not survive a fork
    _compiled.clear()
    loading(False)


os.register_at_fork(after_in_child=_forked)
