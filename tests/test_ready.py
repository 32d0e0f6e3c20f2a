"""Getting ready, what is logged, and what importing costs nobody."""

from __future__ import annotations

import logging
import os
import re
import subprocess
import sys
import threading
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import ModuleType
from unittest.mock import MagicMock

import pytest
from engine import AcceleratedLine

import accelsk
from accelsk import runtime
from accelsk.device import probe
from accelsk.device.errors import poisons_context
from accelsk.device.memory import free_pools, is_out_of_memory

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


class _Package:
    """Finds a package of one module of this text; it says how often that was imported."""

    def __init__(self, name, text):
        self.name, self.text, self.imports = name, text, 0

    def find_spec(self, name, path=None, target=None):
        return ModuleSpec(name, self, origin="here") if name == self.name else None

    def create_module(self, spec):
        return None

    def exec_module(self, module):
        self.imports += 1
        exec(self.text, vars(module))


@pytest.fixture
def package(monkeypatch):
    """Have packages of this text in the place of the real ones, and a GPU beside."""
    monkeypatch.setattr(probe, "_found", (object(), None))

    def put(name, text):
        for known in [known for known in sys.modules if known.partition(".")[0] == name]:
            monkeypatch.delitem(sys.modules, known)
        # sys.modules is put back as it is now, without what the test imports
        monkeypatch.setitem(sys.modules, name, None)
        del sys.modules[name]
        finder = _Package(name, text)
        monkeypatch.setattr(sys, "meta_path", [finder, *sys.meta_path])
        return finder

    return put


_CUPY = """
from types import SimpleNamespace
class ndarray: ...
cuda = SimpleNamespace(get_allocator=lambda: None, set_allocator=lambda allocator: None)
"""
_BROKEN = "raise OSError('libcudart.so is missing')"


def _messages(caplog):
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]


def _engines():
    from accelsk.cluster import DBSCAN, KMeans

    (cupy,), (cuml,) = KMeans._accelsk_engines, DBSCAN._accelsk_engines
    assert (cupy.name, cuml.name) == ("cupy", "cuml")
    return cupy, cuml


def _work(data):
    from accelsk.cluster import DBSCAN, KMeans

    with accelsk.profile(quiet=True) as results:
        for _ in range(2):
            DBSCAN().fit(data[0])
            KMeans(2, n_init=1).fit(data[0])
    return results.method_calls


@pytest.mark.parametrize("installs", [True, False])
def test_cuml_that_cannot_be_imported_costs_its_own_engines_only(installs, package, data, caplog):
    package("cupy", _CUPY)
    cuml = package("cuml", _BROKEN)
    reason = "cuML could not be imported (OSError: libcudart.so is missing)"
    if installs:
        accelsk.install()
    calls = _work(data)
    accelsk.install()
    assert _messages(caplog) == [reason]
    assert cuml.imports == 1
    assert calls["DBSCAN.fit"].fallback_reasons == {reason}
    assert [engine.unusable() for engine in _engines()] == [None, reason]
    assert accelsk.enabled()


@pytest.mark.parametrize("installs", [True, False])
def test_cupy_that_cannot_be_imported_takes_the_gpu_out_of_use(installs, package, data, caplog):
    from accelsk.linear_model import Ridge

    cupy = package("cupy", _BROKEN)
    cuml = package("cuml", "__version__ = '26.10'")
    reason = "CuPy could not be imported (OSError: libcudart.so is missing)"
    if installs:
        accelsk.install()
        assert not accelsk.enabled()
    calls = _work(data)
    accelsk.install()
    assert _messages(caplog) == [f"The GPU is out of use in this process: {reason}"]
    assert (cupy.imports, cuml.imports) == (1, 0)
    assert {reason} == set().union(*(call.fallback_reasons for call in calls.values()))
    assert [engine.unusable() for engine in _engines()] == [reason, reason]
    assert accelsk.explain(Ridge(), *data).reasons == (reason,)
    assert not accelsk.enabled()


def test_cupy_engine_finds_out_that_cupy_cannot_be_imported(package, data):
    from accelsk.cluster import KMeans

    cupy = package("cupy", _BROKEN)
    for _ in range(3):
        KMeans(2, n_init=1).fit(data[0])
    assert cupy.imports == 1
    assert not accelsk.enabled()


def test_something_else_called_cupy_takes_the_gpu_out_of_use(package, data):
    from accelsk.cluster import KMeans

    package("cupy", "")
    KMeans(2, n_init=1).fit(data[0])
    assert "cannot import name 'ndarray' from 'cupy'" in probe.unusable()


@pytest.mark.parametrize(("affinity", "costs"), [("nearest_neighbors", True), ("rbf", False)])
def test_broken_cuml_costs_a_graph_of_neighbours_its_gpu(affinity, costs, package, data):
    from accelsk.cluster import SpectralClustering

    package("cupy", _CUPY)
    package("cuml", _BROKEN)
    accelsk.install()
    with accelsk.config_context(device="gpu"):
        plan = accelsk.explain(SpectralClustering(2, affinity=affinity), data[0])
    assert any("cuML could not be imported" in reason for reason in plan.obstacles) is costs


