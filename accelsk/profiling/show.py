"""Where a report goes: into the notebook, or to standard output."""

from __future__ import annotations

import os
import sys
from typing import Any

__all__ = ["coloured", "in_notebook", "show"]


def in_notebook() -> bool:
    """Whether a front end that shows HTML is listening. Imports nothing to find out."""
    get_ipython = getattr(sys.modules.get("IPython"), "get_ipython", None)
    shell = get_ipython() if get_ipython is not None else None
    return getattr(shell, "kernel", None) is not None


def coloured() -> bool:
    """Whether standard output is a terminal that shows colours, and they are wanted."""
    if os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb":
        return False
    return bool(getattr(sys.stdout, "isatty", bool)())


def show(results: Any) -> None:
    """Show a report: HTML in a notebook, text elsewhere."""
    if in_notebook():
        from IPython.display import display

        display(results)
    else:
        print(results)
