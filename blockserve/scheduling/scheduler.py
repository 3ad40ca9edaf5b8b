"""Algorithm 1 of the paper, made memory-safe: plan a cycle, take its result, decide who leaves.

The scheduler knows rows, widths and blocks; no tensors and no text. Two calls a cycle: `plan` at the boundary
before it (arrivals, the hard budget, admission) and `finish` at the boundary after it (advance, evict).
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass, field

from blockserve.core import (
    Admission,
    AdmitReason,
    BatchPlan,
    Completion,
    CycleResult,
    EndReason,
    Idle,
    InvalidRequestError,
    RequestShape,
    RowPlan,
    RowResult,
    Suffix,
)
from blockserve.geometry import Geometry, largest_limit
from blockserve.scheduling.admission import Bound, FixedSlots, TokenBudget
from blockserve.scheduling.batch import Batch, Row
from blockserve.scheduling.boundary import Boundary
from blockserve.scheduling.policy import SchedulingPolicy
from blockserve.scheduling.queue import RequestQueue, Waiting


@dataclass(slots=True)
class _Life:
    """What is known of a submitted request so far; becomes its `Completion`."""

    shape: RequestShape
    admitted: float | None = None
    first_block: float | None = None
    ended: float | None = None
    ended_cycle: int | None = None
    reason: EndReason | None = None
    gone: bool = False
    blocks: int = 0
    valid_tokens: int = 0


@dataclass(frozen=True)
class Departures:
    """What `Scheduler.finish` decided: whose output became complete in the cycle (id → reason), and who left."""

    ended: dict[str, EndReason] = field(default_factory=dict)
    completions: tuple[Completion, ...] = ()


class Scheduler:
    """Requests in, plans out. ``run_to_limit`` is ``eos="ignore"``: no row ends before its limit.

    ``context``: the model's largest row in tokens, ``None`` for no limit.
    """

    def __init__(
        self,
        policy: SchedulingPolicy,
        block_length: int,
        *,
        suffix: Suffix = 0,
        run_to_limit: bool = False,
        context: int | None = None,
    ) -> None:
        self.policy, self.run_to_limit, self.context = policy, run_to_limit, context
        self.geometry = Geometry(block_length, suffix)
        self.bound: Bound = policy.bound  # lowered by `shed`
        self.cycle = 0
        self.queue = RequestQueue(policy.order)
        self.batch = Batch()
        self._lives: dict[str, _Life] = {}
        self._arrivals: list[tuple[float, int, Waiting]] = []
        self._numbers = 0
        self._plan: BatchPlan | None = None  # handed out, not finished
        self._carried: tuple[list[Admission], list[str]] = ([], [])  # changes of a failed plan, for the next one

    # ------------------------------------------------------------------------------------- submission

    def check_request(self, shape: RequestShape) -> None:
        """Raise `InvalidRequestError` for a request that could never be served, saying what would fit."""
        p, g, length = shape.prompt_tokens, shape.max_new_tokens, self.geometry.block_length
        if shape.id in self._lives:
            raise InvalidRequestError(f"request id {shape.id!r} is used twice; ids must be unique")
        if p < 1:
            raise InvalidRequestError(f"request {shape.id!r} has an empty prompt; give at least one token")
        need = self.geometry.largest(p, self.geometry.blocks(g))
        for limit, what in ((self.context, "the model's context"), (self.budget, "the token budget")):
            if limit is not None and need > limit:
                fits = largest_limit(p, limit, length)
                advice = (
                    f"the largest limit that fits is {fits}" if fits else "not even one block fits: shorten the prompt"
                )
                raise InvalidRequestError(
                    f"request {shape.id!r} needs {p} prompt + {need - p} new = {need} tokens, "
                    f"more than {what} of {limit}; {advice}"
                )

    def submit(self, shape: RequestShape) -> None:
        """Queue a request for its arrival time. Raises as `check_request`."""
        self.check_request(shape)
        self._lives[shape.id] = _Life(shape)
        self._numbers += 1
        entry = Waiting.of(self.geometry, shape, self._numbers)
        heapq.heappush(self._arrivals, (shape.arrival, self._numbers, entry))

    @property
    def budget(self) -> int | None:
        """β in tokens, as it is now; ``None`` under slots."""
        return self.bound.tokens if isinstance(self.bound, TokenBudget) else None

    # ------------------------------------------------------------------------------------------- plan

    def plan(self, now: float) -> BatchPlan | Idle:
        """The next cycle at time ``now`` [s], or `Idle` when no request is here (``until`` the next arrival)."""
        self._arrive(now)
        victims = self.batch.outgrown(self.bound)
        for row in victims:
            self._preempt(row)
        boundary = self._boundary(victims)
        boundary.admit()
        if not self.batch.rows:
            return Idle(self._arrivals[0][0] if self._arrivals else None)
        (admitted, preempted), self._carried = self._carried, ([], [])
        self._plan = BatchPlan(
            cycle=self.cycle,
            rows=tuple([self._row_plan(row) for row in self.batch.rows]),
            box_width=self.batch.box.width,
            budget=self.budget,
            admitted=(*admitted, *boundary.admitted),
            preempted=(*preempted, *boundary.victims),
            refused=boundary.refusals(),
            queue_depth=len(self.queue),
        )
        return self._plan

    def _arrive(self, now: float) -> None:
        here = []
        while self._arrivals and self._arrivals[0][0] <= now:
            entry = heapq.heappop(self._arrivals)[2]
            entry.since = self.cycle
            here.append(entry)
        self.queue.add_all(here)

    def _preempt(self, row: Row) -> None:
        """Back to the queue with its block index and its admission rank unchanged."""
        self._requeue(row, row.rank)

    def _requeue(self, row: Row, rank: int | None) -> None:
        self.batch.remove(row)
        entry = Waiting.of(self.geometry, row.shape, row.number, block=row.block, rank=rank, since=self.cycle)
        self.queue.add(entry)

    def _boundary(self, victims: list[Row]) -> Boundary:
        return Boundary(self.policy, self.bound, self.geometry, self.batch, self.queue, self.cycle, victims)

    def _row_plan(self, row: Row) -> RowPlan:
        suffix = self.geometry.suffix_blocks(row.block, row.blocks)
        # By position: names would take half as long again, and this is done for every row of every cycle.
        return RowPlan(row.id, row.slot, row.block, row.blocks, row.shape.prompt_tokens, suffix, row.width, row.ended)

    # ----------------------------------------------------------------------------------------- finish

    def finish(self, result: CycleResult, started: float, now: float) -> Departures:
        """Take the executed cycle, which ran from ``started`` to ``now`` [s]: advance every unended row by one
        block, evict what has ended (under quantum ``request``, the group when all of it has)."""
        ended: dict[str, EndReason] = {}
        for row, outcome in zip(self.batch.rows, result.rows, strict=True):
            assert row.id == outcome.request_id, "the executor's rows are not in the plan's order"
            if not row.ended:
                self._advance(row, outcome, started, now, ended)
        done = [row for row in self.batch.rows if row.ended]
        if self.policy.quantum == "request" and len(done) < len(self.batch):
            done = []
        completions = tuple(self._complete(row, now) for row in done)
        self.cycle += 1
        self._plan = None
        return Departures(ended, completions)

    def _advance(self, row: Row, outcome: RowResult, started: float, now: float, ended: dict[str, EndReason]) -> None:
        life, block = self._lives[row.id], row.block + 1
        life.blocks, life.valid_tokens = block, outcome.valid_tokens
        if life.admitted is None:
            life.admitted, life.first_block = started, now
        stops = outcome.ended is not None and not self.run_to_limit
        row.ended = stops or block >= row.blocks
        if life.ended is None and (row.ended or outcome.ended is not None):
            life.ended, life.ended_cycle = now, self.cycle
            ended[row.id] = outcome.ended or "length"
        if row.ended:
            life.reason = outcome.ended if stops else "length"
        else:
            row.block = block
            self.batch.widen(row, self.geometry.width(row.shape.prompt_tokens, block, row.blocks))

    def _complete(self, row: Row, now: float) -> Completion:
        self.batch.remove(row)
        return self._completion(row.id, now, self.cycle)

    def _completion(self, request_id: str, now: float, cycle: int | None, message: str = "") -> Completion:
        life = self._lives[request_id]
        life.gone = True
        return Completion(
            request_id=request_id,
            reason=life.reason,
            blocks=life.blocks,
            valid_tokens=life.valid_tokens,
            arrival=life.shape.arrival,
            admitted=life.admitted,
            first_block=life.first_block,
            ended=life.ended,
            evicted=now,
            ended_cycle=life.ended_cycle,
            evicted_cycle=cycle,
            message=message,
        )

    # -------------------------------------------------------------------------------- faults and state

    def shed(self) -> bool:
        """After an out-of-memory cycle: preempt the later half of the rows and lower the bound by that ratio.

        False when a single row could not run: nothing was changed, `drop` it.
        """
        rows = self.batch.by_rank()
        if len(rows) <= 1:
            return False
        keep = len(rows) // 2
        cost = self.batch.box.cost
        entered = self._carry({row.id for row in rows[keep:]})
        for row in rows[keep:]:
            never_ran = entered.get(row.id, "readmitted") != "readmitted"
            self._requeue(row, None if never_ran else row.rank)
            if row.id not in entered:
                self._carried[1].append(row.id)
        if isinstance(self.bound, TokenBudget):
            self.bound = TokenBudget(max(1, min(self.bound.tokens, cost) * keep // len(rows)))
        else:
            self.bound = FixedSlots(max(1, min(self.bound.slots, len(rows)) * keep // len(rows)))
        return True

    def _carry(self, leaving: set[str]) -> dict[str, AdmitReason]:
        """Keep the changes of a plan that was not executed for the next one, so that each is recorded once.

        Rows ``leaving`` now never ran under it, so they were not admitted by it. Returns its admissions.
        """
        plan, self._plan = self._plan, None
        if plan is None:
            return {}
        self._carried = ([a for a in plan.admitted if a.request_id not in leaving], [*plan.preempted])
        return {a.request_id: a.why for a in plan.admitted}

    def drop(self, request_id: str, reason: EndReason, message: str, now: float) -> Completion:
        """End a request wherever it is (row, queue, or not yet arrived) at a boundary, without another cycle.

        Raises `InvalidRequestError` for an id never submitted or already gone.
        """
        life = self._life(request_id)
        if life.gone:
            raise InvalidRequestError(f"request {request_id!r} has already left ({life.reason})")
        row = self.batch.find(request_id)
        if row is not None:
            self._carry({request_id})
            self.batch.remove(row)
        elif request_id in self.queue:
            self.queue.remove(self.queue[request_id])
        else:
            self._arrivals = [a for a in self._arrivals if a[2].id != request_id]
            heapq.heapify(self._arrivals)
        last = self.cycle - 1 if self.cycle else None
        if life.reason is None:  # a row of a static group may have ended already: it keeps its own reason
            life.reason, life.ended, life.ended_cycle = reason, now, last
        return self._completion(request_id, now, last, message)

    def _life(self, request_id: str) -> _Life:
        if request_id not in self._lives:
            raise InvalidRequestError(f"request {request_id!r} was never submitted")
        return self._lives[request_id]

    def has_left(self, request_id: str) -> bool:
        """Whether a submitted request has ended and left. Raises `InvalidRequestError` for an unknown id."""
        return self._life(request_id).gone

    def unfinished(self) -> list[str]:
        """Ids of requests that have not left: in the batch, queued, or still to arrive."""
        return [request_id for request_id, life in self._lives.items() if not life.gone]

    def why(self, request_id: str) -> str:
        """One sentence on where a request is now and, if it waits, what refuses it."""
        life = self._life(request_id)
        row = self.batch.find(request_id)
        if row is not None:
            return f"{request_id} is in slot {row.slot} at block {row.block}" + (", ended" if row.ended else "")
        if request_id in self.queue:
            request = self.queue[request_id]
            return f"{request_id} waits since cycle {request.since}; {self._boundary([]).explain(request)}"
        return (
            f"{request_id} has left ({life.reason})"
            if life.gone
            else f"{request_id} arrives at {life.shape.arrival:g} s"
        )

    def check(self) -> None:
        """Assert the invariants of the state between `plan` and `finish`."""
        rows, arriving = self.batch.rows, [a[2].id for a in self._arrivals]
        ids = [*(r.id for r in rows), *(r.id for r in self.queue), *arriving]
        assert sorted(ids) == sorted(self.unfinished()), "a request is lost, or in two places"
        assert len({row.slot for row in rows}) == len(rows), "two rows share a slot"
        assert len(rows) <= 1 or self.bound.allows(self.batch.box), "the bound is exceeded"
        for row in rows:
            assert row.block < row.blocks, "a row is past its last block"
            assert row.width == self.geometry.width(row.shape.prompt_tokens, row.block, row.blocks), "a stale width"
