"""`info`: whether the GPU is used, and what would mend it where it is not.

Versions are read from what is installed, and the device is asked through its driver: no GPU
library is imported, unless ``check=True`` has that done in a process of its own.
"""

from __future__ import annotations

import contextlib
import difflib
import glob
import importlib.metadata
import json
import logging
import os
import platform
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import accelsk
from accelsk import patching, runtime, versions
from accelsk._arguments import check_flag
from accelsk.config import VARIABLES, chosen, fault_of
from accelsk.device import driver, probe

__all__ = ["Info", "Problem", "info"]

#: What calls need, by the name in `accelsk.versions.TESTED`: the names of its distributions.
_PACKAGES = {
    "cupy": ("cupy-cuda13x", "cupy-cuda12x", "cupy"),
    "cuml": ("cuml-cu13", "cuml-cu12", "cuml"),
    "rmm": ("rmm-cu13", "rmm-cu12", "rmm"),
    "scikit-learn": ("scikit-learn",),
    "umap-learn": ("umap-learn",),
    "hdbscan": ("hdbscan",),
}
_OPTIONAL = ("umap-learn", "hdbscan")
_VARIABLES = ("CUDA_VISIBLE_DEVICES", "CUDA_PATH", "CUDA_HOME", "LD_LIBRARY_PATH", "LD_PRELOAD")


@dataclass(frozen=True)
class Problem:
    """Something that is missing or broken.

    Attributes
    ----------
    text : str
    remedy : str
        The command that mends it.
    """

    text: str
    remedy: str


@dataclass
class Info:
    """What `info` has found.

    Attributes
    ----------
    usable : bool
        Whether a GPU is used.
    reason : str or None
        Why none is.
    facts : dict of str to str
        Versions and settings, as they are printed.
    problems : list of Problem
        What is missing or broken, also where a GPU is used.
    """

    usable: bool
    reason: str | None
    facts: dict[str, str] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)

    def __str__(self) -> str:
        width = max(map(len, self.facts))
        state = "A GPU is used." if self.usable else f"No GPU is used: {self.reason}."
        lines = [state, ""]
        lines += [f"{name:<{width}}  {value}".rstrip() for name, value in self.facts.items()]
        if self.problems:
            lines += ["", "What to do:"]
            for problem in self.problems:
                lines += [f"- {problem.text}", f"      {problem.remedy}"]
        return "\n".join(lines)


def info(check: bool = False) -> Info:
    """Print and return whether the GPU is used, and what would mend it where it is not.

    Parameters
    ----------
    check : bool, default=False
        Import CuPy and cuML, too, and run a call on the GPU, in a process of its own. This takes
        seconds, and finds what is installed but broken.

    Returns
    -------
    found : Info

    Examples
    --------
    >>> import contextlib, io
    >>> import accelsk
    >>> with contextlib.redirect_stdout(io.StringIO()):  # or let it print
    ...     found = accelsk.info()
    >>> found.facts["scikit-learn"]
    '1... (tested: 1.6 to 1.9)'
    """
    check_flag("check", check)
    with _unsaid():
        found = _found()
    if check:
        _check(found)
    print(found)
    return found


def _found() -> Info:
    """Return what there is to say without a call on the GPU."""
    reason = probe.unusable()
    if reason is None and chosen("ACCELSK_DEVICE", "auto") == "cpu":
        reason = "ACCELSK_DEVICE=cpu is set"
    found = Info(reason is None, reason)
    gpu = driver.describe()
    found.facts |= {
        "accelsk": f"{accelsk.__version__}, Python {platform.python_version()}",
        "GPU": gpu.device or "none found",
        "Driver": gpu.driver or "none found",
        "Managed memory": _managed_memory(gpu),
        **{name: _version(name) for name in _PACKAGES},
        "Patched": "yes" if patching.is_patched() else "no",
        "Environment": " ".join(_variables()) or "nothing that matters is set",
        "Costs": _costs(),
    }
    found.problems += _problems(gpu)
    return found


@contextlib.contextmanager
def _unsaid() -> Iterator[None]:
    """Keep out of the log what is about to be printed."""
    logger = logging.getLogger("accelsk")

    def nothing(_: logging.LogRecord) -> bool:
        return False

    logger.addFilter(nothing)
    try:
        yield
    finally:
        logger.removeFilter(nothing)


