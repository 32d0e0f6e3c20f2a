"""What ``ACCELSK_ENABLED`` does at the start of Python, in an environment that has the wheel."""

from __future__ import annotations

import os
import subprocess
import venv
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGES = Path(pytest.__file__).parent.parent  # where the packages of this environment are


def _build(folder, editable):
    """Install accelsk as its wheel has it, beside the packages of this environment."""
    hatchling = pytest.importorskip("hatchling.build")
    if editable:
        pytest.importorskip("editables")

    environment = folder / ("editable" if editable else "wheel")
    venv.create(environment, symlinks=True)
    (site,) = environment.glob("lib/python*/site-packages")
    here = os.getcwd()
    os.chdir(ROOT)
    try:
        build = hatchling.build_editable if editable else hatchling.build_wheel
        name = build(str(folder))
    finally:
        os.chdir(here)
    with zipfile.ZipFile(folder / name) as archive:
        archive.extractall(site)
    (site / "zz_packages.pth").write_text(f"{PACKAGES}\n")
    return environment / "bin" / "python"


@pytest.fixture(scope="module", params=["wheel", "editable"])
def python(request, tmp_path_factory):
    """The interpreter of an environment with accelsk installed."""
    return _build(tmp_path_factory.mktemp("environment"), request.param == "editable")


