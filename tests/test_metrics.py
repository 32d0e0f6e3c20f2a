"""Scores on the device are scikit-learn's; what does not fit there, scikit-learn computes."""

from __future__ import annotations

import sys
import warnings

import device_double
import numpy as np
import pytest
import sklearn.metrics
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import cluster, pairwise

import accelsk
import accelsk.metrics
from accelsk import registry
from accelsk.metrics import cluster as our_cluster
from accelsk.metrics import pairwise as our_pairwise

LABELS = ("accuracy_score", "balanced_accuracy_score", "confusion_matrix")
ERRORS = (
    "mean_absolute_error",
    "mean_squared_error",
    "mean_squared_log_error",
    "median_absolute_error",
    "r2_score",
    "root_mean_squared_error",
    "root_mean_squared_log_error",
)
RANKINGS = ("roc_auc_score", "average_precision_score")


@pytest.fixture
def device(monkeypatch):
    """NumPy in the place of a GPU, for every call that can be made there."""
    device_double.install(monkeypatch)
    with accelsk.config_context(device="gpu", on_fallback="raise"):
        yield


def up(value):
    return value if value is None else device_double._asarray(value)


def both(name, *args, ran="cupy", **kwargs):
    """Return our result, after it was held against scikit-learn's; `ran` is where ours ran."""
    theirs = getattr(sklearn.metrics, name)(*args, **kwargs)
    with accelsk.profile(quiet=True) as results:
        ours = getattr(accelsk.metrics, name)(*args, **kwargs)
    calls = results.method_calls[name]
    assert (calls.gpu_calls, calls.cpu_calls) == ((1, 0) if ran else (0, 1))
    assert isinstance(theirs, type(ours))
    if isinstance(theirs, np.ndarray):
        assert ours.dtype == theirs.dtype
    np.testing.assert_allclose(ours, theirs, rtol=1e-6 if _single(args) else 1e-9, atol=1e-12)
    return ours


def _single(args):
    return any(getattr(argument, "dtype", None) == np.float32 for argument in args)


@st.composite
def weights(draw, n):
    rng = np.random.default_rng(draw(st.integers(0, 50)))
    kind = draw(st.sampled_from(["none", "whole", "any"]))
    if kind == "none":
        return None
    return rng.integers(0, 3, n) + (np.arange(n) < 4) if kind == "whole" else rng.uniform(0.1, 2, n)


@st.composite
def labels(draw):
    """Draw two vectors of labels, of one kind, each class among the first rows of both."""
    rng = np.random.default_rng(draw(st.integers(0, 1000)))
    n, n_classes = draw(st.integers(30, 60)), draw(st.integers(2, 4))
    kind = draw(st.sampled_from(["int64", "int8", "float64", "bool", "str", "object"]))
    if kind == "bool":
        n_classes = 2
    names = np.array([-3, 0, 1, 7]) if kind not in ("bool", "str", "object") else np.arange(4)
    codes = rng.integers(0, n_classes, (2, n))
    codes[:, :n_classes] = np.arange(n_classes)
    values = names[codes]
    if kind in ("str", "object"):
        values = np.array(["a", "bc", "d", "e"])[values]
    return values.astype(kind if kind != "str" else values.dtype)


@given(st.data(), st.sampled_from(LABELS))
def test_scores_of_labels_are_those_of_scikit_learn(device, data, name):
    true, predicted = data.draw(labels())
    options = {}
    if name == "accuracy_score":
        options["normalize"] = data.draw(st.booleans())
    elif name == "confusion_matrix":
        options["normalize"] = data.draw(st.sampled_from([None, "true", "pred", "all"]))
    weight = data.draw(weights(len(true)))
    both(name, true, predicted, sample_weight=weight, **options)


@given(st.data(), st.sampled_from(RANKINGS))
def test_scores_of_rankings_are_those_of_scikit_learn(device, data, name):
    true, _ = data.draw(labels())
    classes = np.unique(true)
    true = np.where(np.isin(true, classes[:1]), classes[0], classes[1])
    rng = np.random.default_rng(data.draw(st.integers(0, 100)))
    score = rng.normal(size=len(true)).round(data.draw(st.sampled_from([0, 1, 8])))
    score = score.astype(data.draw(st.sampled_from(["float64", "float32", "int64"])))
    options = {"pos_label": classes[1].item()} if name == "average_precision_score" else {}
    both(name, true, score, sample_weight=data.draw(weights(len(true))), **options)


