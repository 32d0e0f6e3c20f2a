"""The table of what is supported says what the declarations say, in the README, too.

``python tests/test_support.py`` writes the table of the README anew.
"""

import dataclasses
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import sklearn.linear_model
from class_cases import all_classes
from packaging.version import Version

import accelsk
from accelsk import support
from accelsk.__main__ import main
from accelsk.engines.base import Engine, only, refuse
from accelsk.exceptions import Invalid, Refusal

README = Path(__file__).parent.parent / "README.md"
#: Rows of packages that are not installed here are left alone.
_MISSING = tuple(f"| {module}." for module in support.import_accelerated()) or ("\0",)
#: What many rows have in common has a letter in the README, which says it once.
_LETTERS = {
    "X is sparse or not numeric": "a",
    "sample_weight is not numeric": "b",
    "y is not numeric": "c",
    "X has half or extended precision": "d",
    "X is longdouble": "e",
    "X is float32 in a list, in a frame without dtypes or in another byte order": "f",
    "the coefficients are not finite": "g",
}
_MARKED = re.compile(r"(?<=<!-- supported -->\n).*?(?=<!-- /supported -->)", re.DOTALL)


class _Rules(Engine):
    """Declares something of every kind."""

    name = "test"
    methods = ("fit",)
    repeats = False
    rules = (
        only("alpha", 1.0, 2.0),
        only("positive", False),
        only("no_such_parameter", None),
        refuse("X is too large", lambda call: False),
        refuse(Invalid("what scikit-learn rejects"), lambda call: False),
    )

    def unusable(self):
        return None

    def run(self, call, model):
        if not model:
            raise Refusal("X is singular")
        _check(model)

    def attributes(self, estimator, model):
        raise Refusal(f"no {model}")

    def restore(self, estimator):
        raise Refusal(Invalid("bad"))


def _check(model):
    raise Refusal("X is nearly singular")


class Ridge(sklearn.linear_model.Ridge):
    """An estimator of this module's own."""


def _row(name):
    (row,) = (row for row in accelsk.supported() if row.name == name)
    return row


def test_a_row_says_what_is_declared():
    accelsk.register(Ridge, [_Rules()])
    row = _row(f"{__name__}.Ridge")
    assert row.engine == "test"
    assert row.methods == ("fit",)
    assert row.limits == (
        "alpha other than 1.0 or 2.0",
        "positive=True",
        "X is too large",
        "X is singular",
        "X is nearly singular",
    )
    assert row.notes == ("the same random_state gives another result each time",)


def test_every_accelerated_class_has_a_row_for_each_engine():
    rows = [(row.name, row.engine, row.methods) for row in accelsk.supported()]
    for name, cls in all_classes().items():
        for engine in cls._accelsk_engines:
            assert (name, engine.name, engine.methods) in rows


def test_rows_say_what_of_the_data_keeps_a_call_off():
    assert any("sparse" in limit for limit in _row("linear_model.Ridge").limits)


def test_a_module_that_cannot_be_imported_is_listed_with_the_reason(monkeypatch):
    monkeypatch.setattr(support, "MODULES", ("linear_model", "no_such_module"))
    row = _row("no_such_module")
    assert row.engine is None
    assert row.methods == ()
    assert row.limits == ("it cannot be imported here: No module named 'accelsk.no_such_module'",)


def test_the_table_fits_the_terminal(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "140")
    main(["support"])
    printed = capsys.readouterr().out
    assert "linear_model.Ridge" in printed
    assert max(map(len, printed.splitlines())) <= 140


def test_markdown_has_one_line_for_each_row_and_keeps_bars_apart(capsys):
    row = support.Supported("a.B", "x", ("fit",), ("p other than 'a|b'", "q"), ("n",))
    assert support.to_markdown([row]).splitlines()[2:] == [
        "| a.B | x | fit | p other than 'a\\|b'; q; (note) n |"
    ]
    main(["support", "--markdown"])
    assert len(capsys.readouterr().out.splitlines()) == len(accelsk.supported()) + 2


def test_the_command_line_names_its_commands():
    done = subprocess.run(
        [sys.executable, "-m", "accelsk", "--help"], capture_output=True, text=True, check=True
    )
    assert "support" in done.stdout


def test_the_command_line_tells_the_version():
    done = subprocess.run(
        [sys.executable, "-m", "accelsk", "--version"], capture_output=True, text=True, check=True
    )
    assert done.stdout == f"accelsk {accelsk.__version__}\n"


def test_a_reader_that_stops_early_gets_no_traceback():
    command = [sys.executable, "-m", "accelsk", "support"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as done:
        done.stdout.close()
        assert done.stderr.read() == b""
    assert done.returncode == 128 + signal.SIGPIPE


@pytest.mark.skipif(
    Version(sklearn.__version__) < Version("1.8"), reason="the table is that of the newest release"
)
def test_the_table_in_the_readme_is_up_to_date():
    shown = _MARKED.search(README.read_text())[0].splitlines()
    here = [line for line in shown if not line.startswith(_MISSING)]
    assert here == _lines(), "run: python tests/test_support.py"


def test_the_readme_says_what_the_letters_of_the_table_mean():
    text = README.read_text().partition("<!-- supported -->")[0]
    assert [f"**{letter}** {limit}" for limit, letter in _LETTERS.items()] == re.findall(
        r"^- (\*\*\w\*\* .*)$", text, re.MULTILINE
    )


def _lines():
    """Return the lines of the table whose packages are installed here."""
    table = [row for row in support.supported() if row.engine is not None]
    ours = [_with_letters(row) for row in table if row.name.split(".")[0] in support.MODULES]
    return support.to_markdown(ours).splitlines()


def _with_letters(row):
    letters = sorted(_LETTERS[limit] for limit in row.limits if limit in _LETTERS)
    others = [limit for limit in row.limits if limit not in _LETTERS]
    return dataclasses.replace(row, limits=(*others, *([", ".join(letters)] if letters else ())))


def _write_readme():
    text = README.read_text()
    kept = [line for line in _MARKED.search(text)[0].splitlines() if line.startswith(_MISSING)]
    head, rows = _lines()[:2], _lines()[2:]
    table = [*head, *sorted([*rows, *kept], key=str.lower)]
    README.write_text(_MARKED.sub(lambda _: "\n".join(table) + "\n", text))


if __name__ == "__main__":
    _write_readme()
