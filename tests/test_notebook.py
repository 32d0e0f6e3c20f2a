"""A notebook that is executed by a real kernel: what each cell shows there."""

from __future__ import annotations

import json
import os
import re
import sys
from pathlib import Path

import pytest
from test_profile import html_text

nbformat = pytest.importorskip("nbformat")
nbclient = pytest.importorskip("nbclient")
pytest.importorskip("ipykernel")

ROOT = Path(__file__).parent.parent

CELLS = {
    "load": "%load_ext accelsk",
    "import": """\
import numpy as np
from sklearn.linear_model import Ridge
X = np.random.default_rng(0).normal(size=(100, 3))
y = X.sum(axis=1)
Ridge.__module__""",
    "set device": "%accelsk.device cpu",
    "device": "%accelsk.device",
    "profile": "%%accelsk.profile\n%%time\nmodel = Ridge().fit(X, y)\nmodel.coef_.shape",
    "lines": """\
%%accelsk.line_profile
for _ in range(2):
    model = Ridge(
        alpha=2.0,
    ).fit(X, y)
text = "<b>"
model.n_features_in_""",
    "with": """\
import accelsk
with accelsk.profile() as results, accelsk.line_profile():
    model.predict(X)""",
    "value": "results",
    "quiet": "%%accelsk.profile\nmodel.predict(X);",
    "error": "%%accelsk.profile\nmodel.predict(X)\nmodel.coef_[10]",
    "await": "%%accelsk.profile\nimport asyncio\nawait asyncio.sleep(0.001)",
    "await in a block": """\
import asyncio
with accelsk.profile():
    await asyncio.sleep(0.001, model.predict(X));""",
    "workers": """\
from joblib import Parallel, delayed
with accelsk.profile(quiet=True) as results:
    Parallel(n_jobs=2)(delayed(Ridge().fit)(X, y) for _ in range(4))
results.method_calls["Ridge.fit"].worker_calls""",
    "unload": "%unload_ext accelsk\nfrom sklearn.linear_model import Ridge\nRidge.__module__",
}


@pytest.fixture(scope="module")
def outputs(tmp_path_factory):
    """The outputs of each cell."""
    folder = tmp_path_factory.mktemp("jupyter")
    kernel = folder / "kernels" / "accelsk-test"
    kernel.mkdir(parents=True)
    command = [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"]
    spec = {"argv": command, "display_name": "test", "language": "python"}
    (kernel / "kernel.json").write_text(json.dumps(spec))
    notebook = nbformat.v4.new_notebook()
    notebook.cells = [nbformat.v4.new_code_cell(cell) for cell in CELLS.values()]
    environment = {
        "JUPYTER_PATH": str(folder),
        "IPYTHONDIR": str(folder / "ipython"),
        "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]),
    }
    with pytest.MonkeyPatch.context() as patch:
        for name, value in environment.items():
            patch.setenv(name, value)
        client = nbclient.NotebookClient(
            notebook, timeout=180, kernel_name="accelsk-test", allow_errors=True
        )
        client.execute()
    nbformat.validate(notebook)
    return dict(zip(CELLS, [cell.outputs for cell in notebook.cells], strict=True))


def _of(outputs, kind):
    return [output for output in outputs if output.output_type == kind]


def _value(outputs):
    (result,) = _of(outputs, "execute_result")
    return result["data"]["text/plain"]


def _printed(outputs):
    return "".join(output["text"] for output in _of(outputs, "stream") if output.name == "stdout")


def _shown(outputs):
    return [html_text(o["data"]["text/html"]) for o in _of(outputs, "display_data")]


def test_only_the_cell_with_an_error_fails(outputs):
    assert [name for name, cell in outputs.items() if _of(cell, "error")] == ["error"]


def test_extension_patches_and_unpatches(outputs):
    assert outputs["load"] == []
    assert _value(outputs["import"]) == "'accelsk.linear_model'"
    assert _value(outputs["unload"]).startswith("'sklearn.linear_model")


def test_device_stays_for_later_cells(outputs):
    assert _printed(outputs["device"]) == "cpu\n"


def test_profile_of_a_cell(outputs):
    cell = outputs["profile"]
    assert _value(cell) == "(3,)"
    assert "Wall time" in _printed(cell)
    (report,) = _shown(cell)
    assert "Ridge.fit" in report
    assert "device='cpu' is set" in report
    assert [output.output_type for output in cell][-1] == "display_data"


def test_profile_as_text_is_there_too(outputs):
    (report,) = _of(outputs["profile"], "display_data")
    assert "│ Ridge.fit" in report["data"]["text/plain"]


def test_line_profile_of_a_cell(outputs):
    cell = outputs["lines"]
    assert _value(cell) == "3"
    (report,) = _shown(cell)
    assert "for _ in range(2):" in report
    assert 'text = "<b>"' in report
    assert "line 2: Ridge.fit: device='cpu' is set (2x)" in report
    assert re.search(r"Watching \d+ lines took", report)


def test_with_blocks_show_html(outputs):
    lines, profile = _shown(outputs["with"])
    assert "model.predict(X)" in lines
    assert "Ridge.predict" in profile
    assert _printed(outputs["with"]) == ""


def test_value_of_a_cell_is_a_table(outputs):
    (result,) = _of(outputs["value"], "execute_result")
    assert "Ridge.predict" in html_text(result["data"]["text/html"])


def test_semicolon_shows_the_report_alone(outputs):
    assert _of(outputs["quiet"], "execute_result") == []
    assert len(_shown(outputs["quiet"])) == 1


def test_error_shows_the_cell_and_no_machinery(outputs):
    (error,) = _of(outputs["error"], "error")
    assert error.ename == "IndexError"
    text = re.sub(r"\x1b\[[0-9;]*m", "", "\n".join(error.traceback))
    assert "2 model.coef_[10]" in text
    assert len(set(re.findall(r"In\s?\[(\d+)\]", text))) == 1
    assert "accelsk/ipython.py" not in text
    assert len(_shown(outputs["error"])) == 1


def test_await_is_for_a_with_block(outputs):
    (advice,) = _of(outputs["await"], "stream")
    assert "write `with accelsk.profile():` in the cell instead" in advice.text
    assert "Ridge.predict" in _shown(outputs["await in a block"])[0]


def test_calls_of_workers_are_seen(outputs):
    assert _value(outputs["workers"]) == "4"
