"""Trace → typed columns: what the player is sent.

A trace is written per *stay* (a request's time in the batch from one admission to the next eviction or preemption;
a preempted request has several), not per cycle, so that 100,000 cycles of 64 rows take a few megabytes. All columns
lie in one byte string, each aligned to 8 bytes, so that the browser reads them without a copy; ``spec`` says where.
`decode.py` and ``static/player.js`` read it back; both derive the same frame from it (a test compares them).

=================  ====================================================================================
cycle_start        seconds from the start of the run
cycle_duration     seconds
cycle_joins        stays that begin at this cycle
cycle_batch        rows
cycle_width        box width, tokens
cycle_budget       token budget, −1 for none
cycle_queue        requests waiting during the cycle
cycle_steps        steps of the slowest row
stay_request       index of the request
stay_length        cycles in the batch; a stay lasts from its join up to, not including, join + length
stay_slot          slot
stay_block         index of the first block worked on
stay_active        cycles in which it advanced, before it was frozen (static batching); length if never
stay_why           why it was admitted, code in `WHYS`
stay_left          how it left, code in `LEFT`
request_prompt     prompt tokens
request_blocks     blocks of the canvas, K
request_end        block in which its output became complete; K if it did not
request_reason     why it was complete, code in `REASONS`
request_arrival    first cycle that could admit it
request_gone       cycle from which it waits no more though it was never admitted (again); else the cycle count
id_length, id_text bytes of each id, and all ids as UTF-8
step_count         per row and cycle, stay by stay: steps to finish its block
commit_count       per step of those, in order: positions committed
=================  ====================================================================================

Stays are sorted by join, then slot; requests by arrival, then submission, so that an index breaks ties in the queue
as the scheduler does. ``step_count`` and ``commit_count`` are left out of traces for which they would not fit.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from blockserve_viz.stays import Stay, collect_ends, collect_requests, collect_stays, shape_of

if TYPE_CHECKING:
    from blockserve.tracing.trace import Trace

VERSION = 1
LIMIT = 8_000_000  # bytes; a saved notebook carries one payload per player
REASONS: tuple[str, ...] = ("", "eos", "stop", "length", "cancelled", "error", "rejected")
WHYS: tuple[str, ...] = ("", "head", "fits", "grow", "held", "readmitted")
LEFT: tuple[str, ...] = ("", "preempted", *REASONS[1:])  # "": still in the batch when the trace ends
DETAIL = ("step_count", "commit_count")  # dropped from the right until the payload fits

Columns = Mapping[str, np.ndarray]


@dataclass(frozen=True)
class Encoded:
    """``data``: the columns; ``spec``: where each lies; ``meta``: the trace's constants. All but data are JSON."""

    data: bytes
    spec: list[dict[str, Any]]
    meta: dict[str, Any]


def encode(trace: Trace, limit: int = LIMIT) -> Encoded:
    """Encode ``trace``. Detail that would make the payload larger than ``limit`` bytes is left out.

    Raises `blockserve.core.TraceError` when a row's recorded width is not that of Eq. 1.
    """
    meta = {**shape_of(trace), "version": VERSION, "cycles": len(trace.cycle_records)}
    requests = collect_requests(trace)
    stays = collect_stays(trace, meta, requests)
    columns = {**_cycle_columns(trace, stays), **_stay_columns(stays)}
    columns |= _request_columns(trace, requests, stays) | _detail_columns(stays)
    return pack(columns, meta, limit)


def pack(columns: Columns, meta: Mapping[str, Any], limit: int = LIMIT) -> Encoded:
    """Lay ``columns`` out. Integers take the narrowest type that holds them; a constant column takes no bytes."""
    columns = {name: _narrow(np.asarray(values)) for name, values in columns.items()}
    for name in reversed(DETAIL):
        if sum(_size(c) for c in columns.values()) <= limit:
            break
        columns.pop(name, None)
    parts, spec, offset = [], [], 0
    for name, values in columns.items():
        dtype = f"{values.dtype.kind}{values.dtype.itemsize}"
        entry = {"name": name, "dtype": dtype, "offset": offset, "length": len(values)}
        if _size(values) == 0 < len(values):
            entry["constant"] = values[0].item()
        else:
            parts.append(values.tobytes() + bytes(-values.nbytes % 8))
        offset += _size(values)
        spec.append(entry)
    return Encoded(b"".join(parts), spec, dict(meta))


