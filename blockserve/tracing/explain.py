"""Why a request entered, waited, ran or left at a cycle, worked out from the trace alone."""

from __future__ import annotations

from blockserve.core import TraceError, check_choice
from blockserve.geometry import Box, row_width
from blockserve.tracing.records import CycleRecord, RequestRecord, RowRecord
from blockserve.tracing.trace import Trace

ADMITTED = {
    "head": "the batch was empty, so the head of the queue enters",
    "fits": "its row fits the present box and the bound holds",
    "grow": "nothing more fitted the box, and the head of the queue may widen it within the bound",
    "held": "it had waited the longest allowed, so all others were held back for it",
    "readmitted": "it had been preempted and goes on with the block it had reached",
}


def explain(trace: Trace, cycle: int, request_id: str) -> str:
    """One sentence on ``request_id`` at ``cycle``; unknown ids and cycles raise with what is known."""
    requests = {r.id: r for r in trace.request_records}
    check_choice("request", request_id, requests)
    records = {c.index: c for c in trace.cycle_records}
    if cycle not in records:
        raise TraceError(f"no cycle {cycle!r} in this trace; it has {len(records)}, from 0 on")
    record = records[cycle]
    row = next((r for r in record.rows if r.id == request_id), None)
    if row is not None:
        return _in_batch(record, row)
    return _outside(trace, record, requests[request_id])


def _in_batch(record: CycleRecord, row: RowRecord) -> str:
    parts = [f"{row.id} is in slot {row.slot} at block {row.block}, row width {row.width} in the box {_box(record)}"]
    why = dict(record.admitted).get(row.id)
    if why is not None:
        parts.append(f"admitted ({why}): {ADMITTED[why]}")
    if row.frozen:
        parts.append("its output is complete; it waits for its group")
    else:
        parts.append(f"its block took {row.steps} step{'' if row.steps == 1 else 's'}")
    reason = dict(record.evicted).get(row.id)
    if reason is not None:
        parts.append(f"evicted at the end of the cycle ({reason})")
    elif row.ended is not None and not row.frozen:
        parts.append(f"its output is complete ({row.ended}) but it has not left")
    return "; ".join(parts) + "."


def _outside(trace: Trace, record: CycleRecord, request: RequestRecord) -> str:
    done = next((c for c in trace.completion_records if c.id == request.id), None)
    if done is not None and (done.evicted_cycle is None or done.evicted_cycle < record.index):
        when = f" after cycle {done.evicted_cycle}" if done.evicted_cycle is not None else ""
        return f"{request.id} had left{when} ({done.reason}{': ' + done.message if done.message else ''})."
    if request.arrival > record.start:
        return f"{request.id} arrives at {request.arrival:.3f} s; this cycle started at {record.start:.3f} s."
    preempted = "was preempted at this boundary and " if request.id in record.preempted else ""
    prefix = f"{request.id} {preempted}waits"
    return f"{prefix}; refused: {_refusal(trace, record, request)}."


def _refusal(trace: Trace, record: CycleRecord, request: RequestRecord) -> str:
    """The reason in numbers, from the policy, the box and the block the request has reached."""
    policy, decode = trace.run.policy, trace.run.decode
    if policy["quantum"] == "request" and not record.admitted:
        return "group (the running group must leave before the next one enters)"
    block = sum(r.id == request.id for c in trace.cycle_records if c.index < record.index for r in c.rows)
    width = row_width(request.prompt_tokens, block, request.blocks, decode["block_length"], decode["suffix"])
    after = Box(record.batch, record.box_width).with_row(width)
    if record.budget is None and after.rows > policy["bound"]["slots"]:
        return f"slots ({record.batch} of {policy['bound']['slots']} are taken)"
    if record.budget is not None and after.cost > record.budget:
        return f"budget ({after} > {record.budget})"
    if width > record.box_width and "box" in record.refused:
        return f"box (its row of {width} is wider than the box of {record.box_width}, which this fill does not widen)"
    if policy.get("reserve") and "budget" in record.refused:
        return f"budget ({after} fits now, but not at every later block)"
    return "held (another request must enter first)"


def _box(record: CycleRecord) -> str:
    return f"{Box(record.batch, record.box_width)}"
