"""The report of a line profile as text and as HTML."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from html import escape
from typing import TYPE_CHECKING

from accelsk.profiling.html import bar, listing, page, row
from accelsk.profiling.report import format_duration

if TYPE_CHECKING:
    from accelsk.profiling.clock import LineStats
    from accelsk.profiling.lines import LineResults

__all__ = ["render", "to_html"]

Paint = Callable[[str, str], str]

#: More lines than these that were not executed, one after the other, are left out.
_GAP = 6

_COLOURS = {"gpu": "32", "mark": "33;1", "dim": "2", "head": "1"}


def _shown(lines: Mapping[int, LineStats], n_lines: int) -> Iterator[int | None]:
    """Yield the numbers of the lines to show, None where some are left out."""
    executed = sorted(lines)
    previous = 0 if executed[0] <= _GAP else executed[0] - 1
    if previous:
        yield None
    for number in executed:
        if number - previous - 1 > _GAP:
            yield None
        else:
            yield from range(previous + 1, number)
        yield number
        previous = number
    if n_lines - previous > _GAP:
        yield None
    else:
        yield from range(previous + 1, n_lines + 1)


def _share(stats: LineStats) -> float | None:
    """Return the share of the GPU, or None where no accelerated method was called."""
    if not stats.gpu_time and not stats.gpu_calls and not stats.cpu_calls:
        return None
    return min(1.0, stats.gpu_time / stats.time) if stats.time else 0.0


def _title(file: str, lines: Mapping[int, LineStats]) -> str:
    return f"{file}: {len(lines)} line{'s' if len(lines) != 1 else ''} executed"


def _summary(results: LineResults) -> list[str]:
    """Return what there is to say about the whole."""
    wall = results.wall_time
    share = min(1.0, results.gpu_time / wall) if wall else 0.0
    each = results.cost / results.steps if results.steps else 0.0
    texts = [
        f"{format_duration(wall)} in all, {share:.0%} of it on the GPU.",
        f"Watching {results.steps} lines took about {format_duration(results.cost)} of that, "
        f"{format_duration(each)} a line.",
    ]
    workers = results.in_workers
    if workers.worker_calls:
        texts.append(
            f"{workers.worker_calls} calls in worker processes are part of no line: "
            f"{workers.gpu_calls} on the GPU, {workers.cpu_calls} in scikit-learn."
        )
    return texts


def _fallbacks(lines: Mapping[int, LineStats]) -> list[tuple[str, list[str]]]:
    """Return what ran in scikit-learn and why, by line."""
    return [
        (
            f"line {number}",
            [f"{text} ({n}x)" if n > 1 else text for text, n in stats.fallbacks.items()],
        )
        for number, stats in lines.items()
        if stats.fallbacks
    ]


_HEADERS = ("Line", "Hits", "Time", "GPU")


def render(results: LineResults, colours: bool = False) -> str:
    """Return the report as text, with the colours of a terminal if they are wanted."""
    width = shutil.get_terminal_size().columns if colours else 0

    def paint(text: str, kind: str) -> str:
        return f"\033[{_COLOURS[kind]}m{text}\033[0m" if colours and text.strip() else text

    parts = []
    for file, lines in results.lines.items():
        parts.append(paint(_title(file, lines), "head"))
        head = "{:>5} {:>8} {:>9} {:>5}    Source".format(*_HEADERS)
        parts.append(paint(head, "dim"))
        source = results.source(file)
        for number in _shown(lines, len(source)):
            if number is None:
                parts.append(paint("    ⋮", "dim"))
                continue
            text = source[number - 1] if number <= len(source) else ""
            parts.append(_line(number, lines.get(number), text, paint, width).rstrip())
        fallbacks = _fallbacks(lines)
        if fallbacks:
            parts += ["", paint("!", "mark") + " Ran in scikit-learn:"]
            for where, texts in fallbacks:
                parts += [f"  {where}", *(f"    - {text}" for text in texts)]
        parts.append("")
    if not results.lines:
        parts += ["No line was executed that is watched.", ""]
    return "\n".join([*parts, *_summary(results)])


def _line(number: int, stats: LineStats | None, text: str, paint: Paint, width: int) -> str:
    if width:
        text = text[: max(width - 35, 20)]
    if stats is None:
        return f"{paint(f'{number:>5}', 'dim')} {'':>8} {'':>9} {'':>5}    {paint(text, 'dim')}"
    share = _share(stats)
    gpu = paint(f"{'' if share is None else f'{share:.0%}':>5}", "gpu" if share else "dim")
    mark = paint("!", "mark") if stats.fallbacks else " "
    figures = f"{stats.hits:>8} {format_duration(stats.time):>9}"
    return f"{paint(f'{number:>5}', 'dim')} {figures} {gpu}  {mark} {text}"


def to_html(results: LineResults) -> str:
    """Return the report as HTML."""
    parts = []
    longest = max((s.time for f in results.lines.values() for s in f.values()), default=0) or 1.0
    kinds = ["", "", "", "", "text", "mark", "text"]
    for file, lines in results.lines.items():
        title = _title(os.path.basename(file), lines)
        body = []
        source = results.source(file)
        for number in _shown(lines, len(source)):
            if number is None:
                body.append(row(["⋮", "", "", "", "", "", ""], kinds))
                continue
            text = source[number - 1] if number <= len(source) else ""
            body.append(row(_cells(number, lines.get(number), text, longest), kinds))
        head = row([*_HEADERS, "", "", "Source"], [*[""] * 6, "text"], "th")
        parts.append(f"<p><b>{escape(title)}</b></p>" if len(results.lines) > 1 else "")
        parts.append(f"<table><thead>{head}</thead><tbody>{''.join(body)}</tbody></table>")
        fallbacks = _fallbacks(lines)
        if fallbacks:
            parts.append('<p><span class="mark">!</span> Ran in scikit-learn:</p>')
            parts.append(listing(fallbacks))
    if not results.lines:
        parts.append("<p>No line was executed that is watched.</p>")
    parts += [f'<p class="dim">{escape(" ".join(_summary(results)))}</p>']
    return page(*parts)


def _cells(number: int, stats: LineStats | None, text: str, longest: float) -> list[str]:
    line = f'<span class="dim">{number}</span>'
    code = f"<code>{escape(text) or ' '}</code>"
    if stats is None:
        return [line, "", "", "", "", "", f'<span class="dim">{code}</span>']
    share = _share(stats)
    gpu = min(stats.gpu_time, stats.time) / longest
    time = bar(gpu, stats.time / longest - gpu)
    figures = [str(stats.hits), format_duration(stats.time)]
    mark = f'<span title="{escape("; ".join(stats.fallbacks))}">!</span>' if stats.fallbacks else ""
    return [line, *figures, "" if share is None else f"{share:.0%}", time, mark, code]
