"""k-means on a device, without a word from the host in between.

A round is a matrix product and three kernels. The host asks for rounds ahead of what it knows:
once the rounds have come to their end, those that follow change nothing.
"""

from __future__ import annotations

from collections import deque
from typing import Any, NamedTuple

import numpy as np

from accelsk.algorithms import kmeans
from accelsk.algorithms.kmeans_kernels import EMPTY, RUNNING, SETTLED, WITHIN_TOL, kernels

__all__ = ["THREADS", "blocks_of_eight", "centred", "lloyd", "nearest", "pointer"]

#: Elements of the largest intermediate array: 256 MB in float32.
_CHUNK = 1 << 26

#: Rounds that the host asks for ahead of what it knows.
_AHEAD = 2

#: Where one row in so many may have another centre now, no product with all rows is computed.
_DOUBTS = 8

#: Elements of the state.
_STATE = 6

#: Rounds after which sums are computed anew, rather than brought up to date.
_SUMS_LAST = 16

#: Threads of a block where each has a row, or eight share one.
THREADS = 256

#: What the device says of the shared memory of all blocks on a processor.
_SHARED_OF_ALL = "MaxSharedMemoryPerMultiprocessor"

#: Clusters of which a block keeps the sums: eight copies of 32 features take 101 kB.
_CLUSTERS = 48


