"""Small tables and sparklines for notebooks: HTML and inline SVG, no script, readable in either theme."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

WIDTH, HEIGHT = 180, 28  # of a sparkline, in pixels


def html_table(title: str, values: Mapping[str, Any], svg: Mapping[str, str] | None = None) -> str:
    """``title`` over one line a value; ``svg``: lines whose value is a drawing, put in as it is."""
    lines = [(name, escape(readable(value))) for name, value in values.items()]
    lines += list((svg or {}).items())
    cells = "".join(
        f'<tr><th style="text-align:left;font-weight:normal;opacity:.75">{escape(name)}</th>'
        f'<td style="text-align:left;white-space:pre-wrap">{value}</td></tr>'
        for name, value in lines
    )
    return f"<table><caption style='text-align:left;font-weight:bold'>{escape(title)}</caption>{cells}</table>"


def sparkline(values: Sequence[float], label: str) -> str:
    """A line through ``values``, the lowest at the bottom; ``label`` says what it shows (also to a screen reader)."""
    if not values:
        return "–"
    low, high = min(values), max(values)
    span, step = (high - low) or 1, WIDTH / max(1, len(values) - 1)
    thinned = range(0, len(values), max(1, len(values) // WIDTH))  # a point a pixel is plenty
    points = " ".join(f"{i * step:.1f},{(HEIGHT - 3) * (1 - (values[i] - low) / span) + 1.5:.1f}" for i in thinned)
    text = f"{label}: {readable(low)} to {readable(high)}"
    return (
        f'<svg width="{WIDTH}" height="{HEIGHT}" role="img" aria-label="{escape(text, quote=True)}">'
        f'<polyline points="{points}" fill="none" stroke="currentColor" stroke-width="1.5"/></svg> '
        f"<small>{escape(text)}</small>"
    )


def readable(value: Any) -> str:
    """A number with few digits and separators; ``–`` for nothing; anything else as text."""
    if value is None:
        return "–"
    if isinstance(value, float):
        return f"{value:,.4g}"
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)
