"""`patch`: accelerated classes under the public names of scikit-learn, umap-learn and hdbscan.

Names in modules are assigned to, and nothing else: no class of scikit-learn's is changed. What
stood under a name is recorded, and `unpatch` puts exactly that back, only where accelsk's class
still stands. Of packages that are not imported yet, umap-learn and hdbscan are patched when they
are first imported.

Four things follow from scikit-learn's own code and from pickles, and are dealt with here:

- Modules of scikit-learn that are first imported while patched take accelsk's classes from the
  public names. `unpatch` looks for those, in tables of classes, too.
- ``isinstance(x, sklearn.linear_model.Ridge)`` stays true for a plain Ridge: `Counterpart` asks
  `STANDING` for the classes that stand in for their originals at the moment.
- A class whose defining module is public (``sklearn.naive_bayes``) cannot be found under its own
  name while patched: its instances are pickled by a reducer in `copyreg` that names it. Both are
  in `accelsk._standing`.
- Child processes are told by the environment; see `accelsk._start`.
"""

from __future__ import annotations

import difflib
import importlib
import importlib.util
import logging
import os
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from accelsk import registry, support
from accelsk._arguments import check_flag
from accelsk._locks import Lock
from accelsk._names import (
    PACKAGES,
    Change,
    is_imported,
    of_packages,
    of_users,
    public_path,
    sweep,
)
from accelsk._standing import stand_in, step_down
from accelsk._start import OFF, AtFirstImport, stop
from accelsk.registry import OTHER_PACKAGES

__all__ = [
    "PatchResult",
    "is_patched",
    "patch",
    "patch_from_environment",
    "patch_imported",
    "patched",
    "unpatch",
]

logger = logging.getLogger("accelsk")

#: The modules of accelsk with counterparts: accelerated classes, and what passes data on.
MODULES = dict.fromkeys(
    (
        *support.MODULES,
        "compose",
        "metrics",
        "metrics.cluster",
        "metrics.pairwise",
        "model_selection",
        "pipeline",
    )
)

#: What scikit-learn has only once one of its modules has been imported.
_EXPERIMENTAL = {"sklearn.experimental.enable_halving_search_cv": "_halving"}
ENVIRONMENT = "ACCELSK_ENABLED"


@dataclass(frozen=True)
class PatchResult:
    """What a call of `patch` changed.

    Attributes
    ----------
    patched : tuple of str
        The names in scikit-learn, umap-learn and hdbscan, such as ``"sklearn.linear_model.Ridge"``.
    rebound : tuple of str
        The names in modules of the user's, such as ``"__main__.Ridge"``.
    """

    patched: tuple[str, ...] = ()
    rebound: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"{len(self.patched)} names patched, {len(self.rebound)} names rebound"


@dataclass(eq=False)
class _Call:
    """A call of `patch` that stands."""

    names: tuple[str, ...]  # none of them means everything
    rebind: bool
    replacements: dict[Any, Any] = field(default_factory=dict)
    changes: list[Change] = field(default_factory=list)
    environment: str | None = None  # what children were told before
    watch: AtFirstImport | None = None

    def wants(self, change: Change) -> bool:
        """Whether it would have made `change`, had it been the first."""
        its_own = any(change.ours is ours for ours in self.replacements.values())
        return its_own and (self.rebind or change.in_packages)


_lock = Lock()
_calls: list[_Call] = []


def patch(estimators: Any = None, rebind: bool = True) -> PatchResult:
    """Put accelerated classes under the public names of scikit-learn, umap-learn and hdbscan.

    From then on ``from sklearn.linear_model import Ridge`` gives accelsk's `Ridge`. Child processes
    that start later are patched, too: ``ACCELSK_ENABLED`` is set for them. A second call adds what
    the first left out. Either all of it happens or, where anything raises, nothing.

    Parameters
    ----------
    estimators : class, function, str, or a list of them, default=None
        Which to patch: classes and functions, scikit-learn's or accelsk's; their names ("Ridge",
        "linear_model.Ridge", "sklearn.linear_model.Ridge"); modules ("linear_model",
        "sklearn.linear_model"). None means all.
    rebind : bool, default=True
        Replace the names, too, that other modules have imported already, ``__main__`` among them:
        every loaded module that is not in Python's standard library, in accelsk or in a package
        that accelsk stands for, and not in another accelerator (cuML, scikit-learn-intelex). So
        it makes no difference whether a library or a script was imported before the call.
        Only names of modules are replaced, not what lies in lists, in classes or in functions.

    Returns
    -------
    result : PatchResult
        What this call patched and rebound.

    Raises
    ------
    TypeError
        If one of `estimators` is no class, function or name.
    ValueError
        If one of `estimators` names nothing that accelsk has a counterpart of.

    See Also
    --------
    unpatch : Take all of it back.
    patched : The same for the length of a ``with`` block.

    Examples
    --------
    >>> import accelsk, sklearn.linear_model
    >>> accelsk.patch("Ridge").patched
    ('sklearn.linear_model.Ridge',)
    >>> sklearn.linear_model.Ridge.__module__
    'accelsk.linear_model'
    >>> accelsk.unpatch()
    >>> sklearn.linear_model.Ridge.__module__
    'sklearn.linear_model._ridge'
    """
    return _result(_patch(estimators, rebind))


