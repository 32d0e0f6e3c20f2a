"""The pytest plugin, over suites of its own in processes of their own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import accelsk
from accelsk.device import probe
from accelsk.pytest_plugin import Difference, read_list

ROOT = Path(__file__).parent.parent

SUITE = """
import pytest
from sklearn.linear_model import Ridge

def test_is_patched():
    assert Ridge.__module__ == "accelsk.linear_model"

@pytest.mark.parametrize("a", [1, 2])
def test_differs(a):
    assert a == 3

class TestClass:
    def test_method(self):
        assert False
"""


@pytest.fixture
def suite(tmp_path):
    (tmp_path / "part").mkdir()
    (tmp_path / "part" / "test_some.py").write_text(SUITE)
    (tmp_path / "test_more.py").write_text("def test_plain():\n    pass\n")
    return tmp_path


NAMED = ("-p", "accelsk.pytest_plugin")


def _run(suite, *arguments, entries=None, plugin=NAMED, **environment):
    if entries is not None:
        (suite / "list.json").write_text(json.dumps(entries))
        arguments = (*arguments, "--accelsk-xfail-list", "list.json")
    plugins = (*plugin, "-p", "no:cacheprovider")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *plugins, *arguments],
        cwd=suite,
        env={**os.environ, "PYTHONPATH": str(ROOT), **environment},
        capture_output=True,
        text=True,
        timeout=300,
    )
    return done.returncode, done.stdout + done.stderr


METHOD = "part/test_some.py::TestClass::test_method"
KNOWN = [{"id": ["part/test_some.py::test_differs", METHOD], "reason": "differs"}]


def test_suite_runs_patched_with_known_differences(suite):
    status, text = _run(suite, "--accelsk", entries=KNOWN)
    assert status == 0, text
    assert "2 passed, 3 xfailed" in text
    assert "accelsk: 0." in text
    assert "scikit-learn is patched, no GPU is used: " in text


PATCHED = "scikit-learn is patched, no GPU is used: "
PLAIN = "accelsk: scikit-learn is not patched; --accelsk does that"


@pytest.mark.parametrize("by", ["command line", "addopts", "PYTEST_ADDOPTS", "PYTEST_PLUGINS"])
def test_who_names_the_plugin_wants_it(suite, by):
    named, environment = " ".join(NAMED), {}
    if by == "addopts":
        (suite / "pytest.ini").write_text(f"[pytest]\naddopts = {named}\n")
    elif by.startswith("PYTEST"):
        environment = {by: named if by == "PYTEST_ADDOPTS" else NAMED[1]}
    plugin = NAMED if by == "command line" else ()
    status, text = _run(suite, entries=KNOWN, plugin=plugin, **environment)
    assert status == 0, text
    assert "2 passed, 3 xfailed" in text
    assert PATCHED in text
    status, text = _run(suite, "--no-accelsk", entries=KNOWN, plugin=plugin, **environment)
    assert status == 1
    assert "4 failed, 1 passed" in text
    assert PLAIN in text


def test_conftest_that_brings_the_plugin_leaves_it_off(suite):
    (suite / "conftest.py").write_text('pytest_plugins = ["accelsk.pytest_plugin"]')
    status, text = _run(suite, plugin=())
    assert status == 1
    assert "4 failed, 1 passed" in text
    assert PLAIN in text
    text = _run(suite, "--accelsk", plugin=())[1]
    assert "3 failed, 2 passed" in text
    assert PATCHED in text


def test_plugin_may_be_kept_out(suite):
    for arguments in ((*NAMED, "-p", f"no:{NAMED[1]}"), ("-p", f"no:{NAMED[1]}")):
        text = _run(suite, plugin=arguments)[1]
        assert "4 failed, 1 passed" in text
        assert "accelsk: " not in text


@pytest.mark.parametrize("option", [["--accelsk"], []])
def test_workers_of_xdist_run_patched(suite, option):
    pytest.importorskip("xdist")
    entries = [*KNOWN, {"id": "part/test_some.py::test_gone"}]
    status, text = _run(suite, *option, "-n", "1", entries=entries)
    assert status == 1
    assert _run(suite, "--no-accelsk", "-n", "1")[1].count("4 failed, 1 passed") == 1
    assert "2 passed, 3 xfailed" in text
    assert text.count("list.json: part/test_some.py::test_gone") == 1


def test_conftest_may_bring_the_plugin(suite):
    (suite / "conftest.py").write_text('pytest_plugins = ["accelsk.pytest_plugin"]')
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "--accelsk", "-k", "patched", "-p", "no:cacheprovider"],
        cwd=suite,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert "1 passed" in done.stdout


def test_entry_that_matches_nothing_fails_the_run(suite):
    entries = [*KNOWN, {"id": "part/test_some.py::test_gone"}, {"id": "test_absent.py::test_it"}]
    status, text = _run(suite, "--accelsk", entries=entries)
    assert status == 1
    assert "entries that match no test" in text
    assert "list.json: part/test_some.py::test_gone" in text
    assert "list.json: test_absent.py::test_it" in text


def test_entries_of_what_is_left_out_do_not_count(suite):
    entries = [*KNOWN, {"id": "part/test_some.py::test_gone"}, {"id": "test_absent.py::test_it"}]
    assert _run(suite, "--accelsk", "test_more.py", entries=entries)[0] == 0
    chosen = "part/test_some.py::test_is_patched"
    assert _run(suite, "--accelsk", chosen, entries=entries)[0] == 0
    assert _run(suite, "--accelsk", "-k", "patched", entries=KNOWN)[0] == 0


def test_packages_may_be_named(suite, tmp_path):
    (suite / "part" / "__init__.py").write_text("")
    root = tmp_path / "elsewhere"
    root.mkdir()
    (root / "list.json").write_text(
        json.dumps([{"id": ["part.test_some::test_differs", METHOD], "reason": "differs"}])
    )
    options = ("-p", "accelsk.pytest_plugin", "--accelsk", "--accelsk-xfail-list", "list.json")
    outside = ("--rootdir", str(root), "-c", os.devnull, "--pyargs", "part.test_some")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *options, *outside],
        cwd=root,
        env={**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{suite}"},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 passed, 3 xfailed" in done.stdout


def test_entries_of_packages_beside_the_one_that_is_run_do_not_count(tmp_path):
    for part in ("a", "b"):
        (tmp_path / "top" / part).mkdir(parents=True, exist_ok=True)
        (tmp_path / "top" / part / "__init__.py").write_text("")
        (tmp_path / "top" / part / "test_it.py").write_text("def test_it():\n    pass\n")
    (tmp_path / "top" / "__init__.py").write_text("")
    gone = [{"id": "top.b.test_it::test_gone"}, {"id": "top.b.test_gone::test_it"}]
    for package, named in (("top.a", 0), ("top.b", 2), ("top", 2), ("top.b.test_it", 1)):
        with_path = ("-o", f"pythonpath={tmp_path}", "--pyargs", package)
        status, text = _run(tmp_path, "--accelsk", *with_path, entries=gone)
        assert (status, text.count("list.json: top/b/")) == (named > 0, named), text


def test_entry_of_one_device_holds_there_only(suite):
    entries = [{"id": "test_more.py::test_plain", "device": "gpu"}]
    status, text = _run(suite, "--accelsk", "test_more.py", entries=entries)
    assert (status, "1 passed" in text) == (0, True)
    entries = [{"id": "test_more.py::test_plain", "device": "auto"}]
    status, text = _run(suite, "--accelsk", "test_more.py", entries=entries)
    assert (status, "XPASS(strict)" in text) == (1, True)


def test_passing_is_a_failure_unless_it_is_allowed(suite):
    strict = {"id": "test_more.py::test_plain", "reason": "was slow"}
    status, text = _run(suite, "--accelsk", "test_more.py", entries=[strict])
    assert status == 1
    assert "XPASS(strict)" in text
    status, text = _run(suite, "--accelsk", "test_more.py", entries=[{**strict, "strict": False}])
    assert (status, "1 xpassed" in text) == (0, True)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ('{"id": "x"}', "no list"),
        ('[{"reason": "x"}]', "an entry has an id"),
        ('[{"id": "x", "raeson": "y"}]', "an entry has an id"),
        ('[{"id": "x", "condition": ">>1"}]', "condition"),
        ('[{"id": "x", "device": "tpu"}]', "device"),
        ("[", "list.json"),
    ],
)
def test_list_that_is_none_is_an_error(suite, content, message):
    (suite / "list.json").write_text(content)
    status, text = _run(suite, "--accelsk", "--accelsk-xfail-list", "list.json")
    assert status == pytest.ExitCode.USAGE_ERROR
    assert message in text


# Reading lists


def _read(tmp_path, entries):
    path = tmp_path / "list.json"
    path.write_text(json.dumps(entries))
    return read_list(path)


@pytest.mark.parametrize(
    ("condition", "holds"),
    [
        ("scikit-learn>=1.6", True),
        ("scikit-learn<1.0", False),
        (["scikit-learn>=1.6", "python>=3.11"], True),
        (["scikit-learn>=1.6", "python<3.0"], False),
        ("not-installed-at-all>=1", False),
        ([], True),
    ],
)
def test_conditions(tmp_path, condition, holds):
    found = _read(tmp_path, [{"id": "test_it.py::test", "condition": condition}])
    assert len(found) == holds


@pytest.mark.parametrize("device", ["gpu", "auto", "cpu"])
@pytest.mark.parametrize("usable", [True, False])
def test_entry_for_the_gpu_needs_one_and_the_setting(tmp_path, monkeypatch, device, usable):
    monkeypatch.setattr(probe, "unusable", lambda: None if usable else "no GPU")
    with accelsk.config_context(device=device):
        found = _read(tmp_path, [{"id": "test_it.py::test", "device": "gpu"}])
        assert len(found) == (usable and device == "gpu")
        assert len(_read(tmp_path, [{"id": "test_it.py::test", "device": device}])) == (
            usable or device != "gpu"
        )


@pytest.mark.parametrize(
    ("listed", "nodeid", "matches"),
    [
        ("tests/test_a.py::test_x", "tests/test_a.py::test_x", True),
        ("tests/test_a.py::test_x", "tests/test_a.py::test_x[1]", True),
        ("tests/test_a.py::test_x[1]", "tests/test_a.py::test_x[1]", True),
        ("tests/test_a.py::test_x[1]", "tests/test_a.py::test_x[2]", False),
        ("tests/test_a.py::test_x", "tests/test_a.py::test_xy", False),
        ("test_a.py::test_x", "../lib/sklearn/tests/test_a.py::test_x", True),
        ("sklearn.tests.test_a::test_x", "../lib/sklearn/tests/test_a.py::test_x[a/b]", True),
        ("test_a.py::test_x[a/b.c::d]", "test_a.py::test_x[a/b.c::d]", True),
    ],
)
def test_ids(tmp_path, listed, nodeid, matches):
    (difference,) = _read(tmp_path, [{"id": listed}])
    assert difference.is_of(nodeid) is matches


def test_yaml(tmp_path):
    path = tmp_path / "list.yaml"
    path.write_text(
        """
- id: [test_a.py::test_x, sklearn.tests.test_b::test_y]
  reason: rounding
  strict: false
- id: test_a.py::test_z
  condition: scikit-learn<1.0
"""
    )
    try:
        import yaml
    except ImportError:
        with pytest.raises(pytest.UsageError, match="pip install pyyaml"):
            read_list(path)
        return
    assert yaml
    assert read_list(path) == [
        Difference("test_a.py::test_x", "rounding", False),
        Difference("sklearn/tests/test_b.py::test_y", "rounding", False),
    ]
    path.write_text("- [")
    with pytest.raises(pytest.UsageError):
        read_list(path)
    path.write_text("")
    assert read_list(path) == []
