"""The tests of our own engines for moments, neighbours and forests once more, on a real device."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from test_algorithms_bayes import *  # noqa: F403
from test_algorithms_decomp import *  # noqa: F403
from test_algorithms_neighbors import *  # noqa: F403
from test_covariance import *  # noqa: F403
from test_discriminant import *  # noqa: F403
from test_pca import *  # noqa: F403

import accelsk

pytestmark = pytest.mark.gpu


@pytest.fixture(autouse=True)
def device(on_gpu) -> Iterator[None]:
    """No double takes the device's place; some tests here expect an error and nothing else."""
    on_gpu.expected = False
    with accelsk.config_context(device="gpu", on_fallback="raise"):
        yield
