"""Runs a program as ``python`` would, with scikit-learn patched.

`__main__` is a module of the program's own, so that its classes can be pickled and worker
processes find it; ``sys.argv``, ``sys.path[0]``, exit codes and what is printed of an error are
Python's.
"""

from __future__ import annotations

import atexit
import builtins
import code
import contextlib
import importlib.util
import io
import linecache
import os
import pkgutil
import runpy
import sys
from collections.abc import Callable, Sequence
from importlib.machinery import BuiltinImporter, SourceFileLoader, SourcelessFileLoader
from types import CodeType, ModuleType, TracebackType
from typing import Any, NamedTuple

import accelsk

__all__ = ["Program", "find", "run"]

_FOLDER = os.path.dirname(__file__) + os.sep


class Program(NamedTuple):
    """What a command line names.

    Attributes
    ----------
    start : callable
        Runs it.
    files : callable
        Returns the files that hold its lines, or names that `linecache` knows.
    """

    start: Callable[[], Any]
    files: Callable[[], list[str]]


def find(arguments: Sequence[str], *, keep_lines: bool = False) -> Program:
    """Return the program that the rest of a command line names.

    Parameters
    ----------
    arguments : sequence of str
        As ``python`` takes them: a script, a folder or a zip file; ``-m`` and a module; ``-c`` and
        source; ``-`` for standard input; each followed by arguments of its own. Nothing means
        standard input or, on a terminal, a prompt.
    keep_lines : bool, default=False
        Have `linecache` know the lines of a program that is in no file.
    """
    first, *rest = arguments or ["-"]
    if first[:2] == "-c":
        source, *rest = [first[2:], *rest] if first[2:] else rest
        argv = ["-c", *rest]
        keep_lines |= sys.version_info >= (3, 13)  # from there on Python shows them in tracebacks
        return Program(
            lambda: _run_text(source, "<string>", argv, keep_lines), lambda: ["<string>"]
        )
    if first[:2] == "-m":
        module, *rest = [first[2:], *rest] if first[2:] else rest
        return Program(lambda: _run_module(module, rest), lambda: _files(module))
    argv = [first, *rest] if arguments else [""]
    if first != "-":
        return Program(lambda: _run_script(first, argv), lambda: [_absolute(first)])
    if sys.stdin is not None and sys.stdin.isatty():
        return Program(lambda: _prompt(argv), list)
    return Program(lambda: _run_input(argv, keep_lines), lambda: ["<stdin>"])


def run(program: Program, *, hide: bool = True) -> None:
    """Run a program.

    Parameters
    ----------
    program : Program
    hide : bool, default=True
        Print an error that it ends with as if accelsk were not there. What accelsk itself raised
        is printed in full.
    """
    try:
        program.start()
    except SystemExit:
        raise
    except BaseException as error:
        _print_without_own_frames(error, everywhere=hide)
        if isinstance(error, KeyboardInterrupt):
            atexit.register(_end_as_interrupted)
        raise


def _end_as_interrupted() -> None:
    """Have Python end by SIGINT, as it does for an interrupt that nothing handles.

    It goes by the last code that was run from a string, which may be that of another thread since.
    """
    with contextlib.suppress(KeyboardInterrupt):
        exec("raise KeyboardInterrupt")


# Ways to name a program


def _start(argv: list[str], path: str, file: str | None = None) -> dict[str, Any]:
    """Make a new `__main__`, and return its names."""
    sys.argv[:] = argv
    if not sys.flags.safe_path:  # the command line of accelsk has put something there
        sys.path[0] = path
    module = ModuleType("__main__")
    names = vars(module)
    names.update(__builtins__=builtins, __annotations__={}, __loader__=BuiltinImporter)
    if file is not None:
        names.update(__file__=file, __cached__=None)
        if file != "<stdin>":
            loader = SourcelessFileLoader if file.endswith(".pyc") else SourceFileLoader
            names["__loader__"] = loader("__main__", file)
    # multiprocessing calls it `__mp_main__`, too, and joblib has imported that already
    for name in {"__main__", "__mp_main__"} & sys.modules.keys():
        sys.modules[name] = module
    return names


