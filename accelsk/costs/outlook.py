"""What is known of a class while it is being measured, and what more of it would teach."""

from __future__ import annotations

from collections.abc import Iterable

from accelsk.costs.budget import Growth
from accelsk.costs.model import CPU
from accelsk.costs.points import Point
from accelsk.costs.work import Work

__all__ = ["Outlook"]

#: The CPU is not waited for where the GPU is so many times as fast, from so many seconds on.
_FAR, _FAR_FROM = 5, 0.03

#: A side that is so many times as fast at a smaller size and at a larger one is so in between.
_CLEAR = 1.6


class Outlook:
    """The times of one class so far. Places are the CPU and, whatever the engine, the GPU.

    Parameters
    ----------
    work : Work
        What the time of the class grows with.
    """

    def __init__(self, work: Work) -> None:
        self._work = work
        self._growth: dict[tuple[str, str], Growth] = {}
        # by method and columns: rows, and the seconds by place
        self._times: dict[tuple[str, int], dict[int, dict[str, float]]] = {}

    def add(self, method: str, place: str, point: Point, seconds: float) -> None:
        """Have on record what a call took."""
        key = method, place
        if key not in self._growth:
            terms = self._work.terms(method, on_cpu=place == CPU)
            most = max((1, *(term.count("n") + term.count("m") for term in terms)))
            self._growth[key] = Growth(most)
        self._growth[key].add(point, seconds)
        times = self._times.setdefault((method, point.columns), {})
        times.setdefault(point.rows, {})[place] = seconds

    def spend(self, method: str, place: str, seconds: float) -> None:
        """Have on record what measuring a call has cost."""
        if (growth := self._growth.get((method, place))) is not None:
            growth.spent += seconds

    def spent(self, method: str, place: str) -> float:
        """Return what measuring a method in a place has cost so far."""
        growth = self._growth.get((method, place))
        return 0.0 if growth is None else growth.spent

    def knows(self, method: str, place: str) -> bool:
        """Whether a method was measured in a place at all."""
        return (method, place) in self._growth

    def expected(self, method: str, place: str, point: Point) -> float | None:
        """Return what a call may be expected to take; None where nothing was measured."""
        growth = self._growth.get((method, place))
        return None if growth is None else growth.at(point)

    def is_hopeless(self, method: str, point: Point) -> bool:
        """Whether the CPU is known to be far behind at such a size, and takes its time."""
        cpu, gpu = (self._growth.get((method, place)) for place in (CPU, "gpu"))
        if cpu is None or gpu is None:
            return False
        return cpu.at_least(point) > max(_FAR * gpu.at(point), _FAR_FROM)

    def is_clear(self, method: str, point: Point) -> bool:
        """Whether it is known which side is sooner at such a size, from smaller and larger ones."""
        times = self._times.get((method, point.columns), {})
        leads = {rows: _lead(found) for rows, found in times.items()}
        below = max((rows for rows, lead in leads.items() if rows < point.rows and lead), default=0)
        above = min((rows for rows, lead in leads.items() if rows > point.rows and lead), default=0)
        if not below or not above:
            return False
        ends = leads[below], leads[above]
        return min(ends) > _CLEAR or max(ends) < 1 / _CLEAR

    def is_settled(self, methods: Iterable[str], point: Point) -> bool:
        """Whether measuring any of these methods at such a size would teach nothing."""
        return all(self.is_clear(method, point) for method in methods)


def _lead(times: dict[str, float]) -> float:
    """Return how many times as fast the GPU is; zero where that was not measured."""
    if len(times) < 2:
        return 0.0
    return times[CPU] / times["gpu"]
