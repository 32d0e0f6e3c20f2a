"""A call is planned, run on the first engine that can, else in scikit-learn, and reported."""

from __future__ import annotations

import warnings
import weakref

import numpy as np
import pytest
from comparison import assert_same, fitted, outcome_of
from engine import (
    GENERIC,
    ILLEGAL_ADDRESS,
    AcceleratedCentering,
    AcceleratedLine,
    AcceleratedNearestMean,
    Centering,
    FakeCudaError,
    Line,
    LineOnNumpy,
    NearestMean,
    engine_of,
)
from sklearn.cluster import KMeans
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import cross_validate
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC

import accelsk
from accelsk.device import memory, probe
from accelsk.engines.base import Outcome
from accelsk.exceptions import FallbackError, FallbackWarning, Invalid, Refusal


@pytest.fixture
def line(data):
    return AcceleratedLine().fit(*data)


def _reasons(name, call):
    with accelsk.profile(quiet=True) as results:
        outcome_of(call)
    stats = results.method_calls.get(name)
    return None if stats is None else (stats.gpu_calls, stats.cpu_calls, stats.fallback_reasons)


# On the engine


@pytest.mark.parametrize(
    ("accelerated", "plain", "methods"),
    [
        (AcceleratedLine, Line, ["predict", "spread"]),
        (AcceleratedCentering, Centering, ["transform"]),
        (AcceleratedNearestMean, NearestMean, ["predict"]),
    ],
)
def test_engine_and_original_agree(accelerated, plain, methods, data, labelled):
    X, y = labelled if plain is NearestMean else data
    ours, theirs = accelerated().fit(X, y), plain().fit(X, y)
    for method in methods:
        assert_same(getattr(ours, method)(X), getattr(theirs, method)(X))
        assert engine_of(ours).counts[method] == 1
    assert_same(fitted(ours), fitted(theirs))
    assert engine_of(ours).counts["fit"] == 1


def test_fit_returns_the_estimator(data):
    line = AcceleratedLine()
    assert line.fit(*data) is line


def test_arguments_by_keyword_reach_the_engine(line, data):
    X, _ = data
    assert_same(line.predict(X=X), Line().fit(*data).predict(X))
    assert_same(line.spread(factor=2.0, X=X), 2 * Line().fit(*data).spread(X))
    assert engine_of(line).counts == {"fit": 1, "predict": 1, "spread": 1}


@pytest.mark.parametrize("weight", [None, np.arange(40) + 1.0, list(range(1, 41))])
def test_sample_weight_is_honoured_by_position_and_keyword(data, weight):
    X, y = data
    expected = Line().fit(X, y, weight).coef_
    assert_same(AcceleratedLine().fit(X, y, weight).coef_, expected)
    assert_same(AcceleratedLine().fit(y=y, X=X, sample_weight=weight).coef_, expected)
    assert engine_of(AcceleratedLine).counts["fit"] == 2


def test_defaults_of_the_signature_are_filled_in(line, data):
    assert_same(line.spread(data[0]), Line().fit(*data).spread(data[0]))


def test_conditional_method_stays_conditional(data):
    assert hasattr(AcceleratedLine(), "spread")
    negative = AcceleratedLine(shrinkage=-1e-9).fit(*data)
    assert not hasattr(negative, "spread")
    _, theirs, _ = outcome_of(lambda: Line(shrinkage=-1e-9).fit(*data).spread(data[0]))
    _, ours, _ = outcome_of(lambda: negative.spread(data[0]))
    assert ours[0] is theirs[0]
    assert ours[1].replace("Accelerated", "") == theirs[1]


@pytest.mark.parametrize("probability", [True, False])
def test_conditional_methods_of_scikit_learn_stay_conditional(probability, labelled):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        ours = GENERIC[SVC](probability=probability).fit(*labelled)
        assert hasattr(ours, "predict_proba") is probability
    assert hasattr(SVC(probability=probability), "predict_proba") is probability


def test_method_that_no_engine_has_runs_as_it_is(labelled):
    logistic = GENERIC[LogisticRegression]().fit(*labelled)
    with accelsk.profile(quiet=True) as results:
        logistic.sparsify()
    assert "LogisticRegression.sparsify" not in results.method_calls


# Engines in order


class _Other(LineOnNumpy):
    name = "other"


