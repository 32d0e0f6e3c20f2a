"""How much of a call is the way to the device: the bus, staged transfers, fits and predictions.

NumPy in and NumPy out; scikit-learn, cuml.accel and accelsk each in a process of their own, on the
same data. On the GPU a call is repeated, after one that is not counted; scikit-learn, which has
nothing to warm up, makes each call once::

    python -m benchmarks.wire results.json [SECONDS [SIDE ...]]

The seconds are for all sides together; what they do not suffice for is left out. The report
compares each call with the time that the same bytes take from pinned memory.
"""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np

from benchmarks.machine import describe_machine
from benchmarks.wire_report import tables

ROWS, COLUMNS = 500_000, 200
SIDES = ("accelsk", "cuml.accel", "scikit-learn")

#: Seconds after which a call is not repeated any more.
_PATIENCE = 1.0
#: Seconds for all sides.
_SECONDS = 180.0
_REPETITIONS = 5


@dataclass(frozen=True)
class Case:
    """An estimator on data of a kind.

    Attributes
    ----------
    path : str
        Module and class, without the package.
    parameters : dict
    data : str
        A key of `DATA`.
    after : tuple of str
        Methods that are timed after the fit, on the same X.
    """

    path: str
    parameters: dict[str, Any] = field(default_factory=dict)
    data: str = "float32"
    after: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        values = ", ".join(f"{key}={value!r}" for key, value in self.parameters.items())
        return f"{self.path.rpartition('.')[2]}({values})"

    def estimator(self, package: str) -> Any:
        module, _, cls = self.path.rpartition(".")
        return getattr(importlib.import_module(f"{package}.{module}"), cls)(**self.parameters)


def _regression(n: int, d: int, dtype: str) -> Callable[[], tuple[np.ndarray, np.ndarray]]:
    def make() -> tuple[np.ndarray, np.ndarray]:
        rng = np.random.default_rng(0)
        X = rng.standard_normal((n, d), dtype=np.float32)
        y = X @ rng.standard_normal(d, dtype=np.float32)
        y += rng.standard_normal(n, dtype=np.float32)
        return X.astype(dtype, copy=False), y.astype(dtype, copy=False)

    return make


def _classes(n: int, d: int, n_classes: int) -> Callable[[], tuple[np.ndarray, np.ndarray]]:
    def make() -> tuple[np.ndarray, np.ndarray]:
        rng = np.random.default_rng(0)
        y = rng.integers(n_classes, size=n)
        centres = rng.standard_normal((n_classes, d), dtype=np.float32)
        return centres[y] + rng.standard_normal((n, d), dtype=np.float32), y

    return make


DATA = {
    "float32": _regression(ROWS, COLUMNS, "float32"),
    "float64": _regression(ROWS, COLUMNS, "float64"),
    "classes": _classes(200_000, 100, 5),
    "some": _classes(20_000, 32, 5),
    "few": _classes(4_000, 32, 2),
}

_SEED = {"random_state": 0}
_STREAMED = [
    ("linear_model.LinearRegression", {}, ("predict",)),
    ("linear_model.Ridge", {}, ("predict",)),
    ("linear_model.Lasso", {"alpha": 0.01}, ("predict",)),
    ("decomposition.PCA", {"n_components": 16}, ("transform", "inverse_transform")),
    ("decomposition.TruncatedSVD", {"n_components": 16}, ("transform",)),
    ("preprocessing.StandardScaler", {}, ("transform",)),
    ("covariance.EmpiricalCovariance", {}, ()),
]
#: What passes over X once, and the rest, where the way is a part of the time only.
CASES = [
    *(
        Case(path, parameters, dtype, after)
        for dtype in ("float32", "float64")
        for path, parameters, after in _STREAMED
    ),
    Case("cluster.KMeans", {"n_clusters": 20, "n_init": 1, **_SEED}, "classes", ("predict",)),
    Case("linear_model.LogisticRegression", data="classes", after=("predict",)),
    Case("cluster.DBSCAN", {"eps": 4.0}, "some"),
    Case("neighbors.KNeighborsClassifier", data="some", after=("predict",)),
    Case("svm.SVC", data="few", after=("predict",)),
    Case("ensemble.RandomForestClassifier", _SEED, "some", ("predict",)),
    Case("ensemble.RandomForestRegressor", {"max_depth": 12, **_SEED}, "some", ("predict",)),
]


def timed(call: Callable[[], Any]) -> float:
    """Return the median of the seconds that a call takes, the first one left out."""
    call()
    seconds: list[float] = []
    while len(seconds) < _REPETITIONS and sum(seconds) < _PATIENCE:
        seconds.append(once(call))
    return float(np.median(seconds))


def once(call: Callable[[], Any]) -> float:
    """Return the seconds that a single call takes."""
    start = perf_counter()
    call()
    return perf_counter() - start


