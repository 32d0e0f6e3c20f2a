"""Private fitted attributes that scikit-learn's methods read: what is changed in them counts."""

from __future__ import annotations

import functools
import time
import warnings

import numpy as np
import pytest
from class_cases import all_classes, case_of
from comparison import assert_same
from engine import GENERIC, engine_of, generic_of
from sklearn.base import BaseEstimator
from sklearn.cluster import KMeans
from sklearn.neighbors import KNeighborsRegressor
from sklearn.svm import SVC

from accelsk.fingerprints import WHOLE, compared_names, fingerprint_of_private

#: What there is nothing to compare for.
_LEFT_OUT = {
    "_tree": "a view of `_fit_X`, which has no other way to change it",
    "_n_out_full": "scikit-learn returns memory it never wrote where it is another",
}


def _fitted(cls, case):
    data = case.data()
    estimator = cls(**case.parameters)
    return estimator.fit(*((data.y,) if data.X is None else (data.X, data.y)))


@functools.cache
def _private_names(key):
    """Return the private attributes of a fitted estimator that methods of its engines read."""
    cls = all_classes()[key]
    names = set()
    for engine in cls._accelsk_engines:
        names |= compared_names(cls, engine.methods, engine.per_row)
    names -= _LEFT_OUT.keys()
    private = {name for name in names if name.startswith("_")}
    if not private:
        return ()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fitted = vars(_fitted(cls._accelsk_original, case_of(cls)))
    # a function is not changed in place
    return tuple(sorted(name for name in private & fitted.keys() if not callable(fitted[name])))


def _change(estimator, name):
    """Change a private attribute without assigning it."""
    value = vars(estimator)[name]
    if isinstance(value, (tuple, list)) and len(value) and isinstance(value[0], np.ndarray):
        value = value[0]
    if isinstance(value, BaseEstimator):
        value = next(v for v in vars(value).values() if isinstance(v, np.ndarray))
    if isinstance(value, np.ndarray):
        value[...] = value + 1
    elif isinstance(value, list):
        value[0] += 1
    elif isinstance(value, dict):
        value["changed"] = True
    elif value is None:
        vars(estimator)[name] = np.array([0])
    elif isinstance(value, (bool, np.bool_)):
        vars(estimator)[name] = not value
    elif isinstance(value, str):
        vars(estimator)[name] = value + "?"
    else:
        vars(estimator)[name] = type(value)(value + 1)


def _outcome(call):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return call()
        except Exception as error:
            return type(error)


CASES = [(key, name) for key in all_classes() for name in _private_names(key)]


def test_these_are_the_classes_that_have_any():
    assert {"svm.SVC", "svm.SVR", "cluster.KMeans", "neighbors.KNeighborsClassifier"} <= {
        key for key, _ in CASES
    }


@pytest.mark.parametrize(("key", "name"), CASES)
def test_change_in_place_is_noticed(key, name):
    cls = all_classes()[key]
    case = case_of(cls)
    ours, theirs = (
        _fitted(c, case) for c in (generic_of(cls._accelsk_original), cls._accelsk_original)
    )
    data = case.data()
    methods = [m for m in engine_of(ours).methods if not m.startswith("fit")]
    for method in methods:  # the model on the device is in use
        if method != "score":
            _outcome(lambda m=method: getattr(ours, m)(data.new))
    assert getattr(ours, name) is not None or getattr(theirs, name) is None
    for estimator in (ours, theirs):
        _change(estimator, name)
    for method in methods:
        arguments = (data.new, data.new_y) if method == "score" else (data.new,)
        found, expected = (
            _outcome(lambda e=e, m=method, a=arguments: getattr(e, m)(*a)) for e in (ours, theirs)
        )
        if isinstance(expected, type):
            assert found is expected, method
        else:
            assert_same(found, expected)


def test_one_element_of_a_small_array_is_enough(labelled):
    X, y = labelled
    svc = GENERIC[SVC]().fit(X, y)
    svc.predict(X)
    svc._n_support[0] = 1_000_000
    with pytest.raises(ValueError, match="internal representation of SVC was altered"):
        svc.predict(X)


@pytest.mark.filterwarnings("ignore:Attribute `prob:FutureWarning")
def test_nothing_changed_costs_no_second_model(data):
    for original in (KMeans, SVC):
        X, y = data[0], data[1] > 1
        ours = GENERIC[original]().fit(X, y)
        for _ in range(3):
            ours.predict(X)
            vars(ours)  # as a debugger looks at it
            _ = [getattr(ours, name, None) for name in dir(ours)]
        assert engine_of(ours).counts["restore"] == 0


# Large arrays

LARGE = np.random.default_rng(0).normal(size=(WHOLE // 8 // 16 * 40, 16))


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize(
    "change",
    [
        lambda X: X.__imul__(2),
        lambda X: X[:, 5].__iadd__(1),
        lambda X: X[: len(X) // 100].fill(0),
        lambda X: X[len(X) // 2 :].sort(axis=0),
        lambda X: X.__setitem__(slice(None), X[::-1].copy()),
    ],
    ids=["scaled", "a column", "a hundredth of the rows", "half sorted", "turned round"],
)
def test_large_array_is_told_by_items_from_all_over_it(change, order):
    X = np.array(LARGE, order=order)
    before = fingerprint_of_private(X)
    assert before == fingerprint_of_private(X)
    change(X)
    assert before != fingerprint_of_private(X)


def test_large_array_costs_next_to_nothing():
    start = time.perf_counter()
    for _ in range(10):
        fingerprint_of_private(LARGE)
    assert time.perf_counter() - start < 0.1


def test_neighbours_among_many_rows_that_have_changed_are_those_of_the_changed_rows():
    y, new = LARGE[:, 0].copy(), LARGE[:5] + 0.1
    ours, theirs = (
        cls(algorithm="brute").fit(LARGE.copy(), y)
        for cls in (generic_of(KNeighborsRegressor), KNeighborsRegressor)
    )
    for estimator in (ours, theirs):
        estimator.predict(new)
        estimator._fit_X[:] = estimator._fit_X[::-1].copy()
    assert_same(ours.predict(new), theirs.predict(new))
