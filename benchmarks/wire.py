"""How much of a call is the way to the device: the bus, staged transfers, fits and predictions.

NumPy in and NumPy out, after one call that is not counted; scikit-learn, cuml.accel and accelsk
each in a process of their own, on the same data::

    python -m benchmarks.wire results.json [SECONDS_FOR_EACH [SIDE ...]]

The report compares each with the time that the same bytes take from pinned memory.
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
from tabulate import tabulate

from benchmarks.machine import describe_machine

ROWS, COLUMNS = 500_000, 200
SIDES = ("accelsk", "cuml.accel", "scikit-learn")

#: Seconds after which a call is not repeated any more.
_PATIENCE = 1.0
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
    *(Case(path, parameters, "float32", after) for path, parameters, after in _STREAMED),
    Case("cluster.KMeans", {"n_clusters": 20, "n_init": 1, **_SEED}, "classes", ("predict",)),
    Case("linear_model.LogisticRegression", data="classes", after=("predict",)),
    Case("cluster.DBSCAN", {"eps": 4.0}, "some"),
    Case("neighbors.KNeighborsClassifier", data="some", after=("predict",)),
    Case("ensemble.RandomForestClassifier", _SEED, "some", ("predict",)),
    Case("ensemble.RandomForestRegressor", {"max_depth": 12, **_SEED}, "some", ("predict",)),
    Case("svm.SVC", data="few", after=("predict",)),
    *(Case(path, parameters, "float64", after) for path, parameters, after in _STREAMED),
]


def timed(call: Callable[[], Any]) -> float:
    """Return the median of the seconds that a call takes, the first one left out."""
    call()
    seconds: list[float] = []
    while len(seconds) < _REPETITIONS and sum(seconds) < _PATIENCE:
        start = perf_counter()
        call()
        seconds.append(perf_counter() - start)
    return float(np.median(seconds))


def measure(side: str, folder: Path) -> Iterator[dict[str, Any]]:
    """Yield what each case takes on one side, and leave fitted attributes in `folder`."""
    package = "accelsk" if side == "accelsk" else "sklearn"
    if side == "accelsk":
        import accelsk

        accelsk.install(disable_uvm=True)
        accelsk.set_config(device="gpu", on_fallback="raise")
    held: dict[str, Any] = {}
    for case in CASES:
        if case.data not in held:
            held = {case.data: DATA[case.data]()}
        X, y = held[case.data]
        estimator = case.estimator(package)
        row = {"side": side, "case": case.name, "data": case.data, "bytes": X.nbytes}
        try:
            yield {**row, "method": "fit", "seconds": timed(partial(estimator.fit, X, y))}
            for method in case.after:
                given = estimator.transform(X) if method == "inverse_transform" else X
                call = getattr(estimator, method)
                out = call(given).nbytes
                seconds = timed(partial(call, given))
                moved = {"bytes": given.nbytes + out, "up": given.nbytes, "down": out}
                yield {**row, "method": method, "seconds": seconds, **moved}
        except Exception as error:
            yield {**row, "error": f"{type(error).__name__}: {error}"[:200]}
    exactness(side, package, folder)
    if side == "accelsk":
        yield from transfers()


def transfers() -> Iterator[dict[str, Any]]:
    """Yield what transfers alone take: pinned, plain, and staged from several layouts."""
    import cupy
    import pandas as pd

    from accelsk.data import describe
    from accelsk.device.transfer import to_device, to_host

    X, _ = DATA["float32"]()
    layouts = {
        "float32, C": X,
        "float64, C": X.astype(np.float64),
        "float32, F": np.asfortranarray(X),
        "float32, every other row": np.repeat(X, 2, axis=0)[::2],
        "float32, every other column": np.repeat(X, 2, axis=1)[:, ::2],
        "int16, C": (X * 1000).astype(np.int16),
        "pandas, one block": pd.DataFrame(X),
        "pandas, column by column": pd.DataFrame(
            {f"x{j}": np.ascontiguousarray(X[:, j]) for j in range(COLUMNS)}
        ),
    }

    def synchronised(call: Callable[..., Any], *arguments: Any) -> float:
        def run() -> None:
            call(*arguments)
            cupy.cuda.get_current_stream().synchronize()

        return timed(run)

    def upload(given: Any) -> Any:
        return to_device(describe(given).source)

    for name, given in layouts.items():
        nbytes = given.size * 4 if isinstance(given, pd.DataFrame) else given.nbytes
        pinned = cupy.cuda.alloc_pinned_memory(nbytes)
        target = cupy.empty(nbytes, np.uint8)
        page_locked = np.frombuffer(pinned, np.uint8, nbytes)
        row = {"side": "accelsk", "data": name, "bytes": nbytes}
        wire = synchronised(target.set, page_locked)
        yield {**row, "case": "pinned copy", "method": "upload", "seconds": wire}
        yield {**row, "case": "staged", "method": "upload", "seconds": synchronised(upload, given)}
        if name.endswith(", C"):
            plain = synchronised(cupy.asarray, given)
            yield {**row, "case": "cupy.asarray", "method": "upload", "seconds": plain}
            there = cupy.asarray(given)
            staged = timed(partial(to_host, there))
            yield {**row, "case": "staged", "method": "download", "seconds": staged}
            yield {**row, "case": "cupy.get", "method": "download", "seconds": timed(there.get)}
        del pinned, target, page_locked


#: What is compared with scikit-learn in float64, on data with means of 10 and a condition of 1e4.
_EXACT = {
    "linear_model.LinearRegression": ("coef_", "intercept_"),
    "linear_model.Ridge": ("coef_", "intercept_"),
    "decomposition.PCA": ("explained_variance_", "mean_"),
    "preprocessing.StandardScaler": ("mean_", "var_"),
    "covariance.EmpiricalCovariance": ("covariance_", "location_"),
}


def exactness(side: str, package: str, folder: Path) -> None:
    """Store the fitted attributes of ill-conditioned float32 data, or of the same in float64."""
    rng = np.random.default_rng(1)
    d = 50
    rotation = np.linalg.qr(rng.standard_normal((d, d)))[0]
    X = rng.standard_normal((100_000, d)) * np.logspace(0, -4, d) @ rotation + 10
    X = X.astype(np.float32)
    y = (X @ rng.standard_normal(d) + rng.standard_normal(len(X))).astype(np.float32)
    if side == "scikit-learn":
        X, y = X.astype(np.float64), y.astype(np.float64)
    found = {}
    for path, names in _EXACT.items():
        model = Case(path).estimator(package).fit(X, y)
        found |= {f"{path} {name}": np.asarray(getattr(model, name)) for name in names}
    np.savez(folder / f"{side}.npz", **found)


def compare(folder: Path) -> list[dict[str, Any]]:
    """Return how far each side's float32 is from scikit-learn's float64."""
    truth = np.load(folder / "scikit-learn.npz")
    rows = []
    for side in SIDES[:2]:
        if not (folder / f"{side}.npz").exists():
            continue
        found = np.load(folder / f"{side}.npz")
        for name in truth:
            error = np.abs(found[name] - truth[name]).max() / np.abs(truth[name]).max()
            rows.append({"side": side, "attribute": name, "relative error": float(error)})
    return rows


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


def report(results: list[dict[str, Any]]) -> str:
    """Return the table: the time of each call, and how it compares."""
    wires = {
        (r["bytes"]): r["seconds"]
        for r in results
        if r.get("case") == "pinned copy" and r["data"].endswith(", C")
    }
    per_byte = min((s / b for b, s in wires.items() if b > 1e8), default=float("nan"))
    calls: dict[tuple, dict[str, Any]] = {}
    for r in results:
        if "seconds" in r:
            calls.setdefault((r["case"], r["data"], r["method"]), {})[r["side"]] = r
    rows = []
    for (case, data, method), sides in calls.items():
        ours = sides.get("accelsk")
        if ours is None:
            continue
        wire = per_byte * ours["bytes"]
        others = [sides.get(side, {}).get("seconds") for side in SIDES[1:]]
        ratios = [None if other is None else other / ours["seconds"] for other in others]
        rows.append(
            [case, data, method, wire * 1e3, ours["seconds"] * 1e3, ours["seconds"] / wire, *ratios]
        )
    headers = ["", "data", "call", "wire/ms", "accelsk/ms", "times the wire", *SIDES[1:]]
    return tabulate(rows, headers, floatfmt=".2f")


def main(arguments: list[str]) -> None:
    """Measure every side, print the table, and write the results to a file."""
    warnings.simplefilter("ignore")
    if arguments[0] == "--side":
        for row in measure(arguments[1], Path(arguments[2])):
            print(json.dumps(row), flush=True)
        return
    limit = float(arguments[1]) if len(arguments) > 1 else 120.0
    sides = arguments[2:] or SIDES
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        results = [row for side in sides for row in run(side, folder, limit)]
        try:
            errors = compare(folder)
        except FileNotFoundError:
            errors = []
    print(report(results))
    print(tabulate([list(row.values()) for row in errors], ["", "attribute", "relative error"]))
    for row in results:
        if "error" in row:
            print(row["side"], row["case"], row["data"], row["error"])
    machine = describe_machine()
    Path(arguments[0]).write_text(
        json.dumps({"machine": machine, "results": results, "exactness": errors}, indent=1) + "\n"
    )


if __name__ == "__main__":
    main(sys.argv[1:])
