"""Forests are approximate: their quality, and properties of the trees that were fitted."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from class_cases import classification, regression
from sklearn.base import is_classifier
from sklearn.datasets import load_breast_cancer, load_diabetes, make_classification
from sklearn.feature_selection import RFE, SelectFromModel
from sklearn.model_selection import train_test_split

import accelsk
from accelsk.ensemble import RandomForestClassifier, RandomForestRegressor

pytestmark = pytest.mark.gpu

FORESTS = (RandomForestClassifier, RandomForestRegressor)
each_forest = pytest.mark.parametrize("cls", FORESTS, ids=lambda cls: cls.__name__)


def training(cls: Any) -> tuple[Any, Any]:
    return (classification if issubclass(cls, RandomForestClassifier) else regression)()[:2]


def trees(forest: Any) -> list[Any]:
    return [tree.tree_ for tree in forest.estimators_]


@each_forest
@pytest.mark.parametrize("limit", [1, 3, 6])
def test_no_tree_is_deeper_than_max_depth(cls: Any, limit: int) -> None:
    forest = cls(10, max_depth=limit, random_state=0).fit(*training(cls))
    assert max(tree.max_depth for tree in trees(forest)) == limit
    assert all(tree.get_depth() <= limit for tree in forest.estimators_)


@each_forest
@pytest.mark.parametrize("limit", [1, 5, 20, 0.1])
def test_no_leaf_is_smaller_than_min_samples_leaf(cls: Any, limit: float) -> None:
    X, y = training(cls)
    forest = cls(10, min_samples_leaf=limit, bootstrap=False, random_state=0).fit(X, y)
    least = limit if limit >= 1 else np.ceil(limit * len(X))
    for tree in trees(forest):
        leaves = tree.children_left == -1
        assert tree.n_node_samples[leaves].min() >= least
        # what the nodes say, held against the rows themselves
        occupancy = np.bincount(tree.apply(X.astype(np.float32)))
        np.testing.assert_array_equal(occupancy[leaves], tree.n_node_samples[leaves])


@each_forest
@pytest.mark.parametrize("limit", [2, 10, 50, 0.3])
def test_no_node_smaller_than_min_samples_split_is_split(cls: Any, limit: float) -> None:
    X, y = training(cls)
    forest = cls(10, min_samples_split=limit, random_state=0).fit(X, y)
    least = limit if limit >= 2 else np.ceil(limit * len(X))
    for tree in trees(forest):
        assert (tree.n_node_samples[tree.children_left != -1] >= least).all()


@each_forest
def test_without_limits_trees_fit_distinct_training_rows(cls: Any) -> None:
    X, y = training(cls)
    forest = cls(5, bootstrap=False, max_features=None, random_state=0).fit(X, y)
    assert forest.score(X, y) > 0.999


@each_forest
@pytest.mark.parametrize("share", [0.2, 0.5, 37])
def test_max_samples_is_how_many_rows_a_tree_is_grown_on(cls: Any, share: float) -> None:
    X, y = training(cls)
    forest = cls(10, max_samples=share, random_state=0).fit(X, y)
    plain = cls._accelsk_original(10, max_samples=share, random_state=0).fit(X, y)
    for left, right in zip(trees(forest), trees(plain), strict=True):
        assert left.weighted_n_node_samples[0] == right.weighted_n_node_samples[0]


@each_forest
def test_the_out_of_bag_score_is_near_scikit_learns(cls: Any) -> None:
    X, y = training(cls)
    found = [
        kind(40, oob_score=True, random_state=0).fit(X, y) for kind in (cls, cls._accelsk_original)
    ]
    assert found[0].oob_score_ == pytest.approx(found[1].oob_score_, abs=0.06)
    for name in ("oob_decision_function_", "oob_prediction_"):
        if hasattr(found[1], name):
            left, right = (getattr(forest, name) for forest in found)
            assert (left.shape, left.dtype) == (right.shape, right.dtype)


@each_forest
@pytest.mark.parametrize("max_features", [None, 1, 0.5, "sqrt", "log2"])
def test_max_features_is_known_to_the_trees(cls: Any, max_features: Any) -> None:
    X, y = training(cls)
    forest = cls(5, max_features=max_features, random_state=0).fit(X, y)
    plain = cls._accelsk_original(5, max_features=max_features, random_state=0).fit(X, y)
    assert forest.estimators_[0].max_features_ == plain.estimators_[0].max_features_


@each_forest
@pytest.mark.parametrize(
    "parameters",
    [
        {"max_leaf_nodes": 5},
        {"min_impurity_decrease": 0.1},
        {"min_weight_fraction_leaf": 0.1},
        {"ccp_alpha": 0.01},
        {"warm_start": True},
    ],
    ids=str,
)
def test_what_cuml_does_otherwise_falls_back(cls: Any, parameters: Any, on_gpu: Any) -> None:
    X, y = training(cls)
    with on_gpu.falls_back():
        forest = cls(20, random_state=0, **parameters).fit(X, y)
    plain = cls._accelsk_original(20, random_state=0, **parameters).fit(X, y)
    for left, right in zip(trees(forest), trees(plain), strict=True):
        assert left.node_count == right.node_count
        np.testing.assert_array_equal(left.threshold, right.threshold)


@each_forest
def test_the_nodes_add_up(cls: Any) -> None:
    X, y = training(cls)
    for tree in trees(cls(5, random_state=0).fit(X, y)):
        inner = tree.children_left != -1
        left, right = tree.children_left[inner], tree.children_right[inner]
        for count in (tree.n_node_samples, tree.weighted_n_node_samples):
            np.testing.assert_allclose(count[inner], count[left] + count[right])
        assert np.isfinite(tree.impurity).all()
        weight = tree.weighted_n_node_samples
        children = weight[left] * tree.impurity[left] + weight[right] * tree.impurity[right]
        assert (weight[inner] * tree.impurity[inner] >= children - 1e-6 * weight[0]).all()
        assert (tree.feature[inner] >= 0).all()
        assert (tree.feature[inner] < X.shape[1]).all()


@each_forest
def test_importances_are_near_scikit_learns(cls: Any) -> None:
    X, y = make_classification(
        600, 12, n_informative=3, n_redundant=0, shuffle=False, class_sep=1.5, random_state=0
    )
    actual = cls(50, random_state=0).fit(X, y).feature_importances_
    expected = cls._accelsk_original(50, random_state=0).fit(X, y).feature_importances_
    assert actual.dtype == np.float64
    assert np.isfinite(actual).all()
    assert actual.sum() == pytest.approx(1)
    np.testing.assert_allclose(actual, expected, atol=0.06)
    assert set(np.argsort(actual)[-3:]) == {0, 1, 2}


@each_forest
def test_feature_selection_over_a_forest(cls: Any) -> None:
    X, y = make_classification(
        500, 8, n_informative=3, n_redundant=0, shuffle=False, class_sep=2, random_state=0
    )
    for selector in (
        SelectFromModel(cls(15, random_state=0), max_features=3, threshold=-np.inf),
        RFE(cls(15, random_state=0), n_features_to_select=3, step=3),
    ):
        assert selector.fit(X, y).get_support(indices=True).tolist() == [0, 1, 2]


def test_class_weight_is_honoured() -> None:
    X, y = make_classification(1000, 8, weights=[0.95], flip_y=0.1, random_state=0)
    recall = {}
    for class_weight in (None, "balanced", "balanced_subsample", {0: 1.0, 1: 20.0}):
        parameters = {
            "n_estimators": 30,
            "max_depth": 4,
            "class_weight": class_weight,
            "random_state": 0,
        }
        for cls in (RandomForestClassifier, RandomForestClassifier._accelsk_original):
            forest = cls(**parameters).fit(X, y)
            recall[cls, str(class_weight)] = (forest.predict(X)[y == 1] == 1).mean()
    for (cls, class_weight), value in recall.items():
        expected = recall[RandomForestClassifier._accelsk_original, class_weight]
        assert value == pytest.approx(expected, abs=0.12), (cls, class_weight, recall)


@pytest.mark.parametrize("criterion", ["gini", "entropy"])
def test_a_classifier_is_as_good_as_scikit_learns(criterion: str) -> None:
    X, y = load_breast_cancer(return_X_y=True)
    assert_as_good(RandomForestClassifier, X, y, criterion=criterion)


def test_a_regressor_is_as_good_as_scikit_learns() -> None:
    X, y = load_diabetes(return_X_y=True)
    assert_as_good(RandomForestRegressor, X, y)


def assert_as_good(cls: Any, X: Any, y: Any, **parameters: Any) -> None:
    scores: dict[Any, list[float]] = {cls: [], cls._accelsk_original: []}
    for seed in range(3):
        X_train, X_test, y_train, y_test = train_test_split(X, y, random_state=seed)
        for kind, found in scores.items():
            forest = kind(30, random_state=seed, **parameters).fit(X_train, y_train)
            found.append(forest.score(X_test, y_test))
    gap = np.subtract(scores[cls], scores[cls._accelsk_original])
    assert gap.mean() > -0.03, scores


@each_forest
def test_predictions_are_those_of_the_exported_trees(cls: Any) -> None:
    X, y = training(cls)
    forest = cls(20, random_state=0).fit(X, y)
    rng = np.random.default_rng(1)
    new = rng.normal(X.mean(axis=0), 2 * X.std(axis=0), (500, X.shape[1]))
    plain = accelsk.to_sklearn(forest)
    np.testing.assert_allclose(forest.predict(new), plain.predict(new), rtol=1e-5)
    if is_classifier(forest):
        np.testing.assert_allclose(
            forest.predict_proba(new), plain.predict_proba(new), rtol=1e-5, atol=1e-6
        )


@each_forest
def test_the_same_seed_gives_the_same_trees(cls: Any) -> None:
    X, y = training(cls)
    first, second, third = (cls(5, random_state=seed).fit(X, y) for seed in (1, 1, 2))
    for left, right in zip(trees(first), trees(second), strict=True):
        np.testing.assert_array_equal(left.threshold, right.threshold)
        np.testing.assert_array_equal(left.value, right.value)
    assert any(
        left.node_count != right.node_count or (left.threshold != right.threshold).any()
        for left, right in zip(trees(first), trees(third), strict=True)
    )


def test_labels_of_any_type_come_back() -> None:
    X, y = classification()[:2]
    for labels in (np.array(["a", "bb", "c"])[y], y == 1, y * 10 - 7, y.astype(np.float32)):
        forest = RandomForestClassifier(5, random_state=0).fit(X, labels)
        plain = RandomForestClassifier._accelsk_original(5).fit(X, labels)
        assert forest.classes_.dtype == plain.classes_.dtype
        assert forest.predict(X).dtype == plain.predict(X).dtype
        assert set(forest.predict(X)) <= set(labels)
