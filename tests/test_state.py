"""There is one truth: the attributes, which a device model stands for until they are fetched."""

from __future__ import annotations

import copy
import os
import pickle
import subprocess
import sys

import numpy as np
import pytest
from comparison import assert_same, fitted
from engine import (
    GENERIC,
    REGISTERED,
    AcceleratedLine,
    AcceleratedNearestMean,
    Line,
    NearestMean,
    engine_of,
)
from scipy import sparse
from sklearn.cluster import KMeans
from sklearn.decomposition import PCA
from sklearn.ensemble import RandomForestClassifier
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.neighbors import KNeighborsClassifier
from sklearn.preprocessing import StandardScaler
from sklearn.utils.validation import check_is_fitted

import accelsk
from accelsk.estimator import SLOT, DeviceState
from accelsk.fingerprints import fingerprint


@pytest.fixture
def line(data):
    return AcceleratedLine().fit(*data)


@pytest.fixture
def plain(data):
    return Line().fit(*data)


def _counts(estimator):
    return dict(engine_of(estimator).counts)


# Fetching


def test_attributes_are_fetched_once_and_only_when_looked_at(line, plain):
    assert _counts(line) == {"fit": 1}
    assert_same(line.coef_, plain.coef_)
    assert_same(line.scale_, plain.scale_)
    assert line.coef_ is line.coef_
    assert _counts(line) == {"fit": 1, "attributes": 1}


def test_predicting_fetches_nothing(line, data):
    line.predict(data[0])
    line.predict(data[0])
    assert _counts(line) == {"fit": 1, "predict": 2}


def test_attributes_at_hand_need_no_fetch(labelled):
    nearest = AcceleratedNearestMean().fit(*labelled)
    assert_same(nearest.classes_, NearestMean().fit(*labelled).classes_)
    assert nearest.n_features_in_ == 3
    check_is_fitted(nearest)
    assert _counts(nearest) == {"fit": 1}


@pytest.mark.parametrize(
    "name", ["nonsense_", "feature_names_in_", "__array__", "_repr_mimebundle"]
)
def test_unknown_names_fetch_nothing(line, name):
    assert not hasattr(line, name)
    assert _counts(line) == {"fit": 1}


@pytest.mark.parametrize("look", [repr, str, lambda e: e.get_params(), lambda e: e.alpha])
def test_looking_at_hyperparameters_fetches_nothing(look, data):
    ridge = GENERIC[Ridge](alpha=2.0).fit(*data)
    look(ridge)
    assert _counts(ridge) == {"fit": 1}


def test_missing_attribute_has_the_message_of_any_object(line):
    with pytest.raises(AttributeError, match="'AcceleratedLine' object has no attribute 'nope_'"):
        _ = line.nope_
    with pytest.raises(AttributeError, match="'AcceleratedLine' object has no attribute 'coef_'"):
        _ = AcceleratedLine().coef_


def test_property_keeps_its_not_fitted_error():
    with pytest.raises(NotFittedError, match="This AcceleratedLine instance is not fitted yet"):
        _ = AcceleratedLine().importances_
    with pytest.raises(NotFittedError, match="This RandomForestClassifier instance is not fitted"):
        _ = GENERIC[RandomForestClassifier]().feature_importances_
    assert not hasattr(AcceleratedLine(), "importances_")


def test_property_of_a_fitted_estimator_fetches(line, plain):
    assert_same(line.importances_, plain.importances_)


def test_failing_fetch_says_why_and_can_be_repeated(line, plain):
    engine = engine_of(line)
    engine.failing, engine.fails_once = {"attributes": RuntimeError("the bus is gone")}, True
    with pytest.raises(RuntimeError, match="the bus is gone") as caught:
        _ = line.coef_
    assert caught.value.__notes__ == [
        "The fitted attributes of this AcceleratedLine could not leave the GPU."
    ]
    assert_same(line.coef_, plain.coef_)


def test_dir_needs_no_device(line):
    engine_of(line).failing = {"attributes": RuntimeError("the bus is gone")}
    assert "predict" in dir(line)


def test_dir_shows_fitted_attributes(line, plain):
    assert {name for name in dir(line) if name.endswith("_") and name[0] != "_"} == {
        name for name in dir(plain) if name.endswith("_") and name[0] != "_"
    }


