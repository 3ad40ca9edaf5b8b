"""Typed columns → the batch at one cycle, boundary included: what the still draws and what tests compare.

The player derives the same frame in JavaScript (``static/frame.js``); field names agree on purpose.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property
from itertools import takewhile
from typing import Any

import numpy as np

from blockserve.geometry import kept_suffix
from blockserve_viz.frames import LEFT, REASONS, WHYS
from blockserve_viz.packing import Encoded, unpack
from blockserve_viz.stays import FULL_SUFFIX

PREEMPTED = LEFT.index("preempted")


@dataclass(frozen=True)
class FrameRow:
    """One row of the batch, with what happens to it at the boundary after the cycle. Lengths in tokens.

    ``past``: blocks worked on after its output was complete (``eos="ignore"``), the active one included;
    ``entered``: "refill" (its slot was occupied in the cycle before), "expand", or ``None``; ``ended``: why its
    output became complete in this cycle; ``leaves``: how it left at the boundary ("preempted" or an eviction's
    reason); ``grows``: the boundary adds a block to it; ``reclaimed``: by how much its padding then shrinks.
    """

    id: str
    slot: int
    block: int
    prompt: int
    suffix: int
    width: int
    padding: int
    frozen: bool
    past: int
    steps: int | None
    commits: tuple[int, ...] | None
    entered: str | None
    why: str
    ended: str | None
    leaves: str | None
    grows: bool
    reclaimed: int


@dataclass(frozen=True)
class Waiting:
    """One queued request: its first row's tokens without the active block, and whether it enters at the boundary."""

    id: str
    prompt: int
    block: int
    enters: bool


@dataclass(frozen=True)
class Frame:
    """The batch in one cycle. ``edge``: where the box's left edge lies after the boundary, in tokens left of it."""

    cycle: int
    start: float
    rows: tuple[FrameRow, ...]
    width: int
    budget: int | None
    steps: int
    edge: int | None
    waiting: int
    queue: tuple[Waiting, ...]

    @property
    def cost(self) -> int:
        """Tokens of the bounding box (Eq. 1)."""
        return len(self.rows) * self.width


