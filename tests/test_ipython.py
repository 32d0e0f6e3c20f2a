"""The magics in a real IPython shell: in this process, and in one of its own."""

from __future__ import annotations

import builtins
import logging
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from engine import AcceleratedLine

import accelsk

IPython = pytest.importorskip("IPython")

ROOT = Path(__file__).parent.parent


@pytest.fixture(scope="module")
def the_shell(tmp_path_factory):
    os.environ.setdefault("IPYTHONDIR", str(tmp_path_factory.mktemp("ipython")))
    from IPython.terminal.interactiveshell import TerminalInteractiveShell
    from traitlets.config import Config

    config = Config()
    config.HistoryManager.enabled = False
    config.TerminalInteractiveShell.colors = "nocolor"
    config.TerminalInteractiveShell.simple_prompt = True
    main, hook = sys.modules["__main__"], sys.excepthook  # a shell puts its own in their places
    yield TerminalInteractiveShell.instance(config=config)
    TerminalInteractiveShell.clear_instance()
    sys.modules["__main__"], sys.excepthook = main, hook


@pytest.fixture
def shell(the_shell, data, monkeypatch):
    """A shell with the extension, and data."""
    patched = []
    monkeypatch.setattr(accelsk, "patch", lambda: patched.append("patch"), raising=False)
    monkeypatch.setattr(accelsk, "unpatch", lambda: patched.append("unpatch"), raising=False)
    the_shell.reset()
    the_shell.push({"Line": AcceleratedLine, "X": data[0], "y": data[1]})
    the_shell.run_line_magic("load_ext", "accelsk")
    the_shell.patched = patched
    yield the_shell
    if "accelsk" in the_shell.extension_manager.loaded:
        the_shell.run_line_magic("unload_ext", "accelsk")


@pytest.fixture
def run(shell, capsys):
    """Run a cell; gives what is printed and what failed."""

    def run(cell):
        capsys.readouterr()
        result = shell.run_cell(cell, store_history=True)
        return "".join(capsys.readouterr()), result.error_before_exec or result.error_in_exec

    return run


def test_loading_patches_and_unloading_takes_it_back(shell):
    assert shell.patched == ["patch"]
    assert shell.find_cell_magic("accelsk.profile") is not None
    shell.run_line_magic("unload_ext", "accelsk")
    assert shell.patched == ["patch", "unpatch"]
    assert shell.find_cell_magic("accelsk.profile") is None
    assert shell.find_line_magic("accelsk.device") is None


def test_profile_shows_the_value_of_the_cell_and_then_the_report(run):
    out, error = run("%%accelsk.profile\nline = Line().fit(X, y)\nline.predict(X).shape")
    assert error is None
    assert re.search(r"Out\[\d+\]: \(40,\)", out)
    assert out.index("(40,)") < out.index("Line.fit") < out.index("Line.predict")


def test_names_and_the_last_value_stay(run, shell, monkeypatch):
    monkeypatch.delattr(builtins, "_", raising=False)  # doctests leave one, which IPython respects
    run("%%accelsk.profile\nline = Line().fit(X, y)\nline.coef_.shape")
    assert shell.user_ns["line"].coef_.shape == (3,)
    assert shell.user_ns["_"] == (3,)


def test_semicolon_keeps_the_value_quiet(run):
    out, _ = run("%%accelsk.profile\nLine().fit(X, y).coef_;")
    assert "Out[" not in out
    assert "Line.fit" in out


@pytest.mark.parametrize("order", ["profile\n%%time", "line_profile\n%%time"])
def test_other_cell_magics_go_inside(order, run):
    out, error = run(f"%%accelsk.{order}\nline = Line().fit(X, y)\nline.coef_.shape")
    assert error is None
    assert "Wall time" in out
    assert "(3,)" in out
    assert "Line.fit" in out or "Line().fit" in out


def test_other_cell_magics_go_outside(run):
    out, error = run("%%time\n%%accelsk.profile\nLine().fit(X, y)")
    assert error is None
    assert "Wall time" in out
    assert "Line.fit" in out


def test_magics_of_both_kinds_in_one_cell(run):
    out, error = run(
        "%%accelsk.profile\n%%accelsk.line_profile\nline = Line(forbidden=True).fit(X, y)"
    )
    assert error is None
    assert "! line = Line(forbidden=True).fit(X, y)" in out
    assert "Function" in out


def test_captured_output_stays_captured(run, shell):
    out, _ = run("%%capture output\n%%accelsk.profile\nprint('inside'); Line().fit(X, y)")
    assert out == ""
    assert "inside" in shell.user_ns["output"].stdout


