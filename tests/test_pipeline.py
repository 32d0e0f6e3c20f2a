"""Accelerated steps hand each other what is on the device; everything else is scikit-learn's."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from pathlib import Path

import joblib
import numpy as np
import pytest
import sklearn
from alike import device  # noqa: F401 - a fixture
from comparison import assert_same, outcome_of
from composites import PIPELINES, OnCpu, answers, data, moved, ours, up
from device_double import DeviceArray
from sklearn import pipeline as sk
from sklearn.base import clone
from sklearn.cluster import KMeans
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.pipeline import make_pipeline, make_union
from sklearn.preprocessing import (
    FunctionTransformer,
    MinMaxScaler,
    PolynomialFeatures,
    StandardScaler,
)

import accelsk
import accelsk.linear_model
import accelsk.pipeline
import accelsk.preprocessing
from accelsk import registry, residency
from accelsk.costs import Expected, chain, startup
from accelsk.device import probe
from accelsk.dispatch import method_of
from accelsk.engines.base import Engine
from accelsk.exceptions import Refusal
from accelsk.profiling.events import listening

ROOT = Path(__file__).parent.parent


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("name", PIPELINES)
def test_every_method_answers_as_scikit_learns(name, dtype):
    X, y = data(400, dtype=dtype)
    plain = clone(PIPELINES[name])
    with accelsk.config_context(on_fallback="log"):
        pipeline = ours(plain)
        assert pipeline.fit(X, y) is pipeline
        plain.fit(X, y)
        expected = dict(answers(plain, X, y))
        found = dict(answers(pipeline, X, y))
    assert found.keys() == expected.keys()
    for method, value in expected.items():
        assert_same(found[method], value, method, 2e-3 if dtype == np.float32 else 1e-6)


@pytest.mark.parametrize("name", PIPELINES)
def test_data_on_the_device_stay_there(name):
    X, y = data(400)
    with accelsk.config_context(on_fallback="log"):
        pipeline, plain = ours(clone(PIPELINES[name])), clone(PIPELINES[name]).fit(X, y)
        pipeline.fit(up(X), up(y))
        for method, expected in answers(plain, X, y):
            arguments = (up(X), up(y)) if method == "score" else (up(X),)
            found = getattr(pipeline, method)(*arguments)
            if isinstance(expected, np.ndarray):
                assert type(found) is DeviceArray, method
                found = found.get()
            assert_same(found, expected, method, 1e-6)


def test_arguments_by_name():
    X, y = data(400)
    plain = clone(PIPELINES["on the CPU between"])
    pipeline = ours(clone(plain)).fit(X=X, y=up(y))
    plain.fit(X=X, y=y)
    assert_same(pipeline.predict(X=X), plain.predict(X=X))
    assert type(pipeline.predict(X=up(X))) is DeviceArray
    assert pipeline.score(X=up(X), y=y) == pipeline.score(y=y, X=X) == plain.score(X=X, y=y)


@pytest.mark.parametrize("y_there", [True, False])
def test_targets_on_either_side_are_taken(y_there):
    X, y = data(400)
    for plain in (PIPELINES["all"], PIPELINES["on the CPU between"]):
        pipeline = ours(clone(plain)).fit(X if y_there else up(X), up(y) if y_there else y)
        assert_same(pipeline.predict(X), clone(plain).fit(X, y).predict(X))


def test_fit_transform_and_fit_predict_give_what_scikit_learn_gives():
    X, y = data(400)
    plain = make_pipeline(StandardScaler(), MinMaxScaler(), PolynomialFeatures(2))
    assert_same(ours(clone(plain)).fit_transform(X, y), plain.fit_transform(X, y))
    found = ours(clone(plain)).fit_transform(up(X))
    assert type(found) is DeviceArray
    with accelsk.config_context(on_fallback="log"):
        plain = make_pipeline(StandardScaler(), KMeans(3, n_init=1, random_state=0))
        assert_same(ours(clone(plain)).fit_predict(X), plain.fit_predict(X))
    scaled = make_pipeline(StandardScaler(), MinMaxScaler(), "passthrough")
    assert_same(ours(clone(scaled)).fit_transform(X), scaled.fit_transform(X))
    assert_same(ours(clone(scaled)).fit(X).transform(X), scaled.fit(X).transform(X))


def test_inverse_transform_goes_back_on_the_device():
    X, _ = data(400)
    plain = make_pipeline(StandardScaler(), MinMaxScaler()).fit(X)
    pipeline = ours(clone(plain)).fit(X)
    coordinates = pipeline.transform(X)
    with moved() as bytes_:
        back = pipeline.inverse_transform(coordinates)
    assert_same(back, plain.inverse_transform(coordinates))
    assert bytes_.uploaded < 1.2 * X.nbytes
    assert bytes_.downloaded == X.nbytes
    plain = make_pipeline(StandardScaler(), OnCpu(), MinMaxScaler()).fit(X)
    assert_same(ours(plain).inverse_transform(coordinates), plain.inverse_transform(coordinates))


# What travels


def test_one_upload_of_x_and_one_download_of_the_result():
    X, y = data(6000, 40, np.float32)
    pipeline = accelsk.pipeline.make_pipeline(
        accelsk.preprocessing.StandardScaler(),
        accelsk.preprocessing.MinMaxScaler(),
        accelsk.linear_model.LogisticRegression(max_iter=5),
    )
    small = 6000  # statistics of columns, coefficients, codes of the labels
    with moved() as fit, pytest.warns(sklearn.exceptions.ConvergenceWarning):
        pipeline.fit(X, y)
    assert X.nbytes <= fit.uploaded <= X.nbytes + y.nbytes + small
    assert fit.downloaded <= small
    with moved() as predict:
        labels = pipeline.predict(X)
    assert X.nbytes <= predict.uploaded <= X.nbytes + small
    assert predict.downloaded == labels.nbytes
    with moved() as proba:
        probabilities = pipeline.predict_proba(X)
    assert proba.downloaded == probabilities.nbytes
    with moved() as score:
        pipeline.score(X, y)
    assert score.uploaded <= X.nbytes + y.nbytes + small


def test_the_cpu_in_between_costs_one_way_each():
    X, y = data(3000, 20)
    pipeline = ours(make_pipeline(StandardScaler(), OnCpu(), MinMaxScaler(), Ridge())).fit(X, y)
    with moved() as predict:
        predicted = pipeline.predict(X)
    small = 1000
    assert 2 * X.nbytes <= predict.uploaded <= 2 * X.nbytes + small
    assert predict.downloaded == X.nbytes + predicted.nbytes


def test_a_union_shares_its_data():
    X, y = data(3000, 20)
    union = make_union(StandardScaler(), MinMaxScaler(), make_pipeline(StandardScaler()))
    pipeline = ours(make_pipeline(union, Ridge()))
    small = 9000
    with moved() as fit:
        pipeline.fit(X, y.astype(np.float64))
    assert fit.uploaded <= X.nbytes + y.nbytes + small
    assert fit.downloaded <= small
    with moved() as predict:
        predicted = pipeline.predict(X)
    assert predict.uploaded <= X.nbytes + small
    assert predict.downloaded == predicted.nbytes


def test_what_is_too_large_for_the_device_comes_and_goes():
    X, y = data(3000, 20)
    plain = make_pipeline(StandardScaler(), StandardScaler(), Ridge())
    pipeline = ours(clone(plain))
    with accelsk.config_context(device_memory_limit=3 * X.nbytes), moved() as bytes_:
        pipeline.fit(X, y)
        predicted = pipeline.predict(X)
    assert bytes_.downloaded >= 4 * X.nbytes
    assert_same(predicted, plain.fit(X, y).predict(X))


def test_targets_go_up_once_where_steps_share_them(monkeypatch):
    X, y = data(400)
    seen = []
    original = residency.Part.prepared

    def prepared(part, args, kwargs):
        args, kwargs = original(part, args, kwargs)
        seen.append(args[1])
        return args, kwargs

    monkeypatch.setattr(residency.Part, "prepared", prepared)
    ours(make_pipeline(StandardScaler(), MinMaxScaler(), LogisticRegression())).fit(X, y)
    assert len(seen) == 3
    assert len({id(target) for target in seen}) == 1
    assert seen[0].shape == y.shape
    seen.clear()
    ours(make_pipeline(StandardScaler(), OnCpu(), LogisticRegression())).fit(X, y)
    assert len({id(target) for target in seen}) == 2  # whoever comes between might have changed it


# What is not accelsk's gets what scikit-learn gives it


def test_a_step_on_the_cpu_gets_the_callers_own_objects():
    X, y = data(400)
    pipeline = ours(make_pipeline(OnCpu(), StandardScaler(), LogisticRegression())).fit(X, y)
    assert pipeline[0].given_ == [np.ndarray, np.ndarray, type(None)]
    with accelsk.config_context(on_fallback="log"):
        pipeline.fit(up(X), up(y))
    assert pipeline[0].given_ == [np.ndarray, np.ndarray, type(None)]


class _Subclass(accelsk.preprocessing.MinMaxScaler):
    def transform(self, X):
        assert type(X) is np.ndarray
        return super().transform(X)


class _SubclassOfPipeline(accelsk.pipeline.Pipeline):
    def _iter(self, *args, **kwargs):
        self.asked_ = True
        return super()._iter(*args, **kwargs)


def test_a_users_subclass_gets_host_data():
    X, y = data(400)
    pipeline = accelsk.pipeline.make_pipeline(
        accelsk.preprocessing.StandardScaler(), _Subclass(), accelsk.linear_model.Ridge()
    )
    plain = make_pipeline(StandardScaler(), MinMaxScaler(), Ridge()).fit(X, y)
    with accelsk.config_context(on_fallback="log"):
        assert_same(pipeline.fit(X, y).predict(X), plain.predict(X))


def test_a_users_subclass_of_the_pipeline_runs_its_own_code():
    X, y = data(400)
    steps = ours(make_pipeline(StandardScaler(), Ridge())).steps
    pipeline = _SubclassOfPipeline(steps).fit(X, y)
    assert pipeline.asked_
    plain = make_pipeline(StandardScaler(), Ridge()).fit(X, y)
    assert_same(pipeline.predict(X), plain.predict(X))


def test_a_method_put_into_an_instance_is_obeyed():
    X, y = data(400)
    pipeline = ours(make_pipeline(StandardScaler(), MinMaxScaler(), Ridge())).fit(X, y)
    seen = []

    def transform(data):
        seen.append(type(data))
        return data

    pipeline[1].transform = transform
    pipeline.predict(X)
    assert seen == [np.ndarray]


class _Nosy(OnCpu):
    """Calls other steps of its pipeline."""

    def __init__(self, other=None):
        self.other = other
        self.factor = 1.0

    def transform(self, X):
        result = super().transform(X)
        self.seen_ = type(self.other.transform(X))
        return result


def test_whoever_calls_a_step_from_outside_gets_host_data():
    X, y = data(400)
    scaler = accelsk.preprocessing.StandardScaler()
    nosy = _Nosy(scaler)
    pipeline = accelsk.pipeline.make_pipeline(
        scaler, accelsk.preprocessing.MinMaxScaler(), nosy, accelsk.linear_model.Ridge()
    )
    pipeline.fit(X, y).predict(X)
    assert nosy.seen_ is np.ndarray


def test_the_same_step_twice():
    X, _ = data(400)
    scaler, plain = accelsk.preprocessing.MinMaxScaler(), MinMaxScaler()
    twice = accelsk.pipeline.Pipeline([("a", scaler), ("b", scaler), ("c", "passthrough")])
    expected = sk.Pipeline([("a", plain), ("b", plain), ("c", "passthrough")])
    assert_same(twice.fit_transform(X), expected.fit_transform(X))
    assert_same(twice.transform(X), expected.transform(X))


def test_a_cache_holds_what_scikit_learn_would_cache(tmp_path):
    X, y = data(400)
    plain = make_pipeline(StandardScaler(), MinMaxScaler(), Ridge(), memory=str(tmp_path / "a"))
    pipeline = ours(clone(plain)).set_params(memory=joblib.Memory(tmp_path / "b", verbose=0))
    plain.fit(X, y)
    for _ in range(2):
        pipeline.fit(X, y)
        assert_same(pipeline.predict(X), plain.predict(X))
    found = [type(joblib.load(path)[0]).__module__ for path in (tmp_path / "b").rglob("output.pkl")]
    assert found == ["numpy", "numpy"]
    pipeline.fit(up(X), up(y))
    assert type(pipeline.predict(up(X))) is DeviceArray


@pytest.mark.parametrize("container", ["pandas", "polars"])
def test_frames_of_set_output(container):
    pytest.importorskip(container)
    X, _ = data(400)
    plain = make_pipeline(StandardScaler(), MinMaxScaler(), make_union(MinMaxScaler()))
    plain.set_output(transform=container)
    pipeline = ours(clone(plain)).set_output(transform=container)
    found, expected = pipeline.fit_transform(X), plain.fit_transform(X)
    assert type(found) is type(expected)
    assert list(found.columns) == list(expected.columns)
    np.testing.assert_allclose(np.asarray(found), np.asarray(expected), atol=1e-12)
    # a frame in the middle only
    pipeline, plain = (
        make(StandardScaler=s, MinMaxScaler=m)
        for make, s, m in (
            (_framed, accelsk.preprocessing.StandardScaler, accelsk.preprocessing.MinMaxScaler),
            (_framed, StandardScaler, MinMaxScaler),
        )
    )
    assert_same(pipeline.fit_transform(X), plain.fit_transform(X))
    assert list(pipeline[-1].feature_names_in_) == list(plain[-1].feature_names_in_)


def _framed(StandardScaler, MinMaxScaler):
    cls = accelsk.pipeline.Pipeline if "accelsk" in MinMaxScaler.__module__ else sk.Pipeline
    return cls([("s", StandardScaler().set_output(transform="pandas")), ("m", MinMaxScaler())])


def test_names_of_features():
    pd = pytest.importorskip("pandas")
    X, y = data(400)
    frame = pd.DataFrame(X, columns=[f"c{i}" for i in range(X.shape[1])])
    plain = make_pipeline(StandardScaler(), MinMaxScaler(), LogisticRegression())
    pipeline = ours(clone(plain)).fit(frame, y)
    plain.fit(frame, y)
    assert_same(pipeline[:-1].get_feature_names_out(), plain[:-1].get_feature_names_out())
    assert list(pipeline.feature_names_in_) == list(plain.feature_names_in_)
    assert [hasattr(s, "feature_names_in_") for _, s in pipeline.steps] == [
        hasattr(s, "feature_names_in_") for _, s in plain.steps
    ]
    for function in (pipeline.predict, plain.predict):
        assert [message for _, message in outcome_of(lambda f=function: f(X))[2]] == [
            "X does not have valid feature names, but StandardScaler was fitted with feature names"
        ]


def test_names_of_what_is_passed_through():
    pd = pytest.importorskip("pandas")
    X, y = data(400)
    frame = pd.DataFrame(X, columns=[f"c{i}" for i in range(X.shape[1])])
    plain = clone(PIPELINES["weighted union"])
    pipeline = ours(clone(plain)).fit(frame, y)
    plain.fit(frame, y)
    assert_same(pipeline[:-1].get_feature_names_out(), plain[:-1].get_feature_names_out())
    assert_same(pipeline.predict(frame), plain.predict(frame))


def test_messages(capsys):
    X, y = data(400)
    plain = make_pipeline(StandardScaler(), "passthrough", MinMaxScaler(), Ridge(), verbose=True)
    ours(clone(plain)).fit(X, y)
    found = capsys.readouterr().out
    plain.fit(X, y)
    expected = capsys.readouterr().out
    strip = [line.partition(", total")[0] for line in found.splitlines()]
    assert strip == [line.partition(", total")[0] for line in expected.splitlines()]


def test_weights_are_routed():
    X, y = data(400)
    weight = np.linspace(0.1, 2, len(y))
    plain = make_pipeline(StandardScaler(), MinMaxScaler(), LogisticRegression())
    arguments = {
        "logisticregression__sample_weight": weight,
        "standardscaler__sample_weight": weight,
    }
    pipeline = ours(clone(plain)).fit(X, y, **arguments)
    plain.fit(X, y, **arguments)
    assert_same(pipeline.predict_proba(X), plain.predict_proba(X), tolerance=1e-6)
    assert_same(pipeline.score(X, y, sample_weight=weight), plain.score(X, y, sample_weight=weight))


def _weighted(namespace, OnCpu):
    return [
        ("s", namespace.StandardScaler().set_fit_request(sample_weight=True)),
        ("c", OnCpu().set_fit_request(sample_weight=True)),
        ("m", namespace.MinMaxScaler()),
    ]


def test_metadata_are_routed():
    X, y = data(400)
    weight = np.linspace(0.1, 2, len(y))
    with sklearn.config_context(enable_metadata_routing=True):
        plain = sk.Pipeline(
            [
                *_weighted(sklearn.preprocessing, OnCpu),
                ("r", Ridge().set_fit_request(sample_weight=True)),
            ]
        )
        pipeline = ours(clone(plain)).fit(X, y, sample_weight=weight)
        plain.fit(X, y, sample_weight=weight)
        assert pipeline[1].given_ == [np.ndarray] * 3
        assert_same(pipeline.predict(X), plain.predict(X))


class _Early(OnCpu):
    """Takes a validation set."""

    def fit(self, X, y=None, X_val=None):
        self.val_ = X_val
        return super().fit(X, y)


def test_transform_input():
    X, y = data(400)
    with sklearn.config_context(enable_metadata_routing=True):
        steps = [
            ("s", StandardScaler()),
            ("m", MinMaxScaler()),
            ("e", _Early().set_fit_request(X_val=True)),
        ]
        plain = sk.Pipeline(steps, transform_input=["X_val"])
        pipeline = ours(clone(plain)).fit(X, y, X_val=X[:50])
        plain.fit(X, y, X_val=X[:50])
    assert_same(pipeline[-1].val_, plain[-1].val_)


def test_callbacks_see_what_scikit_learn_shows_them():
    if not hasattr(sk.Pipeline, "set_callbacks"):
        pytest.skip("scikit-learn has no callbacks")
    X, y = data(400)
    seen = []

    class Callback:
        def setup(self, *args, **_):
            pass

        def teardown(self, *args, **_):
            pass

        def on_fit_task_begin(self, *args, X=None, **_):
            seen.append(type(X))

        def on_fit_task_end(self, *args, X=None, **_):
            seen.append(type(X))

    pipeline = ours(make_pipeline(StandardScaler(), MinMaxScaler(), Ridge()))
    pipeline.set_callbacks(Callback()).fit(X, y)
    assert set(seen) == {np.ndarray}


def test_errors_are_scikit_learns():
    X, y = data(400)
    classes = [("a", StandardScaler), ("b", Ridge())]
    for steps in (
        [],
        classes,
        [("a", StandardScaler())] * 2,
        [("a", 3), ("b", Ridge())],
        None,
        [("a",)],
    ):
        expected = outcome_of(lambda s=steps: sk.Pipeline(s).fit(X, y))[1]
        assert outcome_of(lambda s=steps: accelsk.pipeline.Pipeline(s).fit(X, y))[1] == expected
    broken = np.where(np.arange(X.size).reshape(X.shape) == 7, np.inf, X)
    for given in (broken, X[:, 0], "no data", X[:0]):
        plain = make_pipeline(StandardScaler(), MinMaxScaler(), Ridge())
        expected = outcome_of(lambda g=given, p=plain: p.fit(g, y))[1]
        assert outcome_of(lambda g=given, p=plain: ours(clone(p)).fit(g, y))[1] == expected
    unfitted = make_pipeline(StandardScaler(), Ridge())
    assert (
        outcome_of(lambda: ours(unfitted).predict(X))[1]
        == outcome_of(lambda: unfitted.predict(X))[1]
    )


# Calls that fall back


class _Refusing(Engine):
    """Says at the last moment that it cannot."""

    name = "test"
    methods = ("fit", "fit_transform", "transform")

    def unusable(self):
        return None

    def run(self, call, model):
        raise Refusal("not today")

    def attributes(self, estimator, model):
        raise AssertionError

    def restore(self, estimator):
        return None


_Reluctant = accelsk.register(MinMaxScaler, [_Refusing()], name="_Reluctant")
registry.add(accelsk.preprocessing.MinMaxScaler)  # what stands for it is accelsk's own


@pytest.mark.parametrize("place", [0, 1, 2])
def test_a_step_that_falls_back_gets_host_data_and_its_result_goes_up_again(place):
    X, y = data(400)
    steps = [("s", StandardScaler()), ("t", StandardScaler()), ("r", Ridge())]
    steps.insert(place, ("m", MinMaxScaler()))
    plain = sk.Pipeline(steps)
    pipeline = ours(clone(plain))
    pipeline.steps[place] = ("m", _Reluctant())
    with accelsk.config_context(on_fallback="log"):
        pipeline.fit(X, y)
        predicted = pipeline.predict(X)
        there = pipeline.predict(up(X))
    assert_same(predicted, plain.fit(X, y).predict(X))
    assert type(there) is DeviceArray


def test_nothing_is_kept_on_the_device_where_the_cpu_was_asked_for():
    X, y = data(400)
    pipeline = ours(clone(PIPELINES["all"]))
    with accelsk.config_context(device="cpu"), moved() as bytes_:
        pipeline.fit(X, y).predict(X)
    assert bytes_.uploaded == bytes_.downloaded == 0
    assert_same(pipeline.predict(X), clone(PIPELINES["all"]).fit(X, y).predict(X))


# What it is


@pytest.mark.parametrize("cls", [accelsk.pipeline.Pipeline, accelsk.pipeline.FeatureUnion])
def test_class_is_what_the_original_is(cls):
    original = cls._accelsk_original
    assert issubclass(cls, original)
    assert cls.__doc__ == original.__doc__
    assert cls.__module__ == "accelsk.pipeline"
    assert getattr(sk, cls.__name__) is original


def test_functions_make_accelsks():
    pipeline = accelsk.pipeline.make_pipeline(StandardScaler(), memory=None, verbose=True)
    assert type(pipeline) is accelsk.pipeline.Pipeline
    assert pipeline.verbose
    union = accelsk.pipeline.make_union(StandardScaler(), n_jobs=1)
    assert type(union) is accelsk.pipeline.FeatureUnion
    plain = sk.make_pipeline(StandardScaler(), verbose=True)
    assert repr(pipeline) == repr(plain)
    assert "accelsk" not in pipeline._repr_html_().replace("accelsk.", "")
    with pytest.raises(TypeError, match="unexpected keyword"):
        accelsk.pipeline.make_pipeline(StandardScaler(), nonsense=1)


def test_parts_of_it_are_pipelines_of_accelsk():
    X, y = data(400)
    pipeline = ours(clone(PIPELINES["all"])).fit(X, y)
    assert type(pipeline[:-1]) is type(pipeline)
    assert type(pipeline[:-1].transform(X)) is np.ndarray
    assert type(clone(pipeline)) is type(pipeline)
    assert pipeline[-1].n_iter_ is not None


def test_it_goes_into_scikit_learns_class_and_back():
    X, y = data(400)
    pipeline = ours(clone(PIPELINES["nested"])).fit(X, y)
    plain = accelsk.to_sklearn(pipeline)
    assert "accelsk" not in str([type(v).__module__ for v in plain.get_params(deep=True).values()])
    assert_same(accelsk.from_sklearn(plain).predict(X), plain.predict(X))
    assert type(pipeline[0]) is accelsk.pipeline.Pipeline
    with pytest.raises(TypeError, match="accelerated already"):
        accelsk.from_sklearn(pipeline)


_LOAD = """
import importlib.abc, pickle, sys
if {block}:
    class Block(importlib.abc.MetaPathFinder):
        def find_spec(self, name, path=None, target=None):
            if name.partition(".")[0] == "accelsk":
                raise ModuleNotFoundError(name, name=name)
    sys.meta_path.insert(0, Block())
