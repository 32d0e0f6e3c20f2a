"""A line profile tells what each line took, what of it on the GPU, and where calls fell back."""

from __future__ import annotations

import asyncio
import contextlib
import io
import linecache
import os
import subprocess
import sys
import textwrap
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from html.parser import HTMLParser
from pathlib import Path
from types import SimpleNamespace

import pytest
from engine import AcceleratedLine, engine_of

from accelsk.profiling import hooks
from accelsk.profiling.clock import Clock
from accelsk.profiling.events import Event, report
from accelsk.profiling.line_report import _shown
from accelsk.profiling.lines import LineStats, _session, line_profile
from accelsk.profiling.show import show
from accelsk.profiling.sources import statements

ROOT = Path(__file__).parent.parent

needs_monitoring = pytest.mark.skipif(
    not hasattr(sys, "monitoring"), reason="sys.monitoring came with Python 3.12"
)


@pytest.fixture(
    autouse=True, params=["tracing", pytest.param("monitoring", marks=needs_monitoring)]
)
def way(request, monkeypatch):
    """Run each test by `sys.settrace` and, where there is one, by `sys.monitoring`."""
    if request.param == "tracing":
        monkeypatch.delattr(sys, "monitoring", raising=False)
    before = sys.gettrace(), threading.gettrace()
    yield request.param
    assert (sys.gettrace(), threading.gettrace()) == before
    assert _session._active == []


@pytest.fixture
def run(tmp_path):
    """Run a script under a line profile; gives what it defined and the lines by their text."""

    def run(source, names=None, sources=()):
        path = tmp_path / "script.py"
        path.write_text(textwrap.dedent(source))
        linecache.checkcache()
        space = {"__name__": "__main__", "time": time, "call": call, **(names or {})}
        code = compile(path.read_text(), str(path), "exec")
        with line_profile(*(sources or (path,)), quiet=True) as results:
            exec(code, space)
        texts = path.read_text().splitlines()
        lines = {
            texts[number - 1].strip(): stats
            for number, stats in results.lines.get(str(path), {}).items()
        }
        return SimpleNamespace(**space, results=results, lines=lines)

    return run


def call(engine="test", duration=0.001, *reasons):
    """Report a call of an accelerated method without making one."""
    report(Event("A.fit", engine, duration, reasons))


# its own line is none that a profile of this file watches
call.__code__ = call.__code__.replace(co_filename="<call>")


def hits(lines):
    return {text: stats.hits for text, stats in lines.items()}


def test_hits_are_counted(run):
    done = run(
        """
        def double(x):
            return 2 * x
        total = 0
        for i in range(3):
            total += double(i)
        if total > 100:
            total = -1
        """
    )
    assert done.total == 6
    assert hits(done.lines) == {
        "def double(x):": 1,
        "return 2 * x": 3,
        "total = 0": 1,
        "for i in range(3):": 4,
        "total += double(i)": 3,
        "if total > 100:": 1,
    }


def test_time_of_a_line_has_that_of_the_functions_it_calls(run):
    done = run(
        """
        def wait():
            time.sleep(0.03)
        wait()
        time.sleep(0.02)
        """
    )
    assert 0.03 <= done.lines["time.sleep(0.03)"].time <= done.lines["wait()"].time
    assert done.lines["time.sleep(0.02)"].time >= 0.02
    assert done.lines["wait()"].time <= done.results.wall_time - 0.02


def test_recursion_counts_time_once(run):
    done = run(
        """
        def down(n):
            time.sleep(0.004)
            if n:
                down(n - 1)
        down(5)
        """
    )
    assert done.lines["time.sleep(0.004)"].hits == 6
    assert done.lines["down(n - 1)"].hits == 5
    sleeping, inner, outer = (
        done.lines[text].time for text in ("time.sleep(0.004)", "down(n - 1)", "down(5)")
    )
    assert 0.024 <= sleeping <= outer <= done.results.wall_time
    assert 0.02 <= inner <= outer - 0.004


def test_statement_over_several_lines_counts_as_its_first(run):
    done = run(
        """
        for i in range(2):
            x = max(
                1,
                len("abc"),
            )
        call(
            "test",
        )
        """
    )
    assert hits(done.lines) == {"for i in range(2):": 3, "x = max(": 2, "call(": 1}
    assert done.lines["call("].gpu_calls == 1


def test_loop_on_one_line_is_one_line(run):
    done = run("for i in range(5): call()\n")
    assert done.lines["for i in range(5): call()"].gpu_calls == 5
    # `sys.settrace` tells of each pass, `sys.monitoring` does not
    assert done.lines["for i in range(5): call()"].hits >= 1