def test_html_shows_fitted_attributes(data):
    ours, theirs = GENERIC[Ridge]().fit(*data), Ridge().fit(*data)
    assert ("coef_" in ours._repr_html_()) == ("coef_" in theirs._repr_html_())


# What changes afterwards


def _changes():
    def assign(e):
        e.coef_ = e.coef_ * 2

    def assign_unfetched(e):
        e.coef_ = np.ones(3)

    def in_place(e):
        e.coef_[0] = 100.0

    def view(e):
        e.coef_[1:] += 5

    def after_predict(e):
        e.predict(np.ones((2, 3)))
        e.coef_ *= -1

    def delete(e):
        del e.coef_

    def other_type(e):
        e.coef_ = np.asarray(e.coef_, dtype=np.float32)

    return [assign, assign_unfetched, in_place, view, after_predict, delete, other_type]


@pytest.mark.parametrize("change", _changes(), ids=lambda f: f.__name__)
def test_changed_attribute_is_what_predicts(change, line, plain, data):
    for estimator in (line, plain):
        change(estimator)
    if hasattr(plain, "coef_"):
        assert_same(line.coef_, plain.coef_)
        assert_same(line.predict(data[0]), plain.predict(data[0]))
    else:
        with pytest.raises(AttributeError, match="coef_"):
            line.predict(data[0])


def test_changed_attribute_still_runs_on_the_engine(line, data):
    line.coef_[0] = 100.0
    line.predict(data[0])
    line.predict(data[0])
    assert _counts(line) == {"fit": 1, "attributes": 1, "restore": 1, "predict": 2}


def test_changed_hyperparameter_is_what_counts(data):
    X, _ = data
    ours, theirs = GENERIC[StandardScaler]().fit(X), StandardScaler().fit(X)
    for estimator in (ours, theirs):
        estimator.set_params(with_mean=False)
    assert_same(ours.transform(X), theirs.transform(X))
    ours.with_mean = theirs.with_mean = True
    ours.with_std = theirs.with_std = False
    assert_same(ours.transform(X), theirs.transform(X))


def test_refused_restore_runs_in_scikit_learn(line, plain, data):
    engine_of(line).failing = {"restore": accelsk.exceptions.Refusal("no such model")}
    for estimator in (line, plain):
        estimator.coef_ = np.ones(3)
    with accelsk.profile(quiet=True) as results:
        assert_same(line.predict(data[0]), plain.predict(data[0]))
    assert results.method_calls["Line.predict"].fallback_reasons == {"no such model"}


def _set(path):
    """Return what puts another value at the end of `path`, a chain of indices."""

    def change(value):
        *parents, last = path
        for index in parents:
            value = value[index]
        value[last] = value[last] + value[last]

    return change


@pytest.mark.parametrize(
    ("value", "change"),
    [
        (np.ones((2, 3), order="F"), _set([(1, 2)])),
        (np.array(["x", "y"], dtype="U2"), _set([0])),
        (np.array(["x", None, np.nan], dtype=object), _set([0])),
        (np.array([b"x", b"y"], dtype="S2"), _set([1])),
        (np.array([1], dtype="m8[s]"), _set([0])),
        ([np.ones(2), np.ones(3)], _set([1, 2])),
        ([np.array(["a", "b"], dtype=object)], _set([0, 1])),
        ((np.ones(2), [np.ones(2)]), _set([1, 0, 1])),
        ({"a": np.ones(2)}, _set(["a", 0])),
        (np.array([np.ones(2), np.ones(3)], dtype=object), _set([1, 2])),
        (sparse.csr_matrix(np.eye(3)), lambda m: m.indices.__setitem__(0, 2)),
        (sparse.coo_matrix(np.eye(3)), lambda m: m.data.__setitem__(0, 2)),
        ([object(), object()], lambda items: items.reverse()),
    ],
    ids=range(13),
)
def test_a_change_inside_an_attribute_is_noticed_and_nothing_else(value, change):
    before = fingerprint(value)
    assert before == fingerprint(value)
    change(value)
    assert before != fingerprint(value)


def test_what_is_not_equal_to_itself_is_no_change():
    value = [float("nan"), np.array(["x", np.nan], dtype=object)]
    assert fingerprint(value) == fingerprint(value)


