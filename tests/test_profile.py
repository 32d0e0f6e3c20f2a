"""A profile tells what ran where, how long it took and why it fell back."""

from __future__ import annotations

import contextlib
import json
import os
import re
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
from comparison import outcome_of
from engine import GENERIC, AcceleratedLine, engine_of
from hypothesis import given
from hypothesis import strategies as st
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.model_selection import cross_val_score

import accelsk
from accelsk.device import traffic
from accelsk.profiling import MethodStats, ProfileResults
from accelsk.profiling.events import Event, Stopwatch, report
from accelsk.profiling.export import CPU_COLOUR, GPU_COLOUR
from accelsk.profiling.report import format_bytes, format_duration, render
from accelsk.profiling.workers import Process


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
    score = results.method_calls["LogisticRegression.score"]
    assert score.cpu_time <= results.wall_time - 0.05


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
    assert outer.duration <= outer.total - 0.02
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


def test_bytes_that_a_call_moves_are_its_own(labelled, monkeypatch):
    X, y = labelled
    logistic = GENERIC[LogisticRegression]().fit(X, y)
    engine = engine_of(logistic)
    engine.refusing = {"score": "not today"}
    compute = engine.compute

    def moving(call, model):
        traffic.sent(1000, time.perf_counter())
        traffic.received(30)
        return compute(call, model)

    monkeypatch.setattr(engine, "compute", moving)
    with accelsk.profile(quiet=True) as results:
        logistic.score(X, y)
    predict, score = (results.method_calls[f"LogisticRegression.{n}"] for n in ("predict", "score"))
    assert (predict.uploaded, predict.downloaded) == (1000, 30)
    assert (score.uploaded, score.downloaded) == (0, 0)
    assert "To GPU" in str(results)
    assert "1kB" in str(results)
    assert "30B" in str(results)


def test_a_transfer_is_kept_with_the_call_that_made_it():
    with Stopwatch() as outer:
        traffic.sent(5, time.perf_counter())
        with Stopwatch() as inner:
            traffic.received(7, time.perf_counter())
        traffic.sent(6, time.perf_counter())
    assert [t.downloaded for t in inner.transfers] == [7]
    assert [t.uploaded for t in outer.transfers] == [5, 6]
    traffic.sent(5, time.perf_counter())  # outside of a call: nobody would take it
    assert traffic._count.transfers is None


def test_a_transfer_that_began_before_a_call_is_not_the_calls():
    with Stopwatch() as outer:
        before = time.perf_counter()
        with Stopwatch() as inner:
            traffic.sent(5, time.perf_counter())
            traffic.sent(7, before)
    assert [t.uploaded for t in inner.transfers] == [5]
    assert [t.uploaded for t in outer.transfers] == [7]


def test_columns_of_bytes_are_there_only_if_some_moved():
    assert "GPU  " not in render({"A.fit": MethodStats(gpu_calls=1)}).partition("\n")[0]
    assert "To GPU" not in render({"A.fit": MethodStats(gpu_calls=1)})
    table = render({"A.fit": MethodStats(gpu_calls=1, uploaded=400_000_000)})
    assert "To GPU" in table
    assert "From GPU" not in table
    assert "400MB" in table


@pytest.mark.parametrize(
    ("n_bytes", "text"),
    [(0, "0"), (1, "1B"), (999, "999B"), (999_600, "1MB"), (1_250_000, "1.2MB"), (3e15, "3000TB")],
)
def test_bytes(n_bytes, text):
    assert format_bytes(n_bytes) == text


def test_a_call_that_raises_is_counted_and_said(data):
    X, y = data
    with accelsk.profile(quiet=True) as results, contextlib.suppress(ValueError):
        AcceleratedLine().fit(X, y[:-1])
    stats = results.method_calls["Line.fit"]
    assert (stats.gpu_calls, stats.cpu_calls) == (0, 1)
    assert stats.errors == {"ValueError": 1}
    assert "Raised an error:\n  Line.fit\n    - ValueError" in str(results)


def test_an_interrupted_call_is_counted(data, monkeypatch):
    def run(call, model):
        raise KeyboardInterrupt

    monkeypatch.setattr(engine_of(AcceleratedLine), "run", run)
    with accelsk.profile(quiet=True) as results, pytest.raises(KeyboardInterrupt):
        AcceleratedLine().fit(*data)
    assert results.method_calls["Line.fit"].errors == {"KeyboardInterrupt": 1}
    assert getattr(Stopwatch._running, "innermost", None) is None