@pytest.mark.parametrize(("method", "costs"), [("barnes_hut", True), ("exact", False)])
def test_broken_cuml_costs_a_search_for_neighbours_its_gpu(method, costs, package, data):
    from accelsk.manifold import TSNE

    package("cupy", _CUPY)
    package("cuml", _BROKEN)
    accelsk.install()
    with accelsk.config_context(device="gpu"):
        plan = accelsk.explain(TSNE(method=method, perplexity=5), data[0])
    assert any("cuML could not be imported" in reason for reason in plan.obstacles) is costs


def test_half_imported_cupy_is_left_alone_when_memory_runs_out(monkeypatch):
    monkeypatch.setitem(sys.modules, "cupy", ModuleType("cupy"))
    free_pools()


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
        ("WARNING", "debug", logging.WARNING),
        (None, "WARNING", logging.WARNING),
        (None, " Info", logging.INFO),
        (None, "", logging.WARNING),
    ],
)
def test_level_comes_from_argument_then_environment(argument, variable, level, no_gpu, monkeypatch):
    if variable is not None:
        monkeypatch.setenv("ACCELSK_LOG_LEVEL", variable)
    accelsk.install(log_level=argument)
    assert logging.getLogger("accelsk").level == level
    # in a form that every child process knows
    assert os.environ["ACCELSK_LOG_LEVEL"] in ("debug", "info", "warn", "error")


@pytest.mark.parametrize("level", ["loud", "", logging.INFO])
def test_unknown_level_is_refused_whatever_it_is(level, no_gpu):
    with pytest.raises(ValueError, match="log_level must be one of"):
        accelsk.install(log_level=level)


@pytest.mark.parametrize(
    ("variable", "off"),
    [
        *((value, "1") for value in ("1", "true", "True", "YES", "on")),
        *((value, "0") for value in ("0", "false", "FALSE", "no", "Off", "")),
        (None, "0"),
    ],
)
def test_managed_memory_is_off_where_the_environment_says_so(variable, off, no_gpu, monkeypatch):
    if variable is not None:
        monkeypatch.setenv("ACCELSK_DISABLE_UVM", variable)
    accelsk.install()
    assert os.environ["ACCELSK_DISABLE_UVM"] == off


@pytest.mark.parametrize("argument", [False, True])
def test_environment_that_neither_says_yes_nor_no_counts_as_unset(
    argument, no_gpu, monkeypatch, caplog
):
    monkeypatch.setenv("ACCELSK_DISABLE_UVM", "Maybe")
    monkeypatch.setenv("ACCELSK_LOG_LEVEL", "WARN")
    accelsk.install(disable_uvm=argument)
    (told,) = (r.message for r in caplog.records if "ACCELSK_DISABLE_UVM" in r.message)
    assert re.search(r"must be one of \('1', .*\), got 'Maybe': it counts as unset", told)
    assert os.environ["ACCELSK_DISABLE_UVM"] == str(int(argument))  # children are not told again
    assert runtime._installed


def test_unknown_level_of_the_environment_counts_as_unset(no_gpu, monkeypatch, caplog):
    with pytest.raises(ValueError, match=r"log_level must be one of .*got 'loud'"):
        accelsk.install(log_level="loud")
    assert not runtime._installed
    monkeypatch.setenv("ACCELSK_LOG_LEVEL", "louder")
    accelsk.install()
    (told,) = (r.message for r in caplog.records if "ACCELSK_LOG_LEVEL" in r.message)
    assert re.search(r"must be one of \('debug', .*\), got 'louder': it counts as unset", told)
    assert logging.getLogger("accelsk").level == logging.WARNING
    assert os.environ["ACCELSK_LOG_LEVEL"] == "warn"


def test_child_process_takes_both_from_the_environment(no_gpu):
    accelsk.install(log_level="info", disable_uvm=True)
    code = """
import accelsk, logging, os
accelsk.install()
print(logging.getLogger("accelsk").level, os.environ["ACCELSK_DISABLE_UVM"])
"""
    assert _run(code)[0].split() == ["20", "1"]


@pytest.mark.parametrize(("before", "after"), [(None, "1"), ("0", "0"), ("svm", "svm")])
def test_install_has_child_processes_patched(no_gpu, monkeypatch, before, after):
    monkeypatch.delenv("ACCELSK_ENABLED", raising=False)
    if before is not None:
        monkeypatch.setenv("ACCELSK_ENABLED", before)
    accelsk.install()
    assert os.environ["ACCELSK_ENABLED"] == after