def _two_engines():
    first, second = LineOnNumpy(), _Other()
    cls = accelsk.register(Line, [first, second], name="TwoEngines")
    return cls, first, second


def test_first_engine_that_can_is_taken(data):
    cls, first, second = _two_engines()
    cls().fit(*data)
    assert (first.counts["fit"], second.counts["fit"]) == (1, 0)
    first.refusing = {"fit": "not today"}
    cls().fit(*data)
    assert (first.counts["fit"], second.counts["fit"]) == (1, 1)


@pytest.mark.parametrize("error", [Refusal("nearly singular"), RuntimeError("boom")])
def test_engine_that_hands_on_is_followed_by_the_next(error, data):
    cls, first, second = _two_engines()
    first.failing = {"fit": error}
    assert _reasons("Line.fit", lambda: cls().fit(*data)) == (1, 0, set())
    assert (first.counts["fit"], second.counts["fit"]) == (1, 1)


def test_input_that_one_engine_finds_invalid_goes_to_scikit_learn_at_once(data):
    cls, first, second = _two_engines()
    first.failing = {"fit": Refusal(Invalid("X is not finite"))}
    assert _reasons("Line.fit", lambda: cls().fit(*data)) == (0, 1, {"X is not finite"})
    assert not second.counts


def test_engines_that_hand_on_one_after_the_other_all_give_their_reason(data):
    cls, first, second = _two_engines()
    first.failing, second.failing = {"fit": Refusal("one")}, {"fit": Refusal("two")}
    assert _reasons("Line.fit", lambda: cls().fit(*data)) == (0, 1, {"one", "two"})


def test_unusable_engine_is_passed_over(data):
    cls, first, second = _two_engines()
    first.off = "out of order"
    cls().fit(*data)
    assert (first.counts["fit"], second.counts["fit"]) == (0, 1)


def test_reasons_of_every_engine_are_on_record(data):
    cls, first, second = _two_engines()
    first.refusing, second.refusing = {"fit": "not today"}, {"fit": "nor tomorrow"}
    assert _reasons("Line.fit", lambda: cls().fit(*data)) == (0, 1, {"not today", "nor tomorrow"})


def test_model_moves_to_the_engine_that_runs_the_method(data):
    cls, first, second = _two_engines()
    first.refusing = {"predict": "not today"}
    line = cls().fit(*data)
    assert_same(line.predict(data[0]), Line().fit(*data).predict(data[0]))
    assert first.counts == {"fit": 1, "attributes": 1}
    assert second.counts == {"predict": 1, "restore": 1}


def test_profile_names_the_engine_by_gpu_calls(line, data):
    assert _reasons("Line.predict", lambda: line.predict(data[0])) == (1, 0, set())


# What keeps a call off an engine


def test_rule_keeps_the_fit_but_not_later_calls_off(data):
    line = AcceleratedLine(forbidden=True)
    assert _reasons("Line.fit", lambda: line.fit(*data)) == (0, 1, {"forbidden=True"})
    assert _reasons("Line.predict", lambda: line.predict(data[0])) == (1, 0, set())


def test_device_cpu_runs_in_scikit_learn(data):
    with accelsk.config_context(device="cpu", on_fallback="raise"):
        called = _reasons("Line.fit", lambda: AcceleratedLine().fit(*data))
    assert called == (0, 1, {"device='cpu' is set"})
    assert not engine_of(AcceleratedLine).counts


def test_unusable_engine_gives_its_reason(data):
    engine_of(AcceleratedLine).off = "no GPU"
    assert _reasons("Line.fit", lambda: AcceleratedLine().fit(*data)) == (0, 1, {"no GPU"})


def test_engine_whose_check_fails_costs_nothing_but_itself(data, monkeypatch):
    def refusals(call):
        raise KeyError("broken")
        yield

    monkeypatch.setattr(engine_of(AcceleratedLine), "refusals", refusals)
    called = _reasons("Line.fit", lambda: AcceleratedLine().fit(*data))
    assert called == (0, 1, {"the engine failed: KeyError: 'broken'"})


