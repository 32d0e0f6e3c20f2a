"""Device memory: managed memory, what counts as running out, and what is done about it."""

from __future__ import annotations

import gc
import logging
import sys
import traceback
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from accelsk._locks import Lock
from accelsk.profiling.events import note

__all__ = [
    "enable_managed_memory",
    "free_pools",
    "gives_back",
    "is_full",
    "is_out_of_memory",
    "make_room",
    "with_room",
]

logger = logging.getLogger("accelsk")

#: How the libraries call it, where they raise no ``MemoryError``.
_OUT_OF_MEMORY = ("out_of_memory", "bad_alloc", "memoryallocation", "alloc_failed")


def is_out_of_memory(error: BaseException) -> bool:
    """Whether `error` says that device memory ran out.

    RMM raises ``MemoryError`` (``std::bad_alloc``), CuPy a subclass of it, cuBLAS, cuSOLVER and
    Thrust errors of their own. NumPy raises a subclass for the memory of the host.
    """
    if isinstance(error, MemoryError):
        return not type(error).__module__.startswith("numpy")
    text = str(error).lower()
    return any(name in text for name in _OUT_OF_MEMORY)


def is_full(error: BaseException) -> bool:
    """Whether `error`, which may as well be of the user's own code, names device memory.

    Then a call that it ends is worth another go; else nothing is to run twice.
    """
    if isinstance(error, MemoryError) and type(error).__module__.partition(".")[0] == "cupy":
        return True
    return any(name in str(error).lower() for name in _OUT_OF_MEMORY)


def free_pools() -> None:
    """Give the device memory that CuPy keeps in its pools back."""
    gc.collect()
    cupy = sys.modules.get("cupy")
    for name in ("get_default_memory_pool", "get_default_pinned_memory_pool"):
        if (pool := getattr(cupy, name, None)) is not None:  # CuPy may be half imported
            pool().free_all_blocks()


#: Asked in turn where memory runs out: each gives up what it can do without, and says what it was.
_givers: list[Callable[[Any], Sequence[str]]] = []

#: One thread makes room at a time: what it frees is there for the others, too.
_making_room = Lock()


def gives_back(function: Callable[[Any], Sequence[str]]) -> Callable[[Any], Sequence[str]]:
    """Have `function` called where device memory runs out.

    It gets the estimator whose model is in use, or None, and returns the names of what it gave up.
    """
    _givers.append(function)
    return function


def make_room(error: BaseException, keep: Any = None) -> str:
    """Free what a failed attempt held, what nobody uses now, and what CuPy keeps for later.

    Parameters
    ----------
    error : exception
        What the attempt raised.
    keep : estimator, default=None
        Its model stays on the device.

    Returns
    -------
    shortage : str
        What ran out and what was given up, for the user to read.
    """
    _forget_variables(error)
    with _making_room:
        given_up = [name for giver in _givers for name in giver(keep)]
        free_pools()
    names = ", ".join(
        name if count == 1 else f"{count} {name}" for name, count in Counter(given_up).items()
    )
    first_line = str(error).strip().partition("\n")[0].partition(" (")[0]
    what = "the GPU ran out of memory" + (f" ({first_line})" if first_line else "")
    shortage = f"{what}, {'moved to the host: ' + names if names else 'nothing was idle there'}"
    logger.info("%s", shortage)
    return shortage


def _forget_variables(error: BaseException | None) -> None:
    """Clear the variables of calls that an error, or what it came of, ended: they hold arrays."""
    known: list[BaseException] = []
    waiting = [error]
    while waiting:
        error = waiting.pop()
        if error is None or any(error is one for one in known):
            continue
        known.append(error)
        traceback.clear_frames(error.__traceback__)
        waiting += [error.__cause__, error.__context__]


def with_room(
    run: Callable[[], Any], keep: Any = None, rewind: Callable[[], None] | None = None
) -> Any:
    """Return what `run` gives, at a second attempt where device memory runs out at the first.

    Parameters
    ----------
    run : callable
    keep : estimator, default=None
        As in `make_room`.
    rewind : callable, default=None
        Called between the two.
    """
    try:
        return run()
    except Exception as error:
        if not is_out_of_memory(error):
            raise
        shortage = make_room(error, keep)
    if rewind is not None:
        rewind()
    try:
        result = run()
    except Exception as error:
        again = "ran out of memory, too" if is_out_of_memory(error) else "failed otherwise"
        note(f"{shortage}; the second attempt {again}")
        raise
    note(f"{shortage}; the second attempt went well")
    return result


def enable_managed_memory() -> bool:
    """Let RMM allocate managed memory, so that data may be larger than the device.

    Returns
    -------
    enabled : bool
        False, with the reason in the log, where the platform lacks concurrent managed access (as
        WSL2 does) or where RMM is configured already.
    """
    import cupy
    import rmm
    from rmm.allocators.cupy import rmm_cupy_allocator

    device = cupy.cuda.Device()
    if not device.attributes["ConcurrentManagedAccess"]:
        logger.debug("No managed memory: the platform lacks concurrent managed access")
        return False
    resource = rmm.mr.get_current_device_resource()
    if type(resource) is not rmm.mr.CudaMemoryResource:
        logger.debug("No managed memory: RMM is already configured with %r", resource)
        return False
    rmm.mr.set_current_device_resource(
        rmm.mr.PrefetchResourceAdaptor(rmm.mr.ManagedMemoryResource())
    )
    cupy.cuda.set_allocator(rmm_cupy_allocator)
    logger.debug("Managed memory is on")
    return True
