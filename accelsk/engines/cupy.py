"""Our own code on CuPy as an engine, for what no library computes as scikit-learn defines it.

The algorithms stand in `accelsk.algorithms`, written for NumPy and CuPy alike; an engine here
says which estimator they serve and what keeps a call off them.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
from scipy import sparse

from accelsk.device.transfer import to_device, to_host
from accelsk.engines.on_device import DeviceEngine, import_cupy
from accelsk.exceptions import Refusal

__all__ = ["CupyEngine"]

#: What is on the host for certain.
_ON_HOST = (bool, int, float, str, np.generic, type(None))


class CupyEngine(DeviceEngine):
    """One estimator on CuPy. The model is a namespace that holds its fitted attributes.

    Attributes
    ----------
    state : tuple of str
        The fitted attributes that methods of the engine read, numeric arrays on the device.
    """

    name = "cupy"
    state: tuple[str, ...] = ()

    def load(self) -> None:
        import_cupy()

    def attributes(self, estimator: Any, model: SimpleNamespace) -> dict[str, Any]:
        # what is at hand needs no device, which may be out of order by now
        at_hand = vars(estimator)
        return {n: to_host(value) for n, value in vars(model).items() if n not in at_hand}

    def remains(self, model: SimpleNamespace) -> dict[str, Any]:
        if type(self).attributes is not CupyEngine.attributes:
            return {}  # it makes something else of what the model holds
        return {n: value for n, value in vars(model).items() if isinstance(value, _ON_HOST)}

    def restore(self, estimator: Any) -> SimpleNamespace:
        self.load()
        model = SimpleNamespace()
        for name in self.state:
            value = getattr(estimator, name)
            if sparse.issparse(value):
                raise Refusal(f"{name} is sparse")
            if isinstance(value, np.ndarray):
                if value.dtype.kind not in "biuf":
                    raise Refusal(f"{name} is not numeric")
                value = to_device(value)
            setattr(model, name, value)
        return model
