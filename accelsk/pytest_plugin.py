"""A pytest plugin that runs a test suite with scikit-learn patched.

::

    pytest -p accelsk.pytest_plugin --accelsk-xfail-list differences.yaml

Naming the plugin with ``-p`` (on the command line, in ``addopts``) or in ``PYTEST_PLUGINS`` turns
it on, and ``--no-accelsk`` off for a run. A conftest that has it among its ``pytest_plugins``
brings the options only, for ``--accelsk`` to turn it on. The header of the report says which it is.

The list is YAML (with PyYAML installed) or JSON: a sequence of mappings with

- ``id``, a test or a list of tests: the id that pytest prints, or its end
  (``linear_model/tests/test_ridge.py::test_name[parameters]``); dots may stand for the slashes
  (``sklearn.linear_model.tests.test_ridge::test_name``); without ``[...]``, all parameters;
- ``reason``, why it is expected to fail;
- ``strict``, whether passing is a failure (by default it is);
- ``condition``, versions that it holds for, such as ``scikit-learn>=1.8`` or a list of those;
- ``device``, the setting that it holds for: ``gpu`` for what differs only where ``device="gpu"``
  sends calls to a GPU that is there.

The run fails if an entry matches no test of the files that are collected.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import importlib.util
import json
import os
import platform
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

__all__ = ["Difference", "read_list"]

_KEYS = {"id", "reason", "strict", "condition", "device"}
_DIFFERENCES = pytest.StashKey[list["Difference"]]()
_UNMATCHED = pytest.StashKey[list[str]]()


@dataclass
class Difference:
    """A test that is expected to fail.

    Attributes
    ----------
    id : str
        With slashes.
    reason : str
    strict : bool
    """

    id: str
    reason: str = ""
    strict: bool = True
    matches: int = field(default=0, compare=False)

    @property
    def file(self) -> str:
        """The part of the id before the first ``::``."""
        return self.id.partition("::")[0]

    def is_of(self, test: str) -> bool:
        """Whether it means the test of this file and name."""
        plain = test if "[" in self.id else test.partition("[")[0]
        return plain == self.id or plain.endswith(f"/{self.id}")


def read_list(path: Path) -> list[Difference]:
    """Return the entries of a list whose conditions hold.

    Parameters
    ----------
    path : Path

    Returns
    -------
    differences : list of Difference

    Raises
    ------
    pytest.UsageError
        If it is not a list as the module describes it.
    """
    try:
        entries = _parse(path)
        if not isinstance(entries or [], list):
            raise ValueError("it is no list")
        return [difference for entry in entries or [] for difference in _differences(entry)]
    except (OSError, ValueError, TypeError) as error:
        raise pytest.UsageError(f"{path}: {error}") from error


def _parse(path: Path) -> Any:
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".json":
        return json.loads(text)
    try:
        import yaml
    except ImportError:
        raise ValueError("YAML needs PyYAML (pip install pyyaml); JSON does not") from None
    try:
        return yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ValueError(str(error)) from error


def _differences(entry: Any) -> Iterator[Difference]:
    if not isinstance(entry, dict) or "id" not in entry or not entry.keys() <= _KEYS:
        raise ValueError(f"an entry has an id, and of {sorted(_KEYS)} what it needs: {entry!r}")
    conditions = [_holds(condition) for condition in _listed(entry.get("condition", []))]
    if all(conditions) and _is_used(entry.get("device")):
        for test in _listed(entry["id"]):
            yield Difference(
                _with_slashes(str(test)),
                str(entry.get("reason", "")),
                bool(entry.get("strict", True)),
            )


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _with_slashes(test: str) -> str:
    file, separator, rest = test.partition("::")
    if "/" not in file and not file.endswith(".py"):
        file = file.replace(".", "/") + ".py"
    return file + separator + rest


def _holds(condition: Any) -> bool:
    from packaging.requirements import InvalidRequirement, Requirement

    try:
        requirement = Requirement(str(condition))
    except InvalidRequirement as error:
        raise ValueError(f"condition {condition!r}: {error}") from None
    if requirement.name == "python":
        version = platform.python_version()
    else:
        try:
            version = importlib.metadata.version(requirement.name)
        except importlib.metadata.PackageNotFoundError:
            return False
    return requirement.specifier.contains(version, prereleases=True)


def _is_used(device: Any) -> bool:
    """Whether calls run on `device`; None is any."""
    from accelsk.config import Config, current
    from accelsk.device import probe

    if device is None:
        return True
    Config(device=device)  # an error where it is none
    return current().device == device and (device != "gpu" or probe.unusable() is None)


# Hooks


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options of the plugin."""
    group = parser.getgroup("accelsk", "scikit-learn on the GPU")
    group.addoption(
        "--accelsk",
        action=argparse.BooleanOptionalAction,
        help="run with scikit-learn patched (the default where -p names the plugin), or not",
    )
    group.addoption(
        "--accelsk-xfail-list",
        type=Path,
        metavar="FILE",
        help="tests that are expected to fail when patched (YAML or JSON)",
    )


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests(early_config: pytest.Config) -> None:
    """Patch before any module of the suite is imported."""
    _patch(early_config.known_args_namespace)


