"""Labels as codes and as indicators, where they are numbers; strings are coded on the host."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np

from accelsk.algorithms import categories as algorithm
from accelsk.device.transfer import to_device, to_host
from accelsk.engines import inputs
from accelsk.engines.base import Call, Outcome, Rule, only, refuse
from accelsk.engines.cupy import CupyEngine
from accelsk.exceptions import Invalid, Refusal
from accelsk.preprocessing._base import plain

__all__ = ["LabelBinarizerOnCupy", "LabelEncoderOnCupy"]


def _refusals(call: Call) -> Iterator[str]:
    y = call.y
    if "y" not in call.arguments:
        return
    if y.kind not in ("numpy", "cupy", "frame", "sequence"):
        yield f"y is not an array ({y})"
    elif not y.numeric or y.dtype == np.float16:
        yield f"y is not numeric ({y}): other labels are coded on the host"
    elif len(y.shape) != 1:
        yield f"y has {len(y.shape)} dimensions"
    elif 0 in y.shape:
        yield "y is empty"


_NUMERIC = Rule("y is not numeric", lambda call: next(_refusals(call), None), fit_only=False)


class _OnLabels(CupyEngine):
    """Works on ``y`` alone. The model holds the classes on the device."""

    methods: tuple[str, ...] = ("fit", "fit_transform", "transform")

    def every_rule(self) -> tuple[Rule, ...]:
        return (*self.rules, _NUMERIC)

    def matrix(self, call: Call) -> Any:
        return _sortable(to_device(call.y.array))

    def attributes(self, estimator: Any, model: Any) -> dict[str, Any]:
        return {}  # a fit has set them all

    def restore(self, estimator: Any) -> Any:
        self.load()
        if estimator.classes_.dtype.kind not in "biuf":
            raise Refusal("the classes are not numeric")
        return SimpleNamespace(classes=_sortable(to_device(estimator.classes_)))

    def transform(self, call: Call, model: Any) -> Any:
        return self.transform_fitted(call, model, self.matrix(call))


def _sortable(values: Any) -> Any:
    """Return booleans as numbers."""
    return values.view(np.uint8) if values.dtype == bool else values


def _classes(call: Call, values: Any) -> np.ndarray:
    """Return classes from the device in the dtype in which they came."""
    host = to_host(values)
    return host.view(bool) if call.y.dtype == bool else host


def _wider_labels(call: Call) -> bool:
    if call.method != "transform" or call.y.dtype is None:
        return False
    return not np.can_cast(call.y.dtype, call.estimator.classes_.dtype, "safe")


def _not_codes(call: Call) -> bool:
    return call.method == "inverse_transform" and not (
        call.y.dtype is not None and call.y.dtype.kind in "iu"
    )


class LabelEncoderOnCupy(_OnLabels):
    methods = ("fit", "fit_transform", "transform", "inverse_transform")
    rules = (
        refuse("y has another dtype than the classes", _wider_labels, fit_only=False),
        refuse("y is not a whole number", _not_codes, fit_only=False),
    )

    def fit(self, call: Call, X: Any) -> Outcome:
        import cupy

        classes, _ = algorithm.distinct(X, cupy)
        fitted = {"classes_": _classes(call, classes)}
        return Outcome(model=SimpleNamespace(classes=classes), attributes=fitted)

    def transform_fitted(self, call: Call, model: Any, X: Any) -> Any:
        import cupy

        codes = algorithm.codes_of(X, model.classes, cupy)
        if bool((codes == len(model.classes)).any()):
            raise Refusal(Invalid("y has an unknown label"))
        return codes

    def inverse_transform(self, call: Call, model: Any) -> Any:
        codes = self.matrix(call)
        if bool(((codes < 0) | (codes >= len(model.classes))).any()):
            raise Refusal(Invalid("y has an unknown code"))
        labels = model.classes[codes]
        return labels.view(bool) if call.estimator.classes_.dtype == bool else labels


def _no_scores(call: Call) -> bool:
    if call.method != "inverse_transform":
        return False
    Y, n_classes = call.data, len(call.estimator.classes_)
    wide = n_classes if n_classes > 2 else 1
    fits = Y.numeric and Y.dtype != np.float16 and Y.shape[1:] == (wide,) and 0 not in Y.shape
    return Y.kind not in ("numpy", "cupy", "sequence") or not fits


class LabelBinarizerOnCupy(_OnLabels):
    methods = ("fit", "fit_transform", "transform", "inverse_transform")
    rules = (
        refuse("Y is not a dense table with a column for each class", _no_scores, fit_only=False),
        refuse(
            "fitted on a sparse table",
            lambda call: call.method == "inverse_transform" and call.estimator.sparse_input_,
            fit_only=False,
        ),
        only("sparse_output", False, fit_only=False),
        refuse(
            Invalid("neg_label is not less than pos_label"),
            lambda call: call.parameters["neg_label"] >= call.parameters["pos_label"],
        ),
        refuse(
            "fitted on several labels a row",
            lambda call: not call.fits and call.estimator.y_type_ not in ("binary", "multiclass"),
            fit_only=False,
        ),
    )

    def fit(self, call: Call, X: Any) -> Outcome:
        import cupy

        classes, _ = algorithm.distinct(X, cupy)
        labels = _classes(call, classes)
        _whole(labels, np)
        if len(labels) > inputs._MANY_CLASSES and len(labels) > round(len(X) / 2):
            raise Refusal("y has more than half as many classes as rows")
        binarizer = plain(call).fit(np.tile(labels, 3))
        fitted = {k: v for k, v in vars(binarizer).items() if k not in call.parameters}
        return Outcome(model=SimpleNamespace(classes=classes), attributes=fitted)

    def transform_fitted(self, call: Call, model: Any, X: Any) -> Any:
        import cupy

        _whole(X, cupy)
        codes = algorithm.codes_of(X, model.classes, cupy)
        n_classes = len(model.classes)
        if n_classes < 3 and bool((codes == n_classes).any()):
            raise Refusal("y has an unknown label")
        negative, positive = call.parameters["neg_label"], call.parameters["pos_label"]
        if n_classes == 1:
            codes, columns = cupy.zeros_like(codes), cupy.ones(1, codes.dtype)
        else:
            columns = cupy.arange(1 if n_classes == 2 else 0, n_classes)
        dtype = self._dtype(call, to_host(model.classes))
        if dtype.kind == "u" and negative < 0:  # scikit-learn 1.8 lets it wrap around
            raise Refusal("neg_label does not fit the dtype of the result")
        result = cupy.full((len(codes), len(columns)), negative, dtype)
        result[codes[:, None] == columns] = positive
        return result

    def inverse_transform(self, call: Call, model: Any) -> Any:
        import cupy

        Y = to_device(call.data.array)
        if Y.dtype.kind == "f" and bool(cupy.isnan(Y).any()):
            raise Refusal("Y contains NaN")
        n_classes = len(model.classes)
        if n_classes > 2:
            codes = Y.argmax(axis=1)
        else:
            threshold = call.arguments["threshold"]
            if threshold is None:
                threshold = (call.parameters["pos_label"] + call.parameters["neg_label"]) / 2
            codes = (Y[:, 0] > threshold).astype(np.int64) * (n_classes - 1)
        labels = model.classes[codes]
        return labels.view(bool) if call.estimator.classes_.dtype == bool else labels

    def _dtype(self, call: Call, classes: np.ndarray) -> np.dtype:
        """Return the dtype of scikit-learn's result, which differs between versions."""
        row = np.zeros(1, call.y.array.dtype) + classes[:1].astype(call.y.array.dtype)
        return plain(call).fit(row).transform(row).dtype


def _whole(values: Any, xp: Any) -> None:
    if values.dtype.kind == "f" and not bool(
        (xp.isfinite(values) & (values == xp.rint(values))).all()
    ):
        raise Refusal(Invalid("y is continuous"))
