"""scikit-learn's own machinery works with accelerated estimators as with its own."""

from __future__ import annotations

import importlib
import inspect
import warnings

import numpy as np
import pytest
import sklearn
from comparison import assert_same
from engine import GENERIC, REGISTERED, AcceleratedCentering, AcceleratedLine, Centering, engine_of
from sklearn.base import clone, is_classifier, is_clusterer, is_regressor
from sklearn.cluster import KMeans
from sklearn.compose import ColumnTransformer, TransformedTargetRegressor
from sklearn.decomposition import PCA
from sklearn.ensemble import (
    BaggingRegressor,
    RandomForestClassifier,
    StackingRegressor,
    VotingClassifier,
)
from sklearn.feature_selection import RFE, SelectFromModel
from sklearn.frozen import FrozenEstimator
from sklearn.inspection import permutation_importance
from sklearn.linear_model import LinearRegression, LogisticRegression, Ridge
from sklearn.model_selection import (
    GridSearchCV,
    RandomizedSearchCV,
    cross_val_predict,
    cross_val_score,
    cross_validate,
    learning_curve,
)
from sklearn.multiclass import OneVsRestClassifier
from sklearn.multioutput import MultiOutputRegressor
from sklearn.pipeline import FeatureUnion, make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils import get_tags
from sklearn.utils.estimator_checks import parametrize_with_checks

import accelsk


def _ours(estimator):
    """Return `estimator` with every part replaced by its accelerated class."""
    parameters = {
        name: _ours(value) if hasattr(value, "get_params") else value
        for name, value in estimator.get_params(deep=False).items()
    }
    for name in ("steps", "transformers", "estimators", "transformer_list"):
        if name in parameters:
            parameters[name] = [
                (item[0], _ours(item[1]) if hasattr(item[1], "get_params") else item[1], *item[2:])
                for item in parameters[name]
            ]
    return REGISTERED.get(type(estimator), type(estimator))(**parameters)


def _same_story(estimator, X, y, *methods):
    ours, theirs = _ours(estimator).fit(X, y), clone(estimator).fit(X, y)
    for method in methods:
        arguments = (X, y) if method == "score" else (X,)
        assert_same(getattr(ours, method)(*arguments), getattr(theirs, method)(*arguments), method)
    return ours


# The class itself


@pytest.mark.parametrize("original", REGISTERED, ids=lambda c: c.__name__)
def test_class_is_what_the_original_is(original):
    cls = REGISTERED[original]
    assert issubclass(cls, original)
    assert inspect.signature(cls) == inspect.signature(original)
    assert cls.__doc__ == original.__doc__
    assert cls().get_params() == original().get_params()
    assert (cls._parameter_constraints if hasattr(cls, "_parameter_constraints") else None) == (
        getattr(original, "_parameter_constraints", None)
    )
    assert repr(cls()).replace("Accelerated", "") == repr(original())
    assert get_tags(cls()) == get_tags(original())
    for kind in (is_classifier, is_regressor, is_clusterer):
        assert kind(cls()) == kind(original())


@pytest.mark.parametrize("original", GENERIC, ids=lambda c: c.__name__)
def test_methods_have_signature_and_docstring_of_the_originals(original):
    cls = GENERIC[original]
    for name in engine_of(cls).methods:
        ours, theirs = getattr(cls, name), getattr(original, name)
        assert inspect.signature(ours) == inspect.signature(theirs)
        assert ours.__doc__ == theirs.__doc__
        assert ours.__name__ == theirs.__name__


@pytest.mark.parametrize("module", ["linear_model.Ridge", "cluster.KMeans", "decomposition.PCA"])
def test_html_leads_to_the_documentation_of_the_original(module):
    package, _, name = module.partition(".")
    ours = getattr(importlib.import_module(f"accelsk.{package}"), name)()
    theirs = getattr(importlib.import_module(f"sklearn.{package}"), name)()
    assert ours._get_doc_link() == theirs._get_doc_link() != ""
    assert ours._get_doc_link() in ours._repr_html_()


def test_html_of_a_pipeline_can_be_drawn(data):
    pipeline = make_pipeline(AcceleratedCentering(), AcceleratedLine()).fit(*data)
    assert "AcceleratedLine" in pipeline._repr_html_()


