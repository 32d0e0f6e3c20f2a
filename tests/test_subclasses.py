"""What a user's subclass overrides always runs, wherever it stands and whoever calls it."""

from __future__ import annotations

import copy
import gc
import pickle
import weakref
from unittest import mock

import numpy as np
import pytest
from comparison import assert_same, fitted
from engine import GENERIC, AcceleratedLine, Line, LineOnNumpy, engine_of
from sklearn.base import clone
from sklearn.cluster import KMeans
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.linear_model._base import LinearModel
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import accelsk


class Quiet(AcceleratedLine):
    """Overrides nothing."""


class Doubling(AcceleratedLine):
    def predict(self, X):
        return 2 * super().predict(X)


class Shifting(AcceleratedLine):
    def fit(self, X, y, sample_weight=None):
        super().fit(X, y + 10, sample_weight)
        self.shifted_ = True
        return self


class Solving(AcceleratedLine):
    def _solve(self, X, y, weight):
        return np.full(X.shape[1], 7.0), np.eye(X.shape[1])


class Mirrored(AcceleratedLine):
    """Makes a property of a fitted attribute."""

    @property
    def coef_(self):
        return -self._coef

    @coef_.setter
    def coef_(self, value):
        self._coef = value


class Stamped(AcceleratedLine):
    """Has an ``__init__`` of its own."""

    def __init__(self, shrinkage=0.0, *, forbidden=False, stamp="x"):
        super().__init__(shrinkage, forbidden=forbidden)
        self.stamp = stamp


class Announcing:
    def predict(self, X):
        self.announced = True
        return super().predict(X)


class Mixed(Announcing, AcceleratedLine):
    """Overrides through a mixin before the accelerated class."""


class Between(Line):
    """Stands between the accelerated class and the original in `Wedged`."""

    def predict(self, X):
        return super().predict(X) + 1


class BetweenHelper(Line):
    def _solve(self, X, y, weight):
        return np.full(X.shape[1], 3.0), np.eye(X.shape[1])


class Wedged(AcceleratedLine, Between):
    pass


class WedgedHelper(AcceleratedLine, BetweenHelper):
    pass


class Forwarding(AcceleratedLine):
    def __getattr__(self, name):
        if name == "answer":
            return 42
        raise AttributeError(name)


class Pruned(AcceleratedLine):
    """Pickles its ``__dict__`` itself."""

    def __getstate__(self):
        state = self.__dict__.copy()
        state.pop("cache", None)
        return state

    def __setstate__(self, state):
        self.__dict__.update(state, cache=None)


def _calls(function):
    with accelsk.profile(quiet=True) as results:
        result = function()
    return result, {
        name: ("gpu" if stats.gpu_calls else "cpu", stats.fallback_reasons)
        for name, stats in results.method_calls.items()
    }


@pytest.fixture
def plain(data):
    return Line().fit(*data)


def test_subclass_that_overrides_nothing_runs_on_the_engine(data, plain):
    X, y = data
    quiet, calls = _calls(lambda: Quiet().fit(X, y))
    assert calls == {"Line.fit": ("gpu", set())}
    assert_same(fitted(quiet), fitted(plain))
    assert accelsk.is_proxy(quiet)


def test_override_of_predict_runs_and_reaches_the_engine(data, plain):
    X, y = data
    doubling = Doubling().fit(X, y)
    predicted, calls = _calls(lambda: doubling.predict(X))
    assert_same(predicted, 2 * plain.predict(X))
    assert calls == {"Line.predict": ("gpu", set())}


def test_override_of_predict_counts_in_score(data, labelled):
    class Opposite(GENERIC[LogisticRegression]):
        def predict(self, X):
            return np.where(super().predict(X) == "above", "below", "above")

    X, y = labelled
    expected = 1 - LogisticRegression().fit(X, y).score(X, y)
    score, calls = _calls(lambda: Opposite().fit(X, y).score(X, y))
    assert score == pytest.approx(expected)
    assert calls["LogisticRegression.score"] == ("cpu", {"Opposite overrides predict"})
    assert calls["LogisticRegression.predict"] == ("gpu", set())


def test_override_of_fit_runs_and_reaches_the_engine(data):
    X, y = data
    shifting, calls = _calls(lambda: Shifting().fit(X, y))
    assert shifting.shifted_
    assert_same(shifting.coef_, Line().fit(X, y + 10).coef_)
    assert calls == {"Line.fit": ("gpu", set())}


