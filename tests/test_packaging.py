"""The package as others get it: what the wheel and the sdist hold and say."""

from __future__ import annotations

import email
import os
import re
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest
from packaging.version import Version

import accelsk

ROOT = Path(__file__).parent.parent
hatchling = pytest.importorskip("hatchling.build")


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """The wheel and the sdist."""
    folder = tmp_path_factory.mktemp("dist")
    here = os.getcwd()
    os.chdir(ROOT)  # a build backend works in the root of the project
    try:
        names = hatchling.build_wheel(str(folder)), hatchling.build_sdist(str(folder))
    finally:
        os.chdir(here)
    return tuple(folder / name for name in names)


@pytest.fixture(scope="module")
def wheel(built):
    with zipfile.ZipFile(built[0]) as archive:
        yield archive


@pytest.fixture(scope="module")
def metadata(wheel):
    (name,) = (name for name in wheel.namelist() if name.endswith(".dist-info/METADATA"))
    return email.message_from_string(wheel.read(name).decode())


def test_wheel_holds_every_module_and_nothing_else(wheel):
    files = {name for name in wheel.namelist() if ".dist-info/" not in name}
    modules = {path.relative_to(ROOT).as_posix() for path in (ROOT / "accelsk").rglob("*.py")}
    assert files == modules | {"accelsk.pth", "accelsk/py.typed", "accelsk/costs/defaults.json"}


def test_wheel_brings_the_command_and_what_runs_at_the_start(wheel):
    (name,) = (name for name in wheel.namelist() if name.endswith("/entry_points.txt"))
    assert "accelsk = accelsk.__main__:main" in wheel.read(name).decode()
    (line,) = wheel.read("accelsk.pth").decode().splitlines()
    assert line.startswith('import os; os.environ.get("ACCELSK_ENABLED") and ')


def test_wheel_is_pure_python(built):
    assert built[0].name.endswith("-py3-none-any.whl")


def test_wheel_holds_the_licence(wheel, metadata):
    assert metadata["License-Expression"] == "BSD-3-Clause"
    assert any(name.endswith("licenses/LICENSE") for name in wheel.namelist())


def test_sdist_holds_what_it_takes_to_test_it(built):
    with tarfile.open(built[1]) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {"README.md", "CHANGELOG.md", "pyproject.toml"} <= names
    assert {"tests/test_packaging.py", "examples/quickstart.py"} <= names
    assert {"benchmarks/results/wire.json", "start/accelsk.pth"} <= names
    assert {name for name in names if name.startswith(".")} == {".ci/run", ".gitignore"}


def test_version_is_that_of_the_module(metadata):
    assert metadata["Version"] == accelsk.__version__
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert "version" not in project
    assert project["dynamic"] == ["version"]


def test_readme_is_the_description(metadata):
    assert metadata["Description-Content-Type"] == "text/markdown"
    assert metadata.get_payload() == (ROOT / "README.md").read_text()


def test_requirements(metadata):
    assert metadata["Requires-Python"] == ">=3.11"
    requirements = [r for r in metadata.get_all("Requires-Dist") if "extra ==" not in r]
    needed = ["numpy", "packaging", "platformdirs", "scikit-learn<1.10,>=1.6", "tabulate"]
    assert requirements == needed


@pytest.mark.parametrize(
    ("extra", "packages"),
    [
        ("cuda12", ["cuml-cu12", "cupy-cuda12x[ctk]"]),
        ("cuda13", ["cuml-cu13", "cupy-cuda13x[ctk]"]),
        ("umap", ["umap-learn>=0.5.7"]),
        ("hdbscan", ["hdbscan>=0.8.39"]),
        ("yaml", ["pyyaml"]),
    ],
)
def test_extras(metadata, extra, packages):
    ending = f"; extra == '{extra}'"
    requirements = metadata.get_all("Requires-Dist")
    assert [r.removesuffix(ending) for r in requirements if r.endswith(ending)] == packages


def test_extras_are_complete(metadata):
    extras = {"cuda12", "cuda13", "umap", "hdbscan", "yaml", "examples", "test", "dev"}
    assert set(metadata.get_all("Provides-Extra")) == extras


def test_metadata_names_every_python_and_the_typing(metadata):
    classifiers = metadata.get_all("Classifier")
    assert "Typing :: Typed" in classifiers
    assert "Programming Language :: Python :: 3.11" in classifiers


def test_metadata_tells_who_and_what_for(metadata):
    assert metadata["Author"] == "The accelsk developers"
    assert {"scikit-learn", "gpu", "cuda"} <= set(metadata["Keywords"].split(","))
    assert len(metadata["Summary"]) < 120


def test_the_changelog_begins_with_this_version():
    headings = re.findall(r"^## (\S+)", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert Version(headings[0]) == Version(Version(accelsk.__version__).base_version)
