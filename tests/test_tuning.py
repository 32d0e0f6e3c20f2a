"""Measuring a machine, and getting ready ahead of the first call."""

from __future__ import annotations

import copy
import io
import os
import subprocess
import sys
import threading
import warnings
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from class_cases import all_classes
from engine import GENERIC, AcceleratedCentering, AcceleratedLine, engine_of
from sklearn.utils.validation import validate_data

import accelsk
from accelsk import _progress, runtime, tuning, warmup
from accelsk.costs import budget, machine, points, samples, startup, store
from accelsk.costs import measure as measure_module
from accelsk.costs.measure import ClassMeasuring, measure
from accelsk.costs.model import CPU, Curve, Table
from accelsk.device import probe
from accelsk.dispatch import method_of
from accelsk.profiling.events import listening

TINY = ((20, 4), (60, 4), (30, 10))


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def gpu(monkeypatch, tmp_path):
    """A GPU of which nothing is asked, and an empty cache."""
    found = probe.GPU("Test GPU", (9, 0), (13, 0), 2**30)
    monkeypatch.setattr(probe, "_found", (found, None))
    monkeypatch.setattr("platformdirs.user_cache_path", lambda name: tmp_path / name)
    monkeypatch.setattr(tuning, "_load", lambda: {"cupy": 1.0, "cuml": 2.0})
    monkeypatch.setattr(machine, "speeds", lambda: {"cpu call": 1.0})
    monkeypatch.setattr(warmup, "compile_in_processes", lambda seconds: 0)
    monkeypatch.setattr(tuning, "_SPINNING", 0.0)


# Measuring


@pytest.mark.parametrize("cls", [AcceleratedLine, AcceleratedCentering, *GENERIC.values()])
def test_every_method_is_measured_on_both_sides(cls):
    found = measure(cls, 5.0, TINY)
    methods = {name for name, _ in found.observations}
    assert {"fit", "fetch", "restore"} <= methods
    for method in methods - {"fetch", "restore"}:
        assert (method, CPU) in found.observations, method
        assert (method, "test") in found.observations, method
        for curve in (found.curve(method, CPU), found.curve(method, "test")):
            assert curve is not None
            assert curve.terms


def test_a_class_that_has_no_time_is_not_measured():
    assert not measure(AcceleratedLine, 0.0, TINY).observations


def test_a_side_that_is_measured_at_one_size_is_not_taken_to_be_constant():
    found = measure(AcceleratedLine, 5.0, TINY[:1])
    assert [term for _, term in found.curve("fit", CPU).terms] == ["n"]


def test_a_class_that_fails_costs_itself_only(caplog):
    engine_of(AcceleratedLine).failing["fit"] = RuntimeError("no")
    found = measure(AcceleratedLine, 5.0, TINY)
    assert ("fit", "test") not in found.observations
    assert ("fit", CPU) in found.observations


@pytest.fixture
def defaults(monkeypatch):
    """The coefficients that come with accelsk."""
    table = Table({"gpu": "Other GPU"}, {"cpu call": 0.5}, {"cupy": 3.0})
    monkeypatch.setattr(store, "default", lambda: table)
    return table


def test_tuning_makes_a_table(gpu, defaults):
    stream = io.StringIO()
    table = tuning.tune(5.0, classes=[AcceleratedLine], grid=TINY, stream=stream)
    assert set(table.curves["AcceleratedLine.fit"]) == {CPU, "test"}
    assert set(table.measured) == set(table.curves)
    assert Table.from_json(table.to_json()).measured == table.measured
    assert table.machine.items() >= machine.describe().items()
    assert table.load == {"cupy": 1.0, "cuml": 2.0}
    assert stream.getvalue() == "0 of 5 s: compiling\n"


def test_a_terminal_has_a_bar(gpu):
    stream = _Terminal()
    tuning.tune(1.0, classes=[AcceleratedLine], grid=TINY, stream=stream)
    assert "AcceleratedLine, 20 x 4" in stream.getvalue()
    assert stream.getvalue().endswith("\r")


