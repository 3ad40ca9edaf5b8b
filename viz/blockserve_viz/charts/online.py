"""Online serving: what requests that arrive over time get, against how fast they arrive."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from blockserve.tracing.metrics import goodput, latency_quantiles
from blockserve_viz.charts.base import styled
from blockserve_viz.charts.studies import by_name
from blockserve_viz.colours import LIGHT, SERIES

if TYPE_CHECKING:
    from blockserve.tracing.trace import Trace


def arrival_rates(runs: Mapping[float, Trace | Mapping[str, Trace]], limit: float) -> go.Figure:
    """Left: requests/s answered within ``limit`` seconds (goodput); right: median and p99 latency, a log axis.

    ``runs`` maps an arrival rate [requests/s] to its trace(s). On the dashed line every request is answered in time.
    """
    series = by_name(runs)
    figure = make_subplots(rows=1, cols=2, horizontal_spacing=0.11)
    most = max(runs)
    line = {"color": LIGHT["muted"], "width": 1, "dash": "dash"}
    common = {"mode": "lines", "showlegend": False, "hoverinfo": "skip", "line": line}
    figure.add_scatter(**common, x=[0, most], y=[0, most], row=1, col=1)
    figure.add_scatter(**common, x=[min(runs), most], y=[limit, limit], row=1, col=2)
    for place, (name, own) in enumerate(series.items()):
        colour = SERIES[place % len(SERIES)]
        rates = sorted(own)
        times = [latency_quantiles(own[rate]).loc["end_to_end"] for rate in rates]
        curves = (
            ("goodput", [goodput(own[rate], limit) for rate in rates], 1, "solid"),
            ("median", [t["p50"] for t in times], 2, "dot"),
            ("p99", [t["p99"] for t in times], 2, "solid"),
        )
        for what, values, column, dash in curves:
            figure.add_scatter(
                x=rates,
                y=values,
                mode="lines+markers",
                name=name,
                legendgroup=name,
                showlegend=what == "goodput",
                line={"color": colour, "width": 2, "dash": dash},
                marker={"size": 7},
                hovertemplate=f"{name} at %{{x:.3g}} requests/s: {what} %{{y:.3g}}<extra></extra>",
                row=1,
                col=column,
            )
    figure.update_xaxes(title_text="arrivals (requests/s)", rangemode="tozero")
    figure.update_yaxes(title_text="goodput (requests/s)", rangemode="tozero", row=1, col=1)
    ticks = [digit * 10.0**power for power in range(-4, 6) for digit in (1, 2, 5)]
    log = {"type": "log", "tickvals": ticks, "ticktext": [f"{tick:,g}" for tick in ticks]}
    figure.update_yaxes(**log, title_text="latency (s): p99, median dotted", row=1, col=2)
    first = {name: next(iter(own.values())) for name, own in series.items()}
    subtitle = f"goodput: answered within {limit:.3g} s; dashed: every request in time, and that limit"
    return styled(figure, "Goodput and latency against the arrival rate", subtitle, 430, first)
