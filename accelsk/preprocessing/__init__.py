"""`sklearn.preprocessing`, with classes that try the GPU first."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sklearn.preprocessing import _data, _encoders, _label, _polynomial, _target_encoder

from accelsk._mirror import mirror
from accelsk.estimator import Accelerated
from accelsk.preprocessing._labels import LabelBinarizerOnCupy, LabelEncoderOnCupy
from accelsk.preprocessing._one_hot import OneHotEncoderOnCupy
from accelsk.preprocessing._polynomials import PolynomialFeaturesOnCupy
from accelsk.preprocessing._scalers import (
    MaxAbsScalerOnMoments,
    MinMaxScalerOnMoments,
    StandardScalerOnMoments,
)
from accelsk.preprocessing._target_encoding import TargetEncoderOnCupy

if TYPE_CHECKING:
    from sklearn.preprocessing import *  # noqa: F403

__all__, __getattr__, __dir__ = mirror(__name__)


class StandardScaler(Accelerated, _data.StandardScaler, engines=[StandardScalerOnMoments()]): ...


class MinMaxScaler(Accelerated, _data.MinMaxScaler, engines=[MinMaxScalerOnMoments()]): ...


class MaxAbsScaler(Accelerated, _data.MaxAbsScaler, engines=[MaxAbsScalerOnMoments()]): ...


class PolynomialFeatures(
    Accelerated, _polynomial.PolynomialFeatures, engines=[PolynomialFeaturesOnCupy()]
): ...


class OneHotEncoder(Accelerated, _encoders.OneHotEncoder, engines=[OneHotEncoderOnCupy()]): ...


class TargetEncoder(
    Accelerated, _target_encoder.TargetEncoder, engines=[TargetEncoderOnCupy()]
): ...


class LabelEncoder(Accelerated, _label.LabelEncoder, engines=[LabelEncoderOnCupy()]): ...


class LabelBinarizer(Accelerated, _label.LabelBinarizer, engines=[LabelBinarizerOnCupy()]): ...
