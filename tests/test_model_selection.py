"""Searches and cross-validation with the data on the device are scikit-learn's."""

from __future__ import annotations

import copy
import logging
import pickle
import re
import subprocess
import sys
import warnings
from collections import Counter

import device_double
import numpy as np
import pytest
import sklearn.model_selection as theirs
from engine import GENERIC, engine_of
from scipy import sparse
from sklearn.base import clone
from sklearn.decomposition import PCA
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.metrics import accuracy_score, make_scorer, mean_absolute_error
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC

import accelsk
import accelsk.decomposition
import accelsk.linear_model
import accelsk.metrics
import accelsk.model_selection as ours
import accelsk.pipeline
import accelsk.preprocessing
from accelsk._search import Search
from accelsk.data import describe
from accelsk.device import traffic
from accelsk.device.resident import Resident, Session, Source, remembered
from accelsk.engines import inputs, repeats


@pytest.fixture(autouse=True)
def device(monkeypatch):
    """NumPy in the place of a GPU, for every call that can be made there."""
    device_double.install(monkeypatch)
    with accelsk.config_context(device="gpu"):
        yield


@pytest.fixture
def X():  # noqa: N802
    return np.random.default_rng(0).normal(size=(90, 4)) + 1


@pytest.fixture
def y(X):
    return X @ [1.0, -2.0, 0.5, 3.0] + np.random.default_rng(1).normal(size=len(X))


@pytest.fixture
def codes(y):
    return np.digitize(y, np.quantile(y, [0.3, 0.7]))


def assert_same_results(found, expected):
    assert list(found) == list(expected)
    for name, value in expected.items():
        if "time" in name:
            assert found[name].shape == value.shape
            assert found[name].dtype == value.dtype
        elif name == "params":
            assert found[name] == value
        elif isinstance(value, np.ndarray) and value.dtype.kind in "fi":
            assert found[name].dtype == value.dtype
            np.testing.assert_allclose(found[name], value, rtol=1e-9, atol=1e-12)


def assert_same_search(found, expected):
    assert_same_results(found.cv_results_, expected.cv_results_)
    assert vars(found).keys() == vars(expected).keys()
    assert (found.cv, found.n_splits_) == (expected.cv, expected.n_splits_)
    assert _named(found.scorer_) == _named(expected.scorer_)
    for name in ("best_index_", "best_params_", "multimetric_"):
        if hasattr(expected, name):
            assert getattr(found, name) == getattr(expected, name)
    if hasattr(expected, "best_estimator_"):
        assert type(found.best_estimator_) is type(found.estimator)


def _named(scorer):
    """Return what a scorer is called; before scikit-learn 1.7 with the module of its class."""
    return re.sub(r"<class '[\w.]*?(\w+)'>", r"\1", str(scorer))


def both(search, estimator, *args, fit=(), **kwargs):
    """Return our search, held against scikit-learn's, and what ran where."""
    plain = estimator._accelsk_original(**estimator.get_params())
    expected = getattr(theirs, search)(plain, *args, **kwargs).fit(*fit)
    with accelsk.profile(quiet=True) as results:
        found = getattr(ours, search)(estimator, *args, **kwargs).fit(*fit)
    assert_same_search(found, expected)
    return found, results.method_calls


def _mean_of_predictions(estimator, X, y):
    assert type(X) is np.ndarray
    assert type(y) is np.ndarray
    return float(np.mean(estimator.predict(X)))


def _own_metric(y_true, y_pred, *, power=1):
    assert type(y_true) is type(y_pred) is np.ndarray
    return float(np.mean(np.abs(y_true - y_pred) ** power))


def _last(cv_results):
    return len(cv_results["params"]) - 1


