"""Transformations that the candidates of a search have in common are made once for each fold.

A pipeline that is searched over the hyperparameters of its last step fits the steps before it anew
for each candidate, with the same result. Here the outcome of such a call is kept for the length
of the search, by the engine, the hyperparameters and the identity of the rows; what it gives out
is `Resident` in turn, so that the step after it is recognised, too.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from accelsk.config import current
from accelsk.data import describe
from accelsk.device import probe
from accelsk.device.resident import Resident, Session, Source
from accelsk.engines.base import Call, Engine, Outcome

__all__ = ["run"]

#: Of the device's memory, what may be kept.
_SHARE = 8


class _Open(Exception):  # noqa: N818 - not an error: such a call has no key
    pass


def run(engine: Engine, call: Call, model: Any) -> Outcome:
    """Run `call`, unless a search has run it before with the same data and hyperparameters.

    Parameters
    ----------
    engine : Engine
    call : Call
    model : object
        As in `Engine.run`.
    """
    X = call.X.value
    if not isinstance(X, Resident) or call.on_host or not _transforms(engine, call):
        return engine.run(call, model)
    session = X.source.session
    if not session.repeats:
        return engine.run(call, model)
    try:
        key = (engine, call.method, _model_key(session, model), *_frozen_call(call))
    except _Open:
        return engine.run(call, model)
    kept = session.look_up(key)
    if kept is None:
        kept = _first(session, key, engine, call, model)
    return replace(kept, attributes={n: _copied(v) for n, v in kept.attributes.items()})


def _transforms(engine: Engine, call: Call) -> bool:
    if call.method == "fit":  # the first half of a ``fit_transform`` of scikit-learn's
        return "transform" in engine.methods and "fit_transform" not in engine.methods
    return call.method in ("fit_transform", "transform")


def _model_key(session: Session, model: Any) -> Any:
    """Return what stands for a fitted model: only models that are kept will come again."""
    if model is None:
        return None
    if session.look_up(("model", id(model))) is not model:
        raise _Open
    return id(model)


def _frozen_call(call: Call) -> list[Any]:
    arguments = [(name, _rows_or_frozen(value)) for name, value in call.arguments.items()]
    return [_frozen(call.parameters), tuple(arguments)]


def _rows_or_frozen(value: Any) -> Any:
    return (value.source, value.rows) if isinstance(value, Resident) else _frozen(value)


def _frozen(value: Any) -> Any:
    """Return what two equal values have in common, and can be looked up by."""
    if value is None or isinstance(value, (str, bool, int, float, np.number)):
        return type(value), value
    if isinstance(value, (tuple, list)):
        return type(value), tuple(map(_frozen, value))
    if isinstance(value, dict):
        return tuple((name, _frozen(item)) for name, item in sorted(value.items()))
    if isinstance(value, type):
        return value
    raise _Open


def _first(session: Session, key: tuple, engine: Engine, call: Call, model: Any) -> Outcome:
    """Run the call and keep its outcome, where it is the same each time and there is room."""
    before = _drawn()
    outcome = engine.run(call, model)
    if not _same(before, _drawn()):
        return outcome
    kept, n_bytes = outcome, 0
    if outcome.result is not None:
        given = describe(outcome.result)
        if given.kind != "cupy" or len(given.shape) != 2:
            return outcome
        n_bytes = outcome.result.nbytes
        kept = replace(outcome, result=Resident(Source(given, session)))
    gpu = probe.gpu()
    limit = current().device_memory_limit or (None if gpu is None else gpu.memory)
    if not session.keep(key, kept, n_bytes, None if limit is None else limit // _SHARE):
        return outcome
    if call.fits:
        session.keep(("model", id(outcome.model)), outcome.model)
    return kept


def _drawn() -> dict[str, Any]:
    state: dict[str, Any] = np.random.mtrand._rand.get_state(legacy=False)
    return state["state"]


def _same(one: dict[str, Any], other: dict[str, Any]) -> bool:
    return one["pos"] == other["pos"] and np.array_equal(one["key"], other["key"])


def _copied(value: Any) -> Any:
    return value.copy() if isinstance(value, np.ndarray) else value
