"""The types of fitted attributes, asked of scikit-learn itself.

Whether a fit keeps float32, and whether a score is a float or a NumPy scalar, depends on the class,
its options and the release. In the place of a table for each of them, scikit-learn's own class
is fitted to a few rows of the caller's kind of data, once for each kind, and what comes of it
tells how each attribute has to look.
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np

from accelsk.engines.base import Call
from accelsk.exceptions import Refusal

__all__ = ["as_in_sklearn"]

_ROWS, _COLUMNS = 24, 3

_known: dict[tuple[Any, ...], dict[str, Any]] = {}


def as_in_sklearn(
    call: Call,
    attributes: dict[str, Any],
    *options: str,
    n_classes: int = 0,
    as_given: tuple[str, ...] = (),
    **parameters: Any,
) -> dict[str, Any]:
    """Return fitted attributes with scikit-learn's types, dtypes and numbers of dimensions.

    Parameters
    ----------
    call : Call
        Of a method that fits. Its ``X`` and ``y`` are dense and numeric, or ``y`` has labels.
    attributes : dict
        In any precision. A dimension of length one may be missing, or be too many.
    *options : str
        The hyperparameters on which types depend; the others are left at their defaults.
    n_classes : int, default=0
        Of a classifier.
    as_given : tuple of str, default=()
        Attributes that have the right type already.
    **parameters : object
        Hyperparameters to set for the fit that is looked at.
    """
    parameters = {name: call.parameters[name] for name in options} | parameters
    examples = _examples(call, parameters, min(n_classes, 3))
    missing = attributes.keys() - examples.keys()
    if missing:
        raise Refusal(f"scikit-learn sets no {', '.join(sorted(missing))}")
    return {
        name: value if name in as_given else _cast(value, examples[name])
        for name, value in attributes.items()
    }


def _examples(call: Call, parameters: dict[str, Any], n_classes: int) -> dict[str, Any]:
    """Return the attributes of a fit to a few rows."""
    heading = call.X.heading
    of_X = type(heading) if hasattr(heading, "columns") else np.ndarray
    targets = (min(2, call.y.shape[1]),) if len(call.y.shape) == 2 else ()
    y_dtype = None if n_classes else call.y.dtype
    weighted = call.sample_weight.given
    key = (
        call.original,
        of_X,
        call.X.dtype,
        targets,
        y_dtype,
        weighted,
        n_classes,
        repr(parameters),
    )
    if key not in _known:
        rng = np.random.default_rng(0)
        X = (rng.normal(size=(_ROWS, _COLUMNS)) * 8).astype(call.X.dtype)
        y = (X.sum(axis=1) + rng.normal(size=(*targets, _ROWS)) * 4).T.astype(y_dtype)
        if n_classes:
            y = np.arange(_ROWS) % n_classes
        weight = {"sample_weight": np.ones(_ROWS)} if weighted else {}
        estimator = call.original(**parameters)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            estimator.fit(X if of_X is np.ndarray else of_X(X), y, **weight)
        _known[key] = vars(estimator)
    return _known[key]


def _shaped(array: np.ndarray, ndim: int) -> np.ndarray:
    """Return `array` with as many dimensions; those that come and go have a length of one."""
    if array.ndim > ndim:
        return array.ravel() if ndim else array.reshape(())
    return array.reshape((1,) * (ndim - array.ndim) + array.shape)


def _cast(value: Any, example: Any) -> Any:
    """Return `value` as something of the type and dtype of `example`."""
    if isinstance(example, list):
        return [_cast(item, example[0]) for item in value] if example else list(value)
    if isinstance(example, (np.ndarray, np.generic)):
        array = _shaped(np.asarray(value), example.ndim)
        if example.dtype.kind in "iu" and not (array == np.rint(array)).all():
            # 1.8 does so to the coefficients of a ridge for integers
            raise Refusal("scikit-learn makes integers of what is not whole")
        array = array.astype(example.dtype)
        return array if isinstance(example, np.ndarray) else example.dtype.type(array)
    if isinstance(example, (bool, int, float)):
        return type(example)(_shaped(np.asarray(value), 0))
    return value
