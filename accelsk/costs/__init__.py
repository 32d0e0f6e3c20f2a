"""What a call is expected to take on the CPU and on each engine, and where it is sooner.

`work` declares what the time of each class grows with; `model` holds coefficients and finds them
from measurements; `store` has those in force; `decision` weighs one call. Nothing here touches
the GPU but `machine`.
"""

from accelsk.costs.decision import Expected, expected, ran, weigh

__all__ = ["Expected", "expected", "ran", "weigh"]
