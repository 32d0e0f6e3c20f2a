"""The command line, in real processes: programs run as `python` runs them."""

from __future__ import annotations

import os
import pty
import py_compile
import re
import select
import signal
import subprocess
import sys
import time
import zipfile
from pathlib import Path

import pytest

from accelsk.__main__ import _split

ROOT = Path(__file__).parent.parent
OURS = ("-m", "accelsk")


def _environment(**changes):
    kept = {k: v for k, v in os.environ.items() if not k.startswith("ACCELSK")}
    return {**kept, "PYTHONPATH": str(ROOT), "CUDA_VISIBLE_DEVICES": "", **changes}


def _run(*arguments, input=None, cwd=None, **environment):
    done = subprocess.run(
        [sys.executable, *map(str, arguments)],
        input=input,
        cwd=cwd,
        env=_environment(**environment),
        capture_output=True,
        text=True,
        timeout=300,
    )
    error = re.sub(r"repeated \d+ more times", "repeated", done.stderr)
    return done.returncode, done.stdout, _without_notice(error)


def _without_notice(text):
    """Return what is on standard error beside the notice that there is no GPU."""
    return "".join(line for line in text.splitlines(True) if "No GPU is used" not in line)


def _as_python_does(*arguments, **options):
    """Run a program with `python` and with accelsk; it has to come to the same."""
    expected = _run(*arguments, **options)
    found = _run(*OURS, *arguments, **options)
    assert found == expected
    return found


SURROUNDINGS = """
import sys
print(__name__, sys.argv, sys.path[0], sys.modules["__main__"].__dict__ is globals())
print(sorted(name for name in globals()), __spec__ and __spec__.name, type(__loader__).__name__)
print(globals().get("__file__"), __package__, __doc__, __builtins__)
"""


# Ways to name a program


@pytest.fixture
def script(tmp_path):
    path = tmp_path / "somewhere" / "script.py"
    path.parent.mkdir()
    path.write_text('"""What it is."""\n' + SURROUNDINGS)
    return path


def test_script(script, tmp_path):
    _as_python_does(script, "a", "-b", "--profile")
    _as_python_does("somewhere/script.py", "-v", cwd=tmp_path)


def test_script_through_a_link(script, tmp_path):
    link = tmp_path / "link.py"
    link.symlink_to(script)
    _as_python_does(link)


def test_module(script):
    _as_python_does("-m", "script", "a", "-b", cwd=script.parent)
    _as_python_does("-mscript", cwd=script.parent)


def test_package(tmp_path):
    package = tmp_path / "package"
    package.mkdir()
    (package / "__init__.py").write_text("print('imported')")
    (package / "__main__.py").write_text(SURROUNDINGS)
    _as_python_does("-m", "package", "a", cwd=tmp_path)


@pytest.mark.parametrize("kind", ["folder", "archive"])
def test_folder_and_archive(tmp_path, kind):
    if kind == "folder":
        path = tmp_path / "folder"
        path.mkdir()
        (path / "__main__.py").write_text(SURROUNDINGS)
    else:
        path = tmp_path / "archive.zip"
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("__main__.py", SURROUNDINGS)
    _as_python_does(path, "a")


def test_source():
    _as_python_does("-c", SURROUNDINGS, "a", "-b")
    _as_python_does("-cimport sys; print(sys.argv)")


def test_standard_input(tmp_path):
    _as_python_does("-", "a", "-b", input=SURROUNDINGS, cwd=tmp_path)
    _as_python_does(input=SURROUNDINGS, cwd=tmp_path)


def test_program_may_read_the_rest_of_its_surroundings(script):
    _as_python_does("-c", "import sys; print(sys.stdin.read())", input="text")
    _as_python_does("-c", "import threading, atexit; atexit.register(print, 'end')")


