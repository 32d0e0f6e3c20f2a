"""Stories of what a user does with an estimator, drawn by hypothesis and told twice.

Data in every shape, dtype, layout and container, hyperparameters, and sequences of operations, some
of which make the engine refuse or fail or change the configuration. `tell` compares results,
errors with their texts and warnings after each step with scikit-learn's.
"""

from __future__ import annotations

import copy
import pickle
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from comparison import assert_same, fitted, outcome_of
from engine import engine_of
from hypothesis import currently_in_test_context, note
from hypothesis import strategies as st
from sklearn.base import clone

import accelsk
from accelsk import registry
from accelsk.exceptions import Refusal

try:
    import pandas as pd
except ImportError:
    pd = None
try:
    import polars as pl
except ImportError:
    pl = None

__all__ = ["CONTAINERS", "LABELS", "TARGETS", "Subject", "Table", "stories", "tables", "tell"]

# Data

_DTYPES = ["?", "i1", "u2", "i4", "i8", "u8", "f2", "f4", "f8", "g", ">f4", ">f8", ">i8"]


def _memmap(X):
    with tempfile.NamedTemporaryFile() as file:
        mapped = np.memmap(file.name, dtype=X.dtype, mode="w+", shape=X.shape)
    mapped[...] = X
    return mapped


def _read_only(X):
    X = X.copy()
    X.flags.writeable = False
    return X


def _names(X):
    return [f"c{i}" for i in range(X.shape[1])]


def _native(X):
    """Return X in the nearest dtype that frames have."""
    if X.dtype.kind == "f" and X.dtype.itemsize > 8:
        return X.astype(np.float64)
    return X.astype(X.dtype.newbyteorder("="))


CONTAINERS: dict[str, Callable[[np.ndarray], Any]] = {
    "C": np.ascontiguousarray,
    "F": np.asfortranarray,
    "strided rows": lambda X: np.repeat(X, 2, axis=0)[::2],
    "strided columns": lambda X: np.repeat(X, 3, axis=1)[:, ::3],
    "reversed": lambda X: X[::-1][:, ::-1],
    "read-only": _read_only,
    "memmap": _memmap,
    "list": lambda X: X.tolist(),
    "tuple of arrays": lambda X: tuple(X),
    "objects": lambda X: X.astype(object),
    "masked": np.ma.masked_array,
}
if pd is not None:
    CONTAINERS["pandas"] = lambda X: pd.DataFrame(_native(X), columns=_names(X))
    CONTAINERS["pandas unnamed"] = lambda X: pd.DataFrame(_native(X))
    CONTAINERS["pandas by column"] = lambda X: pd.DataFrame(
        {name: _native(X)[:, i] for i, name in enumerate(_names(X))}
    )
if pl is not None:
    CONTAINERS["polars"] = lambda X: pl.DataFrame(
        {name: np.ascontiguousarray(_native(X)[:, i]) for i, name in enumerate(_names(X))}
    )

LABELS: dict[str, Callable[[np.ndarray], Any]] = {
    "integers": lambda y: y,
    "floats": lambda y: y.astype(float),
    "negative": lambda y: -y,
    "small": lambda y: y.astype("i1"),
    "strings": lambda y: np.array(["no", "yes", "maybe"])[y],
    "objects": lambda y: np.array(["no", "yes", "maybe"], dtype=object)[y],
    "booleans": lambda y: y > 0,
    "list": lambda y: y.tolist(),
    "list of strings": lambda y: ["nay" if v else "yea" for v in y],
    "column": lambda y: y[:, None],
}
TARGETS: dict[str, Callable[[np.ndarray], Any]] = {
    "floats": lambda y: y,
    "float32": lambda y: y.astype("f4"),
    "integers": lambda y: (3 * y).astype(int),
    "list": lambda y: y.tolist(),
    "column": lambda y: y[:, None],
    "two columns": lambda y: np.c_[y, -y],
}
if pd is not None:
    LABELS["series"] = lambda y: pd.Series(y)
    LABELS["series of strings"] = lambda y: pd.Series(np.where(y > 0, "yea", "nay"))
    LABELS["categories"] = lambda y: pd.Series(y, dtype="category")
    LABELS["nullable"] = lambda y: pd.Series(y, dtype="Int64")
    TARGETS["series"] = lambda y: pd.Series(y)
    TARGETS["frame"] = lambda y: pd.DataFrame({"a": y, "b": 2 * y})


@dataclass
class Table:
    """Training data."""

    X: Any
    y: Any
    text: str
    exact: bool = True

    def __repr__(self) -> str:
        return self.text


