"""cuML as an engine, through the methods that its classes offer for the purpose.

Every cuML class with a counterpart in scikit-learn knows how to take hyperparameters and fitted
attributes from it and how to give attributes back (``InteropMixin``). `CumlEngine` rests on
those, so that an estimator on cuML is a declaration: the class, the methods, what keeps a call
off it. Class labels are coded here rather than in cuML, so that labels of any type come back as
they went in.

cuML is imported at the first call, never before.
"""

from __future__ import annotations

import importlib
import logging
import sys
from types import ModuleType
from typing import Any, ClassVar

import numpy as np

from accelsk import versions
from accelsk._locks import Lock
from accelsk.device.transfer import to_host
from accelsk.engines import inputs
from accelsk.engines.base import Call, Outcome, Rule
from accelsk.engines.on_device import (
    DeviceClassifier,
    DeviceEngine,
    determination,
    import_cupy,
)
from accelsk.exceptions import Refusal

__all__ = ["CumlClassifier", "CumlEngine", "CumlRegressor", "broken", "import_cuml"]

logger = logging.getLogger("accelsk")

#: cuML's ``verbose`` is subtracted from its highest log level, 6, which is "off"; False is not 0.
_SILENT = 0

_import_lock = Lock()

#: Why cuML cannot be imported in this process. It costs no engine on CuPy its GPU.
_broken: str | None = None


def broken() -> str | None:
    """Return why cuML cannot be imported in this process; None where it can or was not tried."""
    return _broken


def import_cuml() -> None:
    """Import cuML and leave CuPy's allocator, which that import replaces, as it was."""
    global _broken
    with _import_lock:
        if _broken is not None:
            raise Refusal(_broken)
        if "cuml" not in sys.modules:
            import_cupy()
        try:
            version = _imported().__version__
        except Exception as error:
            _broken = f"cuML could not be imported ({type(error).__name__}: {error})"
            logger.warning("%s", _broken)
            raise Refusal(_broken) from error
        versions.check("cuml", version)


def _imported() -> ModuleType:
    if "cuml" in sys.modules:
        return importlib.import_module("cuml")  # waits for another thread that is at it
    import cupy

    allocator = cupy.cuda.get_allocator()
    try:
        return importlib.import_module("cuml")
    finally:
        cupy.cuda.set_allocator(allocator)


