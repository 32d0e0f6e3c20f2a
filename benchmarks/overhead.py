"""What accelsk adds where it has nothing to do: to an import, and to a small call on the CPU.

::

    python -m benchmarks.overhead results.json [--imports 11]

Imports are timed in fresh interpreters, ours and scikit-learn's in turn; calls on 20 x 4 data,
ours and scikit-learn's in turn. Without a GPU this is what a program pays for accelsk; with one,
calls are those that ``device="auto"`` leaves on the CPU.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import warnings
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from statistics import median
from timeit import timeit
from typing import Any

import numpy as np

import accelsk
from benchmarks.machine import describe_machine

#: What is compared: ours and scikit-learn's line.
IMPORTS = {
    "import accelsk": (
        "import accelsk",
        # with the modules of scikit-learn that it takes
        "import sklearn, sklearn.base, sklearn.metrics, sklearn.exceptions",
    ),
    "Ridge": ("from accelsk.linear_model import Ridge", "from sklearn.linear_model import Ridge"),
    "KMeans": ("from accelsk.cluster import KMeans", "from sklearn.cluster import KMeans"),
}

CALLS = [
    ("linear_model", "Ridge", ("fit", "predict")),
    ("linear_model", "LinearRegression", ("fit", "predict")),
    ("preprocessing", "StandardScaler", ("fit", "transform")),
    ("decomposition", "PCA", ("fit", "transform")),
    ("cluster", "KMeans", ("predict",)),
    ("naive_bayes", "GaussianNB", ("fit", "predict")),
]


def _seconds(line: str) -> float:
    """Return the processor seconds that `line` takes in a fresh interpreter.

    Other than those of a clock, they are the same on a machine that has other things to do.
    """
    code = f"import time; t = time.process_time(); {line}; print(time.process_time() - t)"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=os.environ
    )
    return float(done.stdout.split()[-1])


def imports(runs: int) -> dict[str, dict[str, float]]:
    """Time each pair of lines in turn."""
    found = {}
    for name, (ours, theirs) in IMPORTS.items():
        times: dict[str, list[float]] = {ours: [], theirs: []}
        for _ in range(runs + 1):
            for line, so_far in times.items():
                so_far.append(_seconds(line))
        a, b = (sorted(so_far[1:]) for so_far in times.values())
        found[name] = {
            "accelsk": median(a),
            "scikit-learn": median(b),
            "ratio of medians": median(a) / median(b),
            "ratio of minima": a[0] / b[0],
        }
    return found


def _in_turn(ours: Callable[[], Any], theirs: Callable[[], Any], rounds: int) -> dict[str, float]:
    number = max(1, int(0.01 / max(timeit(theirs, number=3) / 3, 1e-6)))
    a, b = [], []
    for _ in range(rounds):
        a.append(timeit(ours, number=number) / number)
        b.append(timeit(theirs, number=number) / number)
    return {
        "accelsk": median(a),
        "scikit-learn": median(b),
        "added, minima": min(a) - min(b),
        "added, median of pairs": median(x - y for x, y in zip(a, b, strict=True)),
        "ratio, median of pairs": median(x / y for x, y in zip(a, b, strict=True)),
    }


def calls(rows: int, rounds: int) -> dict[str, dict[str, float]]:
    """Time small calls in turn."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(20, 4))
    y = (X[:, 0] > 0).astype(int)
    found = {}
    for module, name, methods in CALLS:
        estimators = []
        for package in ("accelsk", "sklearn"):
            estimator = getattr(import_module(f"{package}.{module}"), name)()
            with accelsk.config_context(device="gpu"):  # where there is one
                estimators.append(estimator.fit(X, y))
        for method in methods:
            if rows < len(X) and method == "fit":
                continue
            arguments = (X, y) if method == "fit" else (X[:rows],)
            ours, theirs = (getattr(estimator, method) for estimator in estimators)
            found[f"{name}.{method}, {rows} rows"] = _in_turn(
                lambda f=ours, a=arguments: f(*a), lambda f=theirs, a=arguments: f(*a), rounds
            )
    return found


def main() -> None:
    parser = argparse.ArgumentParser("python -m benchmarks.overhead")
    parser.add_argument("target", type=Path)
    parser.add_argument("--imports", type=int, default=11, help="how often each line runs")
    parser.add_argument("--rounds", type=int, default=41, help="how often each call is timed")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    result = {
        "machine": describe_machine(),
        "imports": imports(arguments.imports) if arguments.imports else {},
        "calls": {**calls(20, arguments.rounds), **calls(1, arguments.rounds)},
    }
    arguments.target.write_text(json.dumps(result, indent=1) + "\n")
    for name, times in result["imports"].items():
        print(f"{name}: {times['ratio of medians']:.3f} (medians) {times['ratio of minima']:.3f}")
    for name, times in result["calls"].items():
        print(
            f"{name}: {times['added, minima'] * 1e6:+.1f} us, "
            f"x{times['ratio, median of pairs']:.3f}"
        )


if __name__ == "__main__":
    main()
