"""The private names of scikit-learn that accelsk needs, in one place.

==========================  =====================================  ===========
name                        module                                 versions
==========================  =====================================  ===========
``_check_feature_names``    ``sklearn.utils.validation``           1.6 to 1.9
``_get_feature_names``      ``sklearn.utils.validation``           1.6 to 1.9
``_AvailableIfDescriptor``  ``sklearn.utils._available_if``        1.6 to 1.9
``_check_optimize_result``  ``sklearn.utils.optimize``             1.6 to 1.9
``_newton_cg``              ``sklearn.utils.optimize``             1.6 to 1.9
``_get_output_config``      ``sklearn.utils._set_output``          1.6 to 1.9
``_align_api_if_sparse``    ``sklearn.utils``                      1.9
``kernel_norm``             ``sklearn.neighbors._kd_tree``         1.6 to 1.9
==========================  =====================================  ===========

The original classes are taken from the modules that define them (``sklearn.linear_model._ridge``),
never from the public namespaces, where another patcher's class may stand.
"""

from __future__ import annotations

from typing import Any

import sklearn
from packaging.version import Version
from sklearn.neighbors._kd_tree import kernel_norm
from sklearn.utils._available_if import _AvailableIfDescriptor as AvailableIfDescriptor
from sklearn.utils._set_output import _get_output_config as output_config
from sklearn.utils.optimize import _check_optimize_result as check_optimize_result
from sklearn.utils.optimize import _newton_cg as newton_cg
from sklearn.utils.validation import _check_feature_names as check_feature_names
from sklearn.utils.validation import _get_feature_names as get_feature_names

from accelsk import versions

__all__ = [
    "BOOKKEEPING",
    "VERSION",
    "AvailableIfDescriptor",
    "align_sparse",
    "check_feature_names",
    "check_optimize_result",
    "get_feature_names",
    "kernel_norm",
    "newton_cg",
    "output_config",
]

try:
    from sklearn.utils import _align_api_if_sparse as align_sparse
except ImportError:

    def align_sparse(X: Any) -> Any:
        """Return `X` as it is: before 1.9 there were sparse matrices only."""
        return X


VERSION = Version(sklearn.__version__)
versions.check("scikit-learn", sklearn.__version__)

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