@parametrize_with_checks([AcceleratedLine(), AcceleratedCentering()])
def test_scikit_learns_checks_pass(estimator, check):
    if "sample_weight" in str(check) or "sparse" in str(check):
        pytest.skip("Line itself fails it")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        check(estimator)


# Output


@pytest.mark.parametrize("container", ["pandas", "polars"])
@pytest.mark.parametrize("original", [StandardScaler, PCA, Centering])
def test_set_output(original, container, data):
    pd = pytest.importorskip("pandas")
    library = pytest.importorskip(container)
    frame = pd.DataFrame(data[0], columns=["a", "b", "c"])
    ours, theirs = REGISTERED[original](), original()
    for estimator in (ours, theirs):
        estimator.set_output(transform=container)
    for X in (frame, data[0]):
        results = [
            [e.fit(X).transform(X), e.fit_transform(X), e.fit(X).get_feature_names_out()]
            for e in (ours, theirs)
        ]
        for a, b in zip(*results, strict=True):
            assert type(a) is type(b)
            if isinstance(b, library.DataFrame):
                assert list(a.columns) == [c.replace("acceleratedc", "c") for c in list(a.columns)]
                assert_same(np.asarray(a), np.asarray(b))
    assert engine_of(ours).counts["transform"] >= 2


def test_output_of_a_whole_pipeline(data):
    pytest.importorskip("pandas")
    pipeline = make_pipeline(GENERIC[StandardScaler](), GENERIC[PCA](2))
    frame = pipeline.set_output(transform="pandas").fit_transform(data[0])
    assert list(frame.columns) == ["pca0", "pca1"]


def test_global_output_configuration(data):
    pd = pytest.importorskip("pandas")
    with sklearn.config_context(transform_output="pandas"):
        assert isinstance(GENERIC[StandardScaler]().fit_transform(data[0]), pd.DataFrame)


# Metadata routing


def test_metadata_is_routed_to_the_engine(data):
    X, y = data
    weight = np.arange(len(X)) + 1.0
    with sklearn.config_context(enable_metadata_routing=True):
        ours = (
            GENERIC[Ridge]()
            .set_fit_request(sample_weight=True)
            .set_score_request(sample_weight=True)
        )
        theirs = Ridge().set_fit_request(sample_weight=True).set_score_request(sample_weight=True)
        requests = [
            e.get_metadata_routing()._serialize() if hasattr(e, "get_metadata_routing") else None
            for e in (ours, theirs)
        ]
        assert requests[0] == requests[1]
        params = {"sample_weight": weight}
        scores = [cross_validate(e, X, y, params=params)["test_score"] for e in (ours, theirs)]
        np.testing.assert_allclose(*scores)
        unset = GENERIC[Ridge]()
        with pytest.raises(ValueError, match="sample_weight"):
            cross_validate(unset, X, y, params=params, error_score="raise")
    assert engine_of(GENERIC[Ridge]).counts["fit"] == 5


# Meta-estimators


def test_pipeline(data):
    _same_story(make_pipeline(StandardScaler(), PCA(2), Ridge()), *data, "predict", "score")
    for original in (StandardScaler, PCA, Ridge):
        assert (
            engine_of(GENERIC[original]).counts["fit"]
            + engine_of(GENERIC[original]).counts["fit_transform"]
        )


def test_pipeline_with_memory(data, tmp_path):
    pipeline = make_pipeline(AcceleratedCentering(), AcceleratedLine(), memory=str(tmp_path))
    first = pipeline.fit(*data).predict(data[0])
    assert_same(clone(pipeline).fit(*data).predict(data[0]), first)
    assert engine_of(AcceleratedCentering).counts["fit"] == 1


def test_column_transformer_and_union(data):
    columns = ColumnTransformer(
        [("scale", StandardScaler(), [0, 1]), ("pca", PCA(1), [1, 2])], remainder="passthrough"
    )
    _same_story(columns, *data, "transform")
    _same_story(FeatureUnion([("a", StandardScaler()), ("b", PCA(1))]), *data, "transform")


