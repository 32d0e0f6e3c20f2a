"""`sklearn.naive_bayes`, with classes that try the GPU first."""

from __future__ import annotations

import abc
from types import SimpleNamespace
from typing import Any

import numpy as np
import sklearn.naive_bayes as _original

from accelsk._gaussian_nb import GaussianNBOnMoments
from accelsk._mirror import mirror
from accelsk._naive_bayes import ONE_ALPHA, DiscreteOnCupy
from accelsk.algorithms import naive_bayes
from accelsk.algorithms.naive_bayes import Categories
from accelsk.device.transfer import to_device, to_host
from accelsk.engines import inputs
from accelsk.engines.base import Call
from accelsk.estimator import Accelerated
from accelsk.exceptions import Invalid, Refusal

__all__, __getattr__, __dir__ = mirror(__name__)


class _CountsOnCupy(DiscreteOnCupy):
    """Counts of features, which may come as a sparse matrix."""

    rules = (*DiscreteOnCupy.rules, inputs.EXTENDED_PRECISION)
    sparse = True
    state: tuple[str, ...] = (
        "class_count_",
        "feature_count_",
        "feature_log_prob_",
        "class_log_prior_",
    )

    def updated(
        self, call: Call, before: Any, X: Any, codes: Any, weight: Any, n_classes: int
    ) -> SimpleNamespace:
        import cupy

        mass, sums = naive_bayes.class_sums(X, codes, weight, n_classes, cupy)
        if before is not None:
            mass, sums = mass + before.class_count_, sums + before.feature_count_
        model = SimpleNamespace(class_count_=mass, feature_count_=sums)
        self.smooth(call, model, self.alpha(call))
        if not bool(cupy.isfinite(model.feature_log_prob_).all()):
            raise Refusal("a count is not positive, of whose logarithm NumPy warns")
        model.class_log_prior_ = self.log_prior(call, mass)
        return model

    @abc.abstractmethod
    def smooth(self, call: Call, model: Any, alpha: Any) -> None:
        """Set ``feature_log_prob_`` from the counts."""

    def log_joint(self, call: Call, model: Any, X: Any) -> Any:
        return X @ model.feature_log_prob_.T + model.class_log_prior_


class _MultinomialNBOnCupy(_CountsOnCupy):
    non_negative = True

    def smooth(self, call: Call, model: Any, alpha: Any) -> None:
        import cupy

        counts = model.feature_count_ + alpha
        total = counts.sum(axis=1, keepdims=True)
        model.feature_log_prob_ = cupy.log(counts) - cupy.log(total)


class _ComplementNBOnCupy(_CountsOnCupy):
    non_negative = True
    state = (*_CountsOnCupy.state, "feature_all_")

    def smooth(self, call: Call, model: Any, alpha: Any) -> None:
        import cupy

        model.feature_all_ = model.feature_count_.sum(axis=0)
        others = model.feature_all_ + alpha - model.feature_count_
        logs = cupy.log(others / others.sum(axis=1, keepdims=True))
        norm = call.parameters["norm"]
        model.feature_log_prob_ = logs / logs.sum(axis=1, keepdims=True) if norm else -logs

    def log_joint(self, call: Call, model: Any, X: Any) -> Any:
        return X @ model.feature_log_prob_.T


class _BernoulliNBOnCupy(_CountsOnCupy):
    rules = (*_CountsOnCupy.rules, ONE_ALPHA)

    def matrix(self, call: Call) -> Any:
        import cupy

        X, threshold = super().matrix(call), call.parameters["binarize"]
        if threshold is None:
            return X
        if call.X.kind != "sparse":
            return cupy.greater(X, threshold).astype(np.float64)
        if threshold < 0:
            raise Refusal(Invalid("a threshold below zero would fill a sparse matrix"))
        X.data = (X.data > threshold).astype(np.float64)
        return X

    def smooth(self, call: Call, model: Any, alpha: Any) -> None:
        import cupy

        counts, total = model.feature_count_ + alpha, model.class_count_[:, None] + alpha * 2
        model.feature_log_prob_ = cupy.log(counts) - cupy.log(total)

    def log_joint(self, call: Call, model: Any, X: Any) -> Any:
        import cupy

        if not bool((model.feature_log_prob_ < 0).all()):
            raise Refusal("a feature is more than always there, of which NumPy warns")
        return naive_bayes.bernoulli_log_joint(
            X, model.feature_log_prob_, model.class_log_prior_, cupy
        )


