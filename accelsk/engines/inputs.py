"""Arguments as arrays on the device, checked as scikit-learn checks them.

What scikit-learn would reject is refused here, so that it gets to say so itself. `*_refusals`
look at types and shapes only and belong to a plan; the others look at the elements.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from accelsk.config import current
from accelsk.data import Argument, describe
from accelsk.device.resident import remembered
from accelsk.device.transfer import is_device_array, to_device, to_host
from accelsk.engines.base import Call, Rule, refuse
from accelsk.exceptions import Invalid, Refusal

__all__ = [
    "EXTENDED_PRECISION",
    "HIDDEN_PRECISION",
    "Labels",
    "codes",
    "labels",
    "labels_refusals",
    "listed",
    "matrix",
    "matrix_refusals",
    "matrix_rule",
    "sparse_matrix",
    "target",
    "target_refusals",
    "target_rule",
    "weights",
    "weights_refusals",
    "LABELS",
    "LABELS_OR_COLUMN",
    "PRECISION",
    "WEIGHTS",
]

_INT32_MAX = 2**31 - 1

#: scikit-learn takes what no int64 equals for continuous.
_INT64_END = 2.0**63

#: scikit-learn warns where there are more than 20 classes and more than half as many as rows.
_MANY_CLASSES = 20


def matrix_refusals(
    call: Call, *, min_rows: int = 1, sparse: bool = False, streamed: bool = False
) -> Iterator[str]:
    """Yield why ``X`` cannot go to the device as a matrix, a dense one unless `sparse`.

    How large it is does not matter where it is `streamed`.
    """
    X = call.X
    if not X.given:
        yield Invalid("X is None")
    elif X.dtype is not None and X.dtype.kind == "c":
        yield Invalid("X is complex")
    elif X.kind == "sparse" and not sparse:
        yield "X is sparse"
    elif X.kind not in ("numpy", "cupy", "frame", "sequence", "sparse") or not X.numeric:
        reason = f"X is not a plain array or frame of numbers ({X})"
        yield reason if X.kind in ("frame", "sparse") else Invalid(reason)
    elif len(X.shape) != 2:
        yield Invalid(f"X has {len(X.shape)} dimensions")
    elif 0 in X.shape:
        yield Invalid("X is empty")
    elif X.shape[0] < min_rows:
        yield f"X has fewer than {min_rows} rows"
    elif not streamed:
        yield from _size_refusals(X)


def _size_refusals(X: Any) -> Iterator[str]:
    elements = X.value.nnz if X.kind == "sparse" else X.shape[0] * X.shape[1]
    limit = current().device_memory_limit
    if elements > _INT32_MAX:
        yield "X has more than 2**31 - 1 elements"
    elif limit is not None and elements * X.dtype.itemsize > limit:
        yield "X takes more than device_memory_limit"


def matrix_rule(*, min_rows: int = 1, sparse: bool = False, streamed: bool = False) -> Rule:
    """Return `matrix_refusals` as a rule."""

    def test(call: Call) -> str | None:
        if not (call.X.given or call.fits):
            return None
        at_least = min_rows if call.fits else 1
        refusals = matrix_refusals(call, min_rows=at_least, sparse=sparse, streamed=streamed)
        return next(refusals, None)

    text = "X is not numeric" if sparse else "X is sparse or not numeric"
    return Rule(text, test, fit_only=False)


def _in_extended_precision(call: Call) -> bool:
    dtype = call.X.dtype
    return not call.fits and dtype is not None and dtype.kind == "f" and dtype.itemsize > 8


#: For methods that answer in the dtype of ``X``: CUDA has no such dtype.
EXTENDED_PRECISION = refuse("X is longdouble", _in_extended_precision, fit_only=False)


def matrix(call: Call, dtype: Any = None, *, nan_is_valid: bool = False) -> Any:
    """Return ``X`` on the device, finite, as float32 where it is float32, else as float64.

    Parameters
    ----------
    call : Call
    dtype : dtype, default=None
        The dtype where scikit-learn casts all input to one.
    nan_is_valid : bool, default=False
        Whether scikit-learn takes missing values.
    """
    import cupy

    given = call.X
    if not given.given:
        raise Refusal(Invalid("X is None"))
    if dtype is None:
        dtype = np.float32 if given.dtype == np.float32 else np.float64
    X = to_device(given.source, dtype)
    if given.dtype is not None and given.dtype.kind == "f" and not bool(cupy.isfinite(X).all()):
        reason = "X contains NaN or infinity"
        valid = nan_is_valid and not bool(cupy.isinf(X).any())
        raise Refusal(reason if valid else Invalid(reason))
    return X


def sparse_matrix(call: Call) -> Any:
    """Return a sparse ``X`` on the device by rows, finite, in float64."""
    import cupy
    from cupyx.scipy.sparse import csr_matrix

    X = call.X.value
    if not is_device_array(X):
        X = _sparse_to_device(X)
    X = csr_matrix(X.astype(np.float64))
    if not bool(cupy.isfinite(X.data).all()):
        raise Refusal(Invalid("X contains NaN or infinity"))
    return X


def _sparse_to_device(X: Any) -> Any:
    """Return a sparse matrix in float64 on the device.

    What CSR and CSC are made of travels as it is; there are no sparse matrices of integers there.
    """
    from cupyx.scipy import sparse

    if X.format not in ("csr", "csc"):
        X = X.tocsr()
    kind = sparse.csc_matrix if X.format == "csc" else sparse.csr_matrix
    parts = (to_device(X.data, np.float64), to_device(X.indices), to_device(X.indptr))
    return kind(parts, shape=X.shape)


def _column_refusals(call: Call, name: str, dimensions: tuple[int, ...]) -> Iterator[str]:
    column = call.argument(name)
    if not column.given:
        yield Invalid(f"{name} is None")
    elif column.kind not in ("numpy", "cupy", "frame", "sequence"):
        yield f"{name} is not an array ({column})"
    elif column.shape[:1] != call.X.shape[:1]:
        yield Invalid(f"X and {name} differ in length")
    elif len(column.shape) not in dimensions:
        reason = f"{name} has {len(column.shape)} dimensions"
        yield Invalid(reason) if len(column.shape) > 2 else reason


def target_refusals(call: Call, *, outputs: bool) -> Iterator[str]:
    """Yield why ``y`` cannot go to the device as a regression target.

    Parameters
    ----------
    call : Call
    outputs : bool
        Whether ``y`` may have several columns.
    """
    yield from _column_refusals(call, "y", (1, 2) if outputs else (1,))
    if 0 in call.y.shape[1:]:
        yield Invalid("y has no columns")
    if call.y.given and not call.y.numeric:
        yield Invalid(f"y is not numeric ({call.y})")


def target_rule(*, outputs: bool) -> Rule:
    """Return `target_refusals` as a rule."""
    text = "y is not numeric" if outputs else "y is not numeric or has two dimensions"
    return Rule(text, lambda call: next(target_refusals(call, outputs=outputs), None))


def target(call: Call, dtype: Any) -> Any:
    """Return a regression target on the device, finite."""
    import cupy

    y = to_device(call.y.array, dtype)
    if not bool(cupy.isfinite(y).all()):
        raise Refusal(Invalid("y contains NaN or infinity"))
    return y


class Labels(NamedTuple):
    """Class labels as codes.

    Attributes
    ----------
    codes : cupy.ndarray of shape (n_samples,), dtype=int32
        Positions in `classes`.
    classes : ndarray of shape (n_classes,)
        The distinct labels, sorted, in the dtype in which they came.
    """

    codes: Any
    classes: np.ndarray


def labels_refusals(call: Call, *, column: bool = False) -> Iterator[str]:
    """Yield why ``y`` cannot be class labels for the device; as a `column`, too, if wanted."""
    yield from _column_refusals(call, "y", (1, 2) if column else (1,))
    if len(call.y.shape) == 2 and call.y.shape[1] != 1:
        yield "y has several columns"


#: `labels_refusals` as a rule.
LABELS = Rule("y has two dimensions", lambda call: next(labels_refusals(call), None))

#: The same for a class that takes a column, too, with a warning.
LABELS_OR_COLUMN = Rule(
    "y has several columns", lambda call: next(labels_refusals(call, column=True), None)
)


def labels(call: Call) -> Labels:
    """Return ``y`` as codes on the device; strings are coded on the host.

    Raises
    ------
    Refusal
        Where scikit-learn would take ``y`` for something else than labels, or warn.
    """
    # in a search once for each fold
    return remembered("labels", [call.y.value], lambda value: _coded(describe(value)))


def _coded(given: Argument) -> Labels:
    import cupy

    y = given.array.ravel()
    if y.dtype.kind == "O" and not all(isinstance(label, str) for label in y):
        raise Refusal(Invalid(f"y has labels of mixed or unknown type ({given})"))
    if y.dtype.kind not in "biufOU":
        raise Refusal(f"y has labels of dtype {y.dtype}")
    if y.dtype.kind in "iuf" and y.dtype.itemsize <= 8:
        y = to_device(y)  # where they are sorted sooner
    xp = cupy.get_array_module(y)
    if y.dtype.kind == "f" and not bool(((abs(y) < _INT64_END) & (y == xp.rint(y))).all()):
        raise Refusal(Invalid("y is continuous"))
    classes, codes = xp.unique(y, return_inverse=True)
    if len(classes) < 2:
        raise Refusal(Invalid("y has one class only"))
    if len(classes) > _MANY_CLASSES and len(classes) > round(len(y) / 2):
        raise Refusal("y has more than half as many classes as rows")
    # what is sorted on the device comes back in the byte order of the machine
    classes = cupy.asnumpy(classes).astype(given.array.dtype, copy=False)
    return Labels(to_device(codes, np.int32), classes)


def listed(classes: np.ndarray) -> np.ndarray:
    """Return labels in the dtype that they have in a list, where scikit-learn passes them on so."""
    return np.array(list(classes))


def codes(call: Call, classes: np.ndarray) -> Any:
    """Return the positions of ``y`` in `classes`, which are sorted, as int32 on the device."""
    y = call.y.array
    if y.dtype.kind in "biuf" and classes.dtype.kind in "biuf":
        import cupy

        y, among, xp = to_device(y), to_device(classes), cupy
    else:
        y, among, xp = to_host(y), classes, np
        if y.dtype.kind == "O" and not all(isinstance(label, str) for label in y):
            raise Refusal(f"y has labels of mixed or unknown type ({call.y})")
    found = xp.minimum(xp.searchsorted(among, y), len(classes) - 1)
    if not bool((among[found] == y).all()):
        raise Refusal("y has labels that are not among the classes")
    return to_device(found, np.int32)


def weights_refusals(call: Call) -> Iterator[str]:
    """Yield why ``sample_weight`` cannot go to the device."""
    weight = call.sample_weight
    if weight.given and weight.kind != "scalar":
        yield from _column_refusals(call, "sample_weight", (1,))
        if not weight.numeric:
            yield f"sample_weight is not numeric ({weight})"


#: Where scikit-learn keeps the precision of X, the device has no match for half and extended ones.
PRECISION = refuse(
    "X has half or extended precision",
    lambda call: (
        call.X.dtype is not None
        and call.X.dtype.kind == "f"
        and call.X.dtype.itemsize not in (4, 8)
    ),
    fit_only=False,
)


def _is_hidden(call: Call) -> bool:
    dtype = call.X.dtype
    return call.X.narrow or (dtype is not None and dtype.kind == "f" and not dtype.isnative)


#: Some classes take any dtype. There X keeps one that others do not see, and make float64 of.
HIDDEN_PRECISION = refuse(
    "X is float32 in a list, in a frame without dtypes or in another byte order",
    _is_hidden,
    fit_only=False,
)

#: `weights_refusals` as a rule.
WEIGHTS = Rule(
    "sample_weight is not numeric",
    lambda call: next(weights_refusals(call), None),
    fit_only=False,
    about="sample_weight",
)


def weights(call: Call, dtype: Any) -> Any:
    """Return ``sample_weight`` on the device, or None where none was given."""
    import cupy

    given = call.sample_weight
    if not given.given:
        return None
    if given.kind == "scalar":
        weight = cupy.full(call.X.shape[0], given.value, dtype)
    else:
        weight = to_device(given.array, dtype)
    if not bool((cupy.isfinite(weight) & (weight >= 0)).all()) or not bool((weight > 0).any()):
        raise Refusal("sample_weight is negative, zero throughout or not finite")
    return weight
