"""`sklearn.metrics`, with scores that are computed on the GPU where predictions are there."""

from typing import TYPE_CHECKING

from accelsk._mirror import mirror
from accelsk.metrics._classification import (  # noqa: F401 - public names
    accuracy_score,
    average_precision_score,
    balanced_accuracy_score,
    confusion_matrix,
    log_loss,
    roc_auc_score,
)
from accelsk.metrics._distances import (  # noqa: F401 - public names
    adjusted_rand_score,
    pairwise_distances,
    silhouette_samples,
    silhouette_score,
)
from accelsk.metrics._regression import (  # noqa: F401 - public names
    mean_absolute_error,
    mean_squared_error,
    mean_squared_log_error,
    median_absolute_error,
    r2_score,
    root_mean_squared_error,
    root_mean_squared_log_error,
)
from accelsk.metrics._scorers import check_scoring  # noqa: F401 - a public name

if TYPE_CHECKING:
    from sklearn.metrics import *  # noqa: F403

__all__, __getattr__, __dir__ = mirror(__name__)
