"""Target encoding on the device, with scikit-learn's folds."""

from __future__ import annotations

import inspect
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np
from sklearn.model_selection import KFold, StratifiedKFold
from sklearn.preprocessing._label import LabelBinarizer
from sklearn.utils.multiclass import type_of_target

from accelsk.algorithms import target_encoding
from accelsk.algorithms.target_encoding import Groups
from accelsk.device.transfer import to_device, to_host
from accelsk.engines import inputs
from accelsk.engines.base import Call, Outcome, Rule, refuse
from accelsk.engines.cupy import CupyEngine
from accelsk.exceptions import Invalid, Refusal
from accelsk.preprocessing._columns import COLUMNS, Categories, columns_of, fitted_categories

__all__ = ["TargetEncoderOnCupy"]

_TYPES = ("binary", "multiclass", "continuous")


def _other_cv(call: Call) -> bool:
    cv = call.parameters["cv"]
    return not (cv is None or isinstance(cv, int) or type(cv) in (KFold, StratifiedKFold))


def _metadata(call: Call) -> bool:
    return not set(call.arguments) <= {"X", "y"}


class _Target:
    """The target, and what is asked about it.

    Attributes
    ----------
    kind : {"binary", "multiclass", "continuous"}
    classes : ndarray or None
    n_targets : int
        The columns that each feature becomes.
    """

    def __init__(self, call: Call) -> None:
        self.given = to_host(call.y.array)
        self.kind = call.parameters["target_type"]
        inferred = type_of_target(self.given, input_name="y")
        if self.kind == "auto":
            self.kind = inferred
        if self.kind not in _TYPES:
            raise Refusal(Invalid(f"y is {self.kind}"))
        if self.kind == "continuous":
            if self.given.dtype.kind not in "iuf" or self.given.dtype == np.float16:
                raise Refusal(f"y has dtype {self.given.dtype}")
            self.classes = None
            self.n_targets = 1
            self._values = inputs.target(call, np.float64)
            return
        if inferred != self.kind:
            raise Refusal(f"y is {inferred} and target_type={self.kind!r}")
        self._codes, classes = inputs.labels(call)
        self.n_classes = len(classes)
        self.n_targets = 1 if self.kind == "binary" else len(classes)
        self.classes = classes
        if self.kind == "multiclass":  # in the dtype that scikit-learn's binarizer gives them
            self.classes = LabelBinarizer().fit(np.tile(classes, 3)).classes_

    def groups(self, folds: Any, codes: Any, n_folds: int, n_categories: int) -> Groups:
        """Return the statistics of each category in each fold."""
        import cupy

        where = (folds, codes, n_folds, n_categories, cupy)
        if self.kind == "continuous":
            return target_encoding.by_value(self._values, *where)
        return target_encoding.by_class(self._codes, self.n_classes, *where)

    def mean(self, throughout: Groups) -> Any:
        """Return ``target_mean_``."""
        mean = to_host(throughout.mean)[0, :, 0]
        if self.kind == "multiclass":
            return mean
        single = self.kind == "continuous" and self.given.dtype == np.float32
        return np.float32(mean[0]) if single else mean[0]


class TargetEncoderOnCupy(CupyEngine):
    """Statistics of categories within folds, each fold encoded from those of the others."""

    methods = ("fit", "fit_transform", "transform")
    rules = (
        refuse("cv is neither a number nor a KFold or StratifiedKFold", _other_cv),
        refuse("metadata is given", _metadata),
        inputs.LABELS,
    )

    def every_rule(self) -> tuple[Rule, ...]:
        return (*self.rules, COLUMNS)

    def matrix(self, call: Call) -> Any:
        return columns_of(call)

    def fit(self, call: Call, X: Any) -> Outcome:
        import cupy

        target = _Target(call)
        categories, _ = fitted_categories(call, X)
        codes = [known.codes(column) for known, column in zip(categories, X, strict=True)]
        n_folds, folds = 1, cupy.zeros(len(codes[0]), np.int64)
        sets = np.ones((1, 1))
        if call.method == "fit_transform":
            n_folds, folds = _folds(call, target)
            sets = np.vstack([np.ones(n_folds), 1 - np.eye(n_folds)])
        smooth = call.parameters["smooth"]
        encode = partial(_tables, target, folds, sets, None if smooth == "auto" else float(smooth))
        throughout, tables = encode([len(known) for known in categories], codes)
        encodings = [row[:-1] for table in tables for row in to_host(table[0])]
        if not all(np.isfinite(row).all() for row in encodings):
            raise Refusal("sums of y overflow")
        model = SimpleNamespace(categories=categories, tables=[table[0] for table in tables])
        model.training = (folds, codes, [table[1:] for table in tables])
        fitted = {
            "categories_": [known.values for known in categories],
            "encodings_": encodings,
            "target_mean_": target.mean(throughout),
            "target_type_": target.kind,
            "classes_": target.classes,
            "_infrequent_enabled": False,
        }
        outcome = Outcome(model=model, attributes=fitted)
        if call.method == "fit":
            del model.training
        else:
            outcome.announce.append(partial(_deprecations, call))
        return outcome

    def attributes(self, estimator: Any, model: Any) -> dict[str, Any]:
        return {}  # a fit has set them all

    def restore(self, estimator: Any) -> Any:
        self.load()
        return _model(estimator.categories_, estimator.encodings_, estimator.target_mean_)

    def transform(self, call: Call, model: Any) -> Any:
        codes = [
            k.codes(column) for k, column in zip(model.categories, columns_of(call), strict=True)
        ]
        return _joined(
            [table[:, column].T for table, column in zip(model.tables, codes, strict=True)]
        )

    def transform_fitted(self, call: Call, model: Any, X: Any) -> Any:
        folds, codes, tables = model.training
        del model.training
        result = []
        for table, column in zip(tables, codes, strict=True):
            table[:, :, -1] = table[-1, :, -1]  # scikit-learn lets the last fold stand
            result.append(table.transpose(0, 2, 1)[folds, column])
        return _joined(result)


