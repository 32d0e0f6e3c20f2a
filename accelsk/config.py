"""Where calls may run and what happens when one falls back.

The configuration is local to a thread or task, as `contextvars` are: a setting made in one
thread is not seen by another, which starts from the defaults.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import asdict, dataclass, fields, replace
from typing import Any, Final, Literal, get_args

import numpy as np

__all__ = [
    "VARIABLES",
    "Config",
    "chosen",
    "config_context",
    "current",
    "fault_of",
    "get_config",
    "set_config",
]

logger = logging.getLogger("accelsk")

Device = Literal["auto", "gpu", "cpu"]
OnFallback = Literal["log", "warn", "raise"]

#: Stands for "leave it as it is" where None is a value.
_UNCHANGED: Final = "unchanged"

_CHOICES = {
    "device": get_args(Device),
    "on_fallback": get_args(OnFallback),
    "reproducible": (False, True),
}


@dataclass(frozen=True, slots=True)
class Config:
    """The settings of one thread or task; `set_config` documents them."""

    device: Device = "auto"
    on_fallback: OnFallback = "log"
    reproducible: bool = False
    device_memory_limit: int | None = None
    pinned_memory: int = 256 << 20

    def __post_init__(self) -> None:
        for field in fields(self):
            value, choices = getattr(self, field.name), _CHOICES.get(field.name)
            if choices is None:
                continue
            if not any(type(value) is type(choice) and value == choice for choice in choices):
                raise ValueError(f"{field.name} must be one of {choices}, got {value!r}")
        if type(self.pinned_memory) is not int or self.pinned_memory < 0:
            raise ValueError(f"pinned_memory must be a number of bytes, got {self.pinned_memory!r}")
        limit = self.device_memory_limit
        if limit is not None and (type(limit) is not int or limit <= 0):
            raise ValueError(
                f"device_memory_limit must be a positive number of bytes or None, got {limit!r}"
            )


#: The environment variables with a choice of values, in lower case; empty is the same as unset.
VARIABLES: Final[dict[str, tuple[str, ...]]] = {
    "ACCELSK_DEVICE": get_args(Device),
    "ACCELSK_DISABLE_UVM": ("1", "true", "yes", "on", "0", "false", "no", "off"),
    "ACCELSK_LOG_LEVEL": ("debug", "info", "warn", "warning", "error"),
}

#: What is wrong with variables and has been said already.
_said: set[str] = set()


def _value(name: str) -> str:
    return os.environ.get(name, "").strip().lower()


def fault_of(name: str) -> str | None:
    """Return what is wrong with one of `VARIABLES`, if anything."""
    if _value(name) in ("", *VARIABLES[name]):
        return None
    return f"{name} must be one of {VARIABLES[name]}, got {os.environ[name]!r}: it counts as unset"


def chosen(name: str, default: str) -> str:
    """Return what one of `VARIABLES` is set to.

    A program does not end because of a variable: `default` stands for a value that is none, and
    the log tells of it once.
    """
    fault = fault_of(name)
    if fault is None:
        return _value(name) or default
    if fault not in _said:
        _said.add(fault)
        logger.warning("%s", fault)
    return default


_default: Config | None = None
_current: ContextVar[Config | None] = ContextVar("accelsk_config", default=None)


def current() -> Config:
    """Return the settings in force in this thread or task."""
    global _default
    config = _current.get()
    if config is None:
        if _default is None:
            device = chosen("ACCELSK_DEVICE", "auto")
            _default = Config(device=device)  # type: ignore[arg-type]
        return _default
    return config


def get_config() -> dict[str, Any]:
    """Return the settings in force in this thread or task.

    Returns
    -------
    config : dict
        A copy, with the keys that `set_config` takes.

    Examples
    --------
    >>> import accelsk
    >>> accelsk.get_config()["on_fallback"]
    'log'
    """
    return asdict(current())


def set_config(
    *,
    device: Device | None = None,
    on_fallback: OnFallback | None = None,
    reproducible: bool | None = None,
    device_memory_limit: int | Literal["unchanged"] | None = _UNCHANGED,
    pinned_memory: int | None = None,
) -> None:
    """Change settings for this thread or task.

    Parameters
    ----------
    device : {"auto", "gpu", "cpu"}, default=None
        ``"auto"`` runs a call on the GPU where that pays, ``"gpu"`` wherever it is possible,
        ``"cpu"`` never. The default comes from the environment variable ``ACCELSK_DEVICE``,
        else it is ``"auto"``. None leaves the setting as it is.
    on_fallback : {"log", "warn", "raise"}, default=None
        What happens when a call that might have run on the GPU runs in scikit-learn:
        ``"log"`` (the default) says so in the log, ``"warn"`` gives a
        `accelsk.exceptions.FallbackWarning`, ``"raise"`` raises a
        `accelsk.exceptions.FallbackError`. None leaves the setting as it is.
    reproducible : bool, default=None
        True keeps calls with an explicit ``random_state`` in scikit-learn where the GPU would not
        give the same result twice (UMAP and t-SNE); False (the default) lets them run on the
        GPU, and `accelsk.explain` says so. None leaves the setting as it is.
    device_memory_limit : int or None, default="unchanged"
        The bytes of device memory that the rows of one call may take. Where X is larger, what
        passes over its rows (least squares, the elastic net, the scalers and others) does so in
        blocks that fit, and other calls run in scikit-learn. None means no limit but the
        device's own.
    pinned_memory : int, default=None
        The bytes of page-locked host memory through which large arrays travel to the device and
        back; the default is 256 MiB. 0 turns that off. None leaves the setting as it is.

    Raises
    ------
    ValueError
        For a value that is not listed, or a limit that is no positive integer.

    See Also
    --------
    config_context : The same for the length of a ``with`` block.

    Examples
    --------
    >>> import accelsk
    >>> accelsk.set_config(device="cpu")
    >>> accelsk.get_config()["device"]
    'cpu'
    >>> accelsk.set_config(device="auto")
    """
    given = {
        "device": device,
        "on_fallback": on_fallback,
        "reproducible": reproducible,
        "pinned_memory": pinned_memory,
    }
    changes: dict[str, Any] = {k: v for k, v in given.items() if v is not None}
    if not (isinstance(device_memory_limit, str) and device_memory_limit == _UNCHANGED):
        changes["device_memory_limit"] = device_memory_limit
    # numbers and flags of NumPy's are as good as Python's
    plain = {k: v.item() if isinstance(v, np.generic) else v for k, v in changes.items()}
    _current.set(replace(current(), **plain))


@contextmanager
def config_context(
    *,
    device: Device | None = None,
    on_fallback: OnFallback | None = None,
    reproducible: bool | None = None,
    device_memory_limit: int | Literal["unchanged"] | None = _UNCHANGED,
    pinned_memory: int | None = None,
) -> Iterator[None]:
    """Change settings for the length of a ``with`` block.

    Parameters
    ----------
    device : {"auto", "gpu", "cpu"}, default=None
    on_fallback : {"log", "warn", "raise"}, default=None
    reproducible : bool, default=None
    device_memory_limit : int or None, default="unchanged"
    pinned_memory : int, default=None
        As in `set_config`.

    Examples
    --------
    >>> import accelsk
    >>> with accelsk.config_context(device="cpu"):
    ...     accelsk.get_config()["device"]
    'cpu'
    """
    token = _current.set(current())
    try:
        set_config(
            device=device,
            on_fallback=on_fallback,
            reproducible=reproducible,
            device_memory_limit=device_memory_limit,
            pinned_memory=pinned_memory,
        )
        yield
    finally:
        with suppress(ValueError):  # a generator that is closed in another thread or task
            _current.reset(token)
