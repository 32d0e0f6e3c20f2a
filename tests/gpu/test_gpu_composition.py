"""Pipelines, column transformers and meta-estimators on the GPU: values, and what is moved."""

from __future__ import annotations

import subprocess
import sys
import warnings

import numpy as np
import pytest
from comparison import assert_same
from composites import PIPELINES, TRANSFORMERS, answers, data, frame, moved, ours, up
from meta_estimators import CASES, case_data
from meta_estimators import answers as meta_answers
from meta_estimators import ours as meta_ours
from scipy import sparse
from sklearn.base import clone
from sklearn.compose import TransformedTargetRegressor
from sklearn.decomposition import PCA
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MinMaxScaler, StandardScaler

import accelsk
from accelsk.device.transfer import is_device_array

# in one worker process, which compiles what all of them need
pytestmark = [pytest.mark.gpu, pytest.mark.xdist_group("composition")]


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("name", PIPELINES)
def test_pipelines_answer_as_scikit_learns(name, dtype, on_gpu):
    X, y = data(400, dtype=dtype)
    plain = clone(PIPELINES[name])
    pipeline = ours(clone(plain))
    plain.fit(X, y)
    with on_gpu.allowed():
        pipeline.fit(X, y)
        found = dict(answers(pipeline, X, y))
        there = dict(answers(pipeline, up(X), up(y)))
    for method, expected in answers(plain, X, y):
        tolerance = 2e-3 if dtype == np.float32 else 1e-6
        assert_same(found[method], expected, method, tolerance)
        if isinstance(expected, np.ndarray):
            assert is_device_array(there[method]), method
            assert_same(there[method].get(), expected, method, tolerance)
    on_gpu.expected = False


def test_one_upload_of_x_and_one_download_of_the_result():
    X, y = data(60_000, 100, np.float32)  # 24 MB: it travels in blocks
    pipeline = ours(make_pipeline(StandardScaler(), PCA(8), LogisticRegression(max_iter=500)))
    small = 200_000  # a covariance, statistics of columns, coefficients
    with moved() as fit:
        pipeline.fit(X, y)
    assert X.nbytes <= fit.uploaded <= X.nbytes + y.nbytes + small
    assert fit.downloaded <= small
    with moved() as predict:
        labels = pipeline.predict(X)
    assert X.nbytes <= predict.uploaded <= X.nbytes + small
    assert predict.downloaded == labels.nbytes
    with moved() as transform:
        rows = pipeline[:-1].transform(X)
    assert transform.uploaded <= X.nbytes + small
    assert transform.downloaded == rows.nbytes


@pytest.mark.parametrize("name", TRANSFORMERS)
def test_column_transformers_answer_as_scikit_learns(name, on_gpu):
    X, _ = frame()
    plain = clone(TRANSFORMERS[name])
    transformer = ours(clone(plain))
    with on_gpu.allowed():
        for call in ("fit_transform", "transform"):
            found, expected = getattr(transformer, call)(X), getattr(plain, call)(X)
            assert type(found) is type(expected)
            if sparse.issparse(expected):
                found, expected = found.toarray(), expected.toarray()
            assert_same(found, expected)
    on_gpu.expected = False


def test_blocks_are_joined_on_the_device(on_gpu):
    X, y = frame(20_000)
    plain = make_pipeline(clone(TRANSFORMERS["the rest passed through"]), Ridge())
    pipeline = ours(clone(plain))
    numbers = X.drop(columns="text").to_numpy(np.float64).nbytes
    with moved() as fit:
        pipeline.fit(X, y)
    assert fit.uploaded <= numbers + y.nbytes + 20_000
    assert fit.downloaded <= 20_000
    assert_same(pipeline.predict(X), plain.fit(X, y).predict(X))


def test_transformed_targets_stay_in_kind():
    X, _ = data(400)
    y = X[:, 0] * 3 + 1
    plain = TransformedTargetRegressor(
        make_pipeline(StandardScaler(), Ridge()), transformer=MinMaxScaler()
    )
    regressor = ours(clone(plain)).fit(up(X), up(y))
    predicted = regressor.predict(up(X))
    assert is_device_array(predicted)
    assert_same(predicted.get(), plain.fit(X, y).predict(X))


