"""The queue of waiting requests, in an order chosen by name.

An order is a function ``order(request) -> key`` on `Waiting`; the smallest key is the head. Ties go by arrival,
then by submission, so that runs repeat.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from sortedcontainers import SortedKeyList, SortedList

from blockserve.core import RequestShape, check_choice
from blockserve.geometry import Geometry
from blockserve.scheduling.widths import Entry, WidthIndex


@dataclass(eq=False, slots=True)
class Waiting:
    """A request in the queue. ``number``: submission counter; ``blocks``: K; ``block``: blocks finished before it was
    preempted; ``tokens``: p + b·L, what orders measure it by; ``width``: row width it would enter with; ``rank``:
    place in the order of first admissions, ``None`` if never admitted; ``since``: cycle it (re-)entered the queue."""

    shape: RequestShape
    number: int
    blocks: int
    block: int
    tokens: int
    width: int
    rank: int | None = None
    since: int = 0

    @classmethod
    def of(
        cls,
        geometry: Geometry,
        shape: RequestShape,
        number: int,
        *,
        block: int = 0,
        rank: int | None = None,
        since: int = 0,
    ) -> Waiting:
        """A request that waits to write ``block``."""
        blocks = geometry.blocks(shape.max_new_tokens)
        tokens = shape.prompt_tokens + block * geometry.block_length
        width = geometry.width(shape.prompt_tokens, block, blocks)
        return cls(shape, number, blocks, block, tokens, width, rank, since)

    @property
    def id(self) -> str:
        return self.shape.id

    @property
    def prompt_tokens(self) -> int:
        return self.shape.prompt_tokens

    @property
    def max_new_tokens(self) -> int:
        return self.shape.max_new_tokens

    @property
    def arrival(self) -> float:
        return self.shape.arrival


Order = Callable[[Waiting], Any]
ORDERS: dict[str, Order] = {}


def register_order(name: str) -> Callable[[Order], Order]:
    """Decorator: make an order known by ``name``. The key must be comparable and must not change while queued."""

    def add(order: Order) -> Order:
        ORDERS[name] = order
        return order

    return add


@register_order("longest_first")
def longest_first(request: Waiting) -> int:
    """The paper's order: most tokens so far (prompt and finished blocks) first."""
    return -request.tokens


@register_order("shortest_first")
def shortest_first(request: Waiting) -> int:
    """Fewest tokens so far first."""
    return request.tokens


@register_order("fifo")
def fifo(request: Waiting) -> int:
    """By arrival, then by submission: the queue's own tie break."""
    return 0


class RequestQueue:
    """Waiting requests in order; insertion, removal, the first that fits a width, and how many do, without walking
    the queue: all take logarithmic time, so that a million requests can wait."""

    def __init__(self, order: str) -> None:
        check_choice("order", order, ORDERS)
        self._rule = ORDERS[order]
        self._in_order: SortedList[Entry] = SortedList()
        self._by_width = WidthIndex()
        self._by_since: SortedKeyList | None = None  # made when first asked for: only `max_wait_cycles` needs it
        self._by_id: dict[str, Entry] = {}

    def __len__(self) -> int:
        return len(self._in_order)

    def __contains__(self, request_id: str) -> bool:
        return request_id in self._by_id

    def __getitem__(self, request_id: str) -> Waiting:
        return self._by_id[request_id][-1]

    def __iter__(self) -> Iterator[Waiting]:
        """In order. Requests may be removed while iterating (a fill's requests are, as soon as it yields them)."""
        index = 0
        while index < len(self._in_order):
            entry = self._in_order[index]
            yield entry[-1]
            index = self._in_order.bisect_right(entry)

    def add(self, request: Waiting) -> None:
        self.add_all([request])

    def add_all(self, requests: Iterable[Waiting]) -> None:
        """Add many at once, which is cheaper than one by one."""
        entries = [(self._rule(r), r.shape.arrival, r.number, r) for r in requests]
        self._in_order.update(entries)
        for entry in entries:
            self._by_width.add(entry)
            self._by_id[entry[-1].id] = entry
            if self._by_since is not None:
                self._by_since.add(entry[-1])

    def remove(self, request: Waiting) -> None:
        entry = self._by_id.pop(request.id)
        self._in_order.remove(entry)
        self._by_width.remove(entry)
        if self._by_since is not None:
            self._by_since.remove(request)

    @property
    def head(self) -> Waiting | None:
        """The first in order."""
        return self._in_order[0][-1] if self._in_order else None

    def fitting(self, width: int) -> Iterator[Waiting]:
        """In order, those whose row is no wider than ``width`` tokens; they may be removed while iterating."""
        while (entry := self._by_width.first(width)) is not None:
            yield entry[-1]
            if entry[-1].id in self._by_id:  # passed over, so the first is no longer the next
                yield from (later[-1] for later in self._by_width.after(entry, width))
                return

    def count(self, width: int) -> int:
        """How many wait whose row is no wider than ``width`` tokens."""
        return self._by_width.count(width)

    def oldest(self) -> Waiting | None:
        """The one that has waited longest since it (re-)entered."""
        if self._by_since is None:
            self._by_since = SortedKeyList(self, key=lambda r: (r.since, r.number))
        return self._by_since[0] if self._by_since else None
