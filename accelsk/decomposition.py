"""`sklearn.decomposition`, with classes that try the GPU first."""

from __future__ import annotations

from numbers import Integral
from typing import Any

import numpy as np
from sklearn.decomposition import _pca

from accelsk._mirror import mirror
from accelsk.engines.base import Call, Outcome, refuse
from accelsk.engines.cuml import CumlEngine
from accelsk.estimator import Accelerated
from accelsk.exceptions import Invalid, Refusal

__all__, __getattr__, __dir__ = mirror(__name__)


def _too_many_components(call: Call) -> bool:
    n = call.parameters["n_components"]
    limit = min(call.X.shape, default=0) - (call.parameters["svd_solver"] == "arpack")
    return isinstance(n, Integral) and n > limit


class _PCAOnCuml(CumlEngine):
    """Exact, from the covariance, for every solver: the others approximate that.

    The covariance is computed in float64, whatever comes in.
    """

    path = "decomposition.PCA"
    methods = ("fit", "fit_transform", "transform", "inverse_transform")
    min_rows = 2
    rules = (
        refuse("n_components='mle'", lambda call: call.parameters["n_components"] == "mle"),
        refuse("n_components=0", lambda call: call.parameters["n_components"] == 0),
        refuse(Invalid("more components than X has"), _too_many_components),
        refuse(
            "a share of variance as n_components with svd_solver='arpack' or 'randomized'",
            lambda call: (
                isinstance(call.parameters["n_components"], float)
                and call.parameters["svd_solver"] in ("arpack", "randomized")
            ),
        ),
        refuse("more features than rows", lambda call: call.X.shape[-1:] > call.X.shape[:1]),
        refuse(
            "svd_solver='arpack' without n_components",
            lambda call: (
                call.parameters["svd_solver"] == "arpack"
                and call.parameters["n_components"] is None
            ),
        ),
        refuse(
            Invalid("X has another number of columns than there are components"),
            lambda call: (
                call.method == "inverse_transform"
                and call.X.shape[-1:] != call.estimator.components_.shape[:1]
            ),
            fit_only=False,
        ),
        refuse("one feature", lambda call: call.X.shape[-1:] == (1,)),
    )

    #: Eigenvalues of the covariance lose the small singular values that an SVD keeps.
    _well_posed = 1e-10

    def parameters(self, call: Call) -> dict[str, Any]:
        return {"n_components": None, "svd_solver": "full", "whiten": call.parameters["whiten"]}

    def restored_parameters(self, estimator: Any) -> dict[str, Any]:
        return {}

    def fit(self, call: Call, X: Any) -> Outcome:
        model = self.new_model(**self.parameters(call))
        model.fit(X.astype(np.float64, copy=False))
        variance, ratio = model.explained_variance_, model.explained_variance_ratio_
        if (
            call.parameters["svd_solver"] == "full"
            and variance[-1] < self._well_posed * variance[0]
        ):
            raise Refusal("X is nearly rank-deficient")
        n = _n_components(call, ratio.get())
        noise = X.dtype.type(float(variance[n:].mean())) if n < len(variance) else 0.0
        signs = _signs(model.components_)
        kept = {
            "components_": (model.components_ * signs)[:n],
            "explained_variance_": variance[:n],
            "explained_variance_ratio_": ratio[:n],
            "singular_values_": model.singular_values_[:n],
            "mean_": model.mean_,
        }
        for name, value in kept.items():
            setattr(model, name, value.astype(X.dtype))
        model.n_components_ = n
        model.noise_variance_ = noise
        return Outcome(model=model)

    def transform(self, call: Call, model: Any) -> Any:
        """Return the coordinates of X in the components."""
        return self.transform_fitted(call, model, self.matrix(call))

    def transform_fitted(self, call: Call, model: Any, X: Any) -> Any:
        import cupy

        result = X @ model.components_.T
        result -= model.mean_ @ model.components_.T
        if call.parameters["whiten"]:
            scale = cupy.sqrt(model.explained_variance_)
            result /= cupy.maximum(scale, cupy.finfo(scale.dtype).eps)
        return result

    def inverse_transform(self, call: Call, model: Any) -> Any:
        """Return what has the coordinates X in the components."""
        import cupy

        components = model.components_
        if call.parameters["whiten"]:
            components = cupy.sqrt(model.explained_variance_)[:, None] * components
        return self.matrix(call) @ components + model.mean_

    def attributes(self, estimator: Any, model: Any) -> dict[str, Any]:
        return {**super().attributes(estimator, model), "_fit_svd_solver": "covariance_eigh"}


def _n_components(call: Call, ratio: np.ndarray) -> int | np.integer:
    """Return how many components to keep, as scikit-learn resolves ``n_components``."""
    n = call.parameters["n_components"]
    if n is None:
        return len(ratio)
    if isinstance(n, Integral):
        return int(n)
    enough: np.integer = np.searchsorted(np.cumsum(ratio), n, side="right") + 1
    return min(enough, np.int64(len(ratio)))


def _signs(components: Any) -> Any:
    """Return what makes the largest loading of each component positive, as a column."""
    import cupy

    largest = cupy.abs(components).argmax(axis=1)[:, None]
    return cupy.sign(cupy.take_along_axis(components, largest, axis=1))


class PCA(Accelerated, _pca.PCA, engines=[_PCAOnCuml()]): ...
