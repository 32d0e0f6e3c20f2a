"""Categories: the distinct values of a column, their codes, and sums over groups of rows."""

from __future__ import annotations

from typing import Any

import numpy as np

__all__ = ["codes_of", "counts_of", "distinct", "group_sums"]

#: A float64 holds whole numbers up to 2 to this exactly.
_WHOLE_BITS = 53


def distinct(values: Any, xp: Any) -> tuple[Any, Any]:
    """Return the distinct values, ascending, and how often each occurs; NaN counts as one, last.

    Parameters
    ----------
    values : array of shape (n_samples,)
    xp : module
        The array namespace.
    """
    ordered = xp.sort(values)
    first = xp.ones(len(ordered), bool)
    if len(ordered) > 1:
        before, after = ordered[:-1], ordered[1:]
        first[1:] = (before != after) & ((before == before) | (after == after))
    starts = xp.flatnonzero(first)
    ends = xp.concatenate([starts[1:], xp.asarray([len(ordered)], dtype=starts.dtype)])
    return ordered[starts], ends - starts


def codes_of(values: Any, categories: Any, xp: Any) -> Any:
    """Return the position of each value among the categories, and their number for the others.

    Parameters
    ----------
    values : array of shape (n_samples,)
    categories : array of shape (n_categories,)
        Ascending, NaN last.
    xp : module
        The array namespace.
    """
    dtype = np.result_type(values.dtype, categories.dtype)
    values, categories = values.astype(dtype, copy=False), categories.astype(dtype, copy=False)
    n_categories = len(categories)
    plain = categories
    missing = bool(categories[-1] != categories[-1])
    if missing:
        plain = categories[:-1]
    if len(plain):
        codes = xp.minimum(xp.searchsorted(plain, values), len(plain) - 1)
        codes = xp.where(plain[codes] == values, codes, n_categories)
    else:
        codes = xp.full(len(values), n_categories)
    if missing:
        codes = xp.where(values != values, n_categories - 1, codes)
    return codes


def counts_of(codes: Any, n_groups: int, xp: Any) -> Any:
    """Return how many rows have each code below `n_groups`."""
    return xp.bincount(codes, minlength=n_groups)[:n_groups]


def group_sums(values: Any, groups: Any, n_groups: int, xp: Any) -> Any:
    """Return the sum of the values in each group, the same in every run.

    A device adds in no fixed order, so that rounding would differ from run to run. The values are
    therefore split in two whole numbers each, small enough for sums to be exact in float64.

    Parameters
    ----------
    values : array of shape (n_samples,), dtype=float64
        Finite.
    groups : array of int of shape (n_samples,)
    n_groups : int
    xp : module
        The array namespace.
    """
    largest = float(xp.abs(values).max())
    if largest == 0:
        return xp.zeros(n_groups, np.float64)
    bits = _WHOLE_BITS - 1 - int(np.ceil(np.log2(len(values) + 1)))
    scale = 2.0 ** (bits - 1 - int(np.frexp(largest)[1]))
    scaled = values * scale
    coarse = xp.rint(scaled)
    fine = xp.rint((scaled - coarse) * 2.0**bits)
    total = xp.bincount(groups, weights=coarse, minlength=n_groups)
    total += xp.bincount(groups, weights=fine, minlength=n_groups) / 2.0**bits
    return total / scale
