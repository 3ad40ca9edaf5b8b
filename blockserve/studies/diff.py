"""`diff`: the first cycle where two runs of the same requests part, and why. Times are left aside."""

from __future__ import annotations

from dataclasses import dataclass, replace

from blockserve.core import TraceError
from blockserve.tracing import Trace
from blockserve.tracing.records import CompletionRecord, CycleRecord


@dataclass(frozen=True)
class Parting:
    """Where two traces part: the ``cycle``, ``what`` differs first in it, the requests concerned, and why.

    ``what`` is one of ``preempted``, ``admitted``, ``rows`` (slot, block or width), ``progress`` (steps or commits),
    ``evicted``, or ``length`` (one run is over).
    """

    cycle: int
    what: str
    only_first: tuple[str, ...]
    only_second: tuple[str, ...]
    why: str

    def __str__(self) -> str:
        return f"cycle {self.cycle}: {self.what} differ. {self.why}"


def diff(first: Trace, second: Trace) -> Parting | None:
    """The first difference in schedule between two runs of the same requests; ``None`` if there is none.

    Raises `TraceError` if they serve different requests, or were recorded without cycles.
    """
    _check(first, second)
    for a, b in zip(first.cycle_records, second.cycle_records, strict=False):
        for what, view in _VIEWS.items():
            if view(a) != view(b):
                return _parting(first, second, a.index, what, view(a), view(b))
    if len(first) == len(second):
        return None
    cycle, longer = min(len(first), len(second)), "first" if len(first) > len(second) else "second"
    return Parting(cycle, "length", (), (), f"Only the {longer} run goes on ({len(first)} and {len(second)} cycles).")


def schedule(trace: Trace) -> list[CycleRecord | CompletionRecord]:
    """The cycle and completion records with all times removed: what two runs of one schedule share."""
    kept: list[CycleRecord | CompletionRecord] = []
    for record in trace.records:
        if isinstance(record, CycleRecord):
            kept.append(replace(record, start=0.0, duration=0.0, seconds={}))
        elif isinstance(record, CompletionRecord):
            kept.append(replace(record, admitted=None, first_block=None, ended=None, evicted=None))
    return kept


_VIEWS = {
    "preempted": lambda c: {(request_id, "") for request_id in c.preempted},
    "admitted": lambda c: set(c.admitted),
    "rows": lambda c: {(r.id, (r.slot, r.block, r.width, r.frozen)) for r in c.rows},
    "progress": lambda c: {(r.id, (r.commits, r.passes)) for r in c.rows},
    "evicted": lambda c: set(c.evicted),
}


def _check(first: Trace, second: Trace) -> None:
    for name, trace in (("first", first), ("second", second)):
        if not trace.cycle_records:
            raise TraceError(f"the {name} trace holds no cycles; record it at level cycle")
    a, b = ({(r.id, r.prompt_tokens, r.max_new_tokens) for r in t.request_records} for t in (first, second))
    if a != b:
        name = min(a ^ b)[0]
        raise TraceError(f"the traces serve different requests ({len(a ^ b)} differ, the first is {name!r})")


def _parting(first: Trace, second: Trace, cycle: int, what: str, a: set, b: set) -> Parting:
    only_a, only_b = (tuple(sorted({item[0] for item in own})) for own in (a - b, b - a))
    subject = (only_a or only_b)[0]
    why = f"First run: {first.explain(cycle, subject)} Second run: {second.explain(cycle, subject)}"
    return Parting(cycle, what, only_a, only_b, why)
