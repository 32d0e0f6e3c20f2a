"""What the engines for PCA and its kin have in common: products, and passes over the rows."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from types import SimpleNamespace
from typing import Any

import numpy as np
from packaging.version import Version
from sklearn.utils import check_random_state

from accelsk import _sklearn
from accelsk.algorithms.moments import Accumulator
from accelsk.config import current
from accelsk.device.transfer import is_device_array, to_device
from accelsk.engines.base import Call, Outcome, refuse
from accelsk.engines.moments import blocks, limits, mapped
from accelsk.exceptions import Invalid, Refusal

__all__ = [
    "COORDINATES",
    "UNCONVERTED",
    "adopted",
    "dtype_of",
    "gram_again",
    "gram_of",
    "kept_on_device",
    "projected",
    "random_start",
    "reconstructed",
    "whole",
    "with_arguments",
]

#: What ``inverse_transform`` takes.
COORDINATES = refuse(
    Invalid("X has another number of columns than there are components"),
    lambda call: (
        call.method == "inverse_transform"
        and call.X.shape[-1:] != call.estimator.components_.shape[:1]
    ),
    fit_only=False,
)


def _multiplied_as_it_is(call: Call) -> bool:
    if call.method != "inverse_transform" or Version("1.8") <= _sklearn.VERSION:
        return False
    return call.X.kind in ("frame", "sequence") or call.X.dtype == np.longdouble


#: Before 1.8, what it takes is multiplied as it is: a frame gives a frame.
UNCONVERTED = refuse(
    "inverse_transform of a frame, list or longdouble before scikit-learn 1.8",
    _multiplied_as_it_is,
    fit_only=False,
)

_MOST_ELEMENTS = 2**31 - 1

#: Of free device memory, what X may take to stay there between two passes.
_SHARE = 0.25


def dtype_of(call: Call) -> Any:
    """Return the dtype in which scikit-learn takes X: float32 or float64."""
    return np.dtype(np.float32 if call.X.dtype == np.float32 else np.float64)


def with_arguments(call: Call, **changes: Any) -> Call:
    """Return `call` with other arguments."""
    return Call(call.estimator, call.original, call.method, {**call.arguments, **changes})


def kept_on_device(call: Call) -> Call:
    """Return `call` with X on the device, where there is room for it until another pass."""
    import cupy

    X, limit = call.X, current().device_memory_limit
    size = X.shape[0] * X.shape[1] * np.dtype(X.dtype).itemsize
    if limit is not None and size > limit / 2:
        return call
    cuda = getattr(cupy, "cuda", None)
    if cuda is not None and size > _SHARE * cuda.runtime.memGetInfo()[0]:
        return call
    return with_arguments(call, X=to_device(X.source, np.float64 if X.narrow else None))


def adopted(attributes: dict[str, Any], state: Iterable[str]) -> Outcome:
    """Return the outcome of a fit; the model has on the device what `state` names.

    Attributes that are on the host already are set at once.
    """
    model = SimpleNamespace(**attributes)
    for name in state:
        if isinstance(attributes[name], np.ndarray):
            setattr(model, name, to_device(attributes[name]))
    at_hand = {name: a for name, a in attributes.items() if not is_device_array(a)}
    return Outcome(model=model, attributes=at_hand)


def whole(engine: Any, call: Call) -> Any:
    """Return all rows of X in float64 on the device, where `Engine.rules` do not see to it."""
    size, limit = call.X.shape[0] * call.X.shape[1], current().device_memory_limit
    if size > _MOST_ELEMENTS:
        raise Refusal("X has more than 2**31 - 1 elements")
    if limit is not None and 8 * size > limit:
        raise Refusal("X takes more than device_memory_limit allows")
    return engine.matrix(call).astype(np.float64)


def random_start(call: Call, n_components: int) -> Any:
    """Return the directions that scikit-learn's randomized SVD would draw, on the device."""
    random_state = check_random_state(call.parameters["random_state"])
    n_directions = n_components + call.parameters["n_oversamples"]
    return to_device(random_state.normal(size=(min(call.X.shape), n_directions)))


def gram_again(call: Call, centre: Any, right: Any) -> Any:
    """Return the Gram matrix of (X - centre) @ right, from one more pass over the rows."""
    offset, right = to_device(centre), to_device(right)
    passed = blocks(call, target=False)
    return gram_of(((block.X - offset) @ right for block in passed), right.shape[1])


def gram_of(parts: Iterable[Any], n_columns: int) -> Any:
    """Return the Gram matrix of rows that come block by block."""
    import cupy

    total = Accumulator(cupy, (cupy.zeros(n_columns), None), limits(n_columns)[1])
    for rows in parts:
        total.add(rows)
    return total.result().about_zero().gram


def _float64(value: Any) -> Any:
    return to_device(value, np.float64)


def projected(call: Call, model: Any, *, whiten: bool = False) -> Any:
    """Return the coordinates of the rows of X in the components, streamed.

    They are computed in float64, whatever comes in.
    """
    directions = _float64(model.components_).T
    if whiten:
        directions = directions / _scale(model)
    dtype = np.result_type(dtype_of(call), model.components_.dtype)
    return mapped(call, _product(directions, -_float64(model.mean_), dtype))


def _product(right: Any, before: Any, dtype: Any) -> Callable[[Any], Any]:
    return lambda X: ((X + before) @ right).astype(dtype, copy=False)


def _scale(model: Any) -> Any:
    """Return the standard deviations of the coordinates, those that are zero made harmless."""
    import cupy

    least = np.finfo(model.explained_variance_.dtype).eps
    return cupy.maximum(cupy.sqrt(_float64(model.explained_variance_)), least)


def reconstructed(call: Call, model: Any, *, whiten: bool = False) -> Any:
    """Return the rows that have the coordinates X in the components, streamed."""
    import cupy

    components, mean = _float64(model.components_), _float64(model.mean_)
    dtype = np.result_type(dtype_of(call), model.components_.dtype, model.mean_.dtype)
    if whiten:
        components = cupy.sqrt(_float64(model.explained_variance_))[:, None] * components
        dtype = np.result_type(dtype, model.explained_variance_.dtype)
    return mapped(
        call, lambda X: (X.astype(np.float64) @ components + mean).astype(dtype, copy=False)
    )
