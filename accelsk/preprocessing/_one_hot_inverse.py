"""Back from a one-hot encoding: the category of each row and feature."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import accumulate
from typing import Any, NamedTuple

import numpy as np

from accelsk.device.transfer import to_device, to_host
from accelsk.engines.base import Call, Rule
from accelsk.exceptions import Invalid, Refusal

__all__ = ["ENCODED", "inverse"]


def _refusals(call: Call) -> Iterator[str]:
    X = call.X
    if call.method != "inverse_transform":
        return
    if X.kind == "other" or not X.numeric or X.dtype == np.float16:
        yield f"X is not numeric ({X})"
    elif len(X.shape) != 2 or 0 in X.shape:
        yield Invalid("X is not a table")
    elif X.shape[1] != sum(call.estimator._n_features_outs):
        yield Invalid("X has another number of columns than an encoding")
    elif X.kind == "sparse" and not hasattr(X.value, "has_canonical_format"):
        yield "X is sparse, and not in rows or columns"


ENCODED = Rule("the encoding is not numeric", lambda call: next(_refusals(call), None), False)


class _Feature(NamedTuple):
    """What a feature of an encoder comes back as.

    Attributes
    ----------
    start, stop : int
        Its columns in the encoding.
    values : ndarray
        Of its columns.
    dtype : dtype
        Of its categories.
    """

    start: int
    stop: int
    values: np.ndarray
    dtype: np.dtype


def _features(encoder: Any) -> list[_Feature]:
    stops = list(accumulate(encoder._n_features_outs))
    features = []
    for i, stop in enumerate(stops):
        grouped = encoder._compute_transformed_categories(i, remove_dropped=False)
        values = encoder._remove_dropped_categories(grouped, i)
        features.append(_Feature(stop - len(values), stop, values, grouped.dtype))
    return features


def _value_of_nothing(encoder: Any, i: int) -> Any:
    """Return what a row of zeros stands for; None is for an unknown category."""
    dropped = encoder._drop_idx_after_grouping
    place = None if dropped is None else dropped[i]
    handling = encoder.handle_unknown
    rare = encoder._infrequent_indices[i] if encoder._infrequent_enabled else None
    if encoder._n_features_outs[i] == 0:  # the one category there is was dropped
        return encoder.categories_[i][place]
    if handling == "ignore" or (handling != "error" and rare is None):
        return None if place is None else encoder.categories_[i][place]
    if place is None:
        raise Refusal(Invalid("a row has no category"))
    return encoder._compute_transformed_categories(i, remove_dropped=False)[place]


def inverse(call: Call) -> Any:
    """Return the categories that ``X`` encodes, as scikit-learn does."""
    encoder = call.estimator
    features = _features(encoder)
    codes = _sparse_codes(call, features) if call.X.kind == "sparse" else _codes(call, features)
    nothing = {}
    for i, feature in enumerate(features):
        if bool((codes[:, i] == feature.stop - feature.start).any()):
            nothing[i] = _value_of_nothing(encoder, i)
    dtype = np.result_type(*(feature.dtype for feature in features))
    if any(value is None for value in nothing.values()):
        dtype = np.dtype(object)
    tables = [_table(feature, nothing.get(i), dtype) for i, feature in enumerate(features)]
    if dtype.kind in "biuf":
        return _looked_up([to_device(table) for table in tables], codes)
    if not call.on_host:
        raise Refusal("the categories are not numeric, and X is on the device")
    return _looked_up(tables, to_host(codes))


def _table(feature: _Feature, nothing: Any, dtype: np.dtype) -> np.ndarray:
    table = np.zeros(len(feature.values) + 1, dtype)
    table[:-1] = feature.values
    table[-1] = table[0] if nothing is None and dtype.kind != "O" else nothing
    return table


def _looked_up(tables: list[Any], codes: Any) -> Any:
    import cupy

    result = cupy.get_array_module(codes).empty(codes.shape, tables[0].dtype)
    for i, table in enumerate(tables):
        result[:, i] = table[codes[:, i]]
    return result


def _codes(call: Call, features: list[_Feature]) -> Any:
    """Return the place of the greatest value within each feature, its width for zeros alone."""
    import cupy

    X = to_device(call.X.array)
    if X.dtype.kind == "f" and not bool(cupy.isfinite(X).all()):
        raise Refusal(Invalid("X contains NaN or infinity"))
    codes = cupy.zeros((len(X), len(features)), np.int64)
    for i, (start, stop, _, _) in enumerate(features):
        block = X[:, start:stop]
        if stop > start:
            codes[:, i] = cupy.where(block.sum(axis=1) == 0, stop - start, block.argmax(axis=1))
    return codes


def _sparse_codes(call: Call, features: list[_Feature]) -> Any:
    """Return the same of a sparse encoding with one positive value in each row and feature."""
    import cupy

    X = call.X.value.tocsr()
    ends, columns, data = (to_device(part) for part in (X.indptr, X.indices, X.data))
    if not bool((data > 0).all()) or (data.dtype.kind == "f" and bool(cupy.isinf(data).any())):
        raise Refusal("X is sparse and holds other values than positive ones")
    owner = np.repeat(np.arange(len(features)), [f.stop - f.start for f in features])
    starts = np.array([feature.start for feature in features])
    widths = np.array([feature.stop - feature.start for feature in features])
    rows = cupy.searchsorted(ends, cupy.arange(len(columns), dtype=ends.dtype), side="right") - 1
    cells = rows * len(features) + to_device(owner)[columns]
    if len(columns) and int(cupy.bincount(cells).max()) > 1:
        raise Refusal("X has several values for one feature of a row")
    codes = cupy.zeros((X.shape[0], len(features)), np.int64) + to_device(widths)
    codes.reshape(-1)[cells] = columns - to_device(starts[owner])[columns]
    return codes
