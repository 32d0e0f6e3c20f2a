"""The report of a profile as text."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from accelsk.profiling.profile import MethodStats

__all__ = ["format_duration", "render"]

_HEADERS = ("Function", "GPU calls", "GPU time", "CPU calls", "CPU time")


def format_duration(seconds: float) -> str:
    """Return `seconds` in the unit that suits it.

    Examples
    --------
    >>> [format_duration(s) for s in (0, 0.0000123, 0.0012, 0.167, 1.5, 65.2, 3725)]
    ['0s', '12.3µs', '1.2ms', '167ms', '1.5s', '1m5.2s', '1h2m5s']
    """
    if seconds == 0:
        return "0s"
    # Each number below rounds to what the next unit would show from there on
    for limit, factor, unit in ((0.99995e-3, 1e6, "µs"), (0.99995, 1e3, "ms"), (59.95, 1, "s")):
        if seconds < limit:
            return f"{_rounded(seconds * factor)}{unit}"
    minutes, rest = divmod(round(seconds, 1), 60)
    hours, minutes = divmod(int(minutes), 60)
    return f"{hours}h{minutes}m{_rounded(rest)}s" if hours else f"{minutes}m{_rounded(rest)}s"


def _rounded(value: float) -> str:
    return f"{value:.0f}" if value >= 99.95 else f"{value:.1f}".removesuffix(".0")


def render(method_calls: Mapping[str, MethodStats]) -> str:
    """Return the table of calls and, under it, why functions fell back."""
    from tabulate import tabulate

    if not method_calls:
        return "No calls of accelerated methods."
    rows = [
        (name, s.gpu_calls, format_duration(s.gpu_time), s.cpu_calls, format_duration(s.cpu_time))
        for name, s in method_calls.items()
    ]
    every = method_calls.values()
    total = (
        "Total",
        sum(s.gpu_calls for s in every),
        format_duration(sum(s.gpu_time for s in every)),
        sum(s.cpu_calls for s in every),
        format_duration(sum(s.cpu_time for s in every)),
    )
    align = ("left", *["right"] * (len(_HEADERS) - 1))
    table = tabulate([*rows, total], _HEADERS, tablefmt="simple_outline", colalign=align)
    lines = table.splitlines()
    lines.insert(-2, lines[2])  # a rule above the total
    fallbacks = [
        f"  {name}\n" + "\n".join(f"    - {reason}" for reason in sorted(s.fallback_reasons))
        for name, s in method_calls.items()
        if s.fallback_reasons
    ]
    if fallbacks:
        lines += ["", "Ran in scikit-learn because:", *fallbacks]
    return "\n".join(lines)
