"""Searches and scores on the GPU: scikit-learn's values, and one upload of the data."""

from __future__ import annotations

import numpy as np
import pytest
import sklearn.metrics
import sklearn.model_selection as theirs
from sklearn.decomposition import PCA
from sklearn.linear_model import ElasticNet, LogisticRegression, Ridge
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import accelsk.decomposition
import accelsk.linear_model
import accelsk.metrics
import accelsk.model_selection as ours
import accelsk.neighbors
import accelsk.pipeline
import accelsk.preprocessing
from accelsk.device import traffic

pytestmark = pytest.mark.gpu


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(2000, 8)) + 2
    y = X @ rng.normal(size=8) + rng.normal(size=len(X))
    return X, y, np.digitize(y, np.quantile(y, [0.4, 0.8]))


def _held_against(search, expected):
    for name, value in expected.cv_results_.items():
        if "time" not in name and name != "params" and value.dtype.kind in "fi":
            assert search.cv_results_[name].dtype == value.dtype
            np.testing.assert_allclose(search.cv_results_[name], value, rtol=1e-6, atol=1e-9)
    assert search.best_params_ == expected.best_params_
    assert vars(search).keys() == vars(expected).keys()


REGRESSION = {
    "ridge": (accelsk.linear_model.Ridge(), Ridge(), {"alpha": [0.1, 10.0, 1e4]}, {}),
    "elastic net": (
        accelsk.linear_model.ElasticNet(),
        ElasticNet(),
        {"alpha": [0.01, 1.0]},
        {
            "scoring": ["r2", "neg_mean_absolute_error", "neg_root_mean_squared_error"],
            "refit": "r2",
            "n_jobs": 2,
        },
    ),
}


@pytest.mark.parametrize("case", REGRESSION)
def test_searches_for_regressors(case, data):
    X, y, _ = data
    mine, plain, grid, options = REGRESSION[case]
    search = ours.GridSearchCV(mine, grid, return_train_score=True, **options).fit(X, y)
    _held_against(
        search, theirs.GridSearchCV(plain, grid, return_train_score=True, **options).fit(X, y)
    )
    assert type(search.predict(X)) is np.ndarray


CLASSIFICATION = {
    "neighbours": (
        accelsk.neighbors.KNeighborsClassifier(),
        KNeighborsClassifier(),
        {"n_neighbors": [3, 9]},
        {"scoring": ["accuracy", "balanced_accuracy"], "refit": "accuracy"},
    ),
    "logistic": (
        accelsk.linear_model.LogisticRegression(),
        LogisticRegression(),
        {"C": [0.01, 1.0]},
        {"scoring": "neg_log_loss"},
    ),
}


@pytest.mark.parametrize("case", CLASSIFICATION)
@pytest.mark.parametrize("binary", [False, True])
def test_searches_for_classifiers(case, binary, data):
    X, _, codes = data
    y = np.array(["no", "yes"])[(codes > 0).astype(int)] if binary else codes
    mine, plain, grid, options = CLASSIFICATION[case]
    search = ours.GridSearchCV(mine, grid, **options).fit(X, y)
    expected = theirs.GridSearchCV(plain, grid, **options).fit(X, y)
    if case == "logistic":  # scikit-learn's solver stops short of the minimum
        np.testing.assert_allclose(
            search.cv_results_["mean_test_score"],
            expected.cv_results_["mean_test_score"],
            rtol=1e-4,
        )
    else:
        _held_against(search, expected)


def test_a_search_for_a_pipeline(data, on_gpu):
    X, _, codes = data
    grid = {"pca__n_components": [3, 5], "logisticregression__C": [0.1, 1.0]}
    mine = accelsk.pipeline.make_pipeline(
        accelsk.preprocessing.StandardScaler(),
        accelsk.decomposition.PCA(),
        accelsk.linear_model.LogisticRegression(),
    )
    before = traffic.moved()
    search = ours.GridSearchCV(mine, grid, cv=4).fit(X, codes)
    uploaded = traffic.moved()[0] - before[0]
    expected = theirs.GridSearchCV(
        make_pipeline(StandardScaler(), PCA(), LogisticRegression()), grid, cv=4
    ).fit(X, codes)
    np.testing.assert_allclose(
        search.cv_results_["mean_test_score"], expected.cv_results_["mean_test_score"], atol=2e-3
    )
    assert uploaded < 2 * X.nbytes
    assert on_gpu.count("LogisticRegression.fit") == 17


