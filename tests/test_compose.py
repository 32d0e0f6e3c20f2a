"""Column transformers join on the device what stays there; targets may be transformed."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest
from alike import device  # noqa: F401 - a fixture
from comparison import assert_same, fitted, outcome_of
from composites import TRANSFORMERS, OnCpu, data, frame, moved, ours, up
from device_double import DeviceArray
from scipy import sparse
from sklearn.base import clone
from sklearn.compose import ColumnTransformer, TransformedTargetRegressor
from sklearn.linear_model import LinearRegression, LogisticRegression, Ridge
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import (
    FunctionTransformer,
    MinMaxScaler,
    StandardScaler,
)

import accelsk
import accelsk.compose
import accelsk.pipeline
import accelsk.preprocessing
from accelsk.profiling.events import listening

pd = pytest.importorskip("pandas")


def _dense(value):
    return value.toarray() if sparse.issparse(value) else value


@pytest.fixture
def _falling_back():
    with accelsk.config_context(on_fallback="log"):
        yield


@pytest.mark.parametrize("name", TRANSFORMERS)
def test_answers_are_scikit_learns(name):
    X, _ = frame()
    plain = clone(TRANSFORMERS[name])
    transformer = ours(clone(plain))
    with accelsk.config_context(on_fallback="log"):
        found, expected = transformer.fit_transform(X), plain.fit_transform(X)
        assert type(found) is type(expected)
        assert_same(_dense(found), _dense(expected))
        assert_same(_dense(transformer.transform(X)), _dense(plain.transform(X)))
        assert_same(transformer.get_feature_names_out(), plain.get_feature_names_out())
    assert fitted(transformer).keys() == fitted(plain).keys()
    for attribute in ("output_indices_", "sparse_output_"):
        assert getattr(transformer, attribute, None) == getattr(plain, attribute, None)
    assert_same(list(transformer.feature_names_in_), list(plain.feature_names_in_))


@pytest.mark.parametrize("name", [name for name in TRANSFORMERS if name != "nothing"])
def test_a_step_of_a_pipeline(name):
    X, y = frame()
    plain = make_pipeline(clone(TRANSFORMERS[name]), LogisticRegression(max_iter=1000))
    pipeline = ours(clone(plain))
    with accelsk.config_context(on_fallback="log"):
        pipeline.fit(X, y)
        plain.fit(X, y)
        assert_same(pipeline.predict(X), plain.predict(X))
        assert_same(pipeline.predict_proba(X), plain.predict_proba(X), tolerance=1e-4)


def test_frames_of_numbers_alone_keep_their_names():
    X, y = frame()
    X = X.drop(columns=["text", "whole"])
    plain = make_pipeline(clone(TRANSFORMERS["numbers"]), Ridge())
    pipeline = ours(clone(plain)).fit(X, y)
    assert_same(pipeline.predict(X), plain.fit(X, y).predict(X))
    search = GridSearchCV(plain, {"ridge__alpha": [0.1, 10.0]}, cv=3)
    found, expected = ours(search).fit(X, y), search.fit(X, y)
    assert found.best_params_ == expected.best_params_
    assert_same(found.cv_results_["mean_test_score"], expected.cv_results_["mean_test_score"])


def test_blocks_are_joined_on_the_device():
    X, y = frame(3000)
    plain = make_pipeline(clone(TRANSFORMERS["the rest passed through"]), Ridge())
    pipeline = ours(clone(plain))
    numbers = X.drop(columns="text").to_numpy(np.float64).nbytes
    small = 6000
    with moved() as fit:
        pipeline.fit(X, y)
    assert fit.uploaded <= numbers + y.nbytes + small
    assert fit.downloaded <= small
    with moved() as predict:
        predicted = pipeline.predict(X)
    assert predict.uploaded <= numbers + small
    assert predict.downloaded == predicted.nbytes
    events = []
    with listening(events.append), moved() as again:
        pipeline.predict(X)
    assert again.uploaded == sum(event.uploaded for event in events)
    assert [event.name for event in events] == [
        *("StandardScaler.transform", "ColumnTransformer.transform", "Ridge.predict")
    ]
    assert_same(predicted, plain.fit(X, y).predict(X))


def test_data_on_the_device_stay_there():
    X, _ = data(400)
    plain = ColumnTransformer(
        [("s", StandardScaler(), [0, 1]), ("m", MinMaxScaler(), slice(2, 4))],
        remainder="passthrough",
    )
    transformer = ours(clone(plain))
    for found in (transformer.fit_transform(up(X)), transformer.transform(up(X))):
        assert type(found) is DeviceArray
        assert_same(found.get(), plain.fit_transform(X))
    assert type(transformer.transform(X)) is np.ndarray


@pytest.mark.parametrize("columns", [[1], lambda X: type(X) is np.ndarray and [1]])
def test_what_is_on_the_cpu_gets_host_data(columns):
    X, _ = data(400)
    plain = ColumnTransformer([("s", StandardScaler(), [0]), ("c", OnCpu(), columns)])
    found = ours(clone(plain)).fit_transform(up(X))
    assert type(found) is DeviceArray
    assert_same(found.get(), plain.fit_transform(X))


def test_frames_of_set_output():
    X, _ = frame()
    plain = clone(TRANSFORMERS["dense categories"]).set_output(transform="pandas")
    found = ours(clone(plain)).set_output(transform="pandas").fit_transform(X)
    pd.testing.assert_frame_equal(found, plain.fit_transform(X))
    # of one block only
    plain = clone(TRANSFORMERS["numbers"])
    transformer = ours(clone(plain))
    for one in (transformer, plain):
        one.transformers[0][1].set_output(transform="pandas")
    assert_same(transformer.fit_transform(X), plain.fit_transform(X))


@pytest.mark.usefixtures("_falling_back")
def test_errors_are_scikit_learns():
    X, _ = frame()
    cases = [
        ColumnTransformer([("s", StandardScaler(), ["none"])]),
        ColumnTransformer([("s", StandardScaler(), "c0")]),
        ColumnTransformer([("s", StandardScaler(), ["text"])]),
        ColumnTransformer([("s", 3, ["c0"])]),
        ColumnTransformer([("s", StandardScaler, ["c0"])]),
        ColumnTransformer([("s",)]),
        ColumnTransformer(None),
        ColumnTransformer([("s", FunctionTransformer(lambda X: X[:5]), ["c0"]),
                           ("m", MinMaxScaler(), ["c1"])]),
    ]  # fmt: skip
    for plain in cases:
        expected = outcome_of(lambda p=plain: copy.deepcopy(p).fit_transform(X))[1]
        assert expected is not None
        assert outcome_of(lambda p=plain: ours(p).fit_transform(X))[1] == expected
        pipeline = accelsk.pipeline.make_pipeline(ours(plain), ours(Ridge()))
        found = outcome_of(lambda p=pipeline: p.fit(X, X["c0"]))[1]
        assert found[0] is expected[0]


def test_functions_and_classes_are_accelsks():
    transformer = accelsk.compose.make_column_transformer(
        (StandardScaler(), ["c0"]), remainder="passthrough", n_jobs=1
    )
    assert type(transformer) is accelsk.compose.ColumnTransformer
    assert transformer.remainder == "passthrough"
    X, _ = frame()
    transformer.fit(X[["c0", "c1"]])
    again = pickle.loads(pickle.dumps(transformer))
    assert type(again) is accelsk.compose.ColumnTransformer
    assert_same(again.transform(X[["c0", "c1"]]), transformer.transform(X[["c0", "c1"]]))
    assert repr(transformer) == repr(accelsk.to_sklearn(transformer))
    assert transformer["standardscaler"].mean_.shape == (1,)


# Transformed targets

REGRESSORS = {
    "function": TransformedTargetRegressor(
        make_pipeline(StandardScaler(), Ridge()), func=np.cbrt, inverse_func=lambda y: y**3
    ),
    "transformer": TransformedTargetRegressor(
        make_pipeline(StandardScaler(), Ridge()), transformer=MinMaxScaler()
    ),
    "one estimator": TransformedTargetRegressor(LinearRegression(), transformer=StandardScaler()),
    "nothing": TransformedTargetRegressor(Ridge()),
}


@pytest.mark.parametrize("there", [False, True])
@pytest.mark.parametrize("name", REGRESSORS)
def test_transformed_targets(name, there):
    X, _ = data(400)
    y = X[:, 0] * 3 + 1
    plain = clone(REGRESSORS[name]).fit(X, y)
    regressor = ours(clone(plain))
    take = up if there else np.asarray
    assert regressor.fit(take(X), take(y)) is regressor
    predicted = regressor.predict(take(X))
    assert type(predicted) is (DeviceArray if there else np.ndarray)
    assert_same(np.asarray(predicted), plain.predict(X))
    assert regressor.score(take(X), take(y)) == pytest.approx(plain.score(X, y))


def test_a_transformed_target_as_a_step():
    X, _ = data(3000)
    y = X[:, 0] * 3 + 1
    plain = make_pipeline(
        StandardScaler(), TransformedTargetRegressor(Ridge(), transformer=StandardScaler())
    )
    pipeline = ours(clone(plain))
    small = 3000
    with moved() as fit:
        pipeline.fit(X, y)
    assert fit.uploaded <= X.nbytes + 3 * y.nbytes + small
    assert_same(pipeline.predict(X), plain.fit(X, y).predict(X))