def test_comprehension_is_part_of_its_line(run, way):
    done = run(
        """
        x = [call() for _ in range(4)]
        y = sum(
            len(str(call()))
            for _ in range(3)
        )
        """
    )
    (x, times), *others = hits(done.lines).items()
    assert (x, others) == ("x = [call() for _ in range(4)]", [("y = sum(", 1)])
    # since it is no function of its own any more, `sys.settrace` tells of each pass
    assert times == 1 or (way == "tracing" and sys.version_info >= (3, 12))
    assert done.lines["x = [call() for _ in range(4)]"].gpu_calls == 4
    assert done.lines["y = sum("].gpu_calls == 3


def test_generator_is_timed_while_it_runs_only(run):
    done = run(
        """
        def numbers():
            for i in range(3):
                time.sleep(0.01)
                yield i
        for i in numbers():
            time.sleep(0.02)
        """
    )
    assert done.lines["yield i"].hits == 3
    inside, yielding, outside, loop = (
        done.lines[text].time
        for text in ("time.sleep(0.01)", "yield i", "time.sleep(0.02)", "for i in numbers():")
    )
    assert 0.03 <= inside <= loop
    assert 0.06 <= outside <= done.results.wall_time - loop
    assert yielding < outside


def test_generator_that_is_thrown_into_and_one_left_alone(run):
    done = run(
        """
        def numbers():
            try:
                yield 1
                yield 2
            except KeyError:
                call()
                yield 3
        first, second = numbers(), numbers()
        next(first)
        next(second)
        found = first.throw(KeyError)
        second.close()
        """
    )
    assert done.found == 3
    assert done.lines["call()"].gpu_calls == 1
    assert "yield 2" not in done.lines


def test_tasks_that_take_turns(run):
    done = run(
        """
        import asyncio
        async def work():
            for _ in range(3):
                await asyncio.sleep(0.01)
                call()
        async def main():
            await asyncio.gather(work(), work())
        asyncio.run(main())
        """,
        {"asyncio": asyncio},
    )
    assert done.lines["await asyncio.sleep(0.01)"].hits == 6
    assert done.lines["call()"].gpu_calls == 6
    waiting, running = (
        done.lines[text].time for text in ("await asyncio.sleep(0.01)", "asyncio.run(main())")
    )
    assert waiting <= running - 0.02  # of 0.03 in which neither runs


def test_errors_leave_the_lines_of_the_callers_open(run):
    done = run(
        """
        def fail():
            time.sleep(0.01)
            raise KeyError
        def outer():
            fail()
        try:
            outer()
        except KeyError:
            time.sleep(0.02)
        call()
        """
    )
    assert 0.01 <= done.lines["outer()"].time <= done.results.wall_time - 0.02
    assert done.lines["raise KeyError"].hits == 1
    assert done.lines["call()"].gpu_calls == 1
    assert done.lines["time.sleep(0.02)"].time >= 0.02


def test_error_ends_the_block_and_is_reported_on(capsys):
    def block():
        with line_profile():
            call()
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        block()
    assert "raise ZeroDivisionError" in capsys.readouterr().out


# Calls of accelerated methods


def test_share_of_the_gpu_and_mark_of_a_fallback(data):
    X, y = data
    engine = engine_of(AcceleratedLine)
    with line_profile(quiet=True) as results:
        line = AcceleratedLine().fit(X, y)
        for _ in range(3):
            line.predict(X)
        engine.refusing = {"predict": "not today"}
        line.predict(X)
        AcceleratedLine(forbidden=True).fit(X, y)
    (lines,) = results.lines.values()
    fit, _, predict, _, refused, forbidden = lines.values()
    assert (fit.gpu_calls, fit.cpu_calls) == (1, 0)
    assert 0 < fit.gpu_time <= fit.time
    assert predict.gpu_calls == 3
    assert (refused.gpu_calls, refused.cpu_calls, refused.gpu_time) == (0, 1, 0.0)
    assert refused.fallbacks == {"Line.predict: not today": 1}
    assert forbidden.fallbacks == {"Line.fit: forbidden=True": 1}
    assert results.gpu_time == pytest.approx(sum(s.gpu_time for s in lines.values()))
    text = str(results)
    assert "  !         line.predict(X)" in text
    assert f"line {max(lines)}\n    - Line.fit: forbidden=True" in text


