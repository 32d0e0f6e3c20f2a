"""`sklearn.discriminant_analysis`, with classes that try the GPU first."""

from __future__ import annotations

import sklearn.discriminant_analysis as _original

from accelsk._linear_discriminant import LinearDiscriminantOnMoments
from accelsk._mirror import mirror
from accelsk._quadratic_discriminant import QuadraticDiscriminantOnMoments
from accelsk.estimator import Accelerated

__all__, __getattr__, __dir__ = mirror(__name__)


class LinearDiscriminantAnalysis(
    Accelerated, _original.LinearDiscriminantAnalysis, engines=[LinearDiscriminantOnMoments()]
): ...


class QuadraticDiscriminantAnalysis(
    Accelerated, _original.QuadraticDiscriminantAnalysis, engines=[QuadraticDiscriminantOnMoments()]
): ...
