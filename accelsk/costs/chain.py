"""Where calls end sooner that hand each other their results: a run of steps of a pipeline."""

from __future__ import annotations

from collections.abc import Sequence
from math import comb
from numbers import Integral
from typing import Any

from accelsk.costs import startup
from accelsk.costs.decision import Expected, call_name, expected, name_of

__all__ = ["weigh_chain"]


def weigh_chain(calls: Sequence[tuple[Any, str]], X: Any) -> Expected | None:
    """Return where calls are sooner as a whole, given that what goes from one to the next stays.

    Start-up is left out, so it is for methods that have run on the device in this process.

    Parameters
    ----------
    calls : sequence of (Accelerated, str)
        Estimators and their methods, in order.
    X : array-like
        What the first one gets, on the host.

    Returns
    -------
    expected : Expected or None
        What all of them take together. None where something is not known, or has not run yet.
    """
    shape: tuple[int, ...] = getattr(X, "shape", ())
    dtype = getattr(X, "dtype", float)
    if len(shape) != 2:
        return None
    rows, columns = shape
    cpu = gpu = 0.0
    engine = ""
    for place, (estimator, method) in enumerate(calls):
        here = _expected(estimator, method, rows, columns, dtype, resident=False)
        there = here if place == 0 else _expected(estimator, method, rows, columns, dtype)
        if here is None or there is None:
            return None
        cpu, gpu = cpu + here.cpu, gpu + there.gpu
        engine = engine or there.engine
        columns = _columns_after(estimator, columns)
    return Expected(rows, shape[1], engine, cpu, gpu, on_cpu=cpu <= gpu)


def _expected(
    estimator: Any, method: str, rows: int, columns: int, dtype: Any, *, resident: bool = True
) -> Expected | None:
    """Return what a call takes, or its halves together where only those are known."""
    found = expected(estimator, method, rows, columns, dtype=dtype, resident=resident)
    if found is not None:
        name = name_of(type(estimator)._accelsk_class) or ""
        ready = startup.compiled(call_name(name, method), found.engine)
        return found if ready else None
    if method != "fit_transform":
        return None
    halves = [
        _expected(estimator, half, rows, columns, dtype, resident=resident or half == "transform")
        for half in ("fit", "transform")
    ]
    if halves[0] is None or halves[1] is None:
        return None
    return halves[0]._replace(cpu=halves[0].cpu + halves[1].cpu, gpu=halves[0].gpu + halves[1].gpu)


def _columns_after(estimator: Any, columns: int) -> int:
    """Return how many columns an estimator is likely to make of `columns`."""
    n_components = getattr(estimator, "n_components", None)
    if isinstance(n_components, Integral):
        return int(n_components)
    degree = getattr(estimator, "degree", None)
    if hasattr(estimator, "include_bias") and isinstance(degree, Integral):
        return comb(columns + int(degree), int(degree))
    return columns
