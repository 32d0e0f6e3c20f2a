"""Where a call is expected to finish sooner."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, NamedTuple

import numpy as np

from accelsk.costs import ledger, startup, store
from accelsk.costs.expectation import Expected
from accelsk.costs.model import CPU, Curve, Table
from accelsk.costs.work import ALIASES, WORK, Work, letters
from accelsk.device.resident import Resident
from accelsk.device.transfer import is_device_array
from accelsk.engines.base import Engine, fits
from accelsk.estimator import SLOT, DeviceState

__all__ = [
    "Expected",
    "call_name",
    "expected",
    "is_known_to_be_sooner",
    "jobs",
    "name_of",
    "ran",
    "weigh",
]

#: Fitted state that is on the host this soon is worth having there, for the calls to come.
_CHEAP = 5e-3

#: What moving state is taken to cost where nobody has measured it.
_UNKNOWN = 1.0

#: Bytes that `accelsk.costs.machine.speeds` sends to the device and back.
_ROUND_TRIP = 2 * 2**24

#: Attributes of fitted models with a row for each row of the training data.
_ROWS = ("n_samples_fit_", "shape_fit_", "X_fit_", "support_", "_raw_data")


@functools.cache
def name_of(cls: type) -> str | None:
    """Return the name of a class of accelsk's own below the package, None for any other."""
    package, *modules = cls.__module__.split(".")
    if package != "accelsk":
        return None
    return ".".join([*(m for m in modules if not m.startswith("_")), cls.__name__])


class _Data(NamedTuple):
    """The data of a call: their size, bytes of an element over eight, and where they are."""

    rows: int
    columns: int
    width: float = 1.0
    here: bool = True
    there: bool = False


