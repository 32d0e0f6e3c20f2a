"""Data that arrives on the host goes back there; an array on the device in, an array there out."""

from __future__ import annotations

import sys
import types
from unittest.mock import MagicMock

import device_double
import numpy as np
import pytest
from comparison import assert_same
from engine import GENERIC, AcceleratedLine, AcceleratedNearestMean, Line, LineOnNumpy, engine_of
from sklearn.cluster import KMeans
from sklearn.neighbors import KNeighborsClassifier
from sklearn.preprocessing import StandardScaler

import accelsk
from accelsk.data import describe
from accelsk.device.transfer import is_device_array
from accelsk.engines.base import Outcome


@pytest.fixture(autouse=True)
def _device(monkeypatch):
    device_double.install(monkeypatch)


def _up(value):
    return np.asarray(value).view(device_double.DeviceArray)


class _LineOnDevice(LineOnNumpy):
    """Takes arrays wherever they are and answers on the device."""

    def compute(self, call, model):
        down = {
            name: value.get() if isinstance(value, device_double.DeviceArray) else value
            for name, value in call.arguments.items()
        }
        call.arguments, call._described = down, {}
        outcome = super().compute(call, model)
        call.arguments = {**down, "X": self.given}
        call._described = {}
        return Outcome(None if call.fits else _up(outcome.result), outcome.model)

    def run(self, call, model):
        self.given = call.arguments["X"]
        return super().run(call, model)


_DeviceLine = accelsk.register(Line, [_LineOnDevice()], name="DeviceLine")


def test_host_data_comes_back_to_the_host(data):
    X, y = data
    line = _DeviceLine().fit(X, y)
    predicted = line.predict(X)
    assert_same(predicted, Line().fit(X, y).predict(X))
    assert engine_of(line).counts == {"fit": 1, "predict": 1}


def test_device_data_stays_on_the_device(data):
    X, y = data
    line = _DeviceLine().fit(_up(X), _up(y))
    predicted = line.predict(_up(X))
    assert type(predicted) is device_double.DeviceArray
    assert_same(predicted.get(), Line().fit(X, y).predict(X))
    assert engine_of(line).counts == {"fit": 1, "predict": 1}
    assert type(line.coef_) is np.ndarray


@pytest.mark.parametrize("by_keyword", [True, False])
def test_fallback_takes_device_data_and_answers_there(by_keyword, data):
    X, y = data
    engine_of(AcceleratedLine).refusing = {"*": "not today"}
    line = AcceleratedLine()
    if by_keyword:
        predicted = line.fit(y=_up(y), X=_up(X)).predict(X=_up(X))
    else:
        predicted = line.fit(_up(X), _up(y)).predict(_up(X))
    assert type(predicted) is device_double.DeviceArray
    assert_same(predicted.get(), Line().fit(X, y).predict(X))
    assert type(line.coef_) is np.ndarray


def test_fallback_answers_on_the_host_where_only_the_target_is_on_the_device(data):
    X, y = data
    cls = GENERIC[StandardScaler]
    engine_of(cls).refusing = {"*": "not today"}
    assert type(cls().fit_transform(X, _up(y))) is np.ndarray


def test_fallback_gives_pairs_of_device_arrays(labelled):
    X, y = labelled
    neighbors = GENERIC[KNeighborsClassifier]().fit(X, y)
    engine_of(neighbors).refusing = {"*": "not today"}
    distances, indices = neighbors.kneighbors(_up(X))
    assert type(distances) is type(indices) is device_double.DeviceArray


def test_text_and_numbers_stay_on_the_host(labelled):
    X, y = labelled
    nearest = AcceleratedNearestMean().fit(X, y)
    engine_of(nearest).refusing = {"*": "not today"}
    predicted = nearest.predict(_up(X))
    assert type(predicted) is np.ndarray
    assert predicted.dtype.kind == "U"
    kmeans = GENERIC[KMeans](2, n_init=1).fit(X)
    engine_of(kmeans).refusing = {"*": "not today"}
    assert isinstance(kmeans.score(_up(X)), float)


def test_frames_of_set_output_stay_frames(data):
    pd = pytest.importorskip("pandas")
    scaler = GENERIC[StandardScaler]().set_output(transform="pandas").fit(data[0])
    engine_of(scaler).refusing = {"*": "not today"}
    assert isinstance(scaler.transform(_up(data[0])), pd.DataFrame)


@pytest.mark.parametrize("cupy", [types.ModuleType("cupy"), MagicMock(), None])
def test_nothing_is_on_the_device_before_cupy_is_complete(cupy, data, monkeypatch):
    monkeypatch.setitem(sys.modules, "cupy", cupy)
    assert not is_device_array(data[0])
    line = AcceleratedLine().fit(*data)
    assert type(line.predict(data[0])) is np.ndarray


def test_arrays_are_told_before_sparse_matrices_can_be(data, monkeypatch):
    monkeypatch.setitem(sys.modules, "cupyx.scipy.sparse", types.ModuleType("sparse"))
    assert is_device_array(_up(data[0]))
    assert describe(_up(data[0])).kind == "cupy"
    assert not is_device_array(data[0])
