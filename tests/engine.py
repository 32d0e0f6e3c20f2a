"""Estimators of the test-suite's own, with engines on NumPy that do what they are told.

`Line`, `Centering` and `NearestMean` are estimators as anyone could write them, each with an
engine that computes in another way; `AcceleratedLine` and so on are what `accelsk.register` makes
of them. `generic` accelerates any scikit-learn class by an engine that fits a hidden instance of
the original, so that accelsk's own machinery is all that differs from scikit-learn.

Engines count their calls and can be told to refuse, to fail in any way, to be unusable. Their
models hold copies: nothing that happens to the estimator reaches them, as on a device.
"""

from __future__ import annotations

import copy
import functools
import warnings
from collections import Counter
from collections.abc import Iterator
from functools import partial
from numbers import Real
from types import SimpleNamespace
from typing import Any

import numpy as np
from sklearn.base import (
    BaseEstimator,
    ClassifierMixin,
    OneToOneFeatureMixin,
    RegressorMixin,
    TransformerMixin,
)
from sklearn.cluster import KMeans as _KMeans
from sklearn.decomposition import PCA as _PCA
from sklearn.ensemble import RandomForestClassifier as _RandomForestClassifier
from sklearn.linear_model import LinearRegression as _LinearRegression
from sklearn.linear_model import LogisticRegression as _LogisticRegression
from sklearn.linear_model import Ridge as _Ridge
from sklearn.neighbors import KNeighborsClassifier as _KNeighborsClassifier
from sklearn.preprocessing import StandardScaler as _StandardScaler
from sklearn.svm import SVC as _SVC
from sklearn.utils._param_validation import Interval
from sklearn.utils.metaestimators import available_if
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from accelsk import registry
from accelsk.device import probe
from accelsk.engines.base import Call, Engine, Outcome, only
from accelsk.engines.inputs import matrix_refusals
from accelsk.exceptions import Invalid, Refusal


class FakeCudaError(RuntimeError):
    """Reads like what CuPy raises for an error of the CUDA runtime."""


ILLEGAL_ADDRESS = "cudaErrorIllegalAddress: an illegal memory access was encountered"


class ObedientEngine(Engine):
    """An engine on NumPy that does what a test tells it.

    Attributes
    ----------
    off : str or None
        Why it is unusable. A CUDA error makes it so, too.
    refusing : dict of str to str
        The reason to refuse a plan for, by method; ``"*"`` means every method.
    failing : dict of str to exception
        What to raise, by method; also under ``"attributes"`` and ``"restore"``.
    fails_once : bool
        Whether each of these is raised only once.
    counts : Counter
        How often each method ran, and ``"attributes"`` and ``"restore"``.
    """

    name = "test"
    rules = (only("forbidden", False),)

    def __init__(self) -> None:
        self.reset()
        ENGINES.append(self)

    def reset(self) -> None:
        self.off: str | None = None
        self.refusing: dict[str, str] = {}
        self.failing: dict[str, BaseException] = {}
        self.fails_once = False
        self.counts: Counter[str] = Counter()

    def unusable(self) -> str | None:
        return self.off or self.lost

    @property
    def lost(self) -> str | None:
        """Why there is no GPU any more, where one of the engines has lost it."""
        reason = probe._disabled
        return reason if reason is not None and "CUDA error" in reason else None

    def refusals(self, call: Call) -> Iterator[str]:
        yield from super().refusals(call)
        if call.takes_features and (call.X.given or call.fits):
            yield from matrix_refusals(call)
        if (reason := self.refusing.get(call.method, self.refusing.get("*"))) is not None:
            yield reason

    def _step(self, name: str) -> None:
        self.counts[name] += 1
        error = self.failing.get(name)
        if error is not None:
            if self.fails_once:
                del self.failing[name]
            raise error

    def run(self, call: Call, model: Any) -> Outcome:
        self._step(call.method)
        return self.compute(call, model)

    def compute(self, call: Call, model: Any) -> Outcome:
        X = np.array(call.X.array, dtype=np.float64)
        if not np.isfinite(X).all():
            raise Refusal(Invalid("X is not finite"))
        if call.fits:
            return getattr(self, call.method)(call, X)
        return Outcome(getattr(self, call.method)(model, X))

    def attributes(self, estimator: Any, model: Any) -> dict[str, Any]:
        self._step("attributes")
        return copy.deepcopy(vars(model))

    def restore(self, estimator: Any) -> Any:
        self._step("restore")
        return SimpleNamespace(
            **{name: copy.deepcopy(getattr(estimator, name)) for name in self.state}
        )

    state: tuple[str, ...] = ()


#: Every engine there is, so that each test starts with obedient ones.
ENGINES: list[ObedientEngine] = []


# A regressor


def _positive(estimator: Line) -> bool:
    return estimator.shrinkage >= 0


