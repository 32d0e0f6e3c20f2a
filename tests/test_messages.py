"""What public functions say to arguments that they have no use for."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import sklearn.linear_model
from engine import LineOnNumpy

import accelsk
from accelsk.linear_model import Ridge

ROOT = Path(__file__).parent.parent


def work():
    """Do nothing."""


@pytest.mark.parametrize(
    ("function", "name"),
    [
        (accelsk.profile, "quiet"),
        (accelsk.line_profile, "quiet"),
        (accelsk.info, "check"),
        (accelsk.install, "disable_uvm"),
        (accelsk.install, "background"),
        (accelsk.patch, "rebind"),
    ],
)
@pytest.mark.parametrize("odd", [3, "yes", None, work, np.array([True, False])])
def test_flag_is_true_or_false(function, name, odd):
    with pytest.raises(TypeError, match=f"{name} must be True or False, got "):
        function(**{name: odd})
    assert not accelsk.is_patched()
    assert "ACCELSK_DISABLE_UVM" not in os.environ


def test_flag_of_numpys_is_one():
    with accelsk.profile(quiet=np.True_) as results:
        Ridge().fit([[0.0], [1.0]], [0.0, 1.0])
    assert results.method_calls


def test_decorator_without_parentheses_is_told_at_once():
    with pytest.raises(TypeError, match="quiet must be True or False, got <function work"):
        accelsk.profile(work)
    assert accelsk.profile(quiet=True)(work)() is None


@pytest.mark.parametrize("odd", [3, None, [], b"file.py"])
def test_line_profile_says_what_it_watches(odd):
    with pytest.raises(TypeError, match="a file, folder, module, function or code is needed, got"):
        accelsk.line_profile(odd)


@pytest.mark.parametrize(
    ("engines", "message"),
    [
        (None, "engines must be a list of engines, got None"),
        (LineOnNumpy, "engines must be a list of engines, got "),
        ([LineOnNumpy], "an instance of a subclass of Engine is needed, got <class"),
        ("cuml", "an instance of a subclass of Engine is needed, got 'c'"),
    ],
)
def test_register_says_what_an_engine_is(engines, message):
    with pytest.raises(TypeError, match=message):
        accelsk.register(sklearn.linear_model.HuberRegressor, engines)


@pytest.mark.parametrize("odd", [3, None, "Ridge", Ridge, [Ridge()]])
@pytest.mark.parametrize("function", [accelsk.from_sklearn, accelsk.to_sklearn])
def test_conversion_says_what_it_converts(function, odd):
    with pytest.raises(TypeError, match=r"^(int|NoneType|str|list) (is|has)|^an instance is need"):
        function(odd)


@pytest.mark.parametrize("odd", [3, None, "Ridge", [], object, len])
def test_anything_may_be_asked_whether_it_is_accelerated(odd):
    assert accelsk.is_proxy(odd) is False


# Broken environments

BROKEN = {"ACCELSK_DEVICE": "foo", "ACCELSK_DISABLE_UVM": "maybe", "ACCELSK_LOG_LEVEL": "loud"}


def _run(*arguments, **environment):
    kept = {k: v for k, v in os.environ.items() if not k.startswith("ACCELSK")}
    done = subprocess.run(
        [sys.executable, *arguments],
        env={**kept, "PYTHONPATH": str(ROOT), "CUDA_VISIBLE_DEVICES": "", **environment},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout, [line for line in done.stderr.splitlines() if "No GPU is used" not in line]


FIT = """
import accelsk
print(accelsk.get_config()["device"])
from sklearn.linear_model import Ridge
for _ in range(3):
    Ridge().fit([[0.0], [1.0]], [0.0, 1.0])
"""


def test_program_runs_with_defaults_and_hears_of_each_variable_once():
    out, told = _run("-W", "error", "-m", "accelsk", "-c", FIT, **BROKEN)
    assert out == "auto\n"
    assert sorted(line.partition(" ")[0] for line in told) == sorted(BROKEN)
    assert all("must be one of" in line for line in told)


def test_import_says_nothing():
    assert _run("-c", "import accelsk, accelsk.linear_model", **BROKEN) == ("", [])


def test_info_tells_of_broken_variables():
    out, told = _run("-m", "accelsk", "info", **BROKEN)
    assert not told
    for name in BROKEN:
        assert f"- {name} must be one of" in out
        assert f"unset {name}" in out
