"""The benchmark of both sides over size keeps its time and what it has; no time is asserted."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from engine import AcceleratedCentering, AcceleratedLine, engine_of

sys.path.insert(0, str(Path(__file__).parent.parent))

from benchmarks import crossover
from benchmarks.crossover import Pair, Runner, run, sizes
from benchmarks.crossover_report import Point, table, write

SIDES = {"cpu", "gpu", "auto"}


@dataclass(frozen=True)
class _Pair(Pair):
    """A pair of a class of the test-suite's."""

    cls: Any = AcceleratedLine

    def new(self) -> Any:
        return self.cls(**self.parameters)


FIT, PREDICT = _Pair("Line", "fit"), _Pair("Line", "predict")
TRANSFORM = _Pair("Centering", "transform", cls=AcceleratedCentering)


@pytest.fixture(autouse=True)
def small(monkeypatch):
    monkeypatch.setattr(crossover, "ELEMENTS", [100, 1_000])
    monkeypatch.setattr(crossover, "WIDTHS", {"narrow": 2, "wide": 10})
    monkeypatch.setattr(crossover, "_SPINNING", 0.0)
    monkeypatch.setattr(crossover, "_MOST", 5)


@pytest.fixture
def clock(monkeypatch):
    """A clock that hardly moves unless it is put forward."""
    now = [1000.0]

    def read():
        now[0] += 1e-7
        return now[0]

    monkeypatch.setattr(crossover, "perf_counter", read)
    return now


def shown(points: list[Point]) -> list[tuple[str, int, int]]:
    return [(p.pair, p.rows, p.columns) for p in points]


def test_all_pairs_are_timed_at_one_size_before_any_at_the_next():
    assert [(pair.name, rows, columns) for pair, _, rows, columns in sizes([FIT, PREDICT])] == [
        (name, rows, columns)
        for rows, columns in ((50, 2), (10, 10), (500, 2), (100, 10))
        for name in ("Line.fit", "Line.predict")
    ]


def test_each_point_has_both_sides_and_auto():
    points = run([FIT, PREDICT, TRANSFORM], 60.0, lambda points: None)
    assert len(points) == 12
    for point in points:
        assert set(point.seconds) == SIDES
        assert point.auto_went == "gpu"  # nothing is known of what it would take
        assert point.regret is not None


def test_the_file_is_whole_after_each_point(tmp_path):
    target = tmp_path / "crossover.json"
    seen = []

    def found(points):
        write(points, {"gpu": "a test"}, target)
        seen.append(json.loads(target.read_text()))

    points = run([FIT, PREDICT], 60.0, found)
    assert [len(content["points"]) for content in seen] == [*range(1, len(points) + 1)]
    assert all(content["regret"] for content in seen)
    assert [path.name for path in tmp_path.iterdir()] == ["crossover.json"]


def test_no_point_is_begun_after_the_time(clock, capsys):
    def found(points):
        clock[0] += 1.0

    points = run([FIT, PREDICT], 3.0, found)
    assert shown(points) == [("Line.fit", 50, 2), ("Line.predict", 50, 2), ("Line.fit", 10, 10)]
    assert "no time for the other 5 points" in capsys.readouterr().err
    assert run([FIT], 0.0, found) == []


def test_each_point_is_told_of_when_it_is_there(capsys):
    run([FIT], 60.0, lambda points: None)
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 4
    assert lines[0].startswith("Line.fit 50 x 2: cpu ")
    assert lines[0].endswith("(auto to the gpu)")


def test_a_pair_that_fails_costs_itself_only(capsys):
    engine_of(AcceleratedCentering).failing["transform"] = RuntimeError("no")
    points = run([TRANSFORM, FIT], 60.0, lambda points: None)
    assert {point.pair for point in points} == {"Line.fit"}
    lines = capsys.readouterr().err.splitlines()
    assert sum(line.startswith("Centering.transform") for line in lines) == 4


def test_a_side_that_would_take_too_long_is_left_out():
    runner = Runner(FIT)
    budget = crossover.Budget(60.0, 10)
    runner._before["cpu", "narrow"] = 100.0, 100  # seconds, elements
    point = runner.point("narrow", 500, 2, budget)
    assert point is not None
    assert point.skipped == ("cpu",)
    assert set(point.seconds) == {"gpu", "auto"}
    runner._before["gpu", "narrow"] = 100.0, 100
    assert runner.point("narrow", 500, 2, budget) is None


def test_time_is_shared_among_the_points_that_are_left(clock):
    budget = crossover.Budget(10.0, 100)
    assert budget.for_point == pytest.approx(0.05, rel=1e-3)
    for _ in range(90):
        budget.used()
    assert budget.for_point == pytest.approx(0.5, rel=1e-3)
    clock[0] += 10.0
    assert budget.left <= 0


def test_the_table_tells_how_often_auto_was_right():
    def point(went, **seconds):
        return Point("a.fit", "narrow", 10, 10, seconds, went)

    points = [
        point("cpu", cpu=1.0, gpu=2.0, auto=1.0),
        point("gpu", cpu=1.0, gpu=2.0, auto=2.0),
    ]
    lines = [*table(points)]
    assert lines[0] == "2 points, 2 of them with a regret"
    assert "within 1.50 of the better: 50.0%, by the choice 50.0%" in "\n".join(lines)


def test_the_pairs_are_classes_of_accelsk():
    for pair in crossover.PAIRS:
        assert hasattr(pair.new(), pair.method), pair.name
    assert len({pair.name for pair in crossover.PAIRS}) >= 20
