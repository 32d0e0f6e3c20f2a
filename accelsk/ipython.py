"""IPython and Jupyter: ``%load_ext accelsk`` patches scikit-learn and brings magics.

``%accelsk.device`` and ``%accelsk.log_level`` show or set what their names say;
``%%accelsk.profile`` and ``%%accelsk.line_profile`` run the rest of the cell, other cell magics
included, and show its value and then the report.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import TYPE_CHECKING, Any

import accelsk
from accelsk.profiling.lines import Watch
from accelsk.profiling.sources import Sources

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell

__all__ = ["load_ipython_extension", "unload_ipython_extension"]


def load_ipython_extension(ipython: InteractiveShell) -> None:
    """Patch scikit-learn and register the magics: what ``%load_ext accelsk`` does.

    Parameters
    ----------
    ipython : IPython.core.interactiveshell.InteractiveShell

    See Also
    --------
    accelsk.patch : What it does to scikit-learn.
    """
    magics = _Magics(ipython)
    for name in ("device", "log_level"):
        ipython.register_magic_function(getattr(magics, name), "line", f"accelsk.{name}")
    for name in ("profile", "line_profile"):
        ipython.register_magic_function(getattr(magics, name), "cell", f"accelsk.{name}")
    accelsk.patch()


def unload_ipython_extension(ipython: InteractiveShell) -> None:
    """Undo `load_ipython_extension`: what ``%unload_ext accelsk`` does.

    Parameters
    ----------
    ipython : IPython.core.interactiveshell.InteractiveShell
    """
    for kind in ("line", "cell"):
        registered = ipython.magics_manager.magics[kind]
        for name in [name for name in registered if name.startswith("accelsk.")]:
            del registered[name]
    accelsk.unpatch()


class _Magics:
    """The magics, for one shell."""

    def __init__(self, shell: InteractiveShell) -> None:
        self._shell = shell

    def device(self, line: str) -> None:
        """Show or set where calls run: ``%accelsk.device [auto|gpu|cpu]``."""
        with self._usage_errors():
            accelsk.set_config(device=line.strip() or None)  # type: ignore[arg-type]
        if not line.strip():
            print(accelsk.get_config()["device"])

    def log_level(self, line: str) -> None:
        """Show or set what is logged: ``%accelsk.log_level [debug|info|warn|error]``."""
        from accelsk import runtime

        if line.strip():
            with self._usage_errors():
                runtime._set_log_level(runtime._level(line.strip()))
        else:
            level = logging.getLogger("accelsk").getEffectiveLevel()
            print(logging.getLevelName(level).lower().replace("warning", "warn"))

    def profile(self, line: str, cell: str) -> None:
        """Run the cell and report which calls ran where: ``%%accelsk.profile``."""
        __tracebackhide__ = True
        self._check("accelsk.profile", line, cell)
        with accelsk.profile():
            self._run(cell)

    def line_profile(self, line: str, cell: str) -> None:
        """Run the cell and report what each of its lines took: ``%%accelsk.line_profile``."""
        self._check("accelsk.line_profile", line, cell)
        __tracebackhide__ = True
        text = cell.lstrip("\n")  # the shell numbers lines from the first that is not empty,
        while text.startswith("%%"):  # and `%%time` those under it
            text = text.partition("\n")[2]
        names = dict.fromkeys((self._file(cell), "<timed exec>", "<timed eval>"), "<cell>")
        with Watch(Sources(("<cell>",), texts={"<cell>": text}, aliases=names)):
            self._run(cell)

    def _run(self, cell: str) -> None:
        """Run the rest of a cell as if it were one, and raise its error."""
        __tracebackhide__ = True
        shell: Any = self._shell
        with self._without_tracebacks():
            result = shell.run_cell(cell, store_history=False, silent=_ends_in_semicolon(cell))
        error = result.error_before_exec or result.error_in_exec
        if error is not None:
            # by the number that the cell has for the user
            numbers = getattr(shell.compile, "_filename_map", {})
            if self._file(cell) in numbers:
                numbers[self._file(cell)] = shell.displayhook.prompt_count
            raise error.with_traceback(_from_the_cell_on(error.__traceback__))

    def _file(self, cell: str) -> str:
        """Return the name of the file that the shell takes a cell to be."""
        shell: Any = self._shell
        transformed = shell.transform_cell(cell)
        return str(shell.compile.get_code_name(cell, transformed, shell.execution_count))

    @contextmanager
    def _without_tracebacks(self) -> Iterator[None]:
        """Leave showing an error to the cell as a whole, which ends with it."""
        own = vars(self._shell)
        hidden = ("showtraceback", "showsyntaxerror")
        before = {name: own[name] for name in hidden if name in own}
        own.update(dict.fromkeys(hidden, lambda *args, **kwargs: None))
        try:
            yield
        finally:
            for name in hidden:
                del own[name]
            own.update(before)

    @contextmanager
    def _usage_errors(self) -> Iterator[None]:
        from IPython.core.error import UsageError

        try:
            yield
        except ValueError as error:
            raise UsageError(str(error)) from None

    def _check(self, name: str, line: str, cell: str) -> None:
        """Raise where a cell magic cannot run."""
        from IPython.core.error import UsageError

        if line.strip():
            raise UsageError(f"%%{name} takes no arguments, got {line.strip()!r}")
        shell: Any = self._shell
        transformed = shell.transform_cell(cell)
        if _in_event_loop() and shell.should_run_async(cell, transformed_cell=transformed):
            function = name.removeprefix("accelsk.")
            raise UsageError(
                f"%%{name} cannot run a cell with await outside of a function; "
                f"write `with accelsk.{function}():` in the cell instead"
            )


def _in_event_loop() -> bool:
    """Whether an event loop runs in this thread, as in Jupyter, so that no cell can start one."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def _from_the_cell_on(trace: TracebackType | None) -> TracebackType | None:
    """Return a traceback without the part that is in the shell."""
    start = trace
    while start is not None and start.tb_frame.f_globals.get("__name__", "").startswith("IPython."):
        start = start.tb_next
    return start or trace


def _ends_in_semicolon(cell: str) -> bool:
    """Whether the value of the cell is not to be shown."""
    from IPython.core.displayhook import DisplayHook

    return bool(DisplayHook.semicolon_at_end_of_expression(cell))