def _run_text(source: str | bytes, name: str, argv: list[str], keep_lines: bool) -> None:
    names = _start(argv, "", name if name == "<stdin>" else None)
    if keep_lines:
        text = source.decode(errors="replace") if isinstance(source, bytes) else source
        linecache.cache[name] = (len(text), None, text.splitlines(keepends=True), name)
    exec(compile(source, name, "exec", dont_inherit=True), names)


def _run_input(argv: list[str], keep_lines: bool) -> None:
    source = b"" if sys.stdin is None else sys.stdin.buffer.read()
    _run_text(source, "<stdin>", argv, keep_lines)


def _absolute(path: str) -> str:
    """Return the path that Python has for a script: links, and dots, stay in it."""
    return os.getcwd() if path in ("", ".") else os.path.join(os.getcwd(), path)


def _run_script(path: str, argv: list[str]) -> None:
    file = _absolute(path)
    if os.path.isdir(file) or _is_archive(file):
        _start(argv, file)
        runpy._run_module_as_main("__main__", alter_argv=False)  # type: ignore[attr-defined]
        return
    try:
        compiled = _read(file)
    except OSError as error:
        reason = f"[Errno {error.errno}] {error.strerror}"
        print(f"{sys.executable}: can't open file {file!r}: {reason}", file=sys.stderr)
        sys.exit(2)
    exec(compiled, _start(argv, os.path.dirname(os.path.realpath(path)), file))


def _is_archive(path: str) -> bool:
    return type(pkgutil.get_importer(path)).__name__ == "zipimporter"


def _read(file: str) -> CodeType:
    with io.open_code(file) as stream:
        if file.endswith(".pyc") and (compiled := pkgutil.read_code(stream)) is not None:
            return compiled
    with io.open_code(file) as stream:
        return compile(stream.read(), file, "exec", dont_inherit=True)


def _run_module(name: str, arguments: list[str]) -> None:
    _start(["-m", *arguments], os.getcwd())
    runpy._run_module_as_main(name)  # type: ignore[attr-defined]


def _files(module: str) -> list[str]:
    """Return the file that ``-m`` runs, if it can be told without importing anything."""
    try:
        spec = importlib.util.find_spec(module)
        if spec is not None and spec.submodule_search_locations is not None:
            spec = importlib.util.find_spec(f"{module}.__main__")
    except (ImportError, ValueError):
        return []
    return [spec.origin] if spec is not None and spec.origin else []


def _prompt(argv: list[str]) -> None:
    names = _start(argv, "")
    hook = getattr(sys, "__interactivehook__", None)
    if hook is not None and not sys.flags.isolated:
        hook()  # history and completion of names, as `python` has them
    startup = os.environ.get("PYTHONSTARTUP")
    if startup and not sys.flags.ignore_environment:
        try:
            exec(_read(startup), names)
        except Exception:
            sys.excepthook(*sys.exc_info())
    banner = (
        f"Python {sys.version} on {sys.platform}\n"
        f"accelsk {accelsk.__version__}: scikit-learn is patched; accelsk.info() tells of the GPU"
    )
    names["accelsk"] = accelsk
    code.InteractiveConsole(names).interact(banner, exitmsg="")


# Errors


def _print_without_own_frames(error: BaseException, *, everywhere: bool) -> None:
    """Have Python print `error` without frames of accelsk when it ends the process.

    Parameters
    ----------
    error : BaseException
    everywhere : bool
        Leave out those between the user's code and scikit-learn, too.
    """
    frames = _frames(error.__traceback__)
    while frames and _is_own(frames[0]):
        del frames[0]
    if everywhere and frames and not _is_own(frames[-1]):
        frames = [frame for frame in frames if not _is_own(frame)]
    traceback = None
    for frame in reversed(frames):
        traceback = TracebackType(traceback, frame.tb_frame, frame.tb_lasti, frame.tb_lineno)
    hook = sys.excepthook

    def show(kind: type[BaseException], value: BaseException, given: TracebackType | None) -> None:
        sys.excepthook = hook
        if value is error:
            value.__traceback__ = given = traceback
        hook(kind, value, given)

    sys.excepthook = show


def _is_own(traceback: TracebackType | None) -> bool:
    return traceback is not None and traceback.tb_frame.f_code.co_filename.startswith(_FOLDER)


def _frames(traceback: TracebackType | None) -> list[TracebackType]:
    frames = []
    while traceback is not None:
        frames.append(traceback)
        traceback = traceback.tb_next
    return frames