def test_override_of_fit_counts_in_fit_predict_and_fit_transform(data):
    class Seen(GENERIC[KMeans]):
        def fit(self, X, y=None, sample_weight=None):
            self.seen = True
            return super().fit(X, y, sample_weight)

    for method in ("fit_predict", "fit_transform"):
        seen = Seen(2, n_init=1, random_state=0)
        getattr(seen, method)(data[0])
        assert seen.seen


def test_override_of_a_private_helper_runs(data):
    solving, calls = _calls(lambda: Solving().fit(*data))
    assert_same(solving.coef_, np.full(3, 7.0))
    assert calls == {"Line.fit": ("cpu", {"Solving overrides _solve"})}


def test_override_of_a_private_helper_of_scikit_learn_runs(data):
    class Own(GENERIC[Ridge]):
        def _decision_function(self, X):
            return np.full(len(X), 5.0)

    own, calls = _calls(lambda: Own().fit(*data).predict(data[0]))
    assert_same(own, np.full(40, 5.0))
    assert calls["Ridge.fit"] == ("gpu", set())
    assert calls["Ridge.predict"] == ("cpu", {"Own overrides _decision_function"})


def test_attribute_made_a_property_is_set_by_the_fit(data, plain):
    mirrored, calls = _calls(lambda: Mirrored().fit(*data))
    assert_same(mirrored.coef_, -plain.coef_)
    assert_same(mirrored.predict(data[0]), -plain.predict(data[0]))
    assert calls == {"Line.fit": ("cpu", {"Mirrored overrides coef_"})}


def test_init_of_the_users_own_is_no_obstacle(data, plain):
    stamped = Stamped(stamp="y")
    assert stamped.get_params() == {"shrinkage": 0.0, "forbidden": False, "stamp": "y"}
    fitted_one = clone(stamped).fit(*data)
    assert fitted_one.stamp == "y"
    assert_same(fitted_one.predict(data[0]), plain.predict(data[0]))


@pytest.mark.parametrize("make", [lambda: Mixed(), lambda: make_pipeline(Mixed())])
def test_override_by_a_mixin_runs(make, data, plain):
    estimator = make().fit(*data)
    assert_same(estimator.predict(data[0]), plain.predict(data[0]))
    assert getattr(estimator, "announced", False) or estimator[-1].announced


def test_override_between_accelerated_class_and_original_runs(data, plain):
    wedged = Wedged().fit(*data)
    predicted, calls = _calls(lambda: wedged.predict(data[0]))
    assert_same(predicted, plain.predict(data[0]) + 1)
    assert calls == {"Line.predict": ("cpu", {"Wedged overrides predict"})}
    assert_same(WedgedHelper().fit(*data).coef_, np.full(3, 3.0))


@pytest.mark.parametrize("cls", [Doubling, Shifting, Solving, Mirrored, Mixed, Wedged])
def test_overrides_run_in_a_pipeline(cls, data):
    X, y = data
    alone = cls().fit(X, y).predict(X)
    assert_same(make_pipeline(cls()).fit(X, y).predict(X), alone)


def test_method_put_on_an_instance_runs(data):
    ridge = GENERIC[Ridge]().fit(*data)
    ridge._decision_function = lambda X: np.zeros(len(X))
    predicted, calls = _calls(lambda: ridge.predict(data[0]))
    assert_same(predicted, np.zeros(40))
    assert calls == {"Ridge.predict": ("cpu", {"Ridge overrides _decision_function"})}


def test_method_put_on_a_class_at_any_time_runs_as_long_as_it_is_there(data):
    class Mine(GENERIC[Ridge]):
        pass

    X, y = data
    mine, plain = Mine().fit(X, y), Ridge().fit(X, y)
    for cls in (Mine, GENERIC[Ridge], Ridge, LinearModel):
        assert_same(mine.predict(X), plain.predict(X))
        with mock.patch.object(cls, "_decision_function", lambda self, X: np.full(len(X), 5.0)):
            assert_same(mine.predict(X), np.full(40, 5.0))
    _, calls = _calls(lambda: mine.predict(X))
    assert calls == {"Ridge.predict": ("gpu", set())}


