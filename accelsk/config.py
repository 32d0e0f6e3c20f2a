"""Where calls may run and what happens when one falls back.

The configuration is local to a thread or task, as `contextvars` are: a setting made in one
thread is not seen by another, which starts from the defaults.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import asdict, dataclass, fields, replace
from typing import Any, Final, Literal, get_args

__all__ = ["Config", "config_context", "current", "environment", "get_config", "set_config"]

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


def environment(name: str) -> str:
    """Return the environment variable `name` in lower case; empty is the same as unset."""
    return os.environ.get(name, "").strip().lower()


def _from_environment() -> Config:
    try:
        return Config(device=environment("ACCELSK_DEVICE") or "auto")  # type: ignore[arg-type]
    except ValueError:
        given = os.environ["ACCELSK_DEVICE"]
        raise ValueError(
            f"ACCELSK_DEVICE must be one of {_CHOICES['device']}, got {given!r}"
        ) from None


_default: Config | None = None
_current: ContextVar[Config | None] = ContextVar("accelsk_config", default=None)


def current() -> Config:
    """Return the settings in force in this thread or task."""
    global _default
    config = _current.get()
    if config is None:
        if _default is None:
            _default = _from_environment()
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
    if device_memory_limit != _UNCHANGED:
        changes["device_memory_limit"] = device_memory_limit
    _current.set(replace(current(), **changes))


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
        _current.reset(token)