# Facts


def _installed(name: str) -> list[tuple[str, str]]:
    """Return the distributions that provide a package, with their versions."""
    found = []
    for distribution in _PACKAGES[name]:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            found.append((distribution, importlib.metadata.version(distribution)))
    return found


def _version(name: str) -> str:
    tested = " to ".join(dict.fromkeys(versions.TESTED.get(name, ())))
    note = f" (tested: {tested})" if tested else ""
    installed = _installed(name)
    if not installed:
        return f"not installed{' (optional)' if name in _OPTIONAL else ''}{note}"
    shown = (v if d == name else f"{v} [{d}]" for d, v in installed)
    return ", ".join(shown) + note


def _managed_memory(gpu: driver.Description) -> str:
    if runtime.uvm_is_off():
        return "off: ACCELSK_DISABLE_UVM is set"
    if gpu.managed is None:
        return "unknown without a GPU"
    if not gpu.managed:
        return "off: the platform lacks concurrent managed access (as WSL2 does)"
    return "on with accelsk.install() or on the command line; data may be larger than the GPU"


def _variables() -> list[str]:
    names = [*sorted(name for name in os.environ if name.startswith("ACCELSK_")), *_VARIABLES]
    return [f"{name}={os.environ[name]!r}" for name in names if name in os.environ]


def _costs() -> str:
    from accelsk.costs import store

    file = store.cache_file()
    if file.exists():
        return f"as measured on this machine: {file}"
    return "those that come with accelsk; `accelsk tune` measures this machine"


# Problems


def _problems(gpu: driver.Description) -> Iterator[Problem]:
    extra = "cuda13" if gpu.cuda is None or gpu.cuda[0] >= 13 else "cuda12"
    install = f"pip install 'accelsk[{extra}]'"
    if gpu.driver is None:
        yield Problem(
            "There is no NVIDIA driver in this system or container",
            "install one (https://www.nvidia.com/drivers); docker run --gpus all ...",
        )
    elif gpu.device is None:
        hidden = "CUDA_VISIBLE_DEVICES" in os.environ
        yield Problem(
            f"The driver sees no GPU: {gpu.error}",
            "unset CUDA_VISIBLE_DEVICES" if hidden else "nvidia-smi",
        )
    elif gpu.cuda is not None and gpu.cuda[0] < 12:
        yield Problem(
            f"The driver supports CUDA {gpu.cuda[0]}, cuML needs 12",
            "install a newer driver (https://www.nvidia.com/drivers)",
        )
    missing = [name for name in ("cupy", "cuml") if not _installed(name)]
    if missing:
        yield Problem(f"{' and '.join(missing)} not installed", install)
    yield from _doubled()
    for distribution, _ in _installed("cuml"):
        if distribution == "cuml-cu13" and gpu.cuda is not None and gpu.cuda[0] == 12:
            yield Problem(
                "The driver supports CUDA 12, the installed cuML needs 13",
                "pip uninstall -y cuml-cu13 cupy-cuda13x && pip install 'accelsk[cuda12]'",
            )
    yield from _misset()
    yield from _untested()
    yield from _unsatisfied()


def _misset() -> Iterator[Problem]:
    """Yield what is wrong with environment variables."""
    if chosen("ACCELSK_DEVICE", "auto") == "cpu":
        yield Problem("ACCELSK_DEVICE=cpu keeps every call in scikit-learn", "unset ACCELSK_DEVICE")
    for name in sorted(name for name in os.environ if name.startswith("ACCELSK_")):
        fault = None
        if name in VARIABLES:
            fault = fault_of(name)
        elif name == patching.ENVIRONMENT:
            fault = patching.fault_of_environment()
        else:
            similar = difflib.get_close_matches(name, (*VARIABLES, patching.ENVIRONMENT), 1)
            meant = f" (is {similar[0]} meant?)" if similar else ""
            fault = f"accelsk knows no environment variable {name}{meant}"
        if fault is not None:
            yield Problem(fault, f"unset {name}")


def _doubled() -> Iterator[Problem]:
    for name in ("cupy", "cuml"):
        installed = [distribution for distribution, _ in _installed(name)]
        if len(installed) > 1:
            yield Problem(
                f"{' and '.join(installed)} overwrite each other",
                f"pip uninstall -y {' '.join(installed)} && pip install {installed[0]}",
            )


