"""The private names of scikit-learn that accelsk needs, in one place.

===============================  =================================  ==========
name                             module                             versions
===============================  =================================  ==========
``_check_feature_names``         ``sklearn.utils.validation``       1.6 to 1.9
``_get_feature_names``           ``sklearn.utils.validation``       1.6 to 1.9
``_check_optimize_result``       ``sklearn.utils.optimize``         1.6 to 1.9
``_newton_cg``                   ``sklearn.utils.optimize``         1.6 to 1.9
``_openmp_effective_n_threads``  ``sklearn.utils._openmp_helpers``  1.6 to 1.9
``_get_output_config``           ``sklearn.utils._set_output``      1.6 to 1.9
``_alpha_grid``                  ``sklearn.linear_model.            1.6 to 1.9
                                 _coordinate_descent``
``_IdentityRegressor``           ``sklearn.linear_model._ridge``    1.6 to 1.9
``_IdentityClassifier``          ``sklearn.linear_model._ridge``    1.6 to 1.9
``_safe_indexing``               ``sklearn.utils``                  1.6 to 1.9
``_align_api_if_sparse``         ``sklearn.utils``                  1.9
``kernel_norm``                  ``sklearn.neighbors._kd_tree``     1.6 to 1.9
===============================  =================================  ==========

Functions are looked up when they are called: one that a release has moved costs the calls that need
it their GPU, with that reason, and never an import.

The original classes are taken from the modules that define them (``sklearn.linear_model._ridge``),
never from the public namespaces, where another patcher's class may stand.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import sklearn
from packaging.version import Version
from sklearn.utils.metaestimators import available_if

from accelsk import versions

__all__ = [
    "BOOKKEEPING",
    "VERSION",
    "AvailableIfDescriptor",
    "align_sparse",
    "alpha_grid",
    "check_feature_names",
    "check_optimize_result",
    "get_feature_names",
    "identity_classifier",
    "identity_regressor",
    "kernel_norm",
    "newton_cg",
    "openmp_effective_n_threads",
    "output_config",
    "safe_indexing",
]

VERSION = Version(sklearn.__version__)
versions.check("scikit-learn", sklearn.__version__)

#: The type of what ``@available_if`` makes of a method.
AvailableIfDescriptor = type(available_if(bool)(lambda self: None))


def _private(module: str, name: str) -> Callable[..., Any]:
    """Return scikit-learn's function `name` of `module`, looked up at each call."""

    def call(*args: Any, **kwargs: Any) -> Any:
        function = getattr(importlib.import_module(module), name)
        return function(*args, **kwargs)

    return call


check_feature_names = _private("sklearn.utils.validation", "_check_feature_names")
check_optimize_result = _private("sklearn.utils.optimize", "_check_optimize_result")
get_feature_names = _private("sklearn.utils.validation", "_get_feature_names")
identity_classifier = _private("sklearn.linear_model._ridge", "_IdentityClassifier")
identity_regressor = _private("sklearn.linear_model._ridge", "_IdentityRegressor")
kernel_norm = _private("sklearn.neighbors._kd_tree", "kernel_norm")
newton_cg = _private("sklearn.utils.optimize", "_newton_cg")
safe_indexing = _private("sklearn.utils", "_safe_indexing")
openmp_effective_n_threads = _private(
    "sklearn.utils._openmp_helpers", "_openmp_effective_n_threads"
)
output_config = _private("sklearn.utils._set_output", "_get_output_config")

_alpha_grid = _private("sklearn.linear_model._coordinate_descent", "_alpha_grid")


def alpha_grid(*args: Any, positive: bool, **kwargs: Any) -> Any:
    """Return the penalties of a path; from 1.9 on it matters whether coefficients have a sign."""
    if VERSION.release >= (1, 9):
        kwargs["positive"] = positive
    return _alpha_grid(*args, **kwargs)


if VERSION.release >= (1, 9):
    align_sparse = _private("sklearn.utils", "_align_api_if_sparse")
else:

    def align_sparse(X: Any) -> Any:
        """Return `X` as it is: before 1.9 there were sparse matrices only."""
        return X


#: What scikit-learn's metadata routing, output configuration and (1.9) callbacks keep in an
#: estimator's ``__dict__``: neither hyperparameters nor fitted state.
BOOKKEEPING = frozenset(
    {
        "_callback_fit_ctx",
        "_metadata_request",
        "_parent_callback_ctx",
        "_skl_callbacks",
        "_skl_callbacks_to_teardown",
        "_sklearn_output_config",
    }
)
