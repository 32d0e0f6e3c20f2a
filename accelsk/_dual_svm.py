"""Engines of the support vector machines with kernels."""

from __future__ import annotations

from functools import partial
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
from sklearn.svm import _classes

from accelsk._linear_svm import (
    TARGET,
    class_weights,
    draw_seed,
    target,
    warnings_of_target,
)
from accelsk._sklearn import VERSION
from accelsk.algorithms import dual_svm, kernels, platt
from accelsk.device.transfer import to_device, to_host
from accelsk.engines import inputs
from accelsk.engines.base import Call, Outcome, Rule, only, refuse
from accelsk.engines.cuml import CumlEngine
from accelsk.engines.on_device import accuracy, determination, labelled
from accelsk.exceptions import Invalid, Refusal

__all__ = ["SVCOnCuml", "SVROnCuml"]


def _indefinite(call: Call) -> bool:
    kernel, coef0 = call.parameters["kernel"], call.parameters["coef0"]
    return kernel == "sigmoid" or (kernel == "poly" and coef0 < 0)


def _misfit(call: Call) -> bool:
    """Whether X cannot be rows, or the whole, of a precomputed kernel."""
    if call.parameters["kernel"] != "precomputed":
        return False
    n_rows = call.X.shape[:1] if call.fits else call.estimator.shape_fit_[:1]
    return call.X.shape[1:] != n_rows


class _Problem(NamedTuple):
    """Rows, what each may cost, and which of two classes each is in (+1 or -1)."""

    X: Any
    side: Any
    cost: Any
    kernel: kernels.Kernel

    def among(self, rows: Any) -> _Problem:
        X = kernels.between(self.X, rows, rows, self.kernel)
        return _Problem(X, self.side[rows], self.cost[rows], self.kernel)

    def products(self, X: Any, coef: Any) -> Any:
        """Return the decision values of rows, short of the intercept."""
        import cupy

        support = cupy.flatnonzero(coef)
        others = kernels.landmarks(self.X, support, self.kernel)
        return kernels.product(X, others, coef[support, None], self.kernel, cupy)[:, 0]


def _has_gaps(call: Call) -> bool:
    if call.sample_weight.kind not in ("numpy", "frame"):
        return False
    weight = call.sample_weight.array
    return weight.dtype == np.float64 and not weight.flags.c_contiguous


