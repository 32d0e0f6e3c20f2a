"""Device memory that runs out costs time, never a result or a fitted model."""

from __future__ import annotations

import copy
import pickle
import threading
import time
import weakref

import numpy as np
import pytest
from comparison import assert_same, fitted, outcome_of
from engine import (
    GENERIC,
    AcceleratedCentering,
    AcceleratedLine,
    AcceleratedNearestMean,
    Centering,
    Line,
    LineOnNumpy,
    NearestMean,
    engine_of,
)
from sklearn.base import clone
from sklearn.cluster import KMeans
from sklearn.linear_model import Ridge
from sklearn.preprocessing import StandardScaler

import accelsk
from accelsk.device import memory
from accelsk.device.memory import is_out_of_memory, make_room
from accelsk.estimator import DeviceState

_FULL = MemoryError("std::bad_alloc: out_of_memory: CUDA error")
_RAN_OUT = "the GPU ran out of memory (std::bad_alloc: out_of_memory: CUDA error)"


@pytest.fixture(autouse=True)
def _empty_device(monkeypatch):
    """Have no model on the device but those of the test; collecting garbage takes its time."""
    monkeypatch.setattr(memory, "free_pools", lambda: None)
    for state in DeviceState._every():
        state.moved = True


def _run_out(estimator_or_class, *steps, error=_FULL, once=True):
    engine = engine_of(estimator_or_class)
    engine.failing, engine.fails_once = dict.fromkeys(steps, error), once


def _on_device(estimator):
    state = DeviceState.of(estimator)
    return state is not None and not state.moved


def _stats(name, call):
    with accelsk.profile(quiet=True) as results:
        call()
    return results.method_calls[name]


@pytest.fixture
def idle(data):
    """Two models that nobody uses, the first of them longer."""
    kmeans = GENERIC[KMeans](2, n_init=1, random_state=0).fit(data[0])
    return [kmeans, GENERIC[StandardScaler]().fit(data[0])]


# Calls

_MODELS = [
    (AcceleratedLine, Line, "predict"),
    (AcceleratedCentering, Centering, "transform"),
    (AcceleratedNearestMean, NearestMean, "predict"),
]


@pytest.mark.parametrize(("accelerated", "plain", "method"), _MODELS)
@pytest.mark.parametrize("fits", [True, False])
@pytest.mark.parametrize("once", [True, False])
def test_a_call_is_tried_again_with_idle_models_on_the_host(
    accelerated, plain, method, fits, once, idle, data, labelled
):
    X, y = labelled if plain is NearestMean else data
    ours, theirs = accelerated(), plain().fit(X, y)
    step = "fit" if fits else method
    _run_out(ours, step, once=once)
    stats = _stats(f"{plain.__name__}.{step}", lambda: getattr(ours.fit(X, y), method)(X))
    assert (stats.gpu_calls, stats.cpu_calls) == ((1, 0) if once else (0, 1))
    assert stats.fallback_reasons == (set() if once else {"the GPU ran out of memory"})
    ending = "went well" if once else "ran out of memory, too"
    moved = "moved to the host: KMeans, StandardScaler"
    assert stats.notes == {f"{_RAN_OUT}, {moved}; the second attempt {ending}"}
    assert engine_of(ours).counts[step] == 2
    assert not any(map(_on_device, idle))
    engine_of(ours).reset()
    assert_same(getattr(ours, method)(X), getattr(theirs, method)(X))
    assert_same(fitted(ours), fitted(theirs))


def test_the_model_that_is_in_use_stays_on_the_device(idle, data):
    line = AcceleratedLine().fit(*data)
    _run_out(line, "predict")
    line.predict(data[0])
    assert _on_device(line)
    assert engine_of(line).counts == {"fit": 1, "predict": 2}


def test_the_earlier_model_of_an_estimator_that_is_fitted_anew_is_idle(data):
    X, y = data
    line = AcceleratedLine().fit(X, y)
    _run_out(line, "fit")
    line.fit(X[:, :2], y)
    assert engine_of(line).counts == {"fit": 3, "attributes": 1}
    assert_same(fitted(line), fitted(Line().fit(X[:, :2], y)))


