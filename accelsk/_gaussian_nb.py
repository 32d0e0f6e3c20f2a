"""The engine for Gaussian naive Bayes."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from types import SimpleNamespace
from typing import Any

import numpy as np
from sklearn.naive_bayes import GaussianNB
from sklearn.utils.multiclass import unique_labels

from accelsk._by_class import coded_blocks, most_probable
from accelsk._naive_bayes import NaiveBayesOnCupy
from accelsk._projections import adopted, dtype_of
from accelsk.algorithms import naive_bayes
from accelsk.algorithms.class_moments import ClassAccumulator, ClassMoments
from accelsk.algorithms.naive_bayes import Moments
from accelsk.device.transfer import to_host
from accelsk.engines import inputs
from accelsk.engines.base import Call, Outcome
from accelsk.engines.moments import MomentsEngine, mapped
from accelsk.engines.on_device import accuracy
from accelsk.exceptions import Invalid, Refusal

__all__ = ["GaussianNBOnMoments"]


@cache
def _keeps_float32() -> bool:
    """Whether the installed scikit-learn has float32 attributes for float32 X."""
    X = np.array([[0], [1]], np.float32)
    return GaussianNB().fit(X, [0, 1]).theta_.dtype == np.float32


class GaussianNBOnMoments(MomentsEngine):
    """The moments of each class, about estimates of its own mean; labels stay on the host."""

    methods = NaiveBayesOnCupy.methods
    rules = (*NaiveBayesOnCupy.rules, inputs.PRECISION, inputs.HIDDEN_PRECISION)
    state = ("theta_", "var_", "class_count_", "class_prior_")

    def fit(self, call: Call, X: Any) -> Outcome:
        codes, classes = inputs.labels(call)
        return self._updated(call, None, codes, inputs.listed(classes))

    def partial_fit(self, call: Call, model: Any) -> Outcome:
        if call.continues:
            classes = call.estimator.classes_
        else:
            classes = unique_labels(to_host(call.arguments["classes"]))
        if len(classes) < 2:
            raise Refusal("there is one class only")
        return self._updated(call, model, inputs.codes(call, classes), classes)

    def _updated(self, call: Call, before: Any, codes: Any, classes: np.ndarray) -> Outcome:
        new, largest = _moments(call, codes, len(classes))
        if ((new.mass > 0) & np.isclose(new.mass, 0)).any():
            raise Refusal("a class weighs so little that scikit-learn leaves its rows out")
        epsilon = call.parameters["var_smoothing"] * dtype_of(call).type(largest)
        if before is None:
            dtype = dtype_of(call) if _keeps_float32() else np.dtype(np.float64)
            earlier = Moments(*(np.zeros_like(array) for array in new))
            prior = _priors(call, len(classes), dtype)
        else:
            dtype, prior = before.theta_.dtype, to_host(before.class_prior_)
            mass, mean, variance = (
                to_host(array).astype(np.float64)
                for array in (before.class_count_, before.theta_, before.var_)
            )
            # scikit-learn takes off the new share of the variance, too
            earlier = Moments(mass, mean, variance - float(epsilon))
        mass, mean, variance = naive_bayes.merged(earlier, new, np)
        if call.parameters["priors"] is None:
            prior = (mass / mass.sum()).astype(dtype)
        attributes = {
            "theta_": mean.astype(dtype),
            "var_": (variance + float(epsilon)).astype(dtype),
            "class_count_": mass.astype(dtype),
            "class_prior_": prior,
            "epsilon_": epsilon,
        }
        outcome = adopted(attributes, self.state)
        outcome.attributes["classes_"] = classes
        return outcome

    def _log_joint(self, call: Call, model: SimpleNamespace) -> Callable[[Any], Any]:
        """Return the function from rows to log P(class, x)."""
        import cupy

        mean, variance, prior = (
            array.astype(np.float64) for array in (model.theta_, model.var_, model.class_prior_)
        )
        if not bool((variance > 0).all() & (prior > 0).all()):
            raise Refusal("a class or a variance is zero, of which NumPy warns")
        return lambda X: naive_bayes.gaussian_log_joint(X, mean, variance, prior, cupy)

    def _mapped(self, call: Call, model: Any, function: Callable[[Any], Any]) -> Any:
        dtype = np.result_type(call.X.dtype, model.theta_.dtype)
        log_joint = self._log_joint(call, model)
        return mapped(call, lambda X: function(log_joint(X)).astype(dtype, copy=False))

    def predict_joint_log_proba(self, call: Call, model: Any) -> Any:
        """Return log P(class, x)."""
        return self._mapped(call, model, lambda joint: joint)

    def predict_log_proba(self, call: Call, model: Any) -> Any:
        """Return log P(class | x)."""
        import cupy

        return self._mapped(call, model, lambda joint: naive_bayes.log_normalised(joint, cupy))

    def predict_proba(self, call: Call, model: Any) -> Any:
        """Return P(class | x)."""
        import cupy

        def probability(joint: Any) -> Any:
            return cupy.exp(naive_bayes.log_normalised(joint, cupy))

        return self._mapped(call, model, probability)

    def predict(self, call: Call, model: Any) -> Any:
        """Return the labels of the most probable classes."""
        return most_probable(call, self._log_joint(call, model))

    def score(self, call: Call, model: Any) -> float:
        """Return the accuracy; the predictions come from the device."""
        return accuracy(call, self.predict(call, model))


def _moments(call: Call, codes: Any, n_classes: int) -> tuple[Moments, float]:
    """Return the moments of the classes, and the largest variance of a feature over all rows."""
    import cupy

    by_class = ClassAccumulator(cupy, n_classes, "squares")
    unweighted = ClassAccumulator(cupy, 1, "squares") if call.sample_weight.given else None
    for block in coded_blocks(call, codes):
        by_class.add(block.X, block.Y, block.weight)
        if unweighted is not None:
            unweighted.add(block.X, cupy.zeros(len(block.X), codes.dtype))
    found = by_class.result().on_host()
    if not np.isfinite(found.squares).all():
        raise Refusal(Invalid("X contains NaN or infinity, or its squares overflow"))
    if not found.weight.sum() > 0:
        raise Refusal("sample_weight is zero throughout")
    mass = found.weight
    variance = found.squares / np.where(mass > 0, mass, 1.0)[:, None]
    overall = found if unweighted is None else unweighted.result().on_host()
    return Moments(mass, found.mean, variance), float(_overall_variance(overall).max())


def _overall_variance(moments: ClassMoments) -> np.ndarray:
    """Return the variance of each feature over the rows of all classes."""
    share = moments.n_samples / moments.n_samples.sum()
    met = share > 0
    apart = moments.mean[met] - share[met] @ moments.mean[met]
    return moments.squares[met].sum(axis=0) / moments.n_samples.sum() + share[met] @ apart**2


def _priors(call: Call, n_classes: int, dtype: Any) -> Any:
    """Return the priors that the caller gives, None where there are none."""
    priors = call.parameters["priors"]
    if priors is None:
        return None
    priors = np.asarray(to_host(priors), dtype if _keeps_float32() else None)
    fits = priors.shape == (n_classes,) and priors.dtype.kind in "iuf"
    if not (fits and np.isclose(priors.sum(), 1) and (priors >= 0).all()):
        raise Refusal(Invalid("priors are not probabilities of the classes"))
    return priors
