"""Loading and compiling ahead of the first call: ``python -m accelsk warmup``."""

from __future__ import annotations

import argparse
import atexit
import logging
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from time import perf_counter
from typing import Any

from accelsk import dispatch
from accelsk.costs import samples, startup
from accelsk.costs.decision import name_of
from accelsk.costs.machine import cores
from accelsk.costs.work import ALIASES
from accelsk.device import memory, probe
from accelsk.dispatch import Method, method_of, plan
from accelsk.engines.cuml import broken, import_cuml
from accelsk.engines.on_device import import_cupy
from accelsk.estimator import SLOT
from accelsk.exceptions import Refusal
from accelsk.registry import accelerated_classes

__all__ = [
    "compile_in_processes",
    "compile_kernels",
    "get_ready",
    "imported",
    "in_background",
    "main",
    "use_device",
]

logger = logging.getLogger("accelsk")

#: Data as small as every class takes.
_ROWS, _COLUMNS = 200, 8

#: The seconds after which a process that compiles is waited for no more.
_PATIENCE = 300.0

#: The most processes to compile in: each loads the libraries first.
_PROCESSES = 6


def use_device() -> None:
    """Have the CUDA context and the handles of the libraries behind CuPy made."""
    import cupy

    X = cupy.eye(8)
    cupy.linalg.eigh(X @ X)
    cupy.cuda.Device().synchronize()


def compile_kernels(
    classes: Sequence[Any],
    *,
    stop: Callable[[], bool] = lambda: False,
) -> dict[str, str]:
    """Run the methods of accelerated classes once, on small data made for the purpose.

    No event is reported, no warning given, no global random state touched.

    Parameters
    ----------
    classes : sequence of type
    stop : callable
        Asked between two calls whether to leave the rest.

    Returns
    -------
    failures : dict
        What did not run, and why.
    """
    failures: dict[str, str] = {}
    for cls in classes:
        names = [name for engine in cls._accelsk_engines for name in engine.methods]
        names = sorted({ALIASES.get(n, n) for n in names}, key=lambda n: not n.startswith("fit"))
        data = samples.sample(cls, _ROWS, _COLUMNS)
        model = samples.new(cls)
        for name in names:
            if stop():
                return failures
            if not hasattr(model, name) or (method := method_of(cls, name)) is None:
                continue
            try:
                _run(model, method, data)
            except Exception as error:
                failures[method.qualname] = f"{type(error).__name__}: {error}"
    return failures


def imported() -> list[Any]:
    """Return the accelerated classes of accelsk's own that have been imported."""
    return [cls for cls in accelerated_classes().values() if name_of(cls) is not None]


def get_ready(
    *, disable_uvm: bool, stop: Callable[[], bool] = lambda: False, seconds: float | None = None
) -> None:
    """Load the libraries of the engines and compile what the classes imported so far run.

    Parameters
    ----------
    disable_uvm : bool
    stop : callable
        Asked between two steps whether to leave the rest.
    seconds : float, default=None
        After so long nothing more is compiled.
    """
    start = perf_counter()
    for name, step in {"cupy": import_cupy, "cuml": import_cuml, "": use_device}.items():
        if stop() or probe.unusable() is not None:
            return
        try:
            step()
        except Refusal:  # whoever raised it has logged why
            continue
        except Exception as error:  # the first call will tell
            logger.debug("the device could not be used", exc_info=error)
            continue
        if name:
            startup.mark(name)
    if probe.unusable() is not None or stop():
        return
    if not disable_uvm and broken() is None:
        try:
            memory.enable_managed_memory()
        except Exception as error:
            logger.warning("No managed memory: %s: %s", type(error).__name__, error)
    until = perf_counter() + (seconds or 0.0)
    over = (lambda: stop() or perf_counter() > until) if seconds else stop
    for call, reason in compile_kernels(imported(), stop=over).items():
        logger.debug("%s was not compiled: %s", call, reason)
    logger.info("The GPU is ready after %.1f s: %s", perf_counter() - start, probe.gpu())


class _Gate:
    """Lets a process fork only between two steps of a thread.

    A child has no such thread: what it was importing would stay half imported there, and locks
    that libraries held would stay locked.
    """

    #: A step that takes longer is waited for no more.
    patience = 30.0

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._forking = False
        self._worker: int | None = None

    def open(self) -> None:
        """Wait while a fork is under way, then begin a step."""
        with self._changed:
            self._changed.wait_for(lambda: not self._forking)
            self._worker = threading.get_ident()

    def close(self) -> None:
        """End a step."""
        with self._changed:
            self._worker = None
            self._changed.notify_all()

    def before_fork(self) -> None:
        with self._changed:
            if self._worker == threading.get_ident():  # what it imports may well fork
                return
            self._forking = True
            self._changed.wait_for(lambda: self._worker is None, self.patience)

    def after_fork(self) -> None:
        with self._changed:
            self._forking = False
            self._changed.notify_all()