def test_models_move_in_the_order_of_their_last_use(data, monkeypatch):
    lines = [AcceleratedLine(shrinkage=i).fit(*data) for i in range(4)]
    lines[0].predict(data[0])
    lines[2].predict(data[0])
    order = []
    fetch = LineOnNumpy.attributes

    def attributes(self, estimator, model):
        order.append(estimator.shrinkage)
        return fetch(self, estimator, model)

    monkeypatch.setattr(LineOnNumpy, "attributes", attributes)
    _run_out(AcceleratedLine, "fit")
    note = _stats("Line.fit", lambda: AcceleratedLine().fit(*data)).notes.pop()
    assert order == [1, 3, 0, 2]
    assert "moved to the host: 4 AcceleratedLine;" in note


def test_where_nothing_is_idle_the_profile_says_so(data):
    _run_out(AcceleratedLine, "fit")
    stats = _stats("Line.fit", lambda: AcceleratedLine().fit(*data))
    assert stats.notes == {f"{_RAN_OUT}, nothing was idle there; the second attempt went well"}


def test_what_happened_stands_in_every_form_of_the_profile(data, caplog):
    _run_out(AcceleratedLine, "fit")
    with caplog.at_level("INFO", "accelsk"), accelsk.profile(quiet=True) as results:
        AcceleratedLine().fit(*data)
    text = "the second attempt went well"
    assert "Happened on the way:\n  Line.fit\n    - the GPU ran out of memory" in str(results)
    assert text in results._repr_html_()
    assert text in results.to_json()
    assert any(r.message.startswith("Line.fit: ") and text in r.message for r in caplog.records)


def test_out_of_memory_hands_on_to_an_engine_that_streams(data):
    class Streaming(LineOnNumpy):
        name = "streaming"

    first, second = LineOnNumpy(), Streaming()
    cls = accelsk.register(Line, [first, second], name="StreamingLine", module=__name__)
    first.failing = {"fit": _FULL}
    stats = _stats("Line.fit", lambda: cls().fit(*data))
    assert stats.engines == {"streaming"}
    assert {note.rpartition(";")[2] for note in stats.notes} == {
        " the second attempt ran out of memory, too"
    }


def test_restoring_a_model_that_does_not_fit_is_tried_again(idle, data):
    line = AcceleratedLine().fit(*data)
    line.coef_ = np.ones(3)
    _run_out(line, "restore")
    assert_same(line.predict(data[0]), data[0].sum(axis=1))
    assert engine_of(line).counts["restore"] == 2


# Models that have moved


def _line_that_moved(data):
    line = AcceleratedLine().fit(*data)
    _run_out(AcceleratedCentering, "fit")
    AcceleratedCentering().fit(data[0])
    assert not _on_device(line)
    return line


def _uses():
    def predict(e, X, y):
        return e.predict(X), e.predict(X)

    def read(e, X, y):
        return e.coef_, e.scale_, e.n_features_in_

    def change(e, X, y):
        e.coef_[0] = 100
        return e.predict(X)

    def assign(e, X, y):
        e.coef_ = np.ones(3)
        return e.predict(X)

    def refit(e, X, y):
        return e.fit(X[:, :2], y).predict(X[:, :2]), e.coef_

    def set_params(e, X, y):
        return e.set_params(shrinkage=3).predict(X), e.fit(X, y).coef_

    def delete(e, X, y):
        del e.coef_
        return hasattr(e, "coef_"), hasattr(e, "scale_")

    def copies(e, X, y):
        made = [copy.copy(e), copy.deepcopy(e), pickle.loads(pickle.dumps(e))]
        return [one.predict(X) for one in made]

    def cloned(e, X, y):
        return hasattr(clone(e), "coef_")

    return [predict, read, change, assign, refit, set_params, delete, copies, cloned]


@pytest.mark.parametrize("use", _uses(), ids=lambda use: use.__name__)
@pytest.mark.parametrize("looked_at", [True, False])
def test_a_model_that_has_moved_is_as_it_was(use, looked_at, data):
    line, plain = _line_that_moved(data), Line().fit(*data)
    if looked_at:
        _ = line.coef_
    assert_same(use(line, *data), use(plain, *data))


def test_a_model_that_has_moved_is_made_again_once(data):
    line = _line_that_moved(data)
    for _ in range(3):
        line.predict(data[0])
    assert engine_of(line).counts == {"fit": 1, "attributes": 1, "restore": 1, "predict": 3}
    assert _on_device(line)


