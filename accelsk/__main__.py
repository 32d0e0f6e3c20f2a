"""The command line: ``accelsk script.py`` or ``python -m accelsk script.py``."""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Any

import accelsk

__all__ = ["main"]

_USAGE = """accelsk [option ...] (script.py | -m module | -c source | -) [argument ...]
       accelsk (info | support | tune | warmup) [option ...]"""

_DESCRIPTION = """Runs a program with scikit-learn patched, as python runs it: a script, a folder or
zip file, a module, source, standard input, or a prompt on a terminal."""

_EPILOG = """commands, each with a --help of its own (a script of that name is run as ./info):
  info          tell whether the GPU is used, and if not why
  support       print which methods run on a GPU, and what keeps a call off it
  tune          measure when the GPU is the sooner one
  warmup        get the GPU ready for some estimators"""


def _options() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        "accelsk",
        usage=_USAGE,
        description=_DESCRIPTION,
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    add = parser.add_argument
    add("--version", action="version", version=f"accelsk {accelsk.__version__}")
    add(
        "-v", "--verbose", action="count", default=0, help="log calls; twice: reasons and times too"
    )
    add("--profile", action="store_true", help="report at the end which calls ran where")
    add("--line-profile", action="store_true", help="report it line by line")
    add("--device", choices=("auto", "gpu", "cpu"), help="where calls may run")
    add("--disable-uvm", action="store_true", help="leave managed memory off")
    return parser


def _split(argv: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return the options of accelsk, and the program with its arguments."""
    takes_value = False
    for i, word in enumerate(argv):
        if takes_value:
            takes_value = False
        elif word == "--":
            return [*argv[:i]], [*argv[i + 1 :]]
        elif word == "-" or word[:1] != "-" or word[:2] in ("-c", "-m"):
            return [*argv[:i]], [*argv[i:]]
        else:
            takes_value = word == "--device"
    return [*argv], []


def main(argv: Sequence[str] | None = None) -> int | None:
    """Run what `argv` (by default the command line) names."""
    given, program = _split(sys.argv[1:] if argv is None else argv)
    parser = _options()
    options = parser.parse_args(given)
    if options.device is not None:
        os.environ["ACCELSK_DEVICE"] = options.device  # child processes are to know, too
    if program and program[0] in _COMMANDS:
        return _run_command(program[0], program[1:])
    if program in (["-c"], ["-m"]):
        parser.error(f"argument expected for the {program[0]} option")
    _run_program(options, program)
    return None


def _run_program(options: argparse.Namespace, arguments: list[str]) -> None:
    from accelsk import runner

    level = ("warn", "info", "debug")[min(options.verbose, 2)] if options.verbose else None
    # where calls may run in scikit-learn until the GPU is ready, nothing has to wait for it
    accelsk.install(options.disable_uvm, level, background=options.device != "gpu")
    accelsk.patch()
    program = runner.find(arguments, keep_lines=options.line_profile)
    with ExitStack() as reports:
        if options.profile:
            reports.enter_context(_shown(accelsk.profile(quiet=True)))
        if options.line_profile:
            reports.enter_context(_shown(accelsk.line_profile(*program.files(), quiet=True)))
        runner.run(program, hide=options.verbose < 2)


@contextmanager
def _shown(report: AbstractContextManager[Any]) -> Iterator[None]:
    """Enter a block that gives a report, and show that once it is complete, however it ends."""
    from accelsk.profiling.show import show

    results = None
    try:
        with report as results:
            yield
    finally:
        if results is not None:
            sys.stdout.flush()
            show(results, sys.stderr)


# Commands


def _run_command(name: str, argv: list[str]) -> int | None:
    try:
        status = _COMMANDS[name](name, argv)
        sys.stdout.flush()
    except BrokenPipeError:  # the reader has seen enough, as `head` does
        # what is still in the buffer has to go somewhere when Python ends
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(128 + signal.SIGPIPE)
    return status


def _support(name: str, argv: list[str]) -> None:
    from accelsk.support import supported, to_markdown, to_text

    parser = argparse.ArgumentParser(
        f"accelsk {name}",
        description="Print which methods run on a GPU, and what keeps a call off it.",
    )
    parser.add_argument("--markdown", action="store_true", help="as a markdown table")
    options = parser.parse_args(argv)
    table = supported()
    width = shutil.get_terminal_size().columns
    print(to_markdown(table) if options.markdown else to_text(table, width))


def _info(name: str, argv: list[str]) -> int:
    from accelsk import doctor

    parser = argparse.ArgumentParser(
        f"accelsk {name}", description="Tell whether the GPU is used, and if not why."
    )
    parser.add_argument(
        "--check",
        action="store_true",
        help="import cuML and run a call on the GPU; exit with status 1 if that cannot be done",
    )
    options = parser.parse_args(argv)
    found = doctor.info(check=options.check)
    return int(options.check and not found.usable)


def _tune(name: str, argv: list[str]) -> int:
    from accelsk import tuning

    return tuning.main(argv)


def _warmup(name: str, argv: list[str]) -> int:
    from accelsk import warmup

    return warmup.main(argv)


_COMMANDS = {"info": _info, "support": _support, "tune": _tune, "warmup": _warmup}


if __name__ == "__main__":
    sys.exit(main())
