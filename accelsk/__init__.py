"""Drop-in classes for scikit-learn that run on an NVIDIA GPU.

``from accelsk.linear_model import Ridge`` gives a `Ridge` that *is* scikit-learn's, whose methods
run on the GPU where that gives scikit-learn's result, and in scikit-learn otherwise. Every public
module of scikit-learn is there under the same name, with all its names.
"""

import importlib
from typing import Any

from accelsk._mirror import mirror
from accelsk.config import config_context, get_config, set_config
from accelsk.explanation import explain
from accelsk.profiling import profile
from accelsk.registry import OTHER_PACKAGES, from_sklearn, is_proxy, register, to_sklearn
from accelsk.runtime import enabled, install
from accelsk.support import supported

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
    "supported",
    "to_sklearn",
]

_, _from_sklearn, __dir__ = mirror(__name__)


def __getattr__(name: str) -> Any:
    if name in OTHER_PACKAGES:  # imported at first use, as modules of scikit-learn are
        return importlib.import_module(f"accelsk.{name}")
    return _from_sklearn(name)
