"""Names of modules: where objects of scikit-learn's stand, and putting others in their place."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from sklearn.base import BaseEstimator

from accelsk.estimator import SLOT
from accelsk.registry import OTHER_PACKAGES

__all__ = ["PACKAGES", "Change", "is_imported", "of_packages", "of_users", "public_path", "sweep"]

#: What has accelerated counterparts.
PACKAGES = ("sklearn", *OTHER_PACKAGES)

#: Where names of classes are not the user's: accelsk, what it stands for, and packages that
#: accelerate scikit-learn themselves and reach for its own classes.
_NOT_THE_USERS = frozenset(
    {
        *PACKAGES,
        *sys.stdlib_module_names,
        "accelsk",
        "cudf",
        "cuml",
        "daal4py",
        "onedal",
        "sklearnex",
    }
)


@dataclass(frozen=True, eq=False)
class Change:
    """A name of a module to which accelsk's object is assigned."""

    module: ModuleType
    name: str
    found: Any
    ours: Any

    @property
    def namespace(self) -> dict[str, Any]:
        return _namespace(self.module)

    @property
    def in_packages(self) -> bool:
        return self.module.__name__.partition(".")[0] in PACKAGES

    def make(self) -> None:
        self.namespace[self.name] = self.ours

    def undo(self) -> None:
        if self.namespace.get(self.name) is self.ours:
            self.namespace[self.name] = self.found

    def __str__(self) -> str:
        return f"{self.module.__name__}.{self.name}"


def public_path(original: Any) -> str:
    """Return the public name of a class or function: ``sklearn.linear_model.Ridge``."""
    parts = original.__module__.split(".")
    public = itertools.takewhile(lambda part: part[0] != "_" and part[-1] != "_", parts)
    return ".".join([*public, original.__name__])


def _namespace(module: ModuleType) -> dict[str, Any]:
    # a module that is loaded at the first look at its names stays as it is
    return object.__getattribute__(module, "__dict__")


def _modules() -> Iterator[tuple[str, ModuleType]]:
    """Yield what is loaded and under which name, each once: `__main__` may have two."""
    seen = set()
    for name, module in list(sys.modules.items()):
        if isinstance(module, ModuleType) and id(module) not in seen:
            seen.add(id(module))
            yield name, module


def is_imported(package: str) -> bool:
    """Whether it is imported, and not just now being imported."""
    spec = getattr(sys.modules.get(package), "__spec__", None)
    return spec is not None and not getattr(spec, "_initializing", False)


#: Parts of packages where nobody looks for public names.
_PRIVATE = frozenset({"tests", "conftest", "externals"})


def of_packages(replacements: dict[Any, Any], by_identity: dict[int, Any]) -> Iterator[Change]:
    at_home = {public_path(original): ours for original, ours in replacements.items()}
    for path, module in _modules():
        parts = path.split(".")
        if parts[0] not in PACKAGES or any(p[0] == "_" or p in _PRIVATE for p in parts):
            continue
        for name, value in list(_namespace(module).items()):
            # under the public name itself, another patcher's class may stand
            ours = at_home.get(f"{path}.{name}", by_identity.get(id(value)))
            if ours is not None and value is not ours and not _is_detail(path, value):
                yield Change(module, name, value, ours)


def _is_detail(path: str, value: Any) -> bool:
    """Whether a module only defines what a shorter path is the public name of: ``umap.umap_``."""
    return path == value.__module__ and path.endswith("_")


def of_users(by_identity: dict[int, Any]) -> Iterator[Change]:
    for path, module in _modules():
        if path.partition(".")[0] in _NOT_THE_USERS:
            continue
        for name, value in list(_namespace(module).items()):
            if (ours := by_identity.get(id(value))) is not None:
                yield Change(module, name, value, ours)


# What is left inside of scikit-learn


def sweep(originals: dict[int, Any]) -> None:
    """Replace what modules took from public names when they were imported while patched.

    Parameters
    ----------
    originals : dict
        By the identity of what stood there. Tables of classes, and instances in them, are seen to.
    """
    for path, module in _modules():
        if path.partition(".")[0] in PACKAGES:
            _restore(_namespace(module), originals, depth=_DEPTH)


#: How deep a class may lie in the tables of a module, its names being the first one.
_DEPTH = 6


def _restore(value: Any, originals: dict[int, Any], depth: int) -> Any:
    """Return `value` with originals in the place of counterparts; what can change is changed."""
    if id(value) in originals:
        return originals[id(value)]
    if depth == 0:
        return value
    if type(value) is dict:
        _restore_dict(value, originals, depth - 1)
    elif type(value) is list:
        value[:] = [_restore(item, originals, depth - 1) for item in value]
    elif type(value) in (set, tuple):
        new = type(value)(_restore(item, originals, depth - 1) for item in value)
        if any(a is not b for a, b in zip(new, value, strict=True)):
            return new
    elif isinstance(value, BaseEstimator):
        return _restore_estimator(value, originals, depth - 1)
    return value


def _restore_dict(table: dict[Any, Any], originals: dict[int, Any], depth: int) -> None:
    for key, value in list(table.items()):
        new = _restore(value, originals, depth)
        if new is not value:
            table[key] = new
    if any(id(key) in originals for key in table):
        items = [(originals.get(id(key), key), value) for key, value in table.items()]
        table.clear()
        table.update(items)


def _restore_estimator(estimator: Any, originals: dict[int, Any], depth: int) -> Any:
    original = originals.get(id(type(estimator)))
    if original is not None:
        estimator._accelsk_fetch()
        own = {name: value for name, value in vars(estimator).items() if name != SLOT}
        estimator = object.__new__(original)
        vars(estimator).update(own)
    _restore_dict(vars(estimator), originals, depth)
    return estimator