def test_a_model_moves_as_often_as_need_be(data):
    line, plain = AcceleratedLine().fit(*data), Line().fit(*data)
    for _ in range(3):
        _run_out(AcceleratedCentering, "fit")
        AcceleratedCentering().fit(data[0])
        assert not _on_device(line)
        assert_same(line.predict(data[0]), plain.predict(data[0]))
        assert _on_device(line)


def test_a_model_that_nobody_can_make_again_predicts_in_scikit_learn(data):
    line = _line_that_moved(data)
    engine_of(line).failing = {"restore": accelsk.exceptions.Refusal("no such model")}
    assert_same(line.predict(data[0]), Line().fit(*data).predict(data[0]))


def test_a_model_that_cannot_leave_stays_and_the_others_go(idle, data):
    line = AcceleratedLine().fit(*data)
    engine_of(line).failing = {"attributes": _FULL}
    make_room(_FULL)
    assert _on_device(line)
    assert not any(map(_on_device, idle))
    engine_of(line).reset()
    assert_same(line.coef_, Line().fit(*data).coef_)


@pytest.mark.parametrize("first", ["owner", "copy"])
def test_a_copied_dict_has_its_attributes_whoever_fetches_first(first, data):
    line, plain = AcceleratedLine().fit(*data), Line().fit(*data)
    other = AcceleratedLine()
    other.__dict__.update(line.__dict__)
    if first == "owner":
        make_room(_FULL)
    pair = [line, other] if first == "owner" else [other, line]
    for estimator in pair:
        assert_same(estimator.coef_, plain.coef_)
    for estimator in reversed(pair):
        assert_same(estimator.predict(data[0]), plain.predict(data[0]))


def test_a_copied_dict_of_a_model_that_moved_predicts(data):
    line = AcceleratedLine().fit(*data)
    other = AcceleratedLine()
    other.__dict__.update(line.__dict__)
    make_room(_FULL)
    assert_same(other.predict(data[0]), Line().fit(*data).predict(data[0]))
    assert_same(fitted(other), fitted(line))


# Attributes that do not fit on their way


def test_fetching_is_tried_again_with_idle_models_on_the_host(idle, data):
    line = AcceleratedLine().fit(*data)
    _run_out(line, "attributes")
    assert_same(line.coef_, Line().fit(*data).coef_)
    assert engine_of(line).counts["attributes"] == 2
    assert not any(map(_on_device, idle))
    assert _on_device(line)


def test_fetching_in_vain_loses_nothing(idle, data):
    line, plain = AcceleratedLine().fit(*data), Line().fit(*data)
    _run_out(line, "attributes", once=False)
    for call in (
        lambda: line.coef_,
        lambda: pickle.dumps(line),
        lambda: line.set_params(shrinkage=1),
    ):
        with pytest.raises(MemoryError, match="bad_alloc") as caught:
            call()
        assert "could not leave the GPU" in caught.value.__notes__[0]
    assert line.shrinkage == 0
    assert_same(line.predict(data[0]), plain.predict(data[0]))
    engine_of(line).reset()
    assert_same(fitted(line), fitted(plain))


def test_attributes_that_are_fetched_for_scikit_learn_are_tried_again(idle, data):
    line, plain = AcceleratedLine().fit(*data), Line().fit(*data)
    engine_of(line).refusing = {"predict": "not today"}
    _run_out(line, "attributes")
    stats = _stats("Line.predict", lambda: line.predict(data[0]))
    assert stats.fallback_reasons == {"not today"}
    assert any("the second attempt went well" in note for note in stats.notes)
    assert_same(line.predict(data[0]), plain.predict(data[0]))


def test_a_fit_that_goes_on_does_not_start_from_nothing(data):
    class Sum(Line):
        def partial_fit(self, X, y=None):
            self.total_ = getattr(self, "total_", 0) + np.sum(X)
            return self

        fit = partial_fit

    class SumEngine(LineOnNumpy):
        methods = ("fit", "partial_fit")

        def fit(self, call, X):
            outcome = super().fit(call, X)
            outcome.model.total_ = X.sum()
            return outcome

        def attributes(self, estimator, model):
            return {"total_": super().attributes(estimator, model)["total_"]}

    cls = accelsk.register(Sum, [SumEngine()], name="AcceleratedSum", module=__name__)
    summed = cls().fit(*data)
    engine = engine_of(summed)
    engine.refusing = {"partial_fit": "not today"}
    _run_out(summed, "attributes", once=False)
    with pytest.raises(MemoryError):
        summed.partial_fit(data[0])
    engine.failing = {}
    summed.partial_fit(data[0])
    assert summed.total_ == pytest.approx(2 * data[0].sum())