def test_install_adds_no_handler_twice(no_gpu):
    for _ in range(3):
        accelsk.install(log_level="debug")
    handlers = logging.getLogger("accelsk").handlers
    assert sum(not isinstance(handler, logging.NullHandler) for handler in handlers) <= 1


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

    def __init__(self, devices=1, **codes):
        self.devices, self.codes = devices, codes

    def cuInit(self, flags):  # noqa: N802
        return self.codes.get("cuInit", 0)

    def cuDriverGetVersion(self, number):  # noqa: N802
        number._obj.value = 13000
        return self.codes.get("cuDriverGetVersion", 0)

    def cuDeviceGetCount(self, number):  # noqa: N802
        number._obj.value = self.devices
        return self.codes.get("cuDeviceGetCount", 0)

    def cuDeviceGet(self, device, index):  # noqa: N802
        device._obj.value = index
        return self.codes.get("cuDeviceGet", 0)

    def cuDeviceGetName(self, name, size, device):  # noqa: N802
        name.value = b"NVIDIA H200"
        return self.codes.get("cuDeviceGetName", 0)

    def cuDeviceGetAttribute(self, number, attribute, device):  # noqa: N802
        number._obj.value = {75: 9, 76: 0}[attribute]
        return self.codes.get("cuDeviceGetAttribute", 0)

    def cuDeviceTotalMem_v2(self, memory, device):  # noqa: N802
        memory._obj.value = 1 << 37
        return self.codes.get("cuDeviceTotalMem_v2", 0)


def test_driver_is_asked_for_what_the_gpu_is():
    assert probe._query(_Driver()) == probe.GPU("NVIDIA H200", (9, 0), (13, 0), 1 << 37)


@pytest.mark.parametrize(
    ("driver", "message"),
    [
        (_Driver(cuInit=100), "cuInit gave error 100"),
        *(
            (_Driver(**{function: 999}), f"{function} gave error 999")
            for function in vars(_Driver)
            if function.startswith("cu")
        ),
        (_Driver(devices=0), r"no GPU is visible \(CUDA_VISIBLE_DEVICES=''\)"),
    ],
)
def test_driver_without_a_gpu_says_why(driver, message, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    with pytest.raises(probe._Unusable, match=message):
        probe._query(driver)


@pytest.fixture
def looks_again(monkeypatch):
    monkeypatch.setattr(probe, "_found", None)
    monkeypatch.setattr(probe, "_initialised", False)
    monkeypatch.setattr(probe, "_disabled", None)


def test_incomplete_driver_is_the_reason_and_no_error(looks_again, monkeypatch, data):
    from accelsk.linear_model import Ridge

    monkeypatch.setattr(probe, "_require_packages", lambda: None)
    monkeypatch.setattr(probe, "_load_driver", lambda: object())
    Ridge().fit(*data)
    assert not accelsk.enabled()
    assert "looking for a GPU failed (AttributeError: " in probe.unusable()
    assert "cuInit" in probe.unusable()


@pytest.mark.parametrize("mock", [ModuleType("cupy"), MagicMock()])
def test_mock_in_the_place_of_cupy_is_the_reason_and_no_error(mock, looks_again, monkeypatch, data):
    from accelsk.linear_model import Ridge

    monkeypatch.setitem(sys.modules, "cupy", mock)
    Ridge().fit(*data)
    assert "looking for a GPU failed (ValueError: cupy.__spec__ is" in probe.unusable()


def test_folder_called_cupy_is_no_cupy(looks_again, monkeypatch, tmp_path):
    (tmp_path / "cupy").mkdir()
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "meta_path", [PathFinder])
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    monkeypatch.delitem(sys.modules, "cupy", raising=False)
    assert probe.unusable().startswith("cupy is not installed")


# After a fork


BARRED = "CUDA cannot be used in a forked process"


def test_reason_found_before_a_fork_is_the_reason_after_it(looks_again, monkeypatch):
    monkeypatch.setattr(probe, "_found", (None, "cupy is not installed"))
    monkeypatch.setattr(probe, "_initialised", True)
    probe._forked()
    assert probe.unusable() == "cupy is not installed"


def test_fault_before_a_fork_is_the_reason_after_it(looks_again, monkeypatch):
    monkeypatch.setattr(probe, "_found", (object(), None))
    probe.disable("it melted")
    probe._forked()
    assert probe.unusable() == "it melted"


@pytest.mark.parametrize("name", ["cupy", "cuml"])
def test_fork_after_the_user_has_imported_a_gpu_library_bars_the_gpu(
    name, looks_again, monkeypatch
):
    monkeypatch.setitem(sys.modules, name, ModuleType(name))
    probe._forked()
    assert probe.unusable() == BARRED


def test_fork_during_the_probe_bars_the_gpu(looks_again, monkeypatch):
    monkeypatch.setattr(probe, "_require_packages", lambda: None)
    monkeypatch.setattr(probe, "_load_driver", _Driver)
    monkeypatch.setattr(probe, "_require_fit", lambda gpu, cuda: probe._forked())
    probe._probe()
    assert probe.unusable() == BARRED


def test_child_of_a_parent_that_never_touched_cuda_looks_for_itself(looks_again, monkeypatch):
    for name in ("cupy", "cuml"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.setattr(probe, "_require_packages", lambda: None)
    monkeypatch.setattr(probe, "_load_driver", _Driver)
    monkeypatch.setattr(probe, "_lock", threading.Lock())
    probe._lock.acquire()  # by a thread that the child does not have
    probe._forked()
    assert probe.unusable() is None
    assert probe.gpu().name == "NVIDIA H200"
