"""The folds of a cross-validated linear model, from one pass over the rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np
from sklearn.model_selection import KFold, check_cv

from accelsk._linear_moments import error_rows
from accelsk.algorithms.folds import MOST_GROUPS, FoldMoments, Folds, consecutive, folds_of
from accelsk.algorithms.moments import DigitsLost, Moments
from accelsk.algorithms.path_cv import held_out_errors
from accelsk.algorithms.residuals import Residuals, nearby
from accelsk.config import current
from accelsk.device import probe
from accelsk.device.transfer import is_device_array
from accelsk.engines.base import Call
from accelsk.engines.moments import LARGEST_LOSS, Block, blocks, check, limits
from accelsk.exceptions import Invalid, Refusal

__all__ = ["Folded"]


class Folded:
    """Moments of all rows and of each fold, on the host; about zero where there is no intercept.

    Attributes
    ----------
    found : Moments
        Of all rows.
    train : list of Moments
        Of the training rows of each fold.
    """

    def __init__(self, call: Call) -> None:
        self._call, self._folds = call, _folds(call)
        self.found, self.train, self._test = self._moments(partial(blocks, call))

    def errors(self, coefs: Sequence[np.ndarray]) -> list[np.ndarray]:
        """Return the mean squared errors on the test rows of each fold.

        Parameters
        ----------
        coefs : sequence of ndarray of shape (n_features, n_models)
            Fitted to the training rows of the first fold, of the second and so on, and again from
            the first on where there are more.
        """
        try:
            return _errors(self.train, self._test, coefs)
        except DigitsLost:
            return self._closer(coefs)

    def _closer(self, coefs: Sequence[np.ndarray]) -> list[np.ndarray]:
        """Return the same from the errors of a fit nearby, in another pass over the rows."""
        base = nearby(self.found)
        rows = partial(error_rows, self._call, self.found, base)
        errors, train, test = self._moments(rows)
        try:
            Residuals.about(self.found, base[:, 0], errors)
            return _errors(train, test, [each - base for each in coefs])
        except DigitsLost as error:
            raise Refusal(str(error)) from error

    def _moments(
        self, rows: Callable[[], Iterator[Block]]
    ) -> tuple[Moments, list[Moments], list[Moments]]:
        import cupy

        chunk = limits(self._call.X.shape[1])[1]

        def over_rows(shifts: Any = None) -> FoldMoments:
            sums = FoldMoments(self._folds, cupy, chunk, shifts)
            for block in rows():
                sums.add(*block)
            return sums

        sums = over_rows()
        parts = sums.parts()
        if not float(cupy.stack([part.loss for part in parts]).max()) <= LARGEST_LOSS:
            parts = over_rows([(part.X_mean, part.Y_mean) for part in parts]).parts()
        total, train, test = sums.result(parts)
        for found in (total, *train, *test):
            check(found)
        if not self._call.parameters["fit_intercept"]:
            total, train = total.about_zero(), [part.about_zero() for part in train]
        return total, train, test


def _errors(
    train: Sequence[Moments], test: Sequence[Moments], coefs: Sequence[np.ndarray]
) -> list[np.ndarray]:
    n_folds = len(train)
    return [
        held_out_errors(train[i % n_folds], test[i % n_folds], each) for i, each in enumerate(coefs)
    ]


def _folds(call: Call) -> Folds:
    """Return the folds that the splitter of the call makes of its rows."""
    folds = _split(call)
    gpu = probe.gpu()
    room = [current().device_memory_limit, None if gpu is None else gpu.memory]
    taken = 8 * call.X.shape[1] ** 2 * (folds.train.shape[1] + 2 * len(folds.train))
    if any(limit is not None and taken > limit for limit in room):
        raise Refusal("the Gram matrices of the folds take too much device memory")
    return folds


def _split(call: Call) -> Folds:
    X, y, n_samples = call.X.value, call.y.value, call.X.shape[0]
    if is_device_array(X):
        X, y = np.broadcast_to(np.float64(0), call.X.shape), np.broadcast_to(0.0, n_samples)
    try:
        cv = check_cv(call.parameters["cv"])
        if type(cv) is KFold and not cv.shuffle and cv.n_splits <= min(n_samples, MOST_GROUPS):
            return consecutive(n_samples, cv.n_splits)
        splits = list(cv.split(X, y))
    except Exception as error:
        raise Refusal(Invalid(f"the splitter fails ({type(error).__name__})")) from error
    folds = folds_of(splits, n_samples)
    if folds is None:
        raise Refusal("the folds overlap in too many ways, or have a row twice")
    return folds
