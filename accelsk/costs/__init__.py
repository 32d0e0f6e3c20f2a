"""What a call is expected to take on the CPU and on each engine, and where it is sooner.

`work` declares what the time of each class grows with; `model` holds coefficients and finds them
from measurements; `store` has those in force; `decision` weighs one call. Nothing here touches
the GPU but `machine`. Nothing is imported before there is a choice to make.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from accelsk.costs.decision import Expected, expected, is_known_to_be_sooner, ran, weigh

__all__ = ["Expected", "expected", "is_known_to_be_sooner", "ran", "weigh"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from accelsk.costs import decision

    globals().update({known: getattr(decision, known) for known in __all__})
    return globals()[name]
