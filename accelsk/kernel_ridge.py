"""`sklearn.kernel_ridge`, with classes that try the GPU first."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
from sklearn import kernel_ridge as _kernel_ridge

from accelsk._mirror import mirror
from accelsk.algorithms import kernel_ridge, kernels
from accelsk.device.transfer import to_device, to_host
from accelsk.engines import inputs
from accelsk.engines.base import Call, Outcome, Rule, only, refuse
from accelsk.engines.cupy import CupyEngine
from accelsk.engines.on_device import determination
from accelsk.estimator import Accelerated
from accelsk.exceptions import Invalid, Refusal

__all__, __getattr__, __dir__ = mirror(__name__)


def _kernel(call: Call) -> kernels.Kernel:
    """Return the kernel; scikit-learn's default for gamma is one over the number of features."""
    parameters = call.parameters
    gamma = parameters["gamma"]
    return kernels.Kernel(
        parameters["kernel"],
        1 / call.X.shape[1] if gamma is None else gamma,
        parameters["degree"],
        parameters["coef0"],
    )


def _single(dtype: Any) -> bool:
    return dtype == np.float32


def _single_kernel(call: Call) -> bool:
    """Whether scikit-learn's kernel of X with float32 rows is float32."""
    return _single(call.X.dtype) and call.parameters["kernel"] != "laplacian"


def _misfit(call: Call) -> bool:
    """Whether X cannot be rows, or the whole, of a precomputed kernel."""
    if call.parameters["kernel"] != "precomputed":
        return False
    n_rows = call.X.shape[:1] if call.fits else call.estimator.X_fit_.shape[:1]
    return call.X.shape[1:] != n_rows


class _KernelRidgeOnCupy(CupyEngine):
    """The kernel matrix and its Cholesky factor in float64, whatever comes in."""

    methods = ("fit", "predict", "score")
    dtype = np.float64
    rules = (
        only("kernel", "precomputed", *kernels.KERNELS, fit_only=False),
        refuse(Invalid("X does not fit a precomputed kernel"), _misfit, fit_only=False),
        refuse(
            "alpha is an array that does not match the columns of y",
            lambda call: (
                np.ndim(call.parameters["alpha"]) > 1
                or np.size(call.parameters["alpha"]) not in (1, (*call.y.shape, 1)[1])
            ),
        ),
    )

    def every_rule(self) -> tuple[Rule, ...]:
        return (*super().every_rule(), inputs.target_rule(outputs=True))

    def fit(self, call: Call, X: Any) -> Outcome:
        import cupy

        y = inputs.target(call, np.float64).reshape(len(X), -1)
        weight = inputs.weights(call, np.float64)
        precomputed = call.parameters["kernel"] == "precomputed"
        K = _symmetric(X) if precomputed else kernels.among(X, _kernel(call), cupy)
        if weight is not None:
            root = cupy.sqrt(weight)[:, None]
            y = y * root
            K = K * root * root.T
        alpha = np.atleast_1d(call.parameters["alpha"]).astype(np.float64)
        dual_coef = self._solve(call, K, y, alpha)
        if weight is not None:
            dual_coef *= root
        if len(call.y.shape) == 1:
            dual_coef = dual_coef[:, 0]
        model = SimpleNamespace(dual_coef_=dual_coef.astype(_dual_dtype(call, alpha)), rows=X)
        return Outcome(model=model, attributes={"X_fit_": to_host(call.X.array)})

    def _solve(self, call: Call, K: Any, y: Any, alpha: np.ndarray) -> Any:
        """Return the dual coefficients of each column of `y`."""
        import cupy
        import cupyx
        from cupyx.scipy.linalg import solve_triangular

        one_alpha = bool((alpha == alpha[0]).all())
        columns = [y] if one_alpha else [y[:, i : i + 1] for i in range(y.shape[1])]
        eps = np.finfo(_dual_dtype(call, alpha)).eps
        solutions = []
        for a, column in zip(alpha.tolist(), columns, strict=False):
            try:
                with cupyx.errstate(linalg="raise"):
                    solution = kernel_ridge.solve(K, column, a, cupy, solve_triangular)
            except np.linalg.LinAlgError:
                raise Refusal("the kernel matrix is not positive definite") from None
            # scikit-learn warns below eps; both figures are estimates
            if not solution.rcond > 10 * eps:
                raise Refusal("the kernel matrix is ill-conditioned")
            solutions.append(solution.x)
        return cupy.concatenate(solutions, axis=1)

    def predict(self, call: Call, model: Any) -> Any:
        import cupy

        X = self.matrix(call)
        dual_coef = model.dual_coef_.astype(np.float64)
        if call.parameters["kernel"] == "precomputed":
            predicted = X @ dual_coef
        else:
            coef = dual_coef.reshape(len(dual_coef), -1)
            product = kernels.product(X, model.rows, coef, _kernel(call), cupy)
            predicted = product.reshape(len(X), *dual_coef.shape[1:])
        single = _single_kernel(call) and (
            call.parameters["kernel"] == "precomputed" or _single(call.estimator.X_fit_.dtype)
        )
        kernel_dtype = np.float32 if single else np.float64
        return predicted.astype(np.result_type(kernel_dtype, model.dual_coef_.dtype))

    def score(self, call: Call, model: Any) -> float:
        """Return the coefficient of determination; the predictions come from the device."""
        return determination(call, self.predict(call, model))

    def attributes(self, estimator: Any, model: Any) -> dict[str, Any]:
        return {"dual_coef_": to_host(model.dual_coef_)}

    def restore(self, estimator: Any) -> SimpleNamespace:
        if not isinstance(estimator.X_fit_, np.ndarray):
            raise Refusal("the model was fitted on sparse rows")
        return SimpleNamespace(
            dual_coef_=to_device(estimator.dual_coef_),
            rows=to_device(estimator.X_fit_, np.float64),
        )


def _symmetric(K: Any) -> Any:
    """Return a precomputed kernel matrix, which rounding may have left not quite symmetric."""
    if not float(abs(K - K.T).max()) <= 1e-10 * float(abs(K).max()):
        raise Refusal("the precomputed kernel is not symmetric")
    return (K + K.T) / 2


def _dual_dtype(call: Call, alpha: np.ndarray) -> Any:
    """Return the dtype of the dual coefficients."""
    single = _single_kernel(call)
    if bool((alpha == alpha[0]).all()):
        single = single and _single(call.y.dtype)
        weight = call.sample_weight
        if weight.given and not (isinstance(weight.value, float) and weight.value == 1):
            single = single and weight.kind != "scalar" and _single(weight.dtype)
    return np.float32 if single else np.float64


class KernelRidge(Accelerated, _kernel_ridge.KernelRidge, engines=[_KernelRidgeOnCupy()]): ...
