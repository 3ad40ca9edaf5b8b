"""The batch over time: rows and box, the budget and its use."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import TYPE_CHECKING

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from blockserve.tracing.metrics import unended_rows
from blockserve_viz.charts.base import coloured, faint, named, styled

if TYPE_CHECKING:
    from blockserve.tracing.trace import Trace

MOST_POINTS = 4_000  # a line of more cycles is thinned: a screen has no more columns, and reports stay small


def batch_over_time(traces: Trace | Mapping[str, Trace]) -> go.Figure:
    """Above: rows in the batch (dotted) and those still generating (filled); below: box width. Over seconds.

    The gap between the two upper lines is rows that have ended and wait for their group (static batching).
    """
    traces = named(traces)
    figure = make_subplots(rows=2, cols=1, shared_xaxes=True, vertical_spacing=0.07, row_heights=[0.58, 0.42])
    for name, trace, colour in coloured(traces):
        kept = _kept(trace)
        times, generating = _times(trace, kept), unended_rows(trace)
        line = {"color": colour, "width": 2, "shape": "hv"}
        dotted = line | {"dash": "dot", "width": 1.2}
        filled = {"fill": "tozeroy", "fillcolor": faint(colour)}
        hover = f"{name}: %{{y}} %{{meta}} at %{{x:.2f}} s<extra></extra>"
        common = {"x": times, "mode": "lines", "hovertemplate": hover, "legendgroup": name, "name": name}
        rows = [[*(values[i] for i in kept), 0] if kept else [] for values in _columns(trace, generating)]
        figure.add_scatter(**common, **filled, y=rows[0], line=line, meta="rows generating", row=1, col=1)
        figure.add_scatter(**common, y=rows[1], line=dotted, meta="rows in the batch", showlegend=False, row=1, col=1)
        figure.add_scatter(**common, y=rows[2], line=line, meta="tokens wide", showlegend=False, row=2, col=1)
    figure.update_yaxes(title_text="rows", rangemode="tozero", row=1, col=1)
    figure.update_yaxes(title_text="width (tokens)", rangemode="tozero", row=2, col=1)
    figure.update_xaxes(title_text="time (s)", row=2, col=1)
    subtitle = "rows generating (filled) and rows held (dotted); below, the width of the box"
    return styled(figure, "The batch over time", subtitle, 500, traces)


def capacity(traces: Trace | Mapping[str, Trace]) -> go.Figure:
    """Admission control (RQ4). Left: the box (line) and the tokens of its rows (filled) over time, against β
    (dashed). Right: the share of the time in which so many rows were held.
    """
    traces = named(traces)
    figure = make_subplots(rows=1, cols=2, column_widths=[0.62, 0.38], horizontal_spacing=0.12)
    for name, trace, colour in coloured(traces):
        _add_budget_use(figure, name, trace, colour)
        share = rows_held(trace)
        figure.add_bar(
            x=list(share),
            y=[100 * value for value in share.values()],
            name=name,
            legendgroup=name,
            showlegend=False,
            marker_color=colour,
            hovertemplate=f"{name}: %{{x}} rows in %{{y:.1f}}% of the time<extra></extra>",
            row=1,
            col=2,
        )
    figure.update_xaxes(title_text="time (s)", row=1, col=1)
    figure.update_yaxes(title_text="box (tokens)", rangemode="tozero", row=1, col=1)
    figure.update_xaxes(title_text="rows in the batch", row=1, col=2)
    figure.update_yaxes(title_text="share of the time (%)", rangemode="tozero", row=1, col=2)
    subtitle = "box = rows × width (line), of which tokens of rows (filled); dashed: the token budget β"
    return styled(figure, "Capacity and budget use", subtitle, 440, traces)


def rows_held(trace: Trace) -> dict[int, float]:
    """Rows in the batch → share of the seconds spent in cycles, ascending; sums to 1."""
    seconds: defaultdict[int, float] = defaultdict(float)
    for cycle in trace.cycle_records:
        seconds[cycle.batch] += cycle.duration
    whole = sum(seconds.values()) or 1.0
    return {batch: seconds[batch] / whole for batch in sorted(seconds)}


def _add_budget_use(figure: go.Figure, name: str, trace: Trace, colour: str) -> None:
    """The left panel of `capacity` for one trace."""
    kept = _kept(trace)
    cycles = [trace.cycle_records[i] for i in kept]
    closing = [0] if cycles else []
    common = {"x": _times(trace, kept), "mode": "lines", "legendgroup": name, "name": name}
    budgets = [c.budget for c in cycles]
    used = [f"{100 * c.cost / c.budget:.1f}% of β = {c.budget:,}" if c.budget else "no budget" for c in cycles]
    figure.add_scatter(
        **common,
        y=[c.cost for c in cycles] + closing,
        line={"color": colour, "width": 1.8, "shape": "hv"},
        customdata=[*used, ""] if cycles else [],
        hovertemplate=f"{name}: box of %{{y:,}} tokens, %{{customdata}}, at %{{x:.2f}} s<extra></extra>",
        row=1,
        col=1,
    )
    figure.add_scatter(
        **common,
        y=[c.cost - c.padding for c in cycles] + closing,
        line={"color": colour, "width": 0, "shape": "hv"},
        fill="tozeroy",
        fillcolor=faint(colour, 0.18),
        showlegend=False,
        hovertemplate=f"{name}: %{{y:,}} tokens of rows at %{{x:.2f}} s<extra></extra>",
        row=1,
        col=1,
    )
    if any(budgets):
        figure.add_scatter(
            **common,
            y=[*budgets, budgets[-1]],
            line={"color": colour, "width": 1.2, "dash": "dash", "shape": "hv"},
            showlegend=False,
            hovertemplate=f"{name}: β = %{{y:,}} tokens<extra></extra>",
            row=1,
            col=1,
        )


def _kept(trace: Trace) -> list[int]:
    """Indexes of the cycles to draw."""
    count = len(trace.cycle_records)
    return list(range(0, count, max(1, -(-count // MOST_POINTS))))


def _times(trace: Trace, kept: list[int]) -> list[float]:
    """Start of each cycle drawn, and the end of the last one: seconds."""
    if not kept:
        return []
    cycles = trace.cycle_records
    return [*(cycles[i].start for i in kept), cycles[-1].start + cycles[-1].duration]


def _columns(trace: Trace, generating: list[int]) -> tuple[list[int], list[int], list[int]]:
    """Rows generating, rows, box width of every cycle."""
    cycles = trace.cycle_records
    return generating, [c.batch for c in cycles], [c.box_width for c in cycles]
