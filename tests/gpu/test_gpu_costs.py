"""device="auto" on a GPU: where calls go, and getting ready in the background."""

from __future__ import annotations

import io
import os
import subprocess
import sys
import textwrap
from time import perf_counter
from typing import Any

import numpy as np
import pytest

import accelsk
from accelsk import tuning, warmup
from accelsk.cluster import KMeans
from accelsk.costs import expected, ledger, machine, store
from accelsk.costs.model import CPU
from accelsk.decomposition import PCA
from accelsk.ensemble import RandomForestRegressor
from accelsk.linear_model import Lasso, LinearRegression, Ridge
from accelsk.preprocessing import StandardScaler

pytestmark = pytest.mark.gpu


@pytest.fixture
def auto(on_gpu: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Default coefficients in force, everything loaded and compiled, nothing lost so far."""
    on_gpu.expected = False
    monkeypatch.setattr(store, "_table", store.default())
    monkeypatch.setattr(store, "_adapted", True)
    monkeypatch.setattr(ledger, "process", ledger.Debts())
    warmup.compile_kernels(
        [Ridge, LinearRegression, Lasso, PCA, StandardScaler, KMeans, RandomForestRegressor]
    )
    with accelsk.config_context(device="auto"):
        yield on_gpu


def _data(rows: int, columns: int) -> tuple[np.ndarray, np.ndarray]:
    X = np.random.default_rng(0).normal(size=(rows, columns))
    return X, X.sum(axis=1)


@pytest.mark.parametrize("rows", [20, 2_000, 400_000])
@pytest.mark.parametrize("cls", [Ridge, PCA, StandardScaler])
def test_a_fit_goes_where_it_is_expected_to_end_sooner(auto: Any, cls: Any, rows: int) -> None:
    X, y = _data(rows, 10)
    estimate = expected(cls(), "fit", rows, 10)
    assert estimate is not None
    with accelsk.profile(quiet=True) as results:
        cls().fit(X, y)
    stats = results.method_calls[f"{cls.__name__}.fit"]  # scikit-learn's may call others
    assert stats.cpu_calls == estimate.on_cpu
    assert all("sooner on the CPU" in reason for reason in stats.fallback_reasons)


@pytest.mark.parametrize(
    ("estimator", "method"),
    [
        (Ridge(), "predict"),
        (LinearRegression(), "predict"),
        (Lasso(alpha=0.1), "predict"),
        (PCA(n_components=3), "transform"),
        (StandardScaler(), "transform"),
        (KMeans(n_clusters=3, random_state=0), "predict"),
    ],
    ids=lambda value: type(value).__name__ if not isinstance(value, str) else value,
)
def test_a_row_goes_to_the_cpu_after_a_fit_on_the_gpu(
    auto: Any, estimator: Any, method: str
) -> None:
    X, y = _data(1_000, 10)
    with accelsk.config_context(device="gpu"):
        estimator.fit(X, y)
    with accelsk.profile(quiet=True) as results:
        ours = [getattr(estimator, method)(X[:1]) for _ in range(3)]
    (stats,) = results.method_calls.values()
    assert (stats.cpu_calls, stats.gpu_calls) == (3, 0)
    with accelsk.config_context(device="gpu"):
        theirs = getattr(estimator, method)(X[:1])
    np.testing.assert_allclose(ours[-1], theirs, rtol=1e-9)


@pytest.fixture
def loaded(on_gpu: Any, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Two classes to measure; what has to be loaded and compiled for them is there."""
    on_gpu.expected = False
    classes = [Ridge, StandardScaler]
    monkeypatch.setattr(warmup, "compile_in_processes", lambda seconds: 0)
    tuning._load()
    warmup.compile_kernels(classes)
    return classes


def test_tuning_measures_both_sides(loaded: list[Any]) -> None:
    # it ends when it has measured these sizes: the time is what a busy machine may take
    table = tuning.tune(100.0, classes=loaded, grid=((64, 8), (1_000, 8)), stream=io.StringIO())
    for call in ("linear_model.Ridge.fit", "preprocessing.StandardScaler.transform"):
        for place in (CPU, "moments"):
            assert {point[0] for point in table.measured[call][place]} == {64, 1_000}
            assert all(seconds > 0 for _, _, seconds, _ in table.measured[call][place])
    assert table.speed["gpu bus"] > 0
    assert table.curves["linear_model.Ridge.fetch"]["moments"].terms


def test_tuning_keeps_its_time(loaded: list[Any]) -> None:
    start = perf_counter()
    table = tuning.tune(4.0, classes=loaded, stream=io.StringIO())
    assert perf_counter() - start < 4 + 10  # a call that was begun within it may end after it
    for place in (CPU, "moments"):
        assert table.measured["linear_model.Ridge.fit"][place]


def test_data_on_the_device_are_no_reason_to_leave_it(auto: Any) -> None:
    import cupy

    X, y = _data(500_000, 20)
    with accelsk.profile(quiet=True) as results:
        Ridge().fit(cupy.asarray(X), cupy.asarray(y))
    assert results.method_calls["Ridge.fit"].gpu_calls == 1


def test_the_device_says_how_fast_it_is(on_gpu: Any) -> None:
    on_gpu.expected = False
    found = machine.speeds()
    assert set(found) >= {"cpu call", "cpu memory", "cpu flops", "gpu bus", "gpu flops"}
    assert all(seconds > 0 for seconds in found.values())
    assert machine.factors(found, found) == dict.fromkeys([*found, "gpu call"], 1.0)


def _run(code: str) -> str:
    done = subprocess.run(
        # Python 3.12 warns of any fork of a process with threads
        [sys.executable, "-W", "ignore::DeprecationWarning", "-c", textwrap.dedent(code)],
        capture_output=True,
        text=True,
        timeout=100,
        env={**os.environ, "ACCELSK_DEVICE": "auto"},
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return done.stdout


def test_install_in_the_background_leaves_small_calls_to_the_cpu(on_gpu: Any) -> None:
    on_gpu.expected = False  # the calls are made by another process
    printed = _run(
        """
        import threading
        import numpy as np
        import accelsk
        from accelsk.linear_model import Ridge

        accelsk.install(disable_uvm=True, background=True)
        X = np.random.default_rng(0).normal(size=(300, 5))
        with accelsk.profile(quiet=True) as results:
            Ridge().fit(X, X[:, 0])
        print(results.method_calls["Ridge.fit"].cpu_calls)
        for thread in threading.enumerate():
            if thread.name == "accelsk-install":
                thread.join()
        from accelsk.costs import startup
        print(startup.loads("cuml"), startup.compiled("linear_model.Ridge.fit", "moments"))
        """
    )
    assert printed.split() == ["1", "False", "True"]


def test_a_program_may_end_or_fork_while_the_gpu_is_got_ready(on_gpu: Any) -> None:
    on_gpu.expected = False  # the calls are made by other processes
    _run("import accelsk; accelsk.install(disable_uvm=True, background=True)")
    printed = _run(
        """
        import os, time
        import numpy as np
        import accelsk
        from accelsk.linear_model import Ridge

        accelsk.install(disable_uvm=True, background=True)
        time.sleep(0.5)
        if (child := os.fork()) == 0:
            Ridge().fit(np.eye(5), np.ones(5))
            print(accelsk.enabled(), flush=True)
            os._exit(0)
        print(os.waitpid(child, 0)[1], flush=True)
        """
    )
    assert printed.split() == ["False", "0"]