def _run(python, code, *options, **environment):
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("ACCELSK", "PYTHON"))}
    done = subprocess.run(
        [str(python), *options, "-c", code],
        env={**kept, **environment},
        capture_output=True,
        text=True,
        timeout=300,
        cwd=python.parent,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip(), done.stderr.strip()


WHERE = "from sklearn.linear_model import Ridge, Lasso; print(Ridge.__module__, Lasso.__module__)"
OURS, PLAIN = "accelsk.linear_model", "sklearn.linear_model._ridge"
PLAIN_LASSO = "sklearn.linear_model._coordinate_descent"


@pytest.mark.parametrize("value", ["1", "true", " ON "])
def test_scikit_learn_is_patched_when_it_is_imported(python, value):
    assert _run(python, WHERE, ACCELSK_ENABLED=value) == (f"{OURS} {OURS}", "")


@pytest.mark.parametrize("value", [None, "", "0", "False", "off"])
def test_nothing_is_patched_unless_that_is_asked(python, value):
    environment = {} if value is None else {"ACCELSK_ENABLED": value}
    assert _run(python, WHERE, **environment) == (f"{PLAIN} {PLAIN_LASSO}", "")


def test_some_can_be_patched(python):
    found = _run(python, WHERE, ACCELSK_ENABLED="Ridge, sklearn.svm")
    assert found == (f"{OURS} {PLAIN_LASSO}", "")


def test_start_imports_nothing_and_leaves_no_finder(python):
    code = """
import sys
before = {"accelsk", "sklearn", "numpy", "importlib.metadata"} & sys.modules.keys()
waiting = [f for f in sys.meta_path if hasattr(f, "starts")]
import sklearn
left = [f for f in sys.meta_path if getattr(f, "starts", False)]
loader = type(sklearn.__spec__.loader).__name__
print(before, len(waiting), "accelsk" in sys.modules, len(left), loader)
"""
    assert _run(python, code, ACCELSK_ENABLED="1")[0] == "set() 1 True 0 SourceFileLoader"


def test_unset_variable_costs_no_module(python):
    code = (
        "import sys; print(len(sys.meta_path), {'importlib.util', 'accelsk'} & sys.modules.keys())"
    )
    count = _run(python, code, "-S")[0].split()[0]
    assert _run(python, code)[0] == f"{count} set()"


def test_children_are_patched_as_their_parent_is(python):
    code = f"""
import subprocess, sys, accelsk
def child():
    print(subprocess.run([sys.executable, "-c", {WHERE!r}], capture_output=True, text=True).stdout)
accelsk.patch("Ridge"); child()
accelsk.patch(); child()
accelsk.unpatch(); child()
"""
    lines = _run(python, code)[0].split("\n")
    assert [line for line in lines if line] == [
        f"{OURS} {PLAIN_LASSO}",
        f"{OURS} {OURS}",
        f"{PLAIN} {PLAIN_LASSO}",
    ]


def test_workers_of_joblib_and_multiprocessing_are_patched(python, tmp_path):
    script = tmp_path / "script.py"
    script.write_text(
        """
import multiprocessing
from joblib import Parallel, delayed

def where(_):
    from sklearn.linear_model import Ridge
    return Ridge.__module__

if __name__ == "__main__":
    import accelsk
    accelsk.patch()
    print(Parallel(n_jobs=2)(delayed(where)(i) for i in range(2)))
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        print(pool.map(where, [0]))
"""
    )
    done = subprocess.run(
        [str(python), str(script)], capture_output=True, text=True, timeout=300, cwd=tmp_path
    )
    assert done.stdout.splitlines() == [f"{[OURS] * 2}", f"{[OURS]}"], done.stderr


def test_import_of_scikit_learn_survives_what_goes_wrong(python):
    stdout, stderr = _run(python, WHERE, ACCELSK_ENABLED="Rigde")
    assert stdout == f"{PLAIN} {PLAIN_LASSO}"
    why = "'Rigde' names nothing that accelsk has a counterpart of: is 'Ridge' meant?"
    start = "accelsk: scikit-learn stays as it is: ValueError: ACCELSK_ENABLED='Rigde': "
    assert stderr == f"{start}{why} (1 means all, 0 nothing)"


def test_start_survives_a_missing_package(tmp_path):
    environment = tmp_path / "environment"
    venv.create(environment, symlinks=True)
    (site,) = environment.glob("lib/python*/site-packages")
    (site / "accelsk.pth").write_text((ROOT / "start" / "accelsk.pth").read_text())
    stdout, stderr = _run(environment / "bin" / "python", "print(1)", ACCELSK_ENABLED="1")
    assert stdout == "1"
    for line in stderr.splitlines():
        assert line.startswith("accelsk: scikit-learn stays as it is: AttributeError: ")
    assert stderr


def test_another_error_of_the_import_is_raised_as_it_is(python, tmp_path):
    (tmp_path / "sklearn").mkdir()
    (tmp_path / "sklearn" / "__init__.py").write_text("raise OSError('broken')")
    code = """
try:
    import sklearn
except OSError as error:
    print(error)
"""
    found = _run(python, code, ACCELSK_ENABLED="1", PYTHONPATH=str(tmp_path))
    assert found == ("broken", "")


def test_looking_for_a_package_does_not_count_as_importing_it(python):
    code = f"""
import importlib.util
print(importlib.util.find_spec("sklearn").name)
{WHERE}
"""
    found = _run(python, code, ACCELSK_ENABLED="1")
    assert found == (f"sklearn\n{OURS} {OURS}", "")


def test_umap_is_patched_at_its_first_import(python):
    pytest.importorskip("umap")
    code = "import umap, sklearn.svm; print(umap.UMAP.__module__, sklearn.svm.SVC.__module__)"
    assert _run(python, code, ACCELSK_ENABLED="1")[0] == "accelsk.umap accelsk.svm"


def test_patching_goes_on_from_the_start(python):
    code = """
import accelsk, os
from sklearn.svm import SVC
print(accelsk.is_patched(), SVC.__module__, accelsk.patch().patched)
accelsk.unpatch()
from sklearn.svm import SVC
print(accelsk.is_patched(), SVC.__module__, "ACCELSK_ENABLED" in os.environ)
"""
    first, second = _run(python, code, ACCELSK_ENABLED="1")[0].splitlines()
    assert first == "True accelsk.svm ()"
    assert second == "False sklearn.svm._classes False"
