"""What other libraries have on the device is taken where it is, and answered in kind."""

from __future__ import annotations

import sys
import types

import numpy as np
import pytest
from alike import device  # noqa: F401 - a fixture
from comparison import assert_same
from composites import OnCpu, data, ours, up
from device_double import DeviceArray
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MinMaxScaler, StandardScaler

import accelsk
from accelsk.device.foreign import adopted, in_kind

CPU, CUDA = (1, 0), (2, 0)


class Tensor:
    """As much of a tensor as the protocols ask for."""

    def __init__(self, values, place=CUDA, requires_grad=False):
        self.values = np.asarray(values)
        self.place = place
        self.requires_grad = requires_grad
        self.shape, self.dtype = self.values.shape, self.values.dtype

    def __dlpack_device__(self):
        return self.place

    def __dlpack__(self, **_):
        if self.requires_grad:
            raise BufferError("requires gradient")
        raise NotImplementedError

    def __array__(self, dtype=None, copy=None):
        if self.requires_grad:
            raise TypeError("requires gradient")
        return np.asarray(self.values, dtype)

    def __len__(self):
        return len(self.values)


Tensor.__module__ = "torch"


class Interface:
    """Has the older protocol alone."""

    def __init__(self, values):
        self.values = np.asarray(values)

    @property
    def __cuda_array_interface__(self):
        return {"shape": self.values.shape}

    def __array__(self, dtype=None, copy=None):
        return np.asarray(self.values, dtype)


@pytest.fixture(autouse=True)
def _torch(monkeypatch):
    torch = types.ModuleType("torch")
    torch.from_dlpack = lambda array: Tensor(array.get())
    monkeypatch.setitem(sys.modules, "torch", torch)


@pytest.mark.parametrize("on_cpu", [False, True])
def test_tensors_in_tensors_out(on_cpu):
    X, _ = data(200)
    plain = StandardScaler().fit(X)
    scaler = ours(StandardScaler())
    with accelsk.config_context(device="cpu" if on_cpu else "gpu"):
        assert scaler.fit(Tensor(X)) is scaler
        found = scaler.transform(X=Tensor(X))
    assert type(found) is Tensor
    assert_same(found.values, plain.transform(X))
    assert_same(scaler.mean_, plain.mean_)
    assert type(scaler.transform(X)) is np.ndarray


def test_tensors_through_a_pipeline():
    X, y = data(200)
    plain = make_pipeline(StandardScaler(), OnCpu(), MinMaxScaler(), LogisticRegression())
    pipeline = ours(plain).fit(Tensor(X), Tensor(y))
    found = pipeline.predict_proba(Tensor(X))
    assert type(found) is Tensor
    assert_same(found.values, plain.fit(X, y).predict_proba(X), tolerance=1e-6)
    labels = pipeline.fit(Tensor(X), np.array(["no", "yes"])[y]).predict(Tensor(X))
    assert labels.dtype.kind == "U"
    assert isinstance(pipeline.score(Tensor(X), labels), float)


def test_small_tensors_through_the_cpu():
    X, y = data(20)
    plain = make_pipeline(StandardScaler(), OnCpu(), Ridge()).fit(X, y)
    with accelsk.config_context(device="auto"):
        found = ours(plain).predict(Tensor(X))
    assert type(found) is Tensor
    assert_same(found.values, plain.predict(X))


def test_a_target_alone_may_be_a_tensor():
    X, y = data(200)
    ridge = ours(Ridge()).fit(X, Tensor(y.astype(np.float64)))
    assert type(ridge.predict(X)) is np.ndarray


def test_the_older_protocol_is_answered_with_cupy():
    X, _ = data(200)
    scaler = ours(StandardScaler()).fit(Interface(X))
    assert type(scaler.transform(Interface(X))) is DeviceArray


