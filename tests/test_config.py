"""Settings are local to a thread or task, and start from the environment."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from engine import AcceleratedLine, engine_of

import accelsk
from accelsk import config


def test_defaults():
    expected = {
        "device": "auto",
        "on_fallback": "log",
        "reproducible": False,
        "device_memory_limit": None,
        "pinned_memory": 256 << 20,
    }
    assert accelsk.get_config() == expected


def test_set_config_changes_what_is_named_and_nothing_else():
    accelsk.set_config(on_fallback="warn")
    accelsk.set_config(device="gpu")
    assert accelsk.get_config() == {
        "device": "gpu",
        "on_fallback": "warn",
        "reproducible": False,
        "device_memory_limit": None,
        "pinned_memory": 256 << 20,
    }
    accelsk.set_config()
    assert accelsk.get_config()["device"] == "gpu"


def test_memory_limit_is_set_left_and_lifted():
    with accelsk.config_context(device_memory_limit=1 << 30):
        accelsk.set_config(device="gpu")
        assert accelsk.get_config()["device_memory_limit"] == 1 << 30
        accelsk.set_config(device_memory_limit=None)
        assert accelsk.get_config()["device_memory_limit"] is None
    assert accelsk.get_config()["device_memory_limit"] is None


def test_get_config_returns_a_copy():
    accelsk.get_config()["device"] = "cpu"
    assert accelsk.get_config()["device"] == "auto"


def test_contexts_nest_and_end_with_an_error():
    with accelsk.config_context(device="gpu"):
        with (
            contextlib.suppress(KeyError),
            accelsk.config_context(device="cpu", on_fallback="warn"),
        ):
            assert accelsk.get_config()["device"] == "cpu"
            accelsk.set_config(on_fallback="raise")
            raise KeyError
        assert accelsk.get_config()["device"] == "gpu"
        assert accelsk.get_config()["on_fallback"] == "log"
    assert accelsk.get_config()["device"] == "auto"


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ({"device": "tpu"}, r"device must be one of \('auto', 'gpu', 'cpu'\), got 'tpu'"),
        ({"device": 1}, "device must be one of"),
        ({"on_fallback": "shout"}, r"on_fallback must be one of .*got 'shout'"),
        ({"reproducible": "yes"}, "reproducible must be one of"),
        ({"device_memory_limit": 0}, "device_memory_limit must be a positive number of bytes"),
        ({"device_memory_limit": 1e9}, "device_memory_limit must be a positive number of bytes"),
        ({"device_memory_limit": True}, "device_memory_limit must be a positive number of bytes"),
        ({"reproducible": 1}, "reproducible must be one of"),
        ({"device": ["gpu"]}, "device must be one of"),
        ({"device": np.array(["gpu", "cpu"])}, "device must be one of"),
        ({"device_memory_limit": "lots"}, "device_memory_limit must be a positive number of bytes"),
        ({"device_memory_limit": np.ones(2)}, "device_memory_limit must be a positive number"),
        ({"device_memory_limit": np.float64(9)}, "device_memory_limit must be a positive number"),
        ({"pinned_memory": -1}, "pinned_memory must be a number of bytes"),
    ],
)
def test_unknown_values_raise_and_change_nothing(setting, message):
    with pytest.raises(ValueError, match=message):
        accelsk.set_config(**setting)
    with pytest.raises(ValueError, match=message), accelsk.config_context(**setting):
        pass
    assert accelsk.get_config()["device"] == "auto"


def test_unknown_settings_raise():
    with pytest.raises(TypeError, match="nonsense"):
        accelsk.set_config(nonsense=1)
    with pytest.raises(TypeError):
        accelsk.set_config("cpu")


def test_threads_start_from_the_defaults_and_do_not_see_each_other():
    accelsk.set_config(device="cpu")
    seen = {}
    barrier = threading.Barrier(2)

    def work(device):
        seen[device, "before"] = accelsk.get_config()["device"]
        accelsk.set_config(device=device)
        barrier.wait(10)
        seen[device, "after"] = accelsk.get_config()["device"]

    threads = [threading.Thread(target=work, args=(d,)) for d in ("gpu", "auto")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert seen == {
        ("gpu", "before"): "auto",
        ("gpu", "after"): "gpu",
        ("auto", "before"): "auto",
        ("auto", "after"): "auto",
    }
    assert accelsk.get_config()["device"] == "cpu"


def test_context_can_be_carried_to_a_thread():
    with accelsk.config_context(device="cpu"), ThreadPoolExecutor(1) as pool:
        context = contextvars.copy_context()
        assert pool.submit(context.run, accelsk.get_config).result()["device"] == "cpu"


def test_tasks_inherit_and_do_not_see_each_other():
    async def work(device, order):
        inherited = accelsk.get_config()["device"]
        with accelsk.config_context(device=device):
            await asyncio.sleep(order * 0.01)
            return inherited, accelsk.get_config()["device"]

    async def main():
        accelsk.set_config(device="cpu")
        return await asyncio.gather(work("gpu", 2), work("auto", 1), work("cpu", 3))

    assert asyncio.run(main()) == [("cpu", "gpu"), ("cpu", "auto"), ("cpu", "cpu")]
    assert accelsk.get_config()["device"] == "auto"


@pytest.mark.parametrize(
    ("variable", "device"),
    [
        *((device, device) for device in ("auto", "gpu", "cpu")),
        ("CPU", "cpu"),
        (" Gpu", "gpu"),
        ("", "auto"),
    ],
)
def test_environment_sets_the_default(variable, device, monkeypatch):
    monkeypatch.setenv("ACCELSK_DEVICE", variable)
    assert accelsk.get_config()["device"] == device


def test_environment_sets_the_default_of_every_thread(monkeypatch):
    monkeypatch.setenv("ACCELSK_DEVICE", "cpu")
    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(accelsk.get_config).result()["device"] == "cpu"


def test_bad_environment_is_told_of_once_and_counts_as_unset(monkeypatch, data, caplog):
    monkeypatch.setenv("ACCELSK_DEVICE", "TPU")
    for _ in range(2):
        assert accelsk.get_config()["device"] == "auto"
        AcceleratedLine().fit(*data)
        monkeypatch.setattr(config, "_default", None)
    (record,) = caplog.records
    assert (record.name, record.levelname) == ("accelsk", "WARNING")
    assert record.message == (
        "ACCELSK_DEVICE must be one of ('auto', 'gpu', 'cpu'), got 'TPU': it counts as unset"
    )


def test_numbers_and_flags_of_numpy_are_as_good_as_pythons():
    accelsk.set_config(
        device_memory_limit=np.int64(5), pinned_memory=np.uint32(3), reproducible=np.True_
    )
    found = accelsk.get_config()
    assert found["device_memory_limit"] == 5
    assert found["pinned_memory"] == 3
    assert found["reproducible"] is True
    assert type(found["device_memory_limit"]) is int


def test_environment_is_read_when_it_is_needed_first(monkeypatch):
    assert config._default is None
    accelsk.get_config()
    monkeypatch.setenv("ACCELSK_DEVICE", "cpu")
    assert accelsk.get_config()["device"] == "auto"


@pytest.mark.parametrize(("device", "calls"), [("auto", 1), ("gpu", 1), ("cpu", 0)])
def test_device_decides_where_a_call_runs(device, calls, data):
    with accelsk.config_context(device=device):
        AcceleratedLine().fit(*data)
    assert engine_of(AcceleratedLine).counts["fit"] == calls


def test_reproducible_keeps_calls_that_do_not_repeat_in_scikit_learn(data, monkeypatch):
    from engine import GENERIC
    from sklearn.cluster import KMeans

    cls = GENERIC[KMeans]
    monkeypatch.setattr(engine_of(cls), "repeats", False, raising=False)
    counts = engine_of(cls).counts
    with accelsk.config_context(reproducible=True):
        cls(2, n_init=1).fit(data[0])
        assert counts["fit"] == 1
        with accelsk.profile(quiet=True) as results:
            cls(2, n_init=1, random_state=0).fit(data[0])
        assert counts["fit"] == 1
    (reason,) = results.method_calls["KMeans.fit"].fallback_reasons
    assert reason.startswith("reproducible=True is set")
    cls(2, n_init=1, random_state=0).fit(data[0])
    assert counts["fit"] == 2