REGRESSION = {
    "plain": {},
    "train scores": {"return_train_score": True},
    "one of ours": {"scoring": "neg_mean_absolute_error"},
    "several": {"scoring": ["r2", "neg_root_mean_squared_error"], "refit": "r2"},
    "named": {
        "scoring": {"a": make_scorer(_own_metric, power=2), "b": "neg_max_error"},
        "refit": False,
    },
    "own function": {"scoring": _mean_of_predictions},
    "own metric": {"scoring": make_scorer(_own_metric, greater_is_better=False)},
    "known metric": {"scoring": make_scorer(mean_absolute_error)},
    "unknown to us": {"scoring": "explained_variance"},
    "refit by a function": {"refit": _last},
    "no refit": {"refit": False},
    "shuffled": {"cv": theirs.ShuffleSplit(4, random_state=0)},
    "folds given": {"cv": [(np.arange(60), np.arange(60, 90)), (np.arange(30, 90), np.arange(30))]},
    "parallel": {"n_jobs": 2},
}


@pytest.mark.parametrize("case", REGRESSION)
@pytest.mark.parametrize("cls", [GENERIC[Ridge], accelsk.linear_model.Ridge])
def test_a_search_for_a_regressor_is_scikit_learns(cls, case, X, y):
    found, ran = both(
        "GridSearchCV", cls(), {"alpha": [0.1, 1.0, 1000.0]}, fit=(X, y), **REGRESSION[case]
    )
    assert ran[f"{cls._accelsk_original.__name__}.fit"].cpu_calls == 0
    if found.refit:
        assert type(found.predict(X)) is np.ndarray


CLASSIFICATION = {
    "plain": {},
    "probabilities": {"scoring": "neg_log_loss"},
    "several": {"scoring": ["accuracy", "balanced_accuracy", "f1_macro"], "refit": "f1_macro"},
    "known metric": {"scoring": make_scorer(accuracy_score, normalize=False)},
    "own function": {"scoring": _mean_of_predictions},
}


@pytest.mark.parametrize("case", CLASSIFICATION)
@pytest.mark.parametrize("cls", [GENERIC[KNeighborsClassifier], GENERIC[LogisticRegression]])
def test_a_search_for_a_classifier_is_scikit_learns(cls, case, X, codes):
    grid = {"n_neighbors": [1, 5]} if "KN" in cls.__name__ else {"C": [0.01, 1.0]}
    both("GridSearchCV", cls(), grid, fit=(X, codes), **CLASSIFICATION[case])


@pytest.mark.parametrize("scoring", ["accuracy", "roc_auc", "average_precision", "neg_log_loss"])
def test_scores_of_a_binary_problem_are_computed_on_the_device(scoring, X, codes):
    estimator = accelsk.linear_model.LogisticRegression()
    _, ran = both("GridSearchCV", estimator, {"C": [0.1, 1.0]}, fit=(X, codes > 1), scoring=scoring)
    name = {"accuracy": "accuracy_score", "roc_auc": "roc_auc_score", "neg_log_loss": "log_loss"}
    assert ran[name.get(scoring, "average_precision_score")].gpu_calls == 10
    assert not any(stats.cpu_calls for stats in ran.values())


@pytest.mark.parametrize("kind", ["U", "object", "series"])
@pytest.mark.parametrize("scoring", [None, "accuracy", "roc_auc", "f1_macro"])
def test_text_is_coded_once_for_each_fold(kind, scoring, X, codes, monkeypatch):
    names = np.array(["no", "yes"])[(codes > 0).astype(int)]
    if kind == "series":
        names = pytest.importorskip("pandas").Series(names, dtype=object)
    elif kind == "object":
        names = names.astype(object)
    coded = []
    original = inputs._coded
    monkeypatch.setattr(inputs, "_coded", lambda given: coded.append(1) or original(given))
    grid, options = {"C": [0.1, 1.0, 10.0]}, {"scoring": scoring, "cv": 3}
    estimator = accelsk.linear_model.LogisticRegression()
    _, ran = both("GridSearchCV", estimator, grid, fit=(X, names), **options)
    assert ran["LogisticRegression.fit"].gpu_calls == 10
    assert len(coded) == (7 if scoring is None else 4)


def test_strings_stay_on_the_host(X, codes):
    names = np.array(["a", "b", "c"])[codes]
    found, ran = both("GridSearchCV", GENERIC[LogisticRegression](), {"C": [1.0]}, fit=(X, names))
    assert ran["LogisticRegression.fit"].gpu_calls == 6
    assert list(found.classes_) == ["a", "b", "c"]


