"""Every block of code in the README is run; what is not says why in a comment above it."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shlex
import site
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

from benchmarks.bars import bars  # noqa: E402 - benchmarks lie beside the package

README = (ROOT / "README.md").read_text()
PYTHONPATH = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])


class Block(NamedTuple):
    """A block of code, and the comment right above it."""

    comment: str
    language: str
    text: str


BLOCKS = [
    Block(*found)
    for found in re.findall(
        r"(?:^<!-- ([^\n]*) -->\n)?^```(\w+)\n(.*?)^```$", README, re.MULTILINE | re.DOTALL
    )
]
SHELL = [block for block in BLOCKS if block.language == "bash"]
RUN = [block.text for block in SHELL if not block.comment]

#: What a reader has: a script, and a test suite of which one test differs once it is patched.
FILES = {
    "script.py": "import sys\n"
    "from sklearn.linear_model import Ridge\n"
    "model = Ridge().fit([[0.0], [1.0]], [0.0, 1.0])\n"
    "print(Ridge.__module__, sys.argv[1:])\n",
    "tests/test_model.py": "from sklearn.linear_model import Ridge\n"
    "def test_repr():\n"
    "    assert 'sklearn.linear_model' in repr(Ridge)\n"
    "def test_fit():\n"
    "    assert Ridge().fit([[0.0], [1.0]], [0.0, 1.0]).coef_.shape == (1,)\n",
}

#: What commands print.
PRINTED = {
    "python -m accelsk info": "scikit-learn ",
    "ACCELSK_ENABLED=1 python script.py": "accelsk.linear_model []",
    "accelsk script.py --rows 100": "accelsk.linear_model ['--rows', '100']",
    "accelsk -m timeit pass": "per loop",
    "accelsk -c": "<class 'accelsk.linear_model.Ridge'>",
    "| accelsk": "1\n",
    "accelsk --profile": "device='cpu' is set",
    "ACCELSK_LOG_LEVEL=info accelsk script.py": "accelsk.linear_model []",
    "pytest -p accelsk.pytest_plugin": "1 passed, 1 xfailed",
    "python -m benchmarks list": "TargetEncoder.fit_transform",
    "python -m benchmarks compare": "accelsk is ",
}


def command(name):
    """The shell block under the comment that names it: what `.ci/run` runs."""
    (found,) = (block.text for block in SHELL if block.comment == f"command: {name}")
    return found


def run(command, folder, **environment):
    return subprocess.run(
        command,
        cwd=folder,
        env={**os.environ, "PYTHONPATH": PYTHONPATH, **environment},
        capture_output=True,
        text=True,
        timeout=300,
    )


@pytest.fixture
def reader(tmp_path):
    """Return a folder with a reader's files, and the commands that an installation brings."""
    for name, text in FILES.items():
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    (listed,) = (block.text for block in BLOCKS if block.language == "yaml")
    (tmp_path / "differences.yaml").write_text(listed)
    commands = {"python": "", "accelsk": "-m accelsk", "pytest": "-m pytest -p no:cacheprovider"}
    (tmp_path / "bin").mkdir()
    for name, arguments in commands.items():
        script = tmp_path / "bin" / name
        script.write_text(f'#!/bin/sh\nexec "{sys.executable}" {arguments} "$@"\n')
        script.chmod(0o755)
    return tmp_path


@pytest.fixture
def start(reader):
    """Return a folder with what the wheel runs at the start of Python, unless it is installed."""
    line = ROOT / "start" / "accelsk.pth"
    folder = reader / "start"
    folder.mkdir()
    if not any((Path(p) / line.name).exists() for p in site.getsitepackages()):
        (folder / "sitecustomize.py").write_text(line.read_text())
    return folder


def test_every_block_is_of_a_known_language():
    assert {block.language for block in BLOCKS} <= {"bash", "diff", "python", "text", "yaml"}
    assert README.count("\n```") == 2 * len(BLOCKS)


def test_python_blocks_run_one_after_the_other(tmp_path):
    """As a reader would run them, in one session and far from the checkout."""
    script = tmp_path / "readme.py"
    script.write_text("\n".join(block.text for block in BLOCKS if block.language == "python"))
    done = run([sys.executable, "-W", "error::RuntimeWarning", script], tmp_path)
    assert done.returncode == 0, done.stderr
    assert "MedianScaler.fit" in done.stdout
    if importlib.util.find_spec("cupy") is None:
        (explained,) = (b.text for b in BLOCKS if b.text.startswith("Ridge.fit runs in"))
        assert explained in done.stdout


@pytest.mark.parametrize("text", RUN)
def test_shell_blocks_run(text, reader, start):
    if "yaml" in text:
        pytest.importorskip("yaml")
    if "plot" in text:
        pytest.importorskip("matplotlib")
    path = os.pathsep.join([str(reader / "bin"), os.environ["PATH"]])
    pythonpath = os.pathsep.join([str(start), PYTHONPATH])
    done = run(["bash", "-euo", "pipefail", "-c", text], reader, PATH=path, PYTHONPATH=pythonpath)
    assert done.returncode == 0, done.stdout + done.stderr
    expected = {printed for command, printed in PRINTED.items() if command in text}
    assert expected, "say in PRINTED what it prints"
    assert [printed for printed in expected if printed not in done.stdout + done.stderr] == []


