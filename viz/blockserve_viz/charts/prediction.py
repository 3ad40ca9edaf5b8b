"""Predicted against measured: how far the simulator is from the paper, or from a run of one's own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from blockserve.core import TraceError
from blockserve.tracing.metrics import FINISHED_REASONS
from blockserve.tracing.trace import Trace
from blockserve_viz.charts.base import faint, styled
from blockserve_viz.colours import LIGHT, SERIES

if TYPE_CHECKING:
    import pandas as pd

    from blockserve.studies.paper import PaperStudy

COLUMNS = 2  # panels side by side
UNITS = {
    "time_s": "total time (s)",
    "tps": "tokens/s",
    "R": "R (effective compute ratio)",
    "tps ratio": "ratio of tokens/s",
}


def predicted_against_measured(
    measured: PaperStudy | pd.DataFrame | Trace, predicted: Trace | None = None
) -> go.Figure:
    """Predictions (up) against what they predict (across); on the diagonal they are right, in the band within 10%.

    ``measured``: a study of the paper's rows or its table (columns ``group quantity published predicted fitted``
    and whatever tells a row apart), one panel a quantity; or the trace of a run, with ``predicted`` a simulated or
    replayed trace of the same requests: one point a request, its latency.
    """
    if isinstance(measured, Trace):
        if predicted is None:
            raise TraceError("a measured trace alone says nothing; give predicted=, the simulated trace to compare")
        return _of_traces(measured, predicted)
    return _of_table(measured if hasattr(measured, "columns") else measured.table)


def _of_table(table: pd.DataFrame) -> go.Figure:
    """One panel a quantity, one colour a group; hollow points were used in a fit."""
    quantities = list(dict.fromkeys(table["quantity"]))
    groups = {name: SERIES[place % len(SERIES)] for place, name in enumerate(dict.fromkeys(table["group"]))}
    lines = -(-len(quantities) // COLUMNS)
    figure = make_subplots(rows=lines, cols=min(COLUMNS, len(quantities)), vertical_spacing=0.3 / lines)
    seen: set[str] = set()
    for number, quantity in enumerate(quantities):
        place = {"row": 1 + number // COLUMNS, "col": 1 + number % COLUMNS}
        panel = table[table["quantity"] == quantity]
        _add_diagonal(figure, panel["published"].tolist() + panel["predicted"].tolist(), place)
        for group, own in panel.groupby("group", sort=False):
            unit = UNITS.get(quantity, quantity)
            figure.add_scatter(
                x=own["published"].tolist(),
                y=own["predicted"].tolist(),
                mode="markers",
                name=str(group),
                legendgroup=str(group),
                showlegend=group not in seen,
                marker={
                    "color": groups[group],
                    "size": 8,
                    "symbol": ["circle-open" if fitted else "circle" for fitted in own["fitted"]],
                },
                customdata=[[_words(row), row["predicted"] / row["published"] - 1] for row in own.to_dict("records")],
                hovertemplate=(
                    f"{group}: %{{customdata[0]}}<br>published %{{x:,.3g}}, predicted %{{y:,.3g}} {unit} "
                    "(%{customdata[1]:+.1%})<extra></extra>"
                ),
                **place,
            )
            seen.add(group)
        _axes(figure, place, "published: " + UNITS.get(quantity, quantity), "predicted")
    subtitle = "hollow points were used in a fit; the band is ±10%"
    title = "Predicted against published <span style='font-weight:normal'>(predictions are simulated)</span>"
    return styled(figure, title, subtitle, 130 + 330 * lines, {})


def _of_traces(measured: Trace, predicted: Trace) -> go.Figure:
    """Latency of every request that finished in both."""
    here, there = _latencies(measured), _latencies(predicted)
    ids = [name for name in here if name in there]
    if not ids:
        raise TraceError("the traces have no finished request in common; give two runs of the same requests")
    pairs = [(here[name], there[name]) for name in ids]
    figure, place = make_subplots(rows=1, cols=1), {"row": 1, "col": 1}
    _add_diagonal(figure, [value for pair in pairs for value in pair], place)
    figure.add_scatter(
        x=[a for a, _ in pairs],
        y=[b for _, b in pairs],
        mode="markers",
        name="a request",
        marker={"color": SERIES[1], "size": 8, "opacity": 0.75},
        customdata=[[name, b / a - 1 if a else 0.0] for name, (a, b) in zip(ids, pairs, strict=True)],
        hovertemplate=(
            "%{customdata[0]}<br>first trace %{x:.3f} s, second %{y:.3f} s (%{customdata[1]:+.1%})<extra></extra>"
        ),
    )
    _axes(figure, place, "measured latency (s)", "predicted latency (s)")
    subtitle = "one point a request, from arrival to leaving the batch; the band is ±10%"
    return styled(figure, "Predicted against measured", subtitle, 500, {"measured": measured, "predicted": predicted})


def _latencies(trace: Trace) -> dict[str, float]:
    return {c.id: c.evicted - c.arrival for c in trace.completion_records if c.reason in FINISHED_REASONS}


def _words(row: Mapping[str, Any]) -> str:
    """What tells a row of the study apart."""
    parts = [row.get("model"), row.get("dataset"), row.get("arm")]
    if row.get("limit"):
        parts.append(f"limit {row['limit']}")
    if row.get("batch_size"):
        parts.append(f"batch {row['batch_size']}")
    return ", ".join(str(part) for part in parts if part)


def _add_diagonal(figure: go.Figure, values: list[float], place: Mapping[str, int]) -> None:
    """The line of right predictions, in a band of ±10%."""
    positive = [value for value in values if value > 0]
    low, high = min(positive, default=1.0) * 0.8, max(positive, default=1.0) * 1.25
    common = {"mode": "lines", "showlegend": False, "hoverinfo": "skip"}
    band = {"fill": "toself", "fillcolor": faint(LIGHT["muted"], 0.12), "line": {"width": 0}}
    figure.add_scatter(
        **common, **band, x=[low, high, high, low], y=[low * 1.1, high * 1.1, high * 0.9, low * 0.9], **place
    )
    line = {"color": LIGHT["muted"], "width": 1, "dash": "dash"}
    figure.add_scatter(**common, x=[low, high], y=[low, high], line=line, **place)


def _axes(figure: go.Figure, place: Mapping[str, int], across: str, up: str) -> None:
    figure.update_xaxes(title_text=across, type="log", **place)
    figure.update_yaxes(title_text=up, type="log", **place)