def test_call_counts_for_every_line_that_led_to_it(run):
    done = run(
        """
        def inner():
            call("test", 0.5)
            call(None, 0.5, "why")
        def outer():
            inner()
        outer()
        """
    )
    assert done.lines['call("test", 0.5)'].gpu_time == 0.5
    assert done.lines["outer()"].gpu_time == done.lines["inner()"].gpu_time == 0.5
    assert done.lines['call(None, 0.5, "why")'].fallbacks == {"A.fit: why": 1}
    # the mark is where the call is
    assert done.lines["outer()"].fallbacks == {}


def test_recursion_counts_a_call_once_for_a_line(run):
    done = run(
        """
        def down(n):
            if n == 0:
                call("test", 0.5)
            else:
                down(n - 1)
        down(4)
        """
    )
    assert done.lines["down(n - 1)"].gpu_time == 0.5
    assert done.lines["down(4)"].gpu_time == 0.5


# Threads


def test_threads_are_seen(run):
    done = run(
        """
        def work(i):
            time.sleep(0.01)
            call("test", 0.25)
        with ThreadPoolExecutor(4) as pool:
            list(pool.map(work, range(8)))
        """,
        {"ThreadPoolExecutor": ThreadPoolExecutor},
    )
    assert done.lines["time.sleep(0.01)"].hits == 8
    assert done.lines["time.sleep(0.01)"].time >= 0.08
    assert done.lines['call("test", 0.25)'].gpu_time == 2.0


def test_call_of_a_thread_without_lines_counts_where_the_program_waits(run):
    done = run(
        """
        with ThreadPoolExecutor(4) as pool:
            list(pool.map(call, ["test"] * 8))
        time.sleep(0.001)
        """,
        {"ThreadPoolExecutor": ThreadPoolExecutor},
    )
    assert sum(stats.gpu_calls for stats in done.lines.values()) == 8
    assert done.lines["time.sleep(0.001)"].gpu_calls == 0


def test_thread_that_outlives_the_block_is_left_alone(run):
    go = threading.Event()
    done = run(
        """
        def work():
            go.wait()
            for _ in range(1000):
                call()
        thread = threading.Thread(target=work)
        thread.start()
        """,
        {"threading": threading, "go": go},
    )
    go.set()
    done.thread.join()
    assert "call()" not in done.lines


def test_blocks_in_several_threads():
    barrier = threading.Barrier(4)

    def work(n):
        barrier.wait(10)
        with line_profile(quiet=True) as results:
            for _ in range(n):
                call("test", 0.0)
            barrier.wait(10)
        return results

    with ThreadPoolExecutor(4) as pool:
        for results in pool.map(work, [5] * 4):
            (lines,) = results.lines.values()
            assert max(stats.hits for stats in lines.values()) >= 5


# Blocks


def test_blocks_nest():
    with line_profile(quiet=True) as outer:
        call()
        with line_profile(quiet=True) as inner:
            call()
            call()
        call()
    assert sum(s.gpu_calls for lines in outer.lines.values() for s in lines.values()) == 4
    assert sum(s.gpu_calls for lines in inner.lines.values() for s in lines.values()) == 2
    assert all(s.hits == 1 for lines in inner.lines.values() for s in lines.values())


def test_block_on_one_line():
    with line_profile(quiet=True) as results: call(); call()  # noqa: E701, E702 # fmt: skip
    ((stats,),) = (lines.values() for lines in results.lines.values())
    assert stats.gpu_calls == 2


def test_with_statement_itself_is_no_line():
    with line_profile(quiet=True) as results:
        x = 1
        del x
    ((first, second),) = results.lines.values()
    assert second == first + 1


def test_through_an_exit_stack():
    with contextlib.ExitStack() as stack:
        results = stack.enter_context(line_profile(quiet=True))
        call()
    assert sum(s.gpu_calls for lines in results.lines.values() for s in lines.values()) == 1


def test_as_a_decorator(capsys):
    @line_profile()
    def work():
        call()
        return 5

    assert [work(), work()] == [5, 5]
    assert capsys.readouterr().out.count("call()") == 2


def test_only_what_was_asked_for_is_shown(run, tmp_path):
    def other():
        return 1

    def wanted():
        call()
        return other()

    with line_profile(wanted, quiet=True) as results:
        wanted()
        other()
    ((first, second),) = results.lines.values()
    assert second == first + 1


