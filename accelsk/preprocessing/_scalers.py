"""Scalers: statistics of each column on the device, and what scikit-learn makes of them."""

from __future__ import annotations

import functools
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np

from accelsk.algorithms import columns
from accelsk.device.resident import Resident
from accelsk.device.transfer import to_device, to_host
from accelsk.engines.base import Call, Outcome, Rule, refuse
from accelsk.engines.moments import LARGEST_LOSS, MomentsEngine, as_float, blocks, mapped
from accelsk.exceptions import Invalid, Refusal
from accelsk.preprocessing._base import FIT_ARGUMENTS, HALF, plain

__all__ = ["MaxAbsScalerOnMoments", "MinMaxScalerOnMoments", "StandardScalerOnMoments"]

_SCALES = ("transform", "fit_transform", "inverse_transform")


def _in_place(call: Call) -> bool:
    """Whether the result is to stand where ``X`` stood."""
    given = call.arguments.get("copy")
    return call.method in _SCALES and not (call.parameters["copy"] if given is None else given)


def _not_writeable(call: Call) -> bool:
    X = call.X
    if not _in_place(call):
        return False
    if isinstance(X.value, Resident):  # whose rows are everybody's
        return True
    return X.kind == "frame" or (X.kind == "numpy" and not X.value.flags.writeable)


def _other_width(call: Call) -> bool:
    return (
        call.method == "inverse_transform"
        and call.X.shape[1:] != (call.estimator.n_features_in_,)
    )  # fmt: skip


class _Scaler(MomentsEngine):
    """Fits by `statistics`; `forward` and `backward` scale rows that they may overwrite."""

    methods = ("fit", "partial_fit", "fit_transform", "transform", "inverse_transform")
    rules: tuple[Rule, ...] = (
        FIT_ARGUMENTS,
        HALF,
        refuse("copy=False and X is a frame or read-only", _not_writeable, fit_only=False),
        refuse(Invalid("X has another number of columns"), _other_width, fit_only=False),
    )

    def fit(self, call: Call, X: Any) -> Outcome:
        return Outcome(model=self._model(self.statistics(call, {})))

    def partial_fit(self, call: Call, model: Any) -> Outcome:
        earlier = {} if model is None else {k: to_host(v) for k, v in vars(model).items()}
        return Outcome(model=self._model(self.statistics(call, earlier)))

    def _model(self, statistics: dict[str, Any]) -> SimpleNamespace:
        return SimpleNamespace(
            **{
                name: to_device(value) if isinstance(value, np.ndarray) else value
                for name, value in statistics.items()
            }
        )

    def statistics(self, call: Call, earlier: dict[str, Any]) -> dict[str, Any]:
        """Return the fitted attributes, on the host, going on from earlier ones."""
        raise NotImplementedError

    def forward(self, call: Call, model: Any, X: Any) -> Any:
        raise NotImplementedError

    def backward(self, call: Call, model: Any, X: Any) -> Any:
        raise NotImplementedError

    def transform(self, call: Call, model: Any) -> Any:
        return self._scaled(call, model, self.forward)

    def inverse_transform(self, call: Call, model: Any) -> Any:
        return self._scaled(call, model, self.backward)

    def _scaled(self, call: Call, model: Any, scale: Callable[[Call, Any, Any], Any]) -> Any:
        # rows on the device may be the caller's own
        result = mapped(call, lambda X: scale(call, model, X.copy()), valid=_not_infinite)
        return self._delivered(call, result)

    def _delivered(self, call: Call, result: Any) -> Any:
        """Return the result, in place of ``X`` where that is asked for.

        Nothing is overwritten before all that can fail is done: scikit-learn may still need ``X``.
        """
        given = call.X
        if not (_in_place(call) and given.dtype == result.dtype):
            return result
        if given.kind == "cupy":
            given.value[...] = result
            return given.value
        if given.kind == "numpy":
            np.copyto(given.value, to_host(result))
            return given.value
        return result


def _not_infinite(X: Any, result: Any) -> Any:
    import cupy

    return ~cupy.isinf(X).any()


def _moments(call: Call) -> columns.Moments:
    """Return the moments of the columns on the host."""
    import cupy

    dtype = np.float32 if call.X.dtype == np.float32 else np.float64

    def over_rows(shift: Any = None) -> columns.Moments:
        accumulator = columns.Accumulator(cupy, shift)
        for X, _, weight in blocks(call, target=False):
            # scikit-learn gives the weights the precision of X
            accumulator.add(X, None if weight is None else weight.astype(dtype, copy=False))
        return columns.Moments(*map(to_host, accumulator.result()))

    found = over_rows()
    if np.any(found.count == 0) or np.any(found.rows == 0):
        raise Refusal("a column has no value")
    if not (np.isfinite(found.mean).all() and np.isfinite(found.squares).all()):
        raise Refusal(Invalid("X contains infinity, or sums overflow"))
    return over_rows(to_device(found.mean)) if found.loss.max() > LARGEST_LOSS else found


