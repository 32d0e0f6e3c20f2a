"""The packages that are compared, each in a process of its own."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from dataclasses import dataclass
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from typing import Any

from accelsk.device import probe


@dataclass(frozen=True)
class Package:
    """How one side is started.

    Attributes
    ----------
    start : tuple of str
        Arguments of Python before the module.
    classes : {"sklearn", "accelsk"}
        Where the classes are imported from.
    requires : str
        A module that has to be installed.
    on_gpu : bool or None
        True if it is of use with a GPU only, False without one only, None if always.
    """

    start: tuple[str, ...] = ()
    classes: str = "sklearn"
    requires: str = "sklearn"
    on_gpu: bool | None = None

    @property
    def usable(self) -> bool:
        if self.on_gpu is not None and self.on_gpu != (probe.gpu() is not None):
            return False
        return importlib.util.find_spec(self.requires) is not None


PACKAGES = {
    "scikit-learn": Package(),
    "scikit-learn-intelex": Package(("-m", "sklearnex"), requires="sklearnex", on_gpu=False),
    "cuml.accel": Package(("-m", "cuml.accel"), requires="cuml", on_gpu=True),
    "accelsk": Package(classes="accelsk"),
}


class CutOffError(Exception):
    """A call did not end within its time."""


class Side:
    """A process of one package, started when it is first needed, and again after a cut-off.

    Parameters
    ----------
    name : str
        A key of `PACKAGES`.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self._process: subprocess.Popen | None = None
        self._line: Connection | None = None

    def ask(self, method: str, *arguments: Any, limit: float) -> Any:
        """Call a method of `benchmarks.worker.Worker` over there and return its answer.

        Raises
        ------
        CutOffError
            If it takes more than `limit` seconds. The process is ended.
        RuntimeError
            If the call raises there, or the process ends.
        """
        if self._line is None:
            self._start()
        assert self._line is not None
        try:
            self._line.send((method, *arguments))
            answered = limit > 0 and self._line.poll(limit)
            succeeded, answer = self._line.recv() if answered else (False, None)
        except (EOFError, OSError):
            self.end(at_once=True)
            raise RuntimeError("the process ended") from None
        if not answered:
            self.end(at_once=True)
            raise CutOffError(f"{self.name}: over {limit:.0f} s")
        if not succeeded:
            raise RuntimeError(answer)
        return answer

    def _start(self) -> None:
        package = PACKAGES[self.name]
        self._line, there = Pipe()
        command = [sys.executable, *package.start, "-m", "benchmarks.worker"]
        self._process = subprocess.Popen(
            [*command, str(there.fileno()), package.classes],
            pass_fds=[there.fileno()],
            stdout=subprocess.DEVNULL,
        )
        there.close()

    def end(self, at_once: bool = False) -> None:
        """End the process, if there is one."""
        if self._process is None:
            return
        if at_once:
            self._process.kill()
        elif self._line is not None:
            self._line.send(None)
        self._process.wait()
        self._process = self._line = None