class _DualOnCuml(CumlEngine):
    """cuML solves each dual problem; what it gives is checked and laid out as libsvm's.

    Predictions are products with the kernel matrix. All of it is float64, as in scikit-learn.
    """

    dtype = np.float64
    min_rows = 2
    rules: tuple[Rule, ...] = (
        only("kernel", "linear", "poly", "rbf", "sigmoid", "precomputed", fit_only=False),
        refuse("kernel='sigmoid', or 'poly' with coef0 below 0: not one solution", _indefinite),
        only("max_iter", -1),
        only("verbose", False, 0),
        refuse("C is infinite", lambda call: call.parameters["C"] == np.inf),
        refuse(Invalid("X does not fit a precomputed kernel"), _misfit, fit_only=False),
        refuse(
            Invalid("sample_weight is a number"), lambda call: call.sample_weight.kind == "scalar"
        ),
        refuse(Invalid("sample_weight has gaps in memory, which libsvm rejects"), _has_gaps),
    )

    def weights(self, call: Call) -> Any:
        """Return ``sample_weight`` on the device, ones where none was given."""
        import cupy

        weight = inputs.weights(call, np.float64)
        if weight is None:
            return cupy.ones(call.X.shape[0])
        if not bool((weight > 0).all()):
            # scikit-learn's support_ then counts the other rows only
            raise Refusal("sample_weight has zeros")
        return weight

    def kernel(self, call: Call, gamma: Any) -> kernels.Kernel:
        parameters = call.parameters
        return kernels.Kernel(
            parameters["kernel"], float(gamma), parameters["degree"], parameters["coef0"]
        )

    def gamma(self, call: Call, X: Any) -> Any:
        """Return the value that scikit-learn gives ``gamma``."""
        gamma = call.parameters["gamma"]
        if call.parameters["kernel"] == "precomputed":
            return 0.0
        if gamma == "auto":
            return 1.0 / X.shape[1]
        if gamma != "scale":
            return gamma
        variance = float(X.var())
        return np.float64(1.0 / (X.shape[1] * variance)) if variance != 0 else 1.0

    def parameters(self, call: Call) -> dict[str, Any]:
        return {name: call.parameters[name] for name in ("C", "kernel", "degree", "coef0", "tol")}

    def solve(
        self, call: Call, X: Any, y: Any, weight: Any, kernel: kernels.Kernel
    ) -> tuple[Any, int]:
        """Return cuML's signed dual variable of each row, and the number of iterations."""
        import cupy

        solver = self.new_model(**self.parameters(call), gamma=kernel.gamma)
        solver.fit(X, y, sample_weight=weight)
        coef = cupy.zeros(len(X))
        coef[solver.support_] = solver.dual_coef_[0]
        return coef, int(np.ravel(solver.n_iter_)[0])

    def check(self, call: Call, optimality: dual_svm.Optimality) -> None:
        """Refuse where cuML stopped before libsvm would have."""
        if not optimality.violation <= 2 * call.parameters["tol"]:
            raise Refusal(f"cuML stopped at a violation of {optimality.violation:.2g}, above tol")

    def fitted(
        self, call: Call, X: Any, layout: dual_svm.Layout, intercept: np.ndarray, gamma: Any
    ) -> SimpleNamespace:
        """Return the model; `layout` and `intercept` have the signs of libsvm."""
        return SimpleNamespace(
            support=layout.support,
            vectors=kernels.landmarks(X, layout.support, self.kernel(call, gamma)),
            n_support=to_host(layout.n_support).astype(np.int32),
            coef=layout.coef,
            intercept=intercept,
            gamma=gamma,
            sigmoids=np.empty((0, 2)),
        )

    def attributes(self, estimator: Any, model: Any) -> dict[str, Any]:
        precomputed = estimator.kernel == "precomputed"
        vectors = np.empty((0, 0)) if precomputed else to_host(model.vectors)
        attributes = {
            "support_": to_host(model.support).astype(np.int32),
            "support_vectors_": np.ascontiguousarray(vectors),
            "dual_coef_": np.ascontiguousarray(to_host(model.coef)),
            "intercept_": model.intercept.copy(),
            "fit_status_": 0,
            "n_iter_": model.n_iter,
            "_n_support": model.n_support,
            "_intercept_": model.intercept,
            "_gamma": model.gamma,
            "_num_iter": np.atleast_1d(np.asarray(model.n_iter, np.int32)),
            "_probA": model.sigmoids[:, 0].copy(),
            "_probB": model.sigmoids[:, 1].copy(),
            "_sparse": False,
            "_effective_probability": bool(len(model.sigmoids)),
        }
        attributes["_dual_coef_"] = attributes["dual_coef_"]
        names = estimator._accelsk_fitted_names()
        return {name: value for name, value in attributes.items() if name in names}

    def restore(self, estimator: Any) -> SimpleNamespace:
        if estimator._sparse:
            raise Refusal("the model was fitted on sparse rows")
        vectors = estimator.support_vectors_
        if vectors.size > 0 and estimator.n_support_.sum() != len(vectors):
            raise Refusal(Invalid("the fitted attributes do not go together"))
        precomputed = estimator.kernel == "precomputed"
        return SimpleNamespace(
            vectors=to_device(estimator.support_ if precomputed else vectors),
            n_support=estimator._n_support,
            coef=to_device(estimator._dual_coef_),
            intercept=estimator._intercept_,
            gamma=estimator._gamma,
            sigmoids=np.stack([estimator._probA, estimator._probB], axis=1),
        )

    def decisions(self, call: Call, model: Any, coefs: Any) -> Any:
        """Return the decision values of libsvm, a column for each of `coefs`."""
        import cupy

        kernel = self.kernel(call, model.gamma)
        products = kernels.product(self.matrix(call), model.vectors, coefs, kernel, cupy)
        return products + cupy.asarray(model.intercept)


def _give_deprecation(probability: bool) -> None:
    """Have scikit-learn warn that ``probability`` is deprecated, in its own words."""
    _classes.SVC(probability=probability, random_state=0).fit([[0.0], [1.0]], [0, 1])