def _data(X: Any) -> _Data | None:
    shape = getattr(X, "shape", None)
    if shape is None:
        if not isinstance(X, (list, tuple)) or not X:
            return None
        return _Data(len(X), len(X[0]) if isinstance(X[0], (list, tuple)) else 1)
    if not shape:
        return None
    rows, columns = shape[0], shape[1] if len(shape) > 1 else 1
    if (stored := getattr(X, "nnz", None)) is not None:
        columns = -(-stored // max(rows, 1))
    width = 0.5 if getattr(X, "dtype", None) == np.float32 else 1.0
    if type(X) is np.ndarray:
        return _Data(rows, columns, width)
    if isinstance(X, Resident):
        if not (X.source.session.repeats or "on_device" in vars(X.source)):
            return _Data(rows, columns, width)  # it will go up when it is asked for
        return _Data(rows, columns, width, there=True)
    there = is_device_array(X)
    return _Data(rows, columns, width, here=not there, there=there)


def _fitted_rows(estimator: Any, state: Any) -> int | None:
    """Return how many rows a model was fitted on, where that is at hand."""
    if state is not None and getattr(state, "rows", None) is not None:
        return state.rows
    own = vars(estimator)
    for name in _ROWS:
        if (value := own.get(name)) is not None:
            if isinstance(value, int):
                return value
            return value[0] if name == "shape_fit_" else np.shape(value)[0]
    return None


def _download(table: Table, data: _Data) -> float:
    if data.here:
        return 0.0
    n_bytes = 8 * data.width * data.rows * data.columns
    return n_bytes * table.speed.get("gpu bus", 0.0) / _ROUND_TRIP


#: The work of a class that is not in the table.
_ANY = Work()


class _Model:
    """What the coefficients say of one method of one estimator, given its data."""

    def __init__(
        self, name: str, method: str, estimator: Any, data: _Data, trained: int | None
    ) -> None:
        self.name = name
        self.table = store.table()
        self.places = self.table.of(name, method)
        if self.places is None:
            return
        self.data = data
        self.estimator = estimator
        self.work = WORK.get(name) or _ANY
        self.sizes = letters(
            self.work,
            estimator,
            data.rows,
            data.columns,
            width=data.width,
            moves=not data.there,
            fitted=trained,
        )

    def cpu(self) -> float:
        assert self.places is not None
        sizes = self.sizes
        if self.work.parallel and (faster := jobs(self.work, self.estimator)) > 1:
            sizes = {**sizes, "t": sizes["t"] / faster, "j": 1.0}
        seconds = self.places[CPU].seconds(sizes, narrow=self.data.width < 1)
        return seconds + _download(self.table, self.data)

    def gpu(self, curve: Curve) -> float:
        return curve.seconds(self.sizes, narrow=self.data.width < 1)

    def state(self, step: str, engine: str) -> float:
        curve = self.table.state(self.name, step, engine)
        return _UNKNOWN if curve is None else curve.seconds(self.sizes)


def weigh(
    estimator: Any,
    owner: type,
    method: str,
    data: Any,
    engines: Sequence[Engine],
) -> Expected | None:
    """Return where a call is expected to finish sooner; None where there is nothing to go by.

    Takes microseconds and looks at types and shapes only.

    Parameters
    ----------
    estimator : Accelerated
    owner : type
        The accelerated class.
    method : str
    data : array-like or None
        What the method works on. None is the data of the fit.
    engines : sequence of Engine
        Those that might run the call.
    """
    name = name_of(owner)
    if name is None:
        return None
    anew = fits(method) and method != "partial_fit"
    state = None
    if not anew:
        state = estimator.__dict__.get(SLOT) or DeviceState.restored.get(id(estimator))
    trained = None if anew else _fitted_rows(estimator, state)
    given = _data(data)
    if given is None:
        columns = getattr(estimator, "n_features_in_", None)
        if data is not None or trained is None or columns is None:
            return None
        given = _Data(trained, columns)
    model = _Model(name, method, estimator, given, trained)
    if model.places is None:
        return None
    call = call_name(name, method)
    best: tuple[float, float, str] | None = None
    for engine in engines:
        curve = model.places.get(engine.name)
        if curve is None:
            continue
        once = _readiness(model.table, curve, call, engine.name, there=given.there)
        if (state is None or state.moved) and not fits(method):
            once += model.state("restore", engine.name)
        found = model.gpu(curve), once, engine.name
        if best is None or found[0] + found[1] < best[0] + best[1]:
            best = found
    if best is None:
        return None
    cpu_once = 0.0
    if state is not None and not state.fetched:
        cpu_once = model.state("fetch", state.engine.name)
        cpu_once = 0.0 if cpu_once < _CHEAP else cpu_once
    gpu, gpu_once, engine_name = best
    estimate = Expected(
        given.rows, given.columns, engine_name, model.cpu(), gpu, cpu_once, gpu_once
    )
    on_cpu = _better_on_cpu(estimate, estimator, call)
    if on_cpu and estimate.cpu <= gpu and not cpu_once and type(data) is np.ndarray:
        _remember(model, owner, method, data)
    return estimate._replace(on_cpu=on_cpu)


#: So many calls are remembered; a program that makes more kinds of them has them weighed.
_MOST_REMEMBERED = 1_000


def _key(work: Work, owner: type, method: str, X: np.ndarray, estimator: Any) -> tuple:
    names = work.parameters
    if not names:
        return owner, method, X.shape, X.dtype
    own = estimator.__dict__
    return owner, method, X.shape, X.dtype, *[own.get(name) for name in names]


def _remember(model: _Model, owner: type, method: str, X: np.ndarray) -> None:
    if model.work.by_training_rows(method):
        return
    known = model.table.sooner_on_cpu
    if len(known) >= _MOST_REMEMBERED:
        known.clear()
    with suppress(TypeError):  # a hyperparameter that has no hash
        known.add(_key(model.work, owner, method, X, model.estimator))


def is_known_to_be_sooner(estimator: Any, owner: type, method: str, X: np.ndarray) -> bool:
    """Whether `weigh` has said of such a call that the CPU is sooner, and always will be.

    For calls that take so little time that weighing them again would be felt.
    """
    known = store.table().sooner_on_cpu
    if not known:
        return False
    try:
        return _key(_work(owner), owner, method, X, estimator) in known
    except TypeError:
        return False


@functools.cache
def _work(owner: type) -> Work:
    return WORK.get(name_of(owner) or "") or _ANY


def call_name(name: str, method: str) -> str:
    """Return the name under which it is on record that a method has run."""
    return f"{name}.{ALIASES.get(method, method)}"


def _readiness(table: Table, curve: Curve, call: str, engine: str, *, there: bool) -> float:
    """Return what the first use of an engine, or of a method on it, still costs."""
    seconds = 0.0 if startup.compiled(call, engine) else curve.first
    if startup.loads(engine) and not (there and startup.family(engine) == "cupy"):
        seconds += startup.remaining(table.load.get(startup.family(engine), _UNKNOWN))
    return seconds


def jobs(work: Work, estimator: Any) -> float:
    """Return how many times faster ``n_jobs`` makes it in scikit-learn."""
    jobs = getattr(estimator, "n_jobs", None) if work.parallel else None
    if not isinstance(jobs, int) or jobs == 0:
        return 1.0
    from accelsk.costs.machine import cores

    return max(1.0, 0.7 * min(jobs if jobs > 0 else cores() + 1 + jobs, cores()))


def _better_on_cpu(estimate: Expected, estimator: Any, call: str) -> bool:
    gain = estimate.gpu - estimate.cpu  # of the CPU, in the long run
    if gain >= 0:
        once = estimate.cpu_once
        now = estimate.cpu + once <= estimate.gpu + estimate.gpu_once
        return now or ledger.models.lost(estimator) + gain >= once
    once = estimate.gpu_once
    now = estimate.gpu + once < estimate.cpu + estimate.cpu_once
    lost = ledger.process.lost(_waiting(estimate, call)) + ledger.models.lost(estimator)
    return not (now or lost - gain >= once)


def _waiting(estimate: Expected, call: str) -> str:
    """Return what the call would have to wait for."""
    return startup.family(estimate.engine) if startup.loads(estimate.engine) else call


def ran(
    estimator: Any, owner: type, method: str, estimate: Expected | None, engine: Engine | None
) -> None:
    """Have on record where a call ran, and what it lost by that for the sake of later ones.

    Parameters
    ----------
    estimator : Accelerated
    owner : type
        The accelerated class.
    method : str
    estimate : Expected or None
    engine : Engine or None
        None means scikit-learn.
    """
    if fits(method):
        ledger.models.settle(estimator)
    call = call_name(name_of(owner) or "", method)
    if estimate is not None:
        gain = estimate.gpu - estimate.cpu
        if estimate.on_cpu and gain < 0:
            waiting = _waiting(estimate, call)
            ledger.process.add(waiting, -gain)
            if startup.compiled(call, estimate.engine):
                ledger.models.add(estimator, -gain)
        elif not estimate.on_cpu and gain > 0:
            ledger.models.add(estimator, gain)
    if engine is not None and not startup.compiled(call, engine.name):
        startup.mark(engine.name, call)
        if name_of(owner) is not None:
            store.adapt()


def expected(
    estimator: Any,
    method: str,
    rows: int,
    columns: int,
    *,
    dtype: Any = np.float64,
    resident: bool = False,
    fitted: int | None = None,
) -> Expected | None:
    """Return what a call would take, by the size of its data alone.

    Start-up and moving the fitted state are left out: it is for those who weigh many calls.

    Parameters
    ----------
    estimator : Accelerated
    method : str
    rows, columns : int
    dtype : dtype, default=float64
    resident : bool, default=False
        Whether the data are on the device and the result stays there. The CPU then has to have
        them sent.
    fitted : int, default=None
        The rows that the model was fitted on, where that is not the same number.

    Returns
    -------
    expected : Expected or None
        None for a class, or a method, of which nothing is known.
    """
    owner = type(estimator)._accelsk_class
    width = 0.5 if np.dtype(dtype) == np.float32 else 1.0
    data = _Data(rows, columns, width, here=not resident, there=resident)
    model = _Model(name_of(owner) or "", method, estimator, data, fitted)
    if model.places is None:
        return None
    engines = [e.name for e in owner._accelsk_engines if e.name in model.places]
    if not engines:
        return None
    cpu = model.cpu()
    gpu, engine = min((model.gpu(model.places[e]), e) for e in engines)
    return Expected(rows, columns, engine, cpu, gpu, on_cpu=cpu <= gpu)