def unpatch() -> None:
    """Put back what every `patch` of this process found.

    Names that have been assigned to since keep what they have. Names that were imported while
    patched (``from sklearn.linear_model import Ridge``) are accelsk's classes, and stay that.

    Examples
    --------
    >>> import accelsk
    >>> accelsk.unpatch()  # does nothing where nothing is patched
    """
    stop()
    with _lock:
        before = _calls[0].environment if _calls else os.environ.get(ENVIRONMENT)
        for call in reversed(_calls.copy()):
            _undo(call)
        # another patcher, undone after accelsk, may have put back what it had found
        sweep({id(ours): original for original, ours in _counterparts(PACKAGES).items()})
        _tell_children(before if before is not None and before.strip().lower() in OFF else None)


@contextmanager
def patched(estimators: Any = None, rebind: bool = True) -> Iterator[PatchResult]:
    """Patch for the length of a ``with`` block, in all threads.

    Parameters
    ----------
    estimators : class, function, str, or a list of them, default=None
    rebind : bool, default=True
        As in `patch`.

    Yields
    ------
    result : PatchResult

    Examples
    --------
    >>> import accelsk, sklearn.svm
    >>> with accelsk.patched("svm"):
    ...     accelsk.is_proxy(sklearn.svm.SVC)
    True
    >>> accelsk.is_proxy(sklearn.svm.SVC)
    False
    """
    call = _patch(estimators, rebind)
    try:
        yield _result(call)
    finally:
        with _lock:
            _undo(call)
            _tell_children(call.environment)


def is_patched() -> bool:
    """Whether `patch` is in force, for all classes or some.

    Returns
    -------
    is_patched : bool

    Examples
    --------
    >>> import accelsk
    >>> accelsk.is_patched()
    False
    """
    return bool(_calls)


def patch_from_environment() -> None:
    """Patch what ``ACCELSK_ENABLED`` asks for: all with "1", or names with commas between them."""
    fault = fault_of_environment()
    if fault is not None:
        raise ValueError(fault)
    names = _named_in_environment()
    if names is None or names:
        patch(names)


def fault_of_environment() -> str | None:
    """Return what is wrong with ``ACCELSK_ENABLED``, if anything."""
    names = _named_in_environment()
    if names:
        _import(names)
        try:
            _selected(names, _counterparts(PACKAGES))
        except ValueError as error:
            return f"{ENVIRONMENT}={os.environ[ENVIRONMENT]!r}: {error} (1 means all, 0 nothing)"
    return None


def _named_in_environment() -> list[str] | None:
    """Return the names in ``ACCELSK_ENABLED``; None means all."""
    value = os.environ.get(ENVIRONMENT, "").strip()
    if value.lower() in ("1", "true", "yes", "on"):
        return None
    return [] if value.lower() in OFF else [name.strip() for name in value.split(",")]


def patch_imported(package: str) -> None:
    """Patch a package that has just been imported for the first time, where all is patched.

    Parameters
    ----------
    package : {"hdbscan", "umap"}
    """
    importlib.import_module(f"accelsk.{package}")
    with _lock:
        for call in _calls:
            if not call.names:
                _extend(call, _counterparts([package]))


# A call


def _patch(estimators: Any, rebind: bool) -> _Call:
    # before the lock is taken: another thread may be importing one of them, and wait for it
    check_flag("rebind", rebind)
    chosen = None if estimators is None else _listed(estimators)
    _import(chosen)
    replacements = _counterparts(PACKAGES)
    if chosen is not None:
        replacements = _selected(chosen, replacements)
    call = _Call(() if chosen is None else tuple(sorted(map(public_path, replacements))), rebind)
    call.environment = os.environ.get(ENVIRONMENT)
    stop()
    with _lock:
        try:
            _extend(call, replacements)
            if chosen is None:
                call.watch = AtFirstImport(_not_imported(), patch_imported)
                call.watch.wait()
            _calls.append(call)
            _tell_children()
        except BaseException:
            _undo(call)
            raise
    return call


