"""Sums of squared errors from moments, with the digits that a good fit would cost.

Near a fit that leaves little of the target, what it leaves is the small difference of large sums.
Moments of the errors of a fit nearby, from one more pass over the rows, have all their digits.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from accelsk.algorithms.moments import DigitsLost, Moments

__all__ = ["Residuals", "nearby"]

#: What is left of sums of squares, at least, for its digits to be there.
_LEAST = 1e-6

#: Of the squares of the target: less is left by rounding in the data.
_ROUNDING = 1e-16


@dataclass(frozen=True)
class Residuals:
    """The squared errors of any coefficients, from moments of the errors of some.

    Attributes
    ----------
    gram : ndarray of shape (n_features, n_features)
    base : ndarray of shape (n_features,)
        The coefficients whose errors the moments are of.
    along : ndarray of shape (n_features,)
        The products of the columns of X with those errors.
    squares : float
        The sum of the squares of those errors.
    """

    gram: np.ndarray
    base: np.ndarray
    along: np.ndarray
    squares: float

    @classmethod
    def plain(cls, moments: Moments) -> Residuals:
        """Return those about no coefficients: `moments` of one target, on the host."""
        nothing = np.zeros(len(moments.gram))
        return cls(moments.gram, nothing, moments.XY[:, 0], float(moments.YY[0]))

    @classmethod
    def about(cls, moments: Moments, base: np.ndarray, errors: Moments) -> Residuals:
        """Return those about `base`, with `errors` of it in the place of the target.

        Raises
        ------
        DigitsLost
            Where `base` leaves of the target of `moments` nothing but rounding.
        """
        squares = float(errors.YY[0])
        if not squares > _ROUNDING * moments.YY[0]:
            raise DigitsLost("the errors are nothing but rounding")
        return cls(moments.gram, base, errors.XY[:, 0], squares)

    def __call__(self, coefs: np.ndarray) -> Any:
        """Return the sum of squared errors of coefficients, one for each column.

        Raises
        ------
        DigitsLost
            Where the errors drown in rounding.
        """
        apart = (coefs.T - self.base).T
        further = (apart * (self.gram @ apart)).sum(axis=0)
        left = self.squares - 2 * self.along @ apart + further
        if not np.all(left > _LEAST * (self.squares + further)):
            raise DigitsLost("the errors drown in rounding")
        return left


def nearby(moments: Moments) -> np.ndarray:
    """Return coefficients of shape (n_features, n_targets) about as good as any."""
    return np.linalg.lstsq(moments.gram, moments.XY, rcond=1e-12)[0]
