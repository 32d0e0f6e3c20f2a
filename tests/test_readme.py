"""Every block of code in the README is run, or checked where running it would install things."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PYTHONPATH = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
README = (ROOT / "README.md").read_text()
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)
SHELL = [text for language, text in BLOCKS if language == "bash"]


def command(name):
    """The shell block under the comment that names it: what `.ci/run` runs."""
    found = re.search(rf"^<!-- command: {name} -->\n```bash\n(.*?)^```$", README, re.M | re.S)
    return found[1]


def test_every_block_is_of_a_known_language():
    assert {language for language, _ in BLOCKS} <= {"bash", "diff", "python", "text", "yaml"}
    assert README.count("\n```") == 2 * len(BLOCKS)


def test_python_blocks_run_one_after_the_other(tmp_path):
    """As a reader would run them, in one session and far from the checkout."""
    script = tmp_path / "readme.py"
    script.write_text("\n".join(text for language, text in BLOCKS if language == "python"))
    done = subprocess.run(
        [sys.executable, script],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": PYTHONPATH},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    assert "MedianScaler.fit" in done.stdout


@pytest.mark.parametrize("text", SHELL)
def test_shell_blocks_parse(text):
    subprocess.run(["bash", "-n"], input=text, text=True, check=True)


def test_shell_blocks_name_files_that_exist():
    words = shlex.split(" ".join(SHELL), comments=False)
    named = [word for word in words if re.fullmatch(r"(tests|examples|\.ci)/[\w/.]+", word)]
    assert named
    assert [word for word in named if not (ROOT / word).exists()] == []


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


def test_links_lead_to_files():
    targets = re.findall(r"\]\((?!https?:)([^)#]+)\)", README)
    assert [target for target in targets if not (ROOT / target).exists()] == []
