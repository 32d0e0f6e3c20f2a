"""`sklearn.decomposition`, with classes that try the GPU first."""

from __future__ import annotations

from sklearn.decomposition import _incremental_pca, _pca, _truncated_svd

from accelsk._incremental_pca import IncrementalPCAOnMoments
from accelsk._mirror import mirror
from accelsk._pca import PCAOnMoments
from accelsk._truncated_svd import TruncatedSVDOnMoments
from accelsk.estimator import Accelerated

__all__, __getattr__, __dir__ = mirror(__name__)


class PCA(Accelerated, _pca.PCA, engines=[PCAOnMoments()]): ...


class IncrementalPCA(
    Accelerated, _incremental_pca.IncrementalPCA, engines=[IncrementalPCAOnMoments()]
): ...


class TruncatedSVD(Accelerated, _truncated_svd.TruncatedSVD, engines=[TruncatedSVDOnMoments()]): ...
