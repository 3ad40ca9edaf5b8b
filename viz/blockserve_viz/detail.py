"""Step detail of a trace of level ``token``: which positions each step fixed, to what text, with what confidence.

It is far larger than the rest, so it travels apart and, when it would not fit, for a window of cycles: those around
the one shown, and the earlier cycles of every request in them, because a row's text began there.

==============  ========================================================================
row_request     index of the request, as in `frames`
row_cycle       cycle; rows are sorted by cycle
row_steps       steps that fixed something
step_cells      per step of those, in order: positions fixed
cell            per position: its place in the block
confidence      in 255ths
text            its text, an index into the table of texts
text_length     bytes of each text of the table; ``text_bytes``: all of them as UTF-8
prompt_request  requests whose prompt is here; ``prompt_length``, ``prompt_bytes``: as above
==============  ========================================================================
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from blockserve_viz.packing import Encoded, pack, whole_numbers

if TYPE_CHECKING:
    from blockserve.tracing.records import CycleRecord, RequestRecord, RowRecord, StepRecord

WINDOW = 2_000_000  # bytes of a window: it is sent again and again while one scrubs

Rows = list[tuple[int, int, "RowRecord"]]  # request index, cycle, row


def encode_detail(
    cycles: Sequence[CycleRecord],
    requests: Sequence[RequestRecord],
    index: Mapping[str, int],
    length: int,
    *,
    around: int = 0,
    room: int = WINDOW,
) -> Encoded:
    """Step detail of all ``cycles`` if it takes at most ``room`` bytes, else of a window around cycle ``around``.

    ``index``: request id → place in ``requests``; ``length``: block length. ``meta`` says which cycles are covered
    (``from``, ``to``, both included) and whether that is ``whole``; it is empty for a trace without step detail.
    """
    if not any(row.detail is not None for cycle in cycles for row in cycle.rows):
        return Encoded(b"", [], {})
    span = len(cycles)
    while True:
        first = max(0, min(around - span // 2, len(cycles) - span))
        last = first + span - 1
        encoded = _encode(_rows(cycles, index, first, last), requests, length)
        if len(encoded.data) <= max(room, WINDOW) or span == 1:
            break
        span = max(1, min(span // 2, int(span * WINDOW / len(encoded.data))))
    return Encoded(encoded.data, encoded.spec, encoded.meta | {"from": first, "to": last, "whole": span == len(cycles)})


def steps_json(steps: Iterable[StepRecord], row: RowRecord, length: int) -> list[list[list[Any]]]:
    """Steps as JSON, for the cycles of a run in progress: per step its places, confidences and texts."""
    base = row.prompt_tokens + row.block * length
    return [[[p - base for p in s.positions], [_share(c) for c in s.confidence], [*_texts(s)]] for s in steps]


def _rows(cycles: Sequence[CycleRecord], index: Mapping[str, int], first: int, last: int) -> Rows:
    wanted = {row.id for cycle in cycles[first : last + 1] for row in cycle.rows}
    return [
        (index[row.id], place, row)
        for place, cycle in enumerate(cycles[: last + 1])
        for row in cycle.rows
        if row.detail and row.id in wanted
    ]


def _encode(rows: Rows, requests: Sequence[RequestRecord], length: int) -> Encoded:
    table: dict[str, int] = {}
    steps = [(row, step) for _, _, row in rows for step in row.detail or ()]
    places = (p - row.prompt_tokens - row.block * length for row, step in steps for p in step.positions)
    columns = {
        "row_request": whole_numbers(request for request, _, _ in rows),
        "row_cycle": whole_numbers(cycle for _, cycle, _ in rows),
        "row_steps": whole_numbers(len(row.detail or ()) for _, _, row in rows),
        "step_cells": whole_numbers(len(step.positions) for _, step in steps),
        "cell": whole_numbers(places),
        "confidence": whole_numbers(_share(c) for _, step in steps for c in step.confidence),
        "text": whole_numbers(table.setdefault(text, len(table)) for _, step in steps for text in _texts(step)),
    }
    seen = sorted({request for request, _, _ in rows if requests[request].prompt})
    columns |= {"prompt_request": whole_numbers(seen), **_strings("prompt", [requests[r].prompt for r in seen])}
    return pack(columns | _strings("text", list(table)), {})


def _strings(name: str, texts: Sequence[str]) -> dict[str, np.ndarray]:
    parts = [text.encode("utf-8", "replace") for text in texts]
    return {
        f"{name}_length": whole_numbers(len(p) for p in parts),
        f"{name}_bytes": np.frombuffer(b"".join(parts), np.uint8),
    }


def _texts(step: StepRecord) -> Iterable[str]:
    """The texts of a step's tokens; their ids where the run had no tokenizer."""
    return step.texts or (f"⟨{token}⟩" for token in step.tokens)


def _share(confidence: float) -> int:
    return round(255 * min(1.0, max(0.0, confidence)))