def test_an_event_costs_microseconds():
    def many(n):
        start = time.perf_counter()
        for _ in range(n):
            with Stopwatch() as watch:
                pass
            report(watch.event("A.fit", None))
        return (time.perf_counter() - start) / n

    assert min(many(500) for _ in range(5)) < 25e-6


# What programs get


@pytest.fixture
def results():
    """A profile of known figures, with a worker process."""
    results = ProfileResults()
    moved = traffic.Transfer(results._clock + 0.1, 0.05, uploaded=4000)
    for event in (
        Event("A.fit", "moments", 0.5, (), 4000, 200, results._clock, 0.5, (moved,), thread="main"),
        Event("A.fit", None, 0.25, ("X is <sparse>",), error="ValueError", thread="pool_0"),
        Event("B.fit", None, 1.0, ("forked",), process=Process(7, "LokyProcess-1"), thread="main"),
    ):
        results._add(event)
    return results


def test_dict_has_the_figures_by_process(results):
    figures = results.to_dict()
    assert figures["functions"]["A.fit"] == {
        "gpu_calls": 1,
        "gpu_time": 0.5,
        "cpu_calls": 1,
        "cpu_time": 0.25,
        "fallback_reasons": ["X is <sparse>"],
        "uploaded": 4000,
        "downloaded": 200,
        "errors": {"ValueError": 1},
        "worker_calls": 0,
        "engines": ["moments"],
        "notes": [],
    }
    here, worker = figures["processes"]
    assert (here["pid"], here["worker"], [*here["functions"]]) == (os.getpid(), False, ["A.fit"])
    assert (worker["pid"], worker["name"], worker["worker"]) == (7, "LokyProcess-1", True)
    assert worker["functions"]["B.fit"]["cpu_calls"] == 1
    assert figures["functions"]["B.fit"]["worker_calls"] == 1
    assert figures["accelsk"] == accelsk.__version__


def test_json_is_the_dict(results, tmp_path):
    path = tmp_path / "profile.json"
    assert json.loads(results.to_json(path)) == results.to_dict()
    assert json.loads(path.read_text()) == results.to_dict()
    assert "\n" not in results.to_json(indent=None)


def test_frame_has_a_row_for_each_function(results):
    pd = pytest.importorskip("pandas")
    frame = results.to_pandas()
    assert list(frame.index) == ["A.fit", "B.fit"]
    assert frame.loc["A.fit", "gpu_time"] == 0.5
    assert frame.loc["B.fit", "fallback_reasons"] == ["forked"]
    assert frame["uploaded"].sum() == 4000
    empty = ProfileResults().to_pandas()
    assert list(empty.columns) == list(frame.columns)
    assert isinstance(empty, pd.DataFrame)


def test_plot_draws_both_times(results):
    plt = pytest.importorskip("matplotlib.pyplot")
    plt.switch_backend("agg")
    ax = results.plot()
    assert [bar.get_width() for bar in ax.patches] == [0.5, 0.0, 0.25, 1.0]
    assert [text.get_text() for text in ax.get_yticklabels()] == ["A.fit", "B.fit"]
    _, mine = plt.subplots()
    assert results.plot(mine) is mine
    assert ProfileResults().plot() is not mine
    plt.close("all")


def test_trace_has_calls_transfers_threads_and_processes(results, tmp_path):
    path = tmp_path / "trace.json"
    results.save_trace(path)
    events = json.loads(path.read_text())["traceEvents"]
    slices = [event for event in events if event["ph"] == "X"]
    assert all(
        {"name", "cat", "ts", "dur", "pid", "tid", "args"} <= event.keys() for event in slices
    )
    assert [(s["name"], s["cat"]) for s in slices] == [
        ("A.fit", "gpu"),
        ("to the GPU: 4kB", "transfer"),
        ("A.fit", "scikit-learn"),
        ("B.fit", "scikit-learn"),
    ]
    fit, moved, failed, worker = slices
    assert fit["args"]["engine"] == "moments"
    assert fit["args"]["uploaded"] == 4000
    assert fit["ts"] <= moved["ts"] < moved["ts"] + moved["dur"] <= fit["ts"] + fit["dur"]
    assert failed["args"]["reasons"] == ["X is <sparse>"]
    assert failed["args"]["error"] == "ValueError"
    assert (fit["pid"], worker["pid"]) == (os.getpid(), 7)
    assert len({(s["pid"], s["tid"]) for s in slices}) == 4
    names = {(e["name"], e["args"].get("name")) for e in events if e["ph"] == "M"}
    assert names >= {
        ("process_name", "LokyProcess-1 (7)"),
        ("thread_name", "main"),
        ("thread_name", "main, transfers 1"),
        ("thread_name", "pool_0"),
    }