_gate = _Gate()


def _renew_gate() -> None:
    global _gate
    _gate = _Gate()


os.register_at_fork(
    before=lambda: _gate.before_fork(),
    after_in_parent=lambda: _gate.after_fork(),
    after_in_child=_renew_gate,
)


def in_background(*, disable_uvm: bool) -> threading.Thread:
    """Start `get_ready` in a thread that does not keep the interpreter, and return the thread."""
    ending = threading.Event()
    gate = _gate

    def between_steps() -> bool:
        gate.close()
        gate.open()
        return ending.is_set()

    def work() -> None:
        startup.loading(True)
        gate.open()
        try:
            get_ready(disable_uvm=disable_uvm, stop=between_steps)
        except BaseException as error:
            logger.warning("The GPU could not be got ready: %s: %s", type(error).__name__, error)
        finally:
            gate.close()
            startup.loading(False)

    thread = threading.Thread(target=work, name="accelsk-install", daemon=True)

    def end() -> None:
        # Python would end the thread in the middle of C++ code, which may end the process; an
        # import that is under way fails once the interpreter is being taken apart
        ending.set()
        if thread.is_alive():
            thread.join()

    # before `atexit`: from then on no library can start threads of its own
    getattr(threading, "_register_atexit", atexit.register)(end)
    thread.start()
    return thread


def _run(model: Any, method: Method, data: samples.Sample) -> None:
    """Run a method on the engine that would run it."""
    fits = method.name.startswith("fit")
    if not fits and not vars(model).get(SLOT) and not hasattr(model, "n_features_in_"):
        # no engine fits this class
        super(type(model), model).fit(**(samples.arguments(model, "fit", data) or {}))
    given = samples.arguments(model, method.name, data)
    if given is None:
        return
    chosen = plan(model, method, (), given, assume_usable=True)
    if chosen.engine is None or chosen.call is None:
        return
    outcome = chosen.engine.run(chosen.call, None if fits else model._accelsk_model(chosen.engine))
    if fits:
        attributes = {**dispatch._input_attributes(chosen.call), **outcome.attributes}
        model._accelsk_adopt(chosen.engine, outcome.model, attributes)
    startup.mark(chosen.engine.name, f"{name_of(method.owner)}.{method.name}")


def compile_part(part: int, parts: int) -> None:
    """Compile every class whose turn it is among `parts` processes."""
    from accelsk.support import import_accelerated

    import_accelerated()
    compile_kernels(imported()[part::parts])


def compile_in_processes(seconds: float) -> int:
    """Have processes of their own compile what all classes run, for others to find on disk.

    Parameters
    ----------
    seconds : float
        After so long those that are still at it are ended.

    Returns
    -------
    n_ended : int
        How many of them compiled all that they had to.
    """
    parts = min(_PROCESSES, max(1, cores() // 2))
    deadline = perf_counter() + seconds
    processes: list[subprocess.Popen] = []
    try:
        for part in range(parts):
            code = f"from accelsk import warmup; warmup.compile_part({part}, {parts})"
            processes.append(
                subprocess.Popen(
                    [sys.executable, "-W", "ignore", "-c", code],
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                )
            )
        for process in processes:
            with suppress(subprocess.TimeoutExpired):
                process.wait(max(deadline - perf_counter(), 0.0))
    finally:
        for process in processes:
            process.kill()
            process.wait()
    return sum(process.returncode == 0 for process in processes)


def main(argv: Sequence[str] | None = None) -> int:
    """Run ``python -m accelsk warmup`` with the arguments `argv`; return the exit status.

    CuPy keeps what it compiles on disk, so that later processes find it there.
    """
    parser = argparse.ArgumentParser(
        "python -m accelsk warmup",
        description="Compile what the classes run on the GPU, for later processes to find.",
    )
    parser.parse_args(argv)
    from accelsk.runtime import install
    from accelsk.support import import_accelerated

    if (reason := probe.unusable()) is not None:
        print(f"There is nothing to warm up: {reason}", file=sys.stderr)
        return 1
    start = perf_counter()
    compile_in_processes(_PATIENCE)
    install()
    import_accelerated()
    for call, reason in compile_kernels(imported()).items():
        logger.debug("%s was not compiled: %s", call, reason)
    print(f"{len(imported())} classes are ready after {perf_counter() - start:.0f} s")
    return 0
