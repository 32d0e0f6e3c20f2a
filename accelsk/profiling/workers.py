"""How the calls of worker processes come into the profiles of the process that they work for.

A process with a profile keeps a folder that is named after the process. Any process below it
finds the folder by the name of its ancestor, be it that it was started before the profile, as
joblib's workers often are, and appends each of its calls to a file of its own there. The
ancestor reads the files and removes the folder. Nothing is handed over through the environment
or in a pickle. A process without an ancestor that runs Python looks for nothing; another looks
whether a path exists, at each call.

The folders lie in one that nobody else can write to. What a process that was killed has left
there is removed by the next profile.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import shutil
import stat
import sys
import tempfile
from collections.abc import Iterator
from typing import Any, NamedTuple

__all__ = ["Process", "Spool", "append", "upstream"]

logger = logging.getLogger("accelsk")


class Process(NamedTuple):
    """A worker process.

    Attributes
    ----------
    pid : int
    name : str
        As `multiprocessing` names it, such as ``"LokyProcess-1"``.
    """

    pid: int
    name: str


def _folder() -> str:
    """Return the folder of all processes of the user; in memory where there is such a place."""
    memory = os.path.isdir("/dev/shm") and os.access("/dev/shm", os.W_OK)
    place = "/dev/shm" if memory else tempfile.gettempdir()
    return os.path.join(place, f"accelsk-profiles-{os.getuid()}")


def _is_ours(folder: str) -> bool:
    """Whether `folder` is one that nobody else can write to."""
    try:
        found = os.lstat(folder)
    except OSError:
        return False
    private = not found.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid() and private


def _status(pid: int) -> list[str]:
    """Return the fields of a process from its state on; raises OSError where there is none."""
    with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as file:
        return file.read().rpartition(")")[2].split()


def _key(pid: int) -> str:
    """Return the name of the folder of a process: no later process with the same pid has it."""
    try:
        return f"{pid}-{_status(pid)[19]}"
    except OSError:  # a platform without /proc, or no such process
        return f"{pid}-0"


def _ancestors() -> Iterator[int]:
    """Yield the processes above this one that run the same Python."""
    pid = os.getppid()
    try:
        python = os.stat("/proc/self/exe")
    except OSError:
        yield pid
        return
    while pid > 1:
        try:
            same = os.path.samestat(python, os.stat(f"/proc/{pid}/exe"))
        except PermissionError:
            same = False
        except OSError:
            return
        if same:
            yield pid
        pid = int(_status(pid)[1])


def upstream() -> tuple[str, ...]:
    """Return where folders of ancestors of this process would be, whether they are there or not."""
    try:
        folder = _folder()
        return tuple(os.path.join(folder, _key(pid)) for pid in _ancestors())
    except OSError:
        return ()


def append(folder: str, record: dict[str, Any]) -> None:
    """Append a call to the file of this process in the folder of an ancestor.

    One system call writes it, so that a process that is killed leaves no half of a line, and
    threads do not mix theirs.
    """
    if not _is_ours(os.path.dirname(folder)):
        return
    multiprocessing: Any = sys.modules.get("multiprocessing")
    name = multiprocessing.current_process().name if multiprocessing else "process"
    line = json.dumps([name, record], separators=(",", ":")) + "\n"
    path = os.path.join(folder, f"{os.getpid()}.jsonl")
    try:
        file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError:  # the profile has ended
        return
    try:
        os.write(file, line.encode())
    except OSError as error:
        logger.debug("a call could not be told to the parent process", exc_info=error)
    finally:
        os.close(file)


class Spool:
    """The folder of this process."""

    def __init__(self) -> None:
        self._path: str | None = None
        self._read: dict[str, int] = {}

    def open(self) -> None:
        """Make the folder, for processes below this one to find."""
        folder = _folder()
        path = os.path.join(folder, _key(os.getpid()))
        try:
            try:
                _make(folder, path)
            except FileNotFoundError:  # another process has just removed the empty folder
                _make(folder, path)
        except OSError as error:
            logger.debug("profiles see no worker processes", exc_info=error)
            return
        self._path, self._read = path, {}

    def take(self) -> list[tuple[Process, dict[str, Any]]]:
        """Return the calls that have come in since the last time."""
        if self._path is None:
            return []
        calls = []
        for name in sorted(_listed(self._path)):
            try:
                with open(os.path.join(self._path, name), "rb") as file:
                    file.seek(self._read.get(name, 0))
                    text = file.read()
            except OSError:
                continue
            complete = text[: text.rfind(b"\n") + 1]
            self._read[name] = self._read.get(name, 0) + len(complete)
            for line in complete.splitlines():
                try:
                    process, record = json.loads(line)
                except ValueError:  # there was no room for the end of a line
                    continue
                calls.append((Process(int(name.partition(".")[0]), process), record))
        return sorted(calls, key=lambda call: call[1]["start"])

    def close(self) -> None:
        """Remove the folder."""
        if self._path is not None:
            shutil.rmtree(self._path, ignore_errors=True)
            with contextlib.suppress(OSError):  # other processes have folders there
                os.rmdir(os.path.dirname(self._path))
            self._path = None

    def forget(self) -> None:
        """Leave the folder to the process that this one was forked from."""
        self._path = None


def _make(folder: str, path: str) -> None:
    os.makedirs(folder, 0o700, exist_ok=True)
    if not _is_ours(folder):
        raise PermissionError(f"others can write to {folder}")
    _sweep(folder)
    os.mkdir(path, 0o700)


def _listed(folder: str) -> list[str]:
    try:
        return os.listdir(folder)
    except OSError:
        return []


def _sweep(folder: str) -> None:
    """Remove what processes have left that did not end by themselves."""
    for name in _listed(folder):
        pid = name.partition("-")[0]
        if pid.isdigit() and int(pid) != os.getpid() and not _lives(int(pid), name):
            shutil.rmtree(os.path.join(folder, name), ignore_errors=True)


def _lives(pid: int, key: str) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:  # somebody else's now
        return False
    return _key(pid) == key