def test_line_profile_tells_of_the_lines_of_the_cell(run):
    out, error = run(
        "%%accelsk.line_profile\n"
        "line = Line(\n"
        "    forbidden=True,\n"
        ").fit(X, y)\n"
        "for _ in range(3):\n"
        "    p = line.predict(X)\n"
    )
    assert error is None
    table = out.splitlines()
    assert table[0] == "<cell>: 3 lines executed"
    assert re.match(r" +1 +1 .* 0%  ! line = Line\($", table[2])
    assert re.match(r" +2 +    forbidden=True,$", table[3])
    assert re.match(r" +5 +4 ", table[6]) or re.match(r" +4 +4 ", table[5])
    assert "- Line.fit: forbidden=True" in out


@pytest.mark.parametrize("magic", ["profile", "line_profile"])
def test_error_of_a_cell_shows_where_it_was(magic, run):
    out, error = run(f"%%accelsk.{magic}\nLine().fit(X, y)\nnumbers = [1]\nnumbers[5]\n")
    assert isinstance(error, IndexError)
    assert out.count("Traceback") == 1
    assert "----> 3 numbers[5]" in out
    assert "IndexError: list index out of range" in out
    hidden = ["accelsk/ipython.py", "contextlib"]
    if IPython.version_info >= (9,):  # it shows itself up to then
        hidden.append("interactiveshell")
    assert [name for name in hidden if name in out] == []
    # and the report is there all the same
    assert "Line" in out.partition("Traceback")[0]


def test_number_of_the_cell_in_a_traceback_is_its_own(run, shell):
    out, _ = run("%%accelsk.profile\n1 / 0\n")
    assert len(set(re.findall(r"In\s?\[(\d+)\]", out))) == 1


def test_syntax_error_is_shown_once(run):
    out, error = run("%%accelsk.profile\nx = = 1\n")
    assert isinstance(error, SyntaxError)
    assert out.count("SyntaxError") == 1


def test_shell_shows_errors_as_before_after_a_magic(run):
    run("%%accelsk.profile\n1 / 0\n")
    out, _ = run("1 / 0")
    assert "ZeroDivisionError" in out


def test_device_is_set_for_the_cells_that_follow(run):
    assert run("%accelsk.device")[0].strip() == "auto"
    run("%accelsk.device cpu")
    assert (
        run("accelsk = __import__('accelsk'); print(accelsk.get_config()['device'])")[0] == "cpu\n"
    )
    assert run("%accelsk.device")[0].strip() == "cpu"
    out, _ = run("%accelsk.device tpu")
    assert "UsageError: device must be one of" in out
    assert "Traceback" not in out


def test_log_level_is_set(run):
    assert run("%accelsk.log_level")[0].strip() == "warn"
    run("%accelsk.log_level debug")
    assert logging.getLogger("accelsk").level == logging.DEBUG
    assert run("%accelsk.log_level")[0].strip() == "debug"
    out, _ = run("%accelsk.log_level loud")
    assert "UsageError: log_level must be one of" in out


def test_await_works_where_no_loop_runs(run):
    out, error = run(
        "%%accelsk.profile\nimport asyncio\nawait asyncio.sleep(0.001)\nLine().fit(X, y)"
    )
    assert error is None
    assert "Line.fit" in out


@pytest.mark.parametrize("magic", ["profile", "line_profile"])
def test_argument_that_a_magic_does_not_take(magic, run):
    out, _ = run(f"%%accelsk.{magic} --fast\npass")
    assert f"UsageError: %%accelsk.{magic} takes no arguments, got '--fast'" in out


def test_results_show_as_a_table(run, shell):
    out, _ = run(
        "import accelsk\n"
        "with accelsk.profile(quiet=True) as results:\n"
        "    Line().fit(X, y)\n"
        "results"
    )
    assert "│ Line.fit" in out


_CELLS = """
get_ipython().run_line_magic("load_ext", "accelsk")
from sklearn.linear_model import Ridge
print(Ridge.__module__)
get_ipython().run_cell('%%accelsk.profile\\nRidge().fit([[0.0], [1.0]], [0.0, 1.0]).coef_.shape')
get_ipython().run_line_magic("unload_ext", "accelsk")
from sklearn.linear_model import Ridge
print(Ridge.__module__)
"""


def test_in_a_process_of_its_own(tmp_path):
    script = tmp_path / "cells.ipy"
    script.write_text(_CELLS)
    done = subprocess.run(
        [sys.executable, "-m", "IPython", "--no-banner", "--colors=nocolor", script],
        env={**os.environ, "PYTHONPATH": str(ROOT), "IPYTHONDIR": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=180,
    )
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0] == "accelsk.linear_model"
    assert lines[-1].startswith("sklearn.linear_model")
    assert "(1,)" in done.stdout
    assert "Ridge.fit" in done.stdout