@st.composite
def tables(draw: Any, targets: dict[str, Callable[[np.ndarray], Any]]) -> Table:
    """Draw rows, and what is to be learned of them."""
    rng = np.random.default_rng(draw(st.integers(0, 99)))
    n, d = draw(st.integers(8, 14)), draw(st.integers(2, 4))
    dtype = draw(st.sampled_from(_DTYPES))
    X = rng.normal(size=(n, d)) * 3
    X = X > 0 if dtype == "?" else (np.abs(X) if "u" in dtype else X).astype(dtype)
    container = draw(st.sampled_from(sorted(CONTAINERS)))
    kind = draw(st.sampled_from(sorted(targets)))
    y = rng.permutation(np.arange(n) % 3) if targets is LABELS else rng.normal(size=n)
    text = f"{n} x {d} {dtype} as {container}, y as {kind}"
    exact = dtype not in ("f2", "f4", ">f4") and kind != "float32"
    return Table(CONTAINERS[container](X), targets[kind](y), text, exact)


# Estimators


@dataclass(frozen=True)
class Subject:
    """An estimator to tell the story of.

    Attributes
    ----------
    accelerated : type
        On a `engine.GenericEngine`.
    parameters : dict of str to SearchStrategy
        Hyperparameters that are drawn.
    methods : tuple of str
    attribute : str
        A fitted attribute that is looked at, assigned and changed in place.
    targets : dict
        `LABELS` or `TARGETS`.
    fixed : dict
        Hyperparameters that are always given.
    tolerance : float or None
        How near floats have to be; None leaves it to their dtypes.
    """

    accelerated: Any
    parameters: dict[str, st.SearchStrategy]
    methods: tuple[str, ...]
    attribute: str
    targets: dict[str, Callable[[np.ndarray], Any]]
    fixed: dict[str, Any] = field(default_factory=dict)
    tolerance: float | None = None


# Operations: each takes the estimator and gives the one to go on with


def _call(name: str) -> Callable[..., Any]:
    def call(estimator: Any, table: Table, subject: Subject) -> Any:
        takes_y = name == "score" or name.startswith("fit")
        arguments = (table.X, table.y) if takes_y else (table.X,)
        result = getattr(estimator, name)(*arguments)
        return estimator, (None if name == "fit" else result)

    return call


def _engine(estimator: Any) -> Any:
    return engine_of(estimator) if accelsk.is_proxy(estimator) else None


def _fit_while(**state: Any) -> Callable[..., Any]:
    def fit(estimator: Any, table: Table, subject: Subject) -> Any:
        engine = _engine(estimator)
        if engine is not None:
            vars(engine).update(copy.deepcopy(state))
        try:
            estimator.fit(table.X, table.y)
        finally:
            if engine is not None:
                vars(engine).update(off=None, refusing={}, failing={})
        return estimator, None

    return fit


def _under(operation: Callable[..., Any], **settings: Any) -> Callable[..., Any]:
    def call(estimator: Any, table: Table, subject: Subject) -> Any:
        with accelsk.config_context(**settings):
            return operation(estimator, table, subject)

    return call


def _first_method(estimator: Any, table: Table, subject: Subject) -> Any:
    return _call(subject.methods[0])(estimator, table, subject)


def _on_other_rows(change: Callable[[Any], Any]) -> Callable[..., Any]:
    def call(estimator: Any, table: Table, subject: Subject) -> Any:
        rows = change(np.array(table.X, dtype=np.float64))
        return estimator, getattr(estimator, subject.methods[0])(rows)

    return call


def _assign(estimator: Any, table: Table, subject: Subject) -> Any:
    value = getattr(estimator, subject.attribute)
    if value is not None:
        setattr(estimator, subject.attribute, value[::-1].copy())
    return estimator, None


def _change_in_place(estimator: Any, table: Table, subject: Subject) -> Any:
    value = getattr(estimator, subject.attribute)
    if value is not None:
        value[...] = value[::-1].copy()
    return estimator, None


def _convert(estimator: Any, table: Table, subject: Subject) -> Any:
    if accelsk.is_proxy(estimator):
        estimator = registry._transfer(accelsk.to_sklearn(estimator), type(estimator))
    return estimator, None


def _turn(parameter: str) -> Callable[..., Any]:
    def turn(estimator: Any, table: Table, subject: Subject) -> Any:
        return estimator.set_params(**{parameter: not getattr(estimator, parameter)}), None

    return turn


