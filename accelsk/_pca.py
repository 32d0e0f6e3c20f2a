"""The engine for PCA."""

from __future__ import annotations

from numbers import Integral
from typing import Any, NamedTuple

import numpy as np
from sklearn.utils.extmath import fast_logdet

from accelsk._projections import (
    COORDINATES,
    UNCONVERTED,
    adopted,
    dtype_of,
    gram_again,
    kept_on_device,
    projected,
    random_start,
    reconstructed,
    whole,
)
from accelsk.algorithms import decomposition, spectra
from accelsk.device.transfer import to_device, to_host
from accelsk.engines.base import Call, Outcome, refuse
from accelsk.engines.moments import MomentsEngine, mapped, moments
from accelsk.exceptions import Invalid, Refusal

__all__ = ["PCAOnMoments"]


def _solver(call: Call) -> str:
    """Return the solver that scikit-learn would choose."""
    solver: str = call.parameters["svd_solver"]
    if solver != "auto":
        return solver
    (n_samples, n_features), n = call.X.shape, call.parameters["n_components"]
    if n_features <= 1000 and n_samples >= 10 * n_features:
        return "covariance_eigh"
    if max(n_samples, n_features) <= 500 or n == "mle":
        return "full"
    n = min(n_samples, n_features) if n is None else n
    return "randomized" if 1 <= n < 0.8 * min(n_samples, n_features) else "full"


def _too_many_components(call: Call) -> bool:
    n = call.parameters["n_components"]
    limit = min(call.X.shape, default=0) - (call.parameters["svd_solver"] == "arpack")
    return isinstance(n, Integral) and n > limit


class _Found(NamedTuple):
    """What a decomposition of the centred rows comes to, in float64.

    Attributes
    ----------
    mean : ndarray of shape (n_features,)
    values : array
        The singular values, descending: all of them, or those that are kept.
    vectors : array
        As many right singular vectors as rows.
    total : float
        The sum of squares of all singular values.
    """

    mean: Any
    values: Any
    vectors: Any
    total: float