@given(st.data(), st.sampled_from(["float64", "float32"]), st.booleans())
def test_log_loss_is_that_of_scikit_learn(device, data, dtype, normalize):
    true, _ = data.draw(labels())
    n_classes = len(np.unique(true))
    rng = np.random.default_rng(data.draw(st.integers(0, 100)))
    probability = rng.dirichlet(np.ones(n_classes), len(true))
    probability[3] = np.eye(n_classes)[0]
    probability = probability.astype(dtype)
    if n_classes == 2 and data.draw(st.booleans()):
        probability = probability[:, 1]
    weight = data.draw(weights(len(true)))
    both("log_loss", true, probability, sample_weight=weight, normalize=normalize)


@given(st.data(), st.sampled_from(ERRORS), st.sampled_from(["float64", "float32", "int64"]))
def test_errors_are_those_of_scikit_learn(device, data, name, dtype):
    rng = np.random.default_rng(data.draw(st.integers(0, 1000)))
    n, n_outputs = data.draw(st.integers(2, 60)), data.draw(st.sampled_from([None, 1, 3]))
    shape = n if n_outputs is None else (n, n_outputs)
    y = (10 * rng.uniform(size=shape)).astype(dtype)
    predicted = np.abs(y + rng.normal(size=shape))
    options = {}
    if name != "median_absolute_error":
        options["sample_weight"] = data.draw(weights(n))
    if name == "r2_score" and (np.ptp(np.atleast_2d(y.T).T, axis=0) == 0).any():
        return
    with accelsk.config_context(on_fallback="log"):
        both(name, y, predicted, **options)


@given(st.data(), st.sampled_from(["euclidean", "cosine", "l1", "sqeuclidean"]))
def test_silhouettes_are_those_of_scikit_learn(device, data, metric):
    rng = np.random.default_rng(data.draw(st.integers(0, 1000)))
    n, k = data.draw(st.integers(5, 60)), data.draw(st.integers(2, 4))
    X = rng.normal(size=(n, 3)) + 100 * data.draw(st.booleans())
    X = X.astype(data.draw(st.sampled_from(["float64", "float32"])))
    X[-1] = X[-2]
    clusters = rng.integers(0, k, n)
    clusters[:k] = np.arange(k)
    for name, options in (("silhouette_samples", {}), ("silhouette_score", {})):
        theirs = getattr(sklearn.metrics, name)(X, clusters, metric=metric, **options)
        ours = getattr(accelsk.metrics, name)(X, clusters, metric=metric, **options)
        assert np.ndim(ours) or type(ours) is float
        # of what cancels in its products scikit-learn keeps half the digits
        np.testing.assert_allclose(ours, theirs, atol=2e-3 if X.dtype == np.float32 else 1e-5)
        if name == "silhouette_samples":
            assert ours.dtype == theirs.dtype


@pytest.mark.parametrize("random_state", [0, None, "generator"])
def test_silhouettes_of_a_sample_are_of_the_same_rows(device, random_state, monkeypatch):
    rng = np.random.default_rng(0)
    X, clusters = rng.normal(size=(60, 3)), rng.integers(0, 3, 60)

    def state():
        np.random.seed(3)
        return np.random.RandomState(5) if random_state == "generator" else random_state

    theirs = sklearn.metrics.silhouette_score(X, clusters, sample_size=20, random_state=state())
    ours = accelsk.metrics.silhouette_score(X, clusters, sample_size=20, random_state=state())
    assert ours == pytest.approx(theirs, abs=1e-12)
    monkeypatch.setattr("accelsk.metrics._distances.silhouettes", lambda *_: 1 / 0)
    with accelsk.config_context(on_fallback="log"):
        ours = accelsk.metrics.silhouette_score(X, clusters, sample_size=20, random_state=state())
    assert ours == theirs


@given(
    st.sampled_from(["euclidean", "l2", "cosine", "manhattan", "cityblock", "l1", "sqeuclidean"]),
    st.sampled_from(["float64", "float32", "int64"]),
    st.booleans(),
    st.integers(0, 100),
)
def test_distances_are_those_of_scikit_learn(device, metric, dtype, alone, seed):
    rng = np.random.default_rng(seed)
    X, Y = (3 * rng.normal(size=(n, 4)).astype(dtype) for n in (9, 5))
    Y = None if alone else Y
    theirs = sklearn.metrics.pairwise_distances(X, Y, metric=metric)
    ours = accelsk.metrics.pairwise_distances(X, Y, metric=metric)
    assert ours.dtype == theirs.dtype
    np.testing.assert_allclose(ours, theirs, atol=1e-3 if dtype == "float32" else 1e-7)
    if alone:
        assert not np.diag(ours).any()