def _extend(call: _Call, replacements: dict[Any, Any]) -> None:
    """Have `call` replace more, in all modules that are loaded."""
    call.replacements.update(replacements)
    by_identity = {id(original): ours for original, ours in replacements.items()}
    changes = [*of_packages(replacements, by_identity)]
    if call.rebind:
        # another patcher's classes are replaced where they stand under scikit-learn's names, too
        by_identity |= {id(change.found): change.ours for change in changes}
        changes += of_users(by_identity)
    for change in changes:
        call.changes.append(change)
        change.make()
    stand_in(replacements)


def _undo(call: _Call) -> None:
    """Take back a call, as far as no other one wants the same. A second time does nothing."""
    if call in _calls:
        _calls.remove(call)
    if call.watch is not None:
        call.watch.leave()
    for change in reversed(call.changes):
        heir = next((other for other in _calls if other.wants(change)), None)
        if heir is None:
            change.undo()
        else:
            heir.changes.append(change)
    call.changes.clear()
    standing = {id(ours) for other in _calls for ours in other.replacements.values()}
    gone = {o: ours for o, ours in call.replacements.items() if id(ours) not in standing}
    sweep({id(ours): original for original, ours in gone.items()})
    step_down(gone)


def _result(call: _Call) -> PatchResult:
    patched = tuple(str(change) for change in call.changes if change.in_packages)
    return PatchResult(patched, tuple(str(c) for c in call.changes if not c.in_packages))


def _tell_children(otherwise: str | None = None) -> None:
    """Have child processes patched as this one is, or told `otherwise` where it is not."""
    if any(not call.names for call in _calls):
        value: str | None = "1"
    else:
        value = ",".join(sorted({n for call in _calls for n in call.names})) or otherwise
    if value is None:
        os.environ.pop(ENVIRONMENT, None)
    else:
        os.environ[ENVIRONMENT] = value


# Which objects


def _listed(estimators: Any) -> list[Any]:
    several = isinstance(estimators, Iterable) and not isinstance(estimators, (str, bytes, type))
    listed = list(estimators) if several else [estimators]
    for item in listed:
        if not (isinstance(item, str) or callable(item)):
            raise TypeError(f"estimators are classes, functions or names of them, got {item!r}")
    return listed


def _import(chosen: list[Any] | None) -> None:
    """Import the modules with counterparts; those of other packages only if they are asked for."""
    asked = " ".join(map(str, chosen or ())).lower()
    enabled = (ours for enabling, ours in _EXPERIMENTAL.items() if enabling in sys.modules)
    for module in (*MODULES, *enabled):
        if module in OTHER_PACKAGES and module not in asked and not is_imported(module):
            continue
        try:
            importlib.import_module(f"accelsk.{module}")
        except ImportError as error:
            if module not in OTHER_PACKAGES:
                raise
            logger.info("%s is not patched: %s", module, error)


def _not_imported() -> list[str]:
    return [
        name
        for name in OTHER_PACKAGES
        if name not in sys.modules and importlib.util.find_spec(name) is not None
    ]


def _counterparts(packages: Iterable[str]) -> dict[Any, Any]:
    """Return what has a counterpart in `packages`, and the counterparts."""
    every = (
        registry.accelerated_classes()
        | registry.composite_classes()
        | registry.accelerated_functions()
    )
    return {
        original: ours
        for original, ours in every.items()
        if original.__module__.partition(".")[0] in packages
    }


def _selected(chosen: list[Any], replacements: dict[Any, Any]) -> dict[Any, Any]:
    selected: dict[Any, Any] = {}
    for item in chosen:
        found = {
            original: ours
            for original, ours in replacements.items()
            if item is original or item is ours or item in _names(original)
        }
        if not found:
            hint = _hint(item, replacements)
            raise ValueError(f"{item!r} names nothing that accelsk has a counterpart of{hint}")
        selected |= found
    return selected


def _hint(item: Any, replacements: dict[Any, Any]) -> str:
    known = set().union(*map(_names, replacements)) if isinstance(item, str) else ()
    similar = difflib.get_close_matches(str(item), known, 1)
    return f": is {similar[0]!r} meant?" if similar else ""


def _names(original: Any) -> set[Any]:
    """Return what a user may call `original`, and the modules it is in."""
    path = public_path(original)
    parents = [path]
    while "." in parents[-1]:
        parents.append(parents[-1].rpartition(".")[0])
    return {original.__name__, *parents, *(name.removeprefix("sklearn.") for name in parents)}
