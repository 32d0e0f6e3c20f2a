"""The engine for linear discriminant analysis."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis

from accelsk._by_class import coded_blocks
from accelsk._discriminant import DiscriminantOnMoments, Parted, groups, parted, shrunk
from accelsk._projections import adopted, dtype_of, gram_of
from accelsk.algorithms import discriminant
from accelsk.algorithms.covariance import shrunk as shrunk_covariance
from accelsk.algorithms.discriminant import Groups, Linear, UnclearError
from accelsk.device.transfer import to_device, to_host
from accelsk.engines import inputs
from accelsk.engines.base import Call, Outcome, refuse
from accelsk.engines.moments import mapped
from accelsk.exceptions import Invalid, Refusal

__all__ = ["LinearDiscriminantOnMoments"]


@cache
def _unbiased() -> bool:
    """Whether the installed scikit-learn divides the scatter by the degrees of freedom."""
    X = np.array([[0.0], [2.0], [10.0], [12.0]])
    fitted = LinearDiscriminantAnalysis().fit(X, [0, 0, 1, 1])
    return not np.isclose(abs(fitted.scalings_[0, 0]), 1.0)


class LinearDiscriminantOnMoments(DiscriminantOnMoments):
    """The pooled covariance of the classes; labels stay on the host."""

    methods = (*DiscriminantOnMoments.methods, "fit_transform", "transform")
    state = ("coef_", "intercept_")
    rules = (
        *DiscriminantOnMoments.rules,
        refuse(
            Invalid("solver='lsqr' does not transform"),
            lambda call: "transform" in call.method and call.parameters["solver"] == "lsqr",
            fit_only=False,
        ),
        refuse("more features than rows", lambda call: call.X.shape[-1:] > call.X.shape[:1]),
    )

    def fit(self, call: Call, X: Any) -> Outcome:
        codes, classes = inputs.labels(call)
        classes = inputs.listed(classes)
        n_samples, n_features = call.X.shape
        if n_samples == len(classes):
            raise Refusal(Invalid("there are as many classes as rows"))
        most = min(len(classes) - 1, n_features)
        n_components = call.parameters["n_components"] or most
        if n_components > most:
            raise Refusal(Invalid("n_components is too large"))
        dtype = dtype_of(call)
        try:
            found, priors, attributes = self._solved(call, codes, len(classes), n_components)
        except UnclearError as error:
            raise Refusal(str(error)) from None
        if not (np.isfinite(found.coef).all() and np.isfinite(found.intercept).all()):
            raise Refusal("the coefficients are not finite")
        exact = dtype if call.parameters["solver"] == "svd" else np.float64
        coef, intercept = found.coef.astype(exact), found.intercept.astype(exact)
        if len(classes) == 2:
            coef = (found.coef[1] - found.coef[0]).astype(dtype).reshape(1, -1)
            intercept = (found.intercept[1] - found.intercept[0]).astype(dtype).reshape(1)
        attributes |= {name: value.astype(exact) for name, value in found.extra.items()}
        attributes |= {
            "classes_": classes,
            "coef_": coef,
            "intercept_": intercept,
            "priors_": priors.astype(dtype),
            "_max_components": n_components,
            "_n_features_out": n_components,
        }
        return adopted(attributes, self.state)

    def _solved(
        self, call: Call, codes: Any, n_classes: int, n_components: int
    ) -> tuple[Linear, np.ndarray, dict[str, Any]]:
        """Return the solution, the priors, and attributes in their own dtypes."""
        solver, given = call.parameters["solver"], call.parameters["priors"]
        stored = solver != "svd" or call.parameters["store_covariance"]
        # with the shares of the classes for priors, what is pooled is the covariance
        apart = stored and (given is not None or call.parameters["shrinkage"] == "auto")
        of_classes = parted(call, codes, n_classes) if apart else None
        together = groups(call, codes, n_classes) if of_classes is None else of_classes.together
        if stored and together.counts.min() < 2:
            raise Refusal("a class has one row, of whose covariance scikit-learn warns")
        priors = _priors(call, together)
        attributes: dict[str, Any] = {"means_": together.means.astype(dtype_of(call))}
        if stored:
            pooled, total = _covariances(call, codes, together, of_classes, priors)
            attributes["covariance_"] = pooled
        if solver == "lsqr":
            found = discriminant.linear_by_least_squares(together, priors, pooled)
        elif solver == "eigen":
            found = discriminant.linear_by_eigenvectors(
                together, priors, pooled, total, n_components
            )
        else:
            found = _by_svd(call, codes, together, priors, n_components)
        return found, priors, attributes

    def scores(self, call: Call, model: Any) -> Callable[[Any], Any]:
        dtype = np.result_type(call.X.dtype, model.coef_.dtype, model.intercept_.dtype)
        right, shift = model.coef_.astype(np.float64).T, model.intercept_.astype(np.float64)

        def decision(X: Any) -> Any:
            found = (X.astype(np.float64, copy=False) @ right + shift).astype(dtype, copy=False)
            return found[:, 0] if found.shape[1] == 1 else found

        return decision

    def predict_proba(self, call: Call, model: Any) -> Any:
        """Return the probabilities of the classes."""
        return mapped(call, self._probabilities(call, model))

    def predict_log_proba(self, call: Call, model: Any) -> Any:
        """Return the logarithms of the probabilities, in which none is zero."""
        import cupy

        probabilities = self._probabilities(call, model)

        def logarithms(X: Any) -> Any:
            found = probabilities(X)
            least = float(np.finfo(found.dtype).smallest_normal)
            return cupy.log(cupy.where(found == 0, found.dtype.type(least), found))

        return mapped(call, logarithms)

    def _probabilities(self, call: Call, model: Any) -> Callable[[Any], Any]:
        import cupy

        scores = self.scores(call, model)

        def probabilities(X: Any) -> Any:
            found = scores(X)
            if found.ndim == 1:
                small = cupy.exp(-cupy.abs(found))  # no overflow on either side
                second = cupy.where(found >= 0, 1.0, small) / (1.0 + small)
                second = second.astype(found.dtype, copy=False)
                return cupy.stack([1 - second, second], axis=1)
            found = cupy.exp(found - found.max(axis=1, keepdims=True))
            return found / found.sum(axis=1, keepdims=True)

        return probabilities

    def transform(self, call: Call, model: Any) -> Any:
        """Return the rows projected onto the directions that part the classes best."""
        est = call.estimator if not call.fits else model
        scalings, n_components = est.scalings_, est._max_components
        dtype = np.result_type(call.X.dtype, scalings.dtype)
        right = to_device(to_host(scalings)[:, :n_components], np.float64)
        centre: Any = 0.0
        if call.parameters["solver"] == "svd":
            dtype = np.result_type(dtype, est.xbar_.dtype)
            centre = to_device(to_host(est.xbar_), np.float64)

        def projected(X: Any) -> Any:
            return ((X.astype(np.float64) - centre) @ right).astype(dtype, copy=False)

        return mapped(call, projected)


def _priors(call: Call, together: Groups) -> np.ndarray:
    """Return the priors in float64."""
    given = call.parameters["priors"]
    if given is None:
        return together.counts / together.n_samples
    priors = np.asarray(to_host(given))
    if priors.shape != together.counts.shape or priors.dtype.kind not in "biuf":
        raise Refusal(Invalid("priors are not one number for each class"))
    if not (priors >= 0).all():
        raise Refusal(Invalid("priors are negative"))
    if not (np.abs(priors.sum() - 1.0) < 0.9e-5 and (priors > 0).all()):
        raise Refusal(
            "priors do not sum to 1, or one is zero, of which scikit-learn or NumPy warns"
        )
    return priors.astype(dtype_of(call)).astype(np.float64)


def _covariances(
    call: Call, codes: Any, together: Groups, of_classes: Parted | None, priors: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return the covariance within classes, weighted by priors, and that of all rows."""
    if of_classes is not None:
        found = shrunk(call, codes, of_classes)
        return np.tensordot(priors, np.array(found.by_class), axes=1), found.total
    matrices = [together.within / together.n_samples, together.total() / together.n_samples]
    if call.parameters["shrinkage"] is not None:
        shrinkage = float(call.parameters["shrinkage"])
        matrices = [shrunk_covariance(matrix, shrinkage, np) for matrix in matrices]
    return matrices[0], matrices[1]


def _by_svd(
    call: Call, codes: Any, together: Groups, priors: np.ndarray, n_components: int
) -> Linear:
    import cupy

    # features that vary within classes only by rounding errors
    spread = np.diagonal(together.within)
    apart = (together.means - together.mean) ** 2
    if ((spread > 0) & (spread < 1e-20 * (together.counts @ apart))).any():
        raise Refusal("a feature is all but constant within classes")
    means = to_device(together.means)

    def again(right: Any) -> Any:
        right = to_device(right)
        passed = coded_blocks(call, codes)
        return gram_of(((block.X - means[block.Y]) @ right for block in passed), right.shape[1])

    return discriminant.linear_by_svd(
        together,
        priors,
        tol=call.parameters["tol"],
        n_components=n_components,
        unbiased=_unbiased(),
        again=again,
        xp=cupy,
    )
