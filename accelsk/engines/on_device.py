"""What engines on the device have in common: arguments go up, results come back."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import numpy as np

from accelsk.algorithms.metrics import average
from accelsk.device import probe
from accelsk.device.resident import Resident
from accelsk.device.transfer import is_device_array, to_device, to_host
from accelsk.engines import inputs
from accelsk.engines.base import Call, Engine, Outcome, Rule
from accelsk.exceptions import Refusal

__all__ = [
    "DeviceClassifier",
    "DeviceEngine",
    "accuracy",
    "determination",
    "import_cupy",
    "labelled",
]


def import_cupy() -> None:
    """Import CuPy. One that cannot be imported takes the GPU out of use, with one warning."""
    try:
        from cupy import ndarray  # noqa: F401 - tells CuPy from a folder of that name
    except Exception as error:
        reason = f"CuPy could not be imported ({type(error).__name__}: {error})"
        probe.disable(reason)
        raise Refusal(reason) from error


class DeviceEngine(Engine):
    """One estimator on the device.

    A subclass declares; where an estimator truly differs it overrides a method. A call of a
    method ``name`` is run by ``self.name(call, model)``; one that fits by ``self.fit(call, X)``,
    except that ``partial_fit`` has a method of its own, which returns an `Outcome`.

    Attributes
    ----------
    dtype : dtype or None
        The dtype to which scikit-learn casts all input; None keeps float32 and float64.
    nan_is_valid : bool
        Whether scikit-learn's class takes missing values.
    min_rows : int
        The fewest rows that a fit takes.
    sparse : bool
        Whether X may be sparse; `matrix` has to be overridden then.
    streamed : bool
        Whether X passes through the device in blocks, so that it may be of any size.
    """

    dtype: Any = None
    nan_is_valid: bool = False
    min_rows: int = 1
    sparse: bool = False
    streamed: bool = False

    def unusable(self) -> str | None:
        return probe.unusable()

    # Can it

    def every_rule(self) -> tuple[Rule, ...]:
        matrix = inputs.matrix_rule(
            min_rows=self.min_rows, sparse=self.sparse, streamed=self.streamed
        )
        return (*super().every_rule(), matrix, inputs.WEIGHTS)

    # Do it

    def run(self, call: Call, model: Any) -> Outcome:
        self.load()
        if call.method == "partial_fit":
            return self.partial_fit(call, model)
        if call.fits:
            return self.run_fit(call)
        method: Callable[[Call, Any], Any] = getattr(self, call.method)
        return Outcome(method(call, model))

    def run_fit(self, call: Call) -> Outcome:
        """Fit, and compute what the method returns beside the estimator."""
        X = self.matrix(call)
        outcome = self.fit(call, X)
        if call.method == "fit_predict":
            outcome.result = self.labels_of(outcome.model)
        elif call.method == "fit_transform":
            outcome.result = self.transform_fitted(call, outcome.model, X)
        return outcome

    def matrix(self, call: Call) -> Any:
        """Return ``X`` on the device."""
        return inputs.matrix(call, self.dtype, nan_is_valid=self.nan_is_valid)

    def fit(self, call: Call, X: Any) -> Outcome:
        """Fit a model; `X` is on the device."""
        raise NotImplementedError

    def partial_fit(self, call: Call, model: Any) -> Outcome:
        """Go on from `model`, or fit anew where it is None; `model` stays as it is."""
        raise NotImplementedError

    def labels_of(self, model: Any) -> Any:
        """Return what ``fit_predict`` returns."""
        return model.labels_

    def transform_fitted(self, call: Call, model: Any, X: Any) -> Any:
        """Return what ``fit_transform`` returns; `X` is that of the fit, on the device."""
        transform: Callable[..., Any] = self.transform  # type: ignore[attr-defined]
        return transform(call, model)


class DeviceClassifier(DeviceEngine):
    """A classifier on the device. Labels are coded; they stay with the estimator."""

    def every_rule(self) -> tuple[Rule, ...]:
        return (*super().every_rule(), inputs.LABELS)

    def weight_by_class(self, call: Call, codes: Any, classes: np.ndarray) -> Any:
        """Return the weight that ``class_weight`` gives each class, or None.

        ``"balanced"`` is n_samples / (n_classes * count of the class), the formula of
        `sklearn.utils.class_weight.compute_class_weight`.
        """
        class_weight = call.parameters.get("class_weight")
        if class_weight is None:
            return None
        import cupy

        if class_weight == "balanced":
            count = cupy.bincount(codes, minlength=len(classes))
            return len(codes) / (len(classes) * count)
        if unknown := [label for label in class_weight if label not in classes]:
            raise Refusal(f"class_weight names classes that y has not: {unknown}")
        return cupy.asarray([class_weight.get(label, 1.0) for label in classes.tolist()])

    def row_weights(self, call: Call, X: Any, codes: Any, by_class: Any) -> Any:
        """Return ``sample_weight`` times the weight of the class of each row, or None."""
        weight = inputs.weights(call, X.dtype)
        if by_class is None:
            return weight
        by_row = by_class[codes].astype(X.dtype)
        return by_row if weight is None else by_row * weight

    def predict(self, call: Call, model: Any) -> Any:
        """Return labels: on the device where the caller's data is and labels can be."""
        return labelled(call, self.codes(call, model))

    def codes(self, call: Call, model: Any) -> Any:
        """Return predicted positions in ``classes_``: those of the highest probability."""
        return self.predict_proba(call, model).argmax(axis=1)

    def predict_proba(self, call: Call, model: Any) -> Any:
        """Return probabilities of shape (n_samples, n_classes)."""
        raise NotImplementedError

    def predict_log_proba(self, call: Call, model: Any) -> Any:
        """Return the logarithms of the probabilities."""
        import cupy

        return cupy.log(self.predict_proba(call, model))

    def score(self, call: Call, model: Any) -> float:
        """Return the accuracy; the predictions come from the device."""
        if isinstance(call.y.value, Resident) and type(self).predict is DeviceClassifier.predict:
            with contextlib.suppress(Refusal):
                return self._score_of_fold(call, model)
        return accuracy(call, self.predict(call, model))

    def _score_of_fold(self, call: Call, model: Any) -> float:
        """Return the accuracy in a search, whose candidates share the codes of each fold."""
        import cupy

        codes, found = inputs.labels(call)
        classes = call.estimator.classes_
        if (classes.dtype.kind in "OU") != (found.dtype.kind in "OU"):
            raise Refusal("labels are numbers and strings")
        place = np.minimum(np.searchsorted(classes, found), len(classes) - 1)
        place = np.where(classes[place] == found, place, -1)  # none that is predicted
        right = to_device(place)[codes] == self.codes(call, model)
        return float(average(right, inputs.weights(call, np.float64), cupy))


def labelled(call: Call, codes: Any) -> Any:
    """Return class labels: on the device where the caller's data is and labels can be.

    Parameters
    ----------
    call : Call
    codes : cupy.ndarray of int
        Positions in ``classes_``.
    """
    classes = call.estimator.classes_
    if not call.on_host and classes.dtype.kind in "biuf":
        return to_device(classes)[codes]
    return classes[to_host(codes)]


def determination(call: Call, predicted: Any) -> float:
    """Return the coefficient of determination of predictions made on the device."""
    return _score("r2_score", call, predicted)


def accuracy(call: Call, predicted: Any) -> float:
    """Return the accuracy of labels predicted on the device."""
    return _score("accuracy_score", call, predicted)


def _score(metric: str, call: Call, predicted: Any) -> float:
    """Return a score, computed where the predictions are if it can be."""
    from accelsk import metrics

    function = getattr(metrics, metric)
    arrays = (call.y.value, predicted, call.sample_weight.value)
    if is_device_array(predicted):
        with contextlib.suppress(Refusal):
            return function.on_device(*arrays[:2], sample_weight=arrays[2])
    true, labels, weight = map(to_host, arrays)
    return function.__wrapped__(true, labels, sample_weight=weight)
