"""The rows that the trees of a random forest are grown on, drawn as scikit-learn draws them."""

from __future__ import annotations

import inspect
import warnings
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
from sklearn.utils.class_weight import compute_class_weight

from accelsk._sklearn import generate_sample_indices, get_n_samples_bootstrap
from accelsk.device.transfer import to_device, to_host
from accelsk.engines import inputs
from accelsk.engines.base import Call
from accelsk.exceptions import Invalid, Refusal

__all__ = ["Bags", "balanced", "n_drawn", "weighted_draws"]

_THREADS = 8


def weighted_draws() -> bool:
    """Whether scikit-learn draws rows by their weight (since 1.9) or weighs those it draws."""
    return "sample_weight" in inspect.signature(generate_sample_indices.find()).parameters


class Bags:
    """The rows of each tree, as scikit-learn draws them.

    Attributes
    ----------
    are_counts : bool
        Whether rows count for as often as they were drawn.
    total : float
        The weight of all rows of a tree.
    bound : float
        What weights of no tree are above.
    """

    def __init__(
        self, call: Call, y: Any, weight: np.ndarray | None, drawn: int | None, n_classes: int
    ) -> None:
        self.n_samples, self.drawn, self.n_classes = call.X.shape[0], drawn, n_classes
        self.y, self.weight = y, weight
        self.by_weight = weight is not None and weighted_draws()
        self.by_tree = (
            drawn is not None and call.parameters.get("class_weight") == "balanced_subsample"
        )
        times = None if self.by_weight and drawn is not None else weight
        self.times = None if times is None else to_device(times)
        self.are_counts = self.times is None and not self.by_tree
        if drawn is None:
            self.total = self.bound = float(self.n_samples if weight is None else weight.sum())
        else:
            self.total = self.bound = float(drawn)
            if times is not None:
                self.bound *= max(1.0, float(times.max()))

    def of(self, seeds: list[int]) -> Any:
        """Return how much each row counts for in the tree of each seed."""
        import cupy

        if self.drawn is None:
            one = cupy.ones(self.n_samples, np.int32) if self.times is None else self.times
            return cupy.broadcast_to(one, (len(seeds), self.n_samples)).copy()
        rows = np.empty((len(seeds), self.drawn), np.int32)

        def draw(tree: int) -> None:
            weight = (self.weight if self.by_weight else None,) if weighted_draws() else ()
            rows[tree] = generate_sample_indices(seeds[tree], self.n_samples, self.drawn, *weight)

        with ThreadPoolExecutor(_THREADS) as threads:
            list(threads.map(draw, range(len(seeds))))
        first = cupy.arange(len(seeds), dtype=np.int32) * np.int32(self.n_samples)
        flat = (to_device(rows) + first[:, None]).ravel()
        size = len(seeds) * self.n_samples
        counts = cupy.bincount(flat, minlength=size).astype(np.int32)
        counts = counts.reshape(len(seeds), self.n_samples)
        if self.by_tree:
            counts = counts * self._balance(counts)
        if self.times is None:
            return counts
        if not bool(((counts > 0) & (self.times > 0)).any(axis=1).all()):
            raise Refusal("a tree would have rows of no weight alone")
        return counts * self.times

    def _balance(self, counts: Any) -> Any:
        import cupy

        of_class = cupy.stack(
            [(counts * (self.y == c)).sum(axis=1) for c in range(int(self.n_classes))], axis=1
        )
        n_present = (of_class > 0).sum(axis=1, keepdims=True)
        weight = self.drawn / (n_present * cupy.maximum(of_class, 1))
        return weight[:, self.y]


def balanced(y: np.ndarray, call: Call) -> dict[Any, float]:
    """Return the weight that balances the classes, of all rows together."""
    classes = np.unique(y)
    arguments = {}
    known = inspect.signature(compute_class_weight).parameters
    if "sample_weight" in known and call.sample_weight.given:
        arguments["sample_weight"] = to_host(inputs.weights(call, np.float64))
    weight = compute_class_weight("balanced", classes=classes, y=y, **arguments)
    return dict(zip(classes, weight, strict=True))


def n_drawn(call: Call, weight: np.ndarray | None) -> int | None:
    """Return how many rows each tree is grown on, as scikit-learn resolves ``max_samples``."""
    if not call.parameters["bootstrap"]:
        return None
    arguments = (weight,) if weighted_draws() else ()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        try:
            drawn = get_n_samples_bootstrap(
                call.X.shape[0], call.parameters["max_samples"], *arguments
            )
        except UserWarning:
            raise Refusal("max_samples comes to few rows, of which scikit-learn warns") from None
        except ValueError:
            raise Refusal(Invalid("max_samples is above the number of rows")) from None
    return int(drawn)
