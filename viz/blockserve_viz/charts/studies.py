"""Many runs in one picture: the ladder, scaling with the batch size (RQ3), ablations (RQ5).

A group of runs is a mapping from what was varied to a trace, or to a mapping from a name to a trace, which then
gives one line or one colour a name. Traces of level ``summary`` will do, except where padding or passes are shown.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from statistics import median
from typing import TYPE_CHECKING, Any

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from blockserve.core import ConfigError
from blockserve.presets import PRESETS
from blockserve.tracing.metrics import summarize, wall_seconds
from blockserve_viz.charts.base import named, styled
from blockserve_viz.colours import SERIES

if TYPE_CHECKING:
    from blockserve.studies.race import Race
    from blockserve.tracing.trace import Trace

    Runs = Mapping[Any, Trace | Mapping[str, Trace]]

# quantity → (axis title, value of a summary, hover format)
QUANTITIES: Mapping[str, tuple[str, Callable[[Mapping[str, Any]], float | None], str]] = {
    "throughput": ("valid tokens/s", lambda s: s["tokens_per_s"], ":,.1f"),
    "latency": ("median latency (s)", lambda s: s["latency_p50_s"], ":.3f"),
    "padding": ("padding (% of cells)", lambda s: 100 * s["padding_fraction"], ":.1f"),
    "commits": ("tokens committed a row pass", lambda s: s["tokens_per_row_pass"], ":.2f"),
    "accuracy": ("accuracy (%)", lambda s: None if s["accuracy"] is None else 100 * s["accuracy"], ":.1f"),
}


def scaling(runs: Runs) -> go.Figure:
    """Throughput and median latency against the batch size (RQ3): ``runs`` maps a size [rows] to its trace(s)."""
    series = by_name(runs)
    figure = _panels(("throughput", "latency"))
    for name, colour, own in _series(series):
        numbers = {size: summarize(trace) for size, trace in sorted(own.items())}
        for column, quantity in enumerate(("throughput", "latency"), start=1):
            title, value, form = QUANTITIES[quantity]
            figure.add_scatter(
                x=list(numbers),
                y=[value(s) for s in numbers.values()],
                mode="lines+markers",
                name=name,
                legendgroup=name,
                showlegend=column == 1,
                line={"color": colour, "width": 2},
                marker={"size": 8},
                hovertemplate=f"{name}, batch size %{{x}}: %{{y{form}}} {title}<extra></extra>",
                row=1,
                col=column,
            )
    sizes = sorted(runs)
    figure.update_xaxes(title_text="batch size (rows)", type="log", tickvals=sizes, ticktext=[str(s) for s in sizes])
    figure.update_yaxes(rangemode="tozero")
    subtitle = "throughput of the whole run, and the median request from arrival to leaving the batch"
    return styled(figure, "Scaling with the batch size", subtitle, 430, _all(series))


def block_lengths(runs: Runs) -> go.Figure:
    """Ablation of the block length (RQ5): ``runs`` maps L [tokens] to its trace(s). Accuracy where runs are graded."""
    graded = any(
        c.correct is not None for traces in runs.values() for t in named(traces).values() for c in t.completion_records
    )
    figure = _bars(runs, ("throughput", "commits", *(("accuracy",) if graded else ())), "block length (tokens)")
    subtitle = "the same requests in blocks of another length: throughput, tokens a pass, and accuracy where graded"
    return styled(figure, "Block length", subtitle, 430, _all(by_name(runs)))


def orders(runs: Runs) -> go.Figure:
    """Ablation of sorting (RQ5): ``runs`` maps the queue's order to its trace(s)."""
    figure = _bars(runs, ("throughput", "padding", "latency"), "order of the queue")
    subtitle = "the same requests, only sorted otherwise: throughput, padding, and the median request's latency"
    return styled(figure, "Order of the queue", subtitle, 430, _all(by_name(runs)))


