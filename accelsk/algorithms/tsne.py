"""t-SNE by gradient descent, with scikit-learn's probabilities, schedule and stopping rules.

Where scikit-learn's ``barnes_hut`` sums repulsion over the cells of a tree, it is summed here over
all pairs or, of many points in the plane, over a grid: both are nearer to the truth.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from accelsk.algorithms.tsne_forces import Forces, dense_forces, sparse_forces

__all__ = [
    "Schedule",
    "Solution",
    "affinities",
    "conditional_probabilities",
    "dense_affinities",
    "descend",
    "scaled_principal_components",
]

_EPSILON = float(np.finfo(np.float64).eps)

#: How far the entropy of a row may be from that of the perplexity, and how often to halve.
_ENTROPY_TOLERANCE = 1e-5
_ENTROPY_STEPS = 100

#: Iterations with early exaggeration, and between two looks at the error.
_EXPLORATION = 250
_CHECK_EVERY = 50


class Schedule(NamedTuple):
    """What governs the descent, by the names of scikit-learn's hyperparameters."""

    early_exaggeration: float
    learning_rate: float
    max_iter: int
    n_iter_without_progress: int
    min_grad_norm: float


class Solution(NamedTuple):
    """Where the descent ended, by the names of scikit-learn's attributes."""

    embedding: Any
    kl_divergence: float
    n_iter: int


def conditional_probabilities(squared: Any, perplexity: float, xp: Any) -> Any:
    """Return Gaussian probabilities of the entries of each row whose entropy is the log of
    `perplexity`.

    Parameters
    ----------
    squared : array of shape (n_samples, n_neighbors), dtype=float32
        Squared distances; infinity for what is no neighbour.
    perplexity : float
    xp : module
        The array namespace.
    """
    squared = squared.astype(np.float64)
    finite = xp.where(xp.isinf(squared), 0, squared)
    beta = xp.ones((len(squared), 1))
    low, high = xp.full_like(beta, -np.inf), xp.full_like(beta, np.inf)
    for _ in range(_ENTROPY_STEPS):
        shares = xp.exp(-squared * beta)
        total = shares.sum(axis=1, keepdims=True)
        total = xp.where(total == 0, _EPSILON, total)
        shares /= total
        entropy = xp.log(total) + beta * (finite * shares).sum(axis=1, keepdims=True)
        excess = entropy - np.log(perplexity)
        todo = xp.abs(excess) > _ENTROPY_TOLERANCE
        if not bool(todo.any()):
            break
        wide, narrow = todo & (excess > 0), todo & (excess <= 0)
        low, high = xp.where(wide, beta, low), xp.where(narrow, beta, high)
        sharper = xp.where(xp.isinf(high), beta * 2, (beta + high) / 2)
        blunter = xp.where(xp.isinf(low), beta / 2, (beta + low) / 2)
        beta = xp.where(wide, sharper, xp.where(narrow, blunter, beta))
    return shares


def affinities(distances: Any, indices: Any, perplexity: float, xp: Any, sparse: Any) -> Any:
    """Return the joint probabilities of neighbours as a symmetric CSR matrix.

    Parameters
    ----------
    distances, indices : array of shape (n_samples, n_neighbors)
        Of the neighbours of each row, itself left out.
    perplexity : float
    xp, sparse : module
        The array namespace and that of sparse matrices.
    """
    n, n_neighbors = indices.shape
    shares = conditional_probabilities((distances**2).astype(np.float32), perplexity, xp)
    starts = xp.arange(0, n * n_neighbors + 1, n_neighbors, dtype=np.int32)
    one_way = sparse.csr_matrix(
        (shares.ravel(), indices.ravel().astype(np.int32), starts), shape=(n, n)
    )
    joint = (one_way + one_way.T.tocsr()).tocsr()
    joint.data /= xp.maximum(joint.data.sum(), _EPSILON)
    return joint


