"""Getting the GPU ready ahead of the first call, and whether it may be used."""

from __future__ import annotations

import logging
import os

from accelsk import _log
from accelsk._arguments import check_flag
from accelsk.config import chosen, current
from accelsk.device import probe

__all__ = ["enabled", "install"]

logger = logging.getLogger("accelsk")

_LEVELS = ("debug", "info", "warn", "error")

#: Seconds for which a program that waits for `install` has kernels compiled.
_PATIENCE = 3.0

_installed = False


def enabled() -> bool:
    """Whether calls of this thread may run on a GPU.

    Returns
    -------
    enabled : bool
        True if a GPU is usable and ``device="cpu"`` is not set.

    Examples
    --------
    >>> import accelsk
    >>> with accelsk.config_context(device="cpu"):
    ...     accelsk.enabled()
    False
    """
    return current().device != "cpu" and probe.unusable() is None


def install(
    disable_uvm: bool = False, log_level: str | None = None, background: bool = False
) -> None:
    """Get the GPU ready now instead of at the first call.

    Looks for a usable GPU, imports the engines, sets up managed memory, compiles what the
    accelerated classes imported so far run on the GPU (for a few seconds at most, unless in the
    background), sets the log level, and sets the environment variables from which child
    processes take both. Child processes that start later are patched
    (see `accelsk.patch`), unless ``ACCELSK_ENABLED=0`` is set. Without a usable GPU it logs why,
    once, and everything runs in scikit-learn. Accelerated classes work without it.

    Parameters
    ----------
    disable_uvm : bool, default=False
        Leave managed memory off. It is left off, too, where ``ACCELSK_DISABLE_UVM=1`` is set,
        where the platform lacks concurrent managed access (WSL2), and where RMM has been
        configured already.
    log_level : {"debug", "info", "warn", "error"}, default=None
        Level of the logger ``accelsk``. None takes the environment variable
        ``ACCELSK_LOG_LEVEL``, else "warn".
    background : bool, default=False
        Do it in another thread while the program goes on, reading its data for one. Until it is
        done, calls run in scikit-learn, unless waiting for the GPU is sooner or ``device="gpu"``
        is set.

    Raises
    ------
    TypeError
        If `disable_uvm` or `background` is neither True nor False.
    ValueError
        If `log_level` is not known. An environment variable with such a value counts as unset.

    Examples
    --------
    At the start of a program that reads its data first:

    >>> import accelsk
    >>> accelsk.install(background=True, log_level="error")
    """
    global _installed
    check_flag("disable_uvm", disable_uvm)
    check_flag("background", background)
    level = _level(log_level)
    disable_uvm = uvm_is_off() or disable_uvm
    _set_log_level(level)
    os.environ["ACCELSK_LOG_LEVEL"] = level
    os.environ["ACCELSK_DISABLE_UVM"] = str(int(disable_uvm))
    os.environ.setdefault("ACCELSK_ENABLED", "1")
    if _installed:
        return
    _installed = True
    if probe.unusable() is not None:  # the probe has logged why
        return
    from accelsk import warmup

    if background:
        warmup.in_background(disable_uvm=disable_uvm)
    else:
        warmup.get_ready(disable_uvm=disable_uvm, seconds=_PATIENCE)


def _level(argument: str | None) -> str:
    """Return the log level that the argument, or else the environment, asks for."""
    level = chosen("ACCELSK_LOG_LEVEL", "warn") if argument is None else str(argument).lower()
    level = "warn" if level == "warning" else level  # the name that `logging` has for it
    if level not in _LEVELS:
        raise ValueError(f"log_level must be one of {_LEVELS}, got {argument!r}")
    return level


def uvm_is_off() -> bool:
    """Whether the environment turns managed memory off."""
    return chosen("ACCELSK_DISABLE_UVM", "off") in ("1", "true", "yes", "on")


def _set_log_level(level: str) -> None:
    logger.setLevel("WARNING" if level == "warn" else level.upper())
    if not _log.handled() and logger.level < logging.WARNING:
        # warnings are shown without any handler; for more there has to be one
        handler = logging.StreamHandler()
        handler.setFormatter(logging.Formatter("[accelsk] %(message)s"))
        logger.addHandler(handler)