with open(sys.argv[1], "rb") as file:
    pipeline, X, expected = pickle.load(file)
assert (pipeline.predict(X) == expected).all()
print(type(pipeline).__module__, type(pipeline[0]).__module__)
"""


@pytest.mark.parametrize(
    ("block", "printed"),
    [
        (False, "accelsk.pipeline accelsk.preprocessing"),
        (True, "sklearn.pipeline sklearn.preprocessing._data"),
    ],
)
def test_pickle_loads_with_and_without_accelsk(block, printed, tmp_path):
    X, y = data(400)
    pipeline = ours(clone(PIPELINES["all"])).fit(X, y)
    path = tmp_path / "pipeline.pkl"
    path.write_bytes(pickle.dumps((pipeline, X, pipeline.predict(X))))
    done = subprocess.run(
        [sys.executable, "-c", _LOAD.format(block=block), path],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.stdout.strip() == printed, done.stderr


def test_methods_stay_conditional():
    pipeline = accelsk.pipeline.make_pipeline(accelsk.preprocessing.StandardScaler())
    assert hasattr(pipeline, "transform")
    assert not hasattr(pipeline, "predict")
    assert method_of(accelsk.preprocessing.StandardScaler, "transform") is not None
    ridge = accelsk.pipeline.make_pipeline(FunctionTransformer(), Ridge())
    assert not hasattr(ridge, "predict_proba")


# A GPU that fails on the way


@pytest.mark.parametrize("method", ["fit", "predict", "fit_transform"])
def test_a_gpu_that_fails_on_the_way_loses_nothing(method, monkeypatch):
    X, y = data(400)
    plain = make_pipeline(StandardScaler(), MinMaxScaler(), PolynomialFeatures(2), Ridge())
    if method == "fit_transform":
        plain = plain[:-1]
    pipeline = ours(clone(plain))
    if method == "predict":
        pipeline.fit(X, y)
        for _, step in pipeline.steps:
            step._accelsk_fetch()
    alive = [True]

    def get(array, order="C"):
        if not alive[0]:
            raise RuntimeError("cudaErrorIllegalAddress: an illegal memory access")
        return np.array(array.view(np.ndarray), order=order)

    def fail(*_):
        alive[0] = False
        raise RuntimeError("cudaErrorIllegalAddress: an illegal memory access")

    monkeypatch.setattr(DeviceArray, "get", get)
    monkeypatch.setattr(probe, "unusable", lambda: probe._disabled)
    engine = accelsk.preprocessing.PolynomialFeatures._accelsk_engines[0]
    monkeypatch.setattr(type(engine), "run", fail)
    with accelsk.config_context(on_fallback="log"):
        found = getattr(pipeline, method)(*((X,) if method == "predict" else (X, y)))
        found = pipeline.predict(X) if method == "fit" else found
    assert not alive[0]
    plain.fit(X, y)
    assert_same(found, plain.transform(X) if method == "fit_transform" else plain.predict(X))


def test_a_union_that_does_not_fit_is_made_on_the_host(monkeypatch):
    X, y = data(400)
    plain = make_pipeline(make_union(StandardScaler(), MinMaxScaler()), Ridge())

    def concatenate(*_, **__):
        raise MemoryError

    monkeypatch.setattr(sys.modules["cupy"], "concatenate", concatenate, raising=False)
    assert_same(ours(clone(plain)).fit(X, y).predict(X), plain.fit(X, y).predict(X))


# Where the whole run is sooner


def _scaled(seconds):
    """Return what stands for `costs.chain.expected`, by method and place."""

    def expected(estimator, method, rows, columns, *, dtype, resident):
        cpu, gpu = seconds(type(estimator).__name__, method, resident, columns)
        return Expected(rows, columns, "cupy", cpu, gpu)

    return expected


def test_steps_are_weighed_together(monkeypatch):
    monkeypatch.setattr(startup, "compiled", lambda *_: True)
    scaler, ridge = accelsk.preprocessing.StandardScaler(), accelsk.linear_model.Ridge()
    calls = [(scaler, "transform"), (ridge, "predict")]
    X, _ = data(400)
    # alone each is slower there, for what it moves
    monkeypatch.setattr(chain, "expected", _scaled(lambda *given: (2.0, 1.0 if given[2] else 2.5)))
    found = chain.weigh_chain(calls, X)
    assert (found.cpu, found.gpu, found.on_cpu) == (4.0, 3.5, False)
    assert chain.weigh_chain(calls[:1], X).on_cpu
    # what a step makes of the columns counts for the next
    seen = []
    monkeypatch.setattr(
        chain, "expected", _scaled(lambda name, *given: seen.append((name, given[2])) or (1, 1))
    )
    polynomials = accelsk.preprocessing.PolynomialFeatures(2)
    chain.weigh_chain([(polynomials, "transform"), (scaler, "transform")], X)
    assert dict(seen) == {"PolynomialFeatures": 6, "StandardScaler": 28}
    monkeypatch.setattr(chain, "expected", lambda *_, **__: None)
    assert chain.weigh_chain(calls, X) is None
    assert chain.weigh_chain(calls, X[:, 0]) is None


def test_methods_of_two_halves_are_weighed_by_them(monkeypatch):
    monkeypatch.setattr(startup, "compiled", lambda *_: True)

    def expected(estimator, method, rows, columns, *, dtype, resident):
        if method == "fit_transform":
            return None
        return Expected(rows, columns, "cupy", 2.0, 0.5 if resident else 1.0)

    monkeypatch.setattr(chain, "expected", expected)
    scaler = accelsk.preprocessing.StandardScaler()
    found = chain.weigh_chain([(scaler, "fit_transform")], data(400)[0])
    assert (found.cpu, found.gpu) == (4.0, 1.5)


@pytest.mark.parametrize("on_cpu", [True, False])
def test_a_run_is_where_it_is_sooner_as_a_whole(on_cpu, monkeypatch):
    X, y = data(2000)
    plain = make_pipeline(StandardScaler(), MinMaxScaler(), Ridge()).fit(X, y)
    pipeline = ours(clone(plain))
    asked = []

    def weigh_chain(calls, given):
        asked.append(len(calls))
        return Expected(2000, 6, "cupy", 1.0, 2.0 if on_cpu else 0.5, on_cpu=on_cpu)

    monkeypatch.setattr(chain, "weigh_chain", weigh_chain)
    events = []
    with accelsk.config_context(device="auto"), listening(events.append):
        predicted = pipeline.fit(X, y).predict(X)
    assert_same(predicted, plain.predict(X))
    by_name = {event.name: event for event in events}
    for name in ("StandardScaler.fit_transform", "StandardScaler.transform"):
        assert (by_name[name].engine is None) == on_cpu
    if on_cpu:
        assert asked == [3, 2, 3, 2]
        reason = by_name["StandardScaler.transform"].reasons[0]
        assert (
            reason
            == "sooner on the CPU: 2,000 rows by 6 columns, expected 1 s there, 2 s on the GPU"
        )
    else:
        assert asked == [3, 3]
    asked.clear()
    with accelsk.config_context(device="auto"):
        pipeline.fit(X[:100], y[:100]).predict(X[:100])  # not worth the question
    assert not asked
