"""Every test starts from the same state, whatever ran before it."""

from __future__ import annotations

import logging
import os
import signal
from collections.abc import Iterator
from typing import Any

import hypothesis
import numpy as np
import pytest

from accelsk import config, registry, runtime, support, warmup
from accelsk.costs import ledger, startup, store
from accelsk.costs.model import Table
from accelsk.device import probe
from accelsk.engines import cuml

_SETTINGS: dict[str, Any] = {
    "deadline": None,
    "suppress_health_check": [
        hypothesis.HealthCheck.too_slow,
        hypothesis.HealthCheck.function_scoped_fixture,
    ],
}
# the same examples in every run; `pytest --hypothesis-profile=search` looks for new ones
hypothesis.settings.register_profile("accelsk", **_SETTINGS, max_examples=40, derandomize=True)
hypothesis.settings.register_profile("search", **_SETTINGS, max_examples=500)
hypothesis.settings.register_profile("long", **_SETTINGS, max_examples=2_000)
hypothesis.settings.load_profile("accelsk")

# a shell has what it starts in the background ignore interrupts, which tests send
signal.signal(signal.SIGINT, signal.default_int_handler)

# a class is registered once, when its module is imported: not in a test, which takes that back
support.import_accelerated()


@pytest.fixture(autouse=True)
def isolated(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Put back what a test changes in accelsk and its surroundings."""
    logger = logging.getLogger("accelsk")
    level, handlers, propagate = logger.level, list(logger.handlers), logger.propagate
    environment = {name: value for name, value in os.environ.items() if "ACCELSK" in name}
    classes = dict(registry._classes)
    monkeypatch.setattr(runtime, "_installed", False)
    monkeypatch.setattr(warmup, "imported", list)  # `install` has nothing to compile
    monkeypatch.setattr(store, "_table", Table())  # no call is sooner on the CPU
    monkeypatch.setattr(startup, "_loaded", set())
    monkeypatch.setattr(startup, "_compiled", set())
    monkeypatch.setattr(ledger, "process", ledger.Debts())
    monkeypatch.setattr(probe, "_disabled", probe._disabled)
    monkeypatch.setattr(probe, "_found", probe._found)
    monkeypatch.setattr(cuml, "_broken", None)
    monkeypatch.setattr(config, "_default", None)
    monkeypatch.setattr(config, "_said", set())
    config._current.set(None)
    yield
    config._current.set(None)
    registry._classes.clear()
    registry._classes.update(classes)
    logger.level, logger.handlers, logger.propagate = level, handlers, propagate
    logging.getLogger("accelsk").manager._clear_cache()  # type: ignore[attr-defined]
    for name in [name for name in os.environ if "ACCELSK" in name]:
        del os.environ[name]
    os.environ.update(environment)
    try:
        from engine import ENGINES
    except ImportError:
        return
    for engine in ENGINES:
        engine.reset()


@pytest.fixture
def registered() -> None:
    """Have the classes of `engine` in the registry for the length of a test."""
    from engine import REGISTERED

    registry._classes.update(REGISTERED)


@pytest.fixture
def data() -> tuple[np.ndarray, np.ndarray]:
    """Return X of 40 rows and 3 columns, and a target."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(40, 3)) + 1
    return X, X @ [1.0, -2.0, 0.5] + 0.1 * rng.normal(size=40)


@pytest.fixture
def labelled(data: Any) -> tuple[np.ndarray, np.ndarray]:
    """Return X of 40 rows and 3 columns, and string labels."""
    X, y = data
    return X, np.where(y > np.median(y), "above", "below")