def test_randomized_searches_draw_the_same(X, y):
    options = {"n_iter": 3, "random_state": 0}
    both(
        "RandomizedSearchCV", GENERIC[Ridge](), {"alpha": np.arange(9) + 1.0}, fit=(X, y), **options
    )


def test_the_generator_of_everybody_is_drawn_from_in_the_same_order(X, y):
    def scores(module, cls):
        np.random.seed(0)
        cv = theirs.ShuffleSplit(3)
        search = module.RandomizedSearchCV(cls(), {"alpha": np.arange(1, 9) * 1.0}, n_iter=2, cv=cv)
        return search.fit(X, y).cv_results_["mean_test_score"], np.random.uniform()

    expected, found = scores(theirs, Ridge), scores(ours, GENERIC[Ridge])
    np.testing.assert_allclose(found[0], expected[0])
    assert found[1] == expected[1]


@pytest.mark.parametrize("name", ["HalvingGridSearchCV", "HalvingRandomSearchCV"])
@pytest.mark.parametrize("resource", ["n_samples", "n_neighbors"])
def test_halving_searches_are_scikit_learns(name, resource, X, codes):
    from sklearn.experimental import enable_halving_search_cv  # noqa: F401

    options = {"random_state": 0, "cv": 3, "resource": resource}
    if resource != "n_samples":
        options["max_resources"] = 9
    grid = {"weights": ["uniform", "distance"]}
    both(name, GENERIC[KNeighborsClassifier](), grid, fit=(X, codes), **options)