def test_search(data):
    grid = {"alpha": [0.1, 1.0, 10.0]}
    searched = _same_story(GridSearchCV(Ridge(), grid, cv=3), *data, "predict", "score")
    assert type(searched.best_estimator_) is GENERIC[Ridge]
    assert engine_of(GENERIC[Ridge]).counts["fit"] == 10
    _same_story(RandomizedSearchCV(Ridge(), grid, n_iter=2, random_state=0), *data, "predict")


def test_search_in_two_processes(data):
    grid = {"shrinkage": [0.1, 1.0]}
    searched = GridSearchCV(AcceleratedLine(), grid, cv=2, n_jobs=2).fit(*data)
    assert type(searched.best_estimator_) is AcceleratedLine
    assert searched.best_params_ == {"shrinkage": 0.1}


def test_search_with_a_bad_value_scores_nan_as_in_scikit_learn(data):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        ours = GridSearchCV(GENERIC[Ridge](), {"alpha": [-1, 1.0]}).fit(*data)
    assert np.isnan(ours.cv_results_["mean_test_score"][0])
    assert ours.best_params_ == {"alpha": 1.0}


def test_cross_validation(data, labelled):
    for original, (X, y) in [(Ridge, data), (LogisticRegression, labelled)]:
        ours, theirs = GENERIC[original](), original()
        np.testing.assert_allclose(cross_val_score(ours, X, y), cross_val_score(theirs, X, y))
        assert_same(cross_val_predict(ours, X, y), cross_val_predict(theirs, X, y))
    sizes, *scores = learning_curve(GENERIC[Ridge](), *data, cv=3)
    assert len(sizes) == len(scores[0])


def test_ensembles_of_accelerated_estimators(data, labelled):
    _same_story(BaggingRegressor(Ridge(), 3, random_state=0), *data, "predict")
    _same_story(
        TransformedTargetRegressor(Ridge(), func=np.exp, inverse_func=np.log), *data, "predict"
    )
    _same_story(StackingRegressor([("a", Ridge()), ("b", LinearRegression())]), *data, "predict")
    voting = VotingClassifier(
        [("a", LogisticRegression()), ("b", RandomForestClassifier(3, random_state=0))],
        voting="soft",
    )
    _same_story(voting, *labelled, "predict", "predict_proba")
    _same_story(OneVsRestClassifier(LogisticRegression()), *labelled, "predict")
    X, y = data
    _same_story(MultiOutputRegressor(Ridge()), X, np.c_[y, -y], "predict")


def test_selection_by_a_fitted_attribute(data, labelled):
    _same_story(RFE(Ridge(), n_features_to_select=2), *data, "transform", "predict")
    forest = RandomForestClassifier(5, random_state=0)
    _same_story(SelectFromModel(forest), *labelled, "transform")
    prefit = SelectFromModel(GENERIC[Ridge]().fit(*data), prefit=True)
    assert prefit.transform(data[0]).shape[1] < 3


def test_inspection(data):
    ours, theirs = GENERIC[Ridge]().fit(*data), Ridge().fit(*data)
    importances = [permutation_importance(e, *data, random_state=0) for e in (ours, theirs)]
    assert_same(importances[0].importances, importances[1].importances)


def test_frozen_estimator(data):
    frozen = FrozenEstimator(AcceleratedLine().fit(*data))
    assert_same(clone(frozen).fit(*data).predict(data[0]), frozen.estimator.predict(data[0]))


def test_init_of_kmeans_can_be_what_another_fit_gave(data):
    first = GENERIC[KMeans](3, n_init=1, random_state=0).fit(data[0])
    ours = GENERIC[KMeans](first.cluster_centers_.shape[0], init=first.cluster_centers_, n_init=1)
    assert_same(ours.fit(data[0]).cluster_centers_, first.cluster_centers_)


def test_failed_check_names_the_class_of_the_original(data):
    with pytest.raises(ValueError, match=r"Input X contains NaN\.\nRidge does not accept"):
        GENERIC[Ridge]().fit(data[0] * np.nan, data[1])


def test_callbacks_of_scikit_learn_keep_the_call_there(data):
    line = AcceleratedLine()
    line._skl_callbacks = [object()]
    with accelsk.profile(quiet=True) as results:
        line.fit(*data)
    assert results.method_calls["Line.fit"].fallback_reasons == {"callbacks are set"}
