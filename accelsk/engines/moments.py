"""Engines that pass over the rows of X once and never hold it.

Blocks of rows travel while those before them are summed; what stays on the device are moments in
float64. Predictions and transformations stream likewise: up, one product, down.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import nullcontext
from typing import Any, NamedTuple

import numpy as np

from accelsk._blas import one_thread
from accelsk.algorithms import fold_scores
from accelsk.algorithms.fused import errors
from accelsk.algorithms.moments import CHUNK, Accumulator, Moments, first_estimate, merged
from accelsk.config import current
from accelsk.device import probe
from accelsk.device.resident import Resident, remembered
from accelsk.device.stream import map_rows, row_blocks
from accelsk.device.transfer import is_device_array, to_device, to_host
from accelsk.engines.base import Call, Outcome
from accelsk.engines.cupy import CupyEngine
from accelsk.engines.on_device import determination
from accelsk.exceptions import Invalid, Refusal

__all__ = [
    "LARGEST_LOSS",
    "Block",
    "MomentsEngine",
    "as_float",
    "blocks",
    "check",
    "limits",
    "mapped",
    "moments",
    "on_device",
    "product",
    "r2",
]

#: Where sums of squares were larger by this before they were taken about the mean, the estimate
#: of the mean was bad enough to cost digits, and the rows are passed over again.
LARGEST_LOSS = 30.0

#: Of the memory limit, a block in its own dtype and in float64, with the next one under way.
_SHARE = 4


#: Beside that many rows, what is done on the host with a Gram matrix of that size is best done by
#: one thread: others would take cores from the transfer of the next fit.
_MANY_ROWS, _SMALL = 10_000, 256


class Block(NamedTuple):
    """A block of rows on the device; valid until the next one.

    Attributes
    ----------
    X : cupy.ndarray of shape (n_rows, n_features)
        In the dtype in which it came.
    Y : cupy.ndarray of shape (n_rows, n_targets) or None
    weight : cupy.ndarray of shape (n_rows,) or None
    """

    X: Any
    Y: Any
    weight: Any


def limits(n_columns: int) -> tuple[int | None, int]:
    """Return the rows of a block and the bytes of a chunk that the memory limit allows."""
    limit = current().device_memory_limit
    if limit is None:
        return None, CHUNK
    chunk = max(1, limit // _SHARE)
    return max(1, chunk // (8 * max(1, n_columns))), min(chunk, CHUNK)


class _Valid:
    """Notes on the device whether all weights are valid; looks only at the end."""

    def __init__(self) -> None:
        self._flag: Any = None

    def note(self, weight: Any) -> None:
        import cupy

        flag = (cupy.isfinite(weight) & (weight >= 0)).all()
        self._flag = flag if self._flag is None else self._flag & flag

    def check(self) -> None:
        if self._flag is not None and not bool(self._flag):
            raise Refusal("sample_weight is negative or not finite")


def blocks(call: Call, *, target: bool = True) -> Iterator[Block]:
    """Yield the rows of the call, with ``y`` where it is a `target`, and ``sample_weight``.

    Raises
    ------
    Refusal
        At the end, where the weights are not valid.
    """
    X = _given(call)
    Y = call.y.array if target else None
    scalar = call.sample_weight.kind == "scalar"
    weight = call.sample_weight.array if call.sample_weight.given and not scalar else None
    rows, _ = limits(X.shape[1])
    valid = _Valid()
    for X_block, Y_block, weight_block in row_blocks((X, Y, weight), rows):
        if scalar:
            import cupy

            weight_block = cupy.full(len(X_block), call.sample_weight.value, np.float64)
        if weight_block is not None:
            valid.note(weight_block)
        if Y_block is not None:
            Y_block = Y_block.reshape(len(Y_block), -1)
        yield Block(X_block, Y_block, weight_block)
    valid.check()


def _given(call: Call) -> Any:
    """Return ``X`` as it came."""
    if not call.X.given:
        raise Refusal(Invalid("X is None"))
    return call.X.array


def moments(
    call: Call,
    *,
    target: bool = True,
    rows: Callable[[], Iterator[Block]] | None = None,
    host: bool = True,
) -> Moments:
    """Return the moments of the rows of the call.

    Parameters
    ----------
    call : Call
    target : bool, default=True
        Whether ``y`` is a target.
    rows : callable, default=None
        Gives the rows anew each time, in the place of those that `blocks` gives.
    host : bool, default=True
        Whether the result is to be on the host.

    Raises
    ------
    Refusal
        Where sums are not finite, as with NaN or infinity in the data, or weights not valid.
    """
    _require_memory(call.X.shape[1])
    if rows is not None or call.sample_weight.kind == "scalar":
        return _summed(call, target, rows, host)
    names = ("X", "y") if target else ("X",)
    given = {name: call.arguments.get(name) for name in (*names, "sample_weight")}

    def of(*arrays: Any) -> Moments:
        arguments = {**call.arguments, **dict(zip(given, arrays, strict=True))}
        part = Call(call.estimator, call.original, call.method, arguments)
        return _summed(part, target, None, host)

    # those of a fold serve every candidate of a search, and the rows that leave the fold out
    return remembered(f"moments {target} {host}", [*given.values()], of, merged)


def _summed(
    call: Call, target: bool, rows: Callable[[], Iterator[Block]] | None, host: bool
) -> Moments:
    import cupy

    def over_rows(shift: Any = None) -> Moments:
        accumulator = Accumulator(cupy, shift, limits(call.X.shape[1])[1])
        for block in blocks(call, target=target) if rows is None else rows():
            accumulator.add(*block)
        return accumulator.result(host=host)

    result = over_rows()
    check(result)
    if result.loss > LARGEST_LOSS:
        result = over_rows((on_device(result.X_mean), on_device(result.Y_mean)))
    return result


def _require_memory(n_features: int) -> None:
    """Refuse where a Gram matrix of so many columns has no room."""
    gpu = probe.gpu()
    room = [current().device_memory_limit, None if gpu is None else gpu.memory]
    if any(limit is not None and _SHARE * 8 * n_features**2 > limit for limit in room):
        raise Refusal(f"the Gram matrix of {n_features} columns takes too much device memory")


def check(moments: Moments) -> None:
    """Refuse moments of data that are not finite, or of no weight."""
    if not moments.weight > 0:
        raise Refusal("sample_weight is zero throughout, negative or not finite")
    if not np.isfinite(to_host(moments.gram.diagonal())).all():
        raise Refusal(Invalid("X contains NaN or infinity, or its squares overflow"))
    if moments.YY is not None and not np.isfinite(to_host(moments.YY)).all():
        raise Refusal(Invalid("y contains NaN or infinity, or its squares overflow"))


def as_float(call: Call, X: Any) -> Any:
    """Return rows of ``X`` as float32 where that is what scikit-learn sees, else as float64."""
    return X.astype(np.float32 if call.X.dtype == np.float32 else np.float64, copy=False)


def _finite(X: Any, result: Any) -> Any:
    import cupy

    return cupy.isfinite(result).all()


def mapped(
    call: Call,
    function: Callable[[Any], Any],
    valid: Callable[[Any, Any], Any] = _finite,
) -> Any:
    """Return what `function` gives for the rows of ``X``, block by block, where they came from.

    Parameters
    ----------
    call : Call
    function : callable
        From rows as `as_float` gives them, which may be the caller's, to an array with as many.
    valid : callable, default=None
        From such rows and the result to whether they are valid, on the device. Others are
        refused; those whose result is not finite by default.
    """
    import cupy

    if not call.X.given:
        raise Refusal(Invalid("X is None"))
    flags = []

    def checked(X: Any) -> Any:
        X = as_float(call, X)
        result = function(X)
        flags.append(valid(X, result))
        return result

    X = _given(call)
    result = map_rows(checked, (X,), call.on_host, limits(X.shape[1])[0])
    if not bool(cupy.stack(flags).all()):
        raise Refusal(Invalid("X contains NaN or infinity, or the result overflows"))
    return result


def product(call: Call, right: Any, shift: Any = 0.0) -> Any:
    """Return ``X @ right + shift``, streamed, in the dtype that NumPy would give it."""
    return mapped(call, lambda X: X @ right + shift)


def r2(call: Call, predict: Callable[[Any], Any]) -> float:
    """Return the coefficient of determination of `predict`, streamed: only the score comes back.

    Several targets count alike, as in `sklearn.metrics.r2_score` by default.
    """
    import cupy

    n_rows = call.X.shape[0]
    if n_rows < 2:
        raise Refusal("the score of one row is not defined")
    sums: Any = None
    shift: Any = None
    total: Any = 0
    for X, Y, weight in blocks(call):
        predicted = predict(as_float(call, X)).reshape(len(X), -1)
        if predicted.shape != Y.shape:
            raise Refusal(Invalid("y has another number of columns"))
        if shift is None:
            shift = first_estimate(Y, cupy)
        factors = cupy.ones(len(X)) if weight is None else weight.astype(np.float64, copy=False)
        found = factors @ errors(Y, predicted, shift, cupy)
        sums = found if sums is None else sums + found
        total = len(X) + total if weight is None else factors.sum() + total
    targets, squares, left = cupy.asnumpy(sums).reshape(3, -1)
    total = float(total)
    squares = squares - targets**2 / total
    if not (total > 0 and np.isfinite(left).all() and np.isfinite(squares).all()):
        raise Refusal(Invalid("X or y contains NaN or infinity"))
    scores = np.where(left == 0, 1.0, 0.0)
    spread = squares > 0
    scores[spread] = 1.0 - left[spread] / squares[spread]
    return float(scores.mean())


#: Gram matrices of more columns stay on the device.
_MOST_SHARED = 512


def _hold(call: Call) -> None:
    """Have ``X`` on the device where there is ample room: it is passed over more than once."""
    X, gpu = call.X.array, probe.gpu()
    room = current().device_memory_limit or (None if gpu is None else gpu.memory)
    if room is not None and _SHARE * X.nbytes <= room:
        call.X.__dict__["array"] = to_device(X)


class MomentsEngine(CupyEngine):
    """One estimator from moments. `fit` gets X as it came, on the host or on the device.

    Attributes
    ----------
    linear : bool
        Whether it predicts ``X @ coef_.T + intercept_``.
    """

    name = "moments"
    streamed = True
    linear: bool = False

    def run(self, call: Call, model: Any) -> Outcome:
        X = call.X
        large = call.fits and X.numeric and len(X.shape) == 2 and X.shape[0] > _MANY_ROWS
        with one_thread() if large and X.shape[1] <= _SMALL else nullcontext():
            return super().run(call, model)

    def run_fit(self, call: Call) -> Outcome:
        again = call.method == "fit_transform"
        if again:
            _hold(call)
        # in a search the moments may be at hand: then the rows are not even cut
        cut = not (self.linear and isinstance(call.X.value, Resident))
        outcome = self.fit(call, call.X.array if cut else call.X.value)
        if again:
            outcome.result = self.transform_fitted(call, outcome.model, call.X.array)
        return outcome

    def predict(self, call: Call, model: Any) -> Any:
        return mapped(call, self.predictor(call, model))

    def score(self, call: Call, model: Any) -> float:
        """Return the coefficient of determination, of an engine that says how to predict."""
        y = call.y
        if y.numeric and y.kind != "sparse" and y.shape[:1] == call.X.shape[:1]:
            score = self._score_of_fold(call)
            return r2(call, self.predictor(call, model)) if score is None else score
        return determination(call, self.predict(call, model))

    def _score_of_fold(self, call: Call) -> float | None:
        """Return the score in a search, whose candidates share the moments of each fold."""
        own = vars(call.estimator)
        known = "coef_" in own and "intercept_" in own
        if not (self.linear and known and isinstance(call.X.value, Resident)):
            return None
        if call.X.shape[1] > _MOST_SHARED or len(call.y.shape) > 2:
            return None
        return fold_scores.determination(moments(call), own["coef_"], own["intercept_"])

    def predictor(self, call: Call, model: Any) -> Callable[[Any], Any]:
        """Return the function from rows on the device, as `as_float` gives them, to predictions."""
        raise NotImplementedError


def on_device(value: Any) -> Any:
    """Return an array on the device; a Python float imposes no dtype and stays one."""
    if value is None or type(value) is float or is_device_array(value):
        return value
    return to_device(np.asarray(value))
