"""What stands for the estimators of scikit-learn that hold others: pipelines, unions, searches."""

from __future__ import annotations

from typing import Any

from accelsk.estimator import Counterpart

__all__ = ["Composite"]


class Composite(Counterpart):
    """Mixin for counterparts without engines of their own, which keep data on the device.

    ::

        class Pipeline(Composite, sklearn.pipeline.Pipeline, stands_in=True): ...

    Parameters
    ----------
    stands_in : bool, default=False
        Whether the class statement makes accelsk's own class, not a user's subclass of it.
    """

    def __init_subclass__(cls, *, stands_in: bool = False, **kwargs: Any) -> None:
        if stands_in:
            cls._accelsk_stand_in(kwargs)
        super().__init_subclass__(**kwargs)
        if stands_in:
            from accelsk import registry

            registry.add_composite(cls)
