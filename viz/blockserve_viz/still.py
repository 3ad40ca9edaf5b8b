"""`frame_svg`: one cycle of a trace as a picture without script, for places where the player cannot run."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape
from typing import TYPE_CHECKING

from blockserve_viz.colours import LIGHT
from blockserve_viz.decode import Frame, FrameRow, Frames
from blockserve_viz.frames import encode

if TYPE_CHECKING:
    from blockserve.tracing.trace import Trace

WIDTH, SIDE, TOP = 860, 170, 62  # pixels: the picture, the queue's column, above the first row
_FONT = "system-ui, -apple-system, 'Segoe UI', 'DejaVu Sans', sans-serif"
_HATCH = (
    '<pattern id="bs-hatch" width="6" height="6" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">'
    f'<rect width="6" height="6" fill="{LIGHT["surface"]}" fill-opacity=".5"/>'
    f'<path d="M0 0V6" stroke="{LIGHT["hatch"]}" stroke-width="1.6" stroke-opacity=".6"/></pattern>'
)


def frame_svg(trace: Trace, cycle: int | None = None) -> str:
    """The batch of ``trace`` at the end of ``cycle`` as an SVG element; ``None`` picks a telling cycle."""
    frames = Frames(encode(trace))
    return frames_svg(frames, telling_cycle(frames) if cycle is None else cycle)


def telling_cycle(frames: Frames) -> int:
    """The cycle at whose boundary rows leave and most padding is reclaimed; of equal ones the first. 0 if none."""
    best, most = 0, -1
    for cycle in range(min(len(frames), 200)):
        rows = frames.rows(cycle)
        reclaimed = sum(row.reclaimed for row in rows)
        if reclaimed > most and any(row.leaves for row in rows):
            best, most = cycle, reclaimed
    return best


def frames_svg(frames: Frames, cycle: int) -> str:
    """As `frame_svg`, from an encoded trace. A trace without cycles gives a picture that says so."""
    if not len(frames):
        return _svg(60, "No cycles", [_text(WIDTH / 2, 34, "This trace has no cycles.", anchor="middle")])
    frame = frames[cycle]
    picture = _Picture(frames, frame)
    title = f"Cycle {cycle}: {len(frame.rows)} rows, box {frame.width} tokens wide, cost {frame.cost}"
    return _svg(picture.height, title, [*picture.parts()])


class _Picture:
    """Geometry of one still: rows right-aligned at the block boundary, ``x(tokens)`` counted leftwards from it."""

    def __init__(self, frames: Frames, frame: Frame) -> None:
        self.prefix = len(frames.prefix)
        self.frame, self.length = frame, frames.meta["block_length"]
        self.label = f"{frames.meta['preset']} · cycle {frame.cycle} of {len(frames) - 1}".removeprefix(" · ")
        self.most_queued = max(1, int(frames.c["request_prompt"].max()))
        widest = max(1, int(frames.c["cycle_width"].max()))
        self.pitch = max(5, min(30, 420 // max(1, int(frames.c["cycle_batch"].max()))))
        self.row_height = self.pitch - (4 if self.pitch > 12 else 1)
        room = WIDTH - SIDE - 90
        self.scale = min(22.0, room / (widest + self.length), (room - 60) / widest)
        self.right = SIDE + 70 + self.scale * widest
        self.height = TOP + max(len(frame.rows) * self.pitch, 90) + 34

    def x(self, tokens: float) -> float:
        return self.right - tokens * self.scale

    def parts(self) -> Iterator[str]:
        frame = self.frame
        budget = "no budget" if frame.budget is None else f"β = {frame.budget}"
        size = f"{len(frame.rows)} × {frame.width} = {frame.cost}"
        yield _text(SIDE, 24, f"{size} tokens, {budget}", "box", bold=True, size=14)
        yield _text(WIDTH - 12, 24, self.label, "muted", anchor="end")
        yield from self._queue()
        for rank, row in enumerate(frame.rows):
            yield from self._row(row, TOP + rank * self.pitch)
        bottom = TOP + len(frame.rows) * self.pitch
        if frame.rows:
            box = self.x(frame.width)
            yield (
                f'<rect x="{box - 3:.1f}" y="{TOP - 4}" width="{self.right - box + 6:.1f}" height="{bottom - TOP + 4}" '
                f'fill="none" stroke="{LIGHT["box"]}" stroke-width="2" stroke-dasharray="7 4"/>'
            )
            yield _text(self.right, bottom + 20, "block boundary", "box", anchor="middle", size=11)

    def _row(self, row: FrameRow, y: float) -> Iterator[str]:
        left = row.width + row.padding
        yield self._cells("padding", left, row.width, y)
        if row.reclaimed:
            yield self._cells("reclaimed", left, left - row.reclaimed, y)
            yield self._word("×", left, left - row.reclaimed, y, "reclaimed_line")
        yield self._cells("prompt", row.width, row.width - row.prompt, y)
        yield self._word(str(row.prompt), row.width, row.width - row.prompt, y, "prompt_text")
        at = row.width - row.prompt
        for block in range(row.block + 1):
            active = block == row.block and not row.frozen
            kind = ("ended" if row.ended else "active") if active else "finished"
            yield self._cells(kind, at, at - self.length, y)
            yield self._word(f"{'✓ ' if kind == 'ended' else ''}B{block}", at, at - self.length, y, f"{kind}_text")
            at -= self.length
        if row.suffix:
            yield self._cells("next", at, at - row.suffix * self.length, y)
        if row.frozen:
            yield self._cells("frozen", row.width, 0, y)
        elif row.past:
            yield self._cells("frozen", (row.past + row.suffix) * self.length, row.suffix * self.length, y)
        yield from self._marks(row, y)

    def _marks(self, row: FrameRow, y: float) -> Iterator[str]:
        if row.grows and not row.suffix:
            yield self._cells("next", 0, -self.length, y)
            yield self._word(f"B{row.block + 1}", 0, -self.length, y, "next_text")
        if self.pitch < 11:
            return
        middle = y + self.row_height / 2 + 4
        entered = row.entered.capitalize() if row.entered and self.frame.cycle else ""
        short = row.id[self.prefix :]
        name = f"{entered} {_clip(short, 7)}" if entered else _clip(short, 13)
        edge = self.x(row.width + row.padding) - 8
        yield _text(edge, middle, name, "box" if entered else "muted", anchor="end", size=11)
        if row.leaves:
            word, colour = ("↩ Preempt", "reclaimed_line") if row.leaves == "preempted" else ("✓ Evict", "box")
            yield _text(self.right + 8, middle, word, colour, bold=True)

    def _queue(self) -> Iterator[str]:
        yield _text(12, 24, f"Queue {self.frame.waiting}", bold=True, size=13)
        shown = self.frame.queue[: int((self.height - 74) // 16)]
        for i, item in enumerate(shown):
            width = max(5.0, (SIDE - 50) * min(1.0, item.prompt / self.most_queued))
            yield f'<rect x="12" y="{42 + i * 16}" width="{width:.1f}" height="12" fill="{LIGHT["prompt"]}"/>'
        if self.frame.waiting > len(shown):
            yield _text(12, 56 + len(shown) * 16, f"+ {self.frame.waiting - len(shown)} more", "muted", size=11)

    def _cells(self, kind: str, left: float, right: float, y: float) -> str:
        width = (left - right) * self.scale - 0.8
        if width <= 0:
            return ""
        style = f'fill="{"url(#bs-hatch)" if kind == "frozen" else LIGHT[kind]}"'
        if kind == "next":
            style += f' stroke="{LIGHT["next_line"]}" stroke-dasharray="4 3"'
        return f'<rect x="{self.x(left):.1f}" y="{y}" width="{width:.1f}" height="{self.row_height}" {style}/>'

    def _word(self, text: str, left: float, right: float, y: float, colour: str) -> str:
        if self.row_height < 11 or (left - right) * self.scale < 7 * len(text) + 3:
            return ""
        middle = (self.x(left) + self.x(right)) / 2
        return _text(middle, y + self.row_height / 2 + 4, text, colour, anchor="middle", size=11)


def _clip(text: str, most: int) -> str:
    """At most ``most`` characters: ids differ at their end."""
    return text if len(text) <= most else f"…{text[1 - most :]}"


def _text(
    x: float, y: float, text: str, colour: str = "text", *, anchor: str = "start", size: int = 12, bold: bool = False
) -> str:
    weight = ' font-weight="600"' if bold else ""
    place = f'x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="{size}"'
    return f'<text {place} fill="{LIGHT[colour]}"{weight}>{escape(text)}</text>'


def _svg(height: float, title: str, parts: list[str]) -> str:
    svg = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height:.0f}" width="100%" role="img" '
        f'style="max-width:{WIDTH}px" font-family="{escape(_FONT)}"><title>{escape(title)}</title><defs>{_HATCH}</defs>'
        f'<rect width="{WIDTH}" height="{height:.0f}" rx="8" fill="{LIGHT["surface"]}"/>{"".join(parts)}</svg>'
    )
    return svg.encode("ascii", "xmlcharrefreplace").decode()  # whatever the page's encoding
