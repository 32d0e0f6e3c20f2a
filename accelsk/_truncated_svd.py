"""The engine for the truncated singular value decomposition."""

from __future__ import annotations

from typing import Any

import numpy as np

from accelsk._projections import (
    COORDINATES,
    adopted,
    gram_again,
    kept_on_device,
    random_start,
    whole,
)
from accelsk.algorithms import decomposition, spectra
from accelsk.algorithms.spectra import Singular
from accelsk.device.transfer import to_host
from accelsk.engines import inputs
from accelsk.engines.base import Call, Outcome, refuse
from accelsk.engines.cupy import CupyEngine
from accelsk.engines.moments import MomentsEngine, mapped, moments
from accelsk.exceptions import Invalid, Refusal

__all__ = ["TruncatedSVDOnMoments"]

#: Below this share of the largest singular value a component is made of rounding errors.
_WELL_POSED = 1e-8

#: From this many rows for each column on, the Gram matrix of the columns is the way.
_TALL = 2


def _outcome(call: Call, found: Singular, variance: Any, total: Any) -> Outcome:
    """Return the outcome of a fit; `variance` is that of the coordinates, `total` that of X."""
    values = to_host(found.values)
    variance = to_host(variance)
    ratio = variance / float(total) if float(total) > 0 else np.full(len(values), np.inf)
    if not (values[-1] > _WELL_POSED * values[0] and np.isfinite(ratio).all()):
        raise Refusal("X has fewer components than asked for, or no variance")
    dtype = np.float32 if call.X.dtype == np.float32 else np.float64
    attributes = {
        "components_": found.vectors,
        "explained_variance_": variance,
        "explained_variance_ratio_": ratio,
        "singular_values_": values,
    }
    return adopted({name: a.astype(dtype) for name, a in attributes.items()}, ("components_",))


class TruncatedSVDOnMoments(MomentsEngine):
    """Exact in float64 for dense X: both algorithms approximate that.

    For sparse X, and for very many columns and rows if that is the algorithm, the randomized one
    from the directions that scikit-learn draws.
    """

    methods = ("fit", "fit_transform", "transform", "inverse_transform")
    min_rows = 2
    sparse = True
    state = ("components_",)
    rules = (
        inputs.PRECISION,
        inputs.HIDDEN_PRECISION,
        refuse(Invalid("one feature"), lambda call: call.X.shape[-1:] == (1,)),
        refuse(
            "more components than rows or columns",
            lambda call: call.parameters["n_components"] > min(call.X.shape, default=0),
        ),
        refuse(
            Invalid("algorithm='arpack' with as many components as X has rows or columns"),
            lambda call: (
                call.parameters["algorithm"] == "arpack"
                and call.parameters["n_components"] == min(call.X.shape, default=0)
            ),
        ),
        refuse(
            Invalid("algorithm='arpack' with boolean X"),
            lambda call: call.parameters["algorithm"] == "arpack" and call.X.dtype == bool,
        ),
        refuse(
            "algorithm='arpack' with sparse X",
            lambda call: call.parameters["algorithm"] == "arpack" and call.X.kind == "sparse",
        ),
        refuse(
            Invalid("sparse coordinates"),
            lambda call: call.method == "inverse_transform" and call.X.kind == "sparse",
            fit_only=False,
        ),
        COORDINATES,
    )

    def run_fit(self, call: Call) -> Outcome:
        if call.X.kind == "sparse":
            return CupyEngine.run_fit(self, call)
        if call.method == "fit_transform":  # two passes over X, which is sent once
            call = kept_on_device(call)
        return super().run_fit(call)

    def matrix(self, call: Call) -> Any:
        return inputs.sparse_matrix(call) if call.X.kind == "sparse" else super().matrix(call)

    def fit(self, call: Call, X: Any) -> Outcome:
        if call.X.kind == "sparse":
            return self._from_sparse(call, X)
        if call.X.shape[0] < _TALL * call.X.shape[1] or self._is_large(call):
            return self._from_rows(call)
        return self._from_gram(call)

    def _from_sparse(self, call: Call, X: Any) -> Outcome:
        import cupy

        found = self._approximated(call, X)
        mean = X.T @ cupy.ones(X.shape[0]) / X.shape[0]
        total = (X.data**2).sum() / X.shape[0] - (mean**2).sum()
        return _outcome(call, found, (X @ found.vectors.T).var(axis=0), total)

    @staticmethod
    def _is_large(call: Call) -> bool:
        """Whether the randomized algorithm is asked for where an exact one takes its time."""
        randomized = call.parameters["algorithm"] == "randomized"
        return randomized and min(call.X.shape) > decomposition.MOST_EXACT

    @staticmethod
    def _approximated(call: Call, X: Any) -> Singular:
        import cupy

        n_components = int(call.parameters["n_components"])
        start, n_iter = random_start(call, n_components), call.parameters["n_iter"]
        return decomposition.randomized_svd(X, n_components, start, n_iter, cupy)

    def _from_rows(self, call: Call) -> Outcome:
        import cupy

        rows = whole(self, call)
        if self._is_large(call):
            found = self._approximated(call, rows)
        else:
            found = decomposition.truncated_svd(rows, int(call.parameters["n_components"]), cupy)
        variance = (rows @ found.vectors.T).var(axis=0)
        return _outcome(call, found, variance, rows.var(axis=0).sum())

    def _from_gram(self, call: Call) -> Outcome:
        import cupy

        n_samples, n_features = call.X.shape
        of_rows = moments(call, target=False, host=n_features <= spectra.HOST_SIZE)
        found = spectra.from_gram(
            of_rows.about_zero().gram,
            int(call.parameters["n_components"]),
            cupy,
            least=_WELL_POSED,
            again=lambda right: gram_again(call, np.zeros(n_features), right),
        )
        xp = cupy.get_array_module(found.vectors)
        vectors = found.vectors * decomposition.signs(found.vectors, xp)
        variance = ((vectors @ of_rows.gram) * vectors).sum(axis=1) / n_samples
        total = of_rows.gram.trace() / n_samples
        return _outcome(call, Singular(found.values, vectors), variance, total)

    def transform(self, call: Call, model: Any) -> Any:
        """Return the coordinates of X in the components."""
        if call.X.kind == "sparse":
            return self._of_sparse(call, model, self.matrix(call))
        return self._product(call, model.components_, model.components_.T)

    def transform_fitted(self, call: Call, model: Any, X: Any) -> Any:
        if call.X.kind == "sparse":
            return self._of_sparse(call, model, X)
        return self.transform(call, model)

    @staticmethod
    def _of_sparse(call: Call, model: Any, X: Any) -> Any:
        product = X @ model.components_.astype(np.float64).T
        return product.astype(np.result_type(call.X.dtype, model.components_.dtype), copy=False)

    def inverse_transform(self, call: Call, model: Any) -> Any:
        """Return what has the coordinates X in the components."""
        return self._product(call, model.components_, model.components_)

    @staticmethod
    def _product(call: Call, components: Any, right: Any) -> Any:
        dtype = np.result_type(call.X.dtype, components.dtype)
        right = right.astype(np.float64)
        return mapped(call, lambda X: (X.astype(np.float64) @ right).astype(dtype, copy=False))
