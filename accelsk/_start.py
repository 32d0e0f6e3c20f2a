"""What happens at the start of Python where ``ACCELSK_ENABLED`` is set.

``accelsk.pth`` in site-packages runs this file on its own, before accelsk or anything else is
imported, so it needs the standard library alone. Nothing is imported at the start: most programs
that inherit the variable (pip, a compiler's wrapper) use no scikit-learn. One finder waits on
``sys.meta_path`` for the first import of scikit-learn, finds nothing itself, and leaves with that
import.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
from collections.abc import Callable, Iterable
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

__all__ = ["OFF", "AtFirstImport", "start", "stop"]

#: What the variable is set to where it means the same as unset.
OFF = frozenset({"", "0", "false", "no", "off"})


class AtFirstImport:
    """Runs something after each of some packages has been imported for the first time.

    Parameters
    ----------
    packages : iterable of str
        Packages that have not been imported.
    action : callable
        Called with the name of the package. What it raises is told on standard error: the import
        of the package has succeeded.
    """

    starts = False  # whether `start` has put it there

    def __init__(self, packages: Iterable[str], action: Callable[[str], Any]) -> None:
        self._packages = set(packages)
        self._action = action
        self._searched: set[str] = set()
        self._loading: set[str] = set()

    def wait(self) -> None:
        """Go where imports are resolved, ahead of all others."""
        if self._packages:
            sys.meta_path.insert(0, self)

    def leave(self) -> None:
        """Wait no longer; what is just being imported is seen to the end."""
        self._packages.clear()
        if self in sys.meta_path:
            sys.meta_path.remove(self)

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        """Return what the other finders do, with a loader that acts after it has loaded."""
        if name not in self._packages or name in self._searched:
            return None
        self._searched.add(name)  # the search below comes here, too
        try:
            spec = importlib.util.find_spec(name)
        finally:
            self._searched.discard(name)
        loader = None if spec is None else spec.loader
        if loader is None:
            return None
        load = loader.exec_module

        def load_and_act(module: ModuleType) -> None:
            del loader.exec_module
            self._loading.add(name)
            try:
                load(module)
            except BaseException:
                self._loading.discard(name)
                raise
            self._loaded(name)

        loader.exec_module = load_and_act  # type: ignore[method-assign]
        return spec

    def _loaded(self, name: str) -> None:
        self._loading.discard(name)
        self._packages.discard(name)
        if not self._packages:
            self.leave()
        try:
            self._action(name)
        except Exception as error:
            what = name if name in ("umap", "hdbscan") else "scikit-learn"
            why = f"{type(error).__name__}: {error}"
            print(f"accelsk: {what} stays as it is: {why}", file=sys.stderr)


def start() -> None:
    """Have scikit-learn patched once it is imported, if the environment asks for that."""
    asked = os.environ.get("ACCELSK_ENABLED", "").strip().lower() not in OFF
    if asked and not _started():  # some environments list their packages twice
        finder = AtFirstImport(["sklearn", "accelsk", "umap", "hdbscan"], _patch)
        finder.starts = True
        finder.wait()


def _patch(package: str) -> None:
    if package == "sklearn":
        importlib.import_module("accelsk")  # unless that is what imports scikit-learn
        return
    from accelsk import patching

    if package == "accelsk":
        patching.patch_from_environment()
    else:
        patching.patch_imported(package)


def stop() -> None:
    """Take back what `start` did."""
    for finder in _started():
        finder.leave()


def _started() -> list[Any]:
    # told by an attribute: the file is run on its own at the start, and imported later
    return [finder for finder in sys.meta_path if getattr(finder, "starts", False) is True]