class Frames:
    """An encoded trace, cycle by cycle: ``frames[cycle]`` is a `Frame`."""

    def __init__(self, encoded: Encoded) -> None:
        self.meta = encoded.meta
        self.c: dict[str, np.ndarray] = unpack(encoded)
        self.join = np.repeat(np.arange(len(self)), self.c["cycle_joins"])
        self.leave = self.join + self.c["stay_length"]
        self.active = self.c["stay_length"].astype(np.int64) - self.c["stay_frozen"]
        self._first = np.concatenate([[0], np.cumsum(self.c["stay_length"], dtype=np.int64)])

    def __len__(self) -> int:
        return self.meta["cycles"]

    def __getitem__(self, cycle: int) -> Frame:
        if not 0 <= cycle < len(self):
            raise IndexError(f"cycle {cycle} is outside 0 to {len(self) - 1}")
        c, stays = self.c, self._present(cycle)
        grow = max((self._growth(s, cycle) for s in stays), default=0)
        stayed = cycle + 1 < len(self) and any(self.leave[s] > cycle + 1 for s in stays)
        edge = int(c["cycle_width"][cycle + 1]) - grow if stayed else None
        budget = int(c["cycle_budget"][cycle])
        return Frame(
            cycle=cycle,
            start=float(c["cycle_start"][cycle]),
            rows=self.rows(cycle),
            width=int(c["cycle_width"][cycle]),
            budget=None if budget < 0 else budget,
            steps=int(c["cycle_steps"][cycle]),
            edge=edge,
            waiting=int(c["cycle_queue"][cycle]),
            queue=self._queue(cycle),
        )

    def rows(self, cycle: int) -> tuple[FrameRow, ...]:
        """The rows of a frame, by slot, without the rest of it."""
        slots = {int(self.c["stay_slot"][s]) for s in self._present(cycle - 1)}
        return tuple(self._row(s, cycle, slots) for s in self._present(cycle))

    @cached_property
    def ids(self) -> list[str]:
        """Request ids by index."""
        if "id_number" in self.c:
            return [f"{self.meta['id_prefix']}{number}" for number in self.c["id_number"].tolist()]
        ends = np.cumsum(self.c["id_length"], dtype=np.int64)
        text = self.c["id_text"].tobytes()
        return [text[e - n : e].decode() for e, n in zip(ends, self.c["id_length"].astype(int), strict=True)]

    @cached_property
    def prefix(self) -> str:
        """What all ids begin with, up to a mark such as ``-``; labels leave it out."""
        if len(self.ids) < 2:
            return ""
        low, high = min(self.ids), max(self.ids)
        same = takewhile(lambda pair: pair[0] == pair[1], zip(low, high, strict=False))
        shared = re.match(r".*[-_:/. ]", "".join(letter for letter, _ in same))
        return shared[0] if shared else ""

    def _present(self, cycle: int) -> list[int]:
        """Stays in the batch in ``cycle``, by slot."""
        stays = np.flatnonzero((self.join <= cycle) & (self.leave > cycle))
        return sorted(stays.tolist(), key=lambda s: int(self.c["stay_slot"][s]))

    def _block(self, stay: int, cycle: int) -> int:
        """Block index in ``cycle``: one more each cycle, the same while the row is frozen."""
        progress = min(cycle - int(self.join[stay]), int(self.active[stay]) - 1)
        return int(self.c["stay_block"][stay]) + progress

    def _suffix(self, stay: int, block: int) -> int:
        kept = self.meta["suffix"]
        blocks = int(self.c["request_blocks"][self.c["stay_request"][stay]])
        return kept_suffix("full" if kept == FULL_SUFFIX else kept, block, blocks)

    def _width(self, stay: int, cycle: int) -> int:
        block = self._block(stay, cycle)
        prompt = int(self.c["request_prompt"][self.c["stay_request"][stay]])
        return prompt + (block + 1 + self._suffix(stay, block)) * self.meta["block_length"]

    def _growth(self, stay: int, cycle: int) -> int:
        """Tokens by which the row is wider in the next cycle; 0 when it is not in it."""
        return self._width(stay, cycle + 1) - self._width(stay, cycle) if self.leave[stay] > cycle + 1 else 0

    def _row(self, stay: int, cycle: int, slots_before: set[int]) -> FrameRow:
        c, join = self.c, int(self.join[stay])
        request, block = c["stay_request"][stay], self._block(stay, cycle)
        end = int(c["request_end"][request])
        padding = int(c["cycle_width"][cycle]) - self._width(stay, cycle)
        stays_on = self.leave[stay] > cycle + 1
        padding_next = int(c["cycle_width"][cycle + 1]) - self._width(stay, cycle + 1) if stays_on else padding
        entered = "refill" if int(c["stay_slot"][stay]) in slots_before else "expand"
        frozen = cycle >= join + int(self.active[stay])
        left, commits = int(c["stay_left"][stay]), self._commits(stay, cycle)
        return FrameRow(
            id=self.ids[request],
            slot=int(c["stay_slot"][stay]),
            block=block,
            prompt=int(c["request_prompt"][request]),
            suffix=self._suffix(stay, block),
            width=self._width(stay, cycle),
            padding=padding,
            frozen=frozen,
            past=0 if frozen else max(0, block - end),
            steps=self._steps(stay, cycle),
            commits=commits,
            entered=entered if join == cycle else None,
            why=WHYS[c["stay_why"][stay]],
            ended=REASONS[c["request_reason"][request]] if block == end and not frozen else None,
            leaves=None if stays_on or left == 0 else LEFT[left],
            grows=self._growth(stay, cycle) > 0,
            reclaimed=max(0, padding - padding_next),
        )

    def _steps(self, stay: int, cycle: int) -> int | None:
        if "step_count" not in self.c:
            return None
        return int(self.c["step_count"][self._first[stay] + cycle - self.join[stay]])

    def _commits(self, stay: int, cycle: int) -> tuple[int, ...] | None:
        if "commit_count" not in self.c:
            return None
        at = self._first[stay] + cycle - self.join[stay]
        first, last = self._step_first[at], self._step_first[at + 1]
        return tuple(self.c["commit_count"][first:last].tolist())

    @cached_property
    def _step_first(self) -> np.ndarray:
        return np.concatenate([[0], np.cumsum(self.c["step_count"], dtype=np.int64)])

    @cached_property
    def _waits(self) -> list[tuple[int, int, int, int]]:
        """Every wait in the queue as (request, from cycle, to cycle, block), in the queue's order."""
        c, cycles, length = self.c, len(self), self.meta["block_length"]
        since: list[int | None] = c["request_arrival"].astype(int).tolist()
        block = [0] * len(since)
        waits = []
        for stay, request in enumerate(c["stay_request"].tolist()):
            join, leave = int(self.join[stay]), int(self.leave[stay])
            if since[request] is not None:
                waits.append((request, since[request], join, block[request]))
            since[request] = leave if c["stay_left"][stay] == PREEMPTED else None
            block[request] = int(c["stay_block"][stay]) + int(c["stay_length"][stay])
        for request, start in enumerate(since):
            if start is not None:
                waits.append((request, start, min(cycles, int(c["request_gone"][request])), block[request]))
        sign = {"longest_first": -1, "shortest_first": 1}.get(self.meta["order"], 0)
        key = [sign * (int(c["request_prompt"][r]) + b * length) for r, _, _, b in waits]
        order = sorted(range(len(waits)), key=lambda i: (key[i], waits[i][0]))
        return [waits[i] for i in order if waits[i][1] < waits[i][2]]

    def _queue(self, cycle: int) -> tuple[Waiting, ...]:
        joins: set[Any] = set()
        if cycle + 1 < len(self):
            joins = set(self.c["stay_request"][self.join == cycle + 1].tolist())
        prompt = self.c["request_prompt"]
        return tuple(
            Waiting(self.ids[r], int(prompt[r]), b, r in joins)
            for r, start, end, b in self._waits
            if start <= cycle < end
        )
