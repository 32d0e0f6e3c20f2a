"""Engines of ridge regression and its classifier with the penalty chosen row by row."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np
import sklearn

from accelsk._linear_moments import LONG, LinearOnMoments, Warned, few_features, real_numbers
from accelsk.algorithms.moments import Moments
from accelsk.algorithms.ridge_cv import LeaveOneOut
from accelsk.config import current
from accelsk.device import probe
from accelsk.device.transfer import is_device_array, to_host
from accelsk.engines.base import Call, Outcome, Rule, only, refuse
from accelsk.engines.moments import Block, blocks, moments
from accelsk.exceptions import Invalid, Refusal

__all__ = [
    "LEAVE_ONE_OUT",
    "Chosen",
    "Rewound",
    "RidgeCVOnMoments",
    "chosen",
    "example_alphas",
    "keeps",
]

#: A row that has the fit to itself to this degree leaves no digits to its error.
_LEAST_LEFT = 1e-6


def _bad_alphas(call: Call) -> bool:
    """Whether scikit-learn has an error for ``alphas``."""
    given, alphas = call.parameters["alphas"], real_numbers(call, "alphas")
    if isinstance(given, tuple) and len(given) == 1:
        return True  # which it tries to write to
    return alphas is None or alphas.ndim > 1 or not alphas.size or not (alphas > 0).all()


LEAVE_ONE_OUT: tuple[Rule, ...] = (
    refuse("cv is given", lambda call: call.parameters["cv"] is not None),
    refuse("scoring is given", lambda call: call.parameters["scoring"] is not None),
    refuse(Invalid("alphas are not positive numbers"), _bad_alphas),
    refuse("alphas has no dimensions", lambda call: np.ndim(call.parameters["alphas"]) == 0),
    only("store_cv_values", "deprecated"),
    refuse(
        "metadata routing is enabled",
        lambda call: sklearn.get_config()["enable_metadata_routing"],
    ),
    LONG,
    few_features(10_000),
)


class Chosen(SimpleNamespace):
    """What leaving out one row at a time has chosen.

    Attributes
    ----------
    coef : ndarray of shape (n_features, n_targets)
    alpha : float, or ndarray of shape (n_targets,)
    score : float, or ndarray of shape (n_targets,)
    squares : ndarray of shape (n_samples, n_targets, n_alphas) or None
        Of the errors, where they are to be kept.
    """

    def attributes(self, call: Call) -> dict[str, Any]:
        """Return the fitted attributes but for the coefficients."""
        attributes = {"alpha_": self.alpha, "best_score_": self.score}
        if self.squares is not None:
            attributes["cv_results_"] = self.squares
        if "store_cv_values" in call.parameters:
            attributes["_store_cv_results"] = keeps(call)
        return attributes


def chosen(
    call: Call, found: Moments, rows: Iterator[Block], *, keep: bool, by_target: bool
) -> Chosen:
    """Return the penalty with the least squares of errors, in a pass over the rows.

    Parameters
    ----------
    call : Call
    found : Moments
        On the host; about zero where there is no intercept.
    rows : iterator of Block
        Those that `found` are of, on the device.
    keep : bool
        Whether to keep the squared errors of each row.
    by_target : bool
        Whether each target has a penalty of its own.
    """
    import cupy

    alphas = np.asarray(call.parameters["alphas"], dtype=np.float64)
    solution = LeaveOneOut(found, cupy.asarray(alphas), call.parameters["fit_intercept"], cupy)
    if not bool(solution.well_posed):
        raise Refusal("features are nearly collinear for a penalty as small as this")
    total, least, kept = 0.0, [], []
    for block in rows:
        errors, left = solution.errors(*block)
        squares = errors * errors
        total = total + squares.sum(axis=0)
        least.append(left.min())
        if keep:
            kept.append(to_host(squares).transpose(0, 2, 1))
    if not bool(cupy.stack(least).min() > _LEAST_LEFT):
        raise Refusal("a row has the fit nearly to itself")
    scores = -to_host(total) / found.n_samples
    if not by_target:
        scores = scores.mean(axis=1, keepdims=True)
    best = scores.argmax(axis=0)
    coef = to_host(solution.coef)
    picked = np.broadcast_to(best, coef.shape[2:])
    result = Chosen(
        coef=coef[:, picked, np.arange(len(picked))],
        alpha=alphas[best],
        score=scores[best, np.arange(len(best))],
        squares=np.concatenate(kept) if keep else None,
    )
    if not by_target:
        result.alpha, result.score = result.alpha[0], result.score[0]
    return result


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


def example_alphas(call: Call) -> dict[str, Any]:
    """Return ``alphas`` of the caller's kind, for the fit that shows the types of attributes."""
    if "alphas" not in call.parameters:
        return {}
    return {"alphas": np.ones(2, np.asarray(call.parameters["alphas"]).dtype)}


def keeps(call: Call) -> bool:
    """Whether the errors of each row are to be kept."""
    return bool(call.parameters["store_cv_results"])


class RidgeCVOnMoments(LinearOnMoments):
    """The moments in one pass, the errors of rows left out in another."""

    outputs = True
    options = ("fit_intercept", "store_cv_results", "alpha_per_target")
    rules = LEAVE_ONE_OUT

    def fit(self, call: Call, X: Any) -> Outcome:
        rows = Rewound(call, partial(blocks, call))
        found = moments(call, rows=rows)
        if not call.parameters["fit_intercept"]:
            found = found.about_zero()
        by_target = call.parameters["alpha_per_target"] and len(call.y.shape) == 2
        result = chosen(call, found, rows(), keep=keeps(call), by_target=by_target)
        single = len(call.y.shape) == 1
        attributes = result.attributes(call)
        attributes["coef_"] = result.coef[:, 0] if single else result.coef.T
        if single and "cv_results_" in attributes:
            attributes["cv_results_"] = attributes["cv_results_"][:, 0]
        return self.finished(call, found, attributes, Warned(), **example_alphas(call))
