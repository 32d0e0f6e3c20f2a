"""Runs the tests that scikit-learn ships, with scikit-learn patched::

    python tests/upstream.py [SELECTION ...] [--gpu] [--plain] [--report FILE] [-n 8 ...]

What to run stands before the options: words of `SELECTIONS` (by default ``first``, ``rest`` and
``others``: the files of accelerated classes and of what holds or checks them), modules and
packages (``sklearn.linear_model.tests.test_ridge``, ``sklearn.svm``, ``hdbscan``), or files and
folders (umap-learn's tests are in its repository only). Options that are not named here go to
pytest.

Tests that are known to differ are in ``upstream.json``, with the reason; `accelsk.pytest_plugin`
says what such a list is.
"""

from __future__ import annotations

import argparse
import importlib.util
import itertools
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

HERE = Path(__file__).parent


def _modules(names: Mapping[str, str]) -> list[str]:
    return [
        f"sklearn.{package}tests.test_{name}"
        for package, files in names.items()
        for name in files.split()
    ]


#: Words for parts of scikit-learn's tests. cuml.accel was measured on the first two.
SELECTIONS = {
    "first": _modules(
        {
            "cluster.": "k_means dbscan hdbscan spectral",
            "covariance.": "covariance",
            "decomposition.": "pca incremental_pca truncated_svd",
            "ensemble.": "forest iforest",
            "linear_model.": "base ridge logistic coordinate_descent",
            "manifold.": "t_sne spectral_embedding",
            "neighbors.": "neighbors kde",
        }
    ),
    "rest": _modules(
        {
            "preprocessing.": "data encoders label target_encoder polynomial",
            "svm.": "svm",
            "": "kernel_ridge pipeline common calibration",
            "compose.": "column_transformer",
            "model_selection.": "search validation",
            "feature_selection.": "from_model",
            "ensemble.": "voting stacking",
        }
    ),
    "others": _modules(
        {
            "": "base discriminant_analysis docstring_parameters metaestimators_metadata_routing "
            "multiclass naive_bayes random_projection",
            "cluster.": "hierarchical",
            "compose.": "target",
            "feature_selection.": "sequential",
            "inspection.": "permutation_importance",
            "linear_model.": "bayes least_angle omp",
            "metrics.": "classification pairwise ranking regression score_objects",
            "model_selection.": "successive_halving",
            "neighbors.": "neighbors_pipeline",
            "utils.": "estimator_checks",
        }
    ),
    "whole": ["sklearn"],
}
DEFAULT = ("first", "rest", "others")


def main(arguments: Sequence[str]) -> int:
    """Run pytest, from a folder without a configuration; return its exit status."""
    words = list(itertools.takewhile(lambda word: not word.startswith("-"), arguments))
    parser = argparse.ArgumentParser(prog="upstream.py SELECTION ...", allow_abbrev=False)
    parser.add_argument("--gpu", action="store_true", help="send all calls to the GPU that can go")
    parser.add_argument("--plain", action="store_true", help="leave scikit-learn as it is")
    parser.add_argument("--report", type=Path, metavar="FILE", help="write figures to this file")
    options, others = parser.parse_known_args(arguments[len(words) :])
    places = [place for word in words or DEFAULT for place in SELECTIONS.get(word, [_found(word)])]
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-c", os.devnull]
        command += ["--rootdir", str(_root(places[0]))]  # so that ids name the module
        if not options.plain:
            command += ["-p", "accelsk.pytest_plugin", "--accelsk"]
            if places[0].startswith("sklearn"):
                command += ["--accelsk-xfail-list", str(HERE / "upstream.json")]
        if options.report is not None:
            command += ["-p", "upstream_report", "--upstream-report", str(options.report.resolve())]
        command += [*others, "--pyargs", *places]
        return subprocess.run(command, cwd=folder, env=_surroundings(options.gpu)).returncode


def _found(word: str) -> str:
    """Return a file or folder by its full path; a module as it is."""
    return str(Path(word).resolve()) if Path(word).exists() else word


def _root(place: str) -> Path:
    """Return the folder that a package, or a file or folder, is in."""
    if os.path.isabs(place):
        return Path(place).parent
    spec = importlib.util.find_spec(place.partition(".")[0])
    if spec is None or spec.origin is None:
        raise SystemExit(f"{place!r} is no selection, no module and no file")
    return Path(spec.origin).parent.parent


def _surroundings(gpu: bool) -> dict[str, str]:
    paths = [str(HERE), str(HERE.parent), os.environ.get("PYTHONPATH", "")]
    device = {"ACCELSK_DEVICE": "gpu"} if gpu else {}
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths)), **device}


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