def _untested() -> Iterator[Problem]:
    for name, (_, last) in versions.TESTED.items():
        for distribution, version in _installed(name):
            if not versions._tested(name, version):
                yield Problem(
                    f"{name} {version} is outside of what accelsk is tested with",
                    f"pip install '{distribution}=={last}.*'",
                )


def _unsatisfied() -> Iterator[Problem]:
    """Yield what the GPU packages need, and what is installed does not meet."""
    from packaging.requirements import Requirement

    said = set()
    for name in ("cupy", "cuml", "rmm"):
        for distribution, _ in _installed(name):
            for text in importlib.metadata.requires(distribution) or ():
                needed = Requirement(text)
                if needed.marker is not None and not needed.marker.evaluate({"extra": ""}):
                    continue
                try:
                    version = importlib.metadata.version(needed.name)
                except importlib.metadata.PackageNotFoundError:
                    continue  # conda has other names for some
                fits = needed.specifier.contains(version, prereleases=True)
                if not fits and needed.name not in said:
                    said.add(needed.name)
                    wanted = f"{needed.name}{needed.specifier}"
                    yield Problem(
                        f"{distribution} needs {wanted}, installed is {version}",
                        f"pip install '{wanted}'",
                    )


# Checking by a call

_CALL = """
import json, sys, time
import numpy, accelsk
from accelsk.engines.cuml import import_cuml
from accelsk.linear_model import Ridge
found = {}
X = numpy.random.default_rng(0).normal(size=(1000, 10))
start = time.perf_counter()
try:
    with accelsk.config_context(device="gpu", on_fallback="raise"):
        Ridge().fit(X, X[:, 0])
    found["seconds"] = time.perf_counter() - start
except Exception as error:
    found["call"] = f"{type(error).__name__}: {error}"
try:
    import_cuml()
except Exception as error:
    found["cuml"] = str(error)
print(json.dumps(found), file=sys.stderr)
"""


def _check(found: Info) -> None:
    """Run a call on the GPU in another process, and tell what comes of it."""
    if not found.usable:
        found.facts["Check"] = "left out: no GPU is used"
        return
    result = _run_call()
    if "seconds" in result:
        found.facts["Check"] = (
            f"Ridge.fit ran on the GPU ({result['seconds']:.1f} s, the first call)"
        )
    else:
        found.usable, found.reason = False, result["call"]
        found.facts["Check"] = f"failed: {result['call']}"
    said = " ".join(str(result.get(key, "")) for key in ("call", "cuml"))
    if "cuml" in result:
        found.facts["Check"] += f"; {result['cuml']}"
    if "nvJitLink" in said or "libcuml" in said:
        found.problems.append(_linker())
    elif said.strip():
        found.problems.append(Problem("A call on the GPU fails", "pip check"))


def _run_call() -> dict[str, Any]:
    surroundings = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
        "ACCELSK_ENABLED": "",
    }
    try:
        done = subprocess.run(
            [sys.executable, "-c", _CALL],
            env=surroundings,
            capture_output=True,
            text=True,
            timeout=300,
        )
        return json.loads(done.stderr.splitlines()[-1])
    except subprocess.TimeoutExpired:
        return {"call": "a call did not come back within 300 s"}
    except (IndexError, ValueError):
        last = done.stderr.strip().splitlines()[-1:] or [f"exit status {done.returncode}"]
        return {"call": f"the process that made it ended: {last[0]}"}


def _linker() -> Problem:
    """Return what to do where an older nvJitLink is loaded ahead of the one that cuML needs."""
    folders = [os.path.join(path, "nvidia", "*", "lib") for path in sys.path]
    folders += os.environ.get("LD_LIBRARY_PATH", "").split(os.pathsep)
    folders += ["/usr/local/cuda*/lib64"]
    copies = [f for path in folders if path for f in glob.glob(f"{path}/libnvJitLink.so.[0-9]*")]
    copies = list(dict.fromkeys(map(os.path.realpath, copies)))
    text = "cuML does not load: it needs a newer nvJitLink than the one that is loaded first"
    if len(copies) < 2:
        return Problem(text, "pip install -U nvidia-nvjitlink  # nvidia-nvjitlink-cu12 for CUDA 12")
    return Problem(f"{text} ({', '.join(copies)})", f"export LD_PRELOAD={copies[0]}")