class Line(RegressorMixin, BaseEstimator):
    """Least squares through the origin, shrunk.

    Parameters
    ----------
    shrinkage : float, default=0.0
    forbidden : bool, default=False
        The engine does not run with it.
    """

    _parameter_constraints = {  # noqa: RUF012 - as scikit-learn writes it
        "shrinkage": [Interval(Real, None, None, closed="neither")],
        "forbidden": ["boolean"],
    }

    def __init__(self, shrinkage=0.0, *, forbidden=False):
        self.shrinkage = shrinkage
        self.forbidden = forbidden

    def fit(self, X, y, sample_weight=None):
        """Fit the line."""
        self._validate_params()
        X, y = validate_data(self, X, y, dtype=np.float64, y_numeric=True)
        weight = np.ones(len(X)) if sample_weight is None else np.asarray(sample_weight)
        self.coef_, self.scale_ = self._solve(X, y, weight)
        return self

    def _solve(self, X, y, weight):
        scale = X.T @ (weight[:, None] * X) + self.shrinkage * np.eye(X.shape[1])
        return np.linalg.solve(scale, X.T @ (weight * y)), scale

    def predict(self, X):
        """Predict."""
        check_is_fitted(self)
        X = validate_data(self, X, dtype=np.float64, reset=False)
        return X @ self.coef_

    @available_if(_positive)
    def spread(self, X, *, factor=1.0):
        """Return how far predictions may be off; only where shrinkage is not negative."""
        check_is_fitted(self)
        X = validate_data(self, X, dtype=np.float64, reset=False)
        return factor * np.sqrt((X**2).sum(axis=1))

    @property
    def importances_(self):
        """Squared coefficients."""
        check_is_fitted(self)
        return self.coef_**2


class LineOnNumpy(ObedientEngine):
    methods = ("fit", "predict", "spread")
    state = ("coef_",)

    def fit(self, call: Call, X: np.ndarray) -> Outcome:
        y = np.asarray(call.y.array, dtype=np.float64)
        if y.shape != (len(X),) or not np.isfinite(y).all():
            raise Refusal(Invalid("y has another length or is not finite"))
        given = call.sample_weight
        weight = np.asarray(given.array, np.float64) if given.given else np.ones(len(X))
        scale = np.einsum("ij,i,ik->jk", X, weight, X)
        scale += call.parameters["shrinkage"] * np.eye(X.shape[1])
        coef = np.linalg.solve(scale, np.einsum("ij,i,i->j", X, weight, y))
        return Outcome(model=SimpleNamespace(coef_=coef, scale_=scale))

    def predict(self, model: Any, X: np.ndarray) -> np.ndarray:
        return np.einsum("ij,j->i", X, model.coef_)

    def compute(self, call: Call, model: Any) -> Outcome:
        if call.method == "spread":
            X = np.asarray(call.X.array, np.float64)
            return Outcome(call.arguments["factor"] * np.sqrt(np.einsum("ij,ij->i", X, X)))
        return super().compute(call, model)


# A transformer


class Centering(OneToOneFeatureMixin, TransformerMixin, BaseEstimator):
    """Takes the mean of each column away.

    Parameters
    ----------
    factor : float, default=1.0
    """

    def __init__(self, factor=1.0):
        self.factor = factor

    def fit(self, X, y=None):
        """Find the means."""
        self.mean_ = validate_data(self, X, dtype=np.float64).mean(axis=0)
        return self

    def transform(self, X):
        """Take them away."""
        check_is_fitted(self)
        return (validate_data(self, X, dtype=np.float64, reset=False) - self.mean_) * self.factor


class CenteringOnNumpy(ObedientEngine):
    methods = ("fit", "transform")
    state = ("mean_",)

    def fit(self, call: Call, X: np.ndarray) -> Outcome:
        return Outcome(model=SimpleNamespace(mean_=X.sum(axis=0) / len(X)))

    def compute(self, call: Call, model: Any) -> Outcome:
        outcome = super().compute(call, model)
        if call.method == "transform":
            outcome.result *= call.parameters["factor"]
        return outcome

    def transform(self, model: Any, X: np.ndarray) -> np.ndarray:
        return X - model.mean_


# A classifier


class NearestMean(ClassifierMixin, BaseEstimator):
    """Predicts the class whose mean is nearest."""

    def fit(self, X, y):
        """Find the means."""
        X, y = validate_data(self, X, y, dtype=np.float64)
        check_classification_targets(y)
        self.classes_, codes = np.unique(y, return_inverse=True)
        self.means_ = np.array([X[codes == c].mean(axis=0) for c in range(len(self.classes_))])
        return self

    def predict(self, X):
        """Return the class whose mean is nearest."""
        check_is_fitted(self)
        X = validate_data(self, X, dtype=np.float64, reset=False)
        return self.classes_[((X[:, None] - self.means_) ** 2).sum(axis=2).argmin(axis=1)]


