"""`sklearn.compose`, whose transformers keep data on the device between accelerated ones."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sklearn.compose import _column_transformer, _target

from accelsk._joined import Joining, standing_in
from accelsk._mirror import mirror
from accelsk.composite import Composite
from accelsk.device.resident import Resident
from accelsk.engines.base import fits
from accelsk.residency import Part, Segment, Stays, takes

if TYPE_CHECKING:
    from sklearn.compose import *  # noqa: F403

__all__, __getattr__, __dir__ = mirror(__name__)


class ColumnTransformer(
    Joining,
    Composite,
    _column_transformer.ColumnTransformer,
    stands_in=True,
    methods=("fit", "fit_transform", "transform"),
):
    _accelsk_same_data = False

    def _accelsk_held(self, method: str) -> list[Any]:
        if fits(method):
            return [*(one for _, one, _ in self.transformers), self.remainder]
        return [one for _, one, _ in self.transformers_]

    def _accelsk_takes(self, method: str, X: Any, y: Any) -> bool:
        if fits(method) and any(callable(columns) for _, _, columns in self.transformers):
            return False  # they get to see X
        if isinstance(X, Resident) and X.feature_names is not None:
            return False  # columns may be chosen by name
        return super()._accelsk_takes("fit_transform" if fits(method) else method, X, y)

    def _accelsk_parts(self, method: str, y: Any, stays: Stays) -> list[Part]:
        if method == "fit":  # by `fit_transform`, whose result it drops
            return [Part(self, "fit_transform", lambda _: True, Segment())]
        return super()._accelsk_parts(method, y, stays)


make_column_transformer = standing_in(
    __name__, _column_transformer.make_column_transformer, ColumnTransformer
)


class TransformedTargetRegressor(
    Composite,
    _target.TransformedTargetRegressor,
    stands_in=True,
    methods=("fit", "predict", "score"),
):
    def _accelsk_takes(self, method: str, X: Any, y: Any) -> bool:
        if fits(method):
            return takes(self.regressor, method, X)
        return method == "predict" and takes(getattr(self, "regressor_", None), method, X)

    def _accelsk_parts(self, method: str, y: Any, stays: Stays) -> list[Part]:
        if method != "predict":
            return []
        # what the transformer of the target gets is on the host
        regressor = getattr(self, "regressor_", None)
        return [Part(regressor, method, lambda _: False, Segment())]
