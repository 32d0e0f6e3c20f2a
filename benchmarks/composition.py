"""Pipelines and searches as a whole: accelsk, cuml.accel and scikit-learn, each in its own process.

The same program runs in each, with data on the host, as users have them, after a first fit on few
rows. Of fits and predictions the fastest of three counts, of scikit-learn's the only one; of the
searches, the faster of two by accelsk and the only one by the others.
A search that would take scikit-learn too long is measured on some of its candidates, and the
results say of how many::

    python -m benchmarks.composition results.json
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from importlib import import_module
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np

#: How each side is started, and how long it may take, in seconds.
SIDES = {
    "accelsk": ([], 50),
    "cuml.accel": (["-m", "cuml.accel"], 60),
    "scikit-learn": ([], 60),
}

#: What a search of scikit-learn's may take before it is measured on fewer candidates.
_MOST_SECONDS = 15.0

_JOBS = 16


def data(n: int, d: int) -> tuple[np.ndarray, np.ndarray]:
    """Return X in float32, of which 40 directions matter, and labels of two classes."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((n, d), dtype=np.float32)
    X += rng.standard_normal((n, 40), dtype=np.float32) @ (
        2 * rng.standard_normal((40, d), dtype=np.float32)
    )
    X *= np.linspace(0.5, 2, d, dtype=np.float32)
    X += 1
    noise = rng.standard_normal(n, dtype=np.float32)
    score = X[:, :20].mean(axis=1)
    return X, (score - np.median(score) + noise > 0).astype(np.int64)