def pytest_configure(config: pytest.Config) -> None:
    """Patch, where a conftest has brought the plugin; read the list."""
    _patch(config.option)
    path = config.option.accelsk_xfail_list
    if config.option.accelsk and path is not None:
        config.stash[_DIFFERENCES] = read_list(config.invocation_params.dir / path)
    config.stash[_UNMATCHED] = []


def _patch(options: Any) -> None:
    if options.accelsk is None:
        named = [*(options.plugins or ()), *os.environ.get("PYTEST_PLUGINS", "").split(",")]
        options.accelsk = __name__ in named
    if options.accelsk:
        from accelsk.patching import is_patched, patch

        if not is_patched():
            patch()


def pytest_unconfigure(config: pytest.Config) -> None:
    """Take the patch back: a program may go on after `pytest.main`."""
    if config.option.accelsk:
        from accelsk.patching import unpatch

        unpatch()


def pytest_report_header(config: pytest.Config) -> str:
    """Say whether scikit-learn is patched and the GPU is used."""
    if not config.option.accelsk:
        return "accelsk: scikit-learn is not patched; --accelsk does that"
    import accelsk
    from accelsk.device import probe

    reason = probe.unusable()
    use = "the GPU is used" if reason is None else f"no GPU is used: {reason}"
    return f"accelsk: {accelsk.__version__}, scikit-learn is patched, {use}"


@pytest.hookimpl(tryfirst=True)  # before tests are deselected
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark the tests that are listed."""
    differences = config.stash.get(_DIFFERENCES, [])
    by_file: dict[str, list[Difference]] = {}
    for difference in differences:
        by_file.setdefault(Path(difference.file).name, []).append(difference)
    for item in items:
        for difference in by_file.get(item.path.name, ()):
            # pytest leaves the file out of the id where it is outside of the root folder
            name = item.nodeid.partition("::")[2]
            if difference.is_of(f"{item.path.as_posix()}::{name}"):
                difference.matches += 1
                item.add_marker(
                    pytest.mark.xfail(reason=difference.reason, strict=difference.strict)
                )
                item.user_properties.append(("accelsk", difference.reason))
    collected = {item.path.as_posix() for item in items}
    config.stash[_UNMATCHED] += [
        difference.id
        for difference in differences
        if not difference.matches and _is_expected(difference.file, collected, config)
    ]


def _is_expected(file: str, collected: Iterable[str], config: pytest.Config) -> bool:
    """Whether all tests of `file` are among the collected ones, if there are any."""
    chosen = [argument for argument in config.args if "::" in argument]
    if any(_ends_alike(argument.partition("::")[0], file) for argument in chosen):
        return False  # some tests of it were named
    if any(_ends_alike(other, file) for other in collected):
        return True
    # a file that is not there: it should be, unless only others were asked for
    return any(_may_hold(argument, file, config) for argument in config.args)


def _may_hold(argument: str, file: str, config: pytest.Config) -> bool:
    """Whether an argument may stand for `file`: not where it is a file, or a package beside it."""
    path = argument.partition("::")[0]
    if path.endswith(".py"):
        return False
    if not config.option.pyargs or "/" in path:
        return True
    try:
        spec = importlib.util.find_spec(path)
    except (ImportError, ValueError):
        spec = None
    if spec is None:
        return True
    top = path.partition(".")[0]
    beside = file.startswith(f"{top}/") and not file.startswith(f"{path.replace('.', '/')}/")
    return spec.submodule_search_locations is not None and not beside


def _ends_alike(path: str, file: str) -> bool:
    return path == file or path.endswith(f"/{file}")


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """Fail where entries match nothing; a worker of xdist tells its controller."""
    unmatched = session.config.stash[_UNMATCHED]
    output = getattr(session.config, "workeroutput", None)
    if output is not None:
        output["accelsk_unmatched"] = unmatched
    elif unmatched and exitstatus in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Take over what a worker of xdist has found."""
    known = node.config.stash[_UNMATCHED]
    found = getattr(node, "workeroutput", {}).get("accelsk_unmatched", [])
    known += [test for test in found if test not in known]


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """Name the entries that match nothing."""
    unmatched = config.stash[_UNMATCHED]
    if unmatched:
        terminalreporter.section("accelsk: entries that match no test", red=True, bold=True)
        for test in unmatched:
            terminalreporter.line(f"{config.option.accelsk_xfail_list}: {test}")