class NearestMeanOnNumpy(ObedientEngine):
    methods = ("fit", "predict")
    state = ("means_",)

    def compute(self, call: Call, model: Any) -> Outcome:
        outcome = super().compute(call, model)
        if not call.fits:
            outcome.result = call.estimator.classes_[outcome.result]
        return outcome

    def fit(self, call: Call, X: np.ndarray) -> Outcome:
        classes, codes = np.unique(call.y.array, return_inverse=True)
        means = np.array([X[codes == c].mean(axis=0) for c in range(len(classes))])
        # classes_ is at hand at once, means_ is fetched later
        return Outcome(model=SimpleNamespace(means_=means), attributes={"classes_": classes})

    def predict(self, model: Any, X: np.ndarray) -> np.ndarray:
        return ((X[:, None] - model.means_) ** 2).sum(axis=2).argmin(axis=1)


# Any class of scikit-learn's

_METHODS = (
    "fit",
    "fit_predict",
    "fit_transform",
    "predict",
    "predict_proba",
    "decision_function",
    "transform",
    "inverse_transform",
    "kneighbors",
    "score",
)


class GenericEngine(ObedientEngine):
    """Computes by a hidden instance of the original. Its warnings are announced afterwards."""

    rules = ()

    def __init__(self, original: type) -> None:
        super().__init__()
        self.original = original
        #: Whether the original takes X in the dtype in which NumPy reads it.
        self.any_dtype = original in (_KNeighborsClassifier, _LinearRegression)
        self.methods = tuple(name for name in _METHODS if hasattr(original, name))

    def compute(self, call: Call, model: Any) -> Outcome:
        arguments = dict(call.arguments)
        if call.X.given:
            # in the layout that the original would see: the last digit may hang on it
            if call.X.narrow and not self.any_dtype:
                raise Refusal("nobody knows whether the original sees that X is float32")
            dtype = None if self.any_dtype else call.X.dtype
            arguments["X"] = np.array(arguments["X"], dtype=dtype)
        for name in ("y", "sample_weight"):
            if call.argument(name).kind not in ("none", "scalar", "other"):
                arguments[name] = np.array(call.argument(name).array)
        plain = self.original(**call.parameters) if call.fits else model
        try:
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                result = getattr(plain, call.method)(**arguments)
        except Exception as error:
            raise Refusal(Invalid(f"the original raised {type(error).__name__}")) from error
        announce = [partial(_warn, w.message, w.category) for w in caught]
        if call.fits:
            return Outcome(None if result is plain else result, plain, announce=announce)
        return Outcome(result, announce=announce)

    def attributes(self, estimator: Any, model: Any) -> dict[str, Any]:
        self._step("attributes")
        own = copy.deepcopy(vars(model))
        return {name: own[name] for name in own if name not in estimator.get_params(deep=False)}

    def restore(self, estimator: Any) -> Any:
        self._step("restore")
        plain = copy.deepcopy(registry.to_sklearn(estimator))
        vars(plain).pop("feature_names_in_", None)  # it sees arrays only
        return plain


def _warn(message: Warning | str, category: type[Warning]) -> None:
    warnings.warn(message, category, stacklevel=2)


def generic(original: type) -> Any:
    """Return an accelerated class of `original` on a `GenericEngine`; this module holds it."""
    name = original.__name__
    if name in globals():  # of another package
        name = original.__module__.partition(".")[0].title() + name
    cls = registry.register(original, [GenericEngine(original)], name=name, module=__name__)
    globals()[name] = cls
    return cls


@functools.cache
def generic_of(original: type) -> Any:
    """Return the class of `generic`, made once; the registry is left as it was."""
    if original in GENERIC:
        return GENERIC[original]
    before = dict(registry._classes)
    try:
        return generic(original)
    finally:
        registry._classes.clear()
        registry._classes.update(before)


def engine_of(estimator_or_class: Any) -> Any:
    """Return the engine of an accelerated estimator or class."""
    return estimator_or_class._accelsk_engines[0]


# The registry maps scikit-learn's classes to accelsk's own: what is made here does not stay in it

_before = dict(registry._classes)

AcceleratedLine: Any = registry.register(Line, [LineOnNumpy()], name="AcceleratedLine")
AcceleratedCentering: Any = registry.register(
    Centering, [CenteringOnNumpy()], name="AcceleratedCentering"
)
AcceleratedNearestMean: Any = registry.register(
    NearestMean, [NearestMeanOnNumpy()], name="AcceleratedNearestMean"
)

#: Accelerated classes of scikit-learn's, on the generic engine, by original.
GENERIC: dict[type, Any] = {
    original: generic(original)
    for original in (
        _KMeans,
        _KNeighborsClassifier,
        _LinearRegression,
        _LogisticRegression,
        _PCA,
        _RandomForestClassifier,
        _Ridge,
        _StandardScaler,
        _SVC,
    )
}

REGISTERED: dict[type, Any] = {
    Line: AcceleratedLine,
    Centering: AcceleratedCentering,
    NearestMean: AcceleratedNearestMean,
    **GENERIC,
}

registry._classes.clear()
registry._classes.update(_before)