# Failure in the middle


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (RuntimeError("boom\nand more"), "the engine failed: RuntimeError: boom"),
        (ValueError("bad"), "the engine failed: ValueError: bad"),
        (Refusal("it will not converge"), "it will not converge"),
        (MemoryError("std::bad_alloc"), "the GPU ran out of memory"),
        (RuntimeError("CUBLAS_STATUS_ALLOC out_of_memory"), "the GPU ran out of memory"),
        (FakeCudaError("cudaErrorInvalidValue"), "the engine failed: FakeCudaError:"),
        (AssertionError(), "the engine failed: AssertionError:"),
    ],
)
def test_failing_fit_runs_in_scikit_learn(error, reason, data):
    engine_of(AcceleratedLine).failing = {"fit": error}
    line = AcceleratedLine()
    gpu, cpu, reasons = _reasons("Line.fit", lambda: line.fit(*data))
    assert (gpu, cpu) == (0, 1)
    assert [r.startswith(reason) for r in reasons] == [True]
    assert_same(fitted(line), fitted(Line().fit(*data)))


@pytest.mark.parametrize("error", [RuntimeError("boom"), MemoryError(), Refusal("no")])
def test_failing_predict_runs_in_scikit_learn_on_the_fetched_model(error, line, data):
    engine_of(line).failing = {"predict": error}
    assert_same(line.predict(data[0]), Line().fit(*data).predict(data[0]))
    assert engine_of(line).counts["attributes"] == 1


def test_out_of_memory_is_tried_again_with_free_pools(data, monkeypatch):
    freed = []
    monkeypatch.setattr(memory, "free_pools", lambda: freed.append(1))
    engine = engine_of(AcceleratedLine)
    engine.failing, engine.fails_once = {"fit": MemoryError()}, True
    assert _reasons("Line.fit", lambda: AcceleratedLine().fit(*data)) == (1, 0, set())
    assert (engine.counts["fit"], freed) == (2, [1])


def test_what_ran_out_of_memory_holds_no_arrays_when_pools_are_freed(data, monkeypatch):
    class Large:
        """Stands for an array on the device."""

    arrays: list[weakref.ref] = []

    class Hungry(LineOnNumpy):
        def compute(self, call, model):
            array = Large()
            arrays.append(weakref.ref(array))
            raise MemoryError

    held = []
    monkeypatch.setattr(memory, "free_pools", lambda: held.extend(a() is not None for a in arrays))
    hungry = accelsk.register(Line, [Hungry()], name="HungryLine", module=__name__)
    assert _reasons("Line.fit", lambda: hungry().fit(*data))[:2] == (0, 1)
    assert held == [False, False, False]


def test_freeing_pools_needs_no_gpu_library():
    memory.free_pools()


def test_sticky_cuda_error_takes_the_gpu_out_of_use(line, data, caplog):
    engine_of(line).failing = {"predict": FakeCudaError(ILLEGAL_ADDRESS)}
    with caplog.at_level("WARNING", "accelsk"):
        line.predict(data[0])
        line.predict(data[0])
    assert "illegal memory access" in probe.unusable()
    assert len(caplog.records) == 1
    assert not accelsk.enabled()


def test_interrupt_is_not_swallowed(line, data):
    engine_of(line).failing = {"predict": KeyboardInterrupt()}
    with pytest.raises(KeyboardInterrupt):
        line.predict(data[0])
    engine_of(line).reset()
    assert_same(line.predict(data[0]), Line().fit(*data).predict(data[0]))


def test_what_a_failed_attempt_drew_is_given_back(data):
    class Draws(LineOnNumpy):
        methods = ("fit",)

        def run(self, call, model):
            call.parameters["random_state"].uniform(size=10)
            np.random.mtrand._rand.uniform()
            raise self.error

    for error in (Refusal("no"), MemoryError(), RuntimeError("boom")):
        engine = Draws()
        engine.error = error
        cls = accelsk.register(KMeans, [engine], name="Drawing")
        ours = cls(3, n_init=1, random_state=np.random.RandomState(5)).fit(data[0])
        theirs = KMeans(3, n_init=1, random_state=np.random.RandomState(5)).fit(data[0])
        assert_same(ours.cluster_centers_, theirs.cluster_centers_)


def test_what_a_failed_attempt_drew_from_the_global_generator_is_given_back(data):
    class Draws(LineOnNumpy):
        methods = ("fit",)

        def run(self, call, model):
            np.random.mtrand._rand.uniform(size=10)
            raise Refusal("no")

    cls = accelsk.register(KMeans, [Draws()], name="Drawing")
    state = np.random.mtrand._rand.get_state()
    ours = cls(3, n_init=1).fit(data[0])
    np.random.mtrand._rand.set_state(state)
    assert_same(ours.cluster_centers_, KMeans(3, n_init=1).fit(data[0]).cluster_centers_)