# The memory of the host


def _host_error():
    try:
        np.empty(1 << 59)
    except MemoryError as error:
        return error
    raise AssertionError


def test_memory_of_the_host_is_none_of_the_device_s(idle, data):
    assert not is_out_of_memory(_host_error())
    _run_out(AcceleratedLine, "fit", error=_host_error(), once=False)
    stats = _stats("Line.fit", lambda: AcceleratedLine().fit(*data))
    assert [reason.partition(":")[0] for reason in stats.fallback_reasons] == ["the engine failed"]
    assert not stats.notes
    assert all(map(_on_device, idle))
    assert engine_of(AcceleratedLine).counts["fit"] == 1


@pytest.mark.parametrize("error", [MemoryError("no"), MemoryError()])
def test_an_error_of_scikit_learn_s_own_passes_through(error, idle, data, monkeypatch):
    def predict(self, X):
        raise error

    line = AcceleratedLine().fit(*data)
    _ = line.coef_
    engine_of(line).off = "not today"
    monkeypatch.setattr(Line, "predict", predict)
    with pytest.raises(MemoryError) as caught:
        line.predict(data[0])
    assert caught.value is error
    assert all(map(_on_device, idle))


@pytest.mark.parametrize(
    "text",
    [
        "cudaErrorMemoryAllocation: out of memory",
        "CUBLAS_STATUS_ALLOC_FAILED",
        "CUSOLVER_STATUS_ALLOC_FAILED",
        "CUDA_ERROR_OUT_OF_MEMORY: out of memory",
    ],
)
def test_libraries_run_out_of_memory_in_their_own_words(text):
    assert is_out_of_memory(RuntimeError(text))


# What else is on the device


def test_what_an_error_came_of_holds_no_arrays_either(data, monkeypatch):
    class Large:
        """Stands for an array on the device."""

    arrays = []

    class Hungry(LineOnNumpy):
        def compute(self, call, model):
            array = Large()
            arrays.append(weakref.ref(array))
            try:
                raise ValueError("inner")
            except ValueError as error:
                raise _FULL from error

        def run(self, call, model):
            array = Large()
            arrays.append(weakref.ref(array))
            try:
                return super().run(call, model)
            except MemoryError:
                raise RuntimeError("CUBLAS_STATUS_ALLOC_FAILED") from None

    held = []
    monkeypatch.setattr(memory, "free_pools", lambda: held.extend(a() is not None for a in arrays))
    cls = accelsk.register(Line, [Hungry()], name="HungryLine", module=__name__)
    cls().fit(*data)
    assert held
    assert not any(held)


# Threads


def test_a_model_that_moves_while_another_thread_predicts_with_it(data):
    inside, go = threading.Event(), threading.Event()

    class Slow(LineOnNumpy):
        def predict(self, model, X):
            inside.set()
            assert go.wait(10)
            return super().predict(model, X)

    cls = accelsk.register(Line, [Slow()], name="SlowLine", module=__name__)
    line, results = cls().fit(*data), []
    thread = threading.Thread(target=lambda: results.append(line.predict(data[0])))
    thread.start()
    assert inside.wait(10)
    make_room(_FULL)
    assert not _on_device(line)
    go.set()
    thread.join(10)
    assert_same(results, [Line().fit(*data).predict(data[0])])
    assert engine_of(line).counts["restore"] == 0


def test_a_fit_ends_while_the_model_before_it_moves(data):
    """The attributes of the earlier fit arrive when the later one is there already, or before."""
    X, y = data
    inside, go = threading.Event(), threading.Event()

    class Slow(LineOnNumpy):
        def attributes(self, estimator, model):
            inside.set()
            go.wait(0.3)
            return super().attributes(estimator, model)

    cls = accelsk.register(Line, [Slow()], name="SlowLine", module=__name__)
    line = cls().fit(X, y)
    thread = threading.Thread(target=make_room, args=(_FULL,))
    thread.start()
    assert inside.wait(10)
    line.fit(X[:, :2], 2 * y)
    go.set()
    thread.join(10)
    assert_same(fitted(line), fitted(Line().fit(X[:, :2], 2 * y)))
    assert_same(line.predict(X[:, :2]), Line().fit(X[:, :2], 2 * y).predict(X[:, :2]))


