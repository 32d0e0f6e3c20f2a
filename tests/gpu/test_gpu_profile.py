"""Profiles of calls that run on the GPU: bytes, traces, lines, worker processes, IPython."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from joblib import Parallel, delayed
from joblib.externals.loky import get_reusable_executor

import accelsk
from accelsk.linear_model import Ridge
from accelsk.profiling.lines import line_profile

pytestmark = pytest.mark.gpu

ROOT = Path(__file__).parent.parent.parent


@pytest.fixture
def rows():
    X = np.random.default_rng(0).normal(size=(200_000, 20))
    return X, X.sum(axis=1)


def test_bytes_that_travel_are_counted(rows):
    X, y = rows
    with accelsk.profile(quiet=True) as results:
        model = Ridge().fit(X, y)
        model.predict(X)
    fit, predict = (results.method_calls[f"Ridge.{name}"] for name in ("fit", "predict"))
    assert X.nbytes + y.nbytes <= fit.uploaded < 1.1 * (X.nbytes + y.nbytes)
    assert X.nbytes <= predict.uploaded < 1.1 * X.nbytes
    assert y.nbytes <= predict.downloaded < 1.1 * y.nbytes
    assert "To GPU" in str(results)


def test_data_on_the_device_does_not_travel(rows):
    import cupy

    X, y = map(cupy.asarray, rows)
    with accelsk.profile(quiet=True) as results:
        Ridge().fit(X, y).predict(X)
    assert sum(stats.uploaded for stats in results.method_calls.values()) < 10_000
    assert sum(stats.downloaded for stats in results.method_calls.values()) < 10_000


def test_trace_has_calls_on_the_gpu_and_their_transfers(rows, tmp_path):
    X, y = rows
    with accelsk.profile(quiet=True) as results:
        Ridge().fit(X, y).predict(X)
    results.save_trace(tmp_path / "trace.json")
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    kinds = [event["cat"] for event in events if event["ph"] == "X"]
    assert kinds.count("gpu") == 2
    assert kinds.count("transfer") >= 3
    moved = sum(e["args"]["bytes"] for e in events if e.get("cat") == "transfer")
    assert moved == sum(s.uploaded + s.downloaded for s in results.method_calls.values())


def test_lines_have_their_share_of_the_gpu(rows):
    X, y = rows
    Ridge().fit(X, y)
    with line_profile(quiet=True) as results:
        model = Ridge().fit(X, y)
        total = sum(range(1000))
        model.predict(X)
    (lines,) = results.lines.values()
    fit, plain, predict = lines.values()
    assert fit.gpu_time > 0.5 * fit.time
    assert predict.gpu_time > 0.5 * predict.time
    assert plain.gpu_time == 0
    assert total


def _fit(X, y):
    Ridge().fit(X, y)
    return os.getpid()


def test_calls_of_workers_on_the_gpu_are_seen(rows):
    X, y = (array[:1000] for array in rows)
    try:
        with accelsk.profile(quiet=True) as results:
            pids = Parallel(n_jobs=2)(delayed(_fit)(X, y) for _ in range(4))
    finally:
        get_reusable_executor().shutdown(wait=True)
    assert results.method_calls["Ridge.fit"].worker_calls == 4
    assert {process.pid for process in results.workers} == set(pids)
    Ridge().fit(X, y)  # here, too


_CELLS = """
get_ipython().run_line_magic("load_ext", "accelsk")
get_ipython().run_line_magic("accelsk.device", "gpu")
import numpy as np
from sklearn.linear_model import Ridge
X = np.random.default_rng(0).normal(size=(10_000, 5))
get_ipython().run_cell('%%accelsk.profile\\nRidge().fit(X, X.sum(axis=1)).coef_.round(3).tolist()')
"""


def test_magic_shows_a_call_on_the_gpu(tmp_path, on_gpu):
    pytest.importorskip("IPython")
    on_gpu.expected = False  # it is another process that uses the GPU
    script = tmp_path / "cells.ipy"
    script.write_text(_CELLS)
    paths = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, "-m", "IPython", "--no-banner", "--colors=nocolor", script],
        env={**os.environ, "PYTHONPATH": paths, "IPYTHONDIR": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert "[1.0, 1.0, 1.0, 1.0, 1.0]" in done.stdout, done.stderr
    (row,) = (line for line in done.stdout.splitlines() if "Ridge.fit" in line)
    assert row.split("│")[2].strip() == "1"
