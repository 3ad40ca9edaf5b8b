"""Latency against output length (RQ2): a point a request, and as distributions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import plotly.graph_objects as go

from blockserve.core import check_int
from blockserve.tracing.metrics import FINISHED_REASONS
from blockserve_viz.charts.base import coloured, faint, named, styled
from blockserve_viz.colours import LIGHT

if TYPE_CHECKING:
    from blockserve.tracing.trace import Trace

MOST_BINS = 6


def latency_by_length(traces: Trace | Mapping[str, Trace]) -> go.Figure:
    """End-to-end latency (arrival to eviction, seconds) against valid output tokens: one point a request."""
    traces = named(traces)
    figure = go.Figure()
    for name, trace, colour in coloured(traces):
        done = [c for c in trace.completion_records if c.evicted is not None and c.admitted is not None]
        figure.add_scatter(
            x=[c.valid_tokens for c in done],
            y=[c.evicted - c.arrival for c in done],
            mode="markers",
            name=name,
            marker={"color": colour, "size": 8, "opacity": 0.75, "line": {"color": LIGHT["surface"], "width": 0.7}},
            customdata=[[c.id, c.reason, c.blocks] for c in done],
            hovertemplate=(
                f"{name}: %{{customdata[0]}}<br>%{{x}} valid tokens in %{{customdata[2]}} blocks (%{{customdata[1]}})"
                "<br>%{y:.2f} s<extra></extra>"
            ),
        )
    figure.update_xaxes(title_text="valid output (tokens)", rangemode="tozero")
    figure.update_yaxes(title_text="latency (s)", rangemode="tozero")
    subtitle = "from arrival to leaving the batch; one point a request"
    return styled(figure, "Latency by output length", subtitle, 450, traces)


def latency_violins(traces: Trace | Mapping[str, Trace], tokens_per_bin: int | None = None) -> go.Figure:
    """Distribution of end-to-end latency (seconds) by valid output length: one violin a trace and bin.

    ``tokens_per_bin``: default as many blocks as make at most six bins. Only finished requests count.
    """
    traces = named(traces)
    step = tokens_per_bin or default_bin(traces)
    check_int("tokens_per_bin", step, 1)
    figure = go.Figure()
    places = set()
    for name, trace, colour in coloured(traces):
        done = [c for c in trace.completion_records if c.reason in FINISHED_REASONS]
        done.sort(key=lambda c: c.valid_tokens)
        places |= {bin_of(c.valid_tokens, step) for c in done}
        figure.add_violin(
            x=[bin_label(bin_of(c.valid_tokens, step), step) for c in done],
            y=[c.evicted - c.arrival for c in done],
            name=name,
            line={"color": colour, "width": 1.4},
            fillcolor=faint(colour, 0.3),
            scalemode="width",
            spanmode="hard",  # a latency below the fastest request was never seen
            meanline_visible=True,
            points="all",
            pointpos=0,
            jitter=0.35,
            marker={"size": 3, "opacity": 0.55, "color": colour},
            customdata=[[c.id, c.valid_tokens] for c in done],
            hovertemplate=f"{name}: %{{customdata[0]}}<br>%{{customdata[1]}} tokens in %{{y:.2f}} s<extra></extra>",
        )
    figure.update_layout(violinmode="group", violingap=0.15, violingroupgap=0.05)
    labels = [bin_label(place, step) for place in sorted(places)]
    figure.update_xaxes(title_text="valid output (tokens)", categoryorder="array", categoryarray=labels)
    figure.update_yaxes(title_text="latency (s)", rangemode="tozero")
    subtitle = "from arrival to leaving the batch; the line across is the mean, a dot is a request"
    return styled(figure, "Latency by output length", subtitle, 470, traces)


def default_bin(traces: Mapping[str, Trace]) -> int:
    """Tokens a bin: the fewest whole blocks that make at most `MOST_BINS` bins of the longest output."""
    block = max((t.run.decode["block_length"] for t in traces.values() if t.run), default=1)
    longest = max((c.valid_tokens for t in traces.values() for c in t.completion_records), default=0)
    return block * max(1, -(-longest // (block * MOST_BINS)))


def bin_of(tokens: int, step: int) -> int:
    """Which bin an output belongs to: 0 to ``step`` tokens are the first, so that a limit closes the last."""
    return max(0, tokens - 1) // step


def bin_label(place: int, step: int) -> str:
    """``0–32``, ``33–64``, …"""
    return f"{place * step + (place > 0)}–{(place + 1) * step}"
