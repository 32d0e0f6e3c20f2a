"""`supported`: what runs on a GPU, and what keeps a call off it, read from the declarations.

An engine declares most of it as rules. What it finds out from the data only stands in its code,
as ``raise Refusal("...")``; those texts are read from there, so that they need no second list.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import textwrap
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from types import FunctionType
from typing import Any

from accelsk.engines.base import Engine
from accelsk.estimator import Accelerated
from accelsk.exceptions import Invalid
from accelsk.registry import accelerated_classes

__all__ = ["MODULES", "Supported", "import_accelerated", "supported", "to_markdown", "to_text"]

#: The modules with accelerated classes.
MODULES = (
    "cluster",
    "covariance",
    "decomposition",
    "discriminant_analysis",
    "ensemble",
    "hdbscan",
    "kernel_ridge",
    "linear_model",
    "manifold",
    "naive_bayes",
    "neighbors",
    "preprocessing",
    "random_projection",
    "svm",
    "umap",
)

_HEADERS = ("Class", "Engine", "Methods on the GPU", "In scikit-learn where")


@dataclass(frozen=True)
class Supported:
    """What one engine runs of one class.

    Attributes
    ----------
    name : str
        The class below ``accelsk``, such as ``"linear_model.Ridge"``. A module that cannot be
        imported, because the package that it is over is not installed, stands there itself.
    engine : str or None
        What computes it; None for a module that cannot be imported.
    methods : tuple of str
        The methods that can run on the GPU.
    limits : tuple of str
        What keeps a call off the GPU.
    notes : tuple of str
        What differs from scikit-learn without keeping a call off the GPU.
    """

    name: str
    engine: str | None
    methods: tuple[str, ...] = ()
    limits: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


def import_accelerated() -> dict[str, str]:
    """Import every module that has accelerated classes.

    Returns
    -------
    missing : dict
        The modules that could not be imported, and why.
    """
    missing = {}
    for module in MODULES:
        try:
            importlib.import_module(f"accelsk.{module}")
        except ImportError as error:
            missing[module] = f"it cannot be imported here: {error}"
    return missing


def supported() -> list[Supported]:
    """Return what runs on a GPU, and what keeps a call off it.

    Imports every module of accelsk that has accelerated classes. Classes made with
    `accelsk.register` are listed, too.

    Returns
    -------
    table : list of Supported
        A row for each class and engine, by name.

    Examples
    --------
    >>> import accelsk
    >>> rows = {row.name: row for row in accelsk.supported()}
    >>> "fit" in rows["linear_model.Ridge"].methods
    True
    """
    missing = import_accelerated()
    rows = [
        Supported(_name(cls), engine.name, engine.methods, _limits(cls, engine), _notes(engine))
        for cls in accelerated_classes().values()
        for engine in cls._accelsk_engines
    ]
    rows += [Supported(module, None, limits=(why,)) for module, why in missing.items()]
    return sorted(rows, key=lambda row: row.name.lower())


def _name(cls: type) -> str:
    return f"{cls.__module__}.{cls.__qualname__}".removeprefix("accelsk.")


def _limits(cls: type[Accelerated], engine: Engine) -> tuple[str, ...]:
    """Return what keeps a call off `engine`, without what scikit-learn itself would reject."""
    known = {*cls._get_param_names(), None}
    for method in engine.methods:
        known.update(inspect.signature(getattr(cls, method)).parameters)
    declared = [
        rule.text
        for rule in engine.every_rule()
        if rule.about in known and not isinstance(rule.text, Invalid)
    ]
    return tuple(dict.fromkeys([*declared, *_limits_in_code(type(engine))]))


def _notes(engine: Engine) -> tuple[str, ...]:
    return () if engine.repeats else ("the same random_state gives another result each time",)


def _limits_in_code(cls: type[Engine]) -> Iterator[str]:
    """Yield the texts of the refusals in the methods of `cls`, and in the functions they use.

    What families of engines have in common (`accelsk.engines`) is left out.
    """
    pending: list[Any] = [
        klass
        for klass in cls.__mro__
        if not klass.__module__.startswith(("accelsk.engines", "abc"))
    ]
    seen: set[Any] = {object}
    while pending:
        code = pending.pop(0)
        if code in seen:
            continue
        seen.add(code)
        try:
            tree = ast.parse(textwrap.dedent(inspect.getsource(code)))
        except OSError:  # installed without its source
            continue
        module = inspect.getmodule(code)
        for node in ast.walk(tree):
            if isinstance(node, ast.Name):
                used = getattr(module, node.id, None)
                if isinstance(used, FunctionType) and used.__module__ == code.__module__:
                    pending.append(used)
        yield from _refusals(tree)


def _refusals(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and getattr(node.func, "id", None) == "Refusal" and node.args:
            text = node.args[0]
            if isinstance(text, ast.Constant) and isinstance(text.value, str):
                yield text.value


def to_text(table: Iterable[Supported], width: int = 100) -> str:
    """Return the table for a terminal of `width` columns, or somewhat more if that is few."""
    from tabulate import MIN_PADDING, tabulate

    rows = [_cells(row, "\n") for row in table]
    name, engine, methods, _ = (
        max(len(header) + MIN_PADDING, *map(len, column))
        for header, *column in zip(_HEADERS, *rows, strict=True)
    )
    methods = min(methods, 24)
    left = width - name - engine - methods - len("│" + 4 * "  │")
    widths = [None, None, methods, max(left, 24)]
    return tabulate(rows, _HEADERS, tablefmt="simple_grid", maxcolwidths=widths)


def to_markdown(table: Iterable[Supported]) -> str:
    """Return the table as markdown, one line for each class and engine."""
    lines = [_HEADERS, tuple("---" for _ in _HEADERS), *(_cells(row, "; ") for row in table)]
    return "\n".join(
        "| " + " | ".join(cell.replace("|", "\\|") for cell in c) + " |" for c in lines
    )


def _cells(row: Supported, separator: str) -> tuple[str, ...]:
    remarks = [*row.limits, *(f"(note) {note}" for note in row.notes)]
    return row.name, row.engine or "", ", ".join(row.methods), separator.join(remarks)