def test_what_is_not_measured_has_default_coefficients_by_the_speed_of_this_machine(gpu, defaults):
    defaults.curves["other.Class.fit"] = {CPU: Curve(((1.0, "1"),)), "test": Curve(((3.0, "nd"),))}
    table = tuning.tune(5.0, classes=[AcceleratedLine], grid=TINY, stream=io.StringIO())
    assert table.curves["other.Class.fit"][CPU].terms == ((2.0, "1"),)
    assert "AcceleratedLine.fit" in table.curves
    assert set(table.measured) == set(table.curves) - {"other.Class.fit"}


def test_a_side_that_is_hardly_measured_is_told_by_the_defaults(gpu, defaults):
    curve = Curve(((1e-6, "1"), (1e-5, "nd")))
    defaults.speed = {}
    defaults.curves["AcceleratedLine.fit"] = {CPU: curve, "test": curve}
    table = tuning.tune(5.0, classes=[AcceleratedLine], grid=TINY[:1], stream=io.StringIO())
    for place in (CPU, "test"):
        found = table.curves["AcceleratedLine.fit"][place]
        assert [term for _, term in found.terms] == ["1", "nd"]
        assert found.terms[1][0] == pytest.approx(10 * found.terms[0][0])
        ((_, _, measured, expected),) = table.measured["AcceleratedLine.fit"][place]
        assert expected == pytest.approx(measured, rel=0.01)


# A clock of our own: what the time does is what the calls say that they take


