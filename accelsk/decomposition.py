"""`sklearn.decomposition`, with classes that try the GPU first."""

from __future__ import annotations

from functools import cache
from numbers import Integral
from types import SimpleNamespace
from typing import Any

import numpy as np
from sklearn.decomposition import _incremental_pca, _pca, _truncated_svd
from sklearn.utils import check_random_state, gen_batches
from sklearn.utils.extmath import _incremental_mean_and_var

from accelsk._mirror import mirror
from accelsk.algorithms import decomposition
from accelsk.device.transfer import to_device
from accelsk.engines import inputs
from accelsk.engines.base import Call, Outcome, refuse
from accelsk.engines.cuml import CumlEngine
from accelsk.engines.cupy import CupyEngine
from accelsk.estimator import Accelerated
from accelsk.exceptions import Invalid, Refusal

__all__, __getattr__, __dir__ = mirror(__name__)


def _too_many_components(call: Call) -> bool:
    n = call.parameters["n_components"]
    limit = min(call.X.shape, default=0) - (call.parameters["svd_solver"] == "arpack")
    return isinstance(n, Integral) and n > limit


#: What ``inverse_transform`` takes.
_COORDINATES = refuse(
    Invalid("X has another number of columns than there are components"),
    lambda call: (
        call.method == "inverse_transform"
        and call.X.shape[-1:] != call.estimator.components_.shape[:1]
    ),
    fit_only=False,
)


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
        _COORDINATES,
        refuse("one feature", lambda call: call.X.shape[-1:] == (1,)),
    )

    #: Eigenvalues of the covariance lose the small singular values that an SVD keeps.
    _well_posed = 1e-10

    def parameters(self, call: Call) -> dict[str, Any]:
        return {"n_components": None, "svd_solver": "full", "whiten": call.parameters["whiten"]}

    def restored_parameters(self, estimator: Any) -> dict[str, Any]:
        return {}

    def fit(self, call: Call, X: Any) -> Outcome:
        import cupy

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
        signs = decomposition.signs(model.components_, cupy)
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
        # at hand, since the tags of the estimator rest on it
        return Outcome(model=model, attributes={"_fit_svd_solver": "covariance_eigh"})

    def transform(self, call: Call, model: Any) -> Any:
        """Return the coordinates of X in the components."""
        return self.transform_fitted(call, model, self.matrix(call))

    def transform_fitted(self, call: Call, model: Any, X: Any) -> Any:
        return _projected(call, model, X)

    def inverse_transform(self, call: Call, model: Any) -> Any:
        """Return what has the coordinates X in the components."""
        return _reconstructed(call, model, self.matrix(call))


def _n_components(call: Call, ratio: np.ndarray) -> int | np.integer:
    """Return how many components to keep, as scikit-learn resolves ``n_components``."""
    n = call.parameters["n_components"]
    if n is None:
        return len(ratio)
    if isinstance(n, Integral):
        return int(n)
    enough: np.integer = np.searchsorted(np.cumsum(ratio), n, side="right") + 1
    return min(enough, np.int64(len(ratio)))


def _projected(call: Call, model: Any, X: Any) -> Any:
    """Return the coordinates of X in the components of a kind of PCA."""
    import cupy

    result = X @ model.components_.T
    result -= model.mean_ @ model.components_.T
    if call.parameters["whiten"]:
        scale = cupy.sqrt(model.explained_variance_)
        result /= cupy.maximum(scale, cupy.finfo(scale.dtype).eps)
    return result


def _reconstructed(call: Call, model: Any, X: Any) -> Any:
    """Return what has the coordinates X in the components of a kind of PCA."""
    import cupy

    components = model.components_
    if call.parameters["whiten"]:
        components = cupy.sqrt(model.explained_variance_)[:, None] * components
    return X @ components + model.mean_


