"""Getting ready, what is logged, and what importing costs nobody."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from engine import AcceleratedLine

import accelsk
from accelsk import runtime
from accelsk.device import probe
from accelsk.device.errors import poisons_context
from accelsk.device.memory import is_out_of_memory

ROOT = Path(__file__).parent.parent

REASON = "no GPU in this test"


@pytest.fixture
def no_gpu(monkeypatch):
    """Have the probe look again, and find nothing."""

    def nothing():
        raise probe._Unusable(REASON)

    monkeypatch.setattr(probe, "_found", None)
    monkeypatch.setattr(probe, "_require_packages", nothing)


def _run(code, **environment):
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": str(ROOT), **environment},
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    return done.stdout, done.stderr


# Without a GPU


def test_missing_gpu_is_logged_once_whoever_asks(no_gpu, caplog):
    accelsk.enabled()
    accelsk.install()
    accelsk.install()
    accelsk.enabled()
    assert [(r.levelname, r.message) for r in caplog.records] == [
        ("WARNING", f"No GPU is used, everything runs in scikit-learn: {REASON}")
    ]


def test_missing_gpu_is_logged_once_by_many_threads(no_gpu, caplog):
    threads = [threading.Thread(target=probe.unusable) for _ in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(caplog.records) == 1


def test_worker_does_not_repeat_what_its_parent_says(no_gpu, caplog, monkeypatch):
    monkeypatch.setattr("multiprocessing.parent_process", lambda: object())
    assert probe.unusable() == REASON
    assert not caplog.records


def test_cpu_only_work_does_not_look_for_a_gpu(no_gpu, caplog, data):
    from accelsk.linear_model import Ridge

    with accelsk.config_context(device="cpu"):
        assert not accelsk.enabled()
        Ridge().fit(*data).predict(data[0])
    assert not caplog.records
    assert probe._found is None


def test_missing_gpu_is_the_reason_in_the_profile(no_gpu, data):
    from accelsk.linear_model import Ridge

    with accelsk.profile(quiet=True) as results:
        Ridge().fit(*data)
    assert results.method_calls["Ridge.fit"].fallback_reasons == {REASON}
    assert not accelsk.enabled()


def test_real_program_without_a_gpu_says_so_once_on_standard_error():
    code = """
import accelsk, numpy as np
from accelsk.linear_model import Ridge
from accelsk.cluster import KMeans
X = np.arange(20.0).reshape(10, 2)
for _ in range(3):
    Ridge().fit(X, X[:, 0]).predict(X)
    KMeans(2, n_init=1).fit_predict(X)
"""
    out, err = _run(code, CUDA_VISIBLE_DEVICES="")
    assert out == ""
    assert err.count("No GPU is used") == 1
    assert len(err.splitlines()) == 1


# With one


def test_enabled_follows_probe_and_configuration(monkeypatch):
    monkeypatch.setattr(probe, "_found", (object(), None))
    assert accelsk.enabled()
    with accelsk.config_context(device="cpu"):
        assert not accelsk.enabled()
    probe.disable("it melted")
    assert not accelsk.enabled()
    assert probe.unusable() == "it melted"
    assert probe.gpu() is None


def test_disabling_is_logged_once_and_keeps_the_first_reason(caplog):
    probe.disable("it melted")
    probe.disable("it froze")
    assert probe.unusable() == "it melted"
    assert len(caplog.records) == 1


def test_cuml_that_cannot_be_imported_costs_its_own_engines_only(monkeypatch, data, caplog):
    from accelsk.engines import cuml
    from accelsk.linear_model import Ridge

    monkeypatch.setattr(cuml, "_broken", None)
    monkeypatch.setattr(probe, "_found", (object(), None))
    monkeypatch.setitem(sys.modules, "cupy", None)
    monkeypatch.delitem(sys.modules, "cuml", raising=False)
    accelsk.install()
    accelsk.install()
    assert [record.getMessage().partition(":")[0] for record in caplog.records] == [
        "cuML could not be imported (ModuleNotFoundError"
    ]
    assert probe.unusable() is None
    engine = Ridge._accelsk_engines[0]
    assert engine.unusable().startswith("cuML could not be imported")
    assert Ridge().fit(*data).predict(data[0]).shape == (40,)


# install


def test_install_sets_level_and_what_child_processes_read(no_gpu):
    accelsk.install(log_level="error", disable_uvm=True)
    assert logging.getLogger("accelsk").level == logging.ERROR
    assert os.environ["ACCELSK_LOG_LEVEL"] == "error"
    assert os.environ["ACCELSK_DISABLE_UVM"] == "1"


@pytest.mark.parametrize(
    ("argument", "variable", "level"),
    [
        (None, None, logging.WARNING),
        (None, "debug", logging.DEBUG),
        ("info", "debug", logging.INFO),
        ("WARN", None, logging.WARNING),
    ],
)
def test_level_comes_from_argument_then_environment(argument, variable, level, no_gpu, monkeypatch):
    if variable is not None:
        monkeypatch.setenv("ACCELSK_LOG_LEVEL", variable)
    accelsk.install(log_level=argument)
    assert logging.getLogger("accelsk").level == level


def test_unknown_levels_name_where_they_come_from(no_gpu, monkeypatch):
    with pytest.raises(ValueError, match=r"log_level must be one of .*got 'loud'"):
        accelsk.install(log_level="loud")
    monkeypatch.setenv("ACCELSK_LOG_LEVEL", "louder")
    with pytest.raises(ValueError, match=r"ACCELSK_LOG_LEVEL must be one of .*got 'louder'"):
        accelsk.install()
    assert not runtime._installed


def test_child_process_takes_both_from_the_environment(no_gpu):
    accelsk.install(log_level="info", disable_uvm=True)
    code = """
