"""The engine for quadratic discriminant analysis."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from types import SimpleNamespace
from typing import Any

import numpy as np
from scipy import linalg
from sklearn.discriminant_analysis import QuadraticDiscriminantAnalysis

from accelsk._discriminant import DiscriminantOnMoments, Parted, parted, shrunk
from accelsk._projections import dtype_of
from accelsk.algorithms import discriminant
from accelsk.algorithms.discriminant import UnclearError
from accelsk.algorithms.naive_bayes import log_normalised
from accelsk.device.transfer import to_device, to_host
from accelsk.engines import inputs
from accelsk.engines.base import Call, Outcome
from accelsk.engines.moments import mapped
from accelsk.exceptions import Invalid, Refusal

__all__ = ["QuadraticDiscriminantOnMoments"]


@cache
def _unbiased() -> bool:
    """Whether the installed scikit-learn divides the scatter of a class by n - 1."""
    X = np.array([[0.0], [2.0], [10.0], [12.0]])
    fitted = QuadraticDiscriminantAnalysis().fit(X, [0, 0, 1, 1])
    return not np.isclose(fitted.scalings_[0][0], 1.0)


class QuadraticDiscriminantOnMoments(DiscriminantOnMoments):
    """The covariance of each class; labels stay on the host."""

    def fit(self, call: Call, X: Any) -> Outcome:
        codes, classes = inputs.labels(call)
        found = parted(call, codes, len(classes))
        counts = found.together.counts
        if counts.min() < 2:
            raise Refusal(Invalid("a class has one row only"))
        try:
            axes = _axes(call, codes, found)
        except UnclearError as error:
            raise Refusal(str(error)) from None
        stored = axes.pop("covariance_")
        attributes: dict[str, Any] = {
            **axes,
            "classes_": classes,
            "means_": found.together.means.astype(dtype_of(call)),
            "priors_": _priors(call, counts),
        }
        if call.parameters["store_covariance"]:
            attributes["covariance_"] = stored
        return Outcome(model=_model(SimpleNamespace(**attributes)), attributes=attributes)

    def attributes(self, estimator: Any, model: SimpleNamespace) -> dict[str, Any]:
        return {}  # all of them are at hand from the fit on

    def restore(self, estimator: Any) -> SimpleNamespace:
        self.load()
        return _model(estimator)

    def scores(self, call: Call, model: Any) -> Callable[[Any], Any]:
        all_scores = self._all_scores(model)

        def decision(X: Any) -> Any:
            found = all_scores(X)
            return found[:, 1] - found[:, 0] if found.shape[1] == 2 else found

        return decision

    @staticmethod
    def _all_scores(model: SimpleNamespace) -> Callable[[Any], Any]:
        import cupy

        def scores(X: Any) -> Any:
            found = cupy.empty((len(X), len(model.means)))
            for c, (mean, whitening) in enumerate(zip(model.means, model.whitenings, strict=True)):
                rows = (X - mean) @ whitening
                found[:, c] = -0.5 * (rows * rows).sum(axis=1)
            return found + model.constants

        return scores

    def predict_proba(self, call: Call, model: Any) -> Any:
        """Return the probabilities of the classes."""
        import cupy

        scores = self._all_scores(model)
        return mapped(call, lambda X: cupy.exp(log_normalised(scores(X), cupy)))

    def predict_log_proba(self, call: Call, model: Any) -> Any:
        """Return the logarithms of the probabilities."""
        import cupy

        scores = self._all_scores(model)
        return mapped(call, lambda X: log_normalised(scores(X), cupy))


def _priors(call: Call, counts: np.ndarray) -> np.ndarray:
    given = call.parameters["priors"]
    if given is None:
        return counts / float(counts.sum())
    priors = np.array(to_host(given))
    if priors.shape != counts.shape or priors.dtype.kind not in "iuf" or not (priors > 0).all():
        raise Refusal("priors are not one positive number for each class")
    return priors


def _axes(call: Call, codes: Any, found: Parted) -> dict[str, list[np.ndarray]]:
    """Return the variances along the principal axes of each class, these, and the covariances."""
    import cupy

    tol, reg_param = call.parameters["tol"], call.parameters["reg_param"]
    counts = found.together.counts.astype(int).tolist()
    scalings, rotations, stored = [], [], []
    if call.parameters.get("solver", "svd") == "svd":
        if min(counts) <= call.X.shape[1]:
            raise UnclearError("a class has no more rows than features")
        dtype = dtype_of(call)
        for scatter, count in zip(found.scatters, counts, strict=True):
            freedom = count - 1 if _unbiased() else count
            variance, axes = discriminant.quadratic(scatter, freedom, reg_param, tol, cupy)
            scalings.append(variance.astype(dtype))
            rotations.append(axes.astype(dtype))
            if call.parameters["store_covariance"]:
                stored.append(((variance * axes) @ axes.T).astype(dtype))
    else:
        stored = shrunk(call, codes, found).by_class
        for matrix in stored:
            variance, axes = linalg.eigh(matrix)
            discriminant.require_rank(variance, tol)
            order = np.argsort(variance)[::-1]
            scalings.append(variance[order])
            rotations.append(axes[:, order])
    return {"scalings_": scalings, "rotations_": rotations, "covariance_": stored}


def _model(fitted: Any) -> SimpleNamespace:
    """Return on the device what the scores are made of."""
    scalings = [np.asarray(s, np.float64) for s in fitted.scalings_]
    whitenings = [
        np.asarray(r, np.float64) * s**-0.5
        for r, s in zip(fitted.rotations_, scalings, strict=True)
    ]
    volumes = np.array([np.log(s).sum() for s in scalings])
    return SimpleNamespace(
        means=to_device(np.asarray(fitted.means_, np.float64)),
        whitenings=[to_device(w) for w in whitenings],
        constants=to_device(np.log(np.asarray(fitted.priors_, np.float64)) - 0.5 * volumes),
    )