def _joined(blocks: list[Any]) -> Any:
    import cupy

    return cupy.ascontiguousarray(cupy.concatenate(blocks, axis=1))


def _tables(
    target: _Target,
    folds: Any,
    sets: np.ndarray,
    smooth: float | None,
    widths: list[int],
    codes: list[Any],
) -> tuple[Groups, list[Any]]:
    """Return the statistics of the target in each set of folds, and a table for each feature.

    A table holds for each set and target the encodings, and last that of an unknown category.
    """
    import cupy

    def pooled(column: Any, width: int) -> Groups:
        groups = target.groups(folds, column, sets.shape[1], width)
        return target_encoding.pooled(groups, sets, cupy)

    throughout = pooled(cupy.zeros_like(folds), 1)
    tables = []
    for column, width in zip(codes, widths, strict=True):
        # scikit-learn counts an unknown category as the first one
        groups = pooled(cupy.where(column < width, column, 0), width)
        table = target_encoding.encodings(groups, throughout, smooth, cupy)
        tables.append(cupy.concatenate([table, throughout.mean], axis=2))
    return throughout, tables


def _model(categories: list[np.ndarray], encodings: list[np.ndarray], mean: Any) -> SimpleNamespace:
    unknown = np.atleast_1d(mean).astype(np.float64)
    n_targets = len(unknown)
    tables = [
        to_device(np.column_stack([np.stack(encodings[i : i + n_targets]), unknown]))
        for i in range(0, len(encodings), n_targets)
    ]
    return SimpleNamespace(categories=[Categories(c) for c in categories], tables=tables)


def _deprecated(call: Call) -> dict[str, Any]:
    """Return the hyperparameters that are set and that scikit-learn calls deprecated."""
    defaults = inspect.signature(call.original).parameters
    return {
        name: call.parameters[name]
        for name in ("shuffle", "random_state")
        if defaults[name].default == "deprecated" and call.parameters[name] != "deprecated"
    }


def _deprecations(call: Call) -> None:
    """Have scikit-learn give its own warning."""
    given = _deprecated(call)
    if given:
        if "random_state" in given:
            given["random_state"] = 0 if given.get("shuffle") is not False else None
        original: Any = call.original
        original(cv=2, **given).fit_transform([[0], [1], [0], [1]], [0.5, 1.0, 1.5, 2.0])


def _folds(call: Call, target: _Target) -> tuple[int, Any]:
    """Return the number of folds and the fold of each row, as scikit-learn draws them."""
    cv = call.parameters["cv"]
    if cv is None or isinstance(cv, int):
        shuffle, random_state = call.parameters["shuffle"], call.parameters["random_state"]
        splitter = KFold if target.kind == "continuous" else StratifiedKFold
        cv = splitter(
            5 if cv is None else cv,
            shuffle=True if isinstance(shuffle, str) else shuffle,
            random_state=None if isinstance(random_state, str) else random_state,
        )
    folds = np.empty(len(target.given), np.int64)
    try:
        for fold, (_, rows) in enumerate(cv.split(np.zeros((len(folds), 1)), target.given)):
            folds[rows] = fold
    except ValueError as error:
        raise Refusal(Invalid(f"scikit-learn rejects it ({error})")) from error
    return cv.get_n_splits(), to_device(folds)
