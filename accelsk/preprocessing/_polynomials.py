"""Polynomial features on the device."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np

from accelsk.algorithms import polynomial
from accelsk.device.transfer import to_device
from accelsk.engines import inputs
from accelsk.engines.base import Call, Outcome
from accelsk.exceptions import Invalid, Refusal
from accelsk.preprocessing._base import Preprocessor, plain

__all__ = ["PolynomialFeaturesOnCupy"]


class PolynomialFeaturesOnCupy(Preprocessor):
    """All products at once. What a fit sets depends on the number of features alone."""

    methods = ("fit", "fit_transform", "transform")
    state = ("n_output_features_", "_min_degree", "_max_degree", "_n_out_full")

    def matrix(self, call: Call) -> Any:
        return inputs.matrix(call)

    def fit(self, call: Call, X: Any) -> Outcome:
        standin = plain(call)
        try:
            standin.fit(np.zeros((1, X.shape[1])))
        except ValueError as error:
            raise Refusal(Invalid(f"scikit-learn rejects it ({error})")) from error
        model = SimpleNamespace(**{name: getattr(standin, name) for name in self.state})
        return Outcome(model=model)

    def transform(self, call: Call, model: Any) -> Any:
        return self.transform_fitted(call, model, self.matrix(call))

    def transform_fitted(self, call: Call, model: Any, X: Any) -> Any:
        import cupy

        terms = polynomial.terms(
            X.shape[1],
            (model._min_degree, model._max_degree),
            call.parameters["interaction_only"],
            call.parameters["include_bias"],
        )
        if len(terms) != model.n_output_features_:
            raise Refusal("a hyperparameter has been changed since the fit")
        result = polynomial.monomials(X, to_device(terms), cupy)
        if call.parameters["order"] == "C":
            return result
        result = cupy.asfortranarray(result)
        return result.get(order="F") if call.on_host else result
