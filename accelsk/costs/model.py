"""Coefficients: what they say of a call, how they are found, how they are kept."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np

from accelsk.costs.work import ALIASES

__all__ = ["CPU", "FORMAT", "Curve", "Observation", "Table", "fitted"]

#: The place of scikit-learn among the engines.
CPU = "cpu"

#: Raised with every change of what a stored table means.
FORMAT = 1

#: A term that makes up less than this of every measured time is taken for noise.
_NOISE = 0.03

#: A coefficient below this is none: no sizes make a time of it.
_NOTHING = 1e-40

#: How much a coefficient known before counts next to a measured time: what it is off by a factor
#: of two is as bad as that time off by a fifth.
_TRUST = 0.2


#: Terms of what any call takes, whatever its data.
_FIXED = frozenset("1j")


class Curve(NamedTuple):
    """The time of one method in one place.

    Attributes
    ----------
    terms : tuple of (float, str)
        Coefficients, in seconds, and terms.
    narrow : float
        The time for float32 over that for float64, the constant part left out.
    first : float
        What the first call in a process takes longer.
    """

    terms: tuple[tuple[float, str], ...]
    narrow: float = 1.0
    first: float = 0.0

    def seconds(self, letters: Mapping[str, float], *, narrow: bool = False) -> float:
        """Return the expected time of a call with these sizes."""
        total = fixed = 0.0
        for coefficient, term in self.terms:
            for letter in term:
                coefficient *= letters[letter]
            if term in _FIXED or "h" in term:
                fixed += coefficient
            else:
                total += coefficient
        return fixed + (total * self.narrow if narrow else total)

    def times(self, factor: float) -> Curve:
        """Return the coefficients of a place that takes so many times as long."""
        return self._replace(terms=tuple((c * factor, term) for c, term in self.terms))


class Observation(NamedTuple):
    """A measured call: what it had to do, and the seconds it took."""

    letters: Mapping[str, float]
    seconds: float


def _kind(term: str) -> str:
    """Return what bounds the part of the time that a term stands for."""
    if "h" in term:
        return "bus"
    if term in _FIXED:
        return "call"
    return "memory" if len(term) == 1 or term in ("nd", "nk", "md", "mt") else "flops"


def _value(term: str, letters: Mapping[str, float]) -> float:
    return math.prod((letters[letter] for letter in term), start=1.0)


def fitted(
    terms: Sequence[str], observations: Iterable[Observation], likely: Curve | None = None
) -> Curve | None:
    """Return the coefficients under which relative errors are least, none of them negative.

    Terms that no observation needs are left out: beyond what was measured they would rule.

    Parameters
    ----------
    terms : sequence of str
    observations : iterable of Observation
    likely : Curve, default=None
        What the coefficients are without any observation. They give way to what was measured,
        each as far as it matters there: one that plays no part in it stays what it is.
    """
    from scipy.optimize import nnls

    found = [o for o in observations if o.seconds > 0]
    if not found:
        return None
    seconds = np.array([o.seconds for o in found])
    before = {term: c for c, term in likely.terms if c > _NOTHING} if likely is not None else {}
    kept = list(dict.fromkeys((*terms, *before)))
    while True:
        A = np.array([[_value(term, o.letters) for term in kept] for o in found])
        relative = A / seconds[:, None]
        expected = np.array([before.get(term, 0.0) for term in kept])
        scale = relative.max(axis=0)
        scale[scale == 0] = np.where(expected > 0, expected, 1.0)[scale == 0]
        # one more equation for each that is known: it is what it was before
        held = _TRUST * (np.eye(len(kept)) / np.where(expected > 0, expected, 1.0))[expected > 0]
        # times are off by factors: a second pass weighs them by what the first one says
        weight = np.ones(len(found))
        for _ in range(6):
            share, _ = nnls(
                np.vstack([relative * weight[:, None], held]) / scale,
                np.concatenate([weight, np.full(len(held), _TRUST)]),
            )
            ratio = relative / scale @ share
            weight = 1 / np.sqrt(np.maximum(ratio, 0.2))
        coefficients = share / scale
        parts = coefficients * relative
        needed = [
            term in before or bool((part > _NOISE).any())
            for term, part in zip(kept, parts.T, strict=True)
        ]
        if all(needed) or not any(needed):
            break
        kept = [term for term, need in zip(kept, needed, strict=True) if need]
    found_terms = zip(map(float, coefficients), kept, strict=True)
    return Curve(tuple((c, term) for c, term in found_terms if c > _NOTHING))


@dataclass
class Table:
    """The coefficients of a machine.

    Attributes
    ----------
    machine : dict
        What they were measured on.
    speed : dict of str to float
        What `accelsk.costs.machine.speeds` measured there.
    load : dict of str to float
        The seconds that it takes to load the library of an engine.
    curves : dict
        By method, such as ``"linear_model.Ridge.fit"``, and place.
    measured : dict
        Alike: rows, columns, measured seconds and expected ones. May be left out.
    sooner_on_cpu : set
        The calls that were found to be sooner on the CPU whatever the state of the process.
    """

    machine: dict[str, Any] = field(default_factory=dict)
    speed: dict[str, float] = field(default_factory=dict)
    load: dict[str, float] = field(default_factory=dict)
    curves: dict[str, dict[str, Curve]] = field(default_factory=dict)
    measured: dict[str, dict[str, list[list[float]]]] = field(default_factory=dict)
    sooner_on_cpu: set[Any] = field(default_factory=set, repr=False, compare=False)

    def of(self, name: str, method: str) -> dict[str, Curve] | None:
        """Return the curves of a method of the class `name` by place; None where there is none."""
        found = self.curves.get(f"{name}.{method}")
        if found is None and method in ALIASES:
            found = self.curves.get(f"{name}.{ALIASES[method]}")
        return found if found and CPU in found else None

    def state(self, name: str, step: str, engine: str) -> Curve | None:
        """Return what it takes to have fitted state moved."""
        return self.curves.get(f"{name}.{step}", {}).get(engine)

    def scaled(self, factors: Mapping[str, float]) -> Table:
        """Return the table of a machine that takes so much longer.

        Parameters
        ----------
        factors : mapping
            By place (``"cpu"`` or ``"gpu"``) and kind of work, such as ``"gpu memory"``.
        """

        def adapted(place: str, curve: Curve) -> Curve:
            where = CPU if place == CPU else "gpu"
            terms = ((c * factors.get(f"{where} {_kind(t)}", 1.0), t) for c, t in curve.terms)
            return curve._replace(terms=tuple(terms))

        curves = {
            name: {place: adapted(place, curve) for place, curve in places.items()}
            for name, places in self.curves.items()
        }
        return replace(self, curves=curves, sooner_on_cpu=set())

    def to_json(self) -> str:
        """Return the text of a file."""
        curves = {
            name: {
                place: {
                    "seconds": {term: float(f"{c:.4g}") for c, term in curve.terms},
                    "float32": round(curve.narrow, 3),
                    "first": round(curve.first, 4),
                }
                for place, curve in places.items()
            }
            for name, places in sorted(self.curves.items())
        }
        content = {
            "format": FORMAT,
            "machine": self.machine,
            "speed": self.speed,
            "load": self.load,
        }
        head = json.dumps(content, indent=1)[:-2]
        return f'{head},\n "calls": {_lines(curves)},\n "measured": {_lines(self.measured)}\n}}\n'

    @classmethod
    def from_json(cls, text: str) -> Table:
        """Return the table that `text` holds.

        Raises
        ------
        ValueError
            If it is no such table, or one of another format.
        """
        try:
            content = json.loads(text)
            if content["format"] != FORMAT:
                raise ValueError(f"it has format {content['format']}, not {FORMAT}")
            curves = {
                name: {place: _curve(stored) for place, stored in places.items()}
                for name, places in content["calls"].items()
            }
            load = {name: _number(value) for name, value in content["load"].items()}
            speed = {name: _number(value) for name, value in content["speed"].items()}
            measured = dict(content["measured"])
            return cls(dict(content["machine"]), speed, load, curves, measured)
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"it is incomplete ({type(error).__name__}: {error})") from None


def _lines(entries: Mapping[str, Any]) -> str:
    """Return a JSON object with a line for each entry."""
    lines = ",\n".join(f"  {json.dumps(k)}: {json.dumps(v)}" for k, v in entries.items())
    return f"{{\n{lines}\n }}" if entries else "{}"


def _number(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise ValueError(f"{value!r} is no number")
    if not 0 <= value < math.inf:
        raise ValueError(f"{value!r} is no time")
    return float(value)


#: The letters of `accelsk.costs.work`.
_LETTERS = frozenset("1ndsemlhktij")


def _curve(stored: Mapping[str, Any]) -> Curve:
    terms = tuple((_number(c), term) for term, c in stored["seconds"].items())
    if unknown := {letter for _, term in terms for letter in term} - _LETTERS:
        raise ValueError(f"nobody knows what {', '.join(sorted(unknown))} stands for")
    return Curve(terms, _number(stored["float32"]), _number(stored["first"]))
