"""The command line: ``python -m accelsk support``."""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import sys
from collections.abc import Sequence

import accelsk

__all__ = ["main"]


def _support(arguments: argparse.Namespace) -> None:
    from accelsk.support import supported, to_markdown, to_text

    table = supported()
    width = shutil.get_terminal_size().columns
    print(to_markdown(table) if arguments.markdown else to_text(table, width))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("python -m accelsk", description="scikit-learn on the GPU.")
    parser.add_argument("--version", action="version", version=f"accelsk {accelsk.__version__}")
    commands = parser.add_subparsers(required=True, metavar="command")
    support = commands.add_parser(
        "support", help="print which methods run on a GPU, and what keeps a call off it"
    )
    support.add_argument("--markdown", action="store_true", help="as a markdown table")
    support.set_defaults(run=_support)
    return parser


def main(argv: Sequence[str] | None = None) -> None:
    """Run the command that `argv` (by default the command line) names."""
    arguments = _parser().parse_args(argv)
    try:
        arguments.run(arguments)
        sys.stdout.flush()
    except BrokenPipeError:  # the reader has seen enough, as `head` does
        # what is still in the buffer has to go somewhere when Python ends
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(128 + signal.SIGPIPE)


if __name__ == "__main__":
    main()