@given(labels())
def test_the_rand_index_is_that_of_scikit_learn(device, pair):
    both("adjusted_rand_score", *pair)
    both("adjusted_rand_score", pair[0], pair[0])
    both("adjusted_rand_score", np.zeros(len(pair[0]), int), np.ones(len(pair[0]), int))


# What does not fit

_Y = np.array([0, 1, 1, 0, 1, 0])
_P = np.array([0.2, 0.7, 0.4, 0.4, 0.9, 0.1])

ELSEWHERE = {
    "indicators": ("accuracy_score", (np.eye(3, dtype=int), np.eye(3, dtype=int)), {}),
    "labels": ("confusion_matrix", (_Y, _Y), {"labels": [1, 0]}),
    "one class": ("confusion_matrix", (_Y * 0, _Y * 0), {}),
    "unseen": ("balanced_accuracy_score", (_Y, _Y + 1), {}),
    "huge weights": ("confusion_matrix", (_Y, _Y), {"sample_weight": np.full(6, 2**61)}),
    "named labels": ("log_loss", (_Y * 0, _P), {"labels": [0, 1]}),
    "no sum": ("log_loss", (_Y, np.c_[_P, _P]), {}),
    "multiclass": (
        "roc_auc_score",
        (np.arange(6) % 3, np.full((6, 3), 1 / 3)),
        {"multi_class": "ovr"},
    ),
    "partial": ("roc_auc_score", (_Y, _P), {"max_fpr": 0.5}),
    "one side": ("roc_auc_score", (_Y * 0, _P), {}),
    "columns": ("average_precision_score", (np.eye(6, dtype=int)[:, :2], np.c_[_P, _P]), {}),
    "each output": ("r2_score", (np.c_[_P, _P], np.c_[_P, _P]), {"multioutput": "raw_values"}),
    "weighted": ("mean_squared_error", (np.c_[_P, _P],) * 2, {"multioutput": [0.3, 0.7]}),
    "constant": ("r2_score", (_Y * 0, _P), {}),
    "one row": ("r2_score", (_Y[:1], _P[:1]), {}),
    "precomputed": ("silhouette_score", (np.zeros((6, 6)), _Y), {"metric": "precomputed"}),
    "no metric": ("pairwise_distances", (np.eye(3),), {"metric": "correlation"}),
    "options": ("pairwise_distances", (np.eye(3),), {"metric": "minkowski", "p": 3}),
    "half": ("silhouette_score", (np.c_[_P, _P].astype("f2"), _Y), {}),
}


@pytest.mark.parametrize("case", ELSEWHERE)
@pytest.mark.parametrize("sent", [False, True])
def test_what_does_not_fit_runs_in_scikit_learn(device, case, sent):
    name, args, options = ELSEWHERE[case]
    with warnings.catch_warnings(record=True) as expected:
        warnings.simplefilter("always")
        theirs = getattr(sklearn.metrics, name)(*args, **options)
    if sent:
        args = tuple(
            up(a) if getattr(a, "dtype", np.dtype(object)).kind in "biuf" else a for a in args
        )
    with warnings.catch_warnings(record=True) as caught, accelsk.profile(quiet=True) as results:
        warnings.simplefilter("always")
        with accelsk.config_context(on_fallback="log"):
            ours = getattr(accelsk.metrics, name)(*args, **options)
    assert [str(w.message) for w in caught] == [str(w.message) for w in expected]
    np.testing.assert_array_equal(device_double.to_host(ours), theirs)
    assert results.method_calls[name].cpu_calls == 1
    assert results.method_calls[name].fallback_reasons


ERRONEOUS = {
    "lengths": ("accuracy_score", (_Y, _Y[:3]), {}),
    "continuous": ("accuracy_score", (_Y, _P), {}),
    "mixed": ("balanced_accuracy_score", (_Y, np.array(list("ababab"))), {}),
    "nan": ("mean_squared_error", (_P, np.full(6, np.nan)), {}),
    "option": ("mean_squared_error", (_P, _P), {"multioutput": "none"}),
    "unknown": ("accuracy_score", (_Y, _Y), {"nonsense": 1}),
    "missing": ("accuracy_score", (_Y,), {}),
    "classes": ("log_loss", (_Y, np.full((6, 3), 1 / 3)), {}),
    "outputs": ("r2_score", (_P, np.c_[_P, _P]), {}),
    "negative": ("mean_squared_log_error", (-2 * _P, _P), {}),
    "one cluster": ("silhouette_score", (np.c_[_P, _P], _Y * 0), {}),
    "columns": ("pairwise_distances", (np.eye(3), np.eye(2)), {}),
    "multiclass": ("roc_auc_score", (np.arange(6), _P), {}),
}