def test_what_the_commands_print_is_asked_for():
    assert [command for command in PRINTED if not any(command in text for text in RUN)] == []


def test_shell_blocks_that_are_not_run_say_why():
    reasons = [block.comment for block in SHELL if block.comment]
    ci = ("command: run", "command: test")
    assert set(ci) <= set(reasons)
    others = [reason for reason in reasons if reason not in ci]
    assert all(re.fullmatch(r"not run by the tests: .{10,}", reason) for reason in others)


@pytest.mark.parametrize("text", [block.text for block in SHELL])
def test_shell_blocks_parse(text):
    subprocess.run(["bash", "-n"], input=text, text=True, check=True)


def test_magics_run(tmp_path):
    pytest.importorskip("IPython")
    (block,) = (block.text for block in BLOCKS if block.text.startswith("%load_ext"))
    lines = [re.split(r"\s{2,}", line)[0] for line in block.splitlines()]
    cells = [f"{line}\n1 + 1" if line.startswith("%%") else line for line in lines]
    script = tmp_path / "cells.py"
    script.write_text(
        "from IPython.core.interactiveshell import InteractiveShell\n"
        "shell = InteractiveShell.instance()\n"
        f"for cell in {cells!r}:\n"
        "    shell.run_cell(cell).raise_error()\n"
    )
    done = run([sys.executable, script], tmp_path, IPYTHONDIR=str(tmp_path))
    assert done.returncode == 0, done.stdout + done.stderr
    assert "No calls of accelerated methods" in done.stdout


def test_lines_of_the_difference_can_be_imported():
    (block,) = (block.text for block in BLOCKS if block.language == "diff")
    for line in block.splitlines():
        exec(line[1:], {})


def test_bars_are_those_that_were_measured():
    (shown,) = (block.text for block in BLOCKS if block.comment == "bars")
    measured = json.loads((ROOT / "benchmarks" / "results" / "wire.json").read_text())
    assert shown.strip() == bars(measured["results"])


def test_files_that_it_names_exist():
    words = shlex.split(" ".join(block.text for block in SHELL), comments=False)
    inline = re.findall(r"`([^`\n]+)`", README)
    folders = r"(?:accelsk|benchmarks|examples|tests|\.ci)"
    named = [word for word in words + inline if re.fullmatch(rf"{folders}/[\w/.]*\w", word)]
    assert len(named) > 10
    assert [name for name in named if not (ROOT / name).exists()] == []
    results = re.findall(r"`([\w-]+\.json)`", README)
    assert [name for name in results if not (ROOT / "benchmarks/results" / name).exists()] == []


def test_examples_that_it_names_are_those_there_are():
    named = set(re.findall(r"`(?:examples/)?(\w+\.py)`", README))
    assert {path.name for path in (ROOT / "examples").glob("*.py")} <= named


def test_it_reads_the_same_without_the_repository():
    """As on a package index, where links to files and pictures of the repository lead nowhere."""
    assert [target for target in re.findall(r"\]\(([^)]+)\)", README) if "://" not in target] == []
    assert "<img" not in README


def test_symptoms_are_messages_of_accelsk():
    sources = "".join(path.read_text() for path in (ROOT / "accelsk").rglob("*.py"))
    table = README[README.index("| what you see") :].split("\n\n")[0]
    quoted = [
        text
        for row in table.splitlines()[2:]
        for text in re.findall(r'"([^"]+)"', row.split("|")[1])
    ]
    assert len(quoted) >= 8
    pieces = [piece for text in quoted for piece in re.split(r"^cupy |\.\.\.|\d+| \(", text)]
    assert [piece for piece in pieces if len(piece) > 2 and piece not in sources] == []


def test_extras_that_it_names_exist():
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    named = set(re.findall(r"(?:accelsk|['\". ])\[([a-z0-9]+)\]'", README))
    assert {"cuda12", "cuda13"} <= named
    assert named <= set(extras["optional-dependencies"])


@pytest.mark.parametrize("name", ["run", "test"])
def test_commands_make_an_environment_of_their_own(name):
    assert "python3 -m venv .venv" in command(name)
    assert f"readme_command {name}" in (ROOT / ".ci" / "run").read_text()


@pytest.mark.parametrize(
    ("driver", "extra"),
    [
        ("echo 'NVIDIA-SMI 580.65.06   Driver Version: 580.65.06   CUDA Version: 13.0'", ",cuda13"),
        ("echo 'NVIDIA-SMI 535.86.10   Driver Version: 535.86.10   CUDA Version: 12.2'", ",cuda12"),
        ("echo 'NVIDIA-SMI 470.82.01   Driver Version: 470.82.01   CUDA Version: 11.4'", ""),
        ("echo 'NVIDIA-SMI 595.10   KMD Version: 595.10   CUDA UMD Version: 13.2'", ",cuda13"),
        ("exit 127", ""),
    ],
)
def test_first_command_takes_the_cuda_of_the_driver(tmp_path, driver, extra):
    line = command("run").splitlines()[0]
    tool = tmp_path / "nvidia-smi"
    tool.write_text(f"#!/bin/sh\n{driver}\n")
    tool.chmod(0o755)
    done = subprocess.run(
        ["bash", "-euc", f'{line}\nprintf %s "$cuda"'],
        env={"PATH": f"{tmp_path}:/bin"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == extra