class PCAOnMoments(MomentsEngine):
    """Exact, from the covariance, for every solver: the others approximate that.

    Only of very many columns and rows is it randomized, if that is the solver.

    Where the covariance does not resolve what an SVD of X would, X is passed over once more.
    """

    methods = (
        "fit",
        "fit_transform",
        "transform",
        "inverse_transform",
        "score_samples",
        "score",
    )
    min_rows = 2
    state = ("components_", "explained_variance_", "mean_")
    rules = (
        refuse(Invalid("more components than X has"), _too_many_components),
        refuse(
            Invalid("n_components without a number for svd_solver='arpack' or 'randomized'"),
            lambda call: (
                call.parameters["svd_solver"] in ("arpack", "randomized")
                and isinstance(call.parameters["n_components"], (str, float))
            ),
        ),
        refuse(
            Invalid("n_components=0 with svd_solver='arpack' or 'randomized'"),
            lambda call: (
                call.parameters["svd_solver"] in ("arpack", "randomized")
                and call.parameters["n_components"] == 0
            ),
        ),
        refuse(
            Invalid("n_components='mle' with more features than rows"),
            lambda call: (
                call.parameters["n_components"] == "mle" and call.X.shape[-1:] > call.X.shape[:1]
            ),
        ),
        refuse(
            Invalid("svd_solver='arpack' with one feature"),
            lambda call: call.parameters["svd_solver"] == "arpack" and 1 in call.X.shape,
        ),
        COORDINATES,
        UNCONVERTED,
    )

    #: Below this share of the largest singular value a component is made of rounding errors.
    _well_posed = 1e-12

    #: From this many rows for each column on, the Gram matrix of the columns is the way.
    _tall = 2

    def run_fit(self, call: Call) -> Outcome:
        if call.method == "fit_transform":  # two passes over X, which is sent once
            call = kept_on_device(call)
        return super().run_fit(call)

    def fit(self, call: Call, X: Any) -> Outcome:
        solver, n = _solver(call), call.parameters["n_components"]
        n_samples, n_features = call.X.shape
        if n is None:
            n = min(n_samples, n_features) - (solver == "arpack")
        kept = n if isinstance(n, Integral) else None
        exact = solver != "covariance_eigh"
        if solver == "randomized" and min(call.X.shape) > decomposition.MOST_EXACT:
            found = self._approximated(call, n)
        elif n_samples >= self._tall * n_features:
            found = self._from_covariance(call, kept, exact=exact)
        else:
            found = self._from_rows(call, kept, exact=exact)
        if not 0 < found.total < np.inf:
            raise Refusal("X has no variance, or too much")
        return self._outcome(call, found, solver, n)

    def _from_covariance(self, call: Call, kept: Any, *, exact: bool) -> _Found:
        import cupy

        small = call.X.shape[1] <= spectra.HOST_SIZE
        of_rows = moments(call, target=False, host=small)
        mean = of_rows.X_mean
        singular = spectra.from_gram(
            of_rows.gram,
            kept,
            cupy,
            least=self._well_posed if exact else None,
            again=lambda right: gram_again(call, mean, right),
        )
        return _Found(to_host(mean), *singular, float(of_rows.gram.trace()))

    def _from_rows(self, call: Call, kept: Any, *, exact: bool) -> _Found:
        """Decompose the rows themselves: there are not many more than columns, or fewer."""
        import cupy

        rows = whole(self, call)
        mean = rows.mean(axis=0)
        rows -= mean
        singular = decomposition.short_svd(
            rows, kept, cupy, centred=True, least=self._well_posed if exact else None
        )
        return _Found(to_host(mean), *singular, float((rows * rows).sum()))

    def _approximated(self, call: Call, kept: int) -> _Found:
        """Take the steps of scikit-learn's randomized solver from the same start."""
        import cupy

        rows = whole(self, call)
        mean = rows.mean(axis=0)
        rows -= mean
        n_iter = call.parameters["iterated_power"]
        if n_iter == "auto":
            n_iter = 7 if kept < 0.1 * min(rows.shape) else 4
        singular = decomposition.randomized_svd(rows, kept, random_start(call, kept), n_iter, cupy)
        return _Found(to_host(mean), *singular, float((rows * rows).sum()))

    def _outcome(self, call: Call, found: _Found, solver: str, n: Any) -> Outcome:
        import cupy

        n_samples, n_features = call.X.shape
        values = to_host(found.values)
        variance = values**2 / (n_samples - 1)
        total = found.total / (n_samples - 1)
        n = _n_components(n, variance, total, n_samples)
        if solver == "full":
            self._check(values, n, n_samples)
        # scikit-learn counts those, too, that are zero for want of rows
        n_values = n_features if solver == "covariance_eigh" else min(n_samples, n_features)
        dtype = dtype_of(call)
        noise: Any = 0.0
        if n < min(n_samples, n_features):
            noise = dtype.type(max(0.0, total - variance[:n].sum()) / (n_values - n))
        vectors = found.vectors[:n]
        vectors = vectors * decomposition.signs(vectors, cupy.get_array_module(vectors))
        attributes = {
            "components_": vectors,
            "explained_variance_": variance[:n],
            "explained_variance_ratio_": variance[:n] / total,
            "singular_values_": values[:n],
            "mean_": found.mean,
        }
        return adopted(
            {
                **{name: value.astype(dtype) for name, value in attributes.items()},
                "noise_variance_": noise,
                "n_components_": n,
                "n_samples_": n_samples,
                "_fit_svd_solver": solver,
            },
            self.state,
        )

    def _check(self, values: np.ndarray, n: Any, n_samples: int) -> None:
        """Refuse what would be made of rounding errors, but for what centring takes away."""
        last = min(int(n), n_samples - 1) - 1
        if last >= 0 and not values[last] > self._well_posed * values[0]:
            raise Refusal("X is nearly rank-deficient")

    def transform(self, call: Call, model: Any) -> Any:
        """Return the coordinates of X in the components."""
        return projected(call, model, whiten=call.parameters["whiten"])

    def inverse_transform(self, call: Call, model: Any) -> Any:
        """Return what has the coordinates X in the components."""
        return reconstructed(call, model, whiten=call.parameters["whiten"])

    def score_samples(self, call: Call, model: Any) -> Any:
        """Return the log-likelihood of each row."""
        precision = call.estimator.get_precision()
        n_features = len(precision)
        constant = n_features * np.log(2.0 * np.pi) - float(fast_logdet(precision))
        dtype = np.result_type(dtype_of(call), model.mean_.dtype, precision.dtype)
        mean, inverse = model.mean_.astype(np.float64), to_device(precision, np.float64)

        def log_likelihood(X: Any) -> Any:
            apart = X - mean
            return (-0.5 * (((apart @ inverse) * apart).sum(axis=1) + constant)).astype(dtype)

        return mapped(call, log_likelihood)

    def score(self, call: Call, model: Any) -> float:
        """Return the mean log-likelihood."""
        return float(self.score_samples(call, model).mean())


def _n_components(n: Any, variance: np.ndarray, total: float, n_samples: int) -> Any:
    """Return how many components to keep, as scikit-learn resolves ``n_components``."""
    if n == "mle":
        return np.int64(decomposition.likeliest_dimension(variance, n_samples))
    if isinstance(n, Integral):
        return n
    enough: np.integer = np.searchsorted(np.cumsum(variance / total), n, side="right") + 1
    return min(enough, np.int64(len(variance)))
