"""What was measured of one class, and the coefficients that it gives."""

from __future__ import annotations

from dataclasses import dataclass, field

from accelsk.costs.model import CPU, Curve, Observation, fitted
from accelsk.costs.work import WORK, Work

__all__ = ["Measurement"]


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

    def curve(self, method: str, place: str) -> Curve | None:
        """Return the coefficients that fit what was measured."""
        key = method, place
        terms = self.work.terms(method, on_cpu=place == CPU)
        found = self.observations.get(key, ())
        if place == CPU and len({(o.letters["n"], o.letters["d"]) for o in found}) == 1:
            # too slow to be measured at any other size: it is not constant
            terms = tuple(term for term in terms if "n" in term)[:1] or terms
        curve = fitted(terms, found)
        if curve is None:
            return None
        return curve._replace(narrow=self.narrow.get(key, 1.0), first=self.first.get(key, 0.0))

    def curves(self) -> dict[str, dict[str, Curve]]:
        """Return the coefficients of every method that was measured."""
        found: dict[str, dict[str, Curve]] = {}
        for method, place in self.observations:
            if (curve := self.curve(method, place)) is not None:
                found.setdefault(f"{self.name}.{method}", {})[place] = curve
        return found

    def points(self) -> dict[str, dict[str, list[list[float]]]]:
        """Return rows, columns, measured and expected seconds of all that was measured."""
        found: dict[str, dict[str, list[list[float]]]] = {}
        for (method, place), observations in self.observations.items():
            curve = self.curve(method, place)
            found.setdefault(f"{self.name}.{method}", {})[place] = [
                [
                    int(o.letters["n"]),
                    int(o.letters["d"]),
                    float(f"{o.seconds:.3g}"),
                    float(f"{curve.seconds(o.letters):.3g}") if curve else 0.0,
                ]
                for o in observations
            ]
        return found