class SVCOnCuml(_DualOnCuml):
    """One problem for each pair of classes, and five more where probabilities are wanted.

    Folds are drawn as libsvm draws them.
    """

    path = "svm.SVC"
    methods = ("fit", "decision_function", "predict", "predict_proba", "predict_log_proba", "score")
    rules = (
        *_DualOnCuml.rules,
        refuse(
            Invalid("break_ties=True with decision_function_shape='ovo'"),
            lambda call: (
                call.method in ("predict", "score")
                and call.parameters["break_ties"]
                and call.parameters["decision_function_shape"] == "ovo"
            ),
            fit_only=False,
        ),
    )

    #: Elements of the largest intermediate array when probabilities are coupled: 256 MB.
    _chunk = 1 << 25

    def every_rule(self) -> tuple[Rule, ...]:
        return (*super().every_rule(), inputs.LABELS)

    def fit(self, call: Call, X: Any) -> Outcome:
        import cupy

        codes, classes = inputs.labels(call)
        class_weight = class_weights(call, codes, classes)
        cost = call.parameters["C"] * self.weights(call) * cupy.asarray(class_weight)[codes]
        gamma = self.gamma(call, X)
        kernel = self.kernel(call, gamma)
        probability = call.parameters.get("probability", "deprecated")
        seed = draw_seed(call)
        coefs, intercepts, n_iters, sigmoids = [], [], [], []
        for pair in dual_svm.class_pairs(len(classes)):
            of_pair = [cupy.flatnonzero(codes == code) for code in pair]
            rows = cupy.concatenate(of_pair)
            side = cupy.where(codes[rows] == pair[0], 1.0, -1.0)
            problem = _Problem(kernels.between(X, rows, rows, kernel), side, cost[rows], kernel)
            coef, intercept, n_iter = self._solve_pair(call, problem)
            everywhere = cupy.zeros(len(X))
            everywhere[rows] = coef
            coefs.append(everywhere)
            intercepts.append(intercept)
            n_iters.append(n_iter)
            if probability is True or probability == np.True_:
                sigmoids.append(self._sigmoid(call, problem, seed))
        layout = dual_svm.by_class(codes, coefs, len(classes), cupy)
        model = self.fitted(call, X, layout, np.array(intercepts), gamma)
        model.n_iter = np.array(n_iters, np.int32)
        model.sigmoids = np.array(sigmoids).reshape(-1, 2)
        return Outcome(
            model=model,
            attributes={
                "classes_": classes,
                "class_weight_": class_weight,
                "shape_fit_": X.shape,
            },
            announce=(
                [partial(_give_deprecation, probability)]
                if VERSION.release >= (1, 9) and probability != "deprecated"
                else []
            ),
        )

    def _solve_pair(self, call: Call, problem: _Problem) -> tuple[Any, float, int]:
        """Return the signed dual variables, the intercept, and the iterations."""
        import cupy

        X, side, cost, kernel = problem
        weight = cost / call.parameters["C"]
        coef, n_iter = self.solve(call, X, (side > 0).astype(np.int32), weight, kernel)
        optimality = dual_svm.optimality(
            side[None],
            (side - problem.products(X, coef))[None],
            (side * coef)[None],
            cost[None],
            cupy,
        )
        self.check(call, optimality)
        return coef, optimality.intercept, n_iter

    def _sigmoid(self, call: Call, problem: _Problem, seed: int) -> platt.Sigmoid:
        """Return what makes probabilities of decision values, by cross-validation."""
        import cupy

        decision = cupy.zeros(len(problem.X))
        for fold in platt.folds(len(problem.X), seed):
            held_out = to_device(fold)
            others = to_device(np.setdiff1d(np.arange(len(problem.X)), fold))
            kept = problem.among(others)
            if bool((kept.side == kept.side[0]).all()):
                decision[held_out] = kept.side[0]
                continue
            coef, intercept, _ = self._solve_pair(call, kept)
            X = kernels.between(problem.X, held_out, others, problem.kernel)
            decision[held_out] = kept.products(X, coef) + intercept
        return platt.fit_sigmoid(to_host(decision), to_host(problem.side > 0))

    def attributes(self, estimator: Any, model: Any) -> dict[str, Any]:
        attributes = super().attributes(estimator, model)
        if len(model.n_support) == 2:  # scikit-learn turns the two classes round
            attributes["intercept_"] = -attributes["intercept_"]
            attributes["dual_coef_"] = -attributes["dual_coef_"]
        return attributes

    def _pairwise(self, call: Call, model: Any) -> Any:
        import cupy

        if not hasattr(model, "by_pair"):  # the same for every call
            model.by_pair = dual_svm.by_pair(model.coef, model.n_support, cupy)
        return self.decisions(call, model, model.by_pair)

    def decision_function(self, call: Call, model: Any) -> Any:
        """Return a score for each class, or for each pair of classes, or for the second of two."""
        import cupy

        decisions, n_classes = self._pairwise(call, model), len(model.n_support)
        if n_classes == 2:
            return -decisions[:, 0]
        if call.parameters["decision_function_shape"] == "ovr":
            return dual_svm.per_class(decisions, n_classes, cupy)
        return decisions

    def predict(self, call: Call, model: Any) -> Any:
        """Return the labels that win most pairs."""
        import cupy

        decisions, n_classes = self._pairwise(call, model), len(model.n_support)
        if call.parameters["break_ties"] and n_classes > 2:
            return labelled(call, dual_svm.per_class(decisions, n_classes, cupy).argmax(axis=1))
        return labelled(call, dual_svm.most_votes(decisions, n_classes, cupy))

    def predict_proba(self, call: Call, model: Any) -> Any:
        """Return probabilities of shape (n_samples, n_classes)."""
        import cupy

        if not len(model.sigmoids):
            raise Refusal(Invalid("the model was fitted with probability=False"))
        a, b = cupy.asarray(model.sigmoids.T)
        decisions, n_classes = self._pairwise(call, model), len(model.n_support)
        pairs = platt.pair_probabilities(decisions, a, b, cupy)
        result = cupy.empty((len(pairs), n_classes))
        step = max(1, self._chunk // n_classes**2)
        for start in range(0, len(pairs), step):
            rows = slice(start, start + step)
            result[rows] = platt.couple(pairs[rows], n_classes, cupy)
        return result

    def predict_log_proba(self, call: Call, model: Any) -> Any:
        """Return the logarithms of the probabilities."""
        import cupy

        return cupy.log(self.predict_proba(call, model))

    def score(self, call: Call, model: Any) -> float:
        """Return the accuracy; the predictions come from the device."""
        return accuracy(call, self.predict(call, model))


class SVROnCuml(_DualOnCuml):
    path = "svm.SVR"
    methods = ("fit", "predict", "score")

    def every_rule(self) -> tuple[Rule, ...]:
        return (*super().every_rule(), *TARGET)

    def parameters(self, call: Call) -> dict[str, Any]:
        return {**super().parameters(call), "epsilon": call.parameters["epsilon"]}

    def fit(self, call: Call, X: Any) -> Outcome:
        import cupy

        y, weight = target(call), self.weights(call)
        gamma = self.gamma(call, X)
        problem = _Problem(X, None, call.parameters["C"] * weight, self.kernel(call, gamma))
        coef, n_iter = self.solve(call, X, y, weight, problem.kernel)
        side = cupy.asarray([[1.0], [-1.0]]) * cupy.ones(len(X))
        optimality = dual_svm.optimality(
            side,
            y - problem.products(X, coef) - side * call.parameters["epsilon"],
            cupy.maximum(side * coef, 0),
            cupy.broadcast_to(problem.cost, side.shape),
            cupy,
        )
        self.check(call, optimality)
        support = cupy.flatnonzero(coef)
        n_support = np.array([len(support)] * 2)
        layout = dual_svm.Layout(support, n_support, coef[None, support])
        model = self.fitted(call, X, layout, np.array([optimality.intercept]), gamma)
        model.n_iter = n_iter
        announce = warnings_of_target(call)
        return Outcome(model=model, attributes={"shape_fit_": X.shape}, announce=announce)

    def predict(self, call: Call, model: Any) -> Any:
        """Return predictions, float64 as in scikit-learn."""
        return self.decisions(call, model, model.coef.T)[:, 0]

    def score(self, call: Call, model: Any) -> float:
        """Return the coefficient of determination; the predictions come from the device."""
        return determination(call, self.predict(call, model))
