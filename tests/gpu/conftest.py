"""Every test here runs on a GPU: one whose calls ran in scikit-learn fails.

A call that has to fall back raises, and a test in which nothing ran on the GPU fails at its end. A
test that expects a fallback says so with ``on_gpu.falls_back(reason)``.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

import accelsk
from accelsk.device import probe
from accelsk.engines.cuml import import_cuml
from accelsk.profiling import ProfileResults


@pytest.fixture(scope="session", autouse=True)
def usable_gpu() -> None:
    if (reason := probe.unusable()) is not None:
        pytest.fail(f"no GPU is usable: {reason}")
    # Where two releases of nvJitLink lie on the path, cuML needs its own to be loaded first
    import_cuml()


class OnGpu:
    """What ran where in a test.

    Attributes
    ----------
    results : ProfileResults
    expected : bool
        Whether the test fails if nothing runs on the GPU.
    """

    def __init__(self, results: ProfileResults) -> None:
        self.results = results
        self.expected = True

    def count(self, *names: str) -> int:
        """Return how many calls, of the functions named if any are, ran on the GPU."""
        calls = self.results.method_calls
        return sum(stats.gpu_calls for name, stats in calls.items() if not names or name in names)

    @contextmanager
    def allowed(self) -> Iterator[ProfileResults]:
        """A block whose calls may fall back, with reasons."""
        with (
            accelsk.config_context(on_fallback="log"),
            accelsk.profile(quiet=True) as results,
        ):
            yield results
        for name, stats in results.method_calls.items():
            assert bool(stats.cpu_calls) == bool(stats.fallback_reasons), name

    @contextmanager
    def falls_back(self, reason: str = "") -> Iterator[ProfileResults]:
        """A block in which each function falls back, for a reason that contains `reason`."""
        with self.allowed() as results:
            yield results
        self.expected = False
        assert results.method_calls, "nothing was called"
        for name, stats in results.method_calls.items():
            assert stats.gpu_calls == 0, f"{name} ran on the GPU"
            assert any(reason in why for why in stats.fallback_reasons), stats.fallback_reasons


_PASSED = pytest.StashKey[bool]()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Any:
    report = yield
    if report.when == "call":
        item.stash[_PASSED] = report.passed
    return report


@pytest.fixture(autouse=True)
def on_gpu(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[OnGpu]:
    # "auto" leaves small calls on the CPU; other threads and processes start from the environment
    monkeypatch.setenv("ACCELSK_DEVICE", "gpu")
    with (
        accelsk.config_context(device="gpu", on_fallback="raise"),
        accelsk.profile(quiet=True) as results,
        warnings.catch_warnings(),
    ):
        watch = OnGpu(results)
        yield watch
    if watch.expected and request.node.stash.get(_PASSED, False):
        assert watch.count() > 0, "nothing ran on the GPU"
