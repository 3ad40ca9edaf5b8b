"""Quality against work: what a setting of decoding trades, one panel a setting, one colour a task."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from blockserve.core import ConfigError
from blockserve.studies.decoding import DEFAULTS, by_setting
from blockserve.studies.results import wilson
from blockserve_viz.charts.base import styled
from blockserve_viz.colours import SERIES

if TYPE_CHECKING:
    from blockserve.studies.quality import Quality

COLUMNS = 2  # panels side by side


def accuracy(rows: Sequence[Quality], model: str = "") -> go.Figure:
    """Accuracy with its 95% interval against valid tokens a forward; a line joins the values of one setting.

    ``rows``: of one model, each at the defaults or with one setting changed (`one_at_a_time`). Settings that were not
    varied have no panel. ``model``: its name, for the subtitle.
    """
    if not rows:
        raise ConfigError("nothing to draw; give the rows of at least one setting")
    panels = {name: by_setting(rows, name) for name in DEFAULTS}
    shown = {name: own for name, own in panels.items() if any(len(line) > 1 for line in own.values())} or panels
    lines = -(-len(shown) // COLUMNS)
    titles = [f"by {name.replace('_', ' ')}" for name in shown]
    figure = make_subplots(
        rows=lines, cols=min(COLUMNS, len(shown)), subplot_titles=titles, vertical_spacing=0.26 / lines
    )
    for number, (name, tasks) in enumerate(shown.items()):
        for place, (task, line) in enumerate(tasks.items()):
            trace = _line(task, name, line, SERIES[place % len(SERIES)])
            trace.showlegend = number == 0
            figure.add_trace(trace, row=1 + number // COLUMNS, col=1 + number % COLUMNS)
    figure.update_xaxes(title_text="valid tokens a forward (row passes)", rangemode="tozero")
    figure.update_yaxes(title_text="accuracy (%)")
    count = max(row.problems for row in rows)
    told = f"{model}, " if model else ""
    subtitle = f"{told}{count} problems a task; whiskers: 95% intervals; large: the defaults"
    styled(figure, "Accuracy against tokens a forward", subtitle, 180 + 330 * lines, {})
    return figure.update_layout(margin_t=114)  # room for the panels' titles


def _line(task: str, name: str, rows: Sequence[Quality], colour: str) -> go.Scatter:
    """One task along one setting."""
    bounds = [wilson(row.accuracy, row.problems) for row in rows]
    values = [getattr(row, name) for row in rows]
    return go.Scatter(
        x=[row.tokens_per_forward for row in rows],
        y=[100 * row.accuracy for row in rows],
        error_y={
            "type": "data",
            "symmetric": False,
            "array": [100 * (high - row.accuracy) for row, (_, high) in zip(rows, bounds, strict=True)],
            "arrayminus": [100 * (row.accuracy - low) for row, (low, _) in zip(rows, bounds, strict=True)],
            "thickness": 1,
            "width": 3,
        },
        mode="lines+markers+text",
        text=[str(value) for value in values],
        textposition="bottom right",
        textfont={"size": 10, "color": colour},
        name=task,
        legendgroup=task,
        line={"color": colour, "width": 1.5},
        marker={"size": [12 if value == DEFAULTS[name] else 7 for value in values]},
        customdata=[[row.steps_mean, 100 * low, 100 * high] for row, (low, high) in zip(rows, bounds, strict=True)],
        hovertemplate=f"{task}, {name.replace('_', ' ')} %{{text}}: %{{y:.1f}}% (%{{customdata[1]:.1f}}–"
        "%{customdata[2]:.1f})<br>%{x:.2f} valid tokens a forward, %{customdata[0]:.2f} steps a block<extra></extra>",
    )