class _CategoricalNBOnCupy(DiscreteOnCupy):
    """All categories of all features side by side in one array."""

    non_negative = True
    rules = (*DiscreteOnCupy.rules, ONE_ALPHA)

    def matrix(self, call: Call) -> Any:
        X = super().matrix(call).astype(np.int64)  # as scikit-learn casts fractions
        if not call.fits and bool((X < 0).any()):
            raise Refusal(Invalid("X has negative entries"))
        return X

    def updated(
        self, call: Call, before: Any, X: Any, codes: Any, weight: Any, n_classes: int
    ) -> SimpleNamespace:
        import cupy

        n_categories = self._n_categories(call, X)
        sizes = n_categories
        if before is not None:
            sizes = np.maximum(sizes, before.categories.sizes)
        found = naive_bayes.categories(X, codes, weight, n_classes, sizes, cupy)
        mass = found.counts[:, : int(sizes[0])].sum(axis=1)
        if before is not None:
            mass = mass + before.class_count_
            earlier = before.categories.split(before.categories.counts)
            for start, counts in zip(found.starts().tolist(), earlier, strict=True):
                found.counts[:, start : start + counts.shape[1]] += counts
        smoothed = found._replace(counts=found.counts + self.alpha(call))
        logs = [
            cupy.log(counts) - cupy.log(counts.sum(axis=1, keepdims=True))
            for counts in smoothed.split(smoothed.counts)
        ]
        return SimpleNamespace(
            categories=found,
            log_prob=cupy.concatenate(logs, axis=1),
            class_count_=mass,
            class_log_prior_=self.log_prior(call, mass),
            n_categories_=n_categories,
        )

    def _n_categories(self, call: Call, X: Any) -> np.ndarray:
        """Return how many categories each feature has, as far as this X and the caller say."""
        found = to_host(X.max(axis=0)) + 1
        least = call.parameters["min_categories"]
        if least is None:
            return found
        least = np.asarray(to_host(least))
        if least.dtype.kind != "i" or least.shape not in ((), found.shape):
            raise Refusal(Invalid("min_categories is not one integer for each feature"))
        return np.maximum(found, least, dtype=np.int64)

    def log_joint(self, call: Call, model: Any, X: Any) -> Any:
        import cupy

        sizes = to_device(model.categories.sizes)
        if not bool(cupy.less(X, sizes).all()):
            raise Refusal(Invalid("X has a category that the fit has not seen"))
        return naive_bayes.categorical_log_joint(
            X, model.log_prob, model.categories.starts(), model.class_log_prior_
        )

    def attributes(self, estimator: Any, model: Any) -> dict[str, Any]:
        def split(table: Any) -> list[np.ndarray]:
            return [np.ascontiguousarray(part) for part in model.categories.split(to_host(table))]

        return {
            "category_count_": split(model.categories.counts),
            "feature_log_prob_": split(model.log_prob),
            "class_count_": to_host(model.class_count_),
            "class_log_prior_": to_host(model.class_log_prior_),
            "n_categories_": model.n_categories_,
        }

    def restore(self, estimator: Any) -> SimpleNamespace:
        counts = estimator.category_count_
        return SimpleNamespace(
            categories=Categories(
                to_device(np.concatenate(counts, axis=1)), np.array([c.shape[1] for c in counts])
            ),
            log_prob=to_device(np.concatenate(estimator.feature_log_prob_, axis=1)),
            class_count_=to_device(estimator.class_count_),
            class_log_prior_=to_device(estimator.class_log_prior_),
            n_categories_=estimator.n_categories_,
        )


class GaussianNB(Accelerated, _original.GaussianNB, engines=[GaussianNBOnMoments()]): ...


class MultinomialNB(Accelerated, _original.MultinomialNB, engines=[_MultinomialNBOnCupy()]): ...


class ComplementNB(Accelerated, _original.ComplementNB, engines=[_ComplementNBOnCupy()]): ...


class BernoulliNB(Accelerated, _original.BernoulliNB, engines=[_BernoulliNBOnCupy()]): ...


class CategoricalNB(Accelerated, _original.CategoricalNB, engines=[_CategoricalNBOnCupy()]): ...
