"""Whether an estimator of ours and one of scikit-learn's are alike, down to types and dtypes."""

from __future__ import annotations

import device_double
import numpy as np
import pytest

import accelsk

__all__ = ["assert_alike", "device", "distinct", "same", "tolerance"]


@pytest.fixture(autouse=True)
def device(monkeypatch):
    device_double.install(monkeypatch)
    with accelsk.config_context(device="gpu", on_fallback="raise"):
        yield


def attributes(estimator):
    return {name: value for name, value in vars(estimator).items() if name.endswith("_")}


def tolerance(dtype, rtol):
    """What scikit-learn's own rounding leaves: it computes in float32 where X is float32."""
    return (2e-3, 2e-3) if dtype == np.float32 else (rtol, rtol)


def assert_alike(ours, theirs, rtol=1e-9, atol=1e-9):
    """Fitted attributes agree by name, type, dtype, shape and value."""
    ours._accelsk_fetch()
    found, expected = attributes(ours), attributes(theirs)
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        same(found[name], value, rtol, atol, name)


def same(found, expected, rtol=1e-9, atol=1e-9, name="result"):
    assert type(found) is type(expected), (name, type(found), type(expected))
    if isinstance(expected, list):
        for one, other in zip(found, expected, strict=True):
            same(one, other, rtol, atol, name)
    elif isinstance(expected, (np.ndarray, np.generic)) and expected.dtype.kind in "fiub":
        assert found.dtype == expected.dtype, (name, found.dtype, expected.dtype)
        assert found.shape == expected.shape, name
        if expected.dtype == np.float32:
            rtol, atol = max(rtol, 2e-3), max(atol, 2e-3)
        np.testing.assert_allclose(found, expected, rtol, atol, err_msg=name)
    elif isinstance(expected, float):
        assert found == pytest.approx(expected, rel=rtol, abs=atol), name


def distinct(n, d, dtype=np.float64, seed=0):
    return (np.random.RandomState(seed).randn(n, d) * 3 + 1).astype(dtype)