def test_labels_of_text_cost_no_second_model(labelled):
    X, y = labelled
    nearest = AcceleratedNearestMean().fit(X, np.asarray(y, dtype="U9"))
    for _ in range(3):
        nearest.predict(X)
        assert nearest.classes_.dtype.kind == "U"
    assert engine_of(nearest).counts["restore"] == 0


def test_sparse_attribute_changed_in_place_is_noticed(labelled):
    X, y = labelled
    ours, theirs = GENERIC[LogisticRegression]().fit(X, y), LogisticRegression().fit(X, y)
    for estimator in (ours, theirs):
        estimator.sparsify()
        assert sparse.issparse(estimator.coef_)
        estimator.predict(X)
        estimator.coef_.data[:] = -estimator.coef_.data
    assert_same(ours.predict(X), theirs.predict(X))


def test_attributes_of_the_users_own_leave_the_device_model_alone(line, data):
    _ = line.coef_
    line.my_note_, line.other, line._private = 3, "x", []
    line.predict(data[0])
    assert _counts(line) == {"fit": 1, "attributes": 1, "predict": 1}


def test_row_attributes_that_no_method_reads_may_change(data, monkeypatch):
    monkeypatch.setattr(engine_of(GENERIC[KMeans]), "per_row", frozenset({"labels_"}))
    kmeans = GENERIC[KMeans](2, n_init=1, random_state=0).fit(data[0])
    kmeans.labels_[:] = 7
    kmeans.predict(data[0])
    assert _counts(kmeans) == {"fit": 1, "attributes": 1, "predict": 1}


def test_copied_dict_gives_both_estimators_their_attributes(line, plain, data):
    other = AcceleratedLine()
    other.__dict__.update(line.__dict__)
    assert_same(other.coef_, plain.coef_)
    assert_same(line.coef_, plain.coef_)
    other.coef_[:] = 0
    assert_same(other.predict(data[0]), np.zeros(40))
    third = AcceleratedLine()
    third.__dict__.update(line.__dict__)
    third.coef_[:] = 0
    assert_same(third.predict(data[0]), np.zeros(40))
    assert_same(line.predict(data[0]), np.zeros(40))


# Fits one after the other


def _fit(estimator, X, y, on_engine):
    engine = engine_of(estimator) if hasattr(estimator, "_accelsk_engines") else None
    if engine is not None:
        engine.refusing = {} if on_engine else {"fit": "not today"}
    estimator.fit(X, y)


_CASES = [
    (Line, {}, ["predict"]),
    (NearestMean, {}, ["predict"]),
    (KMeans, {"n_clusters": 3, "n_init": 1, "random_state": 0}, ["predict", "transform"]),
    (PCA, {"n_components": 2}, ["transform"]),
    (Ridge, {}, ["predict"]),
    (LogisticRegression, {}, ["predict", "predict_proba", "decision_function"]),
    (KNeighborsClassifier, {}, ["predict", "kneighbors"]),
    (RandomForestClassifier, {"n_estimators": 3, "random_state": 0}, ["predict_proba"]),
    (StandardScaler, {}, ["transform", "inverse_transform"]),
]


@pytest.mark.parametrize("sequence", ["EF", "FE", "EFE", "FEF", "EE"])
@pytest.mark.parametrize(("original", "parameters", "methods"), _CASES)
def test_latest_fit_answers(original, parameters, methods, sequence, data, labelled):
    X, y = labelled if hasattr(original, "predict_proba") or original is NearestMean else data
    ours, theirs = REGISTERED[original](**parameters), original(**parameters)
    for i, where in enumerate(sequence):
        X_i, y_i = X[i:] * (i + 1) - i, y[::-1][i:]
        for estimator in (ours, theirs):
            _fit(estimator, X_i, y_i, on_engine=where == "E")
        for method in methods:
            new = X[:, :2] if method == "inverse_transform" and original is PCA else X
            assert_same(getattr(ours, method)(new), getattr(theirs, method)(new), method)
    assert_same(fitted(ours), fitted(theirs))


@pytest.mark.parametrize("looked_at", [True, False])
@pytest.mark.parametrize("on_engine", [True, False])
def test_refit_leaves_nothing_of_the_earlier_fit(looked_at, on_engine, data):
    pd = pytest.importorskip("pandas")
    X, y = data
    line = AcceleratedLine().fit(pd.DataFrame(X, columns=["a", "b", "c"]), y)
    if looked_at:
        _ = line.coef_
    _fit(line, X[:, :2], y, on_engine)
    assert_same(fitted(line), fitted(Line().fit(X[:, :2], y)))
    assert not hasattr(line, "feature_names_in_")


