"""The figures of a profile for programs: dicts, JSON, a frame, a picture."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import asdict
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from accelsk.profiling.profile import MethodStats, ProfileResults

__all__ = ["plot", "to_dict", "to_json", "to_pandas"]


def _functions(method_calls: Mapping[str, MethodStats]) -> dict[str, dict[str, Any]]:
    return {
        name: {
            key: sorted(value) if isinstance(value, set) else value
            for key, value in asdict(stats).items()
        }
        for name, stats in method_calls.items()
    }


def to_dict(results: ProfileResults) -> dict[str, Any]:
    """Return the figures; `ProfileResults.to_dict` documents them."""
    import accelsk

    this = {"pid": results._pid, "name": "MainProcess", "worker": False}
    processes = [{**this, "functions": _functions(results.own_calls)}]
    for process, calls in results.workers.items():
        worker = {"pid": process.pid, "name": process.name, "worker": True}
        processes.append({**worker, "functions": _functions(calls)})
    return {
        "accelsk": accelsk.__version__,
        "started": datetime.fromtimestamp(results.started, UTC).isoformat(),
        "wall_time": results.wall_time,
        "functions": _functions(results.method_calls),
        "processes": processes,
    }


def to_json(
    results: ProfileResults, path: str | os.PathLike[str] | None, indent: int | None
) -> str:
    """Return the figures as JSON, and write them to `path` if there is one."""
    text = json.dumps(results.to_dict(), indent=indent)
    if path is not None:
        with open(path, "w", encoding="utf-8") as file:
            file.write(text + "\n")
    return text


def to_pandas(results: ProfileResults) -> Any:
    """Return a frame with a row for each function."""
    import pandas as pd

    from accelsk.profiling.profile import MethodStats

    functions = results.to_dict()["functions"]
    columns = [*asdict(MethodStats())]
    frame = pd.DataFrame([*functions.values()], columns=columns)
    frame.index = pd.Index([*functions], dtype=object, name="function")
    return frame


#: Colours of bars that tell on white and on black, and to the colour-blind.
GPU_COLOUR, CPU_COLOUR = "#2a9d6f", "#d9822b"


def plot(results: ProfileResults, ax: Any) -> Any:
    """Draw bars of the GPU and the CPU time of each function."""
    import matplotlib.pyplot as plt

    with results._lock:
        calls = {name: (s.gpu_time, s.cpu_time) for name, s in results.method_calls.items()}
    if ax is None:
        _, ax = plt.subplots(figsize=(8, 1.2 + 0.35 * len(calls)), layout="constrained")
    gpu, cpu = zip(*calls.values(), strict=True) if calls else ((), ())
    ax.barh([*calls], gpu, color=GPU_COLOUR, label="on the GPU")
    ax.barh([*calls], cpu, left=gpu, color=CPU_COLOUR, label="in scikit-learn")
    ax.invert_yaxis()  # the first call on top
    ax.set_xlabel("seconds")
    ax.legend()
    return ax