class Side:
    """One of the packages, with its classes.

    Parameters
    ----------
    name : {"accelsk", "cuml.accel", "scikit-learn"}
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.package = "accelsk" if name == "accelsk" else "sklearn"
        if name == "accelsk":
            import accelsk

            accelsk.set_config(device="gpu")

    def get(self, path: str) -> Any:
        """Return a name of the package, such as ``"linear_model.Ridge"``."""
        module, _, name = path.rpartition(".")
        return getattr(import_module(f"{self.package}.{module}"), name)

    def pipeline(self) -> Any:
        return self.get("pipeline.make_pipeline")(
            self.get("preprocessing.StandardScaler")(),
            self.get("decomposition.PCA")(32),
            self.get("linear_model.LogisticRegression")(max_iter=200),
        )

    def search(self, estimator: Any, grid: dict[str, list]) -> Any:
        jobs = _JOBS if self.name == "scikit-learn" else None
        return self.get("model_selection.GridSearchCV")(estimator, grid, cv=5, n_jobs=jobs)


def timed(call: Callable[[], Any]) -> float:
    """Return the seconds that `call` takes, until the device is idle."""
    start = perf_counter()
    call()
    if (cupy := sys.modules.get("cupy")) is not None:
        cupy.cuda.Device().synchronize()
    return perf_counter() - start


@contextmanager
def moving(result: dict[str, Any], X: np.ndarray) -> Iterator[None]:
    """Put how often X went up, what came down, and what each call took, into `result`."""
    from accelsk.device import traffic
    from accelsk.profiling.events import listening

    events: list[Any] = []
    before = traffic.moved()
    with listening(events.append):
        yield
    after = traffic.moved()
    seconds: dict[str, float] = {}
    for event in events:
        seconds[event.name] = seconds.get(event.name, 0.0) + event.duration
    result["seconds of calls"] = seconds
    result["uploads of X"] = round((after[0] - before[0]) / X.nbytes, 4)
    result["bytes down"] = after[1] - before[1]


# The parts


def fit_and_predict(side: Side) -> dict[str, Any]:
    """Pipeline(StandardScaler, PCA(32), LogisticRegression) on 500,000 x 200 float32."""
    X, y = data(500_000, 200)
    side.pipeline().fit(X[:5000], y[:5000]).predict(X[:5000])
    repeats = 1 if side.name == "scikit-learn" else 3
    pipeline = side.pipeline()
    result: dict[str, Any] = {
        "fit": min(timed(lambda: pipeline.fit(X, y)) for _ in range(repeats)),
        "predict": min(timed(lambda: pipeline.predict(X)) for _ in range(repeats)),
        "score": float(pipeline.score(X, y)),
    }
    if side.name == "accelsk":
        fit: dict[str, Any] = {}
        with moving(fit, X):
            pipeline.fit(X, y)
        predict: dict[str, Any] = {}
        with moving(predict, X):
            pipeline.predict(X)
        result |= {"moved by fit": fit, "moved by predict": predict}
        result |= resident(side, X, y)
    return result


def resident(side: Side, X: np.ndarray, y: np.ndarray) -> dict[str, Any]:
    """Return what the fits take one by one, their data on the device, and one upload of X."""
    import cupy

    from accelsk.device.transfer import to_device

    X_there, y_there = cupy.asarray(X), cupy.asarray(y)
    *transformers, last = [step for _, step in side.pipeline().steps]
    best = [float("inf")] * (len(transformers) + 1)
    for _ in range(3):
        rows = X_there
        for place, step in enumerate(transformers):
            best[place] = min(best[place], timed(partial(step.fit_transform, rows)))
            rows = step.transform(rows)
        best[-1] = min(best[-1], timed(partial(last.fit, rows, y_there)))
    return {
        "fits on the device": dict(zip(("scaler", "PCA", "regression"), best, strict=True)),
        "one upload": min(timed(lambda: to_device(X)) for _ in range(3)),
    }


def search_of_pipelines(side: Side) -> dict[str, Any]:
    """GridSearchCV of that pipeline: 12 candidates, 5 folds, 200,000 x 100 float32."""
    X, y = data(200_000, 100)
    grid = {
        "pca__n_components": [8, 16, 24, 32],
        "logisticregression__C": [0.01, 0.1, 1.0],
    }
    return _searched(side, side.pipeline(), grid, X, y, "logisticregression__C")


def search_of_ridge(side: Side) -> dict[str, Any]:
    """GridSearchCV of Ridge: 20 alphas, 5 folds, 200,000 x 100 float32."""
    X, y = data(200_000, 100)
    target = (X[:, :30].sum(axis=1) + y).astype(np.float32)
    ridge = side.get("linear_model.Ridge")()
    grid = {"alpha": np.logspace(-3, 4, 20).tolist()}
    result = _searched(side, ridge, grid, X, target, "alpha")
    if side.name == "accelsk":
        from accelsk.device.transfer import to_device

        result["one upload"] = min(timed(lambda: to_device(X)) for _ in range(3))
    return result


def _searched(
    side: Side, estimator: Any, grid: dict[str, list], X: np.ndarray, y: np.ndarray, shrinks: str
) -> dict[str, Any]:
    """Return what a search takes; `shrinks` is what is searched less of where it takes long."""
    few = {name: values[:1] for name, values in grid.items()}
    side.search(estimator, few).fit(X[:4000], y[:4000])
    n_candidates = _size(grid)
    if side.name == "scikit-learn":
        one = timed(lambda: estimator.fit(X[::5], y[::5])) * 4
        if one * n_candidates * 5 / min(_JOBS, os.cpu_count() or 1) > _MOST_SECONDS:
            grid = {**grid, shrinks: grid[shrinks][:1]}
    search, n_measured = side.search(estimator, grid), _size(grid)
    result: dict[str, Any] = {}
    if side.name == "accelsk":
        with moving(result, X):
            seconds = timed(lambda: search.fit(X, y))
        seconds = min(seconds, timed(lambda: search.fit(X, y)))
    else:
        seconds = timed(lambda: search.fit(X, y))
    result |= {
        "search": seconds * n_candidates / n_measured,
        "candidates": n_candidates,
        "candidates measured": n_measured,
        "best": {name: float(value) for name, value in search.best_params_.items()},
        "score": float(search.best_score_),
    }
    return result


def _size(grid: dict[str, list]) -> int:
    return int(np.prod([len(values) for values in grid.values()]))


PARTS = {
    "pipeline": fit_and_predict,
    "search of pipelines": search_of_pipelines,
    "search of ridge": search_of_ridge,
}


# All sides


def run_side(name: str) -> None:
    """Print the results of one side, a line of JSON for each part."""
    warnings.simplefilter("ignore")
    side = Side(name)
    for part, measure in PARTS.items():
        start = perf_counter()
        try:
            result = measure(side)
        except Exception as error:
            result = {"error": f"{type(error).__name__}: {error}"}
        result["seconds in all"] = perf_counter() - start
        print(json.dumps({"part": part, "result": result}), flush=True)


def start_side(name: str) -> dict[str, Any]:
    """Return the results of one side, by part; those that it got to in its time."""
    launcher, limit = SIDES[name]
    command = [sys.executable, *launcher, "-m", "benchmarks.composition", "--side", name]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        output, errors = process.communicate(timeout=limit)
    except subprocess.TimeoutExpired:
        process.kill()
        output, errors = process.communicate()
        errors = f"stopped after {limit} s\n{errors}"
    lines = [json.loads(line) for line in output.splitlines() if line.startswith('{"part"')]
    found = {line["part"]: line["result"] for line in lines}
    if len(found) < len(PARTS):
        found["missing"] = errors.strip()[-400:]
    return found


def compared(sides: dict[str, Any]) -> dict[str, Any]:
    """Return the ratios that matter."""

    def of(side: str, part: str, what: str) -> Any:
        return sides.get(side, {}).get(part, {}).get(what)

    measured = [
        ("pipeline", "fit"),
        ("pipeline", "predict"),
        ("search of pipelines", "search"),
        ("search of ridge", "search"),
    ]
    ratios: dict[str, Any] = {}
    for part, what in measured:
        for other in ("cuml.accel", "scikit-learn"):
            ours, theirs = of("accelsk", part, what), of(other, part, what)
            if ours and theirs:
                ratios[f"{part}, {what}: times faster than {other}"] = theirs / ours
    if fits := of("accelsk", "pipeline", "fits on the device"):
        least = sum(fits.values()) + of("accelsk", "pipeline", "one upload")
        ratio = of("accelsk", "pipeline", "fit") / least
        ratios["pipeline, fit: of the fits on the device and one upload"] = ratio
    if upload := of("accelsk", "search of ridge", "one upload"):
        ratio = of("accelsk", "search of ridge", "search") / upload
        ratios["search of ridge: uploads of X in that time"] = ratio
    return ratios


def main() -> None:
    """Measure and write all."""
    from benchmarks.machine import describe_machine

    sides = {name: start_side(name) for name in SIDES}
    ratios = compared(sides)
    described = {name: (part.__doc__ or "").strip() for name, part in PARTS.items()}
    result = {
        "machine": describe_machine(),
        "parts": described,
        "seconds": sides,
        "compared": ratios,
    }
    Path(sys.argv[1]).write_text(json.dumps(result, indent=1) + "\n")
    for side, parts in sides.items():
        print(side, json.dumps(parts))
    for name, ratio in ratios.items():
        print(f"{ratio:8.2f}  {name}")


if __name__ == "__main__":
    if sys.argv[1] == "--side":
        run_side(sys.argv[2])
    else:
        main()
