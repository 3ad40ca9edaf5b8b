"""What all charts share: names and colours of traces, the mark of simulated times, fonts, margins."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

import plotly.graph_objects as go

from blockserve_viz.colours import LIGHT, SERIES

if TYPE_CHECKING:
    from blockserve.tracing.trace import Trace

FONT = "system-ui, -apple-system, 'Segoe UI', 'DejaVu Sans', sans-serif"


def named(traces: Trace | Mapping[str, Trace]) -> dict[str, Trace]:
    """``traces`` as a mapping; a single trace is named by its preset."""
    if isinstance(traces, Mapping):
        return dict(traces)
    return {(traces.run.preset if traces.run else None) or "run": traces}


def coloured(traces: Mapping[str, Trace]) -> Iterator[tuple[str, Trace, str]]:
    """(name, trace, colour), the colours over and over."""
    for place, (name, trace) in enumerate(traces.items()):
        yield name, trace, SERIES[place % len(SERIES)]


def is_simulated(trace: Trace) -> bool:
    """Whether the trace's seconds were predicted by a cost model."""
    return trace.run is not None and trace.run.device.startswith("simulated")


def simulated_mark(traces: Mapping[str, Trace]) -> str:
    """What a title says of predicted seconds: of all traces, or of which."""
    simulated = [name for name, trace in traces.items() if is_simulated(trace)]
    if not simulated:
        return ""
    return " (simulated)" if len(simulated) == len(traces) else f" (simulated: {', '.join(simulated)})"


def faint(colour: str, opacity: float = 0.13) -> str:
    """``#rrggbb`` as an rgba colour."""
    red, green, blue = (int(colour[i : i + 2], 16) for i in (1, 3, 5))
    return f"rgba({red},{green},{blue},{opacity})"


def styled(figure: go.Figure, title: str, subtitle: str, height: int, traces: Mapping[str, Trace]) -> go.Figure:
    """Title, subtitle, fonts and legend of every chart; ``height`` in pixels."""
    heading = f"<b>{title}</b>{simulated_mark(traces)}"
    figure.update_layout(
        title={"text": f"{heading}<br><span style='font-size:13px;color:{LIGHT['muted']}'>{subtitle}</span>"},
        template="plotly_white",
        font={"family": FONT, "size": 13, "color": LIGHT["text"]},
        height=height,
        margin={"l": 70, "r": 24, "t": 84, "b": 100},
        legend={"orientation": "h", "y": 0.01, "yanchor": "bottom", "yref": "container", "x": 0},
        hoverlabel={"font_family": FONT},
    )
    return figure
