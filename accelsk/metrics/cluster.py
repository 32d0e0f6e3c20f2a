"""`sklearn.metrics.cluster`, with scores that are computed on the GPU where that is sooner."""

from typing import TYPE_CHECKING

from accelsk._mirror import mirror
from accelsk.metrics._distances import (  # noqa: F401 - public names
    adjusted_rand_score,
    silhouette_samples,
    silhouette_score,
)

if TYPE_CHECKING:
    from sklearn.metrics.cluster import *  # noqa: F403

__all__, __getattr__, __dir__ = mirror(__name__)
