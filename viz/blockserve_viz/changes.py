"""Two runs of the same requests in a small table: what the second changes. HTML without script, for either theme."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from typing import TYPE_CHECKING, Any

from blockserve.reprs import readable
from blockserve.tracing.metrics import summarize

if TYPE_CHECKING:
    from blockserve.tracing import Trace

# key of `summarize` → (what it is called, whether a change is told in per cent)
LINES: Mapping[str, tuple[str, bool]] = {
    "wall_s": ("whole run (s, predicted)", True),
    "tokens_per_s": ("valid tokens/s", True),
    "latency_p50_s": ("median latency (s)", True),
    "latency_p99_s": ("99% of latencies below (s)", True),
    "batch_mean": ("rows in the batch, mean", True),
    "cost_max": ("largest box (tokens)", True),
    "padding_fraction": ("padding (share of cells)", True),
    "cycles": ("block cycles", True),
    "preemptions": ("preemptions", False),
}
_CELL = "text-align:right;padding:1px 10px;font-variant-numeric:tabular-nums"


def change_table(start: Trace, now: Trace) -> str:
    """One line a metric: at the start, now, and the change."""
    before, after = summarize(start), summarize(now)
    lines = [
        f'<tr data-metric="{key}"><th style="text-align:left;font-weight:normal">{escape(label)}</th>'
        + "".join(f'<td style="{_CELL}">{text}</td>' for text in _texts(before[key], after[key], percent))
        + "</tr>"
        for key, (label, percent) in LINES.items()
    ]
    head = "".join(f'<th style="{_CELL}">{name}</th>' for name in ("start", "now", "change"))
    body = f"<tr><th></th>{head}</tr>{''.join(lines)}"
    return f'<table data-testid="explorer-change" style="line-height:1.35">{body}</table>'


def _texts(before: Any, after: Any, percent: bool) -> tuple[str, str, str]:
    return readable(before), readable(after), _change(before, after, percent)


def _change(before: float | None, after: float | None, percent: bool) -> str:
    """``+12.5%``, or the difference of counts; nothing where it says nothing."""
    if before is None or after is None or before == after:
        return ""
    if percent:
        return f"{after / before - 1:+.1%}" if before else ""
    return f"{after - before:+,}"