class StandardScalerOnMoments(_Scaler):
    """Moments in float64 whatever comes in."""

    state = ("mean_", "var_", "scale_", "n_samples_seen_")

    def statistics(self, call: Call, earlier: dict[str, Any]) -> dict[str, Any]:
        with_mean, with_std = call.parameters["with_mean"], call.parameters["with_std"]
        wanted = {"mean_": with_mean or with_std, "var_": with_std}
        if any(earlier and earlier[name] is None for name, want in wanted.items() if want):
            raise Refusal(Invalid("the fit before had no mean or deviation"))
        count_dtype = _count_dtype(
            call.original,
            (with_mean, with_std),
            "f4" if call.X.dtype == np.float32 else "f8",
            call.sample_weight.given,
            _kind(earlier.get("n_samples_seen_")),
        )
        new = _moments(call)
        if not wanted["mean_"]:
            count = new.rows + earlier.get("n_samples_seen_", 0)  # whatever they weigh
            count = _shortened(count.astype(count_dtype))
            return {"mean_": None, "var_": None, "scale_": None, "n_samples_seen_": count}
        moments = columns.merged(_earlier(earlier, len(new.mean)), new) if earlier else new
        count = _shortened(moments.count.astype(count_dtype))
        result = {"mean_": moments.mean, "var_": None, "scale_": None, "n_samples_seen_": count}
        if with_std:
            result["var_"] = moments.squares / moments.count
            result["scale_"] = _scale(result["var_"], moments.mean, moments.count)
        return result

    def forward(self, call: Call, model: Any, X: Any) -> Any:
        if call.parameters["with_mean"]:
            X -= to_device(model.mean_)
        if call.parameters["with_std"]:
            X /= to_device(model.scale_)
        return X

    def backward(self, call: Call, model: Any, X: Any) -> Any:
        if call.parameters["with_std"]:
            X *= to_device(model.scale_)
        if call.parameters["with_mean"]:
            X += to_device(model.mean_)
        return X


def _kind(count: Any) -> tuple[str, bool] | None:
    """Return the dtype of ``n_samples_seen_``, and whether it is an array."""
    return None if count is None else (np.asarray(count).dtype.str, np.ndim(count) > 0)


@functools.cache
def _count_dtype(
    original: Any,
    wanted: tuple[bool, bool],
    dtype: str,
    weighted: bool,
    earlier: tuple[str, bool] | None,
) -> np.dtype:
    """Return the dtype of ``n_samples_seen_``, which differs between versions of scikit-learn."""
    scaler = original(with_mean=wanted[0], with_std=wanted[1])
    rows = np.zeros((1, 2), dtype)
    if earlier is not None:
        scaler.fit(rows)
        scaler.n_samples_seen_ = np.array([1, 2] if earlier[1] else 1, earlier[0])[()]
    scaler.partial_fit(rows, sample_weight=np.ones(1) if weighted else None)
    return np.asarray(scaler.n_samples_seen_).dtype


def _earlier(earlier: dict[str, Any], n_features: int) -> columns.Moments:
    count = np.zeros(n_features) + earlier["n_samples_seen_"]
    mean, variance = earlier["mean_"], earlier["var_"]
    squares = np.zeros(n_features) if variance is None else variance * count
    return columns.Moments(count, mean, squares, count, np.zeros(n_features))


def _shortened(count: np.ndarray) -> Any:
    """Return one number where all columns have as many values."""
    return count[0] if (count == count[0]).all() else count


def _scale(variance: np.ndarray, mean: np.ndarray, count: np.ndarray) -> np.ndarray:
    """Return the deviation, one where the variance is no more than what rounding makes.

    The bound is that of the two-pass algorithm (Chan, Golub, LeVeque, "Algorithms for computing
    the sample variance", The American Statistician 37, 1983).
    """
    epsilon = np.finfo(np.float64).eps
    rounding = count * epsilon * variance + (count * mean * epsilon) ** 2
    return np.where(variance <= rounding, 1.0, np.sqrt(variance))


class _ByExtremes(_Scaler):
    """The least and the greatest values stand for all rows: scikit-learn fits those."""

    def statistics(self, call: Call, earlier: dict[str, Any]) -> dict[str, Any]:
        import cupy

        found = columns.Extremes(cupy)
        for block in blocks(call, target=False):
            found.add(as_float(call, block.X))
        extremes = np.stack([to_host(row) for row in found.result()])
        if np.isinf(extremes).any():
            raise Refusal(Invalid("X contains infinity"))
        if np.isnan(extremes).any():
            raise Refusal("a column has no value")
        standin = plain(call)
        standin.__dict__.update(earlier)
        standin.partial_fit(extremes)
        standin.n_samples_seen_ += call.X.shape[0] - len(extremes)
        return {name: getattr(standin, name) for name in self.state}


class MinMaxScalerOnMoments(_ByExtremes):
    state = ("min_", "scale_", "data_min_", "data_max_", "data_range_", "n_samples_seen_")
    rules = (
        *_ByExtremes.rules,
        refuse(
            Invalid("feature_range is empty"),
            lambda call: call.parameters["feature_range"][0] >= call.parameters["feature_range"][1],
        ),
    )

    def forward(self, call: Call, model: Any, X: Any) -> Any:
        X *= to_device(model.scale_)
        X += to_device(model.min_)
        return _clipped(X, *call.parameters["feature_range"]) if call.parameters["clip"] else X

    def backward(self, call: Call, model: Any, X: Any) -> Any:
        X -= to_device(model.min_)
        X /= to_device(model.scale_)
        return X


class MaxAbsScalerOnMoments(_ByExtremes):
    state = ("max_abs_", "scale_", "n_samples_seen_")

    def forward(self, call: Call, model: Any, X: Any) -> Any:
        X /= to_device(model.scale_)
        return _clipped(X, -1.0, 1.0) if call.parameters.get("clip") else X

    def backward(self, call: Call, model: Any, X: Any) -> Any:
        X *= to_device(model.scale_)
        return X


def _clipped(X: Any, low: float, high: float) -> Any:
    """Clip in place; NaN stays."""
    import cupy

    cupy.maximum(X, X.dtype.type(low), out=X)
    return cupy.minimum(X, X.dtype.type(high), out=X)