def test_transfers_that_overlap_are_in_rows_of_their_own(tmp_path):
    results = ProfileResults()
    at = results._clock
    transfers = tuple(traffic.Transfer(at + s, d, 8) for s, d in ((0, 2), (1, 2), (2.5, 1), (3, 1)))
    results._add(Event("A.fit", "moments", 4, start=at, total=4, transfers=transfers))
    results.save_trace(tmp_path / "trace.json")
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    call, *moved = (event for event in events if event["ph"] == "X")
    first, second, third, fourth = (event["tid"] for event in moved)
    assert first == third != second == fourth
    assert call["tid"] not in (first, second)


def test_trace_of_real_calls_nests(labelled, tmp_path):
    X, y = labelled
    logistic = GENERIC[LogisticRegression]().fit(X, y)
    engine_of(logistic).refusing = {"score": "not today"}
    with accelsk.profile(quiet=True) as results:
        logistic.score(X, y)
        with ThreadPoolExecutor(1, "workers") as pool:
            pool.submit(logistic.predict, X).result()
    results.save_trace(tmp_path / "trace.json")
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    inner, outer, other = (event for event in events if event["ph"] == "X")
    assert outer["ts"] <= inner["ts"]
    assert inner["ts"] + inner["dur"] <= outer["ts"] + outer["dur"]
    assert outer["tid"] == inner["tid"] != other["tid"]
    assert 0 <= outer["ts"] < results.wall_time * 1e6


def test_calls_beyond_a_limit_are_counted_but_not_traced(monkeypatch, tmp_path):
    monkeypatch.setattr(sys.modules["accelsk.profiling.profile"], "EVENTS_KEPT", 3)
    results = ProfileResults()
    for _ in range(5):
        results._add(Event("A.fit", None, 0.1))
    results.save_trace(tmp_path / "trace.json")
    trace = json.loads((tmp_path / "trace.json").read_text())
    assert sum(event["ph"] == "X" for event in trace["traceEvents"]) == 3
    assert trace["otherData"]["calls left out"] == 2
    assert results.method_calls["A.fit"].cpu_calls == 5


class _Tags(HTMLParser):
    """Checks that each element is closed in turn, and keeps the text."""

    def __init__(self):
        super().__init__()
        self.open, self.text = [], ""

    def handle_starttag(self, tag, attrs):
        self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if "style" not in self.open:
            self.text += data


def html_text(html):
    """Return the text of well-formed HTML."""
    parser = _Tags()
    parser.feed(html)
    parser.close()
    assert parser.open == []
    return parser.text


def test_html_is_well_formed_and_says_what_the_text_does(results):
    text = html_text(results._repr_html_())
    for piece in (
        "A.fit",
        "500ms",
        "X is <sparse>",
        "ValueError",
        "1 call ran in 1 worker process.",
    ):
        assert piece in text
    assert "<sparse>" not in results._repr_html_()
    assert "No calls" in html_text(ProfileResults()._repr_html_())


def test_html_names_no_colour_of_text_or_page(results):
    style = results._repr_html_().partition("</style>")[0]
    assert set(re.findall(r"[ ;{]color: ([^;]+);", style)) == {"inherit", CPU_COLOUR}
    assert set(re.findall(r"background: ([^;]+);", style)) <= {
        "transparent",
        GPU_COLOUR,
        CPU_COLOUR,
        "color-mix(in srgb, currentColor 7%, transparent)",
    }


_IMPORTED = """
import accelsk, sys
print(sorted(name for name in sys.modules if name.startswith("accelsk.profiling.")))
print("accelsk.ipython" in sys.modules, "IPython" in sys.modules)
"""


def test_importing_accelsk_imports_what_profile_needs_and_no_more():
    done = subprocess.run(
        [sys.executable, "-c", _IMPORTED],
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parent.parent)},
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    names = ["events", "profile", "report", "show"]
    assert eval(done.stdout.splitlines()[0]) == [f"accelsk.profiling.{name}" for name in names]
    assert done.stdout.splitlines()[1] == "False False"
