"""Charts of one trace or of several: functions that return a plotly ``Figure``, with titles, units and hover.

Each takes a trace, or a mapping from a name to a trace, which are then compared. A name has the same colour in every
chart that is given the same mapping; what a colour means for cells of the batch it also means here (`colours.py`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from blockserve.tracing.metrics import WASTE_LABELS, unended_rows, waste
from blockserve_viz.colours import LIGHT, SERIES, WASTE

if TYPE_CHECKING:
    from blockserve.tracing.trace import Trace

_FONT = "system-ui, -apple-system, 'Segoe UI', 'DejaVu Sans', sans-serif"
MOST_POINTS = 4_000  # a line of more cycles is thinned: a screen has no more columns, and reports stay small


def named(traces: Trace | Mapping[str, Trace]) -> dict[str, Trace]:
    """``traces`` as a mapping; a single trace is named by its preset."""
    if isinstance(traces, Mapping):
        return dict(traces)
    return {(traces.run.preset if traces.run else None) or "run": traces}


def batch_over_time(traces: Trace | Mapping[str, Trace]) -> go.Figure:
    """Above: rows in the batch (dotted) and those still generating (filled); below: box width. Over seconds.

    The gap between the two upper lines is rows that have ended and wait for their group (static batching).
    """
    figure = make_subplots(rows=2, cols=1, shared_xaxes=True, vertical_spacing=0.07, row_heights=[0.58, 0.42])
    for (name, trace), colour in zip(named(traces).items(), _colours(), strict=False):
        times, batch, generating, width = _over_time(trace)
        line = {"color": colour, "width": 2, "shape": "hv"}
        dotted = line | {"dash": "dot", "width": 1.2}
        filled = {"fill": "tozeroy", "fillcolor": _faint(colour)}
        hover = f"{name}: %{{y}} %{{meta}} at %{{x:.2f}} s<extra></extra>"
        common = {"x": times, "mode": "lines", "hovertemplate": hover, "legendgroup": name, "name": name}
        figure.add_scatter(**common, **filled, y=generating, line=line, meta="rows generating", row=1, col=1)
        figure.add_scatter(**common, y=batch, line=dotted, meta="rows in the batch", showlegend=False, row=1, col=1)
        figure.add_scatter(**common, y=width, line=line, meta="tokens wide", showlegend=False, row=2, col=1)
    figure.update_yaxes(title_text="rows", rangemode="tozero", row=1, col=1)
    figure.update_yaxes(title_text="width (tokens)", rangemode="tozero", row=2, col=1)
    figure.update_xaxes(title_text="time (s)", row=2, col=1)
    subtitle = "rows generating (filled) and rows held (dotted); below, the width of the box"
    return _styled(figure, "The batch over time", subtitle, height=500)


def waste_bars(traces: Trace | Mapping[str, Trace]) -> go.Figure:
    """Where the row-tokens went (`blockserve.tracing.metrics.waste`): one stacked bar a trace."""
    parts = {name: waste(trace) for name, trace in named(traces).items()}
    totals = {name: max(1, sum(values.values())) for name, values in parts.items()}
    names = list(parts)
    figure = go.Figure()
    for category, colour in WASTE.items():
        values = [parts[name][category] for name in names]
        if not any(values):
            continue
        shares = [100 * value / totals[name] for name, value in zip(names, values, strict=True)]
        figure.add_bar(
            y=names,
            x=values,
            orientation="h",
            name=WASTE_LABELS[category],
            marker={"color": colour, "line": {"color": LIGHT["surface"], "width": 1}},
            customdata=shares,
            text=[f"{share:.0f}%" if share >= 4 else "" for share in shares],
            textposition="inside",
            insidetextanchor="middle",
            textangle=0,
            hovertemplate=(
                f"%{{y}}: {WASTE_LABELS[category]}<br>%{{x:,}} row-tokens, %{{customdata:.1f}}%<extra></extra>"
            ),
        )
    figure.update_layout(barmode="stack", legend_traceorder="normal", bargap=0.35)
    figure.update_layout(uniformtext={"minsize": 10, "mode": "hide"})
    figure.update_xaxes(title_text="row-tokens (cells forwarded: rows × width, over all passes)")
    figure.update_yaxes(autorange="reversed", ticksuffix="  ", automargin=True)
    subtitle = "every cell of every forward pass, in exactly one category"
    return _styled(figure, "Where the work went", subtitle, height=260 + 56 * len(names))


def latency_by_length(traces: Trace | Mapping[str, Trace]) -> go.Figure:
    """End-to-end latency (arrival to eviction, seconds) against valid output tokens: one point a request."""
    figure = go.Figure()
    for (name, trace), colour in zip(named(traces).items(), _colours(), strict=False):
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
    return _styled(figure, "Latency by output length", subtitle, height=450)


def _over_time(trace: Trace) -> tuple[list[float], list[int], list[int], list[int]]:
    """Start of each cycle (s), rows, unended rows, box width; closed by zeros at the end of the run."""
    cycles = trace.cycle_records
    if not cycles:
        return [], [], [], []
    step = -(-len(cycles) // MOST_POINTS)
    kept = cycles[::step]
    times = [c.start for c in kept] + [cycles[-1].start + cycles[-1].duration]
    generating = unended_rows(trace)[::step]
    return times, [c.batch for c in kept] + [0], [*generating, 0], [c.box_width for c in kept] + [0]


def _colours() -> Any:
    """The series' colours, over and over."""
    while True:
        yield from SERIES


def _faint(colour: str) -> str:
    red, green, blue = (int(colour[i : i + 2], 16) for i in (1, 3, 5))
    return f"rgba({red},{green},{blue},0.13)"


def _styled(figure: go.Figure, title: str, subtitle: str, height: int) -> go.Figure:
    figure.update_layout(
        title={"text": f"<b>{title}</b><br><span style='font-size:13px;color:{LIGHT['muted']}'>{subtitle}</span>"},
        template="plotly_white",
        font={"family": _FONT, "size": 13, "color": LIGHT["text"]},
        height=height,
        margin={"l": 70, "r": 24, "t": 84, "b": 100},
        legend={"orientation": "h", "y": 0.01, "yanchor": "bottom", "yref": "container", "x": 0},
        hoverlabel={"font_family": _FONT},
    )
    return figure