def test_warnings_of_the_engine_come_once_the_fit_is_taken_over(data):
    def announce():
        warnings.warn("mind the gap", RuntimeWarning, stacklevel=2)

    class Warns(LineOnNumpy):
        def fit(self, call, X):
            outcome = super().fit(call, X)
            return Outcome(model=outcome.model, announce=[announce])

    cls = accelsk.register(Line, [Warns()], name="Warning")
    with pytest.warns(RuntimeWarning, match="mind the gap"):
        line = cls().fit(*data)
    assert engine_of(line).counts["fit"] == 1
    with accelsk.config_context(device="cpu"), warnings.catch_warnings():
        warnings.simplefilter("error")
        cls().fit(*data)


# on_fallback


def test_fallback_is_logged_by_default(data, caplog):
    with caplog.at_level("DEBUG", "accelsk"):
        AcceleratedLine(forbidden=True).fit(*data)
    where, why = caplog.records
    assert (where.levelname, where.message) == ("INFO", "Line.fit ran in scikit-learn")
    assert why.levelname == "DEBUG"
    assert why.message.startswith("Line.fit took ")
    assert why.message.endswith(" s: forbidden=True")


def test_call_on_an_engine_is_logged_with_its_name(data, caplog):
    with caplog.at_level("INFO", "accelsk"):
        AcceleratedLine().fit(*data)
    assert [r.message for r in caplog.records] == ["Line.fit ran on the GPU (test)"]


def test_fallback_warns_at_the_line_of_the_caller(data):
    with (
        accelsk.config_context(on_fallback="warn"),
        pytest.warns(FallbackWarning, match="Line.fit .*forbidden=True") as caught,
    ):
        line = AcceleratedLine(forbidden=True).fit(*data)
    assert [w.filename for w in caught] == [__file__]
    assert_same(line.coef_, Line().fit(*data).coef_)


@pytest.mark.parametrize(
    "call",
    [
        lambda scaler, X: scaler.transform(X),  # scikit-learn's set_output wraps it
        lambda scaler, X: scaler.fit_transform(X),
        lambda scaler, X: make_pipeline(scaler).fit(X),
        lambda scaler, X: cross_validate(make_pipeline(scaler, Line()), X, X[:, 0], cv=2),
    ],
)
def test_fallback_warns_at_the_users_line_however_the_call_came_about(call, data):
    scaler = GENERIC[StandardScaler]().fit(data[0])
    engine_of(scaler).refusing = {"*": "not today"}
    with (
        accelsk.config_context(on_fallback="warn"),
        pytest.warns(FallbackWarning) as caught,
    ):
        call(scaler, data[0])
    assert {w.filename for w in caught} == {__file__}


def test_fallback_raises_before_anything_is_computed(data):
    line = AcceleratedLine(forbidden=True)
    with (
        accelsk.config_context(on_fallback="raise"),
        pytest.raises(FallbackError, match=r"Line\.fit cannot run on the GPU: forbidden=True") as e,
    ):
        line.fit(*data)
    assert (e.value.call, e.value.reasons) == ("Line.fit", ("forbidden=True",))
    assert not hasattr(line, "coef_")


def test_fallback_that_raises_leaves_an_earlier_fit(line, data):
    line.set_params(forbidden=True)
    with accelsk.config_context(on_fallback="raise"), pytest.raises(FallbackError):
        line.fit(data[0] * 2, data[1])
    assert_same(line.coef_, Line().fit(*data).coef_)


def test_failure_of_an_engine_raises_too(line, data):
    engine_of(line).failing = {"predict": RuntimeError("boom")}
    with (
        accelsk.config_context(on_fallback="raise"),
        pytest.raises(FallbackError, match="RuntimeError: boom"),
    ):
        line.predict(data[0])


def test_fallback_error_can_be_pickled():
    import pickle

    error = pickle.loads(pickle.dumps(FallbackError("Ridge.fit", ["a", "b"])))
    assert str(error) == "Ridge.fit cannot run on the GPU: a; b"
