"""accelsk beside scikit-learn, scikit-learn-intelex and cuml.accel, operation by operation::

    python -m benchmarks list
    python -m benchmarks run results.json [--operations Ridge PCA.fit_transform] [--shapes small]
    python -m benchmarks compare results.json [newer.json]
    python -m benchmarks plot results.json picture.png

Each side is a process of its own. Data is on the host before and after a call, in float32. The
first call of a case is not counted, and the sides take turns in the three that are.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from time import monotonic
from typing import Any

from tabulate import tabulate

from accelsk._progress import Progress
from benchmarks import report, suite
from benchmarks.machine import describe_machine
from benchmarks.operations import OPERATIONS, SHAPE_NAMES, Operation
from benchmarks.sides import PACKAGES, Side


def chosen(words: Sequence[str]) -> list[Operation]:
    """Return the operations whose name begins with one of the words; all without any."""
    return [op for op in OPERATIONS if not words or op.name.startswith(tuple(words))]


def show(arguments: argparse.Namespace) -> None:
    """Print the operations and their shapes."""
    rows = [
        [operation.name, *(f"{n:,} x {d:,}" for n, d in operation.shapes)]
        for operation in chosen(arguments.operations)
    ]
    print(tabulate(rows, ["", *SHAPE_NAMES]))
    print("\nsides:", ", ".join(name for name, package in PACKAGES.items() if package.usable))


def run(arguments: argparse.Namespace) -> None:
    """Measure, and write the results after each case."""
    operations = chosen(arguments.operations)
    names = arguments.sides or [name for name, package in PACKAGES.items() if package.usable]
    sides = [Side(name) for name in names]
    progress = Progress(len(operations) * len(arguments.shapes), "cases", sys.stderr)
    machine, rows, deadline = describe_machine(), [], monotonic() + arguments.seconds
    done = 0
    progress.show(done, "")
    try:
        for found in suite.run(operations, arguments.shapes, sides, arguments.budget):
            rows += found
            done += 1
            progress.show(done, f"{found[0]['operation']}, {found[0]['shape']}")
            text = json.dumps({"machine": machine, "results": rows}, indent=1)
            arguments.results.write_text(text + "\n")
            if monotonic() > deadline:
                break
    finally:
        progress.end()
        for side in sides:
            side.end()
    print(report.markdown(rows))
    print(report.summary(rows))
    if done < len(operations) * len(arguments.shapes):
        print(f"{done} cases in {arguments.seconds:.0f} s; the others were not run")


def _results(path: Path) -> list[dict[str, Any]]:
    return json.loads(path.read_text())["results"]


def compare(arguments: argparse.Namespace) -> None:
    """Print the table of one file, or what changed between two."""
    first, *second = map(_results, arguments.results)
    if second:
        print(report.changes(first, second[0]))
    else:
        print(report.markdown(first))
        print(report.summary(first))


def plot(arguments: argparse.Namespace) -> None:
    """Draw the results of a file."""
    report.plot(_results(arguments.results), arguments.picture)


def main(words: Sequence[str] | None = None) -> None:
    """Run the command."""
    assert __doc__ is not None
    parser = argparse.ArgumentParser("python -m benchmarks", description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(required=True)

    listing = commands.add_parser("list", help="the operations and their shapes")
    listing.set_defaults(do=show)
    running = commands.add_parser("run", help="measure")
    running.set_defaults(do=run)
    running.add_argument("results", type=Path, help="the JSON file to write")
    running.add_argument("--sides", nargs="+", choices=PACKAGES, help="all that are usable")
    running.add_argument("--shapes", nargs="+", choices=SHAPE_NAMES, default=SHAPE_NAMES)
    running.add_argument(
        "--budget", type=float, default=120.0, help="seconds of a side for a case (120)"
    )
    running.add_argument("--seconds", type=float, default=float("inf"), help="seconds in all")
    for command in (listing, running):
        command.add_argument("--operations", nargs="*", default=[], help="beginnings of names")
    comparing = commands.add_parser("compare", help="the table of one file, or two files")
    comparing.set_defaults(do=compare)
    comparing.add_argument(
        "results", type=Path, nargs="+", help="one file, or an older and a newer"
    )
    plotting = commands.add_parser("plot", help="draw the ratios")
    plotting.set_defaults(do=plot)
    plotting.add_argument("results", type=Path)
    plotting.add_argument("picture", type=Path)

    arguments = parser.parse_args(words)
    arguments.do(arguments)


if __name__ == "__main__":
    main()
