"""The queue of waiting requests, in an order chosen by name.

An order is a function ``order(request) -> key`` on `Waiting`; the smallest key is the head. Ties go by arrival,
then by submission, so that runs repeat.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from sortedcontainers import SortedDict, SortedKeyList

from blockserve.core import RequestShape, check_choice
from blockserve.geometry import Geometry


@dataclass(eq=False)
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
    """Waiting requests in order; insertion, removal and "those that fit a width" without walking the queue."""

    def __init__(self, order: str) -> None:
        check_choice("order", order, ORDERS)
        rule = ORDERS[order]
        self._key = lambda r: (rule(r), r.shape.arrival, r.number)
        self._all = SortedKeyList(key=self._key)
        self._by_width: SortedDict = SortedDict()
        self._by_since = SortedKeyList(key=lambda r: (r.since, r.number))
        self._by_id: dict[str, Waiting] = {}

    def __len__(self) -> int:
        return len(self._all)

    def __contains__(self, request_id: str) -> bool:
        return request_id in self._by_id

    def __getitem__(self, request_id: str) -> Waiting:
        return self._by_id[request_id]

    def __iter__(self) -> Iterator[Waiting]:
        """In order. Requests may be removed while iterating (a fill's requests are, as soon as it yields them)."""
        index = 0
        while index < len(self._all):
            request = self._all[index]
            key = self._key(request)
            yield request
            index = self._all.bisect_key_right(key)

    def add(self, request: Waiting) -> None:
        self._all.add(request)
        self._by_since.add(request)
        self._by_width.setdefault(request.width, SortedKeyList(key=self._key)).add(request)
        self._by_id[request.id] = request

    def remove(self, request: Waiting) -> None:
        self._all.remove(request)
        self._by_since.remove(request)
        bucket = self._by_width[request.width]
        bucket.remove(request)
        if not bucket:
            del self._by_width[request.width]
        del self._by_id[request.id]

    @property
    def head(self) -> Waiting | None:
        """The first in order."""
        return self._all[0] if self._all else None

    def fitting(self, width: int) -> Iterator[Waiting]:
        """In order, those whose row is no wider than ``width`` tokens; they may be removed while iterating."""
        request = self._next_fitting(width, None)
        while request is not None:
            key = self._key(request)
            yield request
            request = self._next_fitting(width, key)

    def _next_fitting(self, width: int, after: Any) -> Waiting | None:
        heads = []
        for bucket in (self._by_width[w] for w in self._by_width.irange(maximum=width)):
            place = 0 if after is None else bucket.bisect_key_right(after)
            if place < len(bucket):
                heads.append(bucket[place])
        return min(heads, key=self._key, default=None)

    def oldest(self) -> Waiting | None:
        """The one that has waited longest since it (re-)entered."""
        return self._by_since[0] if self._by_since else None

    def widths(self) -> Iterator[tuple[int, int]]:
        """(row width, how many wait with it), ascending."""
        return ((width, len(bucket)) for width, bucket in self._by_width.items())
