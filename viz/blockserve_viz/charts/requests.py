"""Every request, block by block: when it ran (Gantt), and in how many steps (heat map)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import plotly.graph_objects as go

from blockserve.tracing.metrics import wall_seconds
from blockserve_viz.charts.base import named, styled
from blockserve_viz.colours import LIGHT, WASTE

if TYPE_CHECKING:
    from blockserve.tracing.records import CycleRecord
    from blockserve.tracing.trace import Trace

MOST_REQUESTS = 120  # lines that a screen can hold apart
LABELLED = 48  # lines that have room for an id
LONGEST_ID = 20  # characters on the axis; ids differ at their end


@dataclass(frozen=True)
class Bar:
    """A stretch of one request's life: ``kind`` as in `KINDS`, seconds, and what hovering tells."""

    id: str
    kind: str
    start: float
    end: float
    text: str
    block: int | None = None


# kind → (legend, colour, thickness as a share of the line)
KINDS: dict[str, tuple[str, str, float]] = {
    "waits": ("waits", WASTE["padding"], 0.16),
    "block": ("a block", LIGHT["finished"], 0.78),
    "ending": ("the block that completes it", LIGHT["ended"], 0.78),
    "frozen": ("has ended, waits for its group", WASTE["ended"], 0.42),
}


def gantt(trace: Trace, most: int = MOST_REQUESTS) -> go.Figure:
    """One line a request, in order of admission; a bar a block, over seconds. At most ``most`` requests."""
    order = by_admission(trace)
    shown = order[:most]
    bars = [bar for bar in life_bars(trace) if bar.id in set(shown)]
    figure = go.Figure()
    for kind, (legend, colour, thickness) in KINDS.items():
        own = [bar for bar in bars if bar.kind == kind]
        if not own:
            continue
        figure.add_bar(
            y=[bar.id for bar in own],
            base=[bar.start for bar in own],
            x=[bar.end - bar.start for bar in own],
            orientation="h",
            name=legend,
            width=thickness,
            marker={"color": colour, "line": {"color": LIGHT["surface"], "width": 1 if bar_room(shown) else 0.4}},
            text=[f"B{bar.block}" if bar.block is not None and bar_room(shown) else "" for bar in own],
            textposition="inside",
            insidetextanchor="middle",
            textangle=0,
            customdata=[[bar.text, bar.start, bar.end] for bar in own],
            hovertemplate="%{y}: %{customdata[0]}<br>%{customdata[1]:.3f} to %{customdata[2]:.3f} s<extra></extra>",
        )
    figure.update_layout(barmode="overlay", uniformtext={"minsize": 8, "mode": "hide"})
    figure.update_xaxes(title_text="time (s)", rangemode="tozero")
    _request_axis(figure, shown)
    left_out = f"; the first {len(shown)} of {len(order)} requests" if len(shown) < len(order) else ""
    subtitle = f"one line a request, in order of admission; one bar a block{left_out}"
    return styled(figure, "Requests by block", subtitle, _height(shown), named(trace))


def steps_heatmap(trace: Trace, most: int = MOST_REQUESTS) -> go.Figure:
    """Denoise steps of every block of every request. A cycle lasts as long as its slowest row: dark cells make the
    others wait."""
    order = by_admission(trace)
    shown = order[:most]
    steps = {(row.id, row.block): (row.steps, c.index) for c in trace.cycle_records for row in c.rows if not row.frozen}
    blocks = 1 + max((block for _, block in steps), default=-1)
    cells = [[steps.get((name, block), (None, None)) for block in range(blocks)] for name in shown]
    figure = go.Figure()
    figure.add_heatmap(
        x=list(range(blocks)),
        y=shown,
        z=[[cell[0] for cell in line] for line in cells],
        customdata=[[cell[1] for cell in line] for line in cells],
        colorscale=[[0, LIGHT["next"]], [0.5, LIGHT["active"]], [1, LIGHT["next_text"]]],
        xgap=1,
        ygap=1 if bar_room(shown) else 0,
        colorbar={"title": {"text": "steps"}, "thickness": 14},
        hoverongaps=False,
        hovertemplate="%{y}: block %{x} took %{z} steps (cycle %{customdata})<extra></extra>",
    )
    figure.update_xaxes(title_text="block (index)", dtick=1 if blocks <= 24 else None)
    _request_axis(figure, shown)
    left_out = f"; the first {len(shown)} of {len(order)} requests" if len(shown) < len(order) else ""
    subtitle = f"denoise steps until a block was finished; one line a request, in order of admission{left_out}"
    return styled(figure, "Steps a block", subtitle, _height(shown), named(trace))


