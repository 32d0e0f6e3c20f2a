"""Engines of the lasso and the elastic net with the penalty chosen by cross-validation."""

from __future__ import annotations

from collections.abc import Sequence
from numbers import Integral
from typing import Any

import numpy as np
from sklearn.utils.parallel import Parallel, delayed

from accelsk._folds import Folded
from accelsk._linear_moments import (
    LONG,
    QUIET,
    ROUTING,
    SPLITTER,
    SPLITTER_PARAMETERS,
    LinearOnMoments,
    Warned,
    few_features,
    real_numbers,
)
from accelsk._sklearn import alpha_grid
from accelsk.algorithms.moments import Moments
from accelsk.algorithms.path_cv import descend
from accelsk.engines.base import Call, Outcome, only, refuse
from accelsk.exceptions import Refusal

__all__ = ["PathCVOnMoments"]

#: Rounding above this share of the L1 penalty is felt in the coefficients.
_MOST_ROUNDING = 1e-5


def _n_alphas(parameters: dict[str, Any]) -> int | None:
    """Return how many penalties are to be found, or None where they are given."""
    alphas = parameters["alphas"]
    if alphas is None or isinstance(alphas, str):  # up to scikit-learn 1.8
        chosen = parameters["n_alphas"]
        return 100 if isinstance(chosen, str) else int(chosen)
    return int(alphas) if isinstance(alphas, Integral) else None


def _between(call: Call) -> bool:
    """Whether the number of penalties has two names, of which one is deprecated: 1.7 and 1.8."""
    return getattr(call.original(), "n_alphas", None) == "deprecated"


def _deprecated(call: Call) -> bool:
    """Whether scikit-learn warns of the way in which the penalties are chosen."""
    parameters = call.parameters
    if not _between(call):
        return False
    return parameters["n_alphas"] != "deprecated" or parameters["alphas"] is None


def _bad_alphas(call: Call) -> bool:
    """Whether scikit-learn has an error for ``alphas``, or descends without a penalty."""
    if _n_alphas(call.parameters) is not None:
        return False
    alphas = real_numbers(call, "alphas")
    return alphas is None or alphas.ndim != 1 or not alphas.size or not (alphas > 0).all()


def _bad_ratio(call: Call) -> bool:
    """Whether there is no L1 penalty, or scikit-learn has an error for ``l1_ratio``."""
    if "l1_ratio" not in call.parameters:
        return False
    ratios = real_numbers(call, "l1_ratio")
    return (
        ratios is None
        or ratios.ndim > 1
        or not ratios.size
        or not ((ratios > 0) & (ratios <= 1)).all()
    )


