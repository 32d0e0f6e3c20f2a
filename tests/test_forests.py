"""Random forests of our own, on NumPy in CuPy's place, held against scikit-learn's."""

from __future__ import annotations

import pickle
import warnings
from typing import Any

import device_double
import numpy as np
import pytest
from forest_trees import assert_same_trees, pair
from sklearn.base import is_classifier
from sklearn.exceptions import DataConversionWarning
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor

import accelsk
from accelsk.algorithms.forest_growth import grow
from accelsk.algorithms.forest_nodes import Growth, scale_of
from accelsk.ensemble import RandomForestClassifier, RandomForestRegressor
from accelsk.exceptions import FallbackError

FORESTS = (RandomForestClassifier, RandomForestRegressor)
each_forest = pytest.mark.parametrize("cls", FORESTS, ids=lambda cls: cls.__name__)


@pytest.fixture(autouse=True)
def on_double(monkeypatch: Any) -> Any:
    device_double.install(monkeypatch)
    with accelsk.config_context(device="gpu", on_fallback="raise"):
        yield


def rows(n: int = 240, d: int = 5, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(n, d))


def training(cls: Any, n: int = 240) -> tuple[np.ndarray, np.ndarray]:
    X = rows(n)
    noise = np.random.default_rng(1).normal(size=n)
    if issubclass(cls, RandomForestClassifier):
        return X, (X[:, 0] + X[:, 1] > 0).astype(int) + (X[:, 2] + noise > 0.5)
    return X, np.exp(X[:, 0]) + X[:, 1] ** 2 + noise**2


@each_forest
@pytest.mark.parametrize(
    "parameters",
    [
        {},
        {"bootstrap": False},
        {"max_samples": 0.5},
        {"max_samples": 70},
        {"max_depth": 3},
        {"min_samples_split": 40},
        {"min_samples_split": 0.2, "min_samples_leaf": 0.05},
        {"min_impurity_decrease": 0.01},
        {"min_weight_fraction_leaf": 0.05},
    ],
    ids=str,
)
def test_the_trees_are_scikit_learns(cls: Any, parameters: Any) -> None:
    assert_same_trees(*pair(cls, *training(cls), **parameters))


@pytest.mark.parametrize(("cls", "criterion"), [
    (RandomForestClassifier, "entropy"),
    (RandomForestClassifier, "log_loss"),
    (RandomForestRegressor, "poisson"),
])  # fmt: skip
def test_each_criterion_gives_scikit_learns_trees(cls: Any, criterion: str) -> None:
    assert_same_trees(*pair(cls, *training(cls), criterion=criterion))


@each_forest
@pytest.mark.parametrize("bootstrap", [True, False])
def test_weights_of_rows_are_honoured(cls: Any, bootstrap: bool) -> None:
    X, y = training(cls)
    weight = np.random.default_rng(5).uniform(0.5, 3, len(X))
    weight[::7] = 0
    assert_same_trees(*pair(cls, X, y, weight, bootstrap=bootstrap, max_depth=5))


@pytest.mark.parametrize("bootstrap", [True, False])
@pytest.mark.parametrize(
    "class_weight", ["balanced", "balanced_subsample", {0: 1.0, 1: 3.0, 2: 0.5}], ids=str
)
def test_weights_of_classes_are_honoured(class_weight: Any, bootstrap: bool) -> None:
    X, y = training(RandomForestClassifier)
    found = pair(RandomForestClassifier, X, y, class_weight=class_weight, bootstrap=bootstrap)
    assert_same_trees(*found)
    if hasattr(found[1], "_sample_weight") and found[1]._sample_weight is not None:
        np.testing.assert_allclose(found[0]._sample_weight, found[1]._sample_weight)


@each_forest
def test_the_bootstrap_rows_are_scikit_learns(cls: Any) -> None:
    ours, theirs = pair(cls, *training(cls), max_samples=0.6)
    for left, right in zip(ours.estimators_samples_, theirs.estimators_samples_, strict=True):
        np.testing.assert_array_equal(left, right)
    # and they are those that the trees were grown on
    X = training(cls)[0].astype(np.float32)
    for tree, drawn in zip(ours.estimators_, ours.estimators_samples_, strict=True):
        leaves = tree.tree_.children_left < 0
        counted = np.bincount(tree.apply(X)[drawn], minlength=tree.tree_.node_count)
        np.testing.assert_array_equal(counted[leaves], tree.tree_.weighted_n_node_samples[leaves])


@each_forest
def test_fitted_attributes_are_scikit_learns(cls: Any) -> None:
    ours, theirs = pair(cls, *training(cls), oob_score=True)
    _ = ours.estimators_
    for name, value in vars(theirs).items():
        if name not in ("estimators_", "estimator", "estimator_"):
            assert type(vars(ours)[name]) is type(value), name
            if isinstance(value, np.ndarray):
                assert (vars(ours)[name].dtype, vars(ours)[name].shape) == (
                    value.dtype,
                    value.shape,
                )
    assert set(vars(theirs)) <= set(vars(ours))


