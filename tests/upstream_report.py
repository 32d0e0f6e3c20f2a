"""A pytest plugin that writes what came of a suite to a file: ``--upstream-report FILE``.

It is JSON: the machine, the time, the tests by outcome in all and by module, how many of them
made calls that ran on an engine, the failures and the known differences.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from benchmarks.machine import describe_machine

_CALLS = "calls on an engine"
_XFAIL = {"passed": "xpassed", "skipped": "xfailed"}


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option."""
    parser.addoption("--upstream-report", type=Path, metavar="FILE", help="write figures to it")


def pytest_configure(config: pytest.Config) -> None:
    """Begin the report; a worker of xdist only counts calls."""
    path = config.option.upstream_report
    if path is None:
        return
    if config.getoption("accelsk", False):
        config.pluginmanager.register(_Calls())
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(_Report(path))


class _Calls:
    """Counts the calls of each test that ran on an engine."""

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Iterator[None]:
        import accelsk

        with accelsk.profile(quiet=True) as results:
            try:
                return (yield)
            finally:
                calls = sum(method.gpu_calls for method in results.method_calls.values())
                item.user_properties.append((_CALLS, calls))


class _Report:
    """Collects outcomes where pytest was started."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.started = time.time()
        self.modules: dict[str, Counter[str]] = {}
        self.failures: dict[str, str] = {}
        self.differences: dict[str, str] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Count a test."""
        count = self.modules.setdefault(module(report.nodeid), Counter())
        if report.failed and report.nodeid not in self.failures:
            self.failures[report.nodeid] = _last_line(report)
            count["failed"] += 1
        elif report.skipped or (report.when == "call" and report.passed):
            expected = hasattr(report, "wasxfail")
            count[_XFAIL[report.outcome] if expected else report.outcome] += 1
        known = dict(report.user_properties)
        if report.when == "call":
            count[_CALLS] += bool(known.get(_CALLS))
            if "accelsk" in known:
                self.differences[report.nodeid] = known["accelsk"]

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Write the file."""
        from accelsk.config import current

        total = sum(self.modules.values(), Counter())
        figures: dict[str, Any] = {
            "machine": describe_machine(),
            "device": current().device,
            "patched": bool(session.config.getoption("accelsk", False)),
            "seconds": round(time.time() - self.started),
            "total": _sorted(total),
            "modules": {name: _sorted(count) for name, count in sorted(self.modules.items())},
            "failures": dict(sorted(self.failures.items())),
            "differences": dict(sorted(self.differences.items())),
        }
        self.path.write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")


def _sorted(count: Counter[str]) -> dict[str, int]:
    return {name: number for name, number in sorted(count.items()) if number}


def module(nodeid: str) -> str:
    """Return the module of a test, with dots."""
    return nodeid.partition("::")[0].removesuffix(".py").replace("/", ".")


def _last_line(report: pytest.TestReport) -> str:
    crash = getattr(report.longrepr, "reprcrash", None)
    text = str(report.longrepr) if crash is None else crash.message
    return text.strip().partition("\n")[0][:300]