class _Clock:
    """A clock that calls of `Line` put forward, by the size of their data."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.calls: list[tuple[str, str, int]] = []

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


@pytest.fixture
def clock(monkeypatch, gpu, defaults):
    """The engine takes 2 ms for anything, scikit-learn 1 us for a row and, to fit, 1 us more
    for each pair of rows."""
    found = _Clock()
    for module in (tuning, budget, measure_module, warmup, _progress):
        for name in ("perf_counter", "sleep"):
            if hasattr(module, name):
                monkeypatch.setattr(module, name, found.sleep if name == "sleep" else found)
    engine = engine_of(AcceleratedLine)

    def slow(estimator, X, *args, **kwargs):
        method = "fit" if args else "predict"
        found.calls.append((method, CPU, len(X)))
        found.now += 1e-6 * len(X) * (1 + len(X) * (method == "fit"))
        return validate_data(estimator, X, *args, **kwargs)

    monkeypatch.setattr("engine.validate_data", slow)

    def run(call, model):
        found.calls.append((call.method, "test", len(call.X.array)))
        found.now += 2e-3
        return type(engine).run(engine, call, model)

    monkeypatch.setattr(engine, "run", run)
    return found


SIZES = ((10, 2), (100, 2), (1_000, 2), (10_000, 2))


def test_no_call_is_begun_after_the_time(clock):
    start = clock.now
    for seconds in (0.0, 0.01, 0.1, 1.0, 20.0):
        start = clock.now
        tuning.tune(seconds, classes=[AcceleratedLine], grid=SIZES, stream=io.StringIO())
        assert clock.now - start <= 1.05 * seconds + 0.1


def test_a_call_that_would_take_too_much_of_the_time_is_not_made(clock):
    table = tuning.tune(20.0, classes=[AcceleratedLine], grid=SIZES, stream=io.StringIO())
    assert ("fit", CPU, 100) in clock.calls
    assert ("fit", CPU, 10_000) not in clock.calls  # 100 s
    assert ("predict", CPU, 10_000) in clock.calls
    fit = table.curves["AcceleratedLine.fit"]
    assert fit["test"].seconds({"1": 1, "n": 1e4, "d": 2, "s": 2, "e": 0, "h": 1}) < 0.01


def test_the_engine_is_measured_before_the_processor_is_busy(clock):
    tuning.tune(20.0, classes=[AcceleratedLine], grid=SIZES[:2], stream=io.StringIO())
    places = [place for _, place, rows in clock.calls if rows == 100]
    assert places == sorted(places, key=lambda place: place == CPU)


def test_an_interrupt_leaves_what_was_measured(clock, monkeypatch):
    run = engine_of(AcceleratedLine).run

    def interrupted(call, model):
        if len(call.X.array) == 1_000:
            raise KeyboardInterrupt
        return run(call, model)

    monkeypatch.setattr(engine_of(AcceleratedLine), "run", interrupted)
    table = tuning.tune(20.0, classes=[AcceleratedLine], grid=SIZES, stream=io.StringIO())
    rows = {point[0] for point in table.measured["AcceleratedLine.fit"]["test"]}
    assert rows == {10, 100}


def test_the_command_keeps_what_an_interrupt_leaves(clock, monkeypatch, capsys):
    def tune(seconds, **_):
        raise_at = iter([False] * 6 + [True] * 99)
        monkeypatch.setattr(tuning, "sleep", lambda _: next(raise_at) and interrupt())
        return original(seconds, classes=[AcceleratedLine], grid=SIZES, stream=io.StringIO())

    def interrupt():
        raise KeyboardInterrupt

    original = tuning.tune
    monkeypatch.setattr(tuning, "tune", tune)
    assert tuning.main(["--seconds", "20"]) == 0
    assert "AcceleratedLine.fit" in store.table().curves
    monkeypatch.setattr(tuning, "tune", lambda seconds, **_: Table())
    assert tuning.main([]) == 1
    assert "Nothing was measured" in capsys.readouterr().err


def order_of_measuring(monkeypatch, classes, grid):
    """Return which class was measured at how many rows, in order, where nothing gets clear."""
    measured = []
    monkeypatch.setattr(
        ClassMeasuring, "on_gpu", lambda self, point: measured.append((self, point.rows))
    )
    monkeypatch.setattr(tuning, "_HALVES", (ClassMeasuring.on_gpu,))
    tuning.tune(20.0, classes=classes, grid=grid, stream=io.StringIO())
    return [(measuring.cls.__name__[11:], rows) for measuring, rows in measured]


def test_the_most_used_classes_are_measured_first(clock, monkeypatch):
    monkeypatch.setattr(tuning, "_USED_MOST", {"AcceleratedCentering"})
    monkeypatch.setattr(tuning, "_COARSE", 1)
    monkeypatch.setattr(tuning, "_LARGE", 1)
    order = order_of_measuring(monkeypatch, [AcceleratedLine, AcceleratedCentering], SIZES)
    assert order == [
        ("Centering", 10),
        ("Line", 10),
        ("Centering", 100),
        ("Line", 100),
        *(("Centering", rows) for rows in (1_000, 10_000)),
        *(("Line", rows) for rows in (1_000, 10_000)),
    ]


def test_large_sizes_come_before_those_between(clock, monkeypatch):
    monkeypatch.setattr(tuning, "_COARSE", 2)
    monkeypatch.setattr(tuning, "_LARGE", 1)
    grid = ((10, 2), (100, 2), (10_000, 2), (1_000, 2))
    order = order_of_measuring(monkeypatch, [AcceleratedLine, AcceleratedCentering], grid)
    rows = [found for name, found in order if name == "Line"]
    assert rows == [10, 100, 10_000, 1_000]


def test_the_grid_reaches_what_a_user_may_have():
    coarse = points.GRID[: tuning._COARSE]
    large = points.GRID[tuning._COARSE : tuning._COARSE + tuning._LARGE]
    assert max(n * d for n, d in coarse) < 10**6
    assert max(n * d for n, d in large) > 2 * 10**7
    assert max(n for n, _ in large) > 10**6
    for columns in {d for _, d in large}:  # from one to the next is no leap in the dark
        rows = sorted(n for n, d in points.GRID if d == columns)
        assert all(b <= 50 * a for a, b in pairwise(rows) if a >= 64)


@pytest.mark.parametrize(("bytes_free", "most"), [(1e12, 10**6), (64 * 10_000, 10_000), (0, 0)])
def test_data_that_do_not_fit_are_not_made(clock, monkeypatch, bytes_free, most):
    monkeypatch.setattr(machine, "memory", lambda: bytes_free)
    made = []
    monkeypatch.setattr(tuning, "fitting", lambda *given: made.append(points.fitting(*given)) or ())
    grid = ((100, 10), (1_000, 10), (10_000, 10), (100_000, 10))
    tuning.tune(1.0, classes=[AcceleratedLine], grid=grid, stream=io.StringIO())
    assert max([n * d for n, d in made[0]], default=0) == most


def test_memory_is_asked_for():
    assert 2**20 < machine.memory() < 2**60


def test_what_is_clear_from_smaller_and_larger_sizes_is_not_measured(clock):
    """The CPU takes 1 us for a row to predict, the engine 2 ms for any number of them."""
    grid = tuple((rows, 2) for rows in (10, 100, 10_000, 1_000, 3_000, 50))
    tuning.tune(60.0, classes=[AcceleratedLine], grid=grid, stream=io.StringIO())
    measured = {(place, rows) for method, place, rows in clock.calls if method == "predict"}
    for rows in (10, 100, 10_000, 1_000, 3_000):  # between 100 and 10,000 it was open
        assert {(CPU, rows), ("test", rows)} <= measured
    assert not {(CPU, 50), ("test", 50)} & measured  # the CPU is 20 times as fast at 100


def test_a_side_that_is_far_behind_is_not_waited_for(clock, monkeypatch):
    monkeypatch.setattr(budget, "_PART", 1.0)
    monkeypatch.setattr(budget, "_CURVE", 1.0)
    tuning.tune(1e4, classes=[AcceleratedLine], grid=SIZES, stream=io.StringIO())
    assert ("fit", CPU, 100) in clock.calls  # 10 ms
    assert ("fit", CPU, 10_000) not in clock.calls  # 100 s, while the engine takes 2 ms
    assert ("fit", "test", 10_000) in clock.calls


def test_no_method_takes_the_time_of_the_others(clock):
    start = clock.now
    grid = [(rows, 2) for rows in range(400, 700)]
    tuning.tune(50.0, classes=[AcceleratedLine], grid=grid, stream=io.StringIO())
    fits = sum(
        1e-6 * n * (1 + n) for call, place, n in clock.calls if (call, place) == ("fit", CPU)
    )
    assert fits < 2 * budget._CURVE * 50
    assert clock.now - start < 50


def test_what_no_engine_takes_is_not_waited_for_in_scikit_learn(clock):
    engine_of(AcceleratedLine).failing["fit"] = RuntimeError("no")
    table = tuning.tune(20.0, classes=[AcceleratedLine], grid=SIZES[:2], stream=io.StringIO())
    assert "test" not in table.measured["AcceleratedLine.fit"]
    fits = [rows for method, place, rows in clock.calls if (method, place) == ("fit", CPU)]
    often = 1 + measure_module._OFTEN
    assert len(fits) == often + 2 + 2  # as often as the CPU asks for, and once to have a model


@pytest.mark.parametrize("fault", [RuntimeError("no"), MemoryError(), ImportError("gone")])
def test_a_class_that_raises_does_not_end_it(clock, monkeypatch, fault):
    new = samples.new

    def raises(cls, variant=0):
        if cls is AcceleratedCentering and made:
            raise fault
        return new(cls, variant)

    made = []
    monkeypatch.setattr(samples, "new", raises)
    monkeypatch.setattr(machine, "speeds", lambda: made.append(1) or {"cpu call": 1.0})
    classes = [AcceleratedCentering, AcceleratedLine]
    table = tuning.tune(20.0, classes=classes, grid=SIZES[:2], stream=io.StringIO())
    assert set(table.measured["AcceleratedLine.fit"]) == {CPU, "test"}
    assert not any("Centering" in call for call in table.measured)


def test_a_class_that_cannot_be_tried_at_all_is_left_out(clock, monkeypatch, caplog):
    new = samples.new

    def raises(cls, variant=0):
        if cls is AcceleratedCentering:
            raise ImportError("no module named umap")
        return new(cls, variant)

    monkeypatch.setattr(samples, "new", raises)
    classes = [AcceleratedCentering, AcceleratedLine]
    table = tuning.tune(20.0, classes=classes, grid=SIZES[:2], stream=io.StringIO())
    assert set(table.measured["AcceleratedLine.fit"]) == {CPU, "test"}
    assert "no module named umap" in caplog.text


def test_what_was_measured_earlier_stays_where_nothing_new_is_known(clock):
    earlier = {CPU: Curve(((7.0, "1"),)), "test": Curve(((3.0, "n"),))}
    times = {CPU: [[10, 2, 7.0, 7.0]]}
    store.save(
        Table(machine.describe(), {}, {}, {"other.fit": earlier}, {"other.fit": times}),
    )
    table = tuning.tune(20.0, classes=[AcceleratedLine], grid=SIZES[:2], stream=io.StringIO())
    assert table.curves["other.fit"] == earlier
    assert table.measured["other.fit"] == times
    assert "AcceleratedLine.fit" in table.measured


def test_an_interrupt_before_anything_is_measured_leaves_the_old_table(clock, monkeypatch, capsys):
    earlier = Table(machine.describe(), {}, {}, {"a.fit": {CPU: Curve(((7.0, "1"),))}})
    earlier.measured = {"a.fit": {CPU: [[10, 2, 7.0, 7.0]]}}
    file = store.save(earlier)
    before = file.read_bytes()

    def interrupted(seconds):
        raise KeyboardInterrupt

    monkeypatch.setattr(warmup, "compile_in_processes", interrupted)
    monkeypatch.setattr(tuning, "_accelerated", lambda: [AcceleratedLine])
    assert tuning.main(["--seconds", "20"]) == 1
    assert file.read_bytes() == before
    assert "Nothing was measured" in capsys.readouterr().err


@pytest.mark.parametrize("text", ["", "{", '{"format": 0}', '{"format": 1, "calls": 3}'])
def test_a_broken_file_of_before_is_replaced(clock, caplog, text):
    file = store.cache_file()
    file.parent.mkdir(parents=True)
    file.write_text(text)
    table = tuning.tune(20.0, classes=[AcceleratedLine], grid=SIZES[:2], stream=io.StringIO())
    assert "are ignored" in caplog.text
    assert store.save(table) == file
    assert "AcceleratedLine.fit" in store.table().curves


@pytest.mark.parametrize("key", ["gpu", "driver", "processor", "cores", "versions"])
def test_a_file_of_another_machine_is_no_starting_point(clock, key):
    foreign = Table({**machine.describe(), key: "another"}, {}, {}, {})
    foreign.curves = {"other.fit": {CPU: Curve(((7.0, "1"),))}}
    store.save(foreign)
    table = tuning.tune(20.0, classes=[AcceleratedLine], grid=SIZES[:2], stream=io.StringIO())
    assert "other.fit" not in table.curves


def test_a_call_that_does_not_end_is_told_of_and_the_rest_kept(clock, monkeypatch, capsys):
    monkeypatch.setattr(tuning, "_accelerated", lambda: [AcceleratedLine])
    monkeypatch.setattr(tuning, "fitting", lambda *_: SIZES[:2])
    timers: list[tuple[float, Any]] = []
    timer = SimpleNamespace(start=lambda: None, cancel=lambda: None)
    monkeypatch.setattr(
        tuning.threading, "Timer", lambda *given: timers.append(given) or copy.copy(timer)
    )
    left: list[int] = []
    monkeypatch.setattr(os, "_exit", left.append)
    run = engine_of(AcceleratedLine).run

    def hangs(call, model):
        if len(call.X.array) == 100:
            timers[0][1]()  # the time has come
            raise KeyboardInterrupt
        return run(call, model)

    monkeypatch.setattr(engine_of(AcceleratedLine), "run", hangs)
    tuning.main(["--seconds", "20"])
    assert timers[0][0] == 20 + tuning._GRACE
    assert left == [0]
    assert "AcceleratedLine, 100 x 2 has not ended" in capsys.readouterr().err
    assert {point[0] for point in store.table().measured["AcceleratedLine.fit"]["test"]} == {10}


def test_a_call_that_lets_nothing_else_run_does_not_outlast_it_for_ever(clock, monkeypatch):
    set_to: list[Any] = []
    monkeypatch.setattr(
        tuning.faulthandler,
        "dump_traceback_later",
        lambda seconds, **how: set_to.append((seconds, how["exit"])),
    )
    monkeypatch.setattr(
        tuning.faulthandler, "cancel_dump_traceback_later", lambda: set_to.append("cancelled")
    )

    def tune(seconds, **_):
        assert set_to == [(20 + 2 * tuning._GRACE, True)]
        raise ZeroDivisionError

    monkeypatch.setattr(tuning, "tune", tune)
    with pytest.raises(ZeroDivisionError):
        tuning.main(["--seconds", "20"])
    assert set_to[1:] == ["cancelled"]


def test_without_a_gpu_it_says_what_it_does(monkeypatch, capsys):
    monkeypatch.setattr(probe, "_found", (None, "no GPU in this test"))
    monkeypatch.setattr(tuning, "tune", lambda *_, **__: pytest.fail("it measured"))
    assert tuning.main([]) == 1
    assert capsys.readouterr().err == (
        "There is nothing to measure: no GPU in this test. Every call runs in scikit-learn; what "
        "was measured earlier is left as it is.\n"
    )


@pytest.mark.parametrize("seconds", ["-3", "0", "nan", "inf", "soon"])
def test_seconds_that_are_no_time_are_said_to_be_none(seconds, capsys):
    with pytest.raises(SystemExit):
        tuning.main([f"--seconds={seconds}"])
    assert seconds in capsys.readouterr().err


def test_a_broken_file_cannot_be_shown(gpu, capsys, tmp_path):
    (tmp_path / "broken.json").write_text("{")
    assert tuning.main(["--show", "--output", str(tmp_path / "broken.json")]) == 1
    assert "broken.json cannot be read" in capsys.readouterr().err


def test_progress_without_a_terminal_is_a_line_now_and_then(clock):
    stream = io.StringIO()
    bar = _progress.TimeBar(20.0, stream)
    for _ in range(40):
        bar.show("Line, 10 x 2")
        clock.now += 0.5
    lines = stream.getvalue().splitlines()
    assert lines == [f"{spent} of 20 s: Line, 10 x 2" for spent in (0, 5, 10, 15)]


def test_the_command_keeps_what_it_measured(gpu, monkeypatch, capsys):
    curves = {"a.fit": {CPU: Curve(((1.0, "1"),))}}
    table = Table(machine.describe(), {}, {}, curves, {"a.fit": {CPU: [[1, 1, 1.0, 1.0]]}})
    monkeypatch.setattr(tuning, "tune", lambda seconds, **_: table)
    assert tuning.main(["--seconds", "1"]) == 0
    assert str(store.cache_file()) in capsys.readouterr().out
    assert store.table().curves == curves


def test_a_cache_that_cannot_be_written_is_told(gpu, monkeypatch, capsys, tmp_path):
    (tmp_path / "accelsk").write_text("a file in the place of the folder")
    measured = {"a.fit": {CPU: [[1, 1, 1.0, 1.0]]}}
    monkeypatch.setattr(tuning, "tune", lambda seconds, **_: Table(measured=measured))
    assert tuning.main([]) == 1
    assert "could not be kept" in capsys.readouterr().err


def test_show_prints_expected_against_measured(gpu, capsys):
    table = tuning.tune(1.0, classes=[AcceleratedLine], grid=TINY, stream=io.StringIO())
    store.save(table)
    assert tuning.main(["--show"]) == 0
    printed = capsys.readouterr().out
    assert "AcceleratedLine.fit" in printed
    assert store.cache_file().with_suffix(".png").exists() == ("matplotlib" in sys.modules)


@pytest.mark.parametrize("main", [tuning.main, warmup.main])
def test_without_a_gpu_there_is_nothing_to_do(main, monkeypatch, capsys):
    monkeypatch.setattr(probe, "_found", (None, "no GPU in this test"))
    assert main([]) == 1
    assert "no GPU in this test" in capsys.readouterr().err


@pytest.mark.parametrize("key", all_classes())
def test_there_are_data_for_every_class(key):
    cls: Any = all_classes()[key]
    if key.startswith(("umap", "manifold.TSNE", "ensemble")):
        pytest.skip("takes its time on the CPU")
    estimator = samples.new(cls)
    data = samples.sample(cls, 64, 8)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        estimator.fit(**samples.arguments(estimator, "fit", data))
        for method in ("predict", "transform"):
            if method_of(cls, method) is not None and hasattr(estimator, method):
                getattr(estimator, method)(**samples.arguments(estimator, method, data))


# Getting ready


def test_warming_up_runs_each_method_and_tells_nobody():
    events: list[Any] = []
    state = np.random.get_state()[1].copy()
    with warnings.catch_warnings(), listening(events.append):
        warnings.simplefilter("error")
        assert warmup.compile_kernels([AcceleratedLine, AcceleratedCentering]) == {}
    assert not events
    np.testing.assert_array_equal(np.random.get_state()[1], state)
    assert engine_of(AcceleratedLine).counts["fit"] == 1
    assert engine_of(AcceleratedLine).counts["predict"] == 1
    assert engine_of(AcceleratedCentering).counts["transform"] == 1


def test_what_cannot_be_warmed_up_is_told():
    engine_of(AcceleratedLine).failing["predict"] = RuntimeError("no kernel")
    assert warmup.compile_kernels([AcceleratedLine]) == {"Line.predict": "RuntimeError: no kernel"}


def test_warming_up_stops_when_it_is_told_to():
    assert warmup.compile_kernels([AcceleratedLine], stop=lambda: True) == {}
    assert not engine_of(AcceleratedLine).counts


def test_processes_that_compile_share_the_classes(monkeypatch):
    compiled = []
    classes = [AcceleratedLine, AcceleratedCentering, *GENERIC.values()]
    monkeypatch.setattr(warmup, "imported", lambda: classes)
    monkeypatch.setattr(warmup, "compile_kernels", compiled.extend)
    for part in range(3):
        warmup.compile_part(part, 3)
    assert sorted(map(id, compiled)) == sorted(map(id, classes))


@pytest.mark.parametrize(
    ("code", "ended"), [("pass", 2), ("1 / 0", 0), ("import time; time.sleep(60)", 0)]
)
def test_processes_that_compile_have_no_more_than_their_time(monkeypatch, code, ended):
    start, begun = subprocess.Popen, []

    def popen(command, **kwargs):
        begun.append(start([*command[:-1], code], **kwargs))
        return begun[-1]

    monkeypatch.setattr(subprocess, "Popen", popen)
    monkeypatch.setattr(warmup, "cores", lambda: 4)
    assert warmup.compile_in_processes(20.0 if "time" not in code else 0.2) == ended
    assert len(begun) == 2
    assert all(process.returncode is not None for process in begun)


@pytest.fixture
def steps(monkeypatch, gpu):
    """The steps of getting ready, which only write down that they were made, and by whom."""
    made: list[tuple[str, str]] = []

    def step(name: str) -> Any:
        return lambda *_, **__: made.append((name, threading.current_thread().name))

    for name in ("import_cupy", "import_cuml", "use_device"):
        monkeypatch.setattr(warmup, name, step(name))
    monkeypatch.setattr(warmup, "compile_kernels", lambda classes, stop: {})
    return made


def test_install_in_the_background_works_in_a_thread(steps, monkeypatch):
    accelsk.install(disable_uvm=True, background=True)
    for thread in threading.enumerate():
        if thread.name == "accelsk-install":
            assert thread.daemon
            thread.join(10)
    assert [name for name, _ in steps] == ["import_cupy", "import_cuml", "use_device"]
    assert {thread for _, thread in steps} == {"accelsk-install"}
    assert not startup.loads("cuml")
    assert startup._loading_since is None
    assert runtime._installed


def test_what_goes_wrong_in_the_background_is_logged(steps, monkeypatch, caplog):
    def fails(**_: Any) -> None:
        raise OSError("no library")

    monkeypatch.setattr(warmup, "get_ready", fails)
    warmup.in_background(disable_uvm=True).join(10)
    assert "could not be got ready: OSError: no library" in caplog.text
    assert startup._loading_since is None


def test_a_program_that_ends_meanwhile_ends_well(tmp_path):
    code = """