@pytest.mark.parametrize(
    "path",
    [
        "",
        "empty",
        "./folder",
        "folder/",
        "./archive.zip",
        "./show.py",
        ".//show.py",
        "empty/../show.py",
        "compiled.pyc",
        "föld er/ünï çödé.py",
    ],
)
def test_path_is_shown_as_it_was_given(path, tmp_path):
    source = SURROUNDINGS + "1 / 0\n"
    for folder in ("empty", "folder", "föld er"):
        (tmp_path / folder).mkdir()
    for name in ("show.py", "folder/__main__.py", "föld er/ünï çödé.py"):
        (tmp_path / name).write_text(source)
    with zipfile.ZipFile(tmp_path / "archive.zip", "w") as archive:
        archive.writestr("__main__.py", source)
    py_compile.compile(str(tmp_path / "show.py"), str(tmp_path / "compiled.pyc"))
    _as_python_does(path, "ärg", "", input="print('not this')", cwd=tmp_path)


def test_path_is_left_alone_where_python_leaves_it(script):
    _as_python_does(script, PYTHONSAFEPATH="1")


def test_scikit_learn_is_patched():
    code = "from sklearn.linear_model import Ridge; print(Ridge.__module__)"
    assert _run(*OURS, "-c", code) == (0, "accelsk.linear_model\n", "")


# Errors and exits


@pytest.mark.parametrize(
    "code",
    [
        "1 / 0",
        "def f():\n    raise ValueError('no')\ntry:\n    f()\nexcept ValueError:\n    1 / 0",
        "import json\njson.loads('{')",
        "f(",
        "raise SystemExit",
        "raise SystemExit(None)",
        "raise SystemExit(3)",
        "raise SystemExit(-1)",
        "raise SystemExit([1, 2])",
        "raise ExceptionGroup('group', [ValueError(1), TypeError(2)])",
        "class Own(BaseException): pass\nraise Own('of its own')",
        "import os, signal; os.kill(os.getpid(), signal.SIGTERM)",
        "import asyncio\nasync def main():\n    raise ValueError(3)\nasyncio.run(main())",
        "import warnings; warnings.warn('of a line')",
        "raise SystemExit('a message')",
        "import sys; sys.exit(256 + 5)",
        "import os; os._exit(4)",
        "import sys; sys.excepthook = lambda *a: print('hook', a[0].__name__); 1 / 0",
        "import sys; sys.stdout.close()",
        "raise KeyboardInterrupt",
        "def f(n):\n    return f(n + 1)\nf(0)",
        "import threading\nthreading.Thread(target=lambda: 1 / 0, name='t').start()",
    ],
)
def test_errors_and_exits(code, tmp_path):
    path = tmp_path / "script.py"
    path.write_text(code)
    _as_python_does(path)
    if code in ("1 / 0", "raise SystemExit(3)", "raise KeyboardInterrupt"):
        _as_python_does("-c", code)
        _as_python_does("-", input=code)
        _as_python_does("-m", "script", cwd=tmp_path)


@pytest.mark.parametrize(
    "arguments", [["no_such_script.py"], ["-m", "no_such_module"], ["-m", "os.path.nothing"]]
)
def test_missing_programs(arguments, tmp_path):
    _as_python_does(*arguments, cwd=tmp_path)


@pytest.mark.parametrize("option", ["-c", "-m"])
def test_missing_arguments(option):
    status, _, error = _run(*OURS, option)
    assert (status, "argument expected" in error) == (2, True)


def test_errors_of_scikit_learn_show_no_frame_of_accelsk(tmp_path):
    path = tmp_path / "script.py"
    path.write_text(
        """
from sklearn.linear_model import Ridge
def work():
    Ridge(alpha=-1).fit([[0]], [0])
work()
"""
    )
    status, _, error = _run(*OURS, path)
    files = [Path(name) for name in re.findall(r'File "([^"]+)"', error)]
    assert status == 1
    assert [file.name for file in files[:2]] == ["script.py"] * 2
    assert all("sklearn" in file.parts for file in files[2:])
    assert "InvalidParameterError" in error
    in_full = _run(*OURS, "-vv", path)[2]
    assert "dispatch.py" in in_full


