"""Loading and compiling ahead of the first call: ``python -m accelsk warmup``."""

from __future__ import annotations

import argparse
import logging
import sys
from collections.abc import Callable, Sequence
from time import perf_counter
from typing import Any

from accelsk.costs import samples, startup
from accelsk.costs.decision import name_of
from accelsk.costs.work import ALIASES
from accelsk.device import probe
from accelsk.dispatch import Method, method_of, plan

__all__ = ["compile_kernels", "main", "use_device"]

logger = logging.getLogger("accelsk")

#: Data as small as every class takes.
_ROWS, _COLUMNS = 200, 8


def use_device() -> None:
    """Have the CUDA context and the handles of the libraries behind CuPy made."""
    import cupy

    X = cupy.eye(8)
    cupy.linalg.eigh(X @ X)
    cupy.cuda.Device().synchronize()


def compile_kernels(
    classes: Sequence[Any], *, stop: Callable[[], bool] = lambda: False
) -> dict[str, str]:
    """Run the methods of accelerated classes once, on small data made for the purpose.

    No event is reported, no warning given, no global random state touched.

    Parameters
    ----------
    classes : sequence of type
    stop : callable
        Asked between two calls whether to leave the rest.

    Returns
    -------
    failures : dict
        What did not run, and why.
    """
    failures: dict[str, str] = {}
    for cls in classes:
        names = [name for engine in cls._accelsk_engines for name in engine.methods]
        names = sorted({ALIASES.get(n, n) for n in names}, key=lambda n: not n.startswith("fit"))
        data = samples.sample(cls, _ROWS, _COLUMNS)
        model = samples.new(cls)
        for name in names:
            if stop():
                return failures
            if not hasattr(model, name) or (method := method_of(cls, name)) is None:
                continue
            try:
                _run(model, method, data)
            except Exception as error:
                failures[method.qualname] = f"{type(error).__name__}: {error}"
    return failures


def _run(model: Any, method: Method, data: samples.Sample) -> None:
    given = samples.arguments(model, method.name, data)
    if given is None:
        return
    if not method.name.startswith("fit") and not hasattr(model, "n_features_in_"):
        super(type(model), model).fit(**(samples.arguments(model, "fit", data) or {}))
    chosen = plan(model, method, (), given, assume_usable=True)
    if chosen.engine is None or chosen.call is None:
        return
    anew = method.name.startswith("fit")
    outcome = chosen.engine.run(chosen.call, None if anew else model._accelsk_model(chosen.engine))
    if anew:
        model._accelsk_adopt(chosen.engine, outcome.model, outcome.attributes)
    startup.mark(chosen.engine.name, f"{name_of(type(model))}.{method.name}")


def main(argv: Sequence[str] | None = None) -> int:
    """Run ``python -m accelsk warmup`` with the arguments `argv`; return the exit status.

    CuPy keeps what it compiles on disk, so that later processes find it there.
    """
    parser = argparse.ArgumentParser(
        "python -m accelsk warmup",
        description="Compile what the classes run on the GPU, for later processes to find.",
    )
    parser.parse_args(argv)
    from accelsk.registry import accelerated_classes
    from accelsk.runtime import install
    from accelsk.support import import_accelerated

    if (reason := probe.unusable()) is not None:
        print(f"There is nothing to warm up: {reason}", file=sys.stderr)
        return 1
    start = perf_counter()
    import_accelerated()
    install()
    classes = [cls for cls in accelerated_classes().values() if name_of(cls) is not None]
    failures = compile_kernels(classes)
    for call, reason in failures.items():
        logger.info("%s was not compiled: %s", call, reason)
    print(f"{len(classes)} classes are ready after {perf_counter() - start:.0f} s")
    return 0
