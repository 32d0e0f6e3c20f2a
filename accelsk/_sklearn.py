"""The private names of scikit-learn that accelsk needs, in one place, each with its versions.

A name is private where no public module of scikit-learn's has it in its ``__all__``. What is public
is taken from the module that defines it (``sklearn.linear_model._ridge``), never from the public
namespaces, where another patcher's class may stand.

Nothing is looked up before it is used: a name that a release has moved costs the calls that need it
their GPU, with that reason, and no import but that of a class which has the name for a base.
Functions may be imported from here, for what is imported finds the function when it is called. What
is no function is read as an attribute of this module where it is needed.
"""

from __future__ import annotations

import functools
import importlib
from typing import Any, NamedTuple

import sklearn
from packaging.version import Version
from sklearn.utils.metaestimators import available_if

from accelsk import versions

__all__ = [
    "BOOKKEEPING",
    "PRIVATE",
    "VERSION",
    "AvailableIfDescriptor",
    "Private",
    "align_sparse",
    "alpha_grid",
]

VERSION = Version(sklearn.__version__)
versions.check("scikit-learn", sklearn.__version__)

#: The type of what ``@available_if`` makes of a method.
AvailableIfDescriptor = type(available_if(bool)(lambda self: None))


class Private(NamedTuple):
    """A private name of scikit-learn's.

    Attributes
    ----------
    module, name : str
        Where it is.
    purpose : str
        What accelsk needs it for.
    first, last : str
        The first and the last tested release that has it. The last one stands for all that begin
        with it.
    called : bool
        Whether it is a function, which is looked up anew at each call.
    """

    module: str
    name: str
    purpose: str
    first: str = "1.6"
    last: str = "1.9"
    called: bool = True

    @property
    def installed(self) -> bool:
        """Whether the installed release is one of those that have it."""
        first, last = Version(self.first).release, Version(self.last).release
        return first <= VERSION.release and VERSION.release[: len(last)] <= last

    def find(self) -> Any:
        """Return what the name stands for in the installed release."""
        return getattr(importlib.import_module(self.module), self.name)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.find()(*args, **kwargs)


#: What is no function.
_thing = functools.partial(Private, called=False)

_DECLARED = (
    # of the input
    Private("sklearn.utils.validation", "_check_feature_names", "warns of other names than fit's"),
    Private("sklearn.utils.validation", "_get_feature_names", "the names that a fit keeps"),
    Private("sklearn.utils", "_safe_indexing", "rows of any container, as a search takes them"),
    # of the output
    Private("sklearn.utils._set_output", "_get_output_config", "whether frames are wanted"),
    Private("sklearn.utils", "_align_api_if_sparse", "sparse array or matrix", first="1.9"),
    # linear models
    Private("sklearn.linear_model._coordinate_descent", "_alpha_grid", "the penalties of a path"),
    Private("sklearn.utils.optimize", "_check_optimize_result", "warns of a solver that stopped"),
    _thing(
        "sklearn.linear_model._logistic", "_LOGISTIC_SOLVER_CONVERGENCE_MSG", "what it says then"
    ),
    Private("sklearn.utils.optimize", "_newton_cg", "the solver of that name"),
    Private("sklearn.linear_model._ridge", "_IdentityRegressor", "what RidgeCV gives to scorers"),
    Private("sklearn.linear_model._ridge", "_IdentityClassifier", "what RidgeClassifierCV gives"),
    # clusters, neighbours, components
    Private("sklearn.utils._openmp_helpers", "_openmp_effective_n_threads", "KMeans._n_threads"),
    Private("sklearn.cluster._agglomerative", "_hc_cut", "clusters from the tree of all merges"),
    Private("sklearn.cluster._hierarchical_fast", "single_linkage_label", "merges from edges"),
    _thing("sklearn.cluster._hdbscan._linkage", "MST_edge_dtype", "edges of a spanning tree"),
    Private("sklearn.cluster._hdbscan.hdbscan", "_process_mst", "HDBSCAN's tree from edges"),
    Private("sklearn.cluster._hdbscan._tree", "tree_to_labels", "HDBSCAN's clusters from it"),
    Private("sklearn.cluster._spectral", "cluster_qr", "assign_labels of that name"),
    Private("sklearn.cluster._spectral", "discretize", "assign_labels of that name"),
    Private("sklearn.neighbors._kd_tree", "kernel_norm", "what densities are divided by"),
    Private("sklearn.utils.extmath", "_incremental_mean_and_var", "the type of a count of rows"),
    # trees
    _thing("sklearn.tree._tree", "Tree", "the trees of a forest from the GPU"),
    Private("sklearn.ensemble._forest", "_get_n_samples_bootstrap", "how max_samples is read"),
    Private("sklearn.ensemble._forest", "_generate_sample_indices", "the rows of a tree"),
    _thing("sklearn.ensemble._bagging", "MAX_INT", "the seeds of IsolationForest's trees"),
    Private("sklearn.ensemble._bagging", "_generate_bagging_indices", "the rows of these"),
    Private("sklearn.ensemble._iforest", "_average_path_length", "what their scores rest on"),
    # scores
    _thing("sklearn.metrics._scorer", "_Scorer", "to score data on the device"),
    _thing("sklearn.metrics._scorer", "_MultimetricScorer", "the same by several metrics"),
    _thing("sklearn.metrics._scorer", "_PassthroughScorer", "the same by the method score"),
)

#: Every private name that accelsk needs, under the name that it has here: without underscore.
PRIVATE: dict[str, Private] = {declared.name.lstrip("_"): declared for declared in _DECLARED}


def __getattr__(name: str) -> Any:
    """Return a private function, looked up when it is called, or another private thing itself."""
    try:
        private = PRIVATE[name]
    except KeyError:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}") from None
    return private if private.called else private.find()


def alpha_grid(*args: Any, positive: bool, **kwargs: Any) -> Any:
    """Return the penalties of a path; from 1.9 on it matters whether coefficients have a sign."""
    if VERSION.release >= (1, 9):
        kwargs["positive"] = positive
    return PRIVATE["alpha_grid"](*args, **kwargs)


def align_sparse(X: Any) -> Any:
    """Return `X` as scikit-learn gives it: before 1.9 there were sparse matrices only."""
    return PRIVATE["align_api_if_sparse"](X) if VERSION.release >= (1, 9) else X


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
