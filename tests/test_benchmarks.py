"""The benchmark suite runs, tells who was too slow, and compares results; no time is asserted."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("tabulate")
sys.path.insert(0, str(Path(__file__).parent.parent))

from benchmarks import checks, data, report, suite
from benchmarks.__main__ import chosen, main
from benchmarks.operations import OPERATIONS, SHAPE_NAMES, Operation
from benchmarks.sides import PACKAGES, CutOffError, Side

TINY = ((60, 3),) * 5


@pytest.fixture
def side():
    sides = []

    def start(name):
        sides.append(Side(name))
        return sides[-1]

    yield start
    for each in sides:
        each.end()


def tiny(path, method, kind, check, **others):
    return Operation(path, method, TINY, kind, check, **others)


def test_every_operation_has_a_shape_of_each_name_and_known_data():
    assert len({op.name for op in OPERATIONS}) == len(OPERATIONS)
    for operation in OPERATIONS:
        assert len(operation.shapes) == len(SHAPE_NAMES)
        assert operation.data in data.MAKERS
        assert operation.check in checks.CHECKS
        assert min(operation.shapes[4]) > 1


@pytest.mark.parametrize("kind", data.MAKERS)
def test_data_is_float32_and_the_same_each_time(kind):
    X, y = data.MAKERS[kind](70, 5)
    again, _ = data.MAKERS[kind](70, 5)
    assert X.dtype == np.float32
    assert X.shape == (70, 5)
    assert len(y) == 70
    np.testing.assert_array_equal(X, again)


def test_sides_take_turns_and_agree(side):
    operations = [
        tiny("sklearn.linear_model.Ridge", "fit", "regression", "values"),
        tiny(
            "sklearn.cluster.KMeans",
            "predict",
            "blobs",
            "clusters",
            parameters={"random_state": 0},
            fitted_on=50,
        ),
    ]
    sides = [side("scikit-learn"), side("accelsk")]
    cases = list(suite.run(operations, ["small"], sides, budget=100))
    assert [rows[0]["operation"] for rows in cases] == ["Ridge.fit", "KMeans.predict"]
    for rows in cases:
        assert [row["side"] for row in rows] == ["scikit-learn", "accelsk"]
        assert all(row["seconds"] > 0 and row["host_bytes"] >= 0 for row in rows)
        assert rows[1]["compared_with"] == "scikit-learn"
        assert rows[1]["difference"] == pytest.approx(0, abs=1e-6)


def test_side_that_takes_too_long_is_cut_off_and_not_asked_for_more(side):
    operation = Operation(
        "sklearn.manifold.TSNE",
        "fit_transform",
        ((4000, 3), (60, 2), (60, 2), (60, 2), (5000, 3)),
        "blobs",
        "embedding",
        {"max_iter": 100_000, "n_iter_without_progress": 100_000, "min_grad_norm": 0},
    )
    cases = list(suite.run([operation], ["small", "large"], [side("scikit-learn")], budget=4))
    assert "over 4 s" in cases[0][0]["cut_off"]
    assert cases[1][0]["cut_off"] == "at a smaller shape"


def test_side_goes_on_after_an_error_and_after_a_cut_off(side):
    there = side("scikit-learn")
    with pytest.raises(RuntimeError, match="AttributeError"):
        there.ask("call", limit=60)
    with pytest.raises(CutOffError):
        there.ask("call", limit=-1)
    with pytest.raises(RuntimeError, match="AttributeError"):
        there.ask("call", limit=60)


def test_process_that_ends_is_told(side, monkeypatch):
    monkeypatch.setitem(PACKAGES, "gone", type(PACKAGES["scikit-learn"])(("-c", "0", "--")))
    with pytest.raises(RuntimeError, match="the process ended"):
        side("gone").ask("call", limit=60)


@pytest.mark.parametrize(
    ("name", "mine", "expected"),
    [
        ("values", [[1.0, 2.0], [3.0, 5.0]], 0.338),
        ("labels", [[1, 2], [3, 5]], 0.25),
        ("score", [[1, 2], [3, 5]], 0.25),
        ("components", [[-1.0, 2.0], [-3.0, 4.0]], 0.0),
    ],
)
def test_checks_measure_differences(name, mine, expected):
    theirs = np.array([[1, 2], [3, 4]], dtype=np.asarray(mine).dtype)
    expected = 0.5 / theirs.std() if name == "values" else expected
    assert checks.CHECKS[name](np.array(mine), theirs, theirs) == pytest.approx(expected)


def test_clusters_and_embeddings_are_compared_whatever_they_are_called():
    X, y = data.blobs(200, 4)
    assert checks.clusters((y + 1) % 8, y, X) == pytest.approx(0)
    assert checks.embedding(X[:, ::-1], X, X) == pytest.approx(0)
    worse = np.random.default_rng(0).normal(size=(200, 2))
    assert checks.embedding(worse, X, X) > 0.2


def rows(**seconds):
    head = {"operation": "Ridge.fit", "shape": "small", "rows": 10, "columns": 2}
    return [
        {**head, "side": side, **({"cut_off": "over 1 s"} if s is None else {"seconds": s})}
        for side, s in seconds.items()
    ]


def test_report_tells_ratios_cut_offs_and_what_is_slower(tmp_path):
    pytest.importorskip("matplotlib")
    found = rows(**{"scikit-learn": 2.0, "cuml.accel": None, "accelsk": 4.0})
    text = report.markdown(found)
    assert "cut off" in text
    assert "0.5" in text
    assert "0.50 Ridge.fit, small" in report.summary(found)
    assert "cuml.accel (0 cases)" in report.summary(found)
    assert "2" in report.changes(rows(accelsk=4.0), rows(accelsk=2.0)).splitlines()[-1]
    report.plot(found, tmp_path / "picture.png")
    assert (tmp_path / "picture.png").stat().st_size > 1000


def test_command_lists_runs_compares_and_draws(tmp_path, capsys):
    pytest.importorskip("matplotlib")
    results = tmp_path / "results.json"
    main(["list"])
    assert "StandardScaler.fit_transform" in capsys.readouterr().out
    command = [sys.executable, "-m", "benchmarks", "run", str(results), "--shapes", "small"]
    done = subprocess.run(
        [*command, "--operations", "DBSCAN", "--sides", "scikit-learn", "accelsk"],
        cwd=Path(__file__).parent.parent,
        capture_output=True,
        text=True,
        timeout=200,
    )
    assert "DBSCAN.fit_predict" in done.stdout, done.stderr
    assert "1 of 1 cases" in done.stderr
    stored = json.loads(results.read_text())
    assert stored["machine"]["versions"]["scikit-learn"]
    assert {row["side"] for row in stored["results"]} == {"scikit-learn", "accelsk"}
    main(["compare", str(results), str(results)])
    main(["plot", str(results), str(tmp_path / "picture.png")])
    assert (tmp_path / "picture.png").exists()


def test_operations_are_chosen_by_the_beginning_of_their_names():
    assert {op.name for op in chosen(["Ridge", "PCA.t"])} == {
        "Ridge.fit",
        "Ridge.predict",
        "PCA.transform",
    }