@pytest.mark.parametrize("cls", [GENERIC[Ridge], Ridge])
def test_method_itself_replaced_in_a_class_runs(cls, data):
    X, y = data
    ridge = GENERIC[Ridge]().fit(X, y)
    with mock.patch.object(cls, "predict", return_value="patched") as predict:
        assert ridge.predict(X) == "patched"
    predict.assert_called_once_with(X)
    assert_same(ridge.predict(X), Ridge().fit(X, y).predict(X))


def test_function_around_the_accelerated_method_does_not_keep_it_off_the_engine(data, plain):
    fit = AcceleratedLine.fit
    with mock.patch.object(AcceleratedLine, "fit", lambda self, X, y: fit(self, X, y + 1)):
        line, calls = _calls(lambda: AcceleratedLine().fit(data[0], data[1] - 1))
    assert calls == {"Line.fit": ("gpu", set())}
    assert_same(line.coef_, plain.coef_)


def test_method_of_scikit_learn_replaced_before_the_first_call_runs(data):
    class Fresh(AcceleratedLine, engines=[LineOnNumpy()]):
        pass

    with mock.patch.object(Line, "_solve", return_value=(np.full(3, 7.0), np.eye(3))):
        assert_same(Fresh().fit(*data).coef_, np.full(3, 7.0))
    assert_same(Fresh().fit(*data).coef_, Line().fit(*data).coef_)
    assert engine_of(Fresh).counts["fit"] == 1


def test_subclass_does_not_outlive_its_last_use(data):
    class Passing(AcceleratedLine):
        def predict(self, X):
            return super().predict(X)

    Passing().fit(*data).predict(data[0])
    alive = weakref.ref(Passing)
    del Passing
    gc.collect()
    assert alive() is None


def test_getattr_of_the_users_own_does_not_hide_fitted_attributes(data, plain):
    forwarding = Forwarding().fit(*data)
    assert forwarding.answer == 42
    assert_same(forwarding.coef_, plain.coef_)
    assert_same(forwarding.predict(data[0]), plain.predict(data[0]))


@pytest.mark.parametrize(
    "make",
    [
        copy.copy,
        copy.deepcopy,
        *(lambda e, p=p: pickle.loads(pickle.dumps(e, p)) for p in range(6)),
    ],
)
def test_getstate_of_the_users_own_keeps_the_model(make, data, plain):
    pruned = Pruned().fit(*data)
    pruned.cache = lambda: "cannot be pickled"
    duplicate = make(pruned)
    assert duplicate.cache is None
    assert_same(duplicate.coef_, plain.coef_)
    assert_same(duplicate.predict(data[0]), plain.predict(data[0]))
    duplicate.coef_ = np.zeros(3)
    assert_same(duplicate.predict(data[0]), np.zeros(40))


@pytest.mark.parametrize("protocol", range(6))
def test_subclass_pickles_as_itself(protocol, data, plain):
    doubling = Doubling().fit(*data)
    doubling.note = "mine"
    duplicate = pickle.loads(pickle.dumps(doubling, protocol))
    assert type(duplicate) is Doubling
    assert duplicate.note == "mine"
    assert_same(duplicate.predict(data[0]), 2 * plain.predict(data[0]))


def test_subclass_keeps_its_docstring_and_names_its_parent():
    assert Quiet.__doc__ == "Overrides nothing."
    assert Quiet._accelsk_class is AcceleratedLine
    assert issubclass(Quiet, Line)


def test_subclass_that_is_accelerated_anew_has_engines_of_its_own(data):
    class Renewed(AcceleratedLine, engines=[LineOnNumpy()]):
        pass

    assert Renewed._accelsk_original is Line
    renewed = Renewed().fit(*data)
    assert engine_of(renewed).counts["fit"] == 1
    assert not engine_of(AcceleratedLine).counts


def test_scaler_subclass_keeps_set_output(data):
    pd = pytest.importorskip("pandas")

    class Scaler(GENERIC[StandardScaler]):
        def transform(self, X, copy=None):
            return super().transform(X) + 1

    frame = pd.DataFrame(data[0], columns=["a", "b", "c"])
    ours = Scaler().set_output(transform="pandas").fit(frame)
    result = ours.transform(frame)
    assert list(result.columns) == ["a", "b", "c"]
    assert_same(result.to_numpy(), StandardScaler().fit_transform(data[0]) + 1)
