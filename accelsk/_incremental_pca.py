"""The engine for incremental PCA."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from types import SimpleNamespace
from typing import Any

import numpy as np
from sklearn.utils import gen_batches

from accelsk._projections import (
    COORDINATES,
    UNCONVERTED,
    dtype_of,
    gram_again,
    projected,
    reconstructed,
    whole,
)
from accelsk._sklearn import incremental_mean_and_var
from accelsk.algorithms import incremental, spectra
from accelsk.device.stream import row_blocks
from accelsk.device.transfer import is_device_array, to_device, to_host
from accelsk.engines.base import Call, Outcome, refuse
from accelsk.engines.moments import MomentsEngine, limits, moments
from accelsk.exceptions import Invalid, Refusal

__all__ = ["IncrementalPCAOnMoments"]

#: Up to this many numbers in a step the host decomposes them sooner.
_HOST_STEP = 1 << 18


class IncrementalPCAOnMoments(MomentsEngine):
    """scikit-learn's steps from batch to batch, each in float64.

    The Gram matrices of the batches come from the device; what depends on the batch before is small
    and done where it is quicker.
    """

    methods = ("fit", "fit_transform", "partial_fit", "transform", "inverse_transform")
    min_rows = 2
    state = (
        "components_",
        "singular_values_",
        "mean_",
        "var_",
        "explained_variance_",
        "explained_variance_ratio_",
        "noise_variance_",
        "n_samples_seen_",
        "n_components_",
    )
    rules = (
        refuse(
            Invalid("more components than X has"),
            lambda call: (
                (call.parameters["n_components"] or 0)
                > (call.X.shape[-1] if call.continues else min(call.X.shape, default=0))
            ),
        ),
        refuse(
            Invalid("fit takes X alone"),
            lambda call: set(call.arguments) - {"X", "y", "check_input"},
        ),
        # scikit-learn's own fit does that, on an estimator that is fitted halfway
        refuse("check_input=False", lambda call: call.arguments.get("check_input") is False),
        COORDINATES,
        UNCONVERTED,
    )

    def fit(self, call: Call, X: Any) -> Outcome:
        batch_size = call.parameters["batch_size"] or 5 * call.X.shape[1]
        least = call.parameters["n_components"] or 0
        sizes = [
            batch.stop - batch.start
            for batch in gen_batches(len(X), batch_size, min_batch_size=least)
        ]
        model = self._continued(call, None, sizes)
        model.batch_size_ = batch_size
        return self._outcome(call, model, first=len(sizes) == 1)

    def partial_fit(self, call: Call, model: Any) -> Outcome:
        before = None if model is None else _on_host(model)
        after = self._continued(call, before, [call.X.shape[0]])
        if hasattr(call.estimator, "batch_size_"):
            after.batch_size_ = call.estimator.batch_size_
        return self._outcome(call, after, first=model is None)

    def _continued(self, call: Call, before: Any, sizes: list[int]) -> SimpleNamespace:
        """Return what `before` and the rows of X come to, in batches of the given sizes."""
        n = _n_components(call, before, sizes[0])
        if before is None and n == call.X.shape[1]:
            return self._checked(_at_once(call))
        if sizes[0] >= call.X.shape[1]:
            try:
                return self._checked(_by_gram(call, before, sizes, n))
            except incremental.UnresolvedError:
                pass
        return self._checked(_by_rows(self, call, before, sizes, n))

    @staticmethod
    def _checked(model: SimpleNamespace) -> SimpleNamespace:
        if not bool(np.isfinite(to_host(model.explained_variance_ratio_)).all()):
            raise Refusal("X has no variance, or too much")
        return model

    @staticmethod
    def _outcome(call: Call, model: SimpleNamespace, *, first: bool) -> Outcome:
        """Return `model` in scikit-learn's dtypes; after one batch the components keep X's."""
        model.n_samples_seen_ = _count_type()(model.n_samples_seen_)
        if first:
            model.components_ = model.components_.astype(dtype_of(call))
            model.singular_values_ = model.singular_values_.astype(dtype_of(call))
        at_hand = {n: value for n, value in vars(model).items() if not is_device_array(value)}
        return Outcome(model=_on_device(model), attributes=at_hand)

    def transform(self, call: Call, model: Any) -> Any:
        """Return the coordinates of X in the components."""
        return projected(call, model, whiten=call.parameters["whiten"])

    def inverse_transform(self, call: Call, model: Any) -> Any:
        """Return what has the coordinates X in the components."""
        return reconstructed(call, model, whiten=call.parameters["whiten"])


def _on_host(model: SimpleNamespace) -> SimpleNamespace:
    return SimpleNamespace(**{name: to_host(value) for name, value in vars(model).items()})


def _on_device(model: SimpleNamespace) -> SimpleNamespace:
    moved = {n: to_device(v) if isinstance(v, np.ndarray) else v for n, v in vars(model).items()}
    return SimpleNamespace(**moved)


def _n_components(call: Call, before: Any, n_first: int) -> int:
    n = call.parameters["n_components"]
    if before is None:
        n = min(n_first, call.X.shape[1]) if n is None else n
        if n > n_first:
            raise Refusal("more components than rows in the first batch")
    else:
        n = before.n_components_ if n is None else n
        if n != len(before.components_):
            raise Refusal(Invalid("n_components has changed"))
    return n


def _at_once(call: Call) -> SimpleNamespace:
    """Return what the steps come to where each keeps all components."""
    import cupy

    small = call.X.shape[1] <= spectra.HOST_SIZE
    of_rows = moments(call, target=False, host=small)
    return incremental.from_all_rows(
        of_rows, lambda right: gram_again(call, of_rows.X_mean, right), np if small else cupy
    )


def _by_gram(call: Call, before: Any, sizes: list[int], n_components: int) -> SimpleNamespace:
    """Take the steps from the Gram matrices of the batches."""
    import cupy

    xp = np if call.X.shape[1] <= spectra.HOST_SIZE else cupy
    model = before if xp is np or before is None else _on_device(before)
    for n_rows, mean, gram in _batch_moments(call, sizes, xp):
        model = incremental.from_batch_moments(model, n_rows, mean, gram, n_components, xp)
    return model


def _batch_moments(call: Call, sizes: list[int], xp: Any) -> Iterator[tuple[int, Any, Any]]:
    """Yield the size, the mean and the Gram matrix of each batch."""
    import cupy

    X, start, d = call.X.array, 0, call.X.shape[1]
    _, chunk = limits(d)
    for size, count in _runs(sizes):
        at_a_time = max(1, chunk // (8 * d * max(size, d)))
        rows = X[start : start + size * count]
        for (block,) in row_blocks((rows,), size * at_a_time):
            batches = block.astype(np.float64).reshape(-1, size, d)
            means, grams = incremental.batch_moments(batches, cupy)
            if not bool(cupy.isfinite(grams).all()):
                raise Refusal(Invalid("X contains NaN or infinity, or its squares overflow"))
            if xp is np:
                means, grams = to_host(means), to_host(grams)
            for mean, gram in zip(means, grams, strict=True):
                yield size, mean, gram
        start += size * count


def _runs(sizes: list[int]) -> Iterator[tuple[int, int]]:
    """Yield each size with how many batches of it follow one another."""
    same = sum(1 for size in sizes if size == sizes[0])
    yield sizes[0], same
    yield from ((size, 1) for size in sizes[same:])


def _by_rows(
    engine: Any, call: Call, before: Any, sizes: list[int], n_components: int
) -> SimpleNamespace:
    """Take the steps from the rows of the batches."""
    import cupy

    d = call.X.shape[1]
    rows = whole(engine, call)
    xp = cupy
    if (max(sizes) + n_components + 1) * d <= _HOST_STEP:
        rows, xp = to_host(rows), np
    elif before is not None:
        before = _on_device(before)
    model, start = before, 0
    for size in sizes:
        model = incremental.from_rows(model, rows[start : start + size], n_components, xp)
        start += size
    return model


@cache
def _count_type() -> type:
    """Return the type of ``n_samples_seen_``, which depends on scikit-learn's release."""
    counts = incremental_mean_and_var(np.zeros((1, 1)), 0.0, 0.0, np.zeros(1, np.int64))[2]
    return type(counts[0])
