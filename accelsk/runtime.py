"""Getting the GPU ready ahead of the first call, and whether it may be used."""

from __future__ import annotations

import logging
import os

from accelsk.config import current
from accelsk.device import memory, probe

__all__ = ["enabled", "install"]

logger = logging.getLogger("accelsk")

_LEVELS = ("debug", "info", "warn", "error")

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


def install(disable_uvm: bool = False, log_level: str | None = None) -> None:
    """Get the GPU ready now instead of at the first call.

    Looks for a usable GPU, imports the engine, sets up managed memory, sets the log level, and
    sets the environment variables from which child processes take both. Without a usable GPU it
    logs why, once, and everything runs in scikit-learn. Accelerated classes work without it.

    Parameters
    ----------
    disable_uvm : bool, default=False
        Leave managed memory off. It is left off, too, where ``ACCELSK_DISABLE_UVM=1`` is set,
        where the platform lacks concurrent managed access (WSL2), and where RMM has been
        configured already.
    log_level : {"debug", "info", "warn", "error"}, default=None
        Level of the logger ``accelsk``. None takes the environment variable
        ``ACCELSK_LOG_LEVEL``, else "warn".

    Raises
    ------
    ValueError
        If `log_level` is not one of these.
    """
    global _installed
    level = log_level or os.environ.get("ACCELSK_LOG_LEVEL", "warn")
    _set_log_level(level, "log_level" if log_level else "ACCELSK_LOG_LEVEL")
    disable_uvm = disable_uvm or os.environ.get("ACCELSK_DISABLE_UVM") == "1"
    os.environ["ACCELSK_LOG_LEVEL"] = level.lower()
    os.environ["ACCELSK_DISABLE_UVM"] = str(int(disable_uvm))
    if _installed:
        return
    _installed = True
    if probe.unusable() is not None:  # the probe has logged why
        return
    from accelsk.engines.cuml import import_cuml
    from accelsk.exceptions import Refusal

    try:
        import_cuml()
    except Refusal:  # the engine has logged why
        return
    if not disable_uvm:
        try:
            memory.enable_managed_memory()
        except Exception as error:
            logger.warning("No managed memory: %s: %s", type(error).__name__, error)
    logger.info("The GPU is ready: %s", probe.gpu())


def _set_log_level(level: str, source: str) -> None:
    if level.lower() not in _LEVELS:
        raise ValueError(f"{source} must be one of {_LEVELS}, got {level!r}")
    logger.setLevel("WARNING" if level.lower() == "warn" else level.upper())
    if not logger.hasHandlers() and logger.level < logging.WARNING:
        # Python shows warnings without any handler; for more there has to be one
        handler = logging.StreamHandler()
        handler.setFormatter(logging.Formatter("[accelsk] %(message)s"))
        logger.addHandler(handler)