def test_threads_that_run_out_at_once_do_not_wait_for_each_other(data):
    together = threading.Barrier(4)

    class Tight(LineOnNumpy):
        def attributes(self, estimator, model):
            if self.counts["attributes"] < 4:
                self.counts["attributes"] += 1
                together.wait(10)
                raise _FULL
            return super().attributes(estimator, model)

    cls = accelsk.register(Line, [Tight()], name="TightLine", module=__name__)
    lines = [cls().fit(*data) for _ in range(4)]
    found = [None] * 4

    def read(i):
        found[i] = lines[i].coef_

    threads = [threading.Thread(target=read, args=(i,), daemon=True) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert_same(found, [Line().fit(*data).coef_] * 4)


def test_many_threads_on_a_device_that_is_always_full(data):
    X, y = data
    shared = [AcceleratedLine(shrinkage=i).fit(X, y) for i in range(3)]
    plain = [Line(shrinkage=i).fit(X, y) for i in range(3)]
    stop, wrong = time.monotonic() + 1.5, []

    def work(seed):
        rng = np.random.default_rng(seed)
        while time.monotonic() < stop and not wrong:
            i = rng.integers(3)
            engine_of(AcceleratedLine).fails_once = True
            step = rng.choice(["fit", "predict", "attributes", "restore"])
            engine_of(AcceleratedLine).failing = {step: _FULL}
            own = AcceleratedLine(shrinkage=i).fit(X, y)
            try:
                assert_same(own.predict(X), plain[i].predict(X))
                assert_same(shared[i].predict(X), plain[i].predict(X))
                assert_same(own.coef_, plain[i].coef_)
                assert_same(copy.copy(shared[i]).coef_, plain[i].coef_)
            except MemoryError:  # another thread has made a second attempt fail, too
                continue
            except Exception as error:
                wrong.append(error)

    threads = [threading.Thread(target=work, args=(i,), daemon=True) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
        assert not thread.is_alive()
    assert not wrong


# Cost


def test_small_calls_pay_next_to_nothing(data):
    """A stamp for each call on a device, a weak reference for each model there."""
    line = AcceleratedLine().fit(*data)
    _ = line.coef_
    state = DeviceState.of(line)

    def microseconds(function, number=2000):
        start = time.perf_counter()
        for _ in range(number):
            function()
        return (time.perf_counter() - start) / number * 1e6

    clock = DeviceState._clock
    assert min(microseconds(lambda: setattr(state, "_used", next(clock))) for _ in range(5)) < 2


def test_errors_that_are_not_of_the_device_move_nothing(idle, data):
    for error in (ValueError("bad"), RuntimeError("boom"), KeyError("x")):
        _run_out(AcceleratedLine, "fit", "predict", error=error, once=False)
        AcceleratedLine().fit(*data).predict(data[0])
    assert all(map(_on_device, idle))


_DEEDS = {
    "fit": lambda e, X, y: e.fit(X, y).coef_.copy(),
    "fit elsewhere": lambda e, X, y: e.fit(X + 1, y).coef_.copy(),
    "predict": lambda e, X, y: e.predict(X),
    "read": lambda e, X, y: e.coef_.copy(),
    "pickle": lambda e, X, y: pickle.loads(pickle.dumps(e)).predict(X),
    "set": lambda e, X, y: e.set_params(**{next(iter(e.get_params())): 1.5}) and None,
    "assign": lambda e, X, y: setattr(e, "coef_", e.coef_ * 2),
}


def _told(deed, estimator, X, y):
    result, error, _ = outcome_of(lambda: deed(estimator, X, y))
    return result, error and error[0]


def test_sequences_of_shortages_tell_scikit_learn_s_story(data):
    rng = np.random.default_rng(0)
    classes = [(GENERIC[Ridge], Ridge), (AcceleratedLine, Line)]
    for _ in range(200):
        cls, original = classes[rng.integers(2)]
        ours, theirs = cls(), original()
        for name in rng.choice([*_DEEDS], rng.integers(1, 8)):
            steps = ["fit", "predict", "attributes", "restore"]
            _run_out(cls, *rng.choice(steps, rng.integers(3)))
            if rng.random() < 0.2:
                make_room(_FULL)
            found = _told(_DEEDS[name], ours, *data)
            assert_same(found, _told(_DEEDS[name], theirs, *data), name)
