"""Checksums of fitted attributes, by which changes made to them in place are found."""

from __future__ import annotations

import functools
import math
import zlib
from typing import Any

import numpy as np
from scipy import sparse
from sklearn.base import BaseEstimator

from accelsk.introspection import assigned_names, used_names

__all__ = ["compared_names", "fingerprint", "fingerprint_of_private"]

#: Bytes up to which a private array is compared as a whole, and items of a larger one that are.
#: The rows that neighbours are among are one. On a server's core, a checksum of 256 KiB takes
#: 0.05 ms, one of 160 MiB 150 ms, which is more than a GPU takes for many a call; one of the items,
#: 0.04 ms (2026-12).
WHOLE, ITEMS = 256 << 10, 4096


class _Identity:
    """Equal to itself alone. Keeps its object, so that no other gets the same address."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Identity) and self.value is other.value

    __hash__ = None  # type: ignore[assignment]


def fingerprint(value: Any) -> Any:
    """Return what differs once `value` is changed in place, arrays inside it included.

    Other objects, the trees of a forest for one, are told by their identity.
    """
    if isinstance(value, np.ndarray):
        if value.dtype.hasobject:
            return value.shape, [fingerprint(item) for item in value.flat]
        plain = np.ascontiguousarray(value)
        content = plain.data if value.dtype.kind in "biufc" else plain.tobytes()
        return value.shape, value.dtype.str, zlib.crc32(content)
    if sparse.issparse(value):
        arrays = (item for item in vars(value).values() if isinstance(item, np.ndarray))
        return value.shape, [fingerprint(array) for array in arrays]
    if isinstance(value, (list, tuple)):
        return [fingerprint(item) for item in value]
    if isinstance(value, dict):
        return [(key, fingerprint(item)) for key, item in value.items()]
    if isinstance(value, (bool, int, float, str, bytes)) and value == value:  # NaN does not
        return value
    return _Identity(value)


def fingerprint_of_private(value: Any) -> Any:
    """Return the same of a private attribute: of a large array, that of some of its items.

    An estimator (the `_label_binarizer` of a classifier) is told by what it holds.
    """
    if isinstance(value, BaseEstimator):
        return fingerprint(vars(value))
    if isinstance(value, np.ndarray) and value.nbytes > WHOLE and value.flags.forc:
        step = -(-value.size // ITEMS)
        while math.gcd(step, value.size) != 1:  # or some columns would have no item among them
            step += 1
        return value.shape, fingerprint(value.ravel("K")[::step])
    return fingerprint(value)


@functools.cache
def compared_names(cls: Any, methods: tuple[str, ...], per_row: frozenset[str]) -> frozenset[str]:
    """Return the fitted attributes that a model on a device must agree with.

    The public ones, but for those of `per_row`, which no method reads; and the private ones that
    scikit-learn reads in one of `methods`.

    Parameters
    ----------
    cls : type
        An accelerated class.
    methods : tuple of str
        Those that an engine runs; what fits is left out.
    per_row : frozenset of str
    """
    read = used_names(cls._accelsk_original, tuple(m for m in methods if not m.startswith("fit")))
    return frozenset(
        name for name in assigned_names(cls) - per_row if not name.startswith("_") or name in read
    )
