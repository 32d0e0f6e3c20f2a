"""The coefficients in force: those of this machine where it was measured, else the default ones."""

from __future__ import annotations

import logging
import os
from importlib.resources import files
from pathlib import Path

from accelsk._locks import Lock
from accelsk.costs import machine
from accelsk.costs.model import Table

__all__ = ["adapt", "cache_file", "default", "forget", "measured", "save", "table"]

logger = logging.getLogger("accelsk")

_lock = Lock()
_table: Table | None = None
_adapted = False


def cache_file() -> Path:
    """Return the file in which the coefficients of this machine are kept.

    Its name is not that of the machine: a home folder may be shared, so there is one for each.
    """
    from platformdirs import user_cache_path

    known = machine.describe()
    name = "-".join(f"{known[key]}" for key in ("gpu", "processor", "cores"))
    safe = "".join(c if c.isalnum() else "_" for c in name)
    return user_cache_path("accelsk") / "costs" / f"{safe}.json"


def default() -> Table:
    """Return the coefficients that come with accelsk."""
    return Table.from_json(files("accelsk.costs").joinpath("defaults.json").read_text("utf-8"))


def measured() -> Table | None:
    """Return the coefficients of this machine if it was measured as it is now."""
    try:
        file = cache_file()
        if not file.exists():
            return None
        stored = Table.from_json(file.read_text("utf-8"))
    except Exception as error:  # whatever is wrong with a cache, it is a cache
        logger.warning("The measured costs cannot be read and are ignored: %s", error)
        return None
    here = machine.describe()
    if changed := [key for key, value in here.items() if stored.machine.get(key) != value]:
        logger.warning(
            "The measured costs are ignored: since then %s changed; `python -m accelsk tune` "
            "measures anew",
            ", ".join(changed),
        )
        return None
    return stored


def table() -> Table:
    """Return the coefficients in force. Only the first call reads a file."""
    global _table, _adapted
    if _table is None:
        with _lock:
            if _table is None:
                stored = measured()
                _adapted = stored is not None
                _table = default() if stored is None else stored
    return _table


def _same_machine(found: Table) -> bool:
    here = machine.describe()
    return all(here[key] == found.machine.get(key) for key in ("gpu", "processor", "cores"))


def adapt() -> None:
    """Fit default coefficients to the speed of this machine, once. Takes a GPU in use."""
    global _table, _adapted
    found = table()
    if _adapted:
        return
    with _lock:
        if _adapted:
            return
        _adapted = True
        try:
            if _same_machine(found):
                return
            factors = machine.factors(machine.speeds(), found.speed)
        except Exception as error:
            logger.debug("the speed of this machine could not be measured", exc_info=error)
            return
        logger.debug("costs next to those of %s: %s", found.machine.get("gpu"), factors)
        _table = found.scaled(factors)


def forget() -> None:
    """Have the coefficients read again at the next call."""
    global _table, _adapted
    with _lock:
        _table, _adapted = None, False


def save(found: Table, file: Path | None = None) -> Path:
    """Keep the coefficients of this machine, and have them in force from now on.

    Raises
    ------
    OSError
        If the file cannot be written.
    """
    file = cache_file() if file is None else file
    file.parent.mkdir(parents=True, exist_ok=True)
    draft = file.with_name(f"{file.name}.{os.getpid()}")
    try:
        draft.write_text(found.to_json(), "utf-8")
        draft.replace(file)  # whoever reads meanwhile sees a whole file
    finally:
        draft.unlink(missing_ok=True)
    forget()
    return file
