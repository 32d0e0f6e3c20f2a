"""Forked children and threads that start as one; nothing here waits for ever."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

__all__ = ["held_elsewhere", "in_fork", "together"]

#: Seconds after which what hangs has failed.
PATIENCE = 30.0


def in_fork(function: Callable[[], Any]) -> str:
    """Return the `repr` of what `function` returns in a forked child, or the text of its error."""
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            answer = repr(function())
        except BaseException as error:
            answer = f"{type(error).__name__}: {error}"
        os.write(write, answer.encode())
        os._exit(0)
    os.close(write)
    with os.fdopen(read) as pipe:
        if not select.select([pipe], [], [], PATIENCE)[0]:
            os.kill(pid, signal.SIGKILL)
        answer = pipe.read()
    os.waitpid(pid, 0)
    return answer or "the child hung or died"


def together(function: Callable[[int], Any], n: int = 16) -> list[Any]:
    """Return what `function` returns in `n` threads that start as one."""
    barrier = threading.Barrier(n)

    def work(i: int) -> Any:
        barrier.wait(PATIENCE)
        return function(i)

    pool = ThreadPoolExecutor(n)
    try:
        futures = [pool.submit(work, i) for i in range(n)]
        return [future.result(PATIENCE) for future in futures]
    finally:
        pool.shutdown(wait=False)


@contextlib.contextmanager
def held_elsewhere(*locks: Any) -> Iterator[None]:
    """Have another thread hold locks."""
    held, go_on = threading.Event(), threading.Event()

    def hold() -> None:
        with contextlib.ExitStack() as stack:
            for lock in locks:
                stack.enter_context(lock)
            held.set()
            go_on.wait(PATIENCE)

    thread = threading.Thread(target=hold)
    thread.start()
    assert held.wait(PATIENCE)
    try:
        yield
    finally:
        go_on.set()
        thread.join(PATIENCE)