import sys, threading, time
import accelsk
from accelsk import warmup
from accelsk.device import probe
probe._found = (probe.GPU("Test GPU", (9, 0), (13, 0), 2**30), None)
begun = threading.Event()

def slow():
    begun.set()
    time.sleep(0.5)
    print("step ended", flush=True)

warmup.import_cupy = slow
warmup.import_cuml = lambda: print("not begun any more", flush=True)
accelsk.install(disable_uvm=True, background=True)
begun.wait(10)
print("program ended", flush=True)
"""
    root = os.path.dirname(os.path.dirname(accelsk.__file__))
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": root},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.split("\n") == ["program ended", "step ended", ""]


def test_a_child_forked_meanwhile_finds_no_module_half_imported(tmp_path):
    (tmp_path / "slow_library.py").write_text("import time; time.sleep(0.6); ready = True")
    code = """
import os, sys, threading, time
import accelsk
from accelsk import warmup
from accelsk.device import probe
probe._found = (probe.GPU("Test GPU", (9, 0), (13, 0), 2**30), None)
steps = []

def slow():
    steps.append("begun")
    import slow_library

def later():
    time.sleep(0.2)
    steps.append("later")

warmup.import_cupy, warmup.import_cuml, warmup.use_device = slow, later, later
accelsk.install(disable_uvm=True, background=True)
while not steps:
    time.sleep(0.01)
