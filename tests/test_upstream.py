"""The runner of scikit-learn's own tests, and its list of known differences."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import upstream

from accelsk import registry
from accelsk.pytest_plugin import read_list

RUNNER = Path(upstream.__file__)

SUITE = """
import pytest
import sklearn.linear_model

def test_passes():
    assert sklearn.linear_model.Ridge().fit([[0.0], [1.0]], [0.0, 1.0]).coef_.shape == (1,)

def test_fails():
    assert "accelsk" not in sklearn.linear_model.Ridge.__module__, "it is accelsk's"

def test_is_skipped():
    pytest.skip("not here")
"""


def _sources(modules):
    for module in modules:
        spec = importlib.util.find_spec(module)
        assert spec is not None, module
        yield Path(spec.origin).read_text(encoding="utf-8")


def test_selections_are_files_of_this_scikit_learn_and_name_every_class():
    modules = [module for part in upstream.DEFAULT for module in upstream.SELECTIONS[part]]
    assert len(upstream.SELECTIONS["first"] + upstream.SELECTIONS["rest"]) == 34
    assert len(set(modules)) == len(modules)
    text = "\n".join(_sources(modules))
    classes = {**registry.accelerated_classes(), **registry.composite_classes()}
    ours = [cls.__name__ for cls in classes if cls.__module__.startswith("sklearn.")]
    assert [name for name in ours if name not in text] == []


def test_every_known_difference_has_a_reason():
    entries = json.loads((RUNNER.parent / "upstream.json").read_text())
    assert all(len(entry["reason"]) > 20 for entry in entries)
    assert all(entry["id"] for entry in entries)
    read_list(RUNNER.parent / "upstream.json")


def _run(folder, *arguments):
    done = subprocess.run(
        [sys.executable, str(RUNNER), *arguments],
        cwd=folder,
        env={**os.environ, "PYTEST_ADDOPTS": ""},
        capture_output=True,
        text=True,
        timeout=300,
    )
    return done.returncode, done.stdout + done.stderr


@pytest.mark.parametrize("workers", [(), ("-n", "1")])
def test_report_counts_what_came_of_each_module(tmp_path, workers):
    (tmp_path / "suite").mkdir()
    (tmp_path / "suite" / "test_it.py").write_text(SUITE)
    status, text = _run(tmp_path, "suite", "--report", "report.json", "-q", *workers)
    assert status == 1, text
    figures = json.loads((tmp_path / "report.json").read_text())
    assert figures["total"] == {"failed": 1, "passed": 1, "skipped": 1}
    assert figures["modules"] == {"suite.test_it": figures["total"]}
    (failure,) = figures["failures"].items()
    assert failure[0] == "suite/test_it.py::test_fails"
    assert failure[1].startswith("AssertionError: it is accelsk's")
    assert figures["patched"]
    assert figures["machine"]["versions"]["scikit-learn"]


def test_plain_run_leaves_scikit_learn_alone(tmp_path):
    (tmp_path / "test_it.py").write_text(SUITE)
    status, text = _run(tmp_path, "test_it.py", "--plain", "-q")
    assert status == 0, text
    assert "2 passed, 1 skipped" in text


def test_ids_of_scikit_learn_name_the_module(tmp_path):
    module = "sklearn.utils.tests.test_bunch"
    status, text = _run(tmp_path, module, "-v", "--report", "report.json")
    assert status == 0, text
    assert "sklearn/utils/tests/test_bunch.py::" in text
    assert list(json.loads((tmp_path / "report.json").read_text())["modules"]) == [module]


def test_what_is_nothing_is_an_error(tmp_path):
    status, text = _run(tmp_path, "no_such_thing")
    assert status == 1
    assert "no selection, no module and no file" in text
