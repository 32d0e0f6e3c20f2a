"""The report of a profile as text."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from textwrap import wrap
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from accelsk.profiling.profile import MethodStats

__all__ = ["columns", "format_bytes", "format_duration", "notes", "render"]

_WIDTH = 92


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


def format_bytes(n_bytes: float) -> str:
    """Return `n_bytes` in the unit that suits it.

    Examples
    --------
    >>> [format_bytes(n) for n in (0, 999, 1000, 1_234_567, 400e6, 2.5e12)]
    ['0', '999B', '1kB', '1.2MB', '400MB', '2.5TB']
    """
    if n_bytes == 0:
        return "0"
    for factor, unit in ((1, "B"), (1e3, "kB"), (1e6, "MB"), (1e9, "GB")):
        if n_bytes < 999.5 * factor:
            return f"{_rounded(n_bytes / factor)}{unit}"
    return f"{_rounded(n_bytes / 1e12)}TB"


def _total(method_calls: Iterable[MethodStats], attribute: str) -> float:
    return sum(getattr(stats, attribute) for stats in method_calls)


def columns(method_calls: Mapping[str, MethodStats]) -> dict[str, list[str]]:
    """Return the texts of the table by header; the last of each is that of the total.

    What no call did has no column.
    """
    every = method_calls.values()
    table = {"Function": [*method_calls, "Total"]}
    for header, attribute, always, text in (
        ("GPU calls", "gpu_calls", True, str),
        ("GPU time", "gpu_time", True, format_duration),
        ("CPU calls", "cpu_calls", True, str),
        ("CPU time", "cpu_time", True, format_duration),
        ("To GPU", "uploaded", False, format_bytes),
        ("From GPU", "downloaded", False, format_bytes),
        ("In workers", "worker_calls", False, str),
    ):
        total = _total(every, attribute)
        if always or total:
            table[header] = [
                text(value) for value in (*(getattr(s, attribute) for s in every), total)
            ]
    return table


def notes(
    method_calls: Mapping[str, MethodStats], n_workers: int
) -> Iterable[tuple[str, list[tuple[str, list[str]]]]]:
    """Yield headings of what there is to say under the table, and under each texts by functions."""
    reasons = [
        (name, sorted(stats.fallback_reasons))
        for name, stats in method_calls.items()
        if stats.fallback_reasons
    ]
    if reasons:
        yield "Ran in scikit-learn because:", _together(reasons)
    errors = [
        (name, [f"{error} ({count}x)" if count > 1 else error for error, count in s.errors.items()])
        for name, s in method_calls.items()
        if s.errors
    ]
    if errors:
        yield "Raised an error:", errors
    happened = [(name, sorted(stats.notes)) for name, stats in method_calls.items() if stats.notes]
    if happened:
        yield "Happened on the way:", happened
    if n_workers:
        calls = int(_total(method_calls.values(), "worker_calls"))
        yield f"{_plural(calls, 'call')} ran in {_plural(n_workers, 'worker process', 'es')}.", []


def _together(reasons: list[tuple[str, list[str]]]) -> list[tuple[str, list[str]]]:
    """Return functions with the same texts as one: where no GPU is used, all of them."""
    functions: dict[tuple[str, ...], list[str]] = {}
    for name, texts in reasons:
        functions.setdefault(tuple(texts), []).append(name)
    return [(", ".join(names), [*texts]) for texts, names in functions.items()]


def _plural(count: int, noun: str, ending: str = "s") -> str:
    return f"{count} {noun}{ending if count != 1 else ''}"


def render(method_calls: Mapping[str, MethodStats], n_workers: int = 0) -> str:
    """Return the table of calls and, under it, why functions fell back."""
    from tabulate import tabulate

    if not method_calls:
        return "No calls of accelerated methods."
    table = columns(method_calls)
    align = ("left", *["right"] * (len(table) - 1))
    rows = zip(*table.values(), strict=True)
    text = tabulate(
        rows, [*table], tablefmt="simple_outline", colalign=align, disable_numparse=True
    )
    lines = text.splitlines()
    lines.insert(-2, lines[2])  # a rule above the total
    for heading, functions in notes(method_calls, n_workers):
        lines += ["", heading]
        for name, texts in functions:
            lines += wrap(name, _WIDTH, initial_indent="  ", subsequent_indent="  ")
            lines += [f"    - {text}" for text in texts]
    return "\n".join(lines)
