"""Principal components that are brought up to date batch by batch.

A step decomposes what the components so far stand for, the new rows about their mean, and one row
for how far the two means are apart, all stacked: either those rows themselves or their Gram
matrix, which is smaller where there are more rows than columns.

References
----------
D. Ross, J. Lim, R. Lin, M. Yang, "Incremental learning for robust visual tracking",
International Journal of Computer Vision 77, 2008, 125-141.
"""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np

from accelsk.algorithms import spectra
from accelsk.algorithms.decomposition import right_singular, signs
from accelsk.algorithms.moments import Moments

__all__ = [
    "UnresolvedError",
    "batch_moments",
    "from_all_rows",
    "from_batch_moments",
    "from_rows",
]


#: The ratio of singular values down to which they are made exact.
_LEAST = 1e-8


class UnresolvedError(ArithmeticError):
    """Where a Gram matrix does not resolve what an SVD of the rows would."""


class _Joined(NamedTuple):
    """The rows so far and those of a batch together.

    Attributes
    ----------
    total : int
        How many rows.
    mean, scatter : array of shape (n_features,)
        Their mean, and the sums of squares about it.
    stacked : list of array
        What stands for the rows before, as rows to be stacked on those of the batch.
    """

    total: int
    mean: Any
    scatter: Any
    stacked: list[Any]


def _joined(before: SimpleNamespace | None, n_new: int, mean: Any, scatter: Any) -> _Joined:
    if before is None:
        return _Joined(n_new, mean, scatter, [])
    seen = int(before.n_samples_seen_)
    total = seen + n_new
    apart = before.mean_ - mean
    return _Joined(
        total,
        mean + apart * (seen / total),
        scatter + before.var_ * seen + seen / total * n_new * apart**2,
        [
            before.singular_values_[:, None] * before.components_,
            ((seen / total * n_new) ** 0.5 * apart)[None],
        ],
    )


def _updated(
    joined: _Joined, values: Any, vectors: Any, noise: float, n_components: int
) -> SimpleNamespace:
    """Return what scikit-learn's `IncrementalPCA` would have as attributes, in float64."""
    return SimpleNamespace(
        components_=vectors,
        singular_values_=values,
        mean_=joined.mean,
        var_=joined.scatter / joined.total,
        explained_variance_=values**2 / (joined.total - 1),
        explained_variance_ratio_=values**2 / joined.scatter.sum(),
        noise_variance_=noise,
        n_samples_seen_=joined.total,
        n_components_=n_components,
    )


def from_rows(
    before: SimpleNamespace | None, X: Any, n_components: int, xp: Any
) -> SimpleNamespace:
    """Return the principal components of all rows so far.

    Parameters
    ----------
    before : namespace or None
        What a function of this module made of the rows before.
    X : array of shape (n_samples, n_features), dtype=float64
        The next rows.
    n_components : int
    xp : module
        The array namespace.

    Returns
    -------
    after : namespace
        With the attributes of scikit-learn's `IncrementalPCA`.
    """
    mean = X.mean(axis=0)
    centred = X - mean
    joined = _joined(before, len(X), mean, (centred * centred).sum(axis=0))
    values, vectors = right_singular(xp.vstack([centred, *joined.stacked]), xp)
    noise: Any = 0.0
    if n_components not in X.shape:
        rest = values[n_components:] ** 2 / (joined.total - 1)
        noise = np.float64(float(rest.mean()))
    return _updated(joined, values[:n_components], vectors[:n_components], noise, n_components)


def batch_moments(batches: Any, xp: Any) -> tuple[Any, Any]:
    """Return the mean of each batch of rows, and its Gram matrix about that.

    Parameters
    ----------
    batches : array of shape (n_batches, n_rows, n_features), dtype=float64
        It is overwritten.
    xp : module
        The array namespace.
    """
    n_rows = batches.shape[1]
    means = xp.matmul(xp.ones((len(batches), 1, n_rows)), batches) / n_rows
    batches -= means
    return means[:, 0], xp.matmul(batches.transpose(0, 2, 1), batches)


def from_batch_moments(
    before: SimpleNamespace | None,
    n_new: int,
    mean: Any,
    gram: Any,
    n_components: int,
    xp: Any,
) -> SimpleNamespace:
    """Return the same as `from_rows`, from what `batch_moments` gives for a batch of `n_new` rows.

    Raises
    ------
    UnresolvedError
        Where one of the components is too small beside the largest.
    """
    d = len(mean)
    joined = _joined(before, n_new, mean, xp.diagonal(gram))
    n_rows = n_new
    for rows in joined.stacked:
        gram = gram + rows.T @ rows
        n_rows += len(rows)
    squares, vectors = spectra.leading(gram, n_components, xp)
    if not bool(squares[-1] > spectra.RESOLVED * squares[0]):
        raise UnresolvedError
    noise: Any = 0.0
    if n_components not in (n_new, d):
        rest = max(0.0, float(xp.trace(gram)) - float(squares.sum()))
        noise = np.float64(rest / (min(n_rows, d) - n_components) / (joined.total - 1))
    return _updated(joined, xp.sqrt(squares), vectors * signs(vectors, xp), noise, n_components)


def from_all_rows(moments: Moments, again: Callable[[Any], Any], xp: Any) -> SimpleNamespace:
    """Return what any batches come to as long as no component is dropped.

    Parameters
    ----------
    moments : Moments
        Those of all rows; more of them than columns.
    again : callable
        From an array T to the Gram matrix of the centred rows times T.
    xp : module
        The array namespace of `moments`.
    """
    scatter = xp.diagonal(moments.gram)
    joined = _Joined(moments.n_samples, moments.X_mean, scatter, [])
    values, vectors = spectra.from_gram(moments.gram, None, xp, least=_LEAST, again=again)
    return _updated(joined, values, vectors * signs(vectors, xp), 0.0, len(values))