@pytest.mark.parametrize("tensor", [Tensor([[1.0]], CPU), Tensor([[1.0]], requires_grad=True)])
def test_others_are_left_alone(tensor):
    if tensor.requires_grad:
        with pytest.raises(TypeError, match="requires gradient"):
            ours(StandardScaler()).fit(tensor)
    else:
        with accelsk.config_context(on_fallback="log"):
            assert type(ours(StandardScaler()).fit(tensor).transform(tensor)) is np.ndarray
        assert adopted(tensor) is tensor


@pytest.mark.parametrize(
    "value", [np.ones(3), None, "text", [1, 2], 3.0, np.float64(1), np.ones(3).view(np.recarray)]
)
def test_host_data_are_left_alone(value):
    assert adopted(value) is value


def test_what_a_library_cannot_have_stays_with_cupy(monkeypatch):
    def refuse(_):
        raise TypeError("no such dtype")

    monkeypatch.setattr(sys.modules["torch"], "from_dlpack", refuse)
    result = up(np.ones(3))
    assert in_kind(result, Tensor([1.0])) is result
    both = in_kind((result, "text"), Interface([1.0]))
    assert both[0] is result
    assert both[1] == "text"


# Frames


class Column:
    def __init__(self, values):
        self.values = np.asarray(values)
        self.dtype = self.values.dtype
        self.has_nulls = self.dtype.kind == "f" and bool(np.isnan(self.values).any())
        self.ndim, self.shape = 1, self.values.shape

    def to_cupy(self, dtype=None):
        return up(self.values.astype(dtype))

    def to_pandas(self):
        pd = pytest.importorskip("pandas")
        return pd.Series(self.values)


class Frame:
    """As much of a frame on the device as is used."""

    ndim = 2

    def __init__(self, frame):
        self.frame, self.columns, self.shape = frame, frame.columns, frame.shape

    def __getitem__(self, key):
        if isinstance(key, slice):
            return Frame(self.frame[key])
        return Column(self.frame[key].to_numpy())

    def to_cupy(self, dtype=None):
        return up(self.frame.to_numpy(dtype))

    def to_pandas(self):
        return self.frame.copy()


Column.__module__ = Frame.__module__ = "cudf.core.dataframe"


@pytest.fixture
def frames(monkeypatch):
    cudf = types.ModuleType("cudf")
    cudf.DataFrame, cudf.Series = Frame, Column
    monkeypatch.setitem(sys.modules, "cudf", cudf)


@pytest.mark.usefixtures("frames")
def test_frames_of_numbers_are_answered_on_the_device():
    pd = pytest.importorskip("pandas")
    X, y = data(200)
    frame = pd.DataFrame(X, columns=list("abcdef"))
    frame["whole"] = np.arange(200)
    plain = make_pipeline(StandardScaler(), LogisticRegression()).fit(frame, y)
    pipeline = ours(make_pipeline(StandardScaler(), LogisticRegression()))
    pipeline.fit(Frame(frame), Column(y))
    assert list(pipeline.feature_names_in_) == [*"abcdef", "whole"]
    assert_same(pipeline[0].mean_, plain[0].mean_)
    found = pipeline.predict(Frame(frame))
    assert type(found) is DeviceArray
    assert_same(found.get(), plain.predict(frame))
    assert_same(pipeline.predict(frame), plain.predict(frame))


@pytest.mark.usefixtures("frames")
def test_frames_of_text_and_gaps_are_scikit_learns():
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame({"a": [1.0, np.nan, 3.0], "b": [1.0, 2.0, 3.0]})
    with accelsk.config_context(on_fallback="log"):
        scaler = ours(StandardScaler())
        scaler.fit(Frame(frame))
        assert_same(scaler.mean_, StandardScaler().fit(frame).mean_)
        assert list(scaler.feature_names_in_) == ["a", "b"]
        assert type(scaler.transform(Frame(frame))) is DeviceArray
    with (
        accelsk.config_context(on_fallback="log"),
        pytest.raises(ValueError, match="could not convert string"),
    ):
        ours(StandardScaler()).fit(Frame(pd.DataFrame({"a": ["x", "y"]})))
