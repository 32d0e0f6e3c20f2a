"""A profile has the calls of worker processes, however and whenever they were started."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import subprocess
import sys
import textwrap
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from engine import AcceleratedLine
from joblib import Parallel, delayed
from joblib.externals.loky import get_reusable_executor
from sklearn.model_selection import cross_val_score

import accelsk
from accelsk.profiling import events, workers
from accelsk.profiling.lines import line_profile

ROOT = Path(__file__).parent.parent


@pytest.fixture
def a_folder_of_its_own(monkeypatch, tmp_path):
    """Have folders of profiles where no other process looks, and none left at the end."""
    folder = tmp_path / "profiles"
    monkeypatch.setattr(workers, "_folder", lambda: str(folder))
    yield folder
    assert not folder.exists()


@pytest.fixture
def real_folder():
    """Have them where worker processes look, and none left at the end."""
    yield
    assert str(os.getpid()) not in _pids_with_folders()


def _pids_with_folders():
    try:
        return [name.partition("-")[0] for name in os.listdir(workers._folder())]
    except OSError:
        return []


@pytest.fixture
def no_workers_left():
    yield
    get_reusable_executor().shutdown(wait=True)


def _fit(seed):
    X = np.random.default_rng(seed).normal(size=(20, 3))
    AcceleratedLine(forbidden=seed == 0).fit(X, X.sum(axis=1)).predict(X)
    return os.getpid()


def _checked(results, pids, n_fits):
    """Check that the profile has `n_fits` fits in the processes named, one of them fallen back."""
    stats = results.method_calls["Line.fit"]
    assert (stats.gpu_calls, stats.cpu_calls) == (n_fits - 1, 1)
    assert stats.fallback_reasons == {"forbidden=True"}
    assert stats.worker_calls == n_fits
    assert {process.pid for process in results.workers} == set(pids)
    assert results.own_calls == {}
    by_process = [calls["Line.fit"] for calls in results.workers.values() if "Line.fit" in calls]
    assert sum(s.gpu_calls + s.cpu_calls for s in by_process) == n_fits
    assert f"{2 * n_fits} calls ran in {len(set(pids))} worker process" in str(results)


@pytest.mark.parametrize("started_before", [False, True])
def test_joblib_workers_are_seen(started_before, real_folder, no_workers_left):
    if started_before:
        Parallel(n_jobs=2)(delayed(_fit)(seed) for seed in range(1, 3))
    with accelsk.profile(quiet=True) as results:
        pids = Parallel(n_jobs=2)(delayed(_fit)(seed) for seed in range(6))
    _checked(results, pids, 6)
    assert all("Loky" in process.name for process in results.workers)


def test_workers_report_nothing_when_no_profile_is_active(real_folder, no_workers_left):
    Parallel(n_jobs=2)(delayed(_fit)(seed) for seed in range(4))
    with accelsk.profile(quiet=True) as results:
        pass
    assert results.method_calls == {}


def test_cross_validation_in_processes_is_seen(data, real_folder, no_workers_left):
    with accelsk.profile(quiet=True) as results:
        cross_val_score(AcceleratedLine(), *data, cv=4, n_jobs=2)
    assert results.method_calls["Line.fit"].worker_calls == 4


_FORK = pytest.mark.filterwarnings("ignore:.*use of fork:DeprecationWarning")


@pytest.mark.parametrize(
    "method", ["spawn", pytest.param("fork", marks=_FORK), pytest.param("forkserver", marks=_FORK)]
)
@pytest.mark.parametrize("started_before", [False, True])
def test_processes_of_multiprocessing_are_seen(method, started_before, real_folder):
    context = multiprocessing.get_context(method)
    if started_before:
        with context.Pool(2) as pool, accelsk.profile(quiet=True) as results:
            pids = pool.map(_fit, range(4))
    else:
        with accelsk.profile(quiet=True) as results, context.Pool(2) as pool:
            pids = pool.map(_fit, range(4))
    _checked(results, pids, 4)


def _fit_in_a_process_of_its_own(seed):
    process = multiprocessing.get_context("spawn").Process(target=_fit, args=(seed,))
    process.start()
    process.join()
    return process.pid


def test_a_worker_of_a_worker_is_seen(real_folder):
    spawn = multiprocessing.get_context("spawn")
    # the processes of a `multiprocessing.Pool` may not have children
    with accelsk.profile(quiet=True) as results, ProcessPoolExecutor(1, spawn) as pool:
        pid = pool.submit(_fit_in_a_process_of_its_own, 0).result()
    assert {process.pid for process in results.workers} == {pid}


@_FORK
def test_calls_of_a_worker_that_is_killed_are_there(real_folder):
    def work():
        _fit(0)
        os.kill(os.getpid(), signal.SIGKILL)

    process = multiprocessing.get_context("fork").Process(target=work)
    with accelsk.profile(quiet=True) as results:
        process.start()
        process.join()
    _checked(results, [process.pid], 1)


@_FORK
def test_a_forked_worker_with_a_profile_of_its_own_tells_both(real_folder):
    def work(pipe):
        with accelsk.profile(quiet=True) as own:
            _fit(0)
        pipe.send([*own.method_calls])

    ours, theirs = multiprocessing.Pipe()
    process = multiprocessing.get_context("fork").Process(target=work, args=(theirs,))
    with accelsk.profile(quiet=True) as results:
        process.start()
        assert ours.recv() == ["Line.fit", "Line.predict"]
        process.join()
    assert results.method_calls["Line.fit"].worker_calls == 1


@_FORK
def test_nested_profiles_each_have_the_calls_of_their_own_block(real_folder):
    def run(seed):
        process = multiprocessing.get_context("fork").Process(target=_fit, args=(seed,))
        process.start()
        process.join()

    with accelsk.profile(quiet=True) as outer:
        run(1)
        with accelsk.profile(quiet=True) as inner:
            run(2)
        run(3)
    assert outer.method_calls["Line.fit"].worker_calls == 3
    assert inner.method_calls["Line.fit"].worker_calls == 1


@_FORK
def test_line_profile_counts_calls_of_workers_apart(real_folder):
    process = multiprocessing.get_context("fork").Process(target=_fit, args=(0,))
    with line_profile(quiet=True) as results:
        process.start()
        process.join()
    assert results.in_workers.cpu_calls == 1
    assert "2 calls in worker processes are part of no line" in str(results)


def test_trace_and_dict_tell_processes_apart(real_folder, no_workers_left, tmp_path):
    with accelsk.profile(quiet=True) as results:
        _fit(1)
        pids = Parallel(n_jobs=2)(delayed(_fit)(seed) for seed in range(4))
    here, *others = results.to_dict()["processes"]
    assert here["pid"] == os.getpid()
    assert [*here["functions"]] == ["Line.fit", "Line.predict"]
    assert {process["pid"] for process in others} == set(pids)
    results.save_trace(tmp_path / "trace.json")
    slices = [
        event
        for event in json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
        if event["ph"] == "X"
    ]
    assert {event["pid"] for event in slices} == {os.getpid(), *pids}
    # the clocks agree
    assert all(0 <= event["ts"] <= results.wall_time * 1e6 for event in slices)


# What is left, and who may write


def test_a_folder_is_there_only_while_a_profile_is_active(a_folder_of_its_own):
    with accelsk.profile(quiet=True):
        (folder,) = a_folder_of_its_own.iterdir()
        assert folder.name == workers._key(os.getpid())
        assert folder.stat().st_mode & 0o777 == 0o700
        with accelsk.profile(quiet=True):
            pass
        assert folder.exists()
    assert not folder.exists()


def test_what_a_killed_process_has_left_is_removed(a_folder_of_its_own):
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    for name in (f"{gone.pid}-5", f"{os.getppid()}-5"):  # the second pid is in use again
        (a_folder_of_its_own / name).mkdir(parents=True)
        (a_folder_of_its_own / name / "1.jsonl").write_text("{}")
    a_folder_of_its_own.chmod(0o700)
    living = a_folder_of_its_own / workers._key(os.getppid())
    living.mkdir()
    with accelsk.profile(quiet=True):
        names = {path.name for path in a_folder_of_its_own.iterdir()}
    assert names == {living.name, workers._key(os.getpid())}
    living.rmdir()
    a_folder_of_its_own.rmdir()


def test_a_folder_that_others_can_write_to_is_not_used(a_folder_of_its_own, monkeypatch, data):
    a_folder_of_its_own.mkdir()
    a_folder_of_its_own.chmod(0o777)
    with accelsk.profile(quiet=True) as results:
        AcceleratedLine().fit(*data)
    assert results.method_calls["Line.fit"].gpu_calls == 1
    assert list(a_folder_of_its_own.iterdir()) == []
    # nor by a worker
    spool = a_folder_of_its_own / "1-1"
    spool.mkdir()
    monkeypatch.setattr(events, "_upstream", (str(spool),))
    AcceleratedLine().fit(*data)
    assert list(spool.iterdir()) == []
    spool.rmdir()
    a_folder_of_its_own.rmdir()


def test_a_profile_works_where_no_folder_can_be_made(monkeypatch, data):
    monkeypatch.setattr(workers, "_folder", lambda: "/proc/nothing")
    with accelsk.profile(quiet=True) as results:
        AcceleratedLine().fit(*data)
    assert results.method_calls["Line.fit"].gpu_calls == 1


def test_half_a_line_waits_for_its_other_half(a_folder_of_its_own):
    spool = workers.Spool()
    spool.open()
    file = a_folder_of_its_own / workers._key(os.getpid()) / "7.jsonl"
    line = json.dumps(["Worker-1", {"start": 1.0}])
    file.write_text(line + "\n" + line[:10])
    assert spool.take() == [(workers.Process(7, "Worker-1"), {"start": 1.0})]
    assert spool.take() == []
    with file.open("a") as half:
        half.write(line[10:] + "\n")
    assert len(spool.take()) == 1
    with file.open("a") as broken:  # by a disk that was full in between
        broken.write(line[:10] + line + "\n" + line + "\n")
    assert len(spool.take()) == 1
    spool.close()


def test_a_worker_is_heard_only_while_an_ancestor_has_a_profile(tmp_path, monkeypatch):
    monkeypatch.setattr(events, "_upstream", (str(tmp_path / "1-1"),))
    assert not events.heard()
    (tmp_path / "1-1").mkdir()
    assert events.heard()


def test_looking_for_a_profile_costs_a_worker_microseconds(monkeypatch):
    monkeypatch.setattr(events, "_upstream", ("/dev/shm/accelsk-profiles-none/1-1",))
    event = events.Event("A.fit", None, 0.1)

    def many(n):
        start = time.perf_counter()
        for _ in range(n):
            events.report(event)
        return (time.perf_counter() - start) / n

    assert min(many(300) for _ in range(5)) < 10e-6


_FROM_A_SHELL = """
from accelsk.profiling import events
from accelsk.profiling.events import Event, report
report(Event("A.fit", None, 0.1))
print(events._upstream)
"""


def test_a_process_without_python_above_it_looks_for_nothing():
    """Here the test's own process is above it; so it is left out by name."""
    script = textwrap.dedent(_FROM_A_SHELL)
    code = (
        f"import accelsk.profiling.workers as w; w._ancestors = lambda: iter(()); exec({script!r})"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    assert done.stdout == "()\n"


def test_ancestors_are_those_that_run_this_python():
    code = "from accelsk.profiling.workers import _ancestors; print(*_ancestors())"
    through_a_shell = f"{sys.executable} -c '{code}'; true"
    done = subprocess.run(
        ["sh", "-c", through_a_shell],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    assert done.stdout.split()[0] == str(os.getpid())


@_FORK
def test_a_forked_process_may_leave_the_block(real_folder):
    def leaves_as_it_should():
        try:
            with context:
                pid = os.fork()
                if pid == 0:
                    _fit(0)
            if pid:
                return os.waitpid(pid, 0)[1] == 0
            os._exit(len(events._listeners))
        finally:
            if os.getpid() != parent:
                os._exit(99)

    context, parent = accelsk.profile(quiet=True), os.getpid()
    assert leaves_as_it_should()
    with accelsk.profile(quiet=True):
        pass


_PROGRAM = """
from joblib import Parallel, delayed
from sklearn.linear_model import Ridge
Parallel(n_jobs=2)(delayed(Ridge().fit)([[0.0], [1.0]], [0.0, 1.0]) for _ in range(4))
print("done")
"""


def test_command_line_reports_the_calls_of_workers(tmp_path):
    (tmp_path / "program.py").write_text(_PROGRAM)
    done = subprocess.run(
        [sys.executable, "-m", "accelsk", "--profile", "--line-profile", "program.py"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT), "ACCELSK_DEVICE": "cpu"},
        capture_output=True,
        text=True,
        timeout=180,
    )
    assert (done.returncode, done.stdout) == (0, "done\n")
    assert "4 calls ran in" in done.stderr
    assert "4 calls in worker processes are part of no line" in done.stderr
    assert 'print("done")' in done.stderr
