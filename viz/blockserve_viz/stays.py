"""Walk a trace's cycle records once and gather each request's stays in the batch."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from blockserve.core import TraceError
from blockserve.geometry import row_width
from blockserve.tracing.records import CycleRecord, RequestRecord, RowRecord

if TYPE_CHECKING:
    from blockserve.tracing.trace import Trace

FULL_SUFFIX = -1


@dataclass
class Stay:
    """One stay; fields as the ``stay_`` columns of `frames`. ``commits[i]``: of its i-th cycle, one count a step."""

    request: int
    join: int
    slot: int
    block: int
    why: str = ""
    left: str = ""
    active: int = 0
    commits: list[tuple[int, ...]] = field(default_factory=list)

    @property
    def length(self) -> int:
        return len(self.commits)


def shape_of(trace: Trace) -> dict[str, Any]:
    """The constants of a trace: block length, kept suffix blocks (−1: all), queue order, quantum, names, how it ended.

    Without a run record (a file that lost its first line, records built by hand) lengths are read off a row.
    """
    status = "truncated" if trace.end is None else trace.end.status
    if trace.run is None:
        return {**_guess(trace), "order": "fifo", "quantum": "block", "preset": "", "model": "", "status": status}
    suffix = trace.run.decode["suffix"]
    return {
        "block_length": trace.run.decode["block_length"],
        "suffix": FULL_SUFFIX if suffix == "full" else suffix,
        "order": trace.run.policy.get("order", "fifo"),
        "quantum": trace.run.policy.get("quantum", "block"),
        "preset": trace.run.preset or "",
        "model": trace.run.model.get("name", ""),
        "status": status,
    }


def _guess(trace: Trace) -> dict[str, int]:
    rows = [row for cycle in trace.cycle_records for row in cycle.rows]
    if not rows:
        return {"block_length": 1, "suffix": 0}
    first = rows[0]
    length = (first.width - first.prompt_tokens) // (first.block + 1 + first.suffix_blocks)
    return {"block_length": length, "suffix": max(row.suffix_blocks for row in rows)}


def collect_requests(trace: Trace) -> list[RequestRecord]:
    """All requests by arrival, then submission; those without a record (see `shape_of`) are made from their rows."""
    known = {r.id: r for r in trace.request_records}
    made: dict[str, RequestRecord] = {}
    for row in (row for cycle in trace.cycle_records for row in cycle.rows if row.id not in known):
        blocks = max(row.block + 1 + row.suffix_blocks, made[row.id].blocks if row.id in made else 1)
        made[row.id] = RequestRecord(row.id, row.prompt_tokens, max_new_tokens=0, blocks=blocks)
    return sorted([*known.values(), *made.values()], key=lambda r: r.arrival)


def collect_ends(trace: Trace) -> dict[str, tuple[int, str]]:
    """By request id: the block in which its output became complete, and why."""
    rows = (row for cycle in trace.cycle_records for row in cycle.rows)
    return {row.id: (row.block, row.ended) for row in rows if row.ended is not None}


def collect_stays(trace: Trace, shape: dict[str, Any], requests: list[RequestRecord]) -> list[Stay]:
    """All stays, sorted by join, then slot. ``requests`` as `collect_requests` gives them."""
    index = {r.id: i for i, r in enumerate(requests)}
    stays: list[Stay] = []
    present: dict[str, Stay] = {}
    for position, cycle in enumerate(trace.cycle_records):
        admitted = dict(cycle.admitted)
        for request_id in cycle.preempted:
            _leave(present, request_id, "preempted")
        for row in sorted(cycle.rows, key=lambda r: r.slot):
            stay = present.get(row.id)
            if stay is None:
                stay = Stay(index[row.id], position, row.slot, row.block, why=admitted.get(row.id, ""))
                present[row.id] = stay
                stays.append(stay)
            block = _extend(stay, row)
            _check(cycle, row, block, requests[stay.request].blocks, shape)
        for request_id in [i for i, s in present.items() if s.join + s.length <= position]:
            _leave(present, request_id, "cancelled")  # no row any more: it was cancelled between two cycles
        for request_id, reason in cycle.evicted:
            _leave(present, request_id, reason)
    return stays


def _leave(present: dict[str, Stay], request_id: str, how: str) -> None:
    if request_id in present:
        present.pop(request_id).left = how


def _extend(stay: Stay, row: RowRecord) -> int:
    """Add the row's cycle to its stay; returns the block it must be at: one more each cycle, the same while frozen."""
    if not row.frozen:
        stay.active = stay.length + 1
    stay.commits.append(tuple(row.commits))
    return stay.block + max(0, stay.active - 1)


def _check(cycle: CycleRecord, row: RowRecord, block: int, blocks: int, shape: dict[str, Any]) -> None:
    """The payload keeps no widths: they follow from prompt, block and suffix. Refuse a trace where they do not."""
    suffix = "full" if shape["suffix"] == FULL_SUFFIX else shape["suffix"]
    width = row_width(row.prompt_tokens, row.block, blocks, shape["block_length"], suffix)
    if row.block != block or row.width != width:
        raise TraceError(
            f"cycle {cycle.index}, request {row.id!r}: block {row.block} and width {row.width} are recorded, "
            f"but block {block} and width {width} follow from the rows before; the trace is damaged"
        )