def ladder(runs: Mapping[str, Trace] | Race) -> go.Figure:
    """Throughput of presets, one change a rung: a mapping from preset to trace, or a `Race` (median over its repeats,
    with its lowest and highest). Each bar says how much faster it is than the one before."""
    traces: Mapping[str, Trace] = runs if isinstance(runs, Mapping) else runs.traces
    if not traces:
        raise ConfigError("a ladder needs at least one run")
    walls = {name: [wall_seconds(t)] for name, t in traces.items()} if isinstance(runs, Mapping) else runs.walls
    tokens = {name: sum(c.valid_tokens for c in trace.completion_records) for name, trace in traces.items()}
    speed = {name: _rate(tokens[name], median(walls[name])) for name in traces}
    first, before = next(iter(speed.values())), None
    texts, hovers = [], []
    for name, value in speed.items():
        texts.append("" if not before else f"×{value / before:.2f}")
        about = PRESETS[name].about.removeprefix("… ") if name in PRESETS else ""
        hovers.append([about, f"×{value / first:.2f} of the first" if first else ""])
        before = value
    figure = go.Figure()
    figure.add_bar(
        x=list(speed),
        y=list(speed.values()),
        error_y=_whiskers(tokens, walls, speed),
        marker_color=[SERIES[0], *[SERIES[1]] * (len(speed) - 1)],
        text=texts,
        textposition="outside",
        cliponaxis=False,
        customdata=hovers,
        hovertemplate="%{x}: %{customdata[0]}<br>%{y:,.1f} valid tokens/s, %{customdata[1]}<extra></extra>",
    )
    figure.update_xaxes(title_text="preset: each changes one thing", type="category", tickangle=-25, automargin=True)
    figure.update_yaxes(title_text="valid tokens/s", rangemode="tozero")
    repeats = min(len(own) for own in walls.values())
    subtitle = "× over the preset before" + (f"; median, lowest and highest of {repeats} runs" if repeats > 1 else "")
    return styled(figure, "The ladder", subtitle, 480, traces)


def by_name(runs: Runs) -> dict[str, dict[Any, Trace]]:
    """Name → what was varied → trace."""
    if not runs:
        raise ConfigError("nothing to draw; give a mapping from what was varied to its trace(s)")
    series: dict[str, dict[Any, Trace]] = {}
    for key, traces in runs.items():
        for name, trace in named(traces).items():
            series.setdefault(name, {})[key] = trace
    return series


def _bars(runs: Runs, quantities: tuple[str, ...], axis: str) -> go.Figure:
    """Grouped bars, one panel a quantity: along the axis what was varied, a colour a name."""
    figure = _panels(quantities)
    for name, colour, own in _series(by_name(runs)):
        numbers = {str(key): summarize(trace) for key, trace in own.items()}
        for column, quantity in enumerate(quantities, start=1):
            title, value, form = QUANTITIES[quantity]
            figure.add_bar(
                x=list(numbers),
                y=[value(s) for s in numbers.values()],
                name=name,
                legendgroup=name,
                showlegend=column == 1,
                marker_color=colour,
                hovertemplate=f"{name}, {axis.split(' (')[0]} %{{x}}: %{{y{form}}} {title}<extra></extra>",
                row=1,
                col=column,
            )
    figure.update_xaxes(title_text=axis, type="category", categoryorder="array", categoryarray=[str(k) for k in runs])
    figure.update_yaxes(rangemode="tozero")
    return figure


def _panels(quantities: tuple[str, ...]) -> go.Figure:
    """One panel a quantity, side by side, its unit on its axis."""
    figure = make_subplots(rows=1, cols=len(quantities), horizontal_spacing=0.11)
    for column, quantity in enumerate(quantities, start=1):
        figure.update_yaxes(title_text=QUANTITIES[quantity][0], row=1, col=column)
    return figure


def _series(series: Mapping[str, dict[Any, Trace]]) -> list[tuple[str, str, dict[Any, Trace]]]:
    """(name, colour, its traces): a name has the colour that it has in charts of traces."""
    return [(name, SERIES[place % len(SERIES)], own) for place, (name, own) in enumerate(series.items())]


def _all(series: Mapping[str, dict[Any, Trace]]) -> dict[str, Trace]:
    """Every trace by a readable name, for the title's mark."""
    if all(len({t.run is not None and t.run.device for t in own.values()}) == 1 for own in series.values()):
        return {name: next(iter(own.values())) for name, own in series.items()}
    return {f"{name} {key}": trace for name, own in series.items() for key, trace in own.items()}


def _rate(tokens: int, seconds: float) -> float:
    return tokens / seconds if seconds else 0.0


def _whiskers(tokens: Mapping[str, int], walls: Mapping[str, Any], speed: Mapping[str, float]) -> dict[str, Any] | None:
    """From the slowest to the fastest repeat."""
    if min(len(own) for own in walls.values()) < 2:
        return None
    up = [_rate(tokens[name], min(walls[name])) - speed[name] for name in speed]
    down = [speed[name] - _rate(tokens[name], max(walls[name])) for name in speed]
    return {"type": "data", "symmetric": False, "array": up, "arrayminus": down, "thickness": 1.2}