def test_own_errors_are_shown_in_full():
    code = "import accelsk; accelsk.config_context(device='tpu').__enter__()"
    status, _, error = _run(*OURS, "-c", code)
    assert status == 1
    assert "config.py" in error


@pytest.mark.parametrize("program", [OURS, ()])
def test_interrupt_ends_as_python_ends(tmp_path, program):
    path = tmp_path / "script.py"
    path.write_text(
        """
import atexit, time
atexit.register(print, "end")
print("ready", flush=True)
time.sleep(60)
"""
    )
    process = subprocess.Popen(
        [sys.executable, *program, str(path)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=_environment(),
        text=True,
    )
    assert process.stdout.readline() == "ready\n"
    process.send_signal(signal.SIGINT)
    out, error = process.communicate(timeout=60)
    assert process.returncode == -signal.SIGINT  # 130 in a shell
    assert out == "end\n"
    files = re.findall(r'File "([^"]+)"', error)
    assert files == [str(path)]
    assert error.rstrip().endswith("KeyboardInterrupt")


def test_interrupted_program_is_profiled_as_far_as_it_came(tmp_path):
    path = tmp_path / "script.py"
    path.write_text(
        FIT + "import os, signal\nos.kill(os.getpid(), signal.SIGINT)\nwhile True: pass"
    )
    for option in ("--profile", "--line-profile"):
        status, out, error = _run(*OURS, option, path)
        assert (status, out) == (-signal.SIGINT, "done\n")
        assert "Ridge" in error.partition("Traceback")[0]
        assert error.rstrip().endswith("KeyboardInterrupt")


def test_program_may_handle_an_interrupt_itself(tmp_path):
    path = tmp_path / "script.py"
    path.write_text(
        """
import os, signal, time
for handler in (signal.getsignal(signal.SIGINT), lambda *_: print("handled")):
    signal.signal(signal.SIGINT, handler)
    try:
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(0.1)
    except KeyboardInterrupt as error:
        print("caught", repr(error))
"""
    )
    assert _as_python_does(path)[:2] == (0, "caught KeyboardInterrupt()\nhandled\n")


def test_interrupt_ends_so_whatever_other_threads_run():
    code = """
import threading, time
def work():
    for _ in range(20):
        exec("1")
        time.sleep(0.05)
threading.Thread(target=work).start()
raise KeyboardInterrupt
"""
    assert _run(*OURS, "-c", code)[0] == -signal.SIGINT


def test_interrupt_is_130_in_a_shell():
    command = f"'{sys.executable}' -m accelsk -c 'raise KeyboardInterrupt'; echo $?"
    done = subprocess.run(
        ["bash", "-c", command], capture_output=True, text=True, env=_environment(), timeout=60
    )
    assert done.stdout == "130\n"


def test_closed_pipe_is_as_with_python():
    code = "print('x\\n' * 1_000_000)"
    errors = []
    for program in ("", "-m accelsk"):
        command = f"'{sys.executable}' {program} -c \"{code}\" | head -1; echo ${{PIPESTATUS[0]}}"
        done = subprocess.run(
            ["bash", "-c", command], capture_output=True, text=True, env=_environment(), timeout=60
        )
        errors.append((done.stdout, _without_notice(done.stderr)))
    assert errors[0] == errors[1]


# Child processes find the program


@pytest.mark.parametrize("by", ["script", "module"])
def test_classes_of_the_program_reach_worker_processes(by, tmp_path):
    path = tmp_path / "program.py"
    path.write_text(
        """
import multiprocessing, pickle
from joblib import Parallel, delayed

class Mine:
    def __init__(self, value):
        self.value = value

def work(mine):
    return Mine(mine.value + 1)

if __name__ == "__main__":
    assert type(pickle.loads(pickle.dumps(Mine(1)))) is Mine
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        results = pool.map(work, [Mine(1)])
    results += Parallel(n_jobs=2)(delayed(work)(Mine(i)) for i in range(2))
    print([(type(r) is Mine, r.value) for r in results])
"""
    )
    program = [path] if by == "script" else ["-m", "program"]
    status, out, error = _run(*OURS, *program, cwd=tmp_path)
    assert (status, out) == (0, "[(True, 2), (True, 1), (True, 2)]\n"), error


# Options

FIT = """
from sklearn.linear_model import Ridge
Ridge().fit([[0.0], [1.0]], [0.0, 1.0])
print("done")
"""


def test_silent_by_default():
    assert _run(*OURS, "-c", FIT) == (0, "done\n", "")


def test_verbose_names_calls():
    for option in ("-v", "--verbose"):
        status, out, error = _run(*OURS, option, "-c", FIT)
        assert (status, out) == (0, "done\n")
        assert "Ridge.fit ran in scikit-learn" in error


def test_very_verbose_tells_reasons_and_times():
    error = _run(*OURS, "-vv", "-c", FIT)[2]
    assert re.search(r"Ridge.fit took [\d.e-]+ s: .", error)
    assert _run(*OURS, "-v", "-v", "-c", FIT)[2].count("\n") == error.count("\n")


def test_profile_is_printed_at_the_end_on_standard_error(tmp_path):
    status, out, error = _run(*OURS, "--profile", "-c", FIT + "1 / 0")
    assert (status, out) == (1, "done\n")
    assert "Ridge.fit" in error
    assert error.index("Ridge.fit") < error.index("ZeroDivisionError")
    for ending in ("raise SystemExit(3)", ""):
        status, _, error = _run(*OURS, "--profile", "-c", FIT + ending)
        assert status == (3 if ending else 0)
        assert "Ridge.fit" in error


def test_line_profile(tmp_path):
    path = tmp_path / "script.py"
    path.write_text(FIT)
    status, out, error = _run(*OURS, "--line-profile", path)
    assert status == 0
    assert "Ridge().fit" in out + error


def test_device_holds_in_child_processes():
    code = """
import accelsk, os, subprocess, sys, threading
print(accelsk.get_config()["device"], os.environ["ACCELSK_DEVICE"])
thread = threading.Thread(target=lambda: print(accelsk.get_config()["device"]))
thread.start(); thread.join()
"""
    assert _run(*OURS, "--device", "cpu", "-c", code)[:2] == (0, "cpu cpu\ncpu\n")
    assert _run(*OURS, "--device=gpu", "-c", code)[:2] == (0, "gpu gpu\ngpu\n")
    assert _run(*OURS, "--device", "tpu", "-c", code)[0] == 2


def test_managed_memory_can_be_left_off():
    code = "import os; print(os.environ['ACCELSK_DISABLE_UVM'])"
    assert _run(*OURS, "--disable-uvm", "-c", code)[1] == "1\n"
    assert _run(*OURS, "-c", code)[1] == "0\n"


@pytest.mark.parametrize(
    ("argv", "program"),
    [
        ([], []),
        (["-v"], []),
        (["script.py", "-v"], ["script.py", "-v"]),
        (["-v", "-m", "module", "-v"], ["-m", "module", "-v"]),
        (["--device", "gpu", "-c", "pass"], ["-c", "pass"]),
        (["--device=gpu", "-"], ["-"]),
        (["--profile", "info"], ["info"]),
        (["--", "-strange.py"], ["-strange.py"]),
    ],
)
def test_options_end_where_the_program_begins(argv, program):
    assert _split(argv)[1] == program


def test_unknown_options_are_errors():
    status, _, error = _run(*OURS, "--nonsense", "script.py")
    assert (status, "--nonsense" in error) == (2, True)


def test_help_and_version():
    status, out, _ = _run(*OURS, "--help")
    assert status == 0
    assert {"--profile", "--device", "info", "support", "tune", "warmup"} <= set(
        re.findall(r"[\w-]+", out)
    )
    assert _run(*OURS, "--version")[1].startswith("accelsk 0.")


# Commands


@pytest.mark.parametrize("command", ["info", "support", "tune", "warmup"])
def test_commands_have_help(command):
    status, out, _ = _run(*OURS, command, "--help")
    assert status == 0
    assert command in out


def test_script_named_like_a_command_runs_by_its_path(tmp_path):
    (tmp_path / "info").write_text("print('a script')")
    assert _run(*OURS, "./info", cwd=tmp_path)[1] == "a script\n"
    assert "scikit-learn" in _run(*OURS, "info", cwd=tmp_path)[1]


# The prompt


def _in_terminal(arguments, lines, **environment):
    """Type lines at a prompt; return the exit status and all that was shown."""
    pid, terminal = pty.fork()
    if pid == 0:
        os.environ.clear()
        os.environ.update(_environment(TERM="dumb", **environment))
        os.execv(sys.executable, [sys.executable, *arguments])
    shown = b""

    def read_until(text, seconds=60):
        nonlocal shown
        start, end = len(shown), time.monotonic() + seconds
        while text not in shown[start:] and time.monotonic() < end:
            if select.select([terminal], [], [], 0.2)[0]:
                try:
                    shown += os.read(terminal, 4096)
                except OSError:
                    return

    read_until(b">>> ")
    for line in lines:
        time.sleep(0.5)  # the prompt is there before the terminal is ready for it
        os.write(terminal, line if isinstance(line, bytes) else line.encode() + b"\n")
        read_until(b"\r\x00" if line == lines[-1] else b">>> ", 20)
    _, status = os.waitpid(pid, 0)
    os.close(terminal)
    return os.waitstatus_to_exitcode(status), shown.decode().replace("\r\n", "\n")


def test_prompt_is_that_of_python():
    lines = [
        "from sklearn.linear_model import Ridge",
        "Ridge.__module__",
        "import sys; sys.argv, sys.path[0], __name__",
        "1 / 0",
        "_",
        "exit(5)",
    ]
    status, shown = _in_terminal(OURS, lines)
    assert status == 5
    assert "scikit-learn is patched" in shown
    assert "'accelsk.linear_model'" in shown
    assert "([''], '', '__main__')" in shown
    assert 'File "<console>"' in shown or 'File "<stdin>"' in shown
    assert "accelsk/runner.py" not in shown


def test_prompt_ends_with_the_input():
    status, shown = _in_terminal(OURS, ["1 + 1", b"\x04"])
    assert status == 0
    assert "2\n" in shown


def test_prompt_survives_an_interrupt():
    status, shown = _in_terminal(OURS, ["import time", b"time.slee\x03", "2 + 3", "exit()"])
    assert status == 0
    assert "KeyboardInterrupt" in shown
    assert "5\n" in shown


def test_prompt_completes_names():
    status, shown = _in_terminal(OURS, ["a_long_name = 42", b"a_long\t\n", "exit()"])
    assert status == 0
    assert "42\n" in shown


def test_prompt_runs_what_python_runs_first(tmp_path):
    path = tmp_path / "startup.py"
    path.write_text("from_startup = 17\n")
    status, shown = _in_terminal(OURS, ["from_startup + 1", "exit()"], PYTHONSTARTUP=str(path))
    assert status == 0
    assert "18\n" in shown


# The script that an installation makes


def test_installed_script(script, tmp_path):
    command = tmp_path / "bin" / "accelsk"
    command.parent.mkdir()
    command.write_text("import sys\nfrom accelsk.__main__ import main\nsys.exit(main())\n")
    assert _run(command, script, "a") == _run(script, "a")
    assert _run(command, "-c", "import sys; print(sys.path[0]); sys.exit(3)") == (3, "\n", "")
    assert _run(command, "--version")[0] == 0