def measure(side: str, folder: Path) -> Iterator[dict[str, Any]]:
    """Yield what each case takes on one side, and leave fitted attributes in `folder`."""
    package = "accelsk" if side == "accelsk" else "sklearn"
    if side == "accelsk":
        import accelsk

        accelsk.install(disable_uvm=True)
        accelsk.set_config(device="gpu", on_fallback="raise")
    exactness(side, package, folder)
    streamed = {"float32", "float64"}
    yield from _cases([case for case in CASES if case.data in streamed], side, package)
    if side == "accelsk":
        from benchmarks.wire_transfers import transfers

        yield from transfers(DATA["float32"]()[0], timed)
    yield from _cases([case for case in CASES if case.data not in streamed], side, package)


def _cases(cases: list[Case], side: str, package: str) -> Iterator[dict[str, Any]]:
    time = once if side == "scikit-learn" else timed
    held: dict[str, Any] = {}
    for case in cases:
        if case.data not in held:
            held = {case.data: DATA[case.data]()}
        X, y = held[case.data]
        estimator = case.estimator(package)
        row = {"side": side, "case": case.name, "data": case.data, "bytes": X.nbytes}
        try:
            yield {**row, "method": "fit", "seconds": time(partial(estimator.fit, X, y))}
            for method in case.after:
                given = estimator.transform(X) if method == "inverse_transform" else X
                call = getattr(estimator, method)
                sizes = {"up": given.nbytes}

                def run(call: Any = call, given: Any = given, sizes: Any = sizes) -> None:
                    sizes["down"] = call(given).nbytes

                seconds = time(run)
                moved = {"bytes": sum(sizes.values()), **sizes}
                yield {**row, "method": method, "seconds": seconds, **moved}
        except Exception as error:
            yield {**row, "method": "", "error": f"{type(error).__name__}: {error}"[:200]}


#: What is compared with scikit-learn in float64, on data with means of 10 and a condition of 1e4.
_EXACT = {
    "linear_model.LinearRegression": ("coef_", "intercept_"),
    "linear_model.Ridge": ("coef_", "intercept_"),
    "decomposition.PCA": ("explained_variance_", "mean_"),
    "preprocessing.StandardScaler": ("mean_", "var_"),
    "covariance.EmpiricalCovariance": ("covariance_", "location_"),
}


def exactness(side: str, package: str, folder: Path) -> None:
    """Store what is fitted to ill-conditioned values in float32, and to the same in float64."""
    rng = np.random.default_rng(1)
    d = 50
    rotation = np.linalg.qr(rng.standard_normal((d, d)))[0]
    X = rng.standard_normal((100_000, d)) * np.logspace(0, -4, d) @ rotation + 10
    X = X.astype(np.float32)
    y = (X @ rng.standard_normal(d) + rng.standard_normal(len(X))).astype(np.float32)
    found = {}
    for dtype in ("float32", "float64"):
        given = X.astype(dtype), y.astype(dtype)
        for path, names in _EXACT.items():
            model = Case(path).estimator(package).fit(*given)
            found |= {f"{path} {name}, {dtype}": getattr(model, name) for name in names}
    np.savez(folder / f"{side}.npz", **found)


def compare(folder: Path) -> list[dict[str, Any]]:
    """Return how far each side is from scikit-learn in float64, given the same values."""
    stored = {side: folder / f"{side}.npz" for side in SIDES}
    sides = {side: np.load(file) for side, file in stored.items() if file.exists()}
    truth = sides.get("scikit-learn", {})
    rows = []
    for side, found in sides.items():
        for name in truth:
            attribute, dtype = name.split(", ")
            exact = truth[f"{attribute}, float64"]
            error = float(np.abs(found[name] - exact).max() / np.abs(exact).max())
            row = {"side": side, "attribute": attribute, "data": dtype}
            rows.append({**row, "dtype": str(found[name].dtype), "relative error": error})
    return [row for row in rows if (row["side"], row["data"]) != ("scikit-learn", "float64")]


def run(side: str, folder: Path, limit: float) -> list[dict[str, Any]]:
    """Measure one side in a process of its own; what it does not end in time is left out."""
    start = [sys.executable, *(["-m", "cuml.accel"] if side == "cuml.accel" else [])]
    command = [*start, "-m", "benchmarks.wire", "--side", side, str(folder)]
    log = folder / f"{side}.jsonl"
    with log.open("w") as out:
        try:
            subprocess.run(command, stdout=out, timeout=limit, check=False)
        except subprocess.TimeoutExpired:
            print(f"{side} was stopped after {limit:.0f} s", file=sys.stderr)
    lines = [line for line in log.read_text().splitlines() if line.startswith("{")]
    return [json.loads(line) for line in lines]


def main(arguments: list[str]) -> None:
    """Measure every side, print the tables, and write the results to a file."""
    warnings.simplefilter("ignore")
    if arguments[0] == "--side":
        for row in measure(arguments[1], Path(arguments[2])):
            print(json.dumps(row), flush=True)
        return
    end = perf_counter() + (float(arguments[1]) if len(arguments) > 1 else _SECONDS)
    sides = arguments[2:] or SIDES
    results: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for place, side in enumerate(sides):
            # what one side leaves of its share goes to the next
            results += run(side, folder, (end - perf_counter()) / (len(sides) - place))
        errors = compare(folder)
    print(tables(results, errors, SIDES))
    found = {"machine": describe_machine(), "results": results, "exactness": errors}
    Path(arguments[0]).write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
