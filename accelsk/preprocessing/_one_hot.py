"""One-hot encoding on the device."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
from scipy import sparse

from accelsk._sklearn import align_sparse, get_output_config
from accelsk.device.transfer import on_host, to_device, to_host
from accelsk.engines.base import Call, Outcome, Rule, refuse
from accelsk.engines.cupy import CupyEngine
from accelsk.exceptions import Invalid, Refusal
from accelsk.preprocessing._base import FIT_ARGUMENTS, plain
from accelsk.preprocessing._columns import COLUMNS, Categories, columns_of, fitted_categories
from accelsk.preprocessing._one_hot_inverse import ENCODED, inverse

__all__ = ["OneHotEncoderOnCupy"]

_TRANSFORMS = ("transform", "fit_transform")


def _frame_of_sparse(call: Call) -> bool:
    return (
        call.method in _TRANSFORMS
        and call.parameters["sparse_output"]
        and get_output_config("transform", call.estimator)["dense"] != "default"
    )


def _other_dtype(call: Call) -> bool:
    try:
        dtype = np.dtype(call.parameters["dtype"])
    except TypeError:
        return True
    sparse_on_device = call.parameters["sparse_output"] and not on_host(call.X.value)
    return dtype.kind not in "biuf" or (sparse_on_device and dtype not in (np.float32, np.float64))


class OneHotEncoderOnCupy(CupyEngine):
    """Codes on the device; where each category goes is a small table made on the host.

    The table says everything that ``drop``, rare and unknown categories come to.
    """

    methods = ("fit", "fit_transform", "transform", "inverse_transform")
    rules = (
        FIT_ARGUMENTS,
        refuse("dtype is not numeric, or not floating point for a sparse result on the device",
               _other_dtype, fit_only=False),
        refuse(Invalid("a frame cannot be sparse"), _frame_of_sparse, fit_only=False),
    )  # fmt: skip

    def every_rule(self) -> tuple[Rule, ...]:
        return (*self.rules, COLUMNS, ENCODED)

    def matrix(self, call: Call) -> Any:
        return columns_of(call)

    def fit(self, call: Call, X: Any) -> Outcome:
        categories, counts = fitted_categories(call, X)
        if call.parameters["handle_unknown"] == "error" and any(
            count.sum() < call.X.shape[0] for count in counts
        ):
            raise Refusal(Invalid("X has an unknown category"))
        encoder = plain(call)
        encoder._check_infrequent_enabled()
        encoder.categories_ = [known.values for known in categories]
        if encoder._infrequent_enabled:
            encoder._fit_infrequent_category_mapping(call.X.shape[0], counts, {})
        try:
            encoder._set_drop_idx()
        except ValueError as error:
            raise Refusal(Invalid(f"scikit-learn rejects it ({error})")) from error
        encoder._n_features_outs = encoder._compute_n_features_outs()
        model = _model(encoder, categories)
        fitted = {k: v for k, v in vars(encoder).items() if k not in call.parameters}
        return Outcome(model=model, attributes=fitted)

    def attributes(self, estimator: Any, model: Any) -> dict[str, Any]:
        return {}  # a fit has set them all

    def restore(self, estimator: Any) -> Any:
        self.load()
        return _model(estimator, [Categories(values) for values in estimator.categories_])

    def inverse_transform(self, call: Call, model: Any) -> Any:
        return inverse(call)

    def transform(self, call: Call, model: Any) -> Any:
        return self.transform_fitted(call, model, self.matrix(call))

    def transform_fitted(self, call: Call, model: Any, X: Any) -> Any:
        import cupy

        places = cupy.empty((call.X.shape[0], len(X)), np.int64)
        for i, (column, categories) in enumerate(zip(X, model.categories, strict=True)):
            codes = categories.codes(column)
            if bool((codes == len(categories)).any()):
                _unknown(call)
            places[:, i] = model.tables[i][codes]
        if call.parameters["sparse_output"]:
            return _sparse(places, model.width, call)
        result = cupy.zeros((len(places), model.width), np.dtype(call.parameters["dtype"]))
        flat = cupy.arange(len(places))[:, None] * model.width + places
        result.reshape(-1)[flat[places >= 0]] = 1
        return result


def _unknown(call: Call) -> None:
    """Hand the call on where scikit-learn does more about an unknown category than leave it out."""
    handling = call.parameters["handle_unknown"]
    if handling == "error":
        raise Refusal(Invalid("X has an unknown category"))
    if handling == "warn" or call.parameters["drop"] is not None:
        raise Refusal("X has an unknown category, of which scikit-learn warns")


def _model(encoder: Any, categories: list[Categories]) -> SimpleNamespace:
    """Return what a transform needs: for each column, the place in the result of each category.

    The last entry of a table is for unknown categories; -1 is for what has no place.
    """
    tables, start = [], 0
    for i, width in enumerate(encoder._n_features_outs):
        table = _table(encoder, i, len(categories[i]))
        tables.append(to_device(np.where(table >= 0, table + start, -1)))
        start += width
    return SimpleNamespace(categories=categories, tables=tables, width=start)


def _table(encoder: Any, i: int, n_categories: int) -> np.ndarray:
    table = np.append(np.arange(n_categories), -1)
    mapping = encoder._default_to_infrequent_mappings[i] if encoder._infrequent_enabled else None
    if mapping is not None:
        table[:-1] = mapping
        if encoder.handle_unknown in ("infrequent_if_exist", "warn"):
            table[-1] = mapping[encoder._infrequent_indices[i][0]]
    dropped = encoder._drop_idx_after_grouping
    if dropped is not None and dropped[i] is not None:
        table = np.where(table == dropped[i], -1, table - (table > dropped[i]))
    return table


def _sparse(places: Any, width: int, call: Call) -> Any:
    """Return the places as a sparse matrix of ones, on the host unless ``X`` is on the device."""
    import cupy

    placed = places >= 0
    ends = cupy.zeros(len(places) + 1, np.int64)
    ends[1:] = cupy.cumsum(placed.sum(axis=1))
    indices = places[placed]
    shape, dtype = (len(places), width), np.dtype(call.parameters["dtype"])
    index = np.int32 if max(len(indices), *shape) < 2**31 else np.int64
    indices, ends = indices.astype(index), ends.astype(index)
    if call.on_host or on_host(call.X.value):
        ones = np.ones(len(indices), dtype)
        return align_sparse(sparse.csr_matrix((ones, to_host(indices), to_host(ends)), shape))
    import cupyx.scipy.sparse

    return cupyx.scipy.sparse.csr_matrix((cupy.ones(len(indices), dtype), indices, ends), shape)
