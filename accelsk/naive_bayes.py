"""`sklearn.naive_bayes`, with classes that try the GPU first."""

from __future__ import annotations

import abc
from functools import cache
from types import SimpleNamespace
from typing import Any

import numpy as np
import sklearn.naive_bayes as _original
from scipy import sparse
from sklearn.utils.multiclass import unique_labels

from accelsk._mirror import mirror
from accelsk.algorithms import naive_bayes
from accelsk.algorithms.naive_bayes import Categories, Moments
from accelsk.device.transfer import is_device_array, to_device, to_host
from accelsk.engines import inputs
from accelsk.engines.base import Call, Outcome, Rule, refuse
from accelsk.engines.cupy import CupyEngine
from accelsk.engines.on_device import accuracy, labelled
from accelsk.estimator import Accelerated
from accelsk.exceptions import Invalid, Refusal

__all__, __getattr__, __dir__ = mirror(__name__)

#: Below this alpha scikit-learn warns, or takes logarithms of zero.
_LEAST_ALPHA = 1e-10


def _bad_classes(call: Call) -> bool:
    """Whether scikit-learn has an error for the ``classes`` of a ``partial_fit``."""
    if call.method != "partial_fit":
        return False
    classes = call.arguments["classes"]
    if not call.continues:
        return classes is None
    return classes is not None and not np.array_equal(
        call.estimator.classes_, unique_labels(to_host(classes))
    )


class _NaiveBayesOnCupy(CupyEngine, abc.ABC):
    """Sums by class on the device, in float64; the labels stay with the estimator."""

    methods = (
        "fit",
        "partial_fit",
        "predict",
        "predict_joint_log_proba",
        "predict_log_proba",
        "predict_proba",
        "score",
    )
    rules: tuple[Rule, ...] = (
        refuse(Invalid("classes is missing or has changed"), _bad_classes),
        inputs.LABELS,
    )

    def fit(self, call: Call, X: Any) -> Outcome:
        codes, classes = inputs.labels(call)
        return self._outcome(call, None, X, codes, classes)

    def partial_fit(self, call: Call, model: Any) -> Outcome:
        if call.continues:
            classes = call.estimator.classes_
        else:
            classes = unique_labels(to_host(call.arguments["classes"]))
        if len(classes) < 2:
            raise Refusal("there is one class only")
        X = self.matrix(call)
        return self._outcome(call, model, X, inputs.codes(call, classes), classes)

    def _outcome(self, call: Call, before: Any, X: Any, codes: Any, classes: Any) -> Outcome:
        weight = inputs.weights(call, np.float64)
        model = self.updated(call, before, X, codes, weight, len(classes))
        return Outcome(model=model, attributes={"classes_": classes})

    @abc.abstractmethod
    def updated(
        self, call: Call, before: Any, X: Any, codes: Any, weight: Any, n_classes: int
    ) -> SimpleNamespace:
        """Return the model of the rows before and of X; `before` may be None."""

    @abc.abstractmethod
    def log_joint(self, call: Call, model: Any, X: Any) -> Any:
        """Return log P(class, x), of shape (n_samples, n_classes)."""

    def predict_joint_log_proba(self, call: Call, model: Any) -> Any:
        """Return log P(class, x)."""
        return self.log_joint(call, model, self.matrix(call))

    def predict(self, call: Call, model: Any) -> Any:
        """Return the labels of the most probable classes."""
        return labelled(call, self.predict_joint_log_proba(call, model).argmax(axis=1))

    def predict_log_proba(self, call: Call, model: Any) -> Any:
        """Return log P(class | x)."""
        import cupy

        return naive_bayes.log_normalised(self.predict_joint_log_proba(call, model), cupy)

    def predict_proba(self, call: Call, model: Any) -> Any:
        """Return P(class | x)."""
        import cupy

        return cupy.exp(self.predict_log_proba(call, model))

    def score(self, call: Call, model: Any) -> float:
        """Return the accuracy; the predictions come from the device."""
        return accuracy(call, self.predict(call, model))


@cache
def _keeps_float32() -> bool:
    """Whether the installed scikit-learn's GaussianNB has float32 attributes for float32 X."""
    X = np.array([[0], [1]], np.float32)
    return _original.GaussianNB().fit(X, [0, 1]).theta_.dtype == np.float32


