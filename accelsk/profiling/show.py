"""Where a report goes: into the notebook, or to standard output."""

from __future__ import annotations

import os
import sys
from typing import Protocol, TextIO

__all__ = ["Report", "coloured", "in_notebook", "show"]


class Report(Protocol):
    """What can be shown."""

    def _text(self, colours: bool) -> str:
        """Return it as text, with the codes of a terminal for `colours` or without."""


def in_notebook() -> bool:
    """Whether a front end that shows HTML is listening. Imports nothing to find out."""
    get_ipython = getattr(sys.modules.get("IPython"), "get_ipython", None)
    shell = get_ipython() if get_ipython is not None else None
    return getattr(shell, "kernel", None) is not None


def coloured(file: TextIO) -> bool:
    """Whether `file` is a terminal that shows colours, and they are wanted."""
    if os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb":
        return False
    return bool(getattr(file, "isatty", bool)())


def show(results: Report, file: TextIO | None = None) -> None:
    """Show a report: HTML in a notebook, text elsewhere and where a file is given."""
    if file is None and in_notebook():
        from IPython.display import display

        display(results)
    else:
        file = file or sys.stdout
        print(results._text(coloured(file)), file=file)
