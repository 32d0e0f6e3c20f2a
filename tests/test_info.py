"""`info`: what it says for machines that this one is not."""

from __future__ import annotations

import importlib.metadata
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import accelsk
from accelsk import doctor
from accelsk.config import VARIABLES
from accelsk.device import driver, probe

ROOT = Path(__file__).parent.parent

H200 = driver.Description(
    "NVIDIA H200, compute capability 9.0, 139.8 GiB (139.1 free)",
    "580.159.04, supports CUDA 13.0",
    (13, 0),
    True,
)
VERSIONS = {
    "cupy-cuda13x": "14.2.0",
    "cuml-cu13": "26.10.0",
    "rmm-cu13": "26.10.0",
    "nvidia-nvjitlink": "13.5.37",
    "scikit-learn": "1.9.1",
    "umap-learn": "0.5.12",
    "hdbscan": "0.8.44",
}
REQUIRES = {"cuml-cu13": ["nvidia-nvjitlink<14,>=13.3", 'pytest; extra == "test"', "not-installed"]}


class Machine:
    """What is installed and what the driver says."""

    def __init__(self, monkeypatch):
        self.monkeypatch = monkeypatch
        self.versions, self.requires = dict(VERSIONS), dict(REQUIRES)
        self.description, self.reason, self.call = H200, None, {"seconds": 1.2}
        for name in (*VARIABLES, "ACCELSK_ENABLED", "CUDA_VISIBLE_DEVICES"):
            monkeypatch.delenv(name, raising=False)
        monkeypatch.setattr(driver, "describe", lambda: self.description)
        monkeypatch.setattr(importlib.metadata, "version", self._version)
        monkeypatch.setattr(importlib.metadata, "requires", lambda d: self.requires.get(d))
        monkeypatch.setattr(doctor, "_run_call", lambda: self.call)

    def _version(self, distribution):
        try:
            return self.versions[distribution]
        except KeyError:
            raise importlib.metadata.PackageNotFoundError(distribution) from None

    def info(self, **arguments):
        gpu = object() if self.reason is None else None
        self.monkeypatch.setattr(probe, "_found", (gpu, self.reason))
        return accelsk.info(**arguments)


@pytest.fixture
def machine(monkeypatch):
    monkeypatch.setattr(doctor, "_costs", lambda: "as they come")
    return Machine(monkeypatch)


def _remedies(found):
    return [problem.remedy for problem in found.problems]


def test_all_is_well(machine, capsys):
    found = machine.info()
    assert found.usable
    assert found.problems == []
    shown = capsys.readouterr().out
    assert shown == f"{found}\n"
    assert shown.startswith("A GPU is used.\n")
    for text in ("H200", "580.159.04", "CUDA 13.0", "26.10.0 [cuml-cu13]", "1.6 to 1.9", "14.2.0"):
        assert text in shown
    assert len(shown.splitlines()) < 40


def test_missing_packages(machine):
    for name in ("cupy-cuda13x", "cuml-cu13"):
        del machine.versions[name]
    machine.reason = "cupy is not installed"
    found = machine.info()
    assert (found.usable, found.reason) == (False, "cupy is not installed")
    assert _remedies(found) == ["pip install 'accelsk[cuda13]'"]


def test_packages_are_those_that_the_driver_can_run(machine):
    machine.description = driver.Description("A GPU", "535.1", (12, 2), True)
    machine.versions = {"scikit-learn": "1.9.1"}
    machine.reason = "cupy is not installed"
    assert _remedies(machine.info()) == ["pip install 'accelsk[cuda12]'"]


def test_driver_of_cuda_12_below_packages_for_13(machine):
    machine.description = driver.Description("A GPU", "535.1", (12, 2), True)
    machine.reason = "the NVIDIA driver is too old"
    (remedy,) = _remedies(machine.info())
    assert remedy.startswith("pip uninstall -y cuml-cu13 cupy-cuda13x && ")
    assert "cuda12" in remedy


