"""Which source the line profiler watches, and what its lines say."""

from __future__ import annotations

import ast
import functools
import inspect
import linecache
import os
import sys
from collections.abc import Mapping
from types import CodeType, FrameType, ModuleType
from typing import Any, NamedTuple

__all__ = ["Source", "Sources", "calling_frame", "statements"]

_OWN = os.path.dirname(os.path.dirname(__file__)) + os.sep
_INSTALLED = ("site-packages", "dist-packages")


class Source(NamedTuple):
    """What the line profiler has to know of a file.

    Attributes
    ----------
    name : str
        The name under which its lines count.
    statements : dict of int to int
        What `statements` returns for it.
    functions : frozenset or None
        What tells the functions in it from others, where code that is none of it goes by the same
        file name; None where that is not to be feared.
    """

    name: str
    statements: dict[int, int]
    functions: frozenset[tuple[Any, ...]] | None = None

    def has(self, code: CodeType) -> bool:
        """Whether `code`, which goes by the name of the file, is part of it."""
        return self.functions is None or _identity(code) in self.functions


class Sources:
    """The files that one ``with`` block watches.

    Parameters
    ----------
    wanted : tuple
        Paths of files and folders, names of compiled code such as ``"<string>"``, modules,
        functions, code objects.
    texts : mapping of str to str, default=None
        Source by name, where it cannot be looked up.
    aliases : mapping of str to str, default=None
        Names of compiled code that count as another name.
    """

    def __init__(
        self,
        wanted: tuple[Any, ...],
        texts: Mapping[str, str] | None = None,
        aliases: Mapping[str, str] | None = None,
    ) -> None:
        self._texts = dict(texts or {})
        self._names = dict(aliases or {})
        self._folders: list[str] = []
        #: Lines that are shown, by file; a file that is not in it is shown whole.
        self._ranges: dict[str, list[range]] = {}
        for item in wanted:
            self._want(item)

    def _want(self, item: Any) -> None:
        if isinstance(item, ModuleType):
            item = inspect.getsourcefile(item) or item.__name__
        item = inspect.unwrap(item) if callable(item) else item
        code = getattr(getattr(item, "__func__", item), "__code__", item)
        if isinstance(code, CodeType):
            lines = [line for _, _, line in code.co_lines() if line is not None]
            found = range(code.co_firstlineno, max(lines) + 1)
            self._names.setdefault(code.co_filename, code.co_filename)
            self._ranges.setdefault(code.co_filename, []).append(found)
            return
        if not isinstance(item, (str, os.PathLike)):
            raise TypeError(f"a file, folder, module, function or code is needed, got {item!r}")
        path = os.fspath(item)
        if path.startswith("<"):
            self._names[path] = path
        elif os.path.isdir(path):
            self._folders.append(os.path.join(os.path.abspath(path), ""))
        else:
            self._names[path] = path
            if os.path.exists(path):
                self._names[os.path.abspath(path)] = path

    def name(self, file: str) -> str | None:
        """Return the name under which the lines of code from `file` count; None for none."""
        known = self._names.get(file)
        if known is not None or not self._folders:
            return known
        path = os.path.abspath(file)
        if any(path.startswith(folder) for folder in self._folders):
            own = not any(part in path for part in _INSTALLED)
            return path if own and not path.startswith(_OWN) else None
        return None

    def shows(self, name: str, line: int) -> bool:
        """Whether the line is one of those asked for."""
        ranges = self._ranges.get(name)
        return ranges is None or any(line in lines for lines in ranges)

    def text(self, name: str) -> list[str]:
        """Return the lines of a file, those of its end stripped of line feeds."""
        if name in self._texts:
            return self._texts[name].splitlines()
        return [line.rstrip("\n") for line in linecache.getlines(name)]

    def source(self, name: str) -> Source:
        """Return what there is to know of a file."""
        text = "\n".join(self.text(name))
        # what `collections.namedtuple` and others generate goes by the name "<string>"
        functions = _functions(text) if name == "<string>" else None
        return Source(name, statements(text), functions)


@functools.lru_cache(maxsize=64)
def statements(text: str) -> dict[int, int]:
    """Return for each line of a statement that has several its first line.

    Of a statement with a body, the lines up to the body count.

    Examples
    --------
    >>> statements("f(1,\\n  2)\\nfor i in (\\n    1, 2):\\n    g(i)")
    {2: 1, 4: 3}
    """
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError):
        return {}
    first = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.stmt):
            body = getattr(node, "body", None) or getattr(node, "cases", None)
            end = node.end_lineno or node.lineno
            if body:
                start = getattr(body[0], "pattern", body[0]).lineno
                end = min(end, start - 1)
            for line in range(node.lineno + 1, end + 1):
                first[line] = node.lineno
    for node in ast.walk(tree):  # what stands in the lines of another begins there by itself
        if isinstance(node, ast.stmt):
            first.pop(node.lineno, None)
    return first


def _identity(code: CodeType) -> tuple[Any, ...]:
    return code.co_name, code.co_firstlineno, code.co_names


def _functions(text: str) -> frozenset[tuple[Any, ...]] | None:
    """Return what tells the module, the functions and classes of a source from others."""
    found = set()
    try:
        left = [compile(text, "<string>", "exec", dont_inherit=True)]
    except (SyntaxError, ValueError):
        return None
    while left:
        code = left.pop()
        found.add(_identity(code))
        left += [constant for constant in code.co_consts if isinstance(constant, CodeType)]
    return frozenset(found)


def calling_frame(frame: FrameType | None) -> FrameType:
    """Return the frame of the user's code that leads to `frame`."""
    found = frame or sys._getframe(1)
    while found.f_back is not None and (
        found.f_code.co_filename.startswith(_OWN) or found.f_globals.get("__name__") == "contextlib"
    ):
        found = found.f_back
    return found
