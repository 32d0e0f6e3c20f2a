"""Data of any shape in float32, the same for every side."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np

Arrays = tuple[np.ndarray, np.ndarray]

#: Rows that are drawn at a time: the generator works in blocks that stay in the cache.
_BLOCK = 1 << 16


def _normal(rng: np.random.Generator, n: int, d: int) -> np.ndarray:
    X = np.empty((n, d), np.float32)
    for start in range(0, n, _BLOCK):
        rng.standard_normal(dtype=np.float32, out=X[start : start + _BLOCK])
    return X


def regression(n: int, d: int) -> Arrays:
    """Return normal columns of falling spread, and a linear combination of them with noise."""
    rng = np.random.default_rng(0)
    X = _normal(rng, n, d)
    X *= np.linspace(2, 0.5, d, dtype=np.float32)
    X += 1
    y = X @ rng.standard_normal(d, dtype=np.float32)
    y += rng.standard_normal(n, dtype=np.float32)
    return X, y


def classes(n: int, d: int, n_classes: int = 3) -> Arrays:
    """Return clouds that overlap, and the cloud of each row."""
    rng = np.random.default_rng(0)
    X = _normal(rng, n, d)
    y = rng.integers(n_classes, size=n)
    centres = rng.standard_normal((n_classes, d)).astype(np.float32)
    centres *= np.float32(3 / np.sqrt(d))
    for start in range(0, n, _BLOCK):
        X[start : start + _BLOCK] += centres[y[start : start + _BLOCK]]
    return X, y


def blobs(n: int, d: int) -> Arrays:
    """Return eight clouds that stand apart, of different size and spread, and their numbers."""
    rng = np.random.default_rng(0)
    X = _normal(rng, n, d)
    shares = np.linspace(1, 2, 8)
    y = rng.choice(8, size=n, p=shares / shares.sum())
    centres = rng.uniform(-8, 8, (8, d)).astype(np.float32)
    spread = np.linspace(1.2, 1.8, 8, dtype=np.float32) / np.float32(np.sqrt(d))
    for start in range(0, n, _BLOCK):
        rows = slice(start, start + _BLOCK)
        X[rows] *= spread[y[rows], None]
        X[rows] += centres[y[rows]]
    return X, y


def categories(n: int, d: int) -> Arrays:
    """Return columns of up to 1,000 categories as numbers, and a target that depends on some."""
    rng = np.random.default_rng(0)
    X = rng.integers(1_000, size=(n, d), dtype=np.int32).astype(np.float32)
    y = (X[:, 0] % 7 + X[:, -1] % 3 + rng.standard_normal(n)).astype(np.float32)
    return X, y


MAKERS: dict[str, Callable[[int, int], Arrays]] = {
    "regression": regression,
    "classes": classes,
    "blobs": blobs,
    "categories": categories,
}


def store(kind: str, shape: tuple[int, int], folder: Path) -> None:
    """Write X and y of a shape to `folder`, in the place of what was there."""
    for name, array in zip("Xy", MAKERS[kind](*shape), strict=True):
        np.save(folder / f"{name}.npy", array)


def load(folder: Path) -> Arrays:
    """Return X and y in memory of this process."""
    return np.load(folder / "X.npy"), np.load(folder / "y.npy")