@pytest.mark.parametrize("case", ERRONEOUS)
def test_errors_raised_are_those_of_scikit_learn(device, case):
    name, args, options = ERRONEOUS[case]
    with pytest.raises((ValueError, TypeError)) as theirs:
        getattr(sklearn.metrics, name)(*args, **options)
    with accelsk.config_context(on_fallback="log"), pytest.raises(type(theirs.value)) as ours:
        getattr(accelsk.metrics, name)(*args, **options)
    assert str(ours.value) == str(theirs.value)


def test_a_failure_on_the_device_costs_nothing(device, monkeypatch):
    monkeypatch.setattr("accelsk.algorithms.metrics.average", lambda *_: 1 / 0)
    with pytest.raises(accelsk.exceptions.FallbackError, match="ZeroDivisionError"):
        accelsk.metrics.accuracy_score(_Y, _Y)
    with accelsk.config_context(on_fallback="log"):
        assert accelsk.metrics.accuracy_score(_Y, _Y) == 1.0


# Where a call runs


def _places(call):
    with accelsk.profile(quiet=True) as results:
        call()
    (stats,) = results.method_calls.values()
    return stats


def test_data_on_the_host_stay_there_where_that_is_sooner(monkeypatch):
    device_double.install(monkeypatch)
    with accelsk.config_context(on_fallback="raise"):
        stats = _places(lambda: accelsk.metrics.accuracy_score(_Y, _Y))
    assert stats.cpu_calls == 1
    assert "sooner on the CPU" in next(iter(stats.fallback_reasons))


def test_data_on_the_device_are_scored_there(monkeypatch):
    device_double.install(monkeypatch)
    stats = _places(lambda: accelsk.metrics.accuracy_score(_Y, up(_Y)))
    assert (stats.gpu_calls, stats.cpu_calls) == (1, 0)


def test_many_rows_on_the_host_go_up(monkeypatch):
    device_double.install(monkeypatch)
    monkeypatch.setattr("accelsk.device.staging.worthwhile", lambda *_: False)  # not on a double
    rng = np.random.default_rng(0)
    X, clusters = rng.normal(size=(1000, 2)), rng.integers(0, 3, 1000)
    assert _places(lambda: accelsk.metrics.silhouette_score(X, clusters)).gpu_calls == 1
    assert _places(lambda: accelsk.metrics.silhouette_score(X[:90], clusters[:90])).cpu_calls == 1
    assert _places(lambda: accelsk.metrics.pairwise_distances(X, X[:90])).cpu_calls == 1
    assert _places(lambda: accelsk.metrics.pairwise_distances(np.r_[X, X])).gpu_calls == 1


def test_nothing_is_started_for_the_sake_of_a_small_call(monkeypatch):
    monkeypatch.setattr("accelsk.device.probe.unusable", lambda: None)
    monkeypatch.delitem(sys.modules, "cupy", raising=False)
    X, clusters = np.eye(1000, 2), np.arange(1000) % 3
    assert _places(lambda: accelsk.metrics.silhouette_score(X, clusters)).cpu_calls == 1
    assert "cupy" not in sys.modules


def test_tables_stay_on_the_device_for_data_there(device):
    table = accelsk.metrics.confusion_matrix(up(_Y), up(_Y))
    assert type(table) is device_double.DeviceArray
    assert type(accelsk.metrics.pairwise_distances(up(np.eye(3)))) is device_double.DeviceArray
    assert type(accelsk.metrics.confusion_matrix(_Y, _Y)) is np.ndarray


def test_the_cpu_is_used_where_it_is_asked_for(monkeypatch):
    device_double.install(monkeypatch)
    with accelsk.config_context(device="cpu", on_fallback="raise"):
        stats = _places(lambda: accelsk.metrics.accuracy_score(up(_Y), _Y))
    assert list(stats.fallback_reasons) == ["device='cpu' is set"]


def test_functions_are_on_record_under_their_originals():
    found = registry.accelerated_functions()
    assert found[sklearn.metrics.accuracy_score] is accelsk.metrics.accuracy_score
    assert accelsk.metrics.accuracy_score.__wrapped__ is sklearn.metrics.accuracy_score
    assert our_cluster.silhouette_score is found[cluster.silhouette_score]
    assert our_pairwise.pairwise_distances is found[pairwise.pairwise_distances]
