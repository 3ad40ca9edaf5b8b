"""`WidthIndex`: queue entries by row width. The first in order that fits a width, and how many fit, in O(log width)."""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from typing import Any

from sortedcontainers import SortedList

Entry = tuple[Any, float, int, Any]  # (order's key, arrival, number, Waiting): numbers are unique, so tuples compare


class WidthIndex:
    """A bucket of entries for each width, and two trees over the widths: of the buckets' first entries (a segment
    tree of minima) and of their sizes (a Fenwick tree). Both double when a wider row comes."""

    def __init__(self) -> None:
        self._buckets: dict[int, SortedList[Entry]] = {}
        self._build(1024)

    def _build(self, size: int) -> None:
        """Trees over the widths 0 … size - 1, of what is in the buckets."""
        self._size = size
        self._firsts: list[Entry | None] = [None] * (2 * size)
        self._sizes = [0] * (size + 1)
        for width, bucket in self._buckets.items():
            self._set_first(width, bucket[0])
            self._add_size(width, len(bucket))

    def add(self, entry: Entry) -> None:
        width = entry[-1].width
        while width >= self._size:
            self._build(2 * self._size)
        bucket = self._buckets.get(width)
        if bucket is None:
            bucket = self._buckets[width] = SortedList()
        bucket.add(entry)
        self._add_size(width, 1)
        if bucket[0] is entry:
            self._set_first(width, entry)

    def remove(self, entry: Entry) -> None:
        width = entry[-1].width
        bucket = self._buckets[width]
        was_first = bucket[0] is entry
        bucket.remove(entry)
        self._add_size(width, -1)
        if not bucket:
            del self._buckets[width]
        if was_first:
            self._set_first(width, bucket[0] if bucket else None)

    def first(self, width: int) -> Entry | None:
        """The first in order whose row is no wider than ``width``."""
        best, tree = None, self._firsts
        if width >= self._size - 1:
            return tree[1]
        node = width + self._size + 1  # odd ancestors' left neighbours cover the widths 0 … width
        while node > 1:
            if node & 1:
                entry = tree[node - 1]
                if entry is not None and (best is None or entry < best):
                    best = entry
            node >>= 1
        return best

    def after(self, entry: Entry, width: int) -> Iterator[Entry]:
        """In order, those after ``entry`` no wider than ``width``; they may be removed while iterating."""
        heads = []
        for own, bucket in self._buckets.items():
            if own <= width:
                _push_next(heads, bucket, entry)
        while heads:
            found, bucket = heapq.heappop(heads)
            yield found
            _push_next(heads, bucket, found)

    def count(self, width: int) -> int:
        """How many entries are no wider than ``width``."""
        total, node = 0, min(width, self._size - 1) + 1
        while node > 0:
            total += self._sizes[node]
            node &= node - 1
        return total

    def _set_first(self, width: int, entry: Entry | None) -> None:
        """Put a bucket's first entry in the tree of minima; stop where nothing changes further up."""
        tree, node = self._firsts, width + self._size
        tree[node] = entry
        while node > 1:
            a, b = tree[node], tree[node ^ 1]
            least = b if a is None or (b is not None and b < a) else a
            node >>= 1
            if tree[node] is least:
                return
            tree[node] = least

    def _add_size(self, width: int, change: int) -> None:
        node = width + 1
        while node <= self._size:
            self._sizes[node] += change
            node += node & -node


def _push_next(heads: list[tuple[Entry, SortedList[Entry]]], bucket: SortedList[Entry], entry: Entry) -> None:
    """Add a bucket's first entry after ``entry``, if any."""
    place = bucket.bisect_right(entry)
    if place < len(bucket):
        heapq.heappush(heads, (bucket[place], bucket))