def test_the_data_go_up_once(data):
    X, y, _ = data
    before = traffic.moved()
    ours.GridSearchCV(accelsk.linear_model.Ridge(), {"alpha": [0.1, 1.0, 10.0]}).fit(X, y)
    moved = traffic.moved()
    assert X.nbytes <= moved[0] - before[0] < 2 * X.nbytes
    assert moved[1] - before[1] < X.nbytes // 8


def test_predictions_by_fold(data):
    import cupy

    X, y, codes = data
    expected = theirs.cross_val_predict(Ridge(), X, y)
    ridge = accelsk.linear_model.Ridge()
    np.testing.assert_allclose(ours.cross_val_predict(ridge, X, y), expected)
    found = ours.cross_val_predict(ridge, cupy.asarray(X), cupy.asarray(y))
    assert isinstance(found, cupy.ndarray)
    np.testing.assert_allclose(found.get(), expected)
    for method in ("predict_proba", "decision_function"):
        np.testing.assert_allclose(
            ours.cross_val_predict(
                accelsk.linear_model.LogisticRegression(), X, codes, method=method
            ),
            theirs.cross_val_predict(LogisticRegression(), X, codes, method=method),
            atol=1e-3,
        )


@pytest.mark.parametrize("name", ["cross_val_score", "permutation_test_score"])
def test_scores_by_fold(name, data):
    X, y, _ = data
    options = {"n_permutations": 3, "random_state": 0} if "permutation" in name else {}
    found = getattr(ours, name)(accelsk.linear_model.Ridge(), X, y, **options)
    expected = getattr(theirs, name)(Ridge(), X, y, **options)
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-7, atol=1e-10)


_RNG = np.random.default_rng(1)
_N = 5000
_Y = _RNG.integers(0, 3, _N)
_P = np.where(_RNG.random(_N) < 0.7, _Y, _RNG.integers(0, 3, _N))
_T = np.abs(_RNG.normal(size=_N) + 3)
_Q = np.abs(_T + _RNG.normal(size=_N))

METRICS = {
    "accuracy_score": (_Y, _P),
    "balanced_accuracy_score": (_Y, _P),
    "confusion_matrix": (_Y, _P),
    "log_loss": (_Y, _RNG.dirichlet(np.ones(3), _N)),
    "roc_auc_score": (_Y > 1, (_Q * (1 + _Y)).round(2)),
    "average_precision_score": (_Y > 1, (_Q * (1 + _Y)).round(2)),
    "r2_score": (_T, _Q),
    "mean_squared_error": (_T, _Q),
    "root_mean_squared_error": (_T, _Q),
    "mean_absolute_error": (_T, _Q),
    "mean_squared_log_error": (_T, _Q),
    "root_mean_squared_log_error": (_T, _Q),
    "median_absolute_error": (_T, _Q),
    "adjusted_rand_score": (_Y, _P),
    "silhouette_score": (np.c_[_T, _Q][:1500], _Y[:1500]),
    "silhouette_samples": (np.c_[_T, _Q][:1500], _Y[:1500]),
    "pairwise_distances": (np.c_[_T, _Q][:300],),
}
_UNWEIGHTED = {"median_absolute_error", "adjusted_rand_score", "pairwise_distances"}


@pytest.mark.parametrize("name", METRICS)
def test_metrics(name):
    import cupy

    args = METRICS[name]
    weighted = name not in _UNWEIGHTED and not name.startswith("silhouette")
    for weight in (None, _Q) if weighted else (None,):
        options = {} if weight is None else {"sample_weight": weight}
        expected = getattr(sklearn.metrics, name)(*args, **options)
        on_host = getattr(accelsk.metrics, name)(*args, **options)
        sent = {key: cupy.asarray(value) for key, value in options.items()}
        on_device = getattr(accelsk.metrics, name)(*map(cupy.asarray, args), **sent)
        assert isinstance(on_device, cupy.ndarray if np.ndim(expected) else float)
        assert isinstance(on_host, np.ndarray if np.ndim(expected) else float)
        for found in (on_host, cupy.asnumpy(on_device)):
            np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-7)
