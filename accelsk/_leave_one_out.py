"""Leaving out one row at a time, to choose the penalty of a ridge regression."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
from sklearn.metrics import check_scoring

from accelsk._sklearn import IdentityClassifier, IdentityRegressor
from accelsk.algorithms.moments import Moments
from accelsk.algorithms.ridge_cv import LeaveOneOut, OfFewRows
from accelsk.config import current
from accelsk.device import probe
from accelsk.device.transfer import is_device_array, to_host
from accelsk.engines import inputs
from accelsk.engines.base import Call
from accelsk.engines.moments import Block
from accelsk.exceptions import Refusal

__all__ = ["Chosen", "Rewound", "chosen", "held", "keeps", "of_few_rows", "of_many_rows"]


def keeps(call: Call) -> bool:
    """Whether what there is of each row is to be kept."""
    return bool(call.parameters["store_cv_results"])


class Chosen(SimpleNamespace):
    """What leaving out one row at a time has chosen.

    Attributes
    ----------
    coef : ndarray of shape (n_features, n_targets)
    alpha : float, or ndarray of shape (n_targets,)
    score : object
        A float, an ndarray of shape (n_targets,), or what the scorer gives.
    kept : ndarray of shape (n_samples, n_targets, n_alphas) or None
        The squares of the errors, or predictions where there is a scorer.
    """

    def attributes(self, call: Call) -> dict[str, Any]:
        """Return the fitted attributes but for the coefficients."""
        attributes = {"alpha_": self.alpha, "best_score_": self.score}
        if self.kept is not None:
            attributes["cv_results_"] = self.kept
        if "store_cv_values" in call.parameters:
            attributes["_store_cv_results"] = keeps(call)
        return attributes


class _Errors:
    """Scores by the squares of the errors."""

    def __init__(self, keep: bool) -> None:
        self._keep = keep
        self._total: Any = 0.0
        self._n_samples = 0
        self._kept: list[np.ndarray] = []

    def add(self, block: Block, errors: Any) -> None:
        squares = errors * errors
        self._total = self._total + squares.sum(axis=0)
        self._n_samples += len(errors)
        if self._keep:
            self._kept.append(to_host(squares).transpose(0, 2, 1))

    def kept(self) -> np.ndarray | None:
        return np.concatenate(self._kept) if self._keep else None

    def scores(self, by_target: bool) -> list[Any]:
        """Return the score of each penalty, for each target where they are told apart."""
        scores = -to_host(self._total) / self._n_samples
        return [*(scores if by_target else scores.mean(axis=1))]


class _Predictions:
    """Scores by a scorer of scikit-learn's or of the caller's own."""

    def __init__(self, call: Call, keep: bool) -> None:
        self._call, self._keep = call, keep
        self._predictions: list[np.ndarray] = []
        self._targets: list[np.ndarray] = []
        self._weights: list[np.ndarray] = []

    def add(self, block: Block, errors: Any) -> None:
        import cupy

        weight, Y = block.weight, block.Y.astype(np.float64, copy=False)
        if weight is not None:
            errors = errors / cupy.sqrt(weight.astype(np.float64, copy=False))[:, None, None]
            self._weights.append(to_host(weight))
        self._predictions.append(to_host(Y[:, None, :] - errors).transpose(0, 2, 1))
        self._targets.append(to_host(Y))

    def kept(self) -> np.ndarray | None:
        return np.concatenate(self._predictions) if self._keep else None

    def scores(self, by_target: bool) -> list[Any]:
        """Return the score of each penalty, for each target where they are told apart."""
        Y = np.concatenate(self._targets)
        scorer = check_scoring(self._call.estimator, scoring=self._call.parameters["scoring"])
        given = {"sample_weight": np.concatenate(self._weights)} if self._weights else {}
        identity: Any = IdentityRegressor()
        if "class_weight" in self._call.parameters:
            identity = IdentityClassifier(classes=np.arange(Y.shape[1]))
            Y = Y.argmax(axis=1)
            given = given or {"sample_weight": np.ones(len(Y))}
        found = []
        for predicted in np.moveaxis(np.concatenate(self._predictions), 2, 0):
            if by_target:
                columns = zip(predicted.T, Y.T, strict=True)
                found.append(np.asarray([scorer(identity, *column, **given) for column in columns]))
            elif len(self._call.y.shape) == 1 and Y.ndim == 2:
                found.append(scorer(identity, predicted[:, 0], Y[:, 0], **given))
            else:
                found.append(scorer(identity, predicted, Y, **given))
        return found


def _first_best(scores: list[Any]) -> tuple[Any, Any]:
    """Return the positions of the best scores and the scores: the first of several, never NaN
    unless it comes first.
    """
    position, best = np.zeros(np.shape(scores[0]), int), scores[0]
    for i, score in enumerate(scores):
        better = score > best
        position = np.where(better, i, position)
        best = np.where(better, score, best) if np.ndim(best) else (score if better else best)
    return position, best


def of_many_rows(call: Call, found: Moments) -> LeaveOneOut:
    """Return the errors of rows that are more than their columns, from moments on the host."""
    import cupy

    alphas = cupy.asarray(np.asarray(call.parameters["alphas"], dtype=np.float64))
    return LeaveOneOut(found, alphas, call.parameters["fit_intercept"], cupy)


def of_few_rows(call: Call, Y: Any, weight: Any) -> tuple[Moments, OfFewRows, list[Block]]:
    """Return the means, the errors and the rows where those are no more than their columns.

    Parameters
    ----------
    call : Call
    Y : cupy.ndarray of shape (n_samples, n_targets)
    weight : cupy.ndarray of shape (n_samples,) or None
    """
    import cupy

    X, Y, found, root = held(call, Y, weight)
    alphas = cupy.asarray(np.asarray(call.parameters["alphas"], dtype=np.float64))
    solution = OfFewRows(X, Y, root, alphas, call.parameters["fit_intercept"], cupy)
    raw = Y / root[:, None] + cupy.asarray(found.Y_mean)
    return found, solution, [Block(X, raw, weight)]


def held(call: Call, Y: Any, weight: Any) -> tuple[Any, Any, Moments, Any]:
    """Return X and Y of few rows on the device, centred and weighted, their means and the roots
    of the weights.
    """
    import cupy

    gpu = probe.gpu()
    room = [current().device_memory_limit, None if gpu is None else gpu.memory]
    n_samples, n_features = call.X.shape
    taken = 8 * n_samples * (3 * n_features + 4 * n_samples)
    if any(limit is not None and taken > limit for limit in room):
        raise Refusal("X has no more rows than columns and takes too much device memory")
    X = inputs.matrix(call, np.float64)
    factors = cupy.ones(n_samples) if weight is None else weight
    total = factors.sum()
    means = [cupy.zeros(n_features), cupy.zeros(Y.shape[1])]
    if call.parameters["fit_intercept"]:
        # what is the same in all rows is its own mean, exactly
        means = [a[0] + factors @ (a - a[0]) / total for a in (X, Y)]
    root = cupy.sqrt(factors)
    X, Y = (X - means[0]) * root[:, None], (Y - means[1]) * root[:, None]
    X_mean, Y_mean = map(to_host, means)
    return X, Y, Moments(n_samples, float(total), X_mean, None, Y_mean=Y_mean), root


def chosen(call: Call, solution: Any, rows: Iterable[Block], *, by_target: bool) -> Chosen:
    """Return the penalty with the best score, in a pass over the rows.

    Parameters
    ----------
    call : Call
    solution : LeaveOneOut or OfFewRows
    rows : iterable of Block
        Those that `solution` is of, on the device.
    by_target : bool
        Whether each target has a penalty of its own.
    """
    import cupy

    alphas = np.asarray(call.parameters["alphas"], dtype=np.float64)
    if not bool(solution.well_posed):
        raise Refusal("features are nearly collinear for a penalty as small as this")
    scored = call.parameters["scoring"] is not None
    table = _Predictions(call, keeps(call)) if scored else _Errors(keeps(call))
    flags = []
    for block in rows:
        errors, exact = solution.errors(*block)
        table.add(block, errors)
        flags.append(exact)
    if not bool(cupy.stack(flags).all()):
        raise Refusal("a row has the fit nearly to itself")
    best, score = _first_best(table.scores(by_target))
    coef = to_host(solution.coef)
    picked = np.broadcast_to(best, coef.shape[2:])
    return Chosen(
        coef=coef[:, picked, np.arange(len(picked))],
        alpha=alphas[best],
        score=score,
        kept=table.kept(),
    )


class Rewound:
    """Rows that are passed over twice: the second time on the device, where there is room.

    Parameters
    ----------
    call : Call
    rows : callable
        Gives the rows anew.
    """

    #: What X may take of the device's memory.
    _share = 0.25

    def __init__(self, call: Call, rows: Callable[[], Iterator[Block]]) -> None:
        self._rows = rows
        self._kept: list[Block] = []
        self._complete = False
        gpu = probe.gpu()
        room = [current().device_memory_limit, None if gpu is None else gpu.memory]
        taken = 8 * math.prod(call.X.shape)
        there = is_device_array(call.X.array)
        self._keeps = not there and all(r is None or taken <= self._share * r for r in room)

    def __call__(self) -> Iterator[Block]:
        if self._complete:
            yield from self._kept
            return
        for block in self._rows():
            if self._keeps:
                copies = (None if part is None else part.copy() for part in block)
                self._kept.append(Block(*copies))
            yield block
        self._complete = self._keeps
