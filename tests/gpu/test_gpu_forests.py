"""Forests are approximate: their quality, and properties of the trees that were fitted."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest
from class_cases import classification, regression
from forest_trees import assert_same_trees, pair
from sklearn.base import is_classifier
from sklearn.datasets import load_breast_cancer, load_diabetes, make_classification
from sklearn.feature_selection import RFE, SelectFromModel
from sklearn.model_selection import train_test_split

import accelsk
from accelsk.algorithms.forest_growth import grow
from accelsk.algorithms.forest_nodes import Growth, scale_of
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
        {"ccp_alpha": 0.01},
    ],
    ids=str,
)
def test_what_is_not_grown_level_by_level_falls_back(
    cls: Any, parameters: Any, on_gpu: Any
) -> None:
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
    np.testing.assert_array_equal(forest.predict(new), plain.predict(new))
    if is_classifier(forest):
        np.testing.assert_array_equal(forest.predict_proba(new), plain.predict_proba(new))
    loaded = pickle.loads(pickle.dumps(forest))
    assert loaded.score(X, y) == forest.score(X, y)


@each_forest
@pytest.mark.parametrize(
    "parameters",
    [
        {},
        {"bootstrap": False},
        {"max_samples": 0.5, "max_depth": 4},
        {"min_samples_split": 0.2},
        {"min_impurity_decrease": 0.01},
        {"min_weight_fraction_leaf": 0.05},
    ],
    ids=str,
)
def test_with_all_features_the_trees_are_scikit_learns(cls: Any, parameters: Any) -> None:
    assert_same_trees(*pair(cls, *training(cls), **parameters))


@each_forest
@pytest.mark.parametrize("bootstrap", [True, False])
def test_weights_of_rows_are_honoured(cls: Any, bootstrap: bool) -> None:
    X, y = training(cls)
    weight = np.random.default_rng(5).uniform(0.5, 3, len(X))
    assert_same_trees(*pair(cls, X, y, weight, bootstrap=bootstrap, max_depth=5))


@pytest.mark.parametrize("class_weight", ["balanced", "balanced_subsample", {0: 1, 1: 3, 2: 1}])
def test_weights_of_classes_are_honoured(class_weight: Any) -> None:
    X, y = training(RandomForestClassifier)
    assert_same_trees(*pair(RandomForestClassifier, X, y, class_weight=class_weight))


@pytest.mark.parametrize(
    ("cls", "criterion"),
    [
        (RandomForestClassifier, "entropy"),
        (RandomForestClassifier, "log_loss"),
        (RandomForestRegressor, "poisson"),
    ],
)
def test_each_criterion_gives_scikit_learns_trees(cls: Any, criterion: str) -> None:
    X, y = training(cls)
    if criterion == "poisson":
        y = np.exp(y / y.std())
    assert_same_trees(*pair(cls, X, y, criterion=criterion))


@pytest.mark.parametrize("criterion", ["gini", "entropy", "squared_error", "poisson"])
@pytest.mark.parametrize("max_features", [2, 5])
def test_the_kernels_grow_the_trees_that_their_twins_grow(
    criterion: str, max_features: int, on_gpu
) -> None:
    on_gpu.expected = False  # no call of an estimator
    import cupy

    X, codes = training(RandomForestClassifier)
    n_classes = len(np.unique(codes)) if criterion in ("gini", "entropy") else 0
    y = codes.astype(np.int32) if n_classes else np.exp(X[:, 0])
    growth = Growth(criterion, n_classes, max_features, 99, 2, 1, 0.0, 0.0)
    drawn = [np.random.default_rng(seed).integers(0, len(X), len(X)) for seed in range(3)]
    weight = np.stack([np.bincount(rows, minlength=len(X)) for rows in drawn])
    grown = []
    for xp in (cupy, np):
        columns = xp.ascontiguousarray(xp.asarray(X.T, dtype=np.float32))
        order = xp.argsort(columns, axis=1).astype(np.int32)
        target = xp.asarray(y)
        scale = scale_of(target, n_classes, float(len(X)), counts=True, criterion=criterion)
        args = (columns, target, order, xp.asarray(weight), xp.arange(3), growth, scale, xp)
        grown.append(grow(*args))
    for name in ("tree", "size", "feature", "left", "threshold", "weight"):
        np.testing.assert_array_equal(getattr(grown[0], name).get(), getattr(grown[1], name))
    for name in ("value", "impurity"):
        left, right = getattr(grown[0], name).get(), getattr(grown[1], name)
        np.testing.assert_allclose(left, right, rtol=1e-12, atol=1e-14)


@each_forest
def test_the_bootstrap_rows_are_scikit_learns_and_those_of_the_trees(cls: Any) -> None:
    X, y = training(cls)
    forest = cls(5, random_state=3, max_samples=0.7).fit(X, y)
    plain = cls._accelsk_original(5, random_state=3, max_samples=0.7).fit(X, y)
    assert forest.score(X, y) > 0.5
    for tree, drawn, expected in zip(
        forest.estimators_, forest.estimators_samples_, plain.estimators_samples_, strict=True
    ):
        np.testing.assert_array_equal(drawn, expected)
        leaves = tree.tree_.children_left < 0
        counted = np.bincount(tree.apply(X.astype(np.float32))[drawn], minlength=len(leaves))
        found = tree.tree_.weighted_n_node_samples
        np.testing.assert_array_equal(counted[leaves], found[leaves])


@each_forest
def test_a_warm_start_ends_where_a_fit_at_once_does(cls: Any) -> None:
    X, y = training(cls)
    at_once = cls(9, random_state=1).fit(X, y)
    steps = cls(4, random_state=1, warm_start=True).fit(X, y)
    steps.set_params(n_estimators=9).fit(X, y)
    np.testing.assert_array_equal(steps.predict(X), at_once.predict(X))
    np.testing.assert_array_equal(steps.apply(X), at_once.apply(X))


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
