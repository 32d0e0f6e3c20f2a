"""What the engines of this package have in common."""

from __future__ import annotations

import functools
import inspect
from typing import Any

import numpy as np

from accelsk.device.transfer import to_device
from accelsk.engines.base import Call, Rule, refuse
from accelsk.engines.cupy import CupyEngine
from accelsk.exceptions import Invalid

__all__ = ["FIT_ARGUMENTS", "HALF", "Preprocessor", "numbers", "plain"]


def plain(call: Call) -> Any:
    """Return scikit-learn's estimator with the hyperparameters of the call, not fitted.

    Fitted to what stands for the data, such as its extremes, it has the attributes that
    scikit-learn's own code makes of them, in whatever version is installed.
    """
    original: Any = call.original
    return original(**{name: call.parameters[name] for name in original._get_param_names()})


def numbers(call: Call) -> Any:
    """Return ``X`` as floats on the device, missing values and all."""
    return to_device(call.X.array, np.float32 if call.X.dtype == np.float32 else np.float64)


@functools.cache
def _arguments_of_fit(original: Any) -> frozenset[str]:
    return frozenset(inspect.signature(original.fit).parameters)


def _unknown_arguments(call: Call) -> bool:
    return call.method == "fit_transform" and not (
        call.arguments.keys() <= _arguments_of_fit(call.original)
    )


#: scikit-learn's `fit_transform` hands what it does not know to `fit`.
FIT_ARGUMENTS = refuse(Invalid("fit has no such argument"), _unknown_arguments)

HALF = refuse("X is float16", lambda call: call.X.dtype == np.float16, fit_only=False)


class Preprocessor(CupyEngine):
    """A transformer of numbers."""

    rules: tuple[Rule, ...] = (FIT_ARGUMENTS, HALF)

    def matrix(self, call: Call) -> Any:
        return numbers(call)
