"""Drive the real scheduler on scripted requests: each ends after a given number of blocks. No model, no time."""

from __future__ import annotations

from dataclasses import dataclass

from blockserve.core import BatchPlan, Completion, CycleResult, Idle, RequestShape, RowResult
from blockserve.scheduling import Scheduler, SchedulingPolicy
from blockserve.scheduling.scheduler import Departures


@dataclass(frozen=True)
class Scripted:
    """``prompt`` tokens, a limit of ``blocks`` blocks, an end token in block number ``ends_after`` (None: never)."""

    prompt: int
    blocks: int
    ends_after: int | None = None
    arrival: float = 0.0


Cancellations = dict[int, list[str]]  # cycle → ids dropped at the boundary before it


@dataclass(frozen=True)
class Step:
    """One executed cycle, which began at ``start`` seconds."""

    start: float
    plan: BatchPlan
    departures: Departures
    cancelled: tuple[Completion, ...] = ()

    @property
    def widths(self) -> dict[str, int]:
        return {row.request_id: row.width for row in self.plan.rows}

    @property
    def admitted(self) -> dict[str, str]:
        return {a.request_id: a.why for a in self.plan.admitted}

    @property
    def evicted(self) -> dict[str, str]:
        return {c.request_id: c.reason for c in self.departures.completions}


def make(policy: SchedulingPolicy, block_length: int, requests: list[Scripted], **options) -> Scheduler:
    """A scheduler with the requests submitted as "1", "2", …"""
    scheduler = Scheduler(policy, block_length, **options)
    for number, r in enumerate(requests, start=1):
        scheduler.submit(RequestShape(str(number), r.prompt, r.blocks * block_length, r.arrival))
    return scheduler


def drive(
    policy: SchedulingPolicy,
    block_length: int,
    requests: list[Scripted],
    cancellations: Cancellations | None = None,
    **options,
) -> list[Step]:
    """Run to the end; a cycle takes one second; the scheduler's own invariants are asserted at every boundary.

    ``cancellations`` of those who have left already are passed over.
    """
    scheduler = make(policy, block_length, requests, **options)
    script = {str(n): r for n, r in enumerate(requests, start=1)}
    steps, now, waiting = [], 0.0, dict(cancellations or {})

    def cancel() -> tuple[Completion, ...]:
        here = [i for i in waiting.pop(scheduler.cycle, []) if not scheduler.has_left(i)]
        return tuple(scheduler.drop(i, "cancelled", "", now) for i in here)

    gone = cancel()
    while not isinstance(plan := scheduler.plan(now), Idle) or plan.until is not None:
        if isinstance(plan, Idle):
            assert plan.until > now, "idle until a time that has passed"
            now = plan.until
            continue
        scheduler.check()
        result = scripted_result(plan, script, block_length)
        steps.append(Step(now, plan, scheduler.finish(result, now, now + 1), gone))
        now += 1
        gone = cancel()
        assert len(steps) < 10_000, "the run does not end"
    assert not scheduler.unfinished()
    return steps


def scripted_result(plan: BatchPlan, script: dict[str, Scripted], block_length: int) -> CycleResult:
    """Every unended row writes its block in one step; the scripted block holds the end token."""
    rows = []
    for row in plan.rows:
        ends = script[row.request_id].ends_after == row.block + 1 and not row.ended
        commits = () if row.ended else (block_length,)
        rows.append(RowResult(row.request_id, commits, commits, 1, None, "eos" if ends else None, 0))
    return CycleResult(tuple(rows), 1, 0, block_length, len(rows), plan.cost, {})
