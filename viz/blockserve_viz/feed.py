"""A run in progress → deltas: what happened since the last one, never the whole again.

A *delta* is JSON: ``seq`` (counts up; a view that missed one asks for the whole), ``requests`` that became known
(id, prompt, blocks, end, arrives), ``cycles`` (``values`` as `frames.cycle_values`; ``joins``: request, slot, block,
why; ``rows``: stay, frozen, commits …; ``over``: stay, how; ``ends``: request, block, reason; ``detail``: request,
steps, prompt) and ``done`` requests (request, reason, last, gone). ``static/trace.js`` appends them.
"""

from __future__ import annotations

import threading
import traceback
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from blockserve.tracing.records import CycleRecord, RequestRecord, RowRecord
from blockserve_viz.detail import steps_json
from blockserve_viz.frames import LEFT, REASONS, WHYS, cycle_values, gone_from, last_cycle
from blockserve_viz.stays import StayBook

if TYPE_CHECKING:
    from blockserve.tracing.trace import Trace

INTERVAL = 0.04  # seconds between two deltas: as often as a picture changes visibly
POLL = 0.2  # seconds after which the feed looks whether the run has ended: nothing announces it
UNKNOWN_BLOCKS = 1 << 30  # of a request without a record, while it may still go on


class Deltas:
    """What is new in a growing ``trace`` since ``past`` was told; ``book`` holds the stays told so far."""

    def __init__(self, trace: Trace, book: StayBook, past: Trace) -> None:
        self.trace, self.book, self.seq = trace, book, 0
        self._requests = len(past.request_records)
        self._recorded = {r.id for r in past.request_records}
        self._done = len(past.completion_records)

    def next(self) -> dict[str, Any] | None:
        """The delta since the last call; ``None`` if nothing happened."""
        trace, book = self.trace, self.book
        known = len(book.requests)
        cycles = trace.cycle_records[book.cycles :]
        for request in trace.request_records[self._requests :]:
            book.know(request)
            self._recorded.add(request.id)
            self._requests += 1
        told = [self._cycle(cycle) for cycle in cycles]
        done = trace.completion_records[self._done :]
        self._done += len(done)
        fresh = book.requests[known:]
        if not (fresh or told or done):
            return None
        self.seq += 1
        starts = np.asarray([c.start for c in trace.cycle_records[: book.cycles]])
        return {
            "seq": self.seq,
            "requests": [self._request(r) for r in fresh],
            "cycles": told,
            "done": [
                [book.index[c.id], REASONS.index(c.reason), last_cycle(c), gone_from(c, 0, starts)]
                for c in done
                if c.id in book.index
            ],
        }

    def _cycle(self, cycle: CycleRecord) -> dict[str, Any]:
        book, first = self.book, len(self.book.stays)
        for row in cycle.rows:
            if row.id not in book.index:  # a trace without request records
                book.know(RequestRecord(row.id, row.prompt_tokens, 0, row.block + 1 + row.suffix_blocks))
        numbers = dict(book.present)
        over = book.add(cycle)
        numbers |= {book.requests[s.request].id: n for n, s in enumerate(book.stays[first:], first)}
        return {
            "values": list(cycle_values(cycle).values()),
            "joins": [[s.request, s.slot, s.block, WHYS.index(s.why)] for s in book.stays[first:]],
            "rows": [[numbers[r.id], int(r.frozen), *r.commits] for r in cycle.rows],
            "over": [[number, LEFT.index(how)] for number, how in over],
            "ends": [[book.index[r.id], r.block, REASONS.index(r.ended)] for r in cycle.rows if r.ended is not None],
            "detail": [[book.index[r.id], self._steps(r), self._prompt(r)] for r in cycle.rows if r.detail],
        }

    def _steps(self, row: RowRecord) -> list[Any]:
        return steps_json(row.detail or (), row, self.book.shape["block_length"])

    def _prompt(self, row: RowRecord) -> str:
        """The text before a row's first block; told once."""
        return "" if row.block else self.book.requests[self.book.index[row.id]].prompt

    def _request(self, request: RequestRecord) -> list[Any]:
        end = request.blocks if request.id in self._recorded else UNKNOWN_BLOCKS
        return [request.id, request.prompt_tokens, request.blocks, end, request.arrival]


class Feed:
    """Calls ``tell()`` as a trace grows, from a thread of its own, and ``finish()`` once the trace has ended.

    ``tell`` may be slow: what happens meanwhile is for the next call.
    """

    def __init__(self, trace: Trace, tell: Callable[[], None], finish: Callable[[], None]) -> None:
        self._trace, self._tell, self._finish = trace, tell, finish
        self._news, self._stop = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._run, name="blockserve-feed", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def notify(self, _: Any = None) -> None:
        """Say that there is something new; returns at once."""
        self._news.set()

    def close(self, timeout: float = 5.0) -> None:
        """Send what is left and finish."""
        self._stop.set()
        self._news.set()
        self._thread.join(timeout)

    def _run(self) -> None:
        try:
            while not self._over():
                self._news.wait(POLL)
                self._news.clear()
                self._tell()
                self._stop.wait(INTERVAL)
            self._tell()
        except Exception:  # a thread has nobody to raise to, and the run must go on
            traceback.print_exc()
        finally:
            self._finish()

    def _over(self) -> bool:
        return self._stop.is_set() or self._trace.end is not None
