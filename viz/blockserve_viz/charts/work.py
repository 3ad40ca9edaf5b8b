"""Where the work went: every cell of every forward pass in one category."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import plotly.graph_objects as go

from blockserve.tracing.metrics import WASTE_LABELS, waste
from blockserve_viz.charts.base import named, styled
from blockserve_viz.colours import LIGHT, WASTE

if TYPE_CHECKING:
    from blockserve.tracing.trace import Trace


def waste_bars(traces: Trace | Mapping[str, Trace]) -> go.Figure:
    """Where the row-tokens went (`blockserve.tracing.metrics.waste`): one stacked bar a trace."""
    traces = named(traces)
    parts = {name: waste(trace) for name, trace in traces.items()}
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
    return styled(figure, "Where the work went", subtitle, 260 + 56 * len(names), traces)