@pytest.mark.parametrize("name", CASES)
def test_meta_estimators_work_unchanged(name, on_gpu):
    plain, kind = CASES[name]
    X, y = case_data(kind)
    expected = meta_answers(clone(plain).fit(X, y), X)
    with on_gpu.allowed() as results:
        found = meta_answers(meta_ours(plain).fit(X, y), X)
    assert any(stats.gpu_calls for stats in results.method_calls.values())
    on_gpu.expected = False
    assert_same(found, expected, name, tolerance=2e-5)


# Arrays of other libraries


@pytest.mark.parametrize("dtype", ["float32", "float64", "int32"])
def test_tensors_in_tensors_out(dtype):
    torch = pytest.importorskip("torch")
    X, y = data(400)
    X = (X * 10).astype(dtype)
    plain = make_pipeline(StandardScaler(), LogisticRegression()).fit(X.astype(np.float64), y)
    pipeline = ours(make_pipeline(StandardScaler(), LogisticRegression()))
    rows, target = torch.from_numpy(X).cuda(), torch.from_numpy(y).cuda()
    found = pipeline.fit(rows, target).predict_proba(rows)
    assert type(found) is torch.Tensor
    assert found.is_cuda
    np.testing.assert_allclose(found.cpu().numpy(), plain.predict_proba(X), atol=2e-3)
    assert type(pipeline[0].mean_) is np.ndarray
    assert pipeline.score(rows, target) == pytest.approx(plain.score(X, y), abs=0.01)
    scaler = ours(StandardScaler()).fit(rows)
    assert scaler.transform(rows).device == rows.device
    assert type(scaler.transform(X)) is np.ndarray


def test_tensors_that_are_not_handed_out_are_scikit_learns(on_gpu):
    torch = pytest.importorskip("torch")
    X, _ = data(400)
    with pytest.raises((TypeError, RuntimeError)):
        ours(StandardScaler()).fit(torch.from_numpy(X).cuda().requires_grad_())
    with on_gpu.falls_back("plain array"):
        assert type(ours(StandardScaler()).fit_transform(torch.from_numpy(X))) is np.ndarray


def test_frames_of_cudf_are_taken_with_their_names():
    cudf = pytest.importorskip("cudf")
    import pandas as pd

    X, y = data(400)
    plain_frame = pd.DataFrame(X, columns=list("abcdef"))
    plain_frame["whole"] = np.arange(400)
    plain = make_pipeline(StandardScaler(), LogisticRegression()).fit(plain_frame, y)
    given = cudf.from_pandas(plain_frame)
    pipeline = ours(make_pipeline(StandardScaler(), LogisticRegression()))
    found = pipeline.fit(given, cudf.Series(y)).predict_proba(given)
    assert is_device_array(found)
    assert_same(found.get(), plain.predict_proba(plain_frame), tolerance=1e-6)
    assert list(pipeline.feature_names_in_) == list(plain_frame.columns)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert_same(pipeline.predict(plain_frame), plain.predict(plain_frame))


_CUDF_PANDAS = """
import cudf.pandas
cudf.pandas.install()
import numpy as np
import pandas as pd
import accelsk
from accelsk.linear_model import LogisticRegression
from accelsk.pipeline import make_pipeline
from accelsk.preprocessing import StandardScaler

accelsk.set_config(device="gpu", on_fallback="raise")
X = np.random.default_rng(0).normal(size=(400, 3))
frame = pd.DataFrame(X, columns=list("abc"))
pipeline = make_pipeline(StandardScaler(), LogisticRegression())
predicted = pipeline.fit(frame, pd.Series((X[:, 0] > 0).astype(int))).predict(frame)
assert isinstance(predicted, np.ndarray)
print(list(pipeline.feature_names_in_), (predicted == (X[:, 0] > 0)).mean() > 0.9)
"""


def test_frames_of_cudf_pandas_are_taken_as_pandas():
    pytest.importorskip("cudf")
    ours(StandardScaler()).fit(data(10)[0])
    done = subprocess.run(
        [sys.executable, "-c", _CUDF_PANDAS],
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.stdout.splitlines()[-1:] == ["['a', 'b', 'c'] True"], done.stderr[-2000:]
    assert accelsk.enabled()
