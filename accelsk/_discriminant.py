"""What the engines for linear and quadratic discriminant analysis have in common."""

from __future__ import annotations

import abc
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from accelsk._by_class import coded_blocks, most_probable
from accelsk.algorithms import covariance, discriminant
from accelsk.algorithms.class_moments import ClassAccumulator, GroupAccumulator
from accelsk.algorithms.discriminant import Groups
from accelsk.device.transfer import to_device, to_host
from accelsk.engines import inputs
from accelsk.engines.base import Call, Rule, refuse
from accelsk.engines.moments import MomentsEngine, check, mapped
from accelsk.engines.on_device import accuracy
from accelsk.exceptions import Invalid, Refusal

__all__ = ["DiscriminantOnMoments", "Shrunk", "groups", "parted", "shrunk"]

#: Numbers in the covariances of all classes together.
_MOST_NUMBERS = 1 << 26


def _set(call: Call, name: str) -> bool:
    return call.parameters.get(name) is not None


class DiscriminantOnMoments(MomentsEngine, abc.ABC):
    """A discriminant analysis. The moments of the classes come from the device."""

    methods: tuple[str, ...] = (
        "fit",
        "predict",
        "predict_proba",
        "predict_log_proba",
        "decision_function",
        "score",
    )
    min_rows = 2
    rules: tuple[Rule, ...] = (
        inputs.PRECISION,
        inputs.HIDDEN_PRECISION,
        inputs.LABELS,
        refuse(
            Invalid("solver='svd' with shrinkage or covariance_estimator"),
            lambda call: (
                call.parameters.get("solver") == "svd"
                and (_set(call, "shrinkage") or _set(call, "covariance_estimator"))
            ),
        ),
        refuse("covariance_estimator", lambda call: _set(call, "covariance_estimator")),
    )

    @abc.abstractmethod
    def scores(self, call: Call, model: Any) -> Callable[[Any], Any]:
        """Return the function from rows to scores, one for each row if there are two classes."""

    def decision_function(self, call: Call, model: Any) -> Any:
        return mapped(call, self.scores(call, model))

    def predict(self, call: Call, model: Any) -> Any:
        return most_probable(call, self.scores(call, model))

    def score(self, call: Call, model: Any) -> float:
        """Return the accuracy; the predictions come from the device."""
        return accuracy(call, self.predict(call, model))


class Parted(NamedTuple):
    """The moments of each class on its own.

    Attributes
    ----------
    together : Groups
    scatters : list of ndarray
        The sum of products of the features of each class about its mean.
    """

    together: Groups
    scatters: list[np.ndarray]


def groups(call: Call, codes: Any, n_classes: int) -> Groups:
    """Return the moments of all classes together, on the host."""
    import cupy

    accumulator = ClassAccumulator(cupy, n_classes, "within")
    for block in coded_blocks(call, codes):
        accumulator.add(block.X, block.Y)
    found = accumulator.result().on_host()
    assert found.within is not None
    return _finite(Groups(found.n_samples, found.mean, found.within))


def parted(call: Call, codes: Any, n_classes: int) -> Parted:
    """Return the moments of each class, on the host."""
    import cupy

    if n_classes * call.X.shape[1] ** 2 > _MOST_NUMBERS:
        raise Refusal("the covariances of all classes are too large together")
    accumulator = GroupAccumulator(cupy, n_classes)
    for block in coded_blocks(call, codes):
        accumulator.add(block.X, block.Y)
    found = [moments.on_host() for moments in accumulator.result()]
    for moments in found:
        check(moments)
    scatters = [moments.gram for moments in found]
    together = Groups(
        np.array([float(moments.n_samples) for moments in found]),
        np.array([moments.X_mean for moments in found]),
        np.sum(scatters, axis=0),
    )
    return Parted(together, scatters)


def _finite(found: Groups) -> Groups:
    if not np.isfinite(np.diagonal(found.within)).all():
        raise Refusal(Invalid("X contains NaN or infinity, or its squares overflow"))
    return found


class Shrunk(NamedTuple):
    """Covariances as scikit-learn estimates them for a discriminant.

    Attributes
    ----------
    by_class : list of ndarray
    total : ndarray
        That of all rows.
    """

    by_class: list[np.ndarray]
    total: np.ndarray


def shrunk(call: Call, codes: Any, found: Parted) -> Shrunk:
    """Return the covariances of the classes and of all rows, shrunk as the caller wants it."""
    shrinkage = call.parameters.get("shrinkage")
    together = found.together
    counts = [*together.counts.astype(int).tolist(), together.n_samples]
    scatters = [*found.scatters, together.total()]
    matrices = [scatter / count for scatter, count in zip(scatters, counts, strict=True)]
    if shrinkage == "auto":
        matrices = _ledoit_wolf(call, codes, found.together, matrices, counts)
    elif shrinkage is not None:
        matrices = [covariance.shrunk(matrix, float(shrinkage), np) for matrix in matrices]
    return Shrunk(matrices[:-1], matrices[-1])


def _ledoit_wolf(
    call: Call, codes: Any, together: Groups, matrices: list[np.ndarray], counts: list[int]
) -> list[np.ndarray]:
    """Return covariances that are shrunk in units of the standard deviations.

    How far depends on the lengths of the standardised rows: one more pass.
    """
    if call.X.shape[1] == 1:
        return matrices
    means = np.vstack([together.means, together.mean])
    scaled = [
        discriminant.standardised(matrix, mean, count)
        for matrix, mean, count in zip(matrices, means, counts, strict=True)
    ]
    stds = np.array([std for _, std in scaled])
    found = []
    fourth = _fourth_moments(call, codes, means, stds)
    for (correlation, std), total, count in zip(scaled, fourth, counts, strict=True):
        shrinkage = covariance.ledoit_wolf_shrinkage(correlation, float(total), count)
        found.append(std[:, None] * covariance.shrunk(correlation, shrinkage, np) * std)
    return found


def _fourth_moments(call: Call, codes: Any, means: np.ndarray, stds: np.ndarray) -> np.ndarray:
    """Return the sums of the fourth powers of the lengths of standardised rows.

    Those of each class, and of all rows, for which the last of `means` and `stds` are.
    """
    import cupy

    n_classes = len(means) - 1
    centres, inverses = to_device(means), to_device(1.0 / stds)
    total = cupy.zeros(n_classes + 1)

    def squares(X: Any, centre: Any, inverse: Any) -> Any:
        rows = (X - centre) * inverse
        return (rows * rows).sum(axis=1) ** 2

    for block in coded_blocks(call, codes):
        by_row = squares(block.X, centres[block.Y], inverses[block.Y])
        total[:n_classes] += cupy.bincount(block.Y, by_row, minlength=n_classes)
        total[n_classes] += squares(block.X, centres[n_classes], inverses[n_classes]).sum()
    return to_host(total)
