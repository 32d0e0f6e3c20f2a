"""The logger `accelsk`: silent but for warnings, unless the program sets up logging."""

from __future__ import annotations

import logging

__all__ = ["WarningsOnly", "handled", "set_up"]


class WarningsOnly(logging.NullHandler):
    """Says on standard error what is a warning, or worse, where nobody else would.

    Python does that for a logger without handlers; a logger with a `NullHandler` loses warnings.
    """

    def handle(self, record: logging.LogRecord) -> bool:
        last = logging.lastResort
        if last is not None and record.levelno >= last.level and not handled():
            last.handle(record)
        return True


def handled() -> bool:
    """Whether the program has a handler for what accelsk logs."""
    logger: logging.Logger | None = logging.getLogger("accelsk")
    while logger is not None:
        if any(not isinstance(handler, WarningsOnly) for handler in logger.handlers):
            return True
        logger = logger.parent if logger.propagate else None
    return False


def set_up() -> None:
    """Put the handler on the logger."""
    logging.getLogger("accelsk").addHandler(WarningsOnly())