@each_forest
def test_predictions_are_those_of_the_exported_trees(cls: Any) -> None:
    X, y = training(cls)
    forest = cls(7, random_state=0).fit(X, y)
    new = rows(50, seed=9)
    plain = accelsk.to_sklearn(forest)
    np.testing.assert_array_equal(forest.predict(new), plain.predict(new))
    assert forest.score(X, y) == plain.score(X, y)
    if is_classifier(forest):
        np.testing.assert_array_equal(forest.predict_proba(new), plain.predict_proba(new))
    loaded = pickle.loads(pickle.dumps(forest))
    assert loaded.score(X, y) == forest.score(X, y)
    np.testing.assert_array_equal(loaded.predict(new), forest.predict(new))


@each_forest
def test_the_score_out_of_bag_is_that_of_the_rows_not_drawn(cls: Any) -> None:
    X, y = training(cls)
    forest = cls(12, oob_score=True, random_state=0).fit(X, y)
    total, count = 0.0, np.zeros(len(X))
    for tree, drawn in zip(forest.estimators_, forest.estimators_samples_, strict=True):
        out = np.bincount(drawn, minlength=len(X)) == 0
        said = tree.predict_proba(X) if is_classifier(tree) else tree.predict(X)[:, None]
        total, count = total + said * out[:, None], count + out
    expected = total / np.maximum(count, 1)[:, None]
    found = getattr(forest, "oob_decision_function_", None)
    found = forest.oob_prediction_[:, None] if found is None else found
    np.testing.assert_allclose(found, expected, rtol=1e-12)
    ours, theirs = pair(cls, X, y, n_estimators=12, oob_score=True)
    assert ours.oob_score_ == pytest.approx(theirs.oob_score_, abs=0.02)


@each_forest
def test_few_trees_are_warned_of_out_of_bag(cls: Any) -> None:
    with pytest.warns(UserWarning, match="Some inputs do not have OOB scores"):
        cls(2, oob_score=True, random_state=0).fit(*training(cls))


@each_forest
def test_features_are_tried_by_chance_and_none_is_favoured(cls: Any) -> None:
    X = rows(300, 6)
    y = (
        np.random.default_rng(2).integers(0, 2, 300)
        if cls is RandomForestClassifier
        else rows()[:, 0]
    )
    y = np.resize(y, 300)
    forest = cls(60, max_features=2, max_depth=3, random_state=0).fit(X, y)
    roots = [tree.tree_.feature[0] for tree in forest.estimators_]
    assert set(roots) == set(range(6))
    used = np.concatenate([tree.tree_.feature for tree in forest.estimators_])
    share = np.bincount(used[used >= 0], minlength=6) / (used >= 0).sum()
    assert share.min() > 0.1


@each_forest
def test_a_constant_feature_costs_no_split(cls: Any) -> None:
    X, y = training(cls)
    X[:, [0, 1, 3, 4]] = 7.0
    forest = cls(5, max_features=1, max_depth=3, random_state=0).fit(X, y)
    for tree in forest.estimators_:
        assert set(tree.tree_.feature) == {-2, 2}
        assert tree.tree_.max_depth == 3


@each_forest
def test_a_tree_depends_on_its_seed_alone(cls: Any, monkeypatch: Any) -> None:
    X, y = training(cls)
    first = cls(6, max_features=2, random_state=3).fit(X, y)
    monkeypatch.setattr("accelsk._forests._trees_at_once", lambda *_: 2)
    second = cls(6, max_features=2, random_state=3).fit(X, y)
    for left, right in zip(first.estimators_, second.estimators_, strict=True):
        np.testing.assert_array_equal(left.tree_.threshold, right.tree_.threshold)
        np.testing.assert_array_equal(left.tree_.value, right.tree_.value)


@each_forest
def test_a_warm_start_ends_where_a_fit_at_once_does(cls: Any) -> None:
    X, y = training(cls)
    at_once = cls(9, oob_score=True, random_state=1).fit(X, y)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        steps = cls(4, oob_score=True, random_state=1, warm_start=True).fit(X, y)
        before = list(steps.estimators_)
        steps.set_params(n_estimators=9).fit(X, y)
    assert steps.estimators_[:4] == before
    new = rows(40, seed=8)
    np.testing.assert_array_equal(steps.predict(new), at_once.predict(new))
    np.testing.assert_array_equal(steps.apply(new), at_once.apply(new))
    assert [t.random_state for t in steps.estimators_] == [
        t.random_state for t in at_once.estimators_
    ]
    assert steps.oob_score_ == at_once.oob_score_
    with accelsk.config_context(on_fallback="log"):
        with pytest.warns(UserWarning, match="without increasing n_estimators"):
            steps.fit(X, y)
        with pytest.raises(ValueError, match="must be larger or equal"):
            steps.set_params(n_estimators=3).fit(X, y)


@each_forest
def test_a_column_is_taken_for_a_row_of_targets_with_a_warning(cls: Any) -> None:
    X, y = training(cls)
    plain = cls(3, random_state=0).fit(X, y)
    with pytest.warns(DataConversionWarning, match="A column-vector y was passed"):
        column = cls(3, random_state=0).fit(X, y[:, None])
    np.testing.assert_array_equal(plain.predict(X), column.predict(X))


