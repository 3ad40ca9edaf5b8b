"""Follow a trace's cycle records and keep each request's stays in the batch."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from blockserve.core import TraceError
from blockserve.geometry import row_width
from blockserve.tracing.records import CycleRecord, RequestRecord, RowRecord

if TYPE_CHECKING:
    from blockserve.tracing.trace import Trace

FULL_SUFFIX = -1


@dataclass(slots=True)
class Stay:
    """One stay; fields as the ``stay_`` columns of `frames`. ``commits[i]``: of its i-th cycle, one count a step.

    ``active``: cycles in which it advanced, before it was frozen.
    """

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
    """The constants of a trace: block length, kept suffix blocks (−1: all), the policy, names, how it ended.

    Without a run record (a file that lost its first line, records built by hand) lengths are read off a row.
    """
    status = "truncated" if trace.end is None else trace.end.status
    if trace.run is None:
        unknown = {"order": "fifo", "quantum": "block", "slots": None, "reserve": False, "preset": "", "model": ""}
        return {**_guess(trace), **unknown, "status": status}
    suffix, policy = trace.run.decode["suffix"], trace.run.policy
    return {
        "block_length": trace.run.decode["block_length"],
        "suffix": FULL_SUFFIX if suffix == "full" else suffix,
        "order": policy.get("order", "fifo"),
        "quantum": policy.get("quantum", "block"),
        "slots": policy.get("bound", {}).get("slots"),
        "reserve": bool(policy.get("reserve")),
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


def collect_ends(cycles: Iterable[CycleRecord]) -> dict[str, tuple[int, str]]:
    """By request id: the block in which its output became complete, and why."""
    return {row.id: (row.block, row.ended) for cycle in cycles for row in cycle.rows if row.ended is not None}


@dataclass
class StayBook:
    """All stays of a trace so far, sorted by join, then slot; it grows cycle by cycle.

    ``shape`` as `shape_of` gives it; ``requests`` and ``index`` may grow between two cycles. ``present`` holds the
    number (in ``stays``) of each request's stay that is not over.
    """

    shape: dict[str, Any]
    requests: list[RequestRecord]
    stays: list[Stay] = field(default_factory=list)
    present: dict[str, int] = field(default_factory=dict)
    cycles: int = 0

    def __post_init__(self) -> None:
        self.index = {r.id: i for i, r in enumerate(self.requests)}

    def know(self, request: RequestRecord) -> None:
        """Add a request that came later."""
        self.index[request.id] = len(self.requests)
        self.requests.append(request)

    def add(self, cycle: CycleRecord) -> list[tuple[int, str]]:
        """Take one cycle; returns which stays are over and how, as (number, how)."""
        over = [(self.present.pop(i), "preempted") for i in cycle.preempted if i in self.present]
        admitted = dict(cycle.admitted)
        fresh = [row for row in cycle.rows if row.id not in self.present]
        for row in sorted(fresh, key=lambda r: r.slot):
            self.present[row.id] = len(self.stays)
            stay = Stay(self.index[row.id], self.cycles, row.slot, row.block, admitted.get(row.id, ""))
            self.stays.append(stay)
        self._extend(cycle)
        if len(self.present) > len(cycle.rows):  # no row any more: cancelled between two cycles
            gone = self.present.keys() - {row.id for row in cycle.rows}
            over += [(self.present.pop(i), "cancelled") for i in sorted(gone)]
        over += [(self.present.pop(i), reason) for i, reason in cycle.evicted if i in self.present]
        for number, how in over:
            self.stays[number].left = how
        self.cycles += 1
        return over

    def _extend(self, cycle: CycleRecord) -> None:
        """Add the cycle of all its rows. One flat loop: a long trace has millions of rows."""
        stays, present = self.stays, self.present
        length, whole = self.shape["block_length"], self.shape["suffix"] == 0
        for row in cycle.rows:
            stay = stays[present[row.id]]
            if not row.frozen:
                stay.active = len(stay.commits) + 1
            stay.commits.append(row.commits)
            block = stay.block + stay.active - 1 if stay.active else stay.block  # one more each cycle until frozen
            if not (whole and row.block == block and row.width == row.prompt_tokens + (block + 1) * length):
                self._check(cycle, stay, row, block)

    def _check(self, cycle: CycleRecord, stay: Stay, row: RowRecord, block: int) -> None:
        """Refuse a trace whose blocks and widths do not follow from the rows before: the payload keeps neither."""
        suffix = "full" if self.shape["suffix"] == FULL_SUFFIX else self.shape["suffix"]
        blocks = self.requests[stay.request].blocks
        width = row_width(row.prompt_tokens, row.block, blocks, self.shape["block_length"], suffix)
        if row.block != block or row.width != width:
            raise TraceError(
                f"cycle {cycle.index}, request {row.id!r}: block {row.block} and width {row.width} are recorded, "
                f"but block {block} and width {width} follow from the rows before; the trace is damaged"
            )


def collect_stays(trace: Trace, shape: dict[str, Any], requests: list[RequestRecord]) -> StayBook:
    """The stays of a whole trace. ``requests`` as `collect_requests` gives them."""
    book = StayBook(shape, requests)
    for cycle in trace.cycle_records:
        book.add(cycle)
    return book