def by_admission(trace: Trace) -> list[str]:
    """Ids in order of first admission; those never admitted come last, as submitted."""
    entered = dict.fromkeys(row.id for cycle in trace.cycle_records for row in cycle.rows)
    return list(entered | dict.fromkeys(r.id for r in trace.request_records))


def life_bars(trace: Trace) -> Iterator[Bar]:
    """Every stretch of every request's life, in no particular order: a bar a block, one for each wait in the queue,
    and one for the time that a row which has ended is held by its group."""
    since = {r.id: r.arrival for r in trace.request_records}  # whoever waits, and from when
    held: dict[str, Bar] = {}
    present: set[str] = set()
    for cycle in trace.cycle_records:
        end = cycle.start + cycle.duration
        for row in cycle.rows:
            if row.id not in present and since.get(row.id, cycle.start) < cycle.start:
                yield Bar(row.id, "waits", since[row.id], cycle.start, "waits in the queue")
            if row.frozen:
                first = held.get(row.id)
                start = first.start if first else cycle.start
                held[row.id] = Bar(row.id, "frozen", start, end, "has ended, waits for its group")
                continue
            kind = "block" if row.ended is None else "ending"
            why = "" if row.ended is None else f", complete ({row.ended})"
            text = f"block {row.block} in {row.steps} steps, cycle {cycle.index}, width {row.width}{why}"
            yield Bar(row.id, kind, cycle.start, end, text, row.block)
        since |= {row.id: end for row in cycle.rows}
        present = _staying(cycle)
    yield from held.values()
    yield from _never_ran(trace)


def _staying(cycle: CycleRecord) -> set[str]:
    """Rows that the boundary after the cycle does not evict (a preemption shows as a gap in the next cycle)."""
    return {row.id for row in cycle.rows} - {request_id for request_id, _ in cycle.evicted}


def _never_ran(trace: Trace) -> Iterator[Bar]:
    """The wait of those who were never admitted, until they left or the run ended."""
    ran = {row.id for cycle in trace.cycle_records for row in cycle.rows}
    left = {c.id: c for c in trace.completion_records}
    for request in trace.request_records:
        done = left.get(request.id)
        if request.id in ran or (done and done.evicted is None):  # rejected: it never waited
            continue
        end = done.evicted if done else wall_seconds(trace)
        if end > request.arrival:
            yield Bar(request.id, "waits", request.arrival, end, f"never ran ({done.reason if done else 'no end'})")


def bar_room(shown: list[str]) -> bool:
    """Whether a line is tall enough for text and gaps."""
    return len(shown) <= LABELLED


def _request_axis(figure: go.Figure, shown: list[str]) -> None:
    figure.update_yaxes(
        type="category",  # ids may look like numbers
        categoryorder="array",
        categoryarray=shown,
        range=[len(shown) - 0.5, -0.5],
        tickvals=shown,
        ticktext=[name if len(name) <= LONGEST_ID else f"…{name[1 - LONGEST_ID :]}" for name in shown],
        showticklabels=bar_room(shown),
        title_text="request",
        automargin=True,
        ticksuffix=" ",
    )


def _height(shown: list[str]) -> int:
    """Pixels: a line of text each, while there is room for it."""
    return 210 + 18 * min(len(shown), LABELLED)
