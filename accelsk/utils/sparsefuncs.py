"""`sklearn.utils.sparsefuncs`, as it is."""

from typing import TYPE_CHECKING

from accelsk._mirror import mirror

if TYPE_CHECKING:
    from sklearn.utils.sparsefuncs import *  # noqa: F403

__all__, __getattr__, __dir__ = mirror(__name__)
