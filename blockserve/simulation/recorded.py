"""From a recorded run to a `Profile`: each request's blocks, steps and commits, in whatever cycles they ran."""

from __future__ import annotations

import numpy as np

from blockserve.core import TraceError
from blockserve.simulation.profile import REASONS, Profile
from blockserve.tracing import Trace
from blockserve.tracing.records import CompletionRecord, RequestRecord, RowRecord

CUT_SHORT = ("cancelled", "error")  # ended from outside: the recorded life is all that is known


def profile_of(trace: Trace) -> Profile:
    """See `Profile.from_trace`."""
    _check(trace)
    completions = {c.id: c for c in trace.completion_records}
    lives = _lives(trace)
    ran = [r for r in trace.request_records if lives[r.id]]
    own = [lives[r.id] for r in ran]
    rows = [row for life in own for row in life]
    return Profile(
        block_length=trace.run.decode["block_length"],
        prompt_tokens=np.array([r.prompt_tokens for r in ran], np.int32),
        limits=np.array([r.max_new_tokens for r in ran], np.int32),
        blocks=np.array([len(life) for life in own], np.int32),
        ends=np.array([_end_block(life) for life in own], np.int32),
        # Not the sum over the steps: a stop string may begin in an earlier block than the one that completes it.
        valid_tokens=np.array([completions[r.id].valid_tokens for r in ran], np.int32),
        reasons=np.array([_reason(r, lives[r.id], completions[r.id]) for r in ran], np.int8),
        arrivals=np.array([r.arrival for r in ran], np.float64),
        steps=np.array([row.steps for row in rows], np.int32),
        commits=np.array([n for row in rows for n in row.commits], np.int32),
        valid=np.array([n for row in rows for n in row.valid], np.int32),
        ids=tuple(r.id for r in ran),
        name=str(trace.run.workload.get("name", "recorded")),
    )


def _check(trace: Trace) -> None:
    """What a profile needs of a trace; one message for what is missing."""
    if trace.run is None:
        raise TraceError("this trace has no run record, so its block length and eos mode are unknown")
    if trace.run.level == "summary" or not trace.cycle_records:
        raise TraceError(
            f"a profile needs recorded cycles, and this trace (level {trace.run.level!r}) has none; "
            "record the run at level cycle or token"
        )
    done = {c.id for c in trace.completion_records}
    open_ids = [r.id for r in trace.request_records if r.id not in done]
    if open_ids:
        raise TraceError(
            f"{len(open_ids)} of {len(trace.request_records)} requests did not end in this trace "
            f"(the first is {open_ids[0]!r}), so what they would do is not known; record the run to its end"
        )


def _lives(trace: Trace) -> dict[str, list[RowRecord]]:
    """Per request, the rows in which it wrote a block, by block."""
    lives: dict[str, list[RowRecord]] = {r.id: [] for r in trace.request_records}
    for cycle in trace.cycle_records:
        for row in cycle.rows:
            if row.frozen:
                continue
            if row.block != len(lives[row.id]):
                raise TraceError(
                    f"request {row.id!r} runs block {row.block} in cycle {cycle.index} after {len(lives[row.id])} "
                    "finished blocks; the trace is damaged"
                )
            lives[row.id].append(row)
    return lives


def _end_block(life: list[RowRecord]) -> int:
    return next((row.block for row in life if row.ended is not None), len(life) - 1)


def _reason(request: RequestRecord, life: list[RowRecord], completion: CompletionRecord) -> int:
    """Why the valid output became complete (under eos ``ignore`` that is before the completion's ``length``)."""
    reason = completion.reason
    if reason not in CUT_SHORT:
        reason = next((row.ended for row in life if row.ended is not None), reason)
    if reason not in REASONS:
        raise TraceError(f"request {request.id!r} ended for {reason!r}; known reasons: {', '.join(REASONS)}")
    return REASONS.index(reason)
