"""What accelsk logs, and that it says no more than it should."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent

WORK = """
import accelsk
from accelsk.linear_model import Ridge
Ridge().fit([[0.0], [1.0]], [0.0, 1.0])
"""


def _run(code):
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": str(ROOT), "CUDA_VISIBLE_DEVICES": ""},
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    assert done.stdout == ""
    return done.stderr.splitlines()


def test_only_warnings_are_shown_unless_logging_is_set_up():
    (line,) = _run(WORK)
    assert line.startswith("No GPU is used")


def test_programs_may_set_up_logging_before_or_after():
    set_up = "import logging; logging.basicConfig(format='%(name)s %(message)s', level='INFO')\n"
    for code in (set_up + WORK, WORK.replace("Ridge()", set_up + "Ridge()")):
        lines = _run(code)
        assert lines[0].startswith("accelsk No GPU is used")
        assert lines[1].startswith("accelsk Ridge.fit ran in scikit-learn")
        assert len(lines) == 2


def test_handler_of_the_programs_own_is_enough():
    code = """
import logging
logging.getLogger("accelsk").addHandler(logging.NullHandler())
"""
    assert _run(code + WORK) == []


def test_level_can_be_chosen_with_install():
    lines = _run(WORK.replace("Ridge()", "accelsk.install(log_level='info')\nRidge()"))
    assert [line.partition("]")[0] for line in lines] == ["[accelsk"] * 2
    assert "Ridge.fit ran in scikit-learn" in lines[1]


def test_reasons_and_times_are_for_debugging(caplog):
    from accelsk.linear_model import Ridge

    with caplog.at_level(logging.DEBUG, "accelsk"):
        Ridge(positive=True).fit([[0.0], [1.0]], [0.0, 1.0])
    levels = {record.levelname: record.getMessage() for record in caplog.records}
    assert levels["INFO"] == "Ridge.fit ran in scikit-learn"
    assert "positive=True" in levels["DEBUG"] or "not installed" in levels["DEBUG"]


@pytest.mark.parametrize("propagate", [True, False])
def test_who_handles_is_told(propagate, monkeypatch):
    from accelsk import _log

    logger = logging.Logger("accelsk")
    root = logging.Logger("root")
    logger.parent, logger.propagate = root, propagate
    monkeypatch.setattr(logging, "getLogger", lambda name=None: logger)
    logger.addHandler(_log.WarningsOnly())
    assert not _log.handled()
    root.addHandler(logging.StreamHandler())
    assert _log.handled() is propagate
