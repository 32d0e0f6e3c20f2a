"""Runs scikit-learn's own tests with scikit-learn patched::

    python tests/upstream.py [sklearn.linear_model.tests.test_ridge ...] [-n 8 ...]

The modules default to those of accelerated classes and of what holds or checks them. Tests that
are known to differ are in ``upstream.json``, with the reason. Everything else goes to pytest.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).parent

MODULES = [
    f"sklearn.{package}tests.test_{name}"
    for package, names in {
        "": "base calibration discriminant_analysis docstring_parameters kernel_ridge "
        "metaestimators_metadata_routing multiclass naive_bayes pipeline random_projection",
        "cluster.": "dbscan hdbscan hierarchical k_means spectral",
        "compose.": "column_transformer",
        "covariance.": "covariance",
        "decomposition.": "incremental_pca pca truncated_svd",
        "ensemble.": "forest iforest stacking voting",
        "feature_selection.": "from_model sequential",
        "inspection.": "permutation_importance",
        "linear_model.": "base coordinate_descent logistic ridge",
        "manifold.": "spectral_embedding t_sne",
        "model_selection.": "search validation",
        "neighbors.": "kde neighbors neighbors_pipeline",
        "preprocessing.": "data encoders label polynomial target_encoder",
        "svm.": "svm",
        "utils.": "estimator_checks",
    }.items()
    for name in names.split()
]


def main(arguments: list[str]) -> int:
    """Run pytest, from a folder without a configuration; return its exit status."""
    modules = [word for word in arguments if word.startswith("sklearn.")]
    others = [word for word in arguments if word not in modules]
    plugin = ["-p", "accelsk.pytest_plugin", "--accelsk"]
    known = ["--accelsk-xfail-list", str(HERE / "upstream.json")]
    surroundings = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(HERE.parent), os.environ.get("PYTHONPATH", "")]),
    }
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "pytest", *plugin, *known, "-p", "no:cacheprovider"]
        command += ["-c", os.devnull, "--rootdir", folder, *others]
        command += ["--pyargs", *(modules or MODULES)]
        return subprocess.run(command, cwd=folder, env=surroundings).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