def test_no_driver(machine):
    machine.description = driver.Description(error="libcuda.so.1 was not found")
    machine.reason = "no NVIDIA driver"
    (remedy,) = _remedies(machine.info())
    assert "docker run --gpus all" in remedy


def test_hidden_gpu(machine, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    machine.description = driver.Description(None, "580", (13, 0), None, "no GPU is visible")
    machine.reason = "no GPU is visible"
    found = machine.info()
    assert _remedies(found) == ["unset CUDA_VISIBLE_DEVICES"]
    assert "CUDA_VISIBLE_DEVICES=''" in found.facts["Environment"]


def test_device_that_was_set(machine, monkeypatch):
    monkeypatch.setenv("ACCELSK_DEVICE", "CPU")
    found = machine.info()
    assert (found.usable, found.reason) == (False, "ACCELSK_DEVICE=cpu is set")
    assert _remedies(found) == ["unset ACCELSK_DEVICE"]


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("ACCELSK_DEVICE", "foo", "must be one of ('auto', 'gpu', 'cpu'), got 'foo'"),
        ("ACCELSK_DISABLE_UVM", "maybe", "must be one of ('1', 'true', "),
        ("ACCELSK_LOG_LEVEL", "7", "must be one of ('debug', 'info', "),
        ("ACCELSK_DEVCIE", "cpu", "knows no environment variable ACCELSK_DEVCIE (is ACCELSK_DEVI"),
        ("ACCELSK_DEVICE_MEMORY_LIMIT", "lots", "knows no environment variable ACCELSK_DEVICE_M"),
        ("ACCELSK_ENABLED", "Ridge,Lassso", "'Ridge,Lassso': 'Lassso' names nothing that"),
    ],
)
def test_variable_that_is_misset(machine, monkeypatch, caplog, name, value, text):
    monkeypatch.setenv(name, value)
    found = machine.info()
    assert found.usable
    (problem,) = found.problems
    assert problem.remedy == f"unset {name}"
    assert name in problem.text
    assert text in problem.text
    assert f"{name}={value!r}" in found.facts["Environment"]
    assert not caplog.records  # it is on the screen


@pytest.mark.parametrize("value", ["1", "0", "off", "", "Ridge, svm", "sklearn.svm.SVC"])
def test_variable_that_says_what_to_patch(machine, monkeypatch, value):
    monkeypatch.setenv("ACCELSK_ENABLED", value)
    assert machine.info().problems == []


def test_both_kinds_of_packages(machine):
    machine.versions |= {"cupy-cuda12x": "14.2.0", "cuml-cu12": "26.10.0"}
    remedies = _remedies(machine.info())
    assert remedies == [
        "pip uninstall -y cupy-cuda13x cupy-cuda12x && pip install cupy-cuda13x",
        "pip uninstall -y cuml-cu13 cuml-cu12 && pip install cuml-cu13",
    ]


def test_versions_out_of_range(machine):
    machine.versions |= {"scikit-learn": "1.5.2", "umap-learn": "0.6.0"}
    assert _remedies(machine.info()) == [
        "pip install 'scikit-learn==1.9.*'",
        "pip install 'umap-learn==0.5.12.*'",
    ]


def test_library_that_is_too_old(machine):
    machine.versions["nvidia-nvjitlink"] = "13.0.88"
    (problem,) = machine.info().problems
    assert problem.text == "cuml-cu13 needs nvidia-nvjitlink<14,>=13.3, installed is 13.0.88"
    assert problem.remedy == "pip install 'nvidia-nvjitlink<14,>=13.3'"


def test_optional_packages_may_be_missing(machine):
    del machine.versions["umap-learn"]
    found = machine.info()
    assert found.problems == []
    assert found.facts["umap-learn"].startswith("not installed (optional)")


