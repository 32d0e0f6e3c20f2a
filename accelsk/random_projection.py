"""`sklearn.random_projection`, with classes that try the GPU first."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import sklearn.random_projection as _original
from scipy import sparse

from accelsk._mirror import mirror
from accelsk.device.transfer import to_device
from accelsk.engines.base import Call, refuse
from accelsk.engines.cupy import CupyEngine
from accelsk.estimator import Accelerated
from accelsk.exceptions import Invalid

__all__, __getattr__, __dir__ = mirror(__name__)


class _ProjectionOnCupy(CupyEngine):
    """Products with the matrix that scikit-learn's fit draws, so that a seed means the same."""

    methods = ("transform", "inverse_transform")
    rules = (
        refuse(
            "inverse_transform without inverse components",
            lambda call: (
                call.method == "inverse_transform"
                and not call.parameters["compute_inverse_components"]
            ),
            fit_only=False,
        ),
        refuse(
            Invalid("X has another number of columns than there are components"),
            lambda call: (
                call.method == "inverse_transform"
                and call.X.shape[-1:] != (call.estimator.n_components_,)
            ),
            fit_only=False,
        ),
    )

    def transform(self, call: Call, model: SimpleNamespace) -> Any:
        """Return the projection of X."""
        return _product(self.matrix(call), model.components_)

    def inverse_transform(self, call: Call, model: SimpleNamespace) -> Any:
        """Return what has the projection X."""
        return _product(self.matrix(call), model.inverse_components_)

    def restore(self, estimator: Any) -> SimpleNamespace:
        inverse = getattr(estimator, "inverse_components_", None)
        return SimpleNamespace(
            components_=_on_device(estimator.components_),
            inverse_components_=None if inverse is None else to_device(inverse),
        )


def _on_device(components: Any) -> Any:
    if not sparse.issparse(components):
        return to_device(components)
    from cupyx.scipy.sparse import csr_matrix

    return csr_matrix(sparse.csr_matrix(components))


def _product(X: Any, components: Any) -> Any:
    """Return X @ components.T for components that may be sparse, in C order."""
    import cupy

    dtype = max(X.dtype, components.dtype)
    product = components.astype(dtype) @ X.astype(dtype, copy=False).T
    return cupy.ascontiguousarray(product.T)


class GaussianRandomProjection(
    Accelerated, _original.GaussianRandomProjection, engines=[_ProjectionOnCupy()]
): ...


class SparseRandomProjection(
    Accelerated, _original.SparseRandomProjection, engines=[_ProjectionOnCupy()]
): ...
