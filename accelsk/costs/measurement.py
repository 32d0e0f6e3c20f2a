"""What was measured of one class, and the coefficients that it gives."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from statistics import median

from accelsk.costs.model import CPU, Curve, Observation, Table, fitted
from accelsk.costs.work import WORK, Work

__all__ = ["Measurement"]

#: What was measured at fewer sizes does not say what grows with what, where another table does.
_ENOUGH = 4

#: Rows, columns, measured and expected seconds, by method and place.
Points = dict[str, dict[str, list[list[float]]]]


@dataclass
class Measurement:
    """What was measured of one class.

    Attributes
    ----------
    name : str
        The class below ``accelsk``.
    observations : dict
        By method and place.
    narrow : dict
        The time for float32 over that for float64, by method and place.
    first : dict
        What the first call took longer, by method and place.
    """

    name: str
    observations: dict[tuple[str, str], list[Observation]] = field(default_factory=dict)
    narrow: dict[tuple[str, str], float] = field(default_factory=dict)
    first: dict[tuple[str, str], float] = field(default_factory=dict)

    @property
    def work(self) -> Work:
        return WORK.get(self.name, Work())

    def curve(self, method: str, place: str, known: Table | None = None) -> Curve | None:
        """Return the coefficients that fit what was measured.

        Parameters
        ----------
        method, place : str
        known : Table, default=None
            Of another machine, say: where little was measured, its coefficients are taken by
            the factor between the two.
        """
        key = method, place
        found = self.observations.get(key, ())
        sizes = {(o.letters["n"], o.letters["d"]) for o in found}
        likely = known.curves.get(f"{self.name}.{method}", {}).get(place) if known else None
        terms = self.work.terms(method, on_cpu=place == CPU)
        if likely is not None:
            ratios = [o.seconds / max(likely.seconds(o.letters), 1e-9) for o in found]
            likely = likely.times(median(ratios)) if ratios else likely
            terms = terms if len(sizes) >= _ENOUGH else ()
        elif place == CPU and len(sizes) == 1:
            # too slow to be measured at any other size: it is not constant
            terms = tuple(term for term in terms if "n" in term)[:1] or terms
        curve = fitted(terms, found, likely)
        if curve is None:
            return likely
        otherwise = likely or curve
        return curve._replace(
            narrow=self.narrow.get(key, otherwise.narrow),
            first=self.first.get(key, otherwise.first),
        )

    def curves(self, known: Table | None = None) -> dict[str, dict[str, Curve]]:
        """Return the coefficients of every method that was measured."""
        found: dict[str, dict[str, Curve]] = {}
        for method, place in self.observations:
            if (curve := self.curve(method, place, known)) is not None:
                found.setdefault(f"{self.name}.{method}", {})[place] = curve
        return found

    def points(self, curves: Mapping[str, Mapping[str, Curve]]) -> Points:
        """Return rows, columns, measured and expected seconds of all that was measured.

        Parameters
        ----------
        curves : mapping
            What `curves` has returned.
        """
        found: Points = {}
        for (method, place), observations in self.observations.items():
            call = f"{self.name}.{method}"
            curve = curves.get(call, {}).get(place)
            found.setdefault(call, {})[place] = [
                [
                    int(o.letters["n"]),
                    int(o.letters["d"]),
                    float(f"{o.seconds:.3g}"),
                    float(f"{curve.seconds(o.letters):.3g}") if curve else 0.0,
                ]
                for o in observations
            ]
        return found