def dense_affinities(squared: Any, perplexity: float, xp: Any) -> Any:
    """Return the joint probabilities of all pairs; zero on the diagonal.

    Parameters
    ----------
    squared : array of shape (n_samples, n_samples)
        Squared distances.
    perplexity : float
    xp : module
        The array namespace.
    """
    squared = squared.astype(np.float32)
    diagonal = xp.arange(len(squared))
    squared[diagonal, diagonal] = np.inf
    shares = conditional_probabilities(squared, perplexity, xp)
    joint = shares + shares.T
    joint = xp.maximum(joint / xp.maximum(joint.sum(), _EPSILON), _EPSILON)
    joint[diagonal, diagonal] = 0
    return joint


def scaled_principal_components(X: Any, n_components: int, xp: Any) -> Any:
    """Return coordinates in the principal components, the first with a deviation of 1e-4.

    The largest loading of each component is positive, as in scikit-learn's PCA.
    """
    centered = X.astype(np.float64)
    centered -= centered.mean(axis=0)
    components = xp.linalg.eigh(centered.T @ centered)[1][:, ::-1][:, :n_components]
    largest = xp.abs(components).argmax(axis=0)
    components = components * xp.sign(components[largest, xp.arange(n_components)])
    coordinates = (centered @ components).astype(np.float32)
    return coordinates / xp.std(coordinates[:, 0]) * np.float32(1e-4)


def descend(start: Any, joint: Any, schedule: Schedule, xp: Any) -> Solution:
    """Return the embedding that gradient descent finds.

    Parameters
    ----------
    start : array of shape (n_samples, n_components)
    joint : array or CSR matrix of shape (n_samples, n_samples)
        The joint probabilities; a dense array asks for scikit-learn's ``method="exact"``.
    schedule : Schedule
    xp : module
        The array namespace.
    """
    forces = (dense_forces if isinstance(joint, xp.ndarray) else sparse_forces)(joint, start, xp)
    early = _Stage(forces, schedule, schedule.early_exaggeration, 0.5, _EXPLORATION, xp)
    explored = early.run(start.copy(), 0, _EXPLORATION)
    late = _Stage(forces, schedule, 1.0, 0.8, schedule.n_iter_without_progress, xp)
    return late.run(explored.embedding, explored.n_iter + 1, schedule.max_iter)


class _Stage(NamedTuple):
    """A stretch of the descent with one exaggeration and one momentum."""

    forces: Callable[[Any, float, bool], Forces]
    schedule: Schedule
    exaggeration: float
    momentum: float
    patience: int
    xp: Any

    def run(self, embedding: Any, first: int, stop: int) -> Solution:
        """Return where iterations `first` to ``stop - 1`` lead; they may end before."""
        xp = self.xp
        learning_rate = float(self.schedule.learning_rate)
        move = _move if xp is np else _move_on_device()
        update = xp.zeros_like(embedding)
        gains = xp.ones_like(embedding)
        best = error = float(np.finfo(float).max)
        best_iteration = iteration = first
        for iteration in range(first, stop):
            check = (iteration + 1) % _CHECK_EVERY == 0
            forces = self.forces(embedding, self.exaggeration, check or iteration == stop - 1)
            gradient, error = forces.gradient, forces.error
            move(self.momentum, learning_rate, gradient, gains, update, embedding)
            if not check:
                continue
            if error < best:
                best, best_iteration = error, iteration
            elif iteration - best_iteration > self.patience:
                break
            if float(xp.linalg.norm(gradient)) <= self.schedule.min_grad_norm:
                break
        return Solution(embedding, error, iteration)


def _move(
    momentum: float, learning_rate: float, gradient: Any, gains: Any, update: Any, embedding: Any
) -> None:
    """Make one step, in place; `gradient` is scaled by the gains."""
    gains[...] = np.maximum(np.where(update * gradient < 0, gains + 0.2, gains * 0.8), 0.01)
    gradient *= gains
    update[...] = momentum * update - learning_rate * gradient
    embedding += update


@functools.cache
def _move_on_device() -> Any:
    import cupy

    # one launch in place of ten: of few points, launches are what takes the time
    return cupy.ElementwiseKernel(
        "float64 momentum, float64 learning_rate",
        "T gradient, T gains, T update, T embedding",
        """
        const double gain = update * gradient < 0 ? gains + 0.2 : gains * 0.8;
        gains = gain > 0.01 ? gain : 0.01;
        gradient *= gains;
        update = momentum * update - learning_rate * gradient;
        embedding += update;
        """,
        "accelsk_tsne_move",
    )
