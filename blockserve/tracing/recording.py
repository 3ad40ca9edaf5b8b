"""From plans and results to trace records."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from blockserve.core import BatchPlan, Completion, CycleResult, Request, RowPlan, RowResult, StepDetail
from blockserve.tracing.records import CompletionRecord, CycleRecord, RequestRecord, RowRecord, StepRecord

Decode = Callable[[Sequence[int]], str]


def request_record(request: Request, blocks: int, *, with_ids: bool) -> RequestRecord:
    """A prepared request (ids and limit known) whose canvas has ``blocks`` blocks."""
    return RequestRecord(
        id=request.id,
        prompt_tokens=len(request.prompt_ids),
        max_new_tokens=request.max_new_tokens,
        blocks=blocks,
        arrival=request.arrival,
        prompt=request.prompt,
        tags=dict(request.tags),
        prompt_ids=request.prompt_ids if with_ids else None,
    )


def cycle_record(
    plan: BatchPlan,
    result: CycleResult,
    ended: Mapping[str, str],
    evicted: Sequence[Completion],
    *,
    start: float,
    end: float,
    schedule_seconds: float,
    decode: Decode | None = None,
) -> CycleRecord:
    """One executed cycle. ``ended``: id → reason of outputs that became complete; ``start``, ``end`` [s];
    ``decode`` turns single tokens into text for step detail."""
    rows = zip(plan.rows, result.rows, strict=True)
    refused = plan.refused
    return CycleRecord(
        index=plan.cycle,
        start=start,
        duration=end - start,
        seconds={"schedule": schedule_seconds, **result.seconds},
        rows=tuple(_row_record(plan, row, outcome, ended, decode) for row, outcome in rows),
        batch=len(plan.rows),
        box_width=plan.box_width,
        cost=plan.cost,
        budget=plan.budget,
        padding=plan.cost - sum(row.width for row in plan.rows),
        queue_depth=plan.queue_depth,
        refresh_passes=result.refresh_passes,
        reuse_passes=result.reuse_passes,
        reuse_width=result.reuse_width,
        row_passes=result.row_passes,
        row_tokens=result.row_tokens,
        admitted=tuple((a.request_id, a.why) for a in plan.admitted),
        evicted=tuple((c.request_id, c.reason) for c in evicted),
        preempted=plan.preempted,
        refused=dict(refused.counts),
        first_refused=(refused.first_id, refused.first_reason) if refused.first_id is not None else None,
    )


def _row_record(
    plan: BatchPlan, row: RowPlan, outcome: RowResult, ended: Mapping[str, str], decode: Decode | None
) -> RowRecord:
    return RowRecord(
        id=row.request_id,
        slot=row.slot,
        block=row.block,
        prompt_tokens=row.prompt_tokens,
        suffix_blocks=row.suffix_blocks,
        width=row.width,
        offset=plan.box_width - row.width,
        frozen=row.ended,
        steps=len(outcome.commits),
        passes=outcome.passes,
        commits=outcome.commits,
        valid=outcome.valid,
        ended=ended.get(row.request_id),
        detail=None if outcome.detail is None else tuple(_step_record(step, decode) for step in outcome.detail),
    )


def _step_record(step: StepDetail, decode: Decode | None) -> StepRecord:
    texts = tuple(decode([token]) for token in step.tokens) if decode else ()
    return StepRecord(step.positions, step.tokens, step.confidence, texts)


def completion_record(completion: Completion) -> CompletionRecord:
    """The same fields, ``request_id`` as ``id``."""
    values = dict(vars(completion))
    return CompletionRecord(id=values.pop("request_id"), **values)
