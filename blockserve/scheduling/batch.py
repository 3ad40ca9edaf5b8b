"""The active set: rows, their slots, and the box around them."""

from __future__ import annotations

from dataclasses import dataclass

from blockserve.core import RequestShape
from blockserve.geometry import Box
from blockserve.scheduling.admission import Bound
from blockserve.scheduling.queue import Waiting


@dataclass(eq=False)
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

    @property
    def id(self) -> str:
        return self.shape.id


class Batch:
    """The active set ``A``: rows in slot order."""

    def __init__(self) -> None:
        self.rows: list[Row] = []
        self._ranks = 0

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def box(self) -> Box:
        """The present bounding box."""
        return Box.around(row.width for row in self.rows)

    def find(self, request_id: str) -> Row | None:
        return next((row for row in self.rows if row.id == request_id), None)

    def enter(self, request: Waiting, slot: int | None = None) -> Row:
        """Add a request's row, in ``slot`` if given and free, else in the lowest free slot."""
        taken = {row.slot for row in self.rows}
        if slot is None or slot in taken:
            slot = next(i for i in range(len(taken) + 1) if i not in taken)
        rank = request.rank
        if rank is None:
            rank, self._ranks = self._ranks, self._ranks + 1
        row = Row(request.shape, request.number, request.blocks, request.block, slot, rank, request.width)
        self.rows.append(row)
        self.rows.sort(key=lambda r: r.slot)
        return row

    def remove(self, row: Row) -> None:
        self.rows.remove(row)

    def by_rank(self) -> list[Row]:
        """In order of first admission."""
        return sorted(self.rows, key=lambda r: r.rank)

    def outgrown(self, bound: Bound) -> list[Row]:
        """The rows that must leave for the bound to hold, in slot order (README: the hard budget).

        The latest admitted leave first until the bound holds, never the last row; then, in order of admission,
        those that fit without widening the box stay after all.
        """
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