def test_modules_and_folders(tmp_path, monkeypatch):
    (tmp_path / "pack").mkdir()
    (tmp_path / "pack" / "one.py").write_text("def f():\n    return 1\n")
    (tmp_path / "two.py").write_text("def g():\n    return 2\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.syspath_prepend(tmp_path / "pack")
    for name in ("one", "two"):  # there are none before, nor afterwards
        monkeypatch.setitem(sys.modules, name, None)
        del sys.modules[name]
    import one
    import two

    for wanted, names in ((one, {"one"}), (tmp_path, {"one", "two"}), (tmp_path / "pack", {"one"})):
        with line_profile(wanted, quiet=True) as results:
            one.f()
            two.g()
        assert {Path(file).stem for file in results.lines} == names


def test_functions_that_are_equal_are_told_apart_by_their_file(tmp_path):
    source = "def f():\n    return 1\n"
    functions = []
    for name in ("one.py", "two.py"):
        (tmp_path / name).write_text(source)
        space = {}
        exec(compile(source, str(tmp_path / name), "exec"), space)
        functions.append(space["f"])
    one, two = functions
    assert one.__code__ == two.__code__
    with line_profile(tmp_path, quiet=True) as results:
        one()
        two()
    assert {Path(file).name for file in results.lines} == {"one.py", "two.py"}


def test_string_with_source_in_the_line_cache(monkeypatch):
    source = "x = 1\ny = 2\n"
    monkeypatch.setitem(
        linecache.cache, "<string>", (len(source), None, ["x = 1\n", "y = 2\n"], "")
    )
    with line_profile("<string>", quiet=True) as results:
        exec(compile(source, "<string>", "exec"), {})
    assert [*results.lines["<string>"]] == [1, 2]
    assert "y = 2" in str(results)


def test_generated_code_is_not_taken_for_the_string(monkeypatch):
    """`collections.namedtuple` and `dataclasses` call their code ``"<string>"``, too."""
    source = (
        "import collections, dataclasses\n"
        "Pair = collections.namedtuple('Pair', 'a b')\n"
        "@dataclasses.dataclass\n"
        "class D:\n"
        "    a: int = 1\n"
        "def f():\n"
        "    return Pair(1, 2), D()\n"
        "f()\n"
        "g = lambda: 1\n"
        "g()\n"
    )
    entry = (len(source), None, source.splitlines(keepends=True), "<string>")
    monkeypatch.setitem(linecache.cache, "<string>", entry)
    with line_profile("<string>", quiet=True) as results:
        exec(compile(source, "<string>", "exec", dont_inherit=True), {"__name__": "__main__"})
    hits = {number: stats.hits for number, stats in results.lines["<string>"].items()}
    for line in (3, 4, 5):  # what becomes of a class differs from Python to Python
        del hits[line]
    assert hits == {1: 1, 2: 1, 6: 1, 7: 1, 8: 1, 9: 2, 10: 1}


def test_nothing_is_watched_after_the_block(way):
    with line_profile(quiet=True):
        pass
    clock, steps = _session.clock, _session.clock.steps()
    for _ in range(10):
        call()
    assert clock.steps() == steps
    if way == "monitoring":
        assert sys.monitoring.get_tool(sys.monitoring.PROFILER_ID) is None


def test_another_tracer_is_told_of_and_put_back(monkeypatch):
    monkeypatch.delattr(sys, "monitoring", raising=False)

    def tracer(frame, event, arg):
        return None

    before = sys.gettrace()
    sys.settrace(tracer)
    try:
        with pytest.warns(RuntimeWarning, match="debugger"), line_profile(quiet=True):
            pass
        assert sys.gettrace() is tracer
    finally:
        sys.settrace(before)


def test_another_tool_keeps_its_number(way):
    if way == "tracing":
        return  # has no numbers
    names = [sys.monitoring.PROFILER_ID, 3, 4]
    clock = Clock()
    try:
        for tool in names:
            assert isinstance(hooks.hooks_for(clock, _session.watched), hooks.Monitoring)
            sys.monitoring.use_tool_id(tool, "other")
        assert isinstance(hooks.hooks_for(clock, _session.watched), hooks.Tracing)
    finally:
        for tool in names:
            sys.monitoring.free_tool_id(tool)


# The report


def test_what_it_costs_is_said():
    with line_profile(quiet=True) as results:
        for _ in range(2000):
            pass
    assert results.steps >= 2000
    assert 0 < results.cost < 10e-6 * results.steps
    assert f"Watching {results.steps} lines took about " in str(results)


def test_report_of_known_figures(run, tmp_path, monkeypatch):
    done = run("x = 1\n# a remark\ny = 2\nz = 3\n" + "# more\n" * 20)
    results = done.results
    path = str(tmp_path / "script.py")
    results.lines = {
        path: {
            1: LineStats(1, 0.5, 0.25, 1, 1, {"A.fit: why": 1, "B.fit: both": 3}),
            3: LineStats(12, 0.0012, 0.0, 0, 1),
            4: LineStats(1, 1e-6),
        }
    }
    results.wall_time, results.gpu_time, results.steps, results.cost = 1.0, 0.25, 14, 14e-6
    assert (
        str(results)
        == f"""\
{path}: 3 lines executed
 Line     Hits      Time   GPU    Source
    1        1     500ms   50%  ! x = 1
    2                             # a remark
    3       12     1.2ms    0%    y = 2
    4        1       1µs          z = 3
    ⋮

! Ran in scikit-learn:
  line 1
    - A.fit: why
    - B.fit: both (3x)

1s in all, 25% of it on the GPU.
Watching 14 lines took about 14µs of that, 1µs a line."""
    )


def test_report_of_nothing(tmp_path):
    with line_profile(tmp_path, quiet=True) as results:
        pass
    assert str(results).startswith("No line was executed that is watched.")
    assert "No line" in results._repr_html_()


@pytest.mark.parametrize(
    ("executed", "n_lines", "shown"),
    [
        ([1, 2], 2, [1, 2]),
        ([2, 4], 6, [1, 2, 3, 4, 5, 6]),
        ([20, 22, 40], 60, [None, 20, 21, 22, None, 40, None]),
        ([7], 7, [None, 7]),
    ],
)
def test_long_stretches_without_executed_lines_are_left_out(executed, n_lines, shown):
    assert list(_shown(dict.fromkeys(executed), n_lines)) == shown


class _Terminal(io.StringIO):
    def isatty(self):
        return True


def test_report_is_coloured_on_a_terminal_only(run, monkeypatch):
    results = run("call(None, 0.1, 'why')\n").results
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)

    def shown(file):
        show(results, file)
        return file.getvalue()

    assert "\033[33;1m!\033[0m" in shown(_Terminal())
    assert shown(io.StringIO()) == f"{results}\n"
    assert "\033[" not in str(results)
    monkeypatch.setenv("NO_COLOR", "1")
    assert shown(_Terminal()) == f"{results}\n"
    monkeypatch.delenv("NO_COLOR")
    monkeypatch.setenv("TERM", "dumb")
    assert shown(_Terminal()) == f"{results}\n"


