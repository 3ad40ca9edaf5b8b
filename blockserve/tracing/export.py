"""A trace as Chrome trace-event JSON, which Perfetto and chrome://tracing open.

One process a run: a track per slot with a slice per block, a track of cycles, instants for admissions and the like,
and counters of box cost, padding, batch and queue. Times are microseconds, as the format asks.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from blockserve.core import TraceError
from blockserve.tracing.records import CycleRecord, RowRecord
from blockserve.tracing.trace import Trace, check_writable

PROCESS, CYCLES = 1, 0  # ids; the track of slot n is n + 1
MICROSECONDS = 1e6


def to_perfetto(trace: Trace, path: str | Path, *, force: bool = False) -> Path:
    """Write ``trace`` to ``path`` (``.json``). Refuses an existing file and a trace without cycles."""
    if not trace.cycle_records:
        raise TraceError("this trace has no cycles to draw (level summary, or nothing ran)")
    path = check_writable(path, force=force)
    document = {"traceEvents": list(events(trace)), "displayTimeUnit": "ms"}
    path.write_text(json.dumps(document, ensure_ascii=False), encoding="utf-8")
    return path


def events(trace: Trace) -> Iterator[dict[str, Any]]:
    """The events of a trace: metadata first, then in time order by cycle."""
    name = f"{trace.run.preset} · {trace.run.model.get('name', '')}" if trace.run else "blockserve"
    slots = sorted({row.slot for cycle in trace.cycle_records for row in cycle.rows})
    yield _metadata("process_name", CYCLES, name)
    yield _metadata("thread_name", CYCLES, "block cycles")
    for slot in slots:
        yield _metadata("thread_name", slot + 1, f"slot {slot}")
    for cycle in trace.cycle_records:
        yield from _cycle_events(cycle)


def _metadata(kind: str, track: int, name: str) -> dict[str, Any]:
    return {"ph": "M", "pid": PROCESS, "tid": track, "name": kind, "args": {"name": name}}


def _cycle_events(cycle: CycleRecord) -> Iterator[dict[str, Any]]:
    start, end = cycle.start * MICROSECONDS, (cycle.start + cycle.duration) * MICROSECONDS
    args = {"box": f"{cycle.batch} × {cycle.box_width} = {cycle.cost}", "budget": cycle.budget, **cycle.seconds}
    yield _slice(CYCLES, f"cycle {cycle.index}", "cycle", start, end, args)
    for name, values in (
        ("cost", {"cost": cycle.cost}),
        ("padding", {"padding": cycle.padding}),
        ("batch", {"rows": cycle.batch}),
        ("queue", {"requests": cycle.queue_depth}),
    ):
        yield {"ph": "C", "pid": PROCESS, "name": name, "ts": start, "args": values}
    slots = {row.id: row.slot + 1 for row in cycle.rows}
    for row in cycle.rows:
        yield _row_slice(row, start, end)
    for request_id, why in cycle.admitted:
        yield _instant(slots.get(request_id, CYCLES), f"admit {request_id} ({why})", start)
    for request_id in cycle.preempted:
        yield _instant(CYCLES, f"preempt {request_id}", start)
    for request_id, reason in cycle.evicted:
        yield _instant(slots.get(request_id, CYCLES), f"evict {request_id} ({reason})", end)


def _row_slice(row: RowRecord, start: float, end: float) -> dict[str, Any]:
    args = {
        "request": row.id,
        "block": row.block,
        "prompt_tokens": row.prompt_tokens,
        "width": row.width,
        "steps": row.steps,
        "commits": list(row.commits),
        "ended": row.ended,
    }
    name = f"{row.id} waits" if row.frozen else f"{row.id} B{row.block}"
    return _slice(row.slot + 1, name, "frozen" if row.frozen else "block", start, end, args)


def _slice(track: int, name: str, category: str, start: float, end: float, args: dict[str, Any]) -> dict[str, Any]:
    return {
        "ph": "X",
        "pid": PROCESS,
        "tid": track,
        "name": name,
        "cat": category,
        "ts": start,
        "dur": end - start,
        "args": args,
    }


def _instant(track: int, name: str, when: float) -> dict[str, Any]:
    return {"ph": "i", "pid": PROCESS, "tid": track, "name": name, "ts": when, "s": "t"}
