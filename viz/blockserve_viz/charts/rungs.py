"""The ladder of many workloads at once (RQ1): what every rung is worth to each of them, by the clock and in work."""

from __future__ import annotations

from collections.abc import Mapping
from math import log10
from typing import TYPE_CHECKING

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from blockserve.core import ConfigError
from blockserve.studies.ladder import TOP, climb, verdict
from blockserve_viz.charts.base import styled
from blockserve_viz.colours import LIGHT, WASTE

if TYPE_CHECKING:
    from blockserve.studies.experiment import Measured
    from blockserve.studies.ladder import Step
    from blockserve.studies.results import Interval

PANELS = {"faster": "valid tokens/s ÷ the rung below", "less_work": "row-tokens of the rung below ÷ own"}
STRONG = 2.0  # the factor at which a colour is full: one extreme workload must not bleach the others
FRAME, GAP, LINE = 184, 94, 34  # pixels: title and margins; between the panels, for names and axis title; a workload
# Orange: worse than the rung below; blue: better. Light enough for dark text.
SCALE = ((0.0, LIGHT["bar"]), (0.5, LIGHT["surface"]), (1.0, WASTE["suffix"]))


def rungs(ladders: Mapping[str, Measured]) -> go.Figure:
    """One line a workload, one column a rung: how many times as fast as the rung below (top), and how many times fewer
    row-tokens (bottom). A factor in brackets is not shown to differ from 1: its 95% interval holds 1, or is unknown.

    ``ladders``: a name to what `measure` found for `ladder.arms`.
    """
    if not ladders:
        raise ConfigError("nothing to draw; give a mapping from a workload to its measured ladder")
    lines = {name: climb(found)[1:] for name, found in ladders.items()}
    figure = make_subplots(rows=2, cols=1, vertical_spacing=GAP / (_height(len(lines)) - FRAME))
    for row, (own, title) in enumerate(PANELS.items(), start=1):
        figure.add_trace(_heat(lines, own), row=row, col=1)
        figure.update_xaxes(title_text=title, title_standoff=6, row=row, col=1)
    figure.update_yaxes(autorange="reversed", automargin=True)
    figure.update_xaxes(tickangle=0)
    subtitle = "one change a rung, * scheduling; (in brackets): 95% interval over repeats does not exclude 1"
    traces = {name: found.traces[TOP] for name, found in ladders.items()}
    return styled(figure, "What every rung is worth", subtitle, _height(len(lines)), traces)


def _height(lines: int) -> int:
    """Pixels of the whole chart: two panels of a line a workload, the gap between them, and the frame around."""
    return FRAME + GAP + 2 * LINE * lines


def _heat(lines: Mapping[str, tuple[Step, ...]], own: str) -> go.Heatmap:
    """One panel: ``own`` is the field of a step that it shows."""
    factors: dict[str, list[Interval]] = {name: [getattr(step, own) for step in steps] for name, steps in lines.items()}
    first = next(iter(lines.values()))
    return go.Heatmap(
        z=[[log10(f.mean) for f in row] for row in factors.values()],
        x=[_column(step) for step in first],
        y=list(factors),
        text=[[_shown(f) for f in row] for row in factors.values()],
        texttemplate="%{text}",
        textfont={"color": LIGHT["text"]},
        customdata=[
            [[str(f), step.rung.kind, ", ".join(step.rung.changes)] for f, step in zip(row, lines[name], strict=True)]
            for name, row in factors.items()
        ],
        hovertemplate=f"%{{y}}, %{{x}}: %{{customdata[0]}}, {PANELS[own]}<br>%{{customdata[1]}}: %{{customdata[2]}}"
        "<extra></extra>",
        colorscale=[list(stop) for stop in SCALE],
        zmin=-log10(STRONG),
        zmax=log10(STRONG),
        showscale=False,
        xgap=2,
        ygap=2,
    )


def _column(step: Step) -> str:
    """A rung's name in two lines at most, with its mark."""
    return step.rung.preset.replace("-", "-<br>", 1) + ("*" if step.rung.kind == "scheduling" else "")


def _shown(factor: Interval) -> str:
    text = f"×{factor.mean:.2f}"
    return text if verdict(factor) in ("helps", "hurts") else f"({text})"
