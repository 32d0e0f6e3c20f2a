"""A profile tells what ran where, how long it took and why it fell back."""

from __future__ import annotations

import contextlib
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from comparison import outcome_of
from engine import GENERIC, AcceleratedLine, engine_of
from hypothesis import given
from hypothesis import strategies as st
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.model_selection import cross_val_score

import accelsk
from accelsk.profiling import MethodStats, ProfileResults
from accelsk.profiling.events import Event, Stopwatch
from accelsk.profiling.report import format_duration, render


def test_calls_are_counted_by_where_they_ran(data):
    X, y = data
    with accelsk.profile(quiet=True) as results:
        line = AcceleratedLine().fit(X, y)
        line.predict(X)
        line.predict(X)
        engine_of(line).refusing = {"predict": "not today"}
        line.predict(X)
    assert list(results.method_calls) == ["Line.fit", "Line.predict"]
    stats = results.method_calls["Line.predict"]
    assert isinstance(stats, MethodStats)
    assert (stats.gpu_calls, stats.cpu_calls) == (2, 1)
    assert stats.gpu_time > 0
    assert stats.cpu_time > 0
    assert stats.fallback_reasons == {"not today"}
    assert results.method_calls["Line.fit"].fallback_reasons == set()


def test_nothing_is_counted_after_the_block(data):
    with accelsk.profile(quiet=True) as results:
        pass
    AcceleratedLine().fit(*data)
    assert results.method_calls == {}


def test_block_that_raises_still_ends_the_profile(data):
    with contextlib.suppress(KeyError), accelsk.profile(quiet=True) as results:
        AcceleratedLine().fit(*data)
        raise KeyError
    AcceleratedLine().fit(*data)
    assert results.method_calls["Line.fit"].gpu_calls == 1


def test_profiles_nest_and_each_sees_its_own_block(data):
    X, y = data
    with accelsk.profile(quiet=True) as outer:
        line = AcceleratedLine().fit(X, y)
        with accelsk.profile(quiet=True) as inner:
            line.predict(X)
        line.predict(X)
    assert outer.method_calls["Line.predict"].gpu_calls == 2
    assert outer.method_calls["Line.fit"].gpu_calls == 1
    assert inner.method_calls["Line.predict"].gpu_calls == 1
    assert "Line.fit" not in inner.method_calls


def test_profile_sees_every_thread(data):
    X, y = data
    line = AcceleratedLine().fit(X, y)
    with accelsk.profile(quiet=True) as results, ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda _: line.predict(X), range(200)))
    assert results.method_calls["Line.predict"].gpu_calls == 200


def test_profiles_of_several_threads_do_not_end_each_other(data):
    X, y = data
    line = AcceleratedLine().fit(X, y)
    barrier = threading.Barrier(4)

    def work(calls):
        with accelsk.profile(quiet=True) as results:
            barrier.wait(10)
            for _ in range(calls):
                line.predict(X)
            barrier.wait(10)
        return results.method_calls["Line.predict"].gpu_calls

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(work, range(4))) == [6] * 4


def test_time_of_a_call_leaves_out_the_calls_inside_it(labelled, monkeypatch):
    X, y = labelled
    logistic = GENERIC[LogisticRegression]().fit(X, y)
    engine = engine_of(logistic)
    engine.refusing = {"score": "not today"}
    compute = engine.compute

    def slow(call, model):
        time.sleep(0.05)
        return compute(call, model)

    monkeypatch.setattr(engine, "compute", slow)
    with accelsk.profile(quiet=True) as results:
        logistic.score(X, y)
    assert results.method_calls["LogisticRegression.predict"].gpu_time >= 0.05
    assert results.method_calls["LogisticRegression.score"].cpu_time < 0.05


def test_failed_attempt_counts_as_time_of_the_call(data, monkeypatch):
    def run(call, model):
        time.sleep(0.05)
        raise RuntimeError("boom")

    monkeypatch.setattr(engine_of(AcceleratedLine), "run", run)
    with accelsk.profile(quiet=True) as results:
        AcceleratedLine().fit(*data)
    assert results.method_calls["Line.fit"].cpu_time >= 0.05


def test_stopwatch_after_an_error_leaves_the_outer_one_running():
    with Stopwatch() as outer:
        with contextlib.suppress(KeyError), Stopwatch() as inner:
            time.sleep(0.02)
            raise KeyError
        assert getattr(Stopwatch._running, "innermost", None) is outer
    assert inner.duration >= 0.02
    assert outer.duration < 0.02
    assert Stopwatch._running.innermost is None


def test_work_of_cross_validation_is_seen(data):
    with accelsk.profile(quiet=True) as results:
        cross_val_score(GENERIC[Ridge](), *data, cv=4)
    assert results.method_calls["Ridge.fit"].gpu_calls == 4
    assert results.method_calls["Ridge.score"].gpu_calls == 4