def test_halving_searches_are_there_where_they_are_in_scikit_learn():
    code = """
import accelsk.model_selection as ours
try:
    ours.HalvingGridSearchCV
except ImportError as error:
    assert "enable_halving_search_cv" in str(error)
else:
    raise SystemExit(1)
from accelsk.experimental import enable_halving_search_cv
from accelsk._halving import HalvingGridSearchCV
assert ours.HalvingGridSearchCV is HalvingGridSearchCV
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)


# Data of all kinds


def test_names_of_features_come_from_the_frame(X, y):
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame(X, columns=list("abcd"))
    found, ran = both("GridSearchCV", GENERIC[Ridge](), {"alpha": [1.0]}, fit=(frame, pd.Series(y)))
    assert list(found.feature_names_in_) == list("abcd")
    assert list(found.best_estimator_.feature_names_in_) == list("abcd")
    assert ran["Ridge.fit"].gpu_calls == 6
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found.predict(frame)
        result = ours.cross_validate(GENERIC[Ridge](), frame, y, return_estimator=True)
    assert list(result["estimator"][0].feature_names_in_) == list("abcd")


@pytest.mark.parametrize("kind", ["list", "sparse", "polars", "int", "float32", "fortran"])
def test_data_of_all_kinds(kind, X, y):
    if kind == "polars":
        polars = pytest.importorskip("polars")
        X = polars.DataFrame(X, schema=list("abcd"))
    else:
        X = {
            "list": X.tolist,
            "sparse": lambda: sparse.csr_matrix(X),
            "int": lambda: (10 * X).astype(int),
            "float32": lambda: X.astype(np.float32),
            "fortran": lambda: np.asfortranarray(X),
        }[kind]()
    both("GridSearchCV", GENERIC[Ridge](), {"alpha": [0.1, 10.0]}, fit=(X, y), cv=3)


def test_groups_and_weights_go_along(X, y):
    weight = np.random.default_rng(0).uniform(0.5, 2, len(X))
    groups = np.arange(len(X)) % 6
    cv = theirs.GroupKFold(3)
    plain = theirs.GridSearchCV(Ridge(), {"alpha": [1.0, 100.0]}, cv=cv)
    plain.fit(X, y, groups=groups, sample_weight=weight)
    found = ours.GridSearchCV(GENERIC[Ridge](), {"alpha": [1.0, 100.0]}, cv=cv)
    found.fit(X, y, groups=groups, sample_weight=weight)
    assert_same_search(found, plain)
    np.testing.assert_allclose(found.best_estimator_.coef_, plain.best_estimator_.coef_)


def test_metadata_is_routed(X, y):
    weight = np.random.default_rng(0).uniform(0.5, 2, len(X))
    with accelsk_routing():
        estimators = [cls().set_fit_request(sample_weight=True) for cls in (Ridge, GENERIC[Ridge])]
        scorers = [make_scorer(mean_absolute_error).set_score_request(sample_weight=True)] * 2
        plain, found = (
            module.GridSearchCV(estimator, {"alpha": [1.0, 9.0]}, scoring=scorer).fit(
                X, y, sample_weight=weight
            )
            for module, estimator, scorer in zip((theirs, ours), estimators, scorers, strict=True)
        )
        assert_same_search(found, plain)
        for module, estimator in zip((theirs, ours), estimators, strict=True):
            with pytest.raises(Exception, match=r"are passed .*but are not explicitly set"):
                module.cross_validate(
                    clone(estimator).set_fit_request(sample_weight=None),
                    X,
                    y,
                    params={"sample_weight": weight},
                )


def accelsk_routing():
    import sklearn

    return sklearn.config_context(enable_metadata_routing=True)


def test_precomputed_kernels_are_cut_both_ways(X, codes):
    K = X @ X.T
    both("GridSearchCV", GENERIC[SVC](kernel="precomputed"), {"C": [0.1, 1.0]}, fit=(K, codes))


def test_splitters_get_what_the_caller_gave(X, y):
    seen = []

    class Splitter(theirs.KFold):
        def split(self, X, y=None, groups=None):
            seen.append((X, y))
            return super().split(X, y, groups)

    ours.GridSearchCV(GENERIC[Ridge](), {"alpha": [1.0]}, cv=Splitter(3)).fit(X, y)
    ours.cross_val_score(GENERIC[Ridge](), X, y, cv=Splitter(3))
    assert all(one is X and other is y for one, other in seen)
    assert len(seen) == 2


# Failures


def _caught(call):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        result = call()
    return result, [(w.category, str(w.message).partition("\n")[0]) for w in caught]


def test_fits_that_fail_are_scikit_learns(X, y):
    grid = {"alpha": [1.0, -1.0]}
    (plain, expected), (found, caught) = (
        _caught(lambda m=module, c=cls: m.GridSearchCV(c(), grid).fit(X, y))
        for module, cls in ((theirs, Ridge), (ours, GENERIC[Ridge]))
    )
    assert caught == expected
    assert "FitFailedWarning" in [category.__name__ for category, _ in caught]
    assert_same_search(found, plain)
    with pytest.raises(ValueError, match="'alpha' parameter of Ridge"):
        ours.GridSearchCV(GENERIC[Ridge](), grid, error_score="raise").fit(X, y)


def test_a_call_that_falls_back_gets_data_on_the_host(X, y):
    engine_of(GENERIC[Ridge]).refusing = {"predict": "not today", "score": "not today"}
    _, ran = both(
        "GridSearchCV", GENERIC[Ridge](), {"alpha": [1.0]}, fit=(X, y), scoring=["r2"], refit="r2"
    )
    assert (ran["Ridge.fit"].gpu_calls, ran["Ridge.predict"].cpu_calls) == (6, 5)


def test_an_engine_that_fails_costs_nothing(X, y):
    engine_of(GENERIC[Ridge]).failing = {"fit": RuntimeError("broken"), "score": MemoryError()}
    both("GridSearchCV", GENERIC[Ridge](), {"alpha": [1.0, 2.0]}, fit=(X, y))


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"cv": "none"}, ValueError),
        ({"cv": 1}, ValueError),
        ({"scoring": "none"}, ValueError),
        ({"scoring": []}, ValueError),
        ({"scoring": ["r2", "neg_max_error"]}, ValueError),
        ({"n_jobs": "many"}, ValueError),
        ({"error_score": "none"}, ValueError),
    ],
)
def test_errors_are_scikit_learns(arguments, error, X, y):
    raised = []
    for module, cls in ((theirs, Ridge), (ours, GENERIC[Ridge])):
        search = module.GridSearchCV(cls(), {"alpha": [1.0]}, **arguments)
        with pytest.raises(error) as info:
            search.fit(X, y)
        raised.append(str(info.value).replace("engine.Ridge", "Ridge"))
        assert search.cv is arguments.get("cv")
    assert raised[0] == raised[1]
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        ours.GridSearchCV(GENERIC[Ridge](), {"alpha": [1.0]}).fit(X, y[:-1])


def test_a_metric_is_no_scorer(X, codes):
    for metric in (accuracy_score, accelsk.metrics.accuracy_score):
        with pytest.raises(ValueError, match="make_scorer"):
            ours.cross_val_score(GENERIC[Ridge](), X, codes, scoring=metric)
        with pytest.raises(ValueError, match="make_scorer"):
            accelsk.metrics.check_scoring(GENERIC[Ridge](), scoring=metric)
    scorer = make_scorer(accelsk.metrics.accuracy_score)
    assert accelsk.metrics.check_scoring(GENERIC[Ridge](), scorer) is scorer
    assert pickle.loads(pickle.dumps(scorer))._score_func is accelsk.metrics.accuracy_score


# Functions

SCORED = {
    "cross_val_score": {},
    "cross_validate": {"scoring": ["r2", "neg_mean_squared_error"], "return_train_score": True},
    "learning_curve": {"shuffle": True, "random_state": 0},
    "validation_curve": {"param_name": "alpha", "param_range": [0.1, 1.0]},
    "permutation_test_score": {"n_permutations": 5, "random_state": 0},
}


def _same(found, expected):
    if isinstance(expected, dict):
        assert_same_results(found, expected)
    else:
        assert type(found) is type(expected)
        for one, other in zip(np.atleast_1d(found), np.atleast_1d(expected), strict=True):
            np.testing.assert_allclose(one, other)


@pytest.mark.parametrize("name", SCORED)
@pytest.mark.parametrize("cls", [GENERIC[Ridge], accelsk.linear_model.Ridge])
def test_scores_are_scikit_learns(name, cls, X, y):
    options = SCORED[name]
    expected = getattr(theirs, name)(Ridge(), X, y, **options)
    with accelsk.profile(quiet=True) as results:
        found = getattr(ours, name)(cls(), X, y, n_jobs=2, **options)
    for one, other in zip(
        *((r.values() if isinstance(r, dict) else r) for r in (found, expected)), strict=True
    ):
        if not isinstance(found, dict):
            np.testing.assert_allclose(one, other)
    if isinstance(found, dict):
        assert_same_results(found, expected)
    assert results.method_calls["Ridge.fit"].cpu_calls == 0


@pytest.mark.parametrize("method", ["predict", "predict_proba", "decision_function"])
def test_predictions_are_scikit_learns(method, X, codes):
    names = np.array(["a", "b", "c"])[codes]
    for target in (codes, names):
        expected = theirs.cross_val_predict(LogisticRegression(), X, target, method=method)
        found = ours.cross_val_predict(GENERIC[LogisticRegression](), X, target, method=method)
        assert type(found) is np.ndarray
        assert found.dtype == expected.dtype
        if expected.dtype.kind == "U":
            assert (found == expected).all()
        else:
            np.testing.assert_allclose(found, expected)


def test_predictions_for_data_on_the_device_are_there(X, y):
    up = device_double._asarray
    expected = theirs.cross_val_predict(Ridge(), X, y)
    found = ours.cross_val_predict(accelsk.linear_model.Ridge(), up(X), up(y))
    assert type(found) is device_double.DeviceArray
    np.testing.assert_allclose(found.get(), expected)
    search = ours.GridSearchCV(accelsk.linear_model.Ridge(), {"alpha": [1.0]}).fit(up(X), up(y))
    assert type(search.predict(up(X))) is device_double.DeviceArray
    assert search.score(up(X), up(y)) == pytest.approx(search.score(X, y))
    plain = ours.GridSearchCV(Ridge(), {"alpha": [1.0]}).fit(up(X), up(y))
    np.testing.assert_allclose(plain.predict(X), search.predict(X))


def test_searches_nest(X, y):
    def nested(module, cls):
        return module.cross_val_score(module.GridSearchCV(cls(), {"alpha": [0.1, 100.0]}), X, y)

    np.testing.assert_allclose(nested(ours, GENERIC[Ridge]), nested(theirs, Ridge))


def test_multimetric_searches_nest(X, y):
    def nested(module, cls):
        inner = module.GridSearchCV(
            cls(), {"alpha": [0.1, 9.0]}, scoring=["r2", "neg_max_error"], refit="r2"
        )
        return module.cross_validate(inner, X, y, return_estimator=True)

    found, expected = nested(ours, GENERIC[Ridge]), nested(theirs, Ridge)
    np.testing.assert_allclose(found["test_score"], expected["test_score"])
    assert _named(found["estimator"][0].scorer_) == _named(expected["estimator"][0].scorer_)


# Estimators of all kinds


class _Louder(GENERIC[Ridge]):
    def predict(self, X):
        assert type(X) is np.ndarray
        return 2 * super().predict(X)


def test_a_subclass_of_the_users_gets_data_on_the_host(X, y):
    plain = theirs.cross_val_score(_Louder(), X, y, scoring="r2")
    np.testing.assert_allclose(ours.cross_val_score(_Louder(), X, y, scoring="r2"), plain)


def test_other_estimators_are_left_to_scikit_learn(X, y, monkeypatch):
    monkeypatch.setattr("accelsk._residence.Residence", None)
    pipeline = make_pipeline(StandardScaler(), GENERIC[Ridge]())
    expected = theirs.cross_val_score(make_pipeline(StandardScaler(), Ridge()), X, y)
    np.testing.assert_allclose(ours.cross_val_score(pipeline, X, y), expected)
    np.testing.assert_allclose(
        ours.cross_val_score(Ridge(), X, y), theirs.cross_val_score(Ridge(), X, y)
    )


def test_an_estimator_that_writes_into_its_data_gets_its_own(X):
    cls = GENERIC[StandardScaler]
    before = X.copy()

    def score(estimator, X, y=None):
        return float(np.sum(estimator.fit_transform(X)[0]))

    found = ours.cross_val_score(cls(copy=False), X, scoring=score)
    np.testing.assert_allclose(
        found, theirs.cross_val_score(StandardScaler(copy=False), X, scoring=score)
    )
    assert (before == X).all()


def test_the_cpu_is_used_where_it_is_asked_for(X, y):
    with accelsk.config_context(device="cpu"), accelsk.profile(quiet=True) as results:
        ours.GridSearchCV(GENERIC[Ridge](), {"alpha": [1.0]}).fit(X, y)
    assert results.method_calls["Ridge.fit"].gpu_calls == 0


def test_data_too_large_for_the_device_stay_on_the_host(X, y):
    uploaded = traffic.moved().uploaded
    with accelsk.config_context(device_memory_limit=3 * X.nbytes):
        ours.cross_val_score(GENERIC[Ridge](), X, y)
    assert traffic.moved().uploaded == uploaded


# Searches as objects


def test_searches_pickle_and_copy(X, y):
    search = ours.GridSearchCV(accelsk.linear_model.Ridge(), {"alpha": [1.0, 2.0]}).fit(X, y)
    again = pickle.loads(pickle.dumps(search))
    assert type(again) is ours.GridSearchCV
    np.testing.assert_allclose(again.predict(X), search.predict(X))
    assert isinstance(search, theirs.GridSearchCV)
    assert ours.GridSearchCV.__doc__ == theirs.GridSearchCV.__doc__
    assert type(clone(search)) is ours.GridSearchCV
    assert repr(search) == repr(theirs.GridSearchCV(search.estimator, {"alpha": [1.0, 2.0]}))


def test_a_refit_drops_nothing_and_leaves_nothing(X, y):
    search = ours.GridSearchCV(GENERIC[Ridge](), {"alpha": [1.0, 2.0]}, cv=4)
    assert search.fit(X, y) is search
    first = search.cv_results_
    search.fit(X, y)
    assert_same_results(search.cv_results_, first)
    assert search.cv == 4
    assert not [name for name in vars(search) if "accelsk" in name]
    assert issubclass(ours.GridSearchCV, Search)


def test_one_process_uses_the_gpu(X, y, caplog, monkeypatch):
    with caplog.at_level(logging.INFO, "accelsk"):
        ours.GridSearchCV(GENERIC[Ridge](), {"alpha": [1.0]}, n_jobs=2).fit(X, y)
    assert "GridSearchCV.fit: n_jobs has no effect" in caplog.text
    caplog.clear()
    monkeypatch.setattr("accelsk._residence._any_on_gpu", lambda *_: False)  # for one fit, it may
    with caplog.at_level(logging.INFO, "accelsk"):
        ours.cross_val_score(GENERIC[Ridge](), X, y, n_jobs=2)
    assert "cross_val_score: n_jobs has no effect" in caplog.text
    caplog.clear()
    with caplog.at_level(logging.INFO, "accelsk"):
        ours.cross_val_score(GENERIC[Ridge](), X, y)
        ours.cross_val_score(Ridge(), X, y, n_jobs=2)
    assert "n_jobs" not in caplog.text


# What moves


def test_the_data_go_up_once(X, y):
    before = traffic.moved().uploaded
    ours.GridSearchCV(accelsk.linear_model.Ridge(), {"alpha": np.arange(1.0, 6)}).fit(X, y)
    uploaded = traffic.moved().uploaded - before
    indices = 8 * len(X) * 5  # of the rows of each fold and of its complement, at most
    models = 200 * 26
    assert X.nbytes + y.nbytes <= uploaded < X.nbytes + y.nbytes + indices + models


def _pipelines():
    yield accelsk.pipeline.make_pipeline(
        accelsk.preprocessing.StandardScaler(),
        accelsk.decomposition.PCA(),
        accelsk.linear_model.LogisticRegression(),
    )
    yield make_pipeline(StandardScaler(), PCA(), LogisticRegression())


def test_candidates_share_the_steps_that_they_have_in_common(X, codes, monkeypatch):
    ran = Counter()
    original = repeats._first

    def counted(session, key, engine, call, model):
        ran[f"{call.original.__name__}.{call.method}"] += 1
        return original(session, key, engine, call, model)

    monkeypatch.setattr(repeats, "_first", counted)
    grid = {"pca__n_components": [1, 3], "logisticregression__C": [0.1, 1.0, 10.0]}
    found, expected = (
        module.GridSearchCV(pipeline, grid, cv=3, return_train_score=True).fit(X, codes)
        for module, pipeline in zip((ours, theirs), _pipelines(), strict=True)
    )
    for name in ("mean_test_score", "mean_train_score"):
        np.testing.assert_allclose(found.cv_results_[name], expected.cv_results_[name])
    assert ran["StandardScaler.fit_transform"] == 3 + 1
    assert ran["PCA.fit_transform"] == 6 + 1
    scaler, plain = (search.best_estimator_[0] for search in (found, expected))
    np.testing.assert_allclose(scaler.mean_, plain.mean_)
    assert scaler.n_samples_seen_ == plain.n_samples_seen_


def test_what_is_kept_has_a_limit(X, codes, monkeypatch):
    ran = []
    original = repeats._first
    monkeypatch.setattr(repeats, "_first", lambda *args: ran.append(1) or original(*args))
    pipeline, plain = _pipelines()
    grid = {"logisticregression__C": [0.1, 1.0]}
    with accelsk.config_context(device_memory_limit=5 * X.nbytes):
        found = ours.GridSearchCV(pipeline, grid, cv=3).fit(X, codes)
    assert len(ran) == 3 * 2 + 1  # what the scaler makes is too much already
    expected = theirs.GridSearchCV(plain, grid, cv=3).fit(X, codes)
    np.testing.assert_allclose(
        found.cv_results_["mean_test_score"], expected.cv_results_["mean_test_score"]
    )


def test_models_that_candidates_share_are_each_their_own(X, codes):
    pipeline, _ = _pipelines()
    result = ours.GridSearchCV(pipeline, {"logisticregression__C": [0.1, 1.0]}, cv=3).fit(X, codes)
    again = clone(result.best_estimator_).fit(X, codes)
    scaler = result.best_estimator_[0]
    scaler.mean_ = scaler.mean_ + 1
    assert (scaler.mean_ != again[0].mean_).all()
    assert not np.allclose(result.predict(X), again.predict(X))


def test_moments_of_a_fold_are_computed_once(X, y, monkeypatch):
    from accelsk.engines import moments

    rows = []
    original = moments._summed

    def counted(call, *args):
        rows.append(call.X.shape[0])
        return original(call, *args)

    monkeypatch.setattr(moments, "_summed", counted)
    both("GridSearchCV", accelsk.linear_model.Ridge(), {"alpha": [0.1, 1.0, 10.0]}, fit=(X, y))
    assert rows == [18] * 5
    rows.clear()
    both("GridSearchCV", accelsk.decomposition.PCA(), {"n_components": [1, 2, 3]}, fit=(X,), cv=3)
    assert rows == [30] * 3


# Resident data


def _resident(X):
    return Resident(Source(describe(X), Session()))


@pytest.mark.parametrize(
    "key",
    [
        np.array([3, 1, 1]),
        [0, 2],
        slice(1, 9, 2),
        (np.array([5, 6]), Ellipsis),
        np.arange(90) % 2 == 0,
        -1,
        (slice(None), 1),
        np.ix_([0, 1], [2, 3]),
    ],
    ids=str,
)
def test_residents_are_cut_like_arrays(key, X):
    whole = _resident(X)
    for mine, plain in ((whole, X), (whole[np.arange(89, -1, -1)], X[::-1])):
        cut = mine[key]
        np.testing.assert_array_equal(np.asarray(cut), plain[key])
        if isinstance(cut, Resident):
            np.testing.assert_array_equal(cut.on_device.get(), plain[key])
            assert (cut.shape, cut.dtype, len(cut)) == (plain[key].shape, X.dtype, len(plain[key]))


def test_many_permutations_do_not_fill_the_memory(X, y, monkeypatch):
    monkeypatch.setattr("accelsk.device.resident._MOST_INDEX_BYTES", 20 * len(X) * 8)
    sizes = []
    original = Session.rows
    monkeypatch.setattr(
        Session, "rows", lambda self, i: sizes.append(len(self._by_content)) or original(self, i)
    )
    options = {"n_permutations": 30, "random_state": 0}
    found = ours.permutation_test_score(accelsk.linear_model.Ridge(), X, y, **options)
    expected = theirs.permutation_test_score(Ridge(), X, y, **options)
    np.testing.assert_allclose(found[1], expected[1])
    assert max(sizes) < 100


def test_residents_leave_the_process_as_arrays(X):
    cut = _resident(X)[np.array([3, 1])]
    for copied in (pickle.loads(pickle.dumps(cut)), copy.deepcopy(cut)):
        assert type(copied) is np.ndarray
        np.testing.assert_array_equal(copied, X[[3, 1]])


def test_what_follows_each_other_is_no_copy(X):
    whole = _resident(X)
    assert np.may_share_memory(whole[np.arange(3, 9)].on_device, whole.on_device)
    assert whole.get() is X


def test_what_is_computed_of_the_same_rows_is_kept(X):
    calls = []

    def total(rows):
        calls.append(len(rows))
        return np.asarray(rows).sum()

    whole, indices = _resident(X), np.arange(0, 90, 2)
    for key in (indices, indices, indices.copy()):
        assert remembered("total", [whole[key]], total) == pytest.approx(X[::2].sum())
    assert remembered("total", [X], total) == X.sum()
    assert calls == [45, 90]


def test_what_leaves_a_fold_out_is_made_up_of_the_others(X):
    calls = []

    def total(rows):
        calls.append(len(rows))
        return np.asarray(rows).sum()

    whole = _resident(X)
    splits = list(theirs.KFold(3, shuffle=True, random_state=0).split(X))
    whole.source.folds = whole.source.session.learn(splits, len(X))
    for train, _ in splits:
        found = remembered("total", [whole[train]], total, lambda a, b: a + b)
        assert found == pytest.approx(X[train].sum())
    assert remembered("total", [whole], total, lambda a, b: a + b) == pytest.approx(X.sum())
    assert calls == [30, 30, 30]


@pytest.mark.parametrize(
    "splitter", [theirs.ShuffleSplit(3, random_state=0), theirs.RepeatedKFold(n_splits=2)]
)
def test_folds_that_overlap_are_not_taken_apart(splitter, X):
    session = Session()
    assert session.learn(list(splitter.split(X)), len(X)) == ()
