"""Who may enter: bounds on the box, and fills that walk the queue under a bound.

A fill is ``fill(queue, box, bound) -> iterator of requests``. Each request it yields is admitted at once: it is
gone from ``queue``, ``box`` has grown, and ``bound.admits`` answers for the grown box. It must yield only
requests that ``bound.admits``.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import ClassVar, Protocol

from blockserve.core import RefusalReason, check_int
from blockserve.geometry import Box
from blockserve.scheduling.queue import RequestQueue, Waiting


@dataclass(frozen=True)
class TokenBudget:
    """Cost of the box ≤ ``tokens`` (β of the paper)."""

    kind: ClassVar[str] = "budget"
    reason: ClassVar[RefusalReason] = "budget"
    tokens: int

    def __post_init__(self) -> None:
        check_int("token_budget", self.tokens, 1)

    def allows(self, box: Box) -> bool:
        return box.cost <= self.tokens

    def widest(self, rows: int) -> int:
        """The widest box of ``rows`` rows it allows; 0 for none."""
        return self.tokens // rows


@dataclass(frozen=True)
class FixedSlots:
    """At most ``slots`` rows, however wide."""

    kind: ClassVar[str] = "slots"
    reason: ClassVar[RefusalReason] = "slots"
    slots: int

    def __post_init__(self) -> None:
        check_int("slots", self.slots, 1)

    def allows(self, box: Box) -> bool:
        return box.rows <= self.slots

    def widest(self, rows: int) -> int:
        """The widest box of ``rows`` rows it allows; 0 for none."""
        return sys.maxsize if rows <= self.slots else 0


Bound = TokenBudget | FixedSlots


class LiveBox(Protocol):
    """The present box; grows as requests are admitted."""

    @property
    def rows(self) -> int: ...
    @property
    def width(self) -> int: ...
    @property
    def cost(self) -> int: ...


class LiveBound(Protocol):
    """The bound, applied to the present box (and, under ``reserve``, to every later one)."""

    @property
    def has_room(self) -> bool:
        """Whether the bound allows one more row no wider than the box."""
        ...

    def admits(self, request: Waiting) -> bool: ...


Fill = Callable[[RequestQueue, LiveBox, LiveBound], Iterable[Waiting]]
FILLS: dict[str, Fill] = {}


def register_fill(name: str) -> Callable[[Fill], Fill]:
    """Decorator: make a fill known by ``name``."""

    def add(fill: Fill) -> Fill:
        FILLS[name] = fill
        return fill

    return add


@register_fill("sand_strict")
def sand_strict(queue: RequestQueue, box: LiveBox, bound: LiveBound) -> Iterator[Waiting]:
    """Sand filling: in order, every request whose row fits the present box; the box is never widened.

    An empty box has no width to fit: the head sets it.
    """
    if not box.rows and queue.head is not None:
        yield queue.head
    for request in queue.fitting(box.width):
        if not bound.has_room:
            return
        if bound.admits(request):
            yield request


@register_fill("sand")
def sand(queue: RequestQueue, box: LiveBox, bound: LiveBound) -> Iterator[Waiting]:
    """Sand filling; when nothing more fits the box, the head of the queue may widen it while the bound holds."""
    while True:
        yield from sand_strict(queue, box, bound)
        head = queue.head
        if head is None or head.width <= box.width or not bound.admits(head):
            return
        yield head


@register_fill("head_of_line")
def head_of_line(queue: RequestQueue, box: LiveBox, bound: LiveBound) -> Iterator[Waiting]:
    """In order, stopping at the first request that the bound refuses."""
    while (head := queue.head) is not None and bound.admits(head):
        yield head