def test_error_of_scikit_learn_is_not_hidden_by_a_profile(data):
    with accelsk.profile(quiet=True):
        _, error, _ = outcome_of(lambda: AcceleratedLine().fit(data[0] * np.nan, data[1]))
    assert error[0] is ValueError


# The report


def test_report_is_printed_at_the_end(data, capsys):
    with accelsk.profile() as results:
        AcceleratedLine(forbidden=True).fit(*data)
        assert capsys.readouterr().out == ""
    out = capsys.readouterr().out
    assert out == f"{results}\n"
    assert "Ran in scikit-learn because:\n  Line.fit\n    - forbidden=True" in out


def test_quiet_profile_prints_nothing(data, capsys):
    with accelsk.profile(quiet=True):
        AcceleratedLine().fit(*data)
    assert capsys.readouterr().out == ""


def test_report_of_nothing_says_so(capsys):
    with accelsk.profile():
        pass
    assert capsys.readouterr().out == "No calls of accelerated methods.\n"


def test_report_of_known_figures():
    calls = {
        "Ridge.fit": MethodStats(gpu_calls=2, gpu_time=0.167),
        "PCA.transform": MethodStats(1, 0.0012, 3, 65.2, {"X is sparse", "a reason"}),
    }
    assert (
        render(calls)
        == """\
┌───────────────┬─────────────┬────────────┬─────────────┬────────────┐
│ Function      │   GPU calls │   GPU time │   CPU calls │   CPU time │
├───────────────┼─────────────┼────────────┼─────────────┼────────────┤
│ Ridge.fit     │           2 │      167ms │           0 │         0s │
│ PCA.transform │           1 │      1.2ms │           3 │    1m5.2s  │
├───────────────┼─────────────┼────────────┼─────────────┼────────────┤
│ Total         │           3 │    168.2ms │           3 │    1m5.2s  │
└───────────────┴─────────────┴────────────┴─────────────┴────────────┘

Ran in scikit-learn because:
  PCA.transform
    - X is sparse
    - a reason""".replace("168.2ms", "  168ms").replace("1m5.2s ", " 1m5.2s")
    )


def test_results_grow_while_the_block_runs(data):
    with accelsk.profile(quiet=True) as results:
        assert repr(results) == "<ProfileResults of 0 methods>"
        AcceleratedLine().fit(*data)
        assert results.method_calls["Line.fit"].gpu_calls == 1
        assert "Line.fit" in str(results)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0s"),
        (1e-9, "0µs"),
        (0.000167, "167µs"),
        (0.00099994, "1000µs"),
        (0.0012, "1.2ms"),
        (0.0999, "99.9ms"),
        (0.09996, "100ms"),
        (0.167, "167ms"),
        (0.99994, "1000ms"),
        (0.99996, "1s"),
        (59.94, "59.9s"),
        (59.96, "1m0s"),
        (65.2, "1m5.2s"),
        (3599.96, "1h0m0s"),
        (3725, "1h2m5s"),
        (90061.5, "25h1m1.5s"),
    ],
)
def test_durations(seconds, text):
    assert format_duration(seconds) == text


def _seconds(text):
    units = {"h": 3600, "m": 60, "s": 1}
    for unit, factor in (("µs", 1e-6), ("ms", 1e-3)):
        if text.endswith(unit):
            return float(text.removesuffix(unit)) * factor
    total, number = 0.0, ""
    for character in text:
        if character in units:
            total, number = total + float(number) * units[character], ""
        else:
            number += character
    return total


@given(st.floats(1e-6, 1e5))
def test_durations_read_back(seconds):
    shown = _seconds(format_duration(seconds))
    assert shown == pytest.approx(seconds, rel=0.05, abs=0.05 if seconds > 1 else 1e-7)


@given(
    st.lists(
        st.builds(
            Event,
            st.sampled_from(["A.fit", "B.fit"]),
            st.sampled_from([None, "cuml", "cupy"]),
            st.floats(0, 1e3),
            st.lists(st.sampled_from(["x", "y"])).map(tuple),
        )
    )
)
def test_sums_of_a_profile_are_those_of_its_events(events):
    results = ProfileResults()
    for event in events:
        results._add(event)
    stats = results.method_calls.values()
    assert sum(s.gpu_calls + s.cpu_calls for s in stats) == len(events)
    total = sum(s.gpu_time + s.cpu_time for s in stats)
    assert total == pytest.approx(sum(e.duration for e in events))
    assert str(results)


def test_a_block_that_raises_prints_what_ran(capsys, data):
    def block():
        with accelsk.profile():
            AcceleratedLine().fit(*data)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        block()
    assert "Line.fit" in capsys.readouterr().out
