"""How one block was written: which positions each denoise step fixed, to what, and how sure the model was."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from typing import TYPE_CHECKING

import plotly.graph_objects as go

from blockserve.core import ConfigError, TraceError, unknown_name
from blockserve_viz.charts.base import named, styled
from blockserve_viz.colours import LIGHT

if TYPE_CHECKING:
    from collections.abc import Collection

    from blockserve.tracing.records import RowRecord
    from blockserve.tracing.trace import Trace

MASK, END = "▒", "⟨end⟩"
CLASSES = (0.0, 0.5, 0.7, 0.9, 0.99)  # of confidence, from where they begin; coloured as in the player
MOST_TEXTS = 20  # positions whose tokens can be read side by side; a longer block tells them on hovering


@dataclass(frozen=True)
class Lines:
    """What the picture shows, by step and position: the class of confidence (``None``: not fixed in this step), the
    token as it is drawn, and what hovering tells."""

    classes: list[list[int | None]]
    drawn: list[list[str]]
    told: list[list[str]]


def commits_heatmap(trace: Trace, request: str, block: int = 0) -> go.Figure:
    """One block of one request: a line a denoise step, a column a position, coloured where that step fixed a token.

    ``trace`` must have been recorded at level ``token``. Raises `UnknownNameError` for a request, `ConfigError` for a
    block that never ran, and `TraceError` where the trace does not hold its tokens.
    """
    row = _row(trace, request, block)
    length = trace.run.decode["block_length"]
    lines = unfold(row, length, trace.run.model.get("end_ids", ()))
    figure = go.Figure()
    figure.add_heatmap(
        z=lines.classes,
        y=[f"step {step}" for step in range(len(lines.classes))],
        text=lines.drawn,
        texttemplate="%{text}" if length <= MOST_TEXTS else None,
        textfont={"color": LIGHT["text"], "size": 11},  # stated, for Plotly's own choice counts the marks of style too
        customdata=lines.told,
        colorscale=[[edge / 5, LIGHT[f"conf{c}"]] for c in range(5) for edge in (c, c + 1)],
        zmin=-0.5,
        zmax=4.5,
        xgap=2,
        ygap=3,
        showscale=False,  # a bar of colours needs height, and a block of one step has none
        hoverongaps=False,
        hovertemplate="position %{x}: %{customdata}<extra></extra>",
    )
    for c, label in enumerate(["below 0.5", *(f"≥ {low:g}" for low in CLASSES[1:])]):
        marker = {"symbol": "square", "size": 12, "color": LIGHT[f"conf{c}"]}
        figure.add_scatter(x=[None], y=[None], mode="markers", marker=marker, name=label)
    figure.update_yaxes(autorange="reversed", showgrid=False, ticksuffix=" ", automargin=True)
    figure.update_xaxes(
        title_text="position in the block (index)", dtick=1 if length <= 32 else 8, showgrid=False, zeroline=False
    )
    subtitle = f"coloured: fixed in this step; plain: fixed before; {MASK}: still a mask"
    styled(figure, f"Block {block} of {request}", subtitle, 220 + 38 * len(lines.classes), named(trace))
    return figure.update_layout(legend={"title_text": "confidence", "itemclick": False, "itemdoubleclick": False})


def unfold(row: RowRecord, length: int, ends: Collection[int] = ()) -> Lines:
    """A row's block of ``length`` positions, step by step; ids in ``ends`` are drawn as `END`."""
    first = row.prompt_tokens + row.block * length
    fixed, lines = [MASK] * length, Lines([], [], [])
    for step, record in enumerate(row.detail):
        now = dict(zip((p - first for p in record.positions), record.confidence, strict=True))
        # Texts are missing where the model has no tokenizer.
        for place, token, text in zip(now, record.tokens, record.texts or map(str, record.tokens), strict=True):
            fixed[place] = END if token in ends else visible(text)
        lines.classes.append([confidence_class(now[p]) if p in now else None for p in range(length)])
        lines.drawn.append([_styled(text, place in now) for place, text in enumerate(fixed)])
        lines.told.append([_told(text, step, now.get(place)) for place, text in enumerate(fixed)])
    return lines


def confidence_class(confidence: float) -> int:
    """The last class of `CLASSES` that ``confidence`` reaches."""
    return bisect_right(CLASSES, confidence) - 1


def visible(text: str) -> str:
    """A token as one can see it: its spaces as ``·``, its line breaks as ``⏎``."""
    return text.replace(" ", "·").replace("\n", "⏎").replace("<", "‹").replace(">", "›")


def _row(trace: Trace, request: str, block: int) -> RowRecord:
    """The record of that block, which must hold its steps."""
    known = [r.id for r in trace.request_records]
    if request not in known:
        raise unknown_name("request", request, known)
    rows = {row.block: row for c in trace.cycle_records for row in c.rows if row.id == request and not row.frozen}
    if block not in rows:
        ran = f"0 to {max(rows)}" if rows else "none"
        raise ConfigError(f"block {block!r} of request {request!r} never ran; blocks that did: {ran}")
    if rows[block].detail is None:
        raise TraceError("the trace does not say which tokens a step fixed; record it with trace_level='token'")
    return rows[block]


def _styled(text: str, new: bool) -> str:
    if new:
        return f"<b>{text}</b>"
    return f"<span style='color:{LIGHT['masked_line' if text == MASK else 'muted']}'>{text}</span>"


def _told(text: str, step: int, confidence: float | None) -> str:
    if confidence is not None:
        return f"{text}, fixed in step {step} with confidence {confidence:.4f}"
    return "still a mask" if text == MASK else f"{text}, fixed before"
