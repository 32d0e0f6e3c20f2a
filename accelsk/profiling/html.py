"""Reports as HTML for notebooks, on a light and on a dark page."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from html import escape
from typing import TYPE_CHECKING

from accelsk.profiling.export import CPU_COLOUR, GPU_COLOUR
from accelsk.profiling.report import columns, notes

if TYPE_CHECKING:
    from accelsk.profiling.profile import MethodStats

__all__ = ["STYLE", "bar", "page", "profile_to_html"]

#: All colours are mixed from that of the page's text, whatever that is. The name of the class
#: stands there three times to go before the rules of notebooks for tables.
STYLE = """
ACCELSK { color: inherit; font-size: 13px; line-height: 1.45; overflow-x: auto; }
ACCELSK table { border-collapse: collapse; border: 0; margin: 4px 0; color: inherit; }
ACCELSK tr { background: transparent; }
ACCELSK th, ACCELSK td { padding: 2px 8px; text-align: right; white-space: nowrap;
  vertical-align: middle; border: 0; background: transparent; color: inherit;
  font-variant-numeric: tabular-nums; max-width: none; }
ACCELSK th { font-weight: 600; border-bottom: 1px solid
  color-mix(in srgb, currentColor 45%, transparent); }
ACCELSK tbody tr:hover { background: color-mix(in srgb, currentColor 7%, transparent); }
ACCELSK tfoot td { font-weight: 600; border-top: 1px solid
  color-mix(in srgb, currentColor 45%, transparent); }
ACCELSK .text { text-align: left; }
ACCELSK code { color: inherit; background: transparent; padding: 0; font-size: 12px;
  font-family: ui-monospace, SFMono-Regular, Menlo, Consolas, monospace; white-space: pre; }
ACCELSK .dim { opacity: 0.5; }
ACCELSK .bar { display: inline-block; width: 80px; height: 9px; text-align: left;
  white-space: nowrap; font-size: 0; }
ACCELSK .bar i { display: inline-block; height: 9px; }
ACCELSK .gpu { background: GPU; }
ACCELSK .cpu { background: CPU; }
ACCELSK .mark { color: CPU; font-weight: 700; padding: 0 2px; }
ACCELSK ul { margin: 0 0 4px; padding-left: 22px; }
ACCELSK p { margin: 6px 0 0; }
"""
for _name, _value in (("ACCELSK", ".accelsk" * 3), ("GPU", GPU_COLOUR), ("CPU", CPU_COLOUR)):
    STYLE = STYLE.replace(_name, _value)


def page(*parts: str) -> str:
    """Return the parts in one element with the style for them."""
    return f'<div class="accelsk"><style>{STYLE}</style>{"".join(parts)}</div>'


def bar(gpu: float, cpu: float) -> str:
    """Return a bar of the shares that the GPU and scikit-learn have in the whole width."""
    parts = (
        f'<i class="{kind}" style="width: {100 * min(share, 1):.1f}%"></i>'
        for kind, share in (("gpu", gpu), ("cpu", cpu))
        if share > 0
    )
    return f'<span class="bar">{"".join(parts)}</span>'


def row(cells: Iterable[str], kinds: Iterable[str], tag: str = "td") -> str:
    """Return a row of a table; `kinds` are the classes of its cells."""
    texts = (
        f'<{tag} class="{kind}">{cell}</{tag}>' if kind else f"<{tag}>{cell}</{tag}>"
        for cell, kind in zip(cells, kinds, strict=True)
    )
    return f"<tr>{''.join(texts)}</tr>"


def profile_to_html(method_calls: Mapping[str, MethodStats], n_workers: int) -> str:
    """Return the table of calls with bars of their time, and why functions fell back."""
    if not method_calls:
        return page("<p>No calls of accelerated methods.</p>")
    table = columns(method_calls)
    texts = [[escape(text) for text in row] for row in zip(*table.values(), strict=True)]
    longest = max(s.gpu_time + s.cpu_time for s in method_calls.values()) or 1.0
    bars = [bar(s.gpu_time / longest, s.cpu_time / longest) for s in method_calls.values()]
    kinds = ["text", *[""] * (len(table) - 1), "text"]
    legend = 'Time: <span class="bar gpu" style="width: 9px"></span> GPU '
    legend += '<span class="bar cpu" style="width: 9px"></span> CPU'
    head = row([*map(escape, table), legend], kinds, "th")
    body = [
        row([f"<code>{name}</code>", *map(_dimmed, figures), time], kinds)
        for (name, *figures), time in zip(texts, bars, strict=False)  # the last is the total
    ]
    parts = [
        f"<table><thead>{head}</thead><tbody>{''.join(body)}</tbody>",
        f"<tfoot>{row([*texts[-1], ''], kinds)}</tfoot></table>",
    ]
    for heading, functions in notes(method_calls, n_workers):
        parts.append(f"<p>{escape(heading)}</p>")
        if functions:
            parts.append(listing(functions))
    return page(*parts)


def _dimmed(figure: str) -> str:
    return f'<span class="dim">{figure}</span>' if figure in ("0", "0s") else figure


def listing(functions: Iterable[tuple[str, Iterable[str]]]) -> str:
    """Return a list of functions, each with what there is to say about it."""
    items = (
        f"<li><code>{escape(name)}</code>: {escape('; '.join(texts))}</li>"
        for name, texts in functions
    )
    return f"<ul>{''.join(items)}</ul>"
