"""Drop-in classes for scikit-learn that run on an NVIDIA GPU.

``from accelsk.linear_model import Ridge`` gives a `Ridge` that *is* scikit-learn's, whose methods
run on the GPU where that gives scikit-learn's result, and in scikit-learn otherwise. Every public
module of scikit-learn is there under the same name, with all its names.
"""

import importlib
from typing import Any

from accelsk import _log
from accelsk._mirror import mirror
from accelsk.config import config_context, get_config, set_config
from accelsk.explanation import explain
from accelsk.profiling import profile
from accelsk.registry import OTHER_PACKAGES, from_sklearn, is_proxy, register, to_sklearn
from accelsk.runtime import enabled, install
from accelsk.support import supported

__version__ = "0.1.0"

#: What is imported when it is first asked for, and where it is.
_LAZY = {
    "info": "accelsk.doctor",
    "is_patched": "accelsk.patching",
    "line_profile": "accelsk.profiling.lines",
    "load_ipython_extension": "accelsk.ipython",
    "patch": "accelsk.patching",
    "patched": "accelsk.patching",
    "unload_ipython_extension": "accelsk.ipython",
    "unpatch": "accelsk.patching",
}

__all__ = [
    "config_context",
    "enabled",
    "explain",
    "from_sklearn",
    "get_config",
    "info",
    "install",
    "is_patched",
    "is_proxy",
    "line_profile",
    "patch",
    "patched",
    "profile",
    "register",
    "set_config",
    "supported",
    "to_sklearn",
    "unpatch",
]

_, _from_sklearn, _mirrored_names = mirror(__name__)
_log.set_up()


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        return getattr(importlib.import_module(_LAZY[name]), name)
    if name in OTHER_PACKAGES:  # imported at first use, as modules of scikit-learn are
        return importlib.import_module(f"accelsk.{name}")
    return _from_sklearn(name)


def __dir__() -> list[str]:
    return sorted({*_mirrored_names(), *_LAZY})