@each_forest
def test_models_of_scikit_learns_are_taken_over(cls: Any) -> None:
    X, y = training(cls)
    plain = cls._accelsk_original(5, random_state=0).fit(X, y)
    ours = cls(5, random_state=0)
    ours.__dict__.update(vars(plain))
    np.testing.assert_array_equal(ours.predict(X), plain.predict(X))


@each_forest
@pytest.mark.parametrize(
    "parameters", [{"max_leaf_nodes": 5}, {"ccp_alpha": 0.01}, {"verbose": 1}], ids=str
)
def test_what_is_not_done_here_runs_in_scikit_learn(cls: Any, parameters: Any, capsys: Any) -> None:
    with pytest.raises(FallbackError):
        cls(3, **parameters).fit(*training(cls))


@pytest.mark.parametrize("offset", [0.0, 1e6])
@pytest.mark.parametrize("size", [1.0, 1e-4, 1e9])
def test_targets_of_any_size_keep_their_digits(offset: float, size: float) -> None:
    X, y = training(RandomForestRegressor)
    y = (y + offset) * size
    forest = RandomForestRegressor(3, min_samples_leaf=5, random_state=0).fit(X, y)
    for tree, drawn in zip(forest.estimators_, forest.estimators_samples_, strict=True):
        leaf = tree.apply(X)[drawn]
        for node in np.unique(leaf):
            rows_ = y[drawn[leaf == node]]
            assert tree.tree_.value[node, 0, 0] == pytest.approx(rows_.mean(), rel=1e-14)
            spread = pytest.approx(rows_.var(), rel=1e-9, abs=1e-12 * np.ptp(y) ** 2)
            assert tree.tree_.impurity[node] == spread


@pytest.mark.parametrize("kind", ["counts", "weights"])
@pytest.mark.parametrize("criterion", ["squared_error", "poisson", "gini", "entropy"])
def test_one_tree_at_the_level_of_the_algorithm(criterion: str, kind: str) -> None:
    n_classes = 3 if criterion in ("gini", "entropy") else 0
    X, y = training(RandomForestClassifier if n_classes else RandomForestRegressor)
    X = X.astype(np.float32)
    weight = np.bincount(np.random.default_rng(3).integers(0, len(X), len(X)), minlength=len(X))
    if kind == "weights":
        weight = weight * np.random.default_rng(4).uniform(0.5, 2, len(X))
    columns = np.ascontiguousarray(X.T)
    target = y.astype(np.int32) if n_classes else y
    growth = Growth(criterion, n_classes, X.shape[1], 99, 2, 6, 0.0, 0.0)
    scale = scale_of(
        target, n_classes, float(weight.sum()), counts=kind == "counts", criterion=criterion
    )
    order = np.argsort(columns, axis=1).astype(np.int32)
    tree = grow(columns, target, order, weight[None], np.array([1]), growth, scale, np)
    plain_class = DecisionTreeClassifier if n_classes else DecisionTreeRegressor
    plain = plain_class(criterion=criterion, min_samples_leaf=6, random_state=0)
    plain.fit(X, y, sample_weight=weight)
    total = (tree.impurity * tree.weight)[tree.left < 0].sum()
    leaves = plain.tree_.children_left < 0
    expected = (plain.tree_.impurity * plain.tree_.weighted_n_node_samples)[leaves].sum()
    assert total == pytest.approx(expected, rel=0.03, abs=1e-9)


@each_forest
@pytest.mark.parametrize("kind", ["one row", "constant X", "constant y", "twins"])
def test_what_cannot_be_split_is_a_tree_of_one_node(cls: Any, kind: str) -> None:
    X, y = training(cls, 30)
    if kind == "one row":
        X, y = X[:1], y[:1]
    elif kind == "constant X":
        X = np.ones_like(X)
    elif kind == "constant y":
        y = np.full_like(y, 1)
    else:
        X = np.repeat(X[:1], len(X), axis=0)
    if cls is RandomForestClassifier and kind in ("one row", "constant y"):
        pytest.skip("one class is left to scikit-learn")
    ours, theirs = (
        made(3, random_state=0, bootstrap=False).fit(X, y) for made in (cls, cls._accelsk_original)
    )
    for left, right in zip(ours.estimators_, theirs.estimators_, strict=True):
        assert left.tree_.node_count == right.tree_.node_count == 1
        np.testing.assert_allclose(left.tree_.value[0], right.tree_.value[0], rtol=1e-12)
    np.testing.assert_array_equal(ours.feature_importances_, theirs.feature_importances_)


@pytest.mark.parametrize(("factor", "reason"), [(1e150, "too large"), (1e-6, "so little")])
def test_targets_that_rounding_spoils_are_left_to_scikit_learn(factor: float, reason: str) -> None:
    X, y = training(RandomForestRegressor)
    with pytest.raises(FallbackError, match=reason):
        RandomForestRegressor(3).fit(X, y * factor)
