"""The objective of a logistic regression, its derivatives, and probabilities."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

__all__ = ["Objective", "probabilities"]


def probabilities(scores: Any, xp: Any) -> Any:
    """Return class probabilities from decision values.

    Parameters
    ----------
    scores : array of shape (n_samples,) or (n_samples, n_classes)
        One column means two classes and the score of the second.
    xp : module
        The array namespace.

    Returns
    -------
    probabilities : array of shape (n_samples, n_classes), in the dtype of `scores`
    """
    if scores.ndim == 1:
        # 1 / (1 + exp(-s)) with an exponent that cannot overflow
        e = xp.exp(-xp.abs(scores))
        larger, smaller = 1 / (1 + e), e / (1 + e)
        positive = scores >= 0
        second = xp.where(positive, larger, smaller)
        return xp.stack([xp.where(positive, smaller, larger), second], axis=1)
    e = xp.exp(scores - scores.max(axis=1, keepdims=True))
    return e / e.sum(axis=1, keepdims=True)


class Objective:
    """The mean loss plus half the squared coefficients over ``C`` and the sum of weights.

    What scikit-learn's solvers minimise since 1.1. The data stays on the device; coefficients,
    gradients and values are on the host, as the solvers of SciPy and scikit-learn want them:
    raveled from shape (1 or n_classes, n_features + 1) in column-major order, the intercept last.

    Parameters
    ----------
    X : array of shape (n_samples, n_features), dtype=float64
    codes : array of int of shape (n_samples,)
        The class of each row.
    n_classes : int
        With two there is one row of coefficients.
    weight : array of shape (n_samples,), dtype=float64, or None
    C : float
    fit_intercept : bool
    xp : module
        The array namespace.
    """

    def __init__(
        self,
        X: Any,
        codes: Any,
        n_classes: int,
        weight: Any,
        *,
        C: float,
        fit_intercept: bool,
        xp: Any,
    ) -> None:
        self._X = X
        self._codes = codes
        self._binary = n_classes == 2
        self._n_rows = 1 if self._binary else n_classes
        self._n_columns = X.shape[1] + fit_intercept
        self._fit_intercept = fit_intercept
        self._xp = xp
        total = float(len(codes)) if weight is None else float(weight.sum())
        self._weight = (xp.ones(len(codes)) if weight is None else weight) / total
        self._l2 = 1 / (C * total)

    @property
    def start(self) -> np.ndarray:
        """Coefficients of zero."""
        return np.zeros(self._n_rows * self._n_columns)

    def matrix(self, w: np.ndarray) -> np.ndarray:
        """Return raveled coefficients as a matrix with a row for each of them."""
        return w.reshape((self._n_rows, self._n_columns), order="F")

    def value(self, w: np.ndarray) -> float:
        """Return the objective."""
        coef = self._on_device(w)
        return float(self._value(coef, self._scores(coef)))

    def gradient(self, w: np.ndarray) -> np.ndarray:
        """Return its gradient."""
        coef = self._on_device(w)
        return _on_host(self._gradient(coef, self._scores(coef)))

    def value_and_gradient(self, w: np.ndarray) -> tuple[float, np.ndarray]:
        """Return both, in one transfer."""
        coef = self._on_device(w)
        scores = self._scores(coef)
        both = _on_host(
            self._xp.append(self._gradient(coef, scores), self._value(coef, scores)[None])
        )
        return float(both[-1]), both[:-1]

    def gradient_and_product(
        self, w: np.ndarray
    ) -> tuple[np.ndarray, Callable[[np.ndarray], np.ndarray]]:
        """Return the gradient, and the function that multiplies by the Hessian."""
        coef = self._on_device(w)
        scores = self._scores(coef)
        share = self._shares(scores)

        def product(s: np.ndarray) -> np.ndarray:
            direction = self._on_device(s)
            along = self._scores(direction)
            if self._binary:
                along *= share * (1 - share)
            else:
                along = share * (along - (share * along).sum(axis=1, keepdims=True))
            return _on_host(self._pulled_back(along, direction))

        return _on_host(self._gradient(coef, scores)), product

    def _on_device(self, w: np.ndarray) -> Any:
        return self._xp.asarray(self.matrix(w))

    def _scores(self, coef: Any) -> Any:
        scores = self._X @ coef[:, : self._X.shape[1]].T
        return scores + coef[:, -1] if self._fit_intercept else scores

    def _shares(self, scores: Any) -> Any:
        """Return the probability of the second class, or of every one, in columns."""
        if self._binary:
            return probabilities(scores[:, 0], self._xp)[:, 1:]
        return probabilities(scores, self._xp)

    def _value(self, coef: Any, scores: Any) -> Any:
        xp = self._xp
        if self._binary:
            s = scores[:, 0]
            losses = xp.maximum(s, 0) + xp.log1p(xp.exp(-xp.abs(s))) - self._codes * s
        else:
            top = scores.max(axis=1)
            own = scores[xp.arange(len(self._codes)), self._codes]
            losses = top + xp.log(xp.exp(scores - top[:, None]).sum(axis=1)) - own
        slopes = coef[:, : self._X.shape[1]]
        return (self._weight * losses).sum() + 0.5 * self._l2 * (slopes * slopes).sum()

    def _gradient(self, coef: Any, scores: Any) -> Any:
        residual = self._shares(scores)
        if self._binary:
            residual = residual - self._codes[:, None]
        else:
            residual[self._xp.arange(len(self._codes)), self._codes] -= 1
        return self._pulled_back(residual, coef)

    def _pulled_back(self, along: Any, coef: Any) -> Any:
        """Return the derivative by coefficients from one by scores, penalty included."""
        n_features = self._X.shape[1]
        along = along * self._weight[:, None]
        pulled = self._xp.empty(coef.shape)
        pulled[:, :n_features] = along.T @ self._X + self._l2 * coef[:, :n_features]
        if self._fit_intercept:
            pulled[:, -1] = along.sum(axis=0)
        return pulled.T.ravel()


def _on_host(array: Any) -> np.ndarray:
    return array.get() if hasattr(array, "get") else array