@pytest.mark.parametrize("on_engine", [True, False])
def test_attributes_of_the_users_own_survive_a_refit(on_engine, line, data):
    line.note, line.note_, line._note = "a", "b", "c"
    _fit(line, *data, on_engine)
    assert (line.note, line.note_, line._note) == ("a", "b", "c")


def test_sklearns_bookkeeping_survives_a_refit(data):
    import sklearn

    with sklearn.config_context(enable_metadata_routing=True):
        scaler = GENERIC[StandardScaler]().set_output(transform="default")
        scaler.set_fit_request(sample_weight=True)
        kept = vars(scaler).keys() - scaler.get_params().keys()
        scaler.fit(data[0]).fit(data[0])
    assert kept
    assert kept <= vars(scaler).keys()


def test_failed_fit_in_scikit_learn_leaves_the_earlier_attributes(line, plain, data):
    for estimator in (line, plain):
        with pytest.raises(ValueError, match="NaN"):
            estimator.fit(data[0] * np.nan, data[1])
    assert_same(line.predict(data[0]), plain.predict(data[0]))
    assert_same(fitted(line), fitted(plain))


def test_lost_device_does_not_keep_an_estimator_from_a_new_fit(line, data):
    engine_of(line).failing = {"attributes": RuntimeError("the bus is gone")}
    engine_of(line).off = "the bus is gone"
    line.fit(*data)
    assert_same(line.coef_, Line().fit(*data).coef_)


def test_hidden_slot_is_neither_hyperparameter_nor_fitted_attribute(line):
    assert SLOT in vars(line)
    assert SLOT not in line.get_params()
    assert not SLOT.endswith("_")


# Copies


@pytest.mark.parametrize(
    "make", [copy.copy, copy.deepcopy, lambda e: pickle.loads(pickle.dumps(e))]
)
@pytest.mark.parametrize("looked_at", [True, False])
def test_copies_have_the_whole_model_and_no_device(make, looked_at, line, plain, data):
    line.note = "mine"
    if looked_at:
        _ = line.coef_
    duplicate = make(line)
    assert type(duplicate) is AcceleratedLine
    assert SLOT not in vars(duplicate)
    assert duplicate.note == "mine"
    assert_same(duplicate.predict(data[0]), plain.predict(data[0]))
    assert _counts(line) == {"fit": 1, "attributes": 1, "restore": 1, "predict": 1}


def test_copy_shares_and_deepcopy_does_not(line):
    assert copy.copy(line).coef_ is line.coef_
    assert copy.deepcopy(line).coef_ is not line.coef_


def test_deepcopy_keeps_shared_references(line):
    line.friend = line
    pair = copy.deepcopy([line, line])
    assert pair[0] is pair[1]
    assert pair[0].friend is pair[0]


def test_states_that_are_gone_are_not_kept_alive(data):
    import gc

    gc.collect()
    before = len(DeviceState.live)
    line = AcceleratedLine().fit(*data)
    assert len(DeviceState.live) == before + 1
    del line
    gc.collect()
    assert len(DeviceState.live) == before


def test_attributes_are_python_s_own_until_a_model_is_on_a_device():
    code = """
import sys
sys.path.insert(0, TESTS)
from engine import AcceleratedLine, engine_of
from accelsk.estimator import Accelerated

names = ("__getattr__", "__setattr__", "__delattr__")
watched = lambda: [name in vars(Accelerated) for name in names]
engine_of(AcceleratedLine).off = "for now"
line = AcceleratedLine().fit([[1.0], [2.0]], [2.0, 4.0])
print(watched(), line.coef_)
engine_of(AcceleratedLine).off = None
other = AcceleratedLine().fit([[1.0], [2.0]], [3.0, 6.0])
print(watched(), other.coef_)
other.coef_ = other.coef_ * 2
print(other.predict([[1.0]]), line.predict([[1.0]]))
"""
    tests = os.path.dirname(__file__)
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code.replace("TESTS", repr(tests))],
        env={**os.environ, "PYTHONPATH": os.path.dirname(tests)},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.stdout.splitlines() == [
        "[False, False, False] [2.]",
        "[True, True, True] [3.]",
        "[6.] [2.]",
    ], done.stderr
