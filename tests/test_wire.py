"""The benchmark of the wire runs on tiny data, and tells how calls and errors compare."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

pytest.importorskip("tabulate")
sys.path.insert(0, str(Path(__file__).parent.parent))

from benchmarks import wire
from benchmarks.wire_report import tables


@pytest.fixture
def tiny(monkeypatch):
    small = {"float32": "float32", "float64": "float64"}
    makers = {name: wire._regression(60, 20, dtype) for name, dtype in small.items()}
    others = {name: wire._classes(60, 5, 2) for name in wire.DATA if name not in small}
    monkeypatch.setattr(wire, "DATA", {**makers, **others})


def test_each_case_is_measured_and_compared(tiny, tmp_path, monkeypatch):
    cases = [case for case in wire.CASES if "forest" not in case.path.lower()]
    monkeypatch.setattr(wire, "CASES", cases)
    rows = [*wire.measure("scikit-learn", tmp_path)]
    assert {row["case"] for row in rows} == {case.name for case in cases}
    assert all(row["seconds"] > 0 for row in rows)
    ours = [{**row, "side": "accelsk", "seconds": row["seconds"] / 4} for row in rows]
    wires = [
        {"side": "accelsk", "case": case, "data": "float32, C", "method": "upload", "bytes": 4}
        | {"seconds": seconds}
        for case, seconds in (("pinned copy", 1.0), ("staged", 1.25))
    ]
    shown = tables([*ours, *rows, *wires], wire.compare(tmp_path), wire.SIDES)
    staged = next(line for line in shown.splitlines() if "staged" in line)
    assert staged.split()[-2:] == ["1.25", "1.40"]
    ridge = next(line for line in shown.splitlines() if line.startswith("Ridge()"))
    assert ridge.split()[-1] == "4.00"


def test_errors_are_those_of_float32_beside_float64(tmp_path):
    wire.exactness("scikit-learn", "sklearn", tmp_path)
    rows = wire.compare(tmp_path)
    assert {(row["side"], row["data"]) for row in rows} == {("scikit-learn", "float32")}
    assert {row["attribute"] for row in rows} >= {"linear_model.Ridge coef_"}


def test_what_is_not_done_in_time_is_left_out(tmp_path, capsys):
    assert wire.run("scikit-learn", tmp_path, 0.01) == []
    assert "stopped" in capsys.readouterr().err