_OPERATIONS: dict[str, Callable[..., Any]] = {
    "fit": _call("fit"),
    "fit refused": _fit_while(refusing={"fit": "not today"}),
    "fit failing": _fit_while(failing={"fit": RuntimeError("boom")}),
    "fit out of memory": _fit_while(failing={"fit": MemoryError()}),
    "fit handed on": _fit_while(failing={"fit": Refusal("seen the data")}),
    "fit unusable": _fit_while(off="no GPU"),
    "fit NaN": lambda e, t, s: (e.fit(np.array(t.X, dtype=float) * np.nan, t.y), None),
    "fit fewer columns": lambda e, t, s: (e.fit(np.array(t.X)[:, :1], t.y), None),
    "fit shorter y": lambda e, t, s: (e.fit(t.X, t.y[:-1]), None),
    "fit on the CPU": _under(_call("fit"), device="cpu"),
    "fit reproducible": _under(_call("fit"), reproducible=True),
    "use on the CPU": _under(_first_method, device="cpu"),
    "use on the GPU": _under(_first_method, device="gpu"),
    "new columns": _on_other_rows(lambda X: np.c_[X, X]),
    "new NaN": _on_other_rows(lambda X: X * np.nan),
    "new 1d": _on_other_rows(lambda X: X[0]),
    "new rows": _on_other_rows(lambda X: X[:3] * 1.5),
    "new float32": _on_other_rows(lambda X: X.astype("f4")),
    "look": lambda e, t, s: (e, getattr(e, s.attribute)),
    "look for nothing": lambda e, t, s: (e, e.nonsense_),
    "assign": _assign,
    "change in place": _change_in_place,
    "pickle": lambda e, t, s: (pickle.loads(pickle.dumps(e)), None),
    "copy": lambda e, t, s: (copy.copy(e), None),
    "deepcopy": lambda e, t, s: (copy.deepcopy(e), None),
    "clone": lambda e, t, s: (clone(e), None),
    "convert": _convert,
    # where its lines end hangs on the length of the name
    "repr": lambda e, t, s: (e, "".join(repr(e).replace(type(e).__name__, "").split())),
}


def _operations(subject: Subject) -> dict[str, Callable[..., Any]]:
    switches = {
        f"turn {name}": _turn(name)
        for name in subject.parameters
        if name in ("fit_intercept", "with_mean", "with_std", "whiten")
    }
    return {**_OPERATIONS, **switches, **{name: _call(name) for name in subject.methods}}


@st.composite
def stories(draw: Any, subject: Subject) -> tuple[dict[str, Any], list[tuple[str, Table]]]:
    """Draw hyperparameters and a sequence of operations, each with its data."""
    parameters = dict(subject.fixed)
    if subject.parameters:
        changed = st.lists(st.sampled_from(sorted(subject.parameters)), max_size=3, unique=True)
        parameters.update((name, draw(subject.parameters[name])) for name in draw(changed))
    pool = draw(st.lists(tables(subject.targets), min_size=1, max_size=2))
    names = st.sampled_from(["fit", "fit", *subject.methods, *sorted(_operations(subject))])
    steps = draw(st.lists(st.tuples(names, st.sampled_from(pool)), min_size=1, max_size=7))
    return parameters, steps


def _in_words_of(theirs: Any, error: Any) -> Any:
    """Return an error as the original would word it: two packages may have classes of one name."""
    if error is None:
        return None
    kind, text = error
    ours = f"{type(theirs).__module__.partition('.')[0].title()}{type(theirs).__name__}"
    return kind, text.replace(ours, type(theirs).__name__)


def tell(subject: Subject, story: tuple[dict[str, Any], list[tuple[str, Table]]]) -> None:
    """Act the story with both classes and assert that nobody could tell them apart."""
    parameters, steps = story
    ours: Any = subject.accelerated(**copy.deepcopy(parameters))
    theirs: Any = subject.accelerated._accelsk_original(**copy.deepcopy(parameters))
    operations = _operations(subject)
    exact = all(table.exact for _, table in steps)
    tolerance = max(subject.tolerance or 0, 0 if exact else 1e-3) or None
    for name, table in steps:
        if currently_in_test_context():
            note(f"{name} with {table}")
        operation = operations[name]
        mine = outcome_of(lambda o=operation, e=ours, t=table: o(e, t, subject))
        other = outcome_of(lambda o=operation, e=theirs, t=table: o(e, t, subject))
        error = _in_words_of(theirs, mine[1])
        assert error == other[1], f"{name}: {error} against {other[1]}"
        assert sorted(map(str, mine[2])) == sorted(map(str, other[2])), name
        if mine[0] is not None:
            assert_same(mine[0][1], other[0][1], name, tolerance)
            ours, theirs = mine[0][0], other[0][0]
    assert_same(fitted(ours), fitted(theirs), "fitted", tolerance)