class _Silence:
    """Keeps cuML's own log lines off standard output while any thread is inside."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._inside = 0
        self._level: Any = None

    def __enter__(self) -> None:
        from cuml.internals import logger as cuml_logger

        with self._lock:
            if self._inside == 0:
                self._level = cuml_logger.get_level()
                cuml_logger.set_level(cuml_logger.level_enum.off)
            self._inside += 1

    def __exit__(self, *_: object) -> None:
        from cuml.internals import logger as cuml_logger

        with self._lock:
            self._inside -= 1
            if self._inside == 0:
                cuml_logger.set_level(self._level)


_silence = _Silence()


class CumlEngine(DeviceEngine):
    """One estimator on cuML.

    A method that the engine does not define itself is the cuML model's.

    Attributes
    ----------
    path : str
        The cuML class below ``cuml``, such as ``"linear_model.Ridge"``.
    """

    name = "cuml"
    path: str

    _missing: str | None = None
    _loaded: ClassVar[dict[str, Any]] = {}

    def unusable(self) -> str | None:
        return super().unusable() or _broken or self._missing

    def load(self) -> None:
        _ = self.model_class

    @property
    def model_class(self) -> Any:
        """The cuML class. A release that lacks it costs this estimator its GPU, no other."""
        if self.path not in self._loaded:
            import_cuml()
            module, _, name = f"cuml.{self.path}".rpartition(".")
            try:
                self._loaded[self.path] = getattr(importlib.import_module(module), name)
            except (ImportError, AttributeError):
                self._missing = f"the installed cuML has no {self.path}"
                raise Refusal(self._missing) from None
        return self._loaded[self.path]

    # Do it

    def run(self, call: Call, model: Any) -> Outcome:
        self.load()
        with _silence:
            if call.fits or hasattr(self, call.method):
                return super().run(call, model)
            return Outcome(getattr(model, call.method)(self.matrix(call)))

    def parameters(self, call: Call) -> dict[str, Any]:
        """Return the hyperparameters of the cuML model."""
        return self._parameters_of(call.estimator)

    def _parameters_of(self, estimator: Any) -> dict[str, Any]:
        from cuml.internals.interop import UnsupportedOnGPU

        try:
            return self.model_class._params_from_cpu(estimator)
        except UnsupportedOnGPU as error:
            raise Refusal(f"cuML does not support it: {error}") from None

    def new_model(self, **parameters: Any) -> Any:
        """Return an unfitted cuML model that answers in CuPy arrays and prints nothing."""
        return self.model_class(**parameters, output_type="cupy", verbose=_SILENT)

    def fit(self, call: Call, X: Any) -> Outcome:
        model = self.new_model(**self.parameters(call))
        model.fit(X, **self.fit_arguments(call, X))
        return Outcome(model=model)

    def fit_arguments(self, call: Call, X: Any) -> dict[str, Any]:
        """Return the arguments of cuML's ``fit`` beside X."""
        weight = inputs.weights(call, X.dtype)
        return {} if weight is None else {"sample_weight": weight}

    def transform_fitted(self, call: Call, model: Any, X: Any) -> Any:
        return model.transform(X)

    # Take over

    def attributes(self, estimator: Any, model: Any) -> dict[str, Any]:
        parameters = estimator.get_params(deep=False)
        plain = estimator._accelsk_original(**parameters)
        with _silence:
            model._sync_attrs_to_cpu(plain)
        return {name: value for name, value in vars(plain).items() if name not in parameters}

    def restored_parameters(self, estimator: Any) -> dict[str, Any]:
        """Return the hyperparameters that matter to methods of a model fitted elsewhere."""
        return self._parameters_of(estimator)

    def restore(self, estimator: Any) -> Any:
        self.load()
        from cuml.internals.interop import UnsupportedOnGPU

        model = self.new_model(**self.restored_parameters(estimator))
        try:
            with _silence:
                model._sync_attrs_from_cpu(estimator)
        except UnsupportedOnGPU as error:
            raise Refusal(f"cuML cannot hold this model: {error}") from None
        return model


class CumlRegressor(CumlEngine):
    """A regressor on cuML.

    Attributes
    ----------
    outputs : bool
        Whether ``y`` may have several columns.
    """

    outputs: bool = False

    def every_rule(self) -> tuple[Rule, ...]:
        return (*super().every_rule(), inputs.target_rule(outputs=self.outputs))

    def fit_arguments(self, call: Call, X: Any) -> dict[str, Any]:
        return {"y": inputs.target(call, X.dtype), **super().fit_arguments(call, X)}

    def predict(self, call: Call, model: Any) -> Any:
        """Return predictions of scikit-learn's dtype."""
        return model.predict(self.matrix(call))

    def score(self, call: Call, model: Any) -> float:
        """Return the coefficient of determination; the predictions come from the device."""
        return determination(call, self.predict(call, model))


class CumlClassifier(DeviceClassifier, CumlEngine):
    """A classifier on cuML. The model knows codes only; the labels stay with the estimator."""

    def fit(self, call: Call, X: Any) -> Outcome:
        codes, classes = inputs.labels(call)
        by_class = self.weight_by_class(call, codes, classes)
        model = self.new_model(**self.parameters(call))
        model.fit(X, codes, sample_weight=self.row_weights(call, X, codes, by_class))
        model.accelsk_class_weight = to_host(by_class)
        return Outcome(model=model, attributes={"classes_": classes})

    def predict_proba(self, call: Call, model: Any) -> Any:
        return model.predict_proba(self.matrix(call))

    def attributes(self, estimator: Any, model: Any) -> dict[str, Any]:
        return {**super().attributes(estimator, model), "classes_": estimator.classes_}

    def restore(self, estimator: Any) -> Any:
        model = super().restore(estimator)
        model.classes_ = np.arange(len(estimator.classes_))
        return model