@pytest.mark.parametrize(
    ("value", "managed", "text"),
    [
        ("1", True, "ACCELSK_DISABLE_UVM"),
        ("0", False, "WSL2"),
        ("", True, "on with"),
        ("", None, "?"),
    ],
)
def test_managed_memory(machine, monkeypatch, value, managed, text):
    monkeypatch.setenv("ACCELSK_DISABLE_UVM", value)
    machine.description = driver.Description("A GPU", "580", (13, 0), managed)
    fact = machine.info().facts["Managed memory"]
    assert (text in fact) if text != "?" else fact.startswith("unknown")


# Checking by a call


def test_check_runs_a_call(machine):
    found = machine.info(check=True)
    assert found.usable
    assert "Ridge.fit ran on the GPU (1.2 s" in found.facts["Check"]


def test_check_finds_what_does_not_load(machine):
    machine.call = {
        "seconds": 1.0,
        "cuml": "cuML could not be imported (ImportError: undefined symbol: __nvJitLinkCreate)",
    }
    found = machine.info(check=True)
    assert found.usable  # CuPy's part is
    (problem,) = found.problems
    assert "nvJitLink" in problem.text
    assert problem.remedy.startswith(("pip install -U nvidia-nvjitlink", "export LD_PRELOAD="))


def test_check_names_the_newer_of_two_linkers(machine, monkeypatch, tmp_path):
    for name in ("first", "second"):
        folder = tmp_path / name / "nvidia" / "cu13" / "lib"
        folder.mkdir(parents=True)
        (folder / "libnvJitLink.so.13").write_bytes(b"")
    monkeypatch.setattr(sys, "path", [str(tmp_path / "first"), str(tmp_path / "second"), *sys.path])
    machine.call = {"call": "FallbackError: cuML could not be imported (OSError: libcuml.so)"}
    found = machine.info(check=True)
    assert not found.usable
    first = tmp_path / "first" / "nvidia" / "cu13" / "lib" / "libnvJitLink.so.13"
    assert found.problems[0].remedy == f"export LD_PRELOAD={first}"


def test_check_without_a_gpu_runs_nothing(machine, monkeypatch):
    machine.reason = "no GPU is visible"
    monkeypatch.setattr(doctor, "_run_call", lambda: pytest.fail("it ran"))
    assert machine.info(check=True).facts["Check"] == "left out: no GPU is used"


def test_process_of_the_check_may_die(monkeypatch):
    monkeypatch.setattr(doctor, "_CALL", "import os, sys; sys.stderr.write('boom'); os.abort()")
    assert doctor._run_call() == {"call": "the process that made it ended: boom"}
    monkeypatch.setattr(doctor, "_CALL", "import os; os.abort()")
    assert "exit status -6" in doctor._run_call()["call"]


def test_process_of_the_check_tells_why_a_call_fails(monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    result = doctor._run_call()
    assert result["call"].startswith("FallbackError: Ridge.fit cannot run on the GPU")


# The command


def _command(*arguments):
    done = subprocess.run(
        [sys.executable, "-m", "accelsk", "info", *arguments],
        env={**os.environ, "PYTHONPATH": str(ROOT), "CUDA_VISIBLE_DEVICES": ""},
        capture_output=True,
        text=True,
        timeout=120,
    )
    return done.returncode, done.stdout, done.stderr


def test_command_tells_by_its_status_only_if_that_is_asked():
    status, out, error = _command()
    assert (status, error) == (0, "")
    assert out.startswith("No GPU is used: ")
    assert _command("--check")[0] == 1


def test_no_gpu_library_is_imported():
    code = """
import json, sys, accelsk
accelsk.info()
print(json.dumps(sorted({"cupy", "cuml", "rmm", "umap", "hdbscan"} & sys.modules.keys())))
"""
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    assert json.loads(done.stdout.splitlines()[-1]) == []


def test_what_it_prints_is_not_logged_too(machine, caplog, monkeypatch):
    monkeypatch.setattr(probe, "_found", None)
    monkeypatch.setattr(probe, "_require_packages", lambda: probe._load_driver())
    monkeypatch.setattr(probe, "_load_driver", lambda: (_ for _ in ()).throw(probe._Unusable("x")))
    found = accelsk.info()
    assert found.reason == "x"
    assert caplog.records == []