class PathCVOnMoments(LinearOnMoments):
    """Moments of each fold from one pass, then scikit-learn's own descent along each path."""

    rules = (
        QUIET,
        ROUTING,
        SPLITTER,
        SPLITTER_PARAMETERS,
        only("precompute", "auto", True, False),
        refuse("scikit-learn warns of n_alphas or alphas", _deprecated),
        refuse("alphas are not positive numbers", _bad_alphas),
        refuse("l1_ratio is not above 0 and up to 1", _bad_ratio),
        LONG,
        few_features(5_000),
    )

    def fit(self, call: Call, X: Any) -> Outcome:
        folded, warned = Folded(call), Warned()
        found = folded.found
        ratios = np.atleast_1d(call.parameters.get("l1_ratio", 1))
        grids = [self._grid(call, found, ratio) for ratio in ratios]
        smallest = min(r * grid.min() for r, grid in zip(ratios, grids, strict=True))
        self._check_rounding(found, smallest)
        with warned.listening():
            errors = self._errors(call, folded, ratios, grids)
            attributes = self._best(call, errors, ratios, grids)
            ratio, alpha = attributes.pop("l1_ratio"), attributes["alpha_"]
            path = descend(found, [alpha], l1_ratio=ratio, **self._descent(call))
        attributes |= {
            "coef_": path.coefs[:, 0],
            "dual_gap_": path.dual_gaps[0],
            "n_iter_": path.n_iters[0],
            "mse_path_": np.squeeze(np.moveaxis(errors, 2, 1)),
        }
        if "l1_ratio" in call.parameters:
            attributes["l1_ratio_"] = ratio
        if _between(call):
            attributes["_alphas"] = _n_alphas(call.parameters) or call.parameters["alphas"]
        example = self._example(call, len(ratios), len(folded.train))
        return self.finished(call, found, attributes, warned, **example)

    @staticmethod
    def _example(call: Call, n_ratios: int, n_folds: int) -> dict[str, Any]:
        """Return hyperparameters for the fit that shows types: of one or of several each."""
        parameters = call.parameters
        half = np.arange(24).reshape(2, 12)
        chosen: dict[str, Any] = {
            "as_given": ("_alphas",),
            "cv": 2 if n_folds > 1 else [(half[0], half[1])],
        }
        if "l1_ratio" in parameters:
            chosen["l1_ratio"] = np.asarray(parameters["l1_ratio"]).tolist()
        n_alphas = _n_alphas(parameters)
        if n_alphas is None:
            alphas = np.asarray(parameters["alphas"])
            chosen["alphas"] = alphas[: min(2, len(alphas))]
        else:
            chosen["n_alphas" if parameters["alphas"] is None else "alphas"] = min(2, n_alphas)
        return chosen

    def _errors(
        self, call: Call, folded: Folded, ratios: np.ndarray, grids: Sequence[np.ndarray]
    ) -> np.ndarray:
        """Return mean squared errors of shape (n_ratios, n_folds, n_alphas)."""
        options = self._descent(call)
        paths = Parallel(n_jobs=call.parameters["n_jobs"], prefer="threads")(
            delayed(descend)(train, grid, l1_ratio=ratio, **options)
            for ratio, grid in zip(ratios, grids, strict=True)
            for train in folded.train
        )
        errors = folded.errors([path.coefs for path in paths])
        return np.reshape(errors, (len(ratios), len(folded.train), -1))

    @staticmethod
    def _best(
        call: Call, errors: np.ndarray, ratios: np.ndarray, grids: Sequence[np.ndarray]
    ) -> dict[str, Any]:
        """Return the penalties, and those with the least error; the first of several."""
        mean = errors.mean(axis=1)
        ratio, alpha = np.unravel_index(mean.argmin(), mean.shape)
        found = _n_alphas(call.parameters) is not None
        return {
            "alphas_": np.array(grids) if found and len(grids) > 1 else grids[0],
            "alpha_": grids[ratio][alpha],
            "l1_ratio": ratios[ratio],
        }

    @staticmethod
    def _grid(call: Call, found: Moments, ratio: float) -> np.ndarray:
        """Return the penalties to try, in descending order."""
        n_alphas = _n_alphas(call.parameters)
        if n_alphas is None:
            return np.sort(np.asarray(call.parameters["alphas"]))[::-1]
        return alpha_grid(
            np.broadcast_to(np.float64(0), (found.n_samples, len(found.gram))),
            None,
            Xy=found.XY[:, 0],
            l1_ratio=ratio,
            eps=call.parameters["eps"],
            n_alphas=n_alphas,
            sample_weight=np.array([found.weight]),
            positive=call.parameters["positive"],
        )

    @staticmethod
    def _check_rounding(found: Moments, l1_penalty: float) -> None:
        """Refuse penalties so small that rounding is felt in the descent."""
        columns = np.sqrt(np.diag(found.gram) + found.weight * np.square(found.X_mean))
        largest = columns.max() * np.sqrt(found.YY[0])
        rounding = np.finfo(np.float64).eps * largest / found.weight
        if not rounding < _MOST_ROUNDING * l1_penalty:
            raise Refusal("X and y are too large for the penalty to stand out from rounding")

    @staticmethod
    def _descent(call: Call) -> dict[str, Any]:
        names = ("positive", "tol", "max_iter", "random_state", "selection")
        return {name: call.parameters[name] for name in names}