def _rows_of_eight(n: int) -> int:
    """Return how many blocks give each row eight threads."""
    return -(-n // (THREADS // 8))


def blocks_of_eight(n: int) -> int:
    """Return how many blocks share such rows between them."""
    import cupy

    processors = cupy.cuda.Device().attributes["MultiProcessorCount"]
    return max(1, min(8 * processors, _rows_of_eight(n)))


class _Layout(NamedTuple):
    """How `accumulate` shares rows between blocks.

    Attributes
    ----------
    grid, block : tuple of int
    clusters, rows : int
        Of each block.
    shared : int
        Bytes of shared memory.
    """

    grid: tuple[int, int, int]
    block: tuple[int, int]
    clusters: int
    rows: int
    shared: int


def _layout(n: int, d: int, k: int) -> _Layout:
    import cupy

    attributes = cupy.cuda.Device().attributes
    shares = -(-k // _CLUSTERS)
    clusters = -(-k // shares)
    groups = 8
    shared = groups * clusters * 33 * 8
    at_once = max(1, min(8, attributes[_SHARED_OF_ALL] // (shared + 1024)))
    tiles = -(-d // 32)
    parts = max(1, at_once * attributes["MultiProcessorCount"] // (tiles * shares))
    rows = max(groups * 8, -(-n // parts))
    return _Layout((tiles, -(-n // rows), shares), (32, groups), clusters, rows, shared)


class _Sums:
    """Sums of rows by label, in parts: `sums` of shape (parts, k, d), and the weights, `mass`.

    Parameters
    ----------
    X : cupy.ndarray of shape (n, d)
        In C order.
    k : int
    weight : cupy.ndarray of shape (n,) or None
    """

    def __init__(self, X: Any, k: int, weight: Any) -> None:
        import cupy

        self._X, self._k, self._weight = X, k, weight
        self._kernel = kernels(X.dtype).accumulate
        self._layout = _layout(len(X), X.shape[1], k)
        if self._layout.shared > 48 * 1024:
            self._kernel.max_dynamic_shared_size_bytes = self._layout.shared
        parts = self._layout.grid[1]
        self.sums = cupy.empty((parts, k, X.shape[1]), np.float64)
        self.mass = cupy.empty((parts, k), np.float64)

    def add(self, labels: Any, state: Any, before: Any = None) -> None:
        """Sum by `labels`, all rows where they are None, unless `state` says that it is over.

        Sums by the labels `before` are brought up to date: mostly few rows change theirs. Rounding
        is left behind then, which matters where an empty cluster has to weigh nothing.
        """
        n, d = self._X.shape
        layout = self._layout
        labelled = (pointer(before if self._weight is None else None), pointer(labels))
        given = (self._X, *labelled, pointer(self._weight), np.int32(n), np.int32(d))
        of_block = (np.int32(self._k), np.int32(layout.clusters), np.int32(layout.rows))
        arguments = (*given, *of_block, pointer(state), self.sums, self.mass)
        self._kernel(layout.grid, layout.block, arguments, shared_mem=layout.shared)


#: What a kernel takes for an array that there is none of.
_NOTHING = np.intp(0)


def pointer(array: Any) -> Any:
    """Return what a kernel takes for an array that may be None."""
    return _NOTHING if array is None else array


def centred(X: Any) -> tuple[Any, Any, Any]:
    """Return the rows about their mean, the mean, and the mean variance of the columns.

    Parameters
    ----------
    X : cupy.ndarray of shape (n_samples, n_features)

    Returns
    -------
    rows : cupy.ndarray of shape (n_samples, n_features)
    mean : cupy.ndarray of shape (n_features,)
    variance : cupy.ndarray of shape (), dtype=float64
    """
    import cupy

    X = cupy.ascontiguousarray(X)
    total = _Sums(X, 1, None)
    total.add(None, None)
    mean = (total.sums.sum(axis=(0, 1)) / len(X)).astype(X.dtype)
    rows = cupy.empty_like(X)
    partial = cupy.empty(blocks_of_eight(X.size))
    arguments = (X, mean, np.int64(X.size), np.int32(X.shape[1]), rows, partial)
    kernels(X.dtype).centre((len(partial),), (THREADS,), arguments)
    return rows, mean, partial.sum() / X.size


class _Nearest:
    """Labels of rows: the nearest centre, the first among equals.

    Parameters
    ----------
    X : cupy.ndarray of shape (n, d)
    k : int
    """

    def __init__(self, X: Any, k: int) -> None:
        import cupy

        self._X, self._k = X, k
        self._kernels = kernels(X.dtype)
        self._step = max(1, min(len(X), _CHUNK // k))
        self._products = cupy.empty(k * self._step, X.dtype)

    def label(
        self,
        centers: Any,
        norms: Any,
        labels: Any,
        state: Any,
        before: Any = None,
        bounds: _Bounds | None = None,
    ) -> None:
        """Write labels, and into `state` whether one is not as `before`, unless it is over.

        With `bounds`, write what they will need, too.
        """
        import cupy

        k, d = centers.shape
        for start in range(0, len(self._X), self._step):
            rows = self._X[start : start + self._step]
            n = len(rows)
            products = self._products[: k * n].reshape(k, n)
            cupy.dot(centers, rows.T, out=products)
            sizes = np.int32(n), np.int32(d), np.int32(k)
            old = pointer(before if before is None else before[start:])
            held = (_NOTHING,) * 3
            if bounds is not None:
                held = bounds.shifts, bounds.squares[start:], bounds.leads[start:]
            arguments = (products, norms, *sizes, old, *held[:2], labels[start:], held[2], state)
            self._kernels.assign((-(-n // THREADS),), (THREADS,), arguments)

    def sift(
        self, norms: Any, labels: Any, state: Any, before: Any, bounds: _Bounds, turned: Any
    ) -> None:
        """Do the same where `bounds` leave a doubt; other labels stay.

        Parameters
        ----------
        turned : cupy.ndarray of shape (d, k)
            The centres, as columns.
        """
        (d, k), n = turned.shape, len(self._X)
        sizes = np.int32(n), np.int32(d), np.int32(k)
        held = (before, bounds.shifts, bounds.squares, labels, bounds.leads, state)
        arguments = (self._X, turned, norms, *sizes, *held)
        self._kernels.sift((-(-n // THREADS),), (THREADS,), arguments)


class _Bounds:
    """By how much the centre of each row is nearer than others, and what shifts take off that.

    The idea is that of G. Hamerly, "Making k-means even faster", SDM 2010: by the triangle
    inequality a row keeps its centre as long as the shifts of its own and of the others since
    then do not add up to its lead.
    """

    def __init__(self, X: Any, k: int) -> None:
        import cupy

        n, d = X.shape
        self.squares, self.leads = cupy.empty(n), cupy.empty(n, np.float32)
        self.shifts = cupy.zeros(k)
        arguments = (X, np.int32(n), np.int32(d), self.squares)
        kernels(X.dtype).square((_rows_of_eight(n),), (THREADS,), arguments)


def _norms(centers: Any) -> Any:
    return (centers * centers).sum(axis=1)


def nearest(X: Any, centers: Any) -> Any:
    """Return the position of the nearest centre of each row, as `kmeans.nearest` does."""
    import cupy

    labels = cupy.empty(len(X), np.int32)
    state = cupy.zeros(_STATE, np.int32)
    _Nearest(X, len(centers)).label(centers, _norms(centers), labels, state)
    return labels


class _Rounds:
    """Lloyd's rounds on the way. Centres and labels change places between two buffers by turns."""

    def __init__(self, X: Any, centers: Any, weight: Any, tol: Any) -> None:
        import cupy

        k, d = centers.shape
        self.X, self.weight, self.tol = X, weight, cupy.asarray(tol, np.float64)
        self._labels = (cupy.full(len(X), -1, np.int32), cupy.full(len(X), -1, np.int32))
        self.state = cupy.zeros(_STATE, np.int32)
        self._buffers = (cupy.array(centers, X.dtype, order="C"), cupy.empty((k, d), X.dtype))
        self._norms = _norms(self._buffers[0])
        self.sums, self.mass = cupy.empty((k, d)), cupy.empty(k)
        self._turned = cupy.empty((d, k), X.dtype)
        self._nearest, self._bounds = _Nearest(X, k), _Bounds(X, k)
        self._doubted = len(X)
        self._parts = _Sums(X, k, weight)
        self._update = kernels(X.dtype).update

    def centers(self, rounds: int) -> Any:
        """Return the centres after so many rounds, of the last two."""
        return self._buffers[rounds % 2]

    def labels(self, rounds: int) -> Any:
        """Return the labels after so many rounds, of the last two."""
        return self._labels[rounds % 2]

    def ask(self, rounds: int) -> None:
        """Ask for another round, after so many."""
        before, after = self.centers(rounds), self.centers(rounds + 1)
        labelled = self.labels(rounds), self.labels(rounds + 1)
        bounds = self._bounds
        known = labelled[1], self.state, labelled[0], bounds
        if self._doubted > len(self.X) // _DOUBTS:
            self._nearest.label(before, self._norms, *known)
        else:
            self._nearest.sift(self._norms, *known, self._turned)
        anew = rounds % _SUMS_LAST == 0
        self._parts.add(labelled[1], self.state, None if anew else labelled[0])
        parts, (k, d) = self._parts, before.shape
        given = (parts.sums, parts.mass, np.int32(len(parts.sums)), np.int32(d), np.int32(k))
        into = (self.sums, self.mass, after, self._turned, self._norms, bounds.shifts, self.state)
        self._update((k,), (128, 8), (*given, before, self.tol, *into))

    def relocate(self, rounds: int) -> int:
        """End a round that found empty clusters; return what its state would have been."""
        import cupy

        before, after = self.centers(rounds - 1), self.centers(rounds)
        labels = self.labels(rounds)
        kmeans.relocate(self.X, before, labels, self.weight, self.sums, self.mass, cupy)
        after[...] = kmeans.averages(self.sums, self.mass, cupy)
        self._norms = _norms(after)
        self._doubted = len(self.X)  # the bounds know nothing of this
        changed, self.state[2], self.state[0] = bool(self.state[2]), 0, RUNNING
        if not changed:
            return SETTLED
        shift = float(((after - before).astype(np.float64) ** 2).sum())
        return WITHIN_TOL if shift <= float(self.tol) else RUNNING

    def run(self, done: int, max_iter: int) -> tuple[int, int]:
        """Go on after so many rounds, up to the end; return why it came, and after how many."""
        peeks: deque[_Peek] = deque()
        for rounds in range(done, max_iter):
            self.ask(rounds)
            peeks.append(_Peek(self.state))
            if len(peeks) > _AHEAD:
                halted, done, self._doubted = peeks.popleft().read()
                if halted != RUNNING:
                    return halted, done
        while peeks:
            halted, done, self._doubted = peeks.popleft().read()
            if halted != RUNNING:
                break
        return halted, done

    def ended(self, done: int, halted: int) -> kmeans.Clustering:
        """Return what the rounds have come to."""
        import cupy

        centers, labels, (n, d) = self.centers(done), self.labels(done), self.X.shape
        if halted != SETTLED:
            self._nearest.label(centers, self._norms, labels, cupy.zeros(_STATE, np.int32))
        partial = cupy.empty(blocks_of_eight(n))
        present = cupy.zeros(len(centers), np.int32)
        given = (self.X, centers, labels, pointer(self.weight), np.int32(n), np.int32(d))
        kernels(self.X.dtype).apart((len(partial),), (THREADS,), (*given, partial, present))
        inertia, distinct = cupy.stack([partial.sum(), present.sum().astype(np.float64)]).get()
        return kmeans.Clustering(centers, labels, float(inertia), done, int(distinct))


class _Peek:
    """What the state says at this point of the stream, asked for now and read later."""

    def __init__(self, state: Any) -> None:
        import cupy
        import cupyx

        self._host = cupyx.empty_pinned(state.shape, state.dtype)
        state.get(out=self._host, blocking=False)
        self._event = cupy.cuda.Event(disable_timing=True)
        self._event.record()

    def read(self) -> tuple[int, int, int]:
        """Return why the rounds are over, or `RUNNING`, how many there were, and the doubts."""
        self._event.synchronize()
        return int(self._host[0]), int(self._host[1]), int(self._host[5])


def lloyd(X: Any, centers: Any, weight: Any, *, max_iter: int, tol: Any) -> kmeans.Clustering:
    """Return what Lloyd's iterations make of `centers`, as `kmeans.lloyd` does.

    Parameters
    ----------
    X : cupy.ndarray of shape (n_samples, n_features)
        In C order.
    centers : cupy.ndarray of shape (n_clusters, n_features)
    weight : cupy.ndarray of shape (n_samples,) or None
    max_iter : int
    tol : float or cupy.ndarray of shape ()
    """
    rounds = _Rounds(X, centers, weight, tol)
    halted, done = RUNNING, 0
    while halted == RUNNING and done < max_iter:
        halted, done = rounds.run(done, max_iter)
        if halted == EMPTY:
            halted = rounds.relocate(done)
    return rounds.ended(done, halted)
