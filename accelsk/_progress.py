"""How far long work has come."""

from __future__ import annotations

from time import perf_counter
from typing import TextIO

#: Where there is no terminal, a line every so many seconds.
_LINE = 5.0


class Progress:
    """A bar on a terminal, now and then a line elsewhere.

    Parameters
    ----------
    total : int
        How many pieces of work there are.
    unit : str
        What they are called, in the plural.
    stream : file-like
        Where progress is shown.
    """

    def __init__(self, total: int, unit: str, stream: TextIO) -> None:
        self._total = total
        self._unit = unit
        self._stream = stream
        self._bar = stream.isatty()
        self._start = perf_counter()
        self._printed: int | None = None

    def show(self, done: int, what: str) -> None:
        """Say that so many pieces are done, and which is next."""
        spent = perf_counter() - self._start
        if self._bar:
            full = 30 * done // self._total
            bar = "#" * full + "." * (30 - full)
            self._stream.write(f"\r[{bar}] {done}/{self._total} {spent:4.0f} s  {what:<42.42}")
            self._stream.flush()
        elif (done % 10 == 0 or done == self._total) and done != self._printed:
            self._printed = done
            line = f"{done} of {self._total} {self._unit}, {spent:.0f} s"
            print(line, file=self._stream, flush=True)

    def end(self) -> None:
        """Clear the bar."""
        if self._bar:
            self._stream.write("\r" + " " * 96 + "\r")
            self._stream.flush()


class TimeBar:
    """What work does that has a time to keep: a bar on a terminal, now and then a line elsewhere.

    Parameters
    ----------
    seconds : float
        The time.
    stream : file-like
        Where it is shown.

    Attributes
    ----------
    what : str
        What is being done.
    """

    def __init__(self, seconds: float, stream: TextIO) -> None:
        self._seconds = seconds
        self._stream = stream
        self._bar = stream.isatty()
        self._start = perf_counter()
        self._next = 0.0
        self.what = "the work"

    def show(self, what: str) -> None:
        """Say what is next."""
        self.what = what
        spent = perf_counter() - self._start
        if self._bar:
            full = min(int(30 * spent / self._seconds), 30) if self._seconds > 0 else 30
            bar = "#" * full + "." * (30 - full)
            self._stream.write(f"\r[{bar}] {spent:4.0f} of {self._seconds:.0f} s  {what:<42.42}")
            self._stream.flush()
        elif spent >= self._next:
            self._next = spent + _LINE
            print(f"{spent:.0f} of {self._seconds:.0f} s: {what}", file=self._stream, flush=True)

    def end(self) -> None:
        """Clear the bar."""
        if self._bar:
            self._stream.write("\r" + " " * 96 + "\r")
            self._stream.flush()