def unpack(data: bytes, spec: list[dict[str, Any]]) -> dict[str, np.ndarray]:
    """Inverse of the layout in `pack`: the columns by name, each a read-only view."""
    columns = {}
    for entry in spec:
        dtype = np.dtype(f"<{entry['dtype']}")
        if "constant" in entry:
            columns[entry["name"]] = np.full(entry["length"], entry["constant"], dtype)
        else:
            columns[entry["name"]] = np.frombuffer(data, dtype, entry["length"], entry["offset"])
    return columns


def _narrow(values: np.ndarray) -> np.ndarray:
    """The same values, little-endian, in the narrowest of u1, u2, u4, i4, f4, f8 that holds them."""
    if values.dtype.kind == "f":
        return values.astype(f"<f{values.dtype.itemsize}")
    low, high = (int(values.min()), int(values.max())) if len(values) else (0, 0)
    if low < 0:
        return values.astype("<i4")
    return values.astype("<u1" if high < 2**8 else "<u2" if high < 2**16 else "<u4")


def _size(values: np.ndarray) -> int:
    """Bytes that a column takes: none if constant, else padded so that the next one is aligned."""
    constant = len(values) > 1 and (values == values[0]).all()
    return 0 if constant else values.nbytes + -values.nbytes % 8


def _ints(values: Any) -> np.ndarray:
    return np.asarray(list(values), np.int64)


def _cycle_columns(trace: Trace, stays: list[Stay]) -> dict[str, np.ndarray]:
    cycles = trace.cycle_records
    joins = np.bincount(_ints(s.join for s in stays), minlength=len(cycles)) if stays else np.zeros(len(cycles), int)
    return {
        "cycle_start": np.asarray([c.start for c in cycles], np.float64),
        "cycle_duration": np.asarray([c.duration for c in cycles], np.float32),
        "cycle_joins": joins,
        "cycle_batch": _ints(c.batch for c in cycles),
        "cycle_width": _ints(c.box_width for c in cycles),
        "cycle_budget": _ints(-1 if c.budget is None else c.budget for c in cycles),
        "cycle_queue": _ints(c.queue_depth for c in cycles),
        "cycle_steps": _ints(max((len(r.commits) for r in c.rows), default=0) for c in cycles),
    }


def _stay_columns(stays: list[Stay]) -> dict[str, np.ndarray]:
    return {
        "stay_request": _ints(s.request for s in stays),
        "stay_length": _ints(s.length for s in stays),
        "stay_slot": _ints(s.slot for s in stays),
        "stay_block": _ints(s.block for s in stays),
        "stay_active": _ints(s.active for s in stays),
        "stay_why": _ints(WHYS.index(s.why) for s in stays),
        "stay_left": _ints(LEFT.index(s.left) for s in stays),
    }


def _request_columns(trace: Trace, requests: list[Any], stays: list[Stay]) -> dict[str, np.ndarray]:
    starts = np.asarray([c.start for c in trace.cycle_records], np.float64)
    arrival = np.searchsorted(starts, [r.arrival for r in requests]) if requests else _ints(())
    for stay in stays:  # the record of a cycle may carry a start from just before the clock was read for arrivals
        arrival[stay.request] = min(arrival[stay.request], stay.join)
    completions = {c.id: c for c in trace.completion_records}
    gone = []
    for request, first in zip(requests, arrival, strict=True):
        done = completions.get(request.id)
        if done is None:
            gone.append(len(starts))
        elif done.evicted is None:  # rejected: it never waited
            gone.append(int(first))
        else:
            gone.append(int(np.searchsorted(starts, done.evicted)))
    ends = collect_ends(trace)
    text = [r.id.encode() for r in requests]
    return {
        "request_prompt": _ints(r.prompt_tokens for r in requests),
        "request_blocks": _ints(r.blocks for r in requests),
        "request_end": _ints(ends[r.id][0] if r.id in ends else r.blocks for r in requests),
        "request_reason": _ints(REASONS.index(ends[r.id][1] if r.id in ends else "") for r in requests),
        "request_arrival": arrival,
        "request_gone": _gone(_ints(gone), stays, len(starts)),
        "id_length": _ints(len(t) for t in text),
        "id_text": np.frombuffer(b"".join(text), np.uint8),
    }


def _gone(gone: np.ndarray, stays: list[Stay], cycles: int) -> np.ndarray:
    """The cycle count for requests that left from inside the batch: then nothing waits, and the column is short."""
    for stay in stays:
        if stay.left not in ("", "preempted"):
            gone[stay.request] = cycles
    return gone


def _detail_columns(stays: list[Stay]) -> dict[str, np.ndarray]:
    return {
        "step_count": _ints(len(commits) for s in stays for commits in s.commits),
        "commit_count": _ints(n for s in stays for commits in s.commits for n in commits),
    }
