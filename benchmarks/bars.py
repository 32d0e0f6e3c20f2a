"""Bars of text for the top of the README, from what `benchmarks.wire` measured::

python -m benchmarks.bars benchmarks/results/wire.json
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

SIDES = ("accelsk", "cuml.accel", "scikit-learn")
CASES = {
    "Ridge.fit": ("Ridge()", "fit"),
    "PCA.transform": ("PCA(n_components=16)", "transform"),
    "StandardScaler.fit": ("StandardScaler()", "fit"),
}
WIDTH = 40
_EIGHTHS = " ▏▎▍▌▋▊▉█"

Row = dict[str, Any]


def bar(share: float) -> str:
    """Return a bar that takes this share of the width, to an eighth of a character."""
    whole, eighths = divmod(round(share * WIDTH * 8), 8)
    return (_EIGHTHS[8] * whole + _EIGHTHS[eighths]).rstrip()


def bars(results: Iterable[Row], data: str = "float32") -> str:
    """Return a bar for the time of each side in each case, all on one scale from zero."""
    seconds = {
        (r["case"], r["method"], r["side"]): r["seconds"]
        for r in results
        if r.get("data") == data and "seconds" in r
    }
    times = {
        name: {side: seconds[*case, side] * 1e3 for side in SIDES} for name, case in CASES.items()
    }
    longest = max(max(found.values()) for found in times.values())
    return "\n".join(
        f"{name if side == SIDES[0] else '':<19}{side:<13}{found[side]:6.1f} ms "
        f"{bar(found[side] / longest)}"
        for name, found in times.items()
        for side in SIDES
    )


def main(words: Sequence[str] | None = None) -> None:
    """Run the command."""
    parser = argparse.ArgumentParser("python -m benchmarks.bars")
    parser.add_argument("results", type=Path, help="a file of benchmarks.wire")
    print(bars(json.loads(parser.parse_args(words).results.read_text())["results"]))


if __name__ == "__main__":
    main()