class _GaussianNBOnCupy(_NaiveBayesOnCupy):
    rules = (*_NaiveBayesOnCupy.rules, inputs.PRECISION)
    state = ("theta_", "var_", "class_count_", "class_prior_", "epsilon_")

    def updated(
        self, call: Call, before: Any, X: Any, codes: Any, weight: Any, n_classes: int
    ) -> SimpleNamespace:
        import cupy

        largest = X.dtype.type(float(X.astype(np.float64).var(axis=0).max()))
        epsilon = call.parameters["var_smoothing"] * largest
        if before is None:
            dtype = X.dtype if _keeps_float32() else np.dtype(np.float64)
            shape = (n_classes, X.shape[1])
            earlier = Moments(cupy.zeros(n_classes), cupy.zeros(shape), cupy.zeros(shape))
            prior = self._priors(call, n_classes, dtype)
        else:
            dtype, prior = before.theta_.dtype, before.class_prior_
            earlier = Moments(
                before.class_count_.astype(np.float64),
                before.theta_.astype(np.float64),
                before.var_.astype(np.float64)
                - float(epsilon),  # as scikit-learn does: the new one
            )
        mass, mean, variance = naive_bayes.moments(X, codes, weight, earlier, cupy)
        if call.parameters["priors"] is None:
            prior = (mass / mass.sum()).astype(dtype)
        return SimpleNamespace(
            theta_=mean.astype(dtype),
            var_=(variance + float(epsilon)).astype(dtype),
            class_count_=mass.astype(dtype),
            class_prior_=prior,
            epsilon_=epsilon,
        )

    def _priors(self, call: Call, n_classes: int, dtype: Any) -> Any:
        priors = call.parameters["priors"]
        if priors is None:
            return None
        priors = np.asarray(to_host(priors), dtype if _keeps_float32() else None)
        fits = priors.shape == (n_classes,) and priors.dtype.kind in "iuf"
        if not (fits and np.isclose(priors.sum(), 1) and (priors >= 0).all()):
            raise Refusal(Invalid("priors are not probabilities of the classes"))
        return to_device(priors)

    def log_joint(self, call: Call, model: Any, X: Any) -> Any:
        import cupy

        variance, prior = model.var_.astype(np.float64), model.class_prior_.astype(np.float64)
        if not bool((variance > 0).all() & (prior > 0).all()):
            raise Refusal("a class or a variance is zero, of which NumPy warns")
        joint = naive_bayes.gaussian_log_joint(
            X, model.theta_.astype(np.float64), variance, prior, cupy
        )
        return joint.astype(np.result_type(call.X.dtype, model.theta_.dtype))


def _bad_alpha(call: Call) -> bool:
    alpha = np.asarray(to_host(call.parameters["alpha"]))
    fits = alpha.ndim == 0 or alpha.shape == call.X.shape[-1:]
    return not fits or alpha.dtype.kind not in "iuf" or float(alpha.min()) < _LEAST_ALPHA


#: For classes whose sums are not over one alpha for each feature.
_ALPHAS = refuse("alpha is an array", lambda call: np.ndim(call.parameters["alpha"]) > 0)


class _DiscreteOnCupy(_NaiveBayesOnCupy):
    """Naive Bayes on counts."""

    #: Whether scikit-learn rejects negative entries in a fit.
    non_negative = False
    rules = (
        *_NaiveBayesOnCupy.rules,
        refuse("alpha below 1e-10, or not one for each feature", _bad_alpha),
    )

    def matrix(self, call: Call) -> Any:
        X = _csr(call) if call.X.kind == "sparse" else super().matrix(call)
        if self.non_negative and call.fits:
            entries = X.data if call.X.kind == "sparse" else X
            if bool((entries < 0).any()):
                raise Refusal(Invalid("X has negative entries"))
        return X

    def _alpha(self, call: Call) -> Any:
        return to_device(np.asarray(to_host(call.parameters["alpha"]), np.float64))

    def _log_prior(self, call: Call, mass: Any) -> Any:
        import cupy

        class_prior = call.parameters["class_prior"]
        if class_prior is not None:
            prior = np.asarray(to_host(class_prior), np.float64)
            if len(prior) != len(mass):
                raise Refusal(Invalid("class_prior has another length than there are classes"))
            if not (prior > 0).all():
                raise Refusal("class_prior has a zero, of whose logarithm NumPy warns")
            return to_device(np.log(prior))
        if call.parameters["fit_prior"]:
            return cupy.log(mass) - cupy.log(mass.sum())
        return cupy.full(len(mass), -np.log(len(mass)))


def _csr(call: Call) -> Any:
    """Return a sparse X on the device, finite, in float64."""
    import cupy
    from cupyx.scipy.sparse import csr_matrix

    X = call.X.value
    if not is_device_array(X):
        X = sparse.csr_matrix(X)
    X = csr_matrix(X.astype(np.float64))
    if not bool(cupy.isfinite(X.data).all()):
        raise Refusal(Invalid("X contains NaN or infinity"))
    return X


class _CountsOnCupy(_DiscreteOnCupy):
    """Counts of features, which may come as a sparse matrix."""

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
        self.smooth(call, model, self._alpha(call))
        model.class_log_prior_ = self._log_prior(call, mass)
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
    rules = (*_CountsOnCupy.rules, _ALPHAS)

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

        return naive_bayes.bernoulli_log_joint(
            X, model.feature_log_prob_, model.class_log_prior_, cupy
        )


class _CategoricalNBOnCupy(_DiscreteOnCupy):
    """All categories of all features side by side in one array."""

    non_negative = True
    rules = (*_DiscreteOnCupy.rules, _ALPHAS)

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
        smoothed = found._replace(counts=found.counts + self._alpha(call))
        logs = [
            cupy.log(counts) - cupy.log(counts.sum(axis=1, keepdims=True))
            for counts in smoothed.split(smoothed.counts)
        ]
        return SimpleNamespace(
            categories=found,
            log_prob=cupy.concatenate(logs, axis=1),
            class_count_=mass,
            class_log_prior_=self._log_prior(call, mass),
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


class GaussianNB(Accelerated, _original.GaussianNB, engines=[_GaussianNBOnCupy()]): ...


class MultinomialNB(Accelerated, _original.MultinomialNB, engines=[_MultinomialNBOnCupy()]): ...


class ComplementNB(Accelerated, _original.ComplementNB, engines=[_ComplementNBOnCupy()]): ...


class BernoulliNB(Accelerated, _original.BernoulliNB, engines=[_BernoulliNBOnCupy()]): ...


class CategoricalNB(Accelerated, _original.CategoricalNB, engines=[_CategoricalNBOnCupy()]): ...