class _IncrementalPCAOnCupy(CupyEngine):
    """scikit-learn's steps from batch to batch, each in float64."""

    methods = ("fit", "fit_transform", "partial_fit", "transform", "inverse_transform")
    min_rows = 2
    state = (
        "components_",
        "singular_values_",
        "mean_",
        "var_",
        "explained_variance_",
        "explained_variance_ratio_",
        "noise_variance_",
        "n_samples_seen_",
        "n_components_",
    )
    rules = (
        refuse(
            Invalid("more components than X has"),
            lambda call: (
                (call.parameters["n_components"] or 0)
                > (call.X.shape[-1] if call.continues else min(call.X.shape, default=0))
            ),
        ),
        refuse(
            Invalid("fit takes X alone"),
            lambda call: set(call.arguments) - {"X", "y", "check_input"},
        ),
        # scikit-learn's own fit does that, on an estimator that is fitted halfway
        refuse("check_input=False", lambda call: call.arguments.get("check_input") is False),
        _COORDINATES,
    )

    def fit(self, call: Call, X: Any) -> Outcome:
        batch_size = call.parameters["batch_size"] or 5 * X.shape[1]
        n_components = call.parameters["n_components"]
        model = None
        batches = [*gen_batches(len(X), batch_size, min_batch_size=n_components or 0)]
        for batch in batches:
            model = self._step(call, model, X[batch].astype(np.float64))
        assert model is not None
        model.batch_size_ = batch_size
        return Outcome(model=self._as_scikit_learn(model, X.dtype if len(batches) == 1 else None))

    def partial_fit(self, call: Call, model: Any) -> Outcome:
        X = self.matrix(call)
        after = self._step(call, model, X.astype(np.float64))
        after = self._as_scikit_learn(after, X.dtype if model is None else None)
        if hasattr(call.estimator, "batch_size_"):
            after.batch_size_ = call.estimator.batch_size_
        return Outcome(model=after)

    def _step(self, call: Call, before: Any, X: Any) -> SimpleNamespace:
        """Return what `before` and the rows of X come to."""
        import cupy

        n = call.parameters["n_components"]
        if before is None:
            n = min(X.shape) if n is None else n
            if n > len(X):
                raise Refusal("more components than rows in the first batch")
        else:
            n = before.n_components_ if n is None else n
            if n != len(before.components_):
                raise Refusal(Invalid("n_components has changed"))
        after = decomposition.incremental_pca(before, X, n, cupy)
        if not bool(cupy.isfinite(after.explained_variance_ratio_).all()):
            raise Refusal("X has no variance, or too much")
        return after

    def _as_scikit_learn(self, model: SimpleNamespace, dtype: Any) -> SimpleNamespace:
        """Return `model` in scikit-learn's dtypes; after one batch the components keep X's."""
        model.n_samples_seen_ = _count_type()(model.n_samples_seen_)
        if dtype is not None:
            model.components_ = model.components_.astype(dtype)
            model.singular_values_ = model.singular_values_.astype(dtype)
        return model

    def transform(self, call: Call, model: Any) -> Any:
        """Return the coordinates of X in the components."""
        return _projected(call, model, self.matrix(call))

    def transform_fitted(self, call: Call, model: Any, X: Any) -> Any:
        return _projected(call, model, X)

    def inverse_transform(self, call: Call, model: Any) -> Any:
        """Return what has the coordinates X in the components."""
        return _reconstructed(call, model, self.matrix(call))


@cache
def _count_type() -> type:
    """Return the type of ``n_samples_seen_``, which depends on scikit-learn's release."""
    counts = _incremental_mean_and_var(np.zeros((1, 1)), 0.0, 0.0, np.zeros(1, np.int64))[2]
    return type(counts[0])


class _TruncatedSVDOnCupy(CupyEngine):
    """Exact in float64 for dense X: both algorithms approximate that.

    For sparse X the randomized algorithm from the directions that scikit-learn draws.
    """

    methods = ("fit", "fit_transform", "transform", "inverse_transform")
    min_rows = 2
    sparse = True
    state = ("components_",)
    rules = (
        inputs.PRECISION,
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
        _COORDINATES,
    )

    #: Below this share of the largest singular value a component is made of rounding errors.
    _well_posed = 1e-8

    def matrix(self, call: Call) -> Any:
        return inputs.sparse_matrix(call) if call.X.kind == "sparse" else super().matrix(call)

    def fit(self, call: Call, X: Any) -> Outcome:
        import cupy

        rows = X if call.X.kind == "sparse" else X.astype(np.float64, copy=False)
        values, vectors = self._decomposed(call, rows)
        variance = (rows @ vectors.T).var(axis=0)
        ratio = variance / self._total_variance(call, rows)
        well_posed = (values[-1] > self._well_posed * values[0]) & cupy.isfinite(ratio).all()
        if not bool(well_posed):
            raise Refusal("X has fewer components than asked for, or no variance")
        found = {
            "components_": vectors,
            "explained_variance_": variance,
            "explained_variance_ratio_": ratio,
            "singular_values_": values,
        }
        dtype = np.float32 if call.X.dtype == np.float32 else np.float64
        return Outcome(
            model=SimpleNamespace(**{name: a.astype(dtype) for name, a in found.items()})
        )

    def _decomposed(self, call: Call, X: Any) -> decomposition.Singular:
        import cupy

        n_components = int(call.parameters["n_components"])
        if call.X.kind != "sparse":
            return decomposition.truncated_svd(X, n_components, cupy)
        random_state = check_random_state(call.parameters["random_state"])
        n_directions = n_components + call.parameters["n_oversamples"]
        start = to_device(random_state.normal(size=(min(X.shape), n_directions)))
        return decomposition.randomized_svd(X, n_components, start, call.parameters["n_iter"], cupy)

    def _total_variance(self, call: Call, X: Any) -> Any:
        if call.X.kind != "sparse":
            return X.var(axis=0).sum()
        import cupy

        mean = X.T @ cupy.ones(X.shape[0]) / X.shape[0]
        return (X.data**2).sum() / X.shape[0] - (mean**2).sum()

    def transform(self, call: Call, model: Any) -> Any:
        """Return the coordinates of X in the components."""
        return self.transform_fitted(call, model, self.matrix(call))

    def transform_fitted(self, call: Call, model: Any, X: Any) -> Any:
        components = model.components_
        if call.X.kind != "sparse":
            return X @ components.T
        product = X @ components.astype(np.float64).T
        return product.astype(np.result_type(call.X.dtype, components.dtype), copy=False)

    def inverse_transform(self, call: Call, model: Any) -> Any:
        """Return what has the coordinates X in the components."""
        return self.matrix(call) @ model.components_


class PCA(Accelerated, _pca.PCA, engines=[_PCAOnCuml()]): ...


class IncrementalPCA(
    Accelerated, _incremental_pca.IncrementalPCA, engines=[_IncrementalPCAOnCupy()]
): ...


class TruncatedSVD(Accelerated, _truncated_svd.TruncatedSVD, engines=[_TruncatedSVDOnCupy()]): ...