child = os.fork()
if child == 0:
    from slow_library import ready
    from accelsk.linear_model import Ridge
    Ridge().fit([[0.0], [1.0]], [0.0, 1.0])
    print(ready, accelsk.enabled(), flush=True)
    os._exit(0)
print(os.waitpid(child, 0)[1], flush=True)
for thread in threading.enumerate():
    if thread.name == "accelsk-install":
        thread.join()
print(steps, flush=True)
"""
    root = os.path.dirname(os.path.dirname(accelsk.__file__))
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code],
        env={**os.environ, "PYTHONPATH": os.pathsep.join([root, str(tmp_path)])},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines() == ["True False", "0", "['begun', 'later', 'later']"]


def test_a_step_that_does_not_end_keeps_nobody_from_forking(monkeypatch):
    gate = warmup._Gate()
    monkeypatch.setattr(gate, "patience", 0.01)
    gate.open()
    gate.before_fork()
    gate.after_fork()
    gate.close()
    gate.open()


def test_a_fork_meanwhile_leaves_a_child_that_knows_nothing_of_it(steps):
    startup.mark("cuml", "a.fit")
    startup.loading(True)
    startup._forked()
    assert startup.loads("cuml")
    assert not startup.compiled("a.fit", "cuml")
    assert startup._loading_since is None
