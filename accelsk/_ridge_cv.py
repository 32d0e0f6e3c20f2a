"""Engines of ridge regression with the penalty chosen by cross-validation."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np
from sklearn.utils.class_weight import compute_sample_weight

from accelsk._leave_one_out import Rewound, chosen, keeps, of_few_rows, of_many_rows
from accelsk._linear_moments import (
    ROUTING,
    SPLITTER,
    SPLITTER_PARAMETERS,
    LinearOnMoments,
    Warned,
    of_model,
    real_numbers,
)
from accelsk.config import config_context
from accelsk.device.transfer import to_host
from accelsk.engines import inputs
from accelsk.engines.base import Call, Outcome, Rule, only, refuse
from accelsk.engines.moments import Block, blocks, moments
from accelsk.exceptions import FallbackError, Invalid, Refusal

__all__ = ["RULES", "RidgeCVOnMoments", "example", "few_rows", "searched"]


def _bad_alphas(call: Call) -> bool:
    """Whether scikit-learn has an error for ``alphas``."""
    given, alphas = call.parameters["alphas"], real_numbers(call, "alphas")
    if isinstance(given, tuple) and len(given) == 1:
        return True  # which it tries to write to
    if alphas is None or alphas.ndim > 1 or not alphas.size:
        return True
    # leaving out one row at a time divides by them
    least = alphas.min()
    return not (least > 0 if call.parameters["cv"] is None else least >= 0)


def _one_at_a_time(text: str, test: Any) -> Rule:
    """Return a rule for leaving out one row at a time."""
    return refuse(text, lambda call: call.parameters["cv"] is None and test(call))


def _kept_apart(call: Call) -> bool:
    """Whether rows or targets are to be kept apart, which no search does."""
    parameters = call.parameters
    return parameters["cv"] is not None and bool(
        keeps(call) or parameters.get("alpha_per_target", False)
    )


#: What holds for the regression and for the classifier.
RULES: tuple[Rule, ...] = (
    refuse(Invalid("alphas are not positive numbers"), _bad_alphas),
    refuse("alphas has no dimensions", lambda call: np.ndim(call.parameters["alphas"]) == 0),
    only("store_cv_values", "deprecated"),
    refuse(Invalid("cv with store_cv_results or alpha_per_target"), _kept_apart),
    ROUTING,
    SPLITTER,
    SPLITTER_PARAMETERS,
    # which releases of scikit-learn take in different ways
    refuse(
        "sample_weight is one number, and cv is given",
        lambda call: call.parameters["cv"] is not None and call.sample_weight.kind == "scalar",
    ),
    _one_at_a_time("one row", lambda call: call.X.shape[:1] == (1,)),
    _one_at_a_time("more than 10000 rows and features", lambda call: min(call.X.shape) > 10_000),
)


def few_rows(call: Call) -> bool:
    """Whether there are no more rows than columns."""
    return call.X.shape[0] <= call.X.shape[1]


def example(call: Call) -> dict[str, Any]:
    """Return what `as_in_sklearn` takes to show the types of attributes."""
    if "alphas" not in call.parameters:
        return {}
    shown: dict[str, Any] = {"alphas": np.ones(2, np.asarray(call.parameters["alphas"]).dtype)}
    if call.parameters["scoring"] is not None:
        shown["as_given"] = ("best_score_",)
    return shown


def searched(call: Call) -> dict[str, Any]:
    """Return the fitted attributes that a search over the folds of ``cv`` leads to.

    The search is that of `accelsk.model_selection`, in which the moments of each fold serve all
    penalties.
    """
    from accelsk import linear_model, model_selection

    parameters = call.parameters
    model = linear_model.RidgeClassifier if "class_weight" in parameters else linear_model.Ridge
    search = model_selection.GridSearchCV(
        model(fit_intercept=parameters["fit_intercept"]),
        {"alpha": np.asarray(parameters["alphas"])},
        cv=parameters["cv"],
        scoring=parameters["scoring"],
        error_score="raise",
    )
    X, y, given = call.X.value, call.y.value, {}
    if call.sample_weight.given:
        given["sample_weight"] = call.sample_weight.value
    if parameters.get("class_weight"):
        of_class = compute_sample_weight(parameters["class_weight"], to_host(call.y.array))
        given["sample_weight"] = of_class * to_host(given.get("sample_weight", 1.0))
    try:
        with config_context(on_fallback="raise"):
            search.fit(X, y, **given)
    except FallbackError as error:
        raise Refusal(str(error)) from error
    best = search.best_estimator_
    attributes = {"alpha_": best.alpha, "best_score_": search.best_score_}
    for name in ("coef_", "intercept_"):
        attributes[name] = getattr(best, name)
    if "store_cv_values" in parameters:
        attributes["_store_cv_results"] = False
    return attributes


class RidgeCVOnMoments(LinearOnMoments):
    """The moments in one pass, the errors of rows left out in another; or a search."""

    outputs = True
    options = ("fit_intercept", "store_cv_results", "alpha_per_target")
    rules = (
        *RULES,
        refuse(
            Invalid("alpha_per_target with scoring for one target"),
            lambda call: (
                call.parameters["alpha_per_target"]
                and call.parameters["scoring"] is not None
                and len(call.y.shape) == 1
            ),
        ),
    )

    def fit(self, call: Call, X: Any) -> Outcome:
        if call.parameters["cv"] is not None:
            attributes = searched(call)
            return Outcome(model=of_model(SimpleNamespace(**attributes)), attributes=attributes)
        solution: Any
        rows: Iterable[Block]
        if few_rows(call):
            y = inputs.target(call, np.float64).reshape(call.X.shape[0], -1)
            found, solution, rows = of_few_rows(call, y, inputs.weights(call, np.float64))
        else:
            again = Rewound(call, partial(blocks, call))
            found = moments(call, rows=again)
            if not call.parameters["fit_intercept"]:
                found = found.about_zero()
            solution, rows = of_many_rows(call, found), again()
        by_target = call.parameters["alpha_per_target"] and len(call.y.shape) == 2
        result = chosen(call, solution, rows, by_target=by_target)
        single = len(call.y.shape) == 1
        attributes = result.attributes(call)
        attributes["coef_"] = result.coef[:, 0] if single else result.coef.T
        if single and "cv_results_" in attributes:
            attributes["cv_results_"] = attributes["cv_results_"][:, 0]
        return self.finished(call, found, attributes, Warned(), **example(call))
