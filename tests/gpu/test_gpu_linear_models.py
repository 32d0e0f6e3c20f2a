"""The tests of linear models that rest on moments once more, on a real device."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from test_linear_limits import *  # noqa: F403
from test_linear_models import *  # noqa: F403

import accelsk

pytestmark = pytest.mark.gpu


@pytest.fixture(autouse=True)
def device(on_gpu) -> Iterator[None]:
    """No double takes the device's place; some tests here expect an error and nothing else."""
    on_gpu.expected = False
    with accelsk.config_context(device="gpu", on_fallback="raise"):
        yield
