"""Trace → typed columns: what the player is sent.

A trace is written per *stay* (a request's time in the batch from one admission to the next eviction or preemption;
a preempted request has several), not per cycle, so that 100,000 cycles of 64 rows take a few megabytes. `packing`
lays the columns out; `decode.py` and ``static/trace.js`` read them back; both derive the same frame from them (a test
compares them).

=================  ====================================================================================
cycle_start        seconds from the start of the run
cycle_duration     seconds
cycle_joins        stays that begin at this cycle
cycle_batch        rows
cycle_width        box width, tokens
cycle_budget       token budget, −1 for none
cycle_queue        requests waiting during the cycle
cycle_steps        steps of the slowest row
cycle_padding      padding, tokens of the box
cycle_tokens       row-tokens: cells forwarded in all passes
cycle_valid        valid tokens committed
cycle_refused      why requests stayed queued: the bits of `REFUSALS`
stay_request       index of the request
stay_length        cycles in the batch; a stay lasts from its join up to, not including, join + length
stay_slot          slot
stay_block         index of the first block worked on
stay_frozen        cycles at its end in which it was frozen (static batching)
stay_why           why it was admitted, code in `WHYS`
stay_left          how it left, code in `LEFT`
request_prompt     prompt tokens
request_blocks     blocks of the canvas, K
request_end        block in which its output became complete; K if it did not
request_reason     why it was complete, code in `REASONS`
request_arrives    seconds
request_arrival    first cycle that could admit it
request_gone       cycle from which it waits no more though it was never admitted (again); else the cycle count
request_done       reason of its completion record, code in `REASONS`; 0 if there is none
request_last       1 + the cycle after which it left; 0 if it left from the queue, or not at all
id_number          ids that are one prefix (``meta["id_prefix"]``) and a number; else
id_length, id_text bytes of each id, and all ids as UTF-8
step_count         per row and cycle, stay by stay: steps to finish its block
commit_count       per step of those, in order: positions committed
=================  ====================================================================================

Stays are sorted by join, then slot; requests by arrival, then submission, so that an index breaks ties in the queue
as the scheduler does. ``step_count`` and ``commit_count`` are left out of traces for which they would not fit.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from blockserve_viz.packing import Encoded, pack, whole_numbers
from blockserve_viz.stays import StayBook, collect_ends, collect_requests, collect_stays, shape_of

if TYPE_CHECKING:
    from blockserve.tracing.records import CompletionRecord, CycleRecord
    from blockserve.tracing.trace import Trace

VERSION = 2
LIMIT = 8_000_000  # bytes; a saved notebook carries one payload per player
REASONS: tuple[str, ...] = ("", "eos", "stop", "length", "cancelled", "error", "rejected")
WHYS: tuple[str, ...] = ("", "head", "fits", "grow", "held", "readmitted")
LEFT: tuple[str, ...] = ("", "preempted", *REASONS[1:])  # "": still in the batch when the trace ends
REFUSALS: tuple[str, ...] = ("budget", "box", "slots", "group", "held")
DETAIL = ("step_count", "commit_count")  # dropped from the right until the payload fits


def encode(trace: Trace, limit: int = LIMIT) -> Encoded:
    """Encode ``trace``. Detail that would make the payload larger than ``limit`` bytes is left out.

    Raises `blockserve.core.TraceError` when a row's recorded width is not that of Eq. 1.
    """
    return encode_stays(trace, collect_stays(trace, shape_of(trace), collect_requests(trace)), limit)


def encode_stays(trace: Trace, book: StayBook, limit: int = LIMIT) -> Encoded:
    """As `encode`, from stays that are known already; cycles that ``book`` has not seen are left out."""
    cycles = trace.cycle_records[: book.cycles]
    ids, id_columns = _ids([r.id for r in book.requests])
    messages = {c.id: c.message for c in trace.completion_records if c.message}
    meta = {**book.shape, **ids, "messages": messages, "version": VERSION, "cycles": len(cycles)}
    columns = _cycle_columns(cycles, book) | _stay_columns(book)
    columns |= _request_columns(trace, cycles, book) | id_columns | _detail_columns(book)
    return pack(columns, meta, limit, DETAIL)


def cycle_values(cycle: CycleRecord) -> dict[str, float]:
    """The ``cycle_`` columns of one cycle, but for ``cycle_joins``."""
    return {
        "cycle_start": cycle.start,
        "cycle_duration": cycle.duration,
        "cycle_batch": cycle.batch,
        "cycle_width": cycle.box_width,
        "cycle_budget": -1 if cycle.budget is None else cycle.budget,
        "cycle_queue": cycle.queue_depth,
        "cycle_steps": max([len(r.commits) for r in cycle.rows], default=0),
        "cycle_padding": cycle.padding,
        "cycle_tokens": cycle.row_tokens,
        "cycle_valid": sum([sum(r.valid) for r in cycle.rows]),
        "cycle_refused": sum(1 << REFUSALS.index(reason) for reason, n in cycle.refused.items() if n),
    }


TYPES = {"cycle_start": np.float64, "cycle_duration": np.float32}


def _cycle_columns(cycles: Sequence[CycleRecord], book: StayBook) -> dict[str, np.ndarray]:
    values = [cycle_values(c) for c in cycles]
    joins = np.bincount([s.join for s in book.stays], minlength=len(cycles)) if book.stays else np.zeros(len(cycles))
    columns = {"cycle_joins": joins.astype(np.int64)}
    for name in values[0] if values else _NO_CYCLE:
        columns[name] = np.asarray([v[name] for v in values], TYPES.get(name, np.int64))
    return columns


_NO_CYCLE = (
    "cycle_start cycle_duration cycle_batch cycle_width cycle_budget cycle_queue cycle_steps cycle_padding "
    "cycle_tokens cycle_valid cycle_refused"
).split()


def _stay_columns(book: StayBook) -> dict[str, np.ndarray]:
    stays = book.stays
    return {
        "stay_request": whole_numbers(s.request for s in stays),
        "stay_length": whole_numbers(s.length for s in stays),
        "stay_slot": whole_numbers(s.slot for s in stays),
        "stay_block": whole_numbers(s.block for s in stays),
        "stay_frozen": whole_numbers(s.length - s.active for s in stays),
        "stay_why": whole_numbers(WHYS.index(s.why) for s in stays),
        "stay_left": whole_numbers(LEFT.index(s.left) for s in stays),
    }


def _request_columns(trace: Trace, cycles: Sequence[CycleRecord], book: StayBook) -> dict[str, np.ndarray]:
    requests = book.requests
    starts = np.asarray([c.start for c in cycles], np.float64)
    arrives = np.asarray([r.arrival for r in requests], np.float64)
    arrival = np.searchsorted(starts, arrives)
    for stay in book.stays:  # the record of a cycle may carry a start from just before the clock was read for arrivals
        arrival[stay.request] = min(arrival[stay.request], stay.join)
    done = {c.id: c for c in trace.completion_records}
    gone = [gone_from(done.get(r.id), int(first), starts) for r, first in zip(requests, arrival, strict=True)]
    for stay in book.stays:
        if stay.left not in ("", "preempted"):  # it left from inside the batch
            gone[stay.request] = len(cycles)
    ends = collect_ends(cycles)
    return {
        "request_prompt": whole_numbers(r.prompt_tokens for r in requests),
        "request_blocks": whole_numbers(r.blocks for r in requests),
        "request_end": whole_numbers(ends[r.id][0] if r.id in ends else r.blocks for r in requests),
        "request_reason": whole_numbers(REASONS.index(ends[r.id][1] if r.id in ends else "") for r in requests),
        "request_arrives": arrives,
        "request_arrival": arrival,
        "request_gone": whole_numbers(gone),
        "request_done": whole_numbers(REASONS.index(done[r.id].reason) if r.id in done else 0 for r in requests),
        "request_last": whole_numbers(last_cycle(done.get(r.id)) for r in requests),
    }


def last_cycle(done: CompletionRecord | None) -> int:
    """The column ``request_last``."""
    return 0 if done is None or done.evicted_cycle is None else done.evicted_cycle + 1


def gone_from(done: CompletionRecord | None, arrival: int, starts: np.ndarray) -> int:
    """The column ``request_gone`` of a request that did not leave from inside the batch."""
    if done is None:
        return len(starts)
    return arrival if done.evicted is None else int(np.searchsorted(starts, done.evicted))  # rejected: never waited


_NUMBERED = re.compile(r"(.*?)(0|[1-9][0-9]{0,8})", re.S)


def _ids(ids: Sequence[str]) -> tuple[dict[str, str], dict[str, np.ndarray]]:
    """Request ids as (constants, columns): numbers behind one prefix where that is what they are."""
    parts = [_NUMBERED.fullmatch(i) for i in ids]
    if ids and all(parts) and len({p[1] for p in parts}) == 1:
        return {"id_prefix": parts[0][1]}, {"id_number": whole_numbers(int(p[2]) for p in parts)}
    text = [i.encode() for i in ids]
    return {}, {
        "id_length": whole_numbers(len(t) for t in text),
        "id_text": np.frombuffer(b"".join(text), np.uint8),
    }


def _detail_columns(book: StayBook) -> dict[str, np.ndarray]:
    return {
        "step_count": whole_numbers(len(commits) for s in book.stays for commits in s.commits),
        "commit_count": whole_numbers(n for s in book.stays for commits in s.commits for n in commits),
    }
