"""Which sections of a numpydoc docstring a function should have and has not."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from typing import Any


def missing_sections(function: Callable[..., Any]) -> list[str]:
    """Return what is missing: a summary, parameters by name, what it returns."""
    docstring = inspect.getdoc(function) or ""
    missing = [] if docstring.partition("\n")[0].endswith((".", "?")) else ["summary"]
    sections = dict(
        re.findall(r"^(\w[\w ]*)\n-+\n(.*?)(?=^\w[\w ]*\n-+\n|\Z)", docstring, re.M | re.S)
    )
    signature = inspect.signature(function)
    described = sections.get("Parameters", "")
    names = {
        name.strip().lstrip("*")
        for line in re.findall(r"^(\S.*?)(?: :|$)", described, re.M)
        for name in line.split(",")
    }
    missing += [name for name in signature.parameters if name not in names]
    returns = str(signature.return_annotation)
    if returns not in ("None", "<class 'inspect._empty'>") and not (
        {"Returns", "Yields"} & sections.keys() or "Iterator[None]" in returns
    ):
        missing.append("Returns")
    return missing
