"""The active set: rows, their slots, and the box around them."""

from __future__ import annotations

from bisect import insort
from dataclasses import dataclass, field

from blockserve.core import RequestShape
from blockserve.geometry import Box
from blockserve.scheduling.admission import Bound
from blockserve.scheduling.queue import Waiting


@dataclass(eq=False, slots=True)
class Row:
    """A request in the batch. ``block`` is the one it is about to write, ``slot`` is stable for a stay, ``rank`` is its
    place in the order of first admissions. An ``ended`` row is frozen: it waits for its group (static batching)."""

    shape: RequestShape
    number: int
    blocks: int
    block: int
    slot: int
    rank: int
    width: int
    ended: bool = False
    id: str = field(init=False)

    def __post_init__(self) -> None:
        self.id = self.shape.id


class Batch:
    """The active set ``A``: rows in slot order. Widths change only by `widen`, so that the box is known at any time."""

    def __init__(self) -> None:
        self.rows: list[Row] = []
        self._ranks = 0
        self._box: Box | None = Box()  # None: to be measured

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def box(self) -> Box:
        """The present bounding box."""
        if self._box is None:
            self._box = Box.around([row.width for row in self.rows])
        return self._box

    def find(self, request_id: str) -> Row | None:
        return next((row for row in self.rows if row.id == request_id), None)

    def enter(self, request: Waiting, slot: int | None = None) -> Row:
        """Add a request's row, in ``slot`` if given and free, else in the lowest free slot."""
        if slot is None or any(row.slot == slot for row in self.rows):
            slot = self._lowest_free_slot()
        rank = request.rank
        if rank is None:
            rank, self._ranks = self._ranks, self._ranks + 1
        row = Row(request.shape, request.number, request.blocks, request.block, slot, rank, request.width)
        insort(self.rows, row, key=lambda r: r.slot)
        self._box = None if self._box is None else self._box.with_row(row.width)
        return row

    def _lowest_free_slot(self) -> int:
        """Rows are in slot order, so up to the first gap a row's slot is its index."""
        low, high = 0, len(self.rows)
        while low < high:
            middle = (low + high) // 2
            if self.rows[middle].slot == middle:
                low = middle + 1
            else:
                high = middle
        return low

    def remove(self, row: Row) -> None:
        self.rows.remove(row)
        self._box = None

    def widen(self, row: Row, width: int) -> None:
        """Set a row's width in tokens, at its next block."""
        row.width = width
        self._box = None

    def by_rank(self) -> list[Row]:
        """In order of first admission."""
        return sorted(self.rows, key=lambda r: r.rank)

    def outgrown(self, bound: Bound) -> list[Row]:
        """The rows that must leave for the bound to hold, in slot order (README: the hard budget).

        The latest admitted leave first until the bound holds, never the last row; then, in order of admission,
        those that fit without widening the box stay after all.
        """
        if len(self.rows) <= 1 or bound.allows(self.box):
            return []
        kept, victims = self.by_rank(), []
        while len(kept) > 1 and not bound.allows(Box.around(row.width for row in kept)):
            victims.append(kept.pop())
        box = Box.around(row.width for row in kept)
        leaving = set()
        for row in reversed(victims):
            if row.width <= box.width and bound.allows(box.with_row(row.width)):
                box = box.with_row(row.width)
            else:
                leaving.add(row)
        return [row for row in self.rows if row in leaving]
