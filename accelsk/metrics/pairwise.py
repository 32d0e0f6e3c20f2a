"""`sklearn.metrics.pairwise`, with distances that are computed on the GPU where rows are there."""

from typing import TYPE_CHECKING

from accelsk._mirror import mirror
from accelsk.metrics._distances import pairwise_distances  # noqa: F401 - a public name

if TYPE_CHECKING:
    from sklearn.metrics.pairwise import *  # noqa: F403

__all__, __getattr__, __dir__ = mirror(__name__)