import accelsk, logging, os
accelsk.install()
print(logging.getLogger("accelsk").level, os.environ["ACCELSK_DISABLE_UVM"])
"""
    assert _run(code)[0].split() == ["20", "1"]


def test_install_adds_no_handler_twice(no_gpu):
    for _ in range(3):
        accelsk.install(log_level="debug")
    assert len(logging.getLogger("accelsk").handlers) <= 1


def test_info_level_reaches_standard_error_without_any_set_up():
    code = """
import accelsk
from accelsk.linear_model import Ridge
accelsk.install(log_level="info")
Ridge().fit([[0.0], [1.0]], [0.0, 1.0])
"""
    out, err = _run(code)
    assert out == ""
    assert "[accelsk] Ridge.fit ran in scikit-learn" in err


def test_nothing_goes_to_standard_output(data, capsys):
    line = AcceleratedLine().fit(*data)
    line.predict(data[0])
    AcceleratedLine(forbidden=True).fit(*data)
    assert capsys.readouterr().out == ""


# Faults


@pytest.mark.parametrize(
    ("error", "sticky"),
    [
        (RuntimeError("cudaErrorIllegalAddress: an illegal memory access"), True),
        (RuntimeError("CUDA error: device-side assert triggered"), True),
        (RuntimeError("cudaErrorLaunchFailure: unspecified launch failure"), True),
        (RuntimeError("cudaErrorMemoryAllocation: out of memory"), False),
        (RuntimeError("cudaErrorInvalidValue: invalid argument"), False),
        (ValueError("an illegal address in your street"), False),
    ],
)
def test_sticky_errors_are_told_from_others(error, sticky):
    assert poisons_context(error) is sticky


@pytest.mark.parametrize(
    ("error", "out"),
    [
        (MemoryError("std::bad_alloc: out_of_memory"), True),
        (RuntimeError("CUSOLVER ... bad_alloc"), True),
        (RuntimeError("CUBLAS_STATUS_OUT_OF_MEMORY"), True),
        (RuntimeError("boom"), False),
    ],
)
def test_running_out_of_memory_is_recognised(error, out):
    assert is_out_of_memory(error) is out


# What the driver says


def _gpu(**changes):
    values = {"name": "X", "capability": (9, 0), "driver": (13, 0), "memory": 1}
    return probe.GPU(**{**values, **changes})


@pytest.mark.parametrize(
    ("gpu", "cuda", "message"),
    [
        (_gpu(driver=(12, 4)), 13, r"driver is too old: it supports CUDA 12\.4, .*needs CUDA 13"),
        (_gpu(capability=(7, 0)), 13, r"X has compute capability 7\.0, cuML needs 7\.5"),
        (_gpu(capability=(6, 1)), 12, r"X has compute capability 6\.1, cuML needs 7\.0"),
    ],
)
def test_gpu_that_does_not_fit_is_refused_with_the_figures(gpu, cuda, message):
    with pytest.raises(probe._Unusable, match=message):
        probe._require_fit(gpu, cuda)


def test_gpu_that_fits_is_taken():
    probe._require_fit(_gpu(), 12)
    probe._require_fit(_gpu(), 13)


def test_missing_driver_is_told_from_missing_packages(monkeypatch):
    monkeypatch.setattr(probe, "_found", None)
    monkeypatch.setattr(probe, "_require_packages", lambda: None)

    def missing(name):
        raise OSError(name)

    monkeypatch.setattr(probe.ctypes, "CDLL", missing)
    assert probe.unusable() == "no NVIDIA driver (libcuda.so.1 was not found)"


class _Driver:
    """A driver library that answers as it is told."""

    def __init__(self, code=0, devices=1):
        self.code, self.devices = code, devices

    def cuInit(self, flags):  # noqa: N802
        return self.code

    def cuDriverGetVersion(self, number):  # noqa: N802
        number._obj.value = 13000

    def cuDeviceGetCount(self, number):  # noqa: N802
        number._obj.value = self.devices

    def cuDeviceGet(self, device, index):  # noqa: N802
        device._obj.value = index

    def cuDeviceGetName(self, name, size, device):  # noqa: N802
        name.value = b"NVIDIA H200"

    def cuDeviceGetAttribute(self, number, attribute, device):  # noqa: N802
        number._obj.value = {75: 9, 76: 0}[attribute]

    def cuDeviceTotalMem_v2(self, memory, device):  # noqa: N802
        memory._obj.value = 1 << 37


def test_driver_is_asked_for_what_the_gpu_is():
    assert probe._query(_Driver()) == probe.GPU("NVIDIA H200", (9, 0), (13, 0), 1 << 37)


@pytest.mark.parametrize(
    ("driver", "message"),
    [
        (_Driver(code=100), "cuInit gave error 100"),
        (_Driver(devices=0), r"no GPU is visible \(CUDA_VISIBLE_DEVICES=''\)"),
    ],
)
def test_driver_without_a_gpu_says_why(driver, message, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    with pytest.raises(probe._Unusable, match=message):
        probe._query(driver)
