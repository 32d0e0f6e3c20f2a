"""The base of the engines for naive Bayes."""

from __future__ import annotations

import abc
from types import SimpleNamespace
from typing import Any

import numpy as np
from sklearn.utils.multiclass import unique_labels

from accelsk.algorithms import naive_bayes
from accelsk.device.transfer import to_device, to_host
from accelsk.engines import inputs
from accelsk.engines.base import Call, Outcome, Rule, refuse
from accelsk.engines.cupy import CupyEngine
from accelsk.engines.on_device import accuracy, labelled
from accelsk.exceptions import Invalid, Refusal

__all__ = ["ONE_ALPHA", "DiscreteOnCupy", "NaiveBayesOnCupy"]

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


class NaiveBayesOnCupy(CupyEngine, abc.ABC):
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
        return self._outcome(call, None, X, codes, inputs.listed(classes))

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


def _bad_alpha(call: Call) -> bool:
    alpha = np.asarray(to_host(call.parameters["alpha"]))
    fits = alpha.ndim == 0 or alpha.shape == call.X.shape[-1:]
    return not fits or alpha.dtype.kind not in "iuf" or float(alpha.min()) < _LEAST_ALPHA


#: For classes whose sums are not over one alpha for each feature.
ONE_ALPHA = refuse("alpha is an array", lambda call: np.ndim(call.parameters["alpha"]) > 0)


class DiscreteOnCupy(NaiveBayesOnCupy):
    """Naive Bayes on counts."""

    #: Whether scikit-learn rejects negative entries in a fit.
    non_negative = False
    rules = (
        *NaiveBayesOnCupy.rules,
        refuse("alpha below 1e-10, or not one for each feature", _bad_alpha),
    )

    def matrix(self, call: Call) -> Any:
        X = inputs.sparse_matrix(call) if call.X.kind == "sparse" else super().matrix(call)
        if self.non_negative and call.fits:
            entries = X.data if call.X.kind == "sparse" else X
            if bool((entries < 0).any()):
                raise Refusal(Invalid("X has negative entries"))
        return X

    def alpha(self, call: Call) -> Any:
        return to_device(np.asarray(to_host(call.parameters["alpha"]), np.float64))

    def log_prior(self, call: Call, mass: Any) -> Any:
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
