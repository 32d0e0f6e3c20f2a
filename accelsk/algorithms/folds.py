"""Moments of the folds of a cross-validation, from one pass over the rows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from accelsk.algorithms.moments import CHUNK, Accumulator, Moments

__all__ = ["MOST_GROUPS", "FoldMoments", "Folds", "consecutive", "folds_of"]

#: Each group of rows has sums of its own.
MOST_GROUPS = 64


class Folds(NamedTuple):
    """Rows in groups, so that each fold trains and tests on whole groups.

    Attributes
    ----------
    codes : ndarray of shape (n_samples,), dtype=int16
        The group of each row.
    train, test : ndarray of shape (n_folds, n_groups), dtype=bool
        What each fold does with each group.
    """

    codes: np.ndarray
    train: np.ndarray
    test: np.ndarray


def consecutive(n_samples: int, n_folds: int) -> Folds:
    """Return folds of consecutive rows, each tested on once, the first ones a row longer."""
    sizes = np.full(n_folds, n_samples // n_folds)
    sizes[: n_samples % n_folds] += 1
    test = np.eye(n_folds, dtype=bool)
    return Folds(np.repeat(np.arange(n_folds, dtype=np.int16), sizes), ~test, test)


def folds_of(splits: Sequence[tuple[Any, Any]], n_samples: int) -> Folds | None:
    """Return the groups behind the indices that a splitter gives.

    None where a split has a row twice, or trains and tests on the same row or where the splits
    overlap in too many ways.
    """
    codes = np.zeros(n_samples, np.int16)
    roles = np.zeros((1, 0), np.int8)
    for train, test in splits:
        role = np.zeros(n_samples, np.int8)
        role[train] = 1
        role[test] = 2
        counts = np.bincount(role, minlength=3)
        if counts[1] != _length(train, n_samples) or counts[2] != _length(test, n_samples):
            return None
        # those of the groups in which there are rows
        counts = np.bincount(3 * codes + role, minlength=3 * len(roles))
        present = np.flatnonzero(counts)
        if len(present) > MOST_GROUPS:
            return None
        renumbered = np.zeros(len(counts), np.int16)
        renumbered[present] = np.arange(len(present))
        codes = renumbered[3 * codes + role]
        roles = np.column_stack([roles[present // 3], (present % 3).astype(np.int8)])
    return Folds(codes, roles.T == 1, roles.T == 2)


def _length(rows: Any, n_samples: int) -> int:
    """Return how many rows an index means: positions, or a mask."""
    rows = np.asarray(rows)
    return int(rows.sum()) if rows.dtype == bool else len(rows)


class FoldMoments:
    """Takes blocks of rows in their order, and gives moments of each fold.

    Parameters
    ----------
    folds : Folds
    xp : module
        The array namespace.
    chunk : int, default=CHUNK
        As for `Accumulator`.
    shifts : sequence of tuple of array, default=None
        For each group what `Accumulator` takes.
    """

    def __init__(
        self, folds: Folds, xp: Any, chunk: int = CHUNK, shifts: Sequence[Any] | None = None
    ) -> None:
        self._folds, self._xp = folds, xp
        groups = range(folds.train.shape[1])
        self._sums = [
            Accumulator(xp, None if shifts is None else shifts[group], chunk) for group in groups
        ]
        self._start = 0

    def add(self, X: Any, Y: Any, weight: Any = None) -> None:
        """Take in the next rows."""
        stop = self._start + len(X)
        for group, rows in self._rows(self._folds.codes[self._start : stop]):
            part = None if weight is None else weight[rows]
            self._sums[group].add(X[rows], Y[rows], part)
        self._start = stop

    def _rows(self, codes: np.ndarray) -> Iterator[tuple[int, Any]]:
        """Yield each group of a block with its rows: a slice where they are in one piece."""
        for group in np.flatnonzero(np.bincount(codes)).tolist():
            rows = np.flatnonzero(codes == group)
            if rows[-1] - rows[0] + 1 == len(rows):
                yield group, slice(int(rows[0]), int(rows[-1]) + 1)
            else:
                yield group, self._xp.asarray(rows)

    def parts(self) -> list[Moments]:
        """Return the moments of each group."""
        return [sums.result() for sums in self._sums]

    def result(self, moments: Sequence[Moments]) -> tuple[Moments, list[Moments], list[Moments]]:
        """Return moments of all rows, and of the training and test rows of each fold; on the host.

        Training rows of a fold are never what is left of a difference, which would cost digits.

        Parameters
        ----------
        moments : sequence of Moments
            Those of each group.
        """
        parts = _Parts(moments, self._xp)
        everything = np.ones((1, self._folds.train.shape[1]), bool)
        total, train, test = map(parts.together, (everything, self._folds.train, self._folds.test))
        return total[0], train, test


class _Parts:
    """Moments of groups of rows, side by side."""

    def __init__(self, parts: Sequence[Moments], xp: Any) -> None:
        self._xp = xp
        self._n_samples = np.array([part.n_samples for part in parts])
        self._weight = xp.stack([part.weight for part in parts])
        self._X_mean = xp.stack([part.X_mean for part in parts])
        self._Y_mean = xp.stack([part.Y_mean for part in parts])
        self._gram = xp.stack([part.gram for part in parts])
        self._XY = xp.stack([part.XY for part in parts])
        self._YY = xp.stack([part.YY for part in parts])

    def together(self, wanted: np.ndarray) -> list[Moments]:
        """Return on the host the moments of several unions of groups.

        Parameters
        ----------
        wanted : ndarray of shape (n_unions, n_groups), dtype=bool
        """
        xp = self._xp
        chosen = xp.asarray(wanted.astype(np.float64))
        shares = chosen * self._weight
        weight = shares.sum(axis=1)
        X_mean = shares @ self._X_mean / weight[:, None]
        Y_mean = shares @ self._Y_mean / weight[:, None]
        X_apart = self._X_mean - X_mean[:, None]
        Y_apart = self._Y_mean - Y_mean[:, None]
        X_shares = (X_apart * shares[:, :, None]).transpose(0, 2, 1)

        def sums(part: Any) -> Any:
            return (chosen @ part.reshape(len(part), -1)).reshape(-1, *part.shape[1:])

        arrays = (
            weight,
            X_mean,
            sums(self._gram) + X_shares @ X_apart,
            Y_mean,
            sums(self._XY) + X_shares @ Y_apart,
            sums(self._YY) + (shares[:, :, None] * Y_apart**2).sum(axis=1),
        )
        n_samples = wanted @ self._n_samples
        host = [array.get() if hasattr(array, "get") else array for array in arrays]
        return [
            Moments(int(n), float(values[0]), *values[1:])
            for n, *values in zip(n_samples, *host, strict=True)
        ]
