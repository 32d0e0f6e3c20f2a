"""Drop-in classes for scikit-learn that run on an NVIDIA GPU.

``from accelsk.linear_model import Ridge`` gives a `Ridge` that *is* scikit-learn's, whose methods
run on the GPU where that gives scikit-learn's result, and in scikit-learn otherwise.
"""

import importlib
from typing import Any

from accelsk.config import config_context, get_config, set_config
from accelsk.explanation import explain
from accelsk.profiling import profile
from accelsk.registry import from_sklearn, is_proxy, register, to_sklearn
from accelsk.runtime import enabled, install

__version__ = "0.1.0.dev0"

__all__ = [
    "config_context",
    "enabled",
    "explain",
    "from_sklearn",
    "get_config",
    "install",
    "is_proxy",
    "profile",
    "register",
    "set_config",
    "to_sklearn",
]

_SUBMODULES = ("cluster", "decomposition", "ensemble", "linear_model", "neighbors")


def __getattr__(name: str) -> Any:
    if name in _SUBMODULES:
        return importlib.import_module(f"accelsk.{name}")
    raise AttributeError(f"module 'accelsk' has no attribute {name!r}")