def test_html_shows_the_source_and_the_reason(run):
    done = run("x = '<b>' if 1 < 2 else None\ncall(None, 0.1, 'X is <sparse>')\n")

    class Text(HTMLParser):
        text = ""
        depth = 0

        def handle_starttag(self, tag, attrs):
            self.depth += 1

        def handle_endtag(self, tag):
            self.depth -= 1

        def handle_data(self, data):
            self.text += data

    parser = Text()
    parser.feed(done.results._repr_html_())
    assert parser.depth == 0
    assert "x = '<b>' if 1 < 2 else None" in parser.text
    assert "A.fit: X is <sparse>" in parser.text


def test_lines_of_a_statement_belong_to_its_first():
    source = """\
with open(
    "a"
) as f, open("b"):
    x = [
        1,
    ]
match x:
    case [
        1
    ]:
        pass
@decorated(
    1
)
def f(
    a,
):
    return a
if (
    x): y = 1
"""
    assert statements(source) == {2: 1, 3: 1, 5: 4, 6: 4, 16: 15, 17: 15}
    assert statements("this is no Python") == {}


_SCRIPT = """
import sys
from engine import AcceleratedLine
from accelsk.profiling.lines import line_profile
with line_profile():
    line = AcceleratedLine(forbidden=True)
    line.fit([[1.0], [2.0]], [1.0, 2.0])
    sys.exit(3)
"""


def test_script_that_exits_is_reported_on(tmp_path):
    path = tmp_path / "script.py"
    path.write_text(_SCRIPT)
    paths = os.pathsep.join([str(ROOT), str(ROOT / "tests")])
    done = subprocess.run(
        [sys.executable, path],
        env={**os.environ, "PYTHONPATH": paths},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert (done.returncode, done.stderr) == (3, "")
    assert "!     line.fit([[1.0], [2.0]], [1.0, 2.0])" in done.stdout
    assert "- Line.fit: forbidden=True" in done.stdout
    assert "\033[" not in done.stdout
