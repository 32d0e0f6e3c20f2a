"""`sklearn.svm`, with classes that try the GPU first."""

from __future__ import annotations

from sklearn.svm import _classes

from accelsk._dual_svm import SVCOnCuml, SVROnCuml
from accelsk._linear_svm import LinearSVCOnCupy, LinearSVROnCupy
from accelsk._mirror import mirror
from accelsk.estimator import Accelerated

__all__, __getattr__, __dir__ = mirror(__name__)


class SVC(Accelerated, _classes.SVC, engines=[SVCOnCuml()]): ...


class SVR(Accelerated, _classes.SVR, engines=[SVROnCuml()]): ...


class LinearSVC(Accelerated, _classes.LinearSVC, engines=[LinearSVCOnCupy()]): ...


class LinearSVR(Accelerated, _classes.LinearSVR, engines=[LinearSVROnCupy()]): ...
