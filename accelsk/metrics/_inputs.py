"""Arguments of metrics on the device, and what keeps them off it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from accelsk.device.resident import remembered
from accelsk.device.transfer import to_device
from accelsk.engines.base import Rule
from accelsk.exceptions import Invalid, Refusal
from accelsk.functions import FunctionCall

__all__ = ["Coded", "arrays", "coded", "few_classes", "finite", "weight"]

#: Whole numbers up to this one are exact in double precision.
_MOST_EXACT = 2.0**53

#: scikit-learn warns where there are more than 20 classes and more than half as many as rows.
_MANY_CLASSES = 20


def arrays(*dimensions: int, text: bool = False, matrices: tuple[str, ...] = ()) -> Rule:
    """Return the rule that arguments are arrays of equal length with so many dimensions.

    Parameters
    ----------
    *dimensions : int
        The numbers of dimensions that arrays may have; weights have one.
    text : bool, default=False
        Whether labels may be strings.
    matrices : tuple of str, default=()
        Arguments that have two dimensions and are no labels.
    """

    def test(call: FunctionCall) -> str | None:
        return next(_refusals(call, dimensions, text, matrices), None)

    return Rule("an argument is not a plain array", test)  # type: ignore[arg-type]


def _refusals(
    call: FunctionCall, dimensions: tuple[int, ...], text: bool, matrices: tuple[str, ...]
) -> Iterator[str]:
    lengths = set()
    for name, given in call.described.items():
        if not given.given:
            continue
        if name in matrices:
            allowed: tuple[int, ...] = (2,)
        elif name == "sample_weight":
            allowed = (1,)
        else:
            allowed = dimensions
        labels = text and name not in matrices and name != "sample_weight"
        if given.kind not in ("numpy", "cupy", "frame", "sequence"):
            yield f"{name} is not an array ({given})"
        elif not given.numeric and not (labels and given.dtype is not None):
            yield f"{name} is not numeric ({given})"
        elif len(given.shape) not in allowed:
            yield f"{name} has {len(given.shape)} dimensions"
        elif 0 in given.shape:
            yield Invalid(f"{name} is empty")
        lengths.add(given.shape[:1])
    if len(lengths) > 1:
        yield Invalid("the arguments differ in length")


def weight(call: FunctionCall) -> Any:
    """Return ``sample_weight`` on the device, or None where none was given."""
    import cupy

    given = call.to_device("sample_weight", np.float64)
    if given is not None and not bool((given >= 0).all() & cupy.any(given > 0)):
        raise Refusal("sample_weight is negative or zero throughout")
    kind = getattr(call.argument("sample_weight").dtype, "kind", "")
    if kind in ("i", "u") and float(given.sum()) > _MOST_EXACT:
        raise Refusal("sample_weight is too large to be exact in double precision")
    return given


def finite(value: Any) -> float:
    """Return a score as a Python float. Where it is not finite, scikit-learn has the last word."""
    result = float(value)
    if not np.isfinite(result):
        raise Refusal("the score is not finite")
    return result


class Coded(NamedTuple):
    """Labels as codes.

    Attributes
    ----------
    codes : list of cupy.ndarray of int
        For each argument the positions in `classes`.
    classes : ndarray
        All labels, sorted.
    """

    codes: list[Any]
    classes: np.ndarray


def _checked(name: str, labels: Any, xp: Any) -> Any:
    if labels.dtype.kind == "f" and not bool((xp.isfinite(labels) & (labels % 1 == 0)).all()):
        raise Refusal(Invalid(f"{name} is continuous"))
    if labels.dtype.kind == "O" and not all(isinstance(label, str) for label in labels):
        raise Refusal(f"{name} has labels of mixed or unknown type")
    if labels.dtype.kind not in "biufOU":
        raise Refusal(f"{name} has labels of dtype {labels.dtype}")
    return labels


def few_classes(n_classes: int, n_rows: int) -> None:
    """Refuse labels for which scikit-learn would warn that they are perhaps none."""
    if n_classes > _MANY_CLASSES and n_classes > round(n_rows / 2):
        raise Refusal("there are more than half as many classes as rows")


def coded(call: FunctionCall, *names: str) -> Coded:
    """Return labels as codes on the device; strings are coded on the host.

    Raises
    ------
    Refusal
        Where scikit-learn would take them for something else than labels, or warn.
    """
    if len(names) > 1:
        return _coded(call, names)
    (name,) = names
    # in a search once for each fold

    def make(value: Any) -> Coded:
        return _coded(FunctionCall({name: value}, names), names)

    return remembered("coded", [call.arguments[name]], make)


def _coded(call: FunctionCall, names: tuple[str, ...]) -> Coded:
    import cupy

    given = [call.argument(name) for name in names]
    numeric = [argument.numeric for argument in given]
    if len(set(numeric)) > 1:
        raise Refusal(Invalid("labels are numbers and strings"))
    xp: Any = cupy if numeric[0] else np
    parts = [
        _checked(name, to_device(a.array) if numeric[0] else np.asarray(a.array), xp)
        for name, a in zip(names, given, strict=True)
    ]
    for part in parts:
        few_classes(len(xp.unique(part)), len(part))
    together = parts[0] if len(parts) == 1 else xp.concatenate(parts)
    if together.dtype.kind == "f" and any(part.dtype.kind in "iu" for part in parts):
        raise Refusal("labels are of integer types without a common one, or of two kinds")
    classes, codes = xp.unique(together, return_inverse=True)
    codes = to_device(codes.reshape(-1))
    ends = np.cumsum([len(part) for part in parts])
    split = [codes[end - len(part) : end] for part, end in zip(parts, ends.tolist(), strict=True)]
    return Coded(split, cupy.asnumpy(classes) if numeric[0] else classes)
