"""Admission at one block boundary: what a fill sees as its box and its bound, and what came of it."""

from __future__ import annotations

from collections.abc import Iterable

from blockserve.core import Admission, AdmitReason, PolicyError, RefusalReason, Refusals
from blockserve.geometry import Box, Geometry
from blockserve.scheduling.admission import FILLS, Bound, TokenBudget
from blockserve.scheduling.batch import Batch, Row
from blockserve.scheduling.policy import SchedulingPolicy
from blockserve.scheduling.queue import RequestQueue, Waiting


class Boundary:
    """Admits from ``queue`` into ``batch``. It is the live box (``rows``, ``width``, ``cost``) and the live bound
    (``has_room``, ``admits``) of `blockserve.scheduling.admission`. ``victims``: rows preempted at this boundary."""

    def __init__(
        self,
        policy: SchedulingPolicy,
        bound: Bound,
        geometry: Geometry,
        batch: Batch,
        queue: RequestQueue,
        cycle: int,
        victims: Iterable[Row] = (),
    ) -> None:
        self.policy, self.bound, self.geometry = policy, bound, geometry
        self.batch, self.queue, self.cycle = batch, queue, cycle
        self.victims = {row.id: row for row in victims}
        self.admitted: list[Admission] = []
        self.held_for: Waiting | None = None
        self.closed = policy.quantum == "request" and len(batch) > 0

    # ------------------------------------------------------------------------------ as seen by a fill

    @property
    def rows(self) -> int:
        return len(self.batch)

    @property
    def width(self) -> int:
        return self.batch.box.width

    @property
    def cost(self) -> int:
        return self.batch.box.cost

    @property
    def has_room(self) -> bool:
        """Whether the bound allows one more row no wider than the box."""
        return not self.rows or self.bound.allows(self.batch.box.with_row(0))

    def admits(self, request: Waiting) -> bool:
        """Whether the bound holds with this request in; an empty batch admits anybody."""
        if not self.rows:
            return True
        if not self.bound.allows(self.batch.box.with_row(request.width)):
            return False
        return not self.policy.reserves or self._fits_for_good(request)

    def _fits_for_good(self, request: Waiting) -> bool:
        """Whether the bound holds at every later boundary even if nobody ends early."""
        members = [(r.shape.prompt_tokens, r.block, r.blocks) for r in (*self.batch.rows, request)]
        width = self.geometry.width
        if self.policy.quantum == "request":  # nobody leaves before the group does
            return self.bound.allows(Box.around(max(width(p, b, k), width(p, k - 1, k)) for p, b, k in members))
        later = range(max(k - b for _, b, k in members))
        boxes = (Box.around(width(p, b + t, k) for p, b, k in members if b + t < k) for t in later)
        return all(self.bound.allows(box) for box in boxes)

    # ------------------------------------------------------------------------------------- admission

    def admit(self) -> None:
        """Admit the overdue first, then by the policy's fill; an empty batch always admits the head."""
        if self.closed or self._hold():
            return
        for request in FILLS[self.policy.fill](self.queue, self, self):
            if request.id not in self.queue:
                raise PolicyError(f"fill {self.policy.fill!r} yielded {request.id!r}, which is not in the queue")
            if not self.admits(request):
                raise PolicyError(f"fill {self.policy.fill!r} yielded {request.id!r}, which its bound refuses")
            self._enter(request)
        if not self.rows and self.queue.head is not None:
            self._enter(self.queue.head)

    def _hold(self) -> bool:
        """Admit requests that have waited ``max_wait_cycles``, oldest first; True while one of them must still wait."""
        limit = self.policy.max_wait_cycles
        while limit is not None and (oldest := self.queue.oldest()) is not None and self.cycle - oldest.since >= limit:
            if not self.admits(oldest):
                self.held_for = oldest
                return True
            self._enter(oldest, why="held")
        return False

    def _enter(self, request: Waiting, why: AdmitReason | None = None) -> None:
        why = why or self._why(request)
        victim = self.victims.pop(request.id, None)
        self.queue.remove(request)
        self.batch.enter(request, slot=victim.slot if victim else None)
        if victim is None:  # only net changes are recorded
            self.admitted.append(Admission(request.id, why))

    def _why(self, request: Waiting) -> AdmitReason:
        if request.rank is not None:
            return "readmitted"
        if not self.rows:
            return "head"
        return "fits" if request.width <= self.width else "grow"

    # -------------------------------------------------------------------------------------- refusals

    def refusals(self) -> Refusals:
        """Everybody still queued, counted by reason; the first in order by name."""
        head, waiting = self.queue.head, len(self.queue)
        if head is None:
            return Refusals()
        if self.closed:
            counts: dict[str, int] = {"group": waiting}
        elif self.held_for is not None:  # the one all others are held for is itself refused by the bound
            counts = {"held": waiting - 1, self.bound.reason: 1}
        else:
            fitting = self._fitting()
            counts = {"held" if self.policy.fill == "head_of_line" else "box": fitting}
            counts[self.bound.reason] = waiting - fitting
        return Refusals({reason: n for reason, n in counts.items() if n}, head.id, self.reason(head))

    def _fitting(self) -> int:
        """How many wait whom the bound alone would let in."""
        widest = self.bound.widest(self.rows + 1)
        return 0 if self.policy.reserves or self.width > widest else self.queue.count(widest)

    def reason(self, request: Waiting) -> RefusalReason:
        """Why this queued request is not admitted."""
        return self.bound.reason if request is self.held_for else self._reason(request.width)

    def _reason(self, width: int) -> RefusalReason:
        if self.closed:
            return "group"
        if self.held_for is not None:
            return "held"
        if self.policy.reserves or not self.bound.allows(self.batch.box.with_row(width)):
            return self.bound.reason
        return "held" if self.policy.fill == "head_of_line" else "box"

    def explain(self, request: Waiting) -> str:
        """The reason in numbers, e.g. ``refused: budget (5 × 96 = 480 > 448)``."""
        reason, box = self.reason(request), self.batch.box
        if reason == "budget" and isinstance(self.bound, TokenBudget):
            return f"refused: budget ({box.with_row(request.width)} > {self.bound.tokens})"
        if reason == "slots":
            return f"refused: slots ({box.rows} of {self.bound.slots} taken)"
        return f"refused: {reason}"
