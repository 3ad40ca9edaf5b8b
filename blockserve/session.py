"""One run: the loop of the paper's Algorithm 1 around a scheduler, an executor and a clock, with a trace behind it.

The session cannot tell a real executor from a simulated one, nor a wall clock from a virtual one.
"""

from __future__ import annotations

import time
import warnings
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

from blockserve.clock import Clock
from blockserve.core import BatchPlan, Completion, CycleResult, Idle, OutOfMemoryError, RequestShape
from blockserve.scheduling import Scheduler
from blockserve.tracing import Trace, TraceWriter
from blockserve.tracing.recording import completion_record, cycle_record
from blockserve.tracing.records import CycleRecord, EndRecord, Record, RequestRecord, RunRecord, WarningRecord


class Executor(Protocol):
    """Runs one block cycle of a plan. Raises `OutOfMemoryError` with nothing committed."""

    def execute(self, plan: BatchPlan) -> CycleResult: ...


@dataclass(frozen=True)
class Hooks:
    """What a run adds to the loop: ``complete`` fills in a completion's output, ``decode`` turns ids into text."""

    complete: Callable[[Completion], Completion] = lambda completion: completion
    decode: Callable[[Sequence[int]], str] | None = None


class Session:
    """Requests in, cycles out, everything recorded. Used once: `submit`, then `cycles`."""

    def __init__(
        self,
        manifest: RunRecord,
        scheduler: Scheduler,
        executor: Executor,
        clock: Clock,
        *,
        hooks: Hooks | None = None,
        path: str | Path | None = None,
        force: bool = False,
        check: bool = False,
    ) -> None:
        self.scheduler, self.executor, self.clock = scheduler, executor, clock
        self.hooks, self.level, self.check = hooks or Hooks(), manifest.level, check
        self.trace, self.closed = Trace(), False
        self.completions: dict[str, Completion] = {}
        self._cancelled: deque[str] = deque()
        self._next_of_clients: deque[tuple[RequestShape, RequestRecord]] = deque()
        self._think = 0.0
        self._stopping = False
        self._writer = None if path is None else TraceWriter(path, force=force)
        self._append(manifest)

    def submit(self, shape: RequestShape, record: RequestRecord) -> None:
        """Queue a request for its arrival. Raises `InvalidRequestError` if it could never be served."""
        self.scheduler.submit(shape)
        self._append(record)

    def submit_closed_loop(
        self, requests: Sequence[tuple[RequestShape, RequestRecord]], clients: int, think: float
    ) -> None:
        """Let ``clients`` clients send these in order, each ``think`` seconds after it has its last answer."""
        self._next_of_clients, self._think = deque(requests), think
        for _ in range(min(clients, len(requests))):
            self._send_next(self.clock.now())

    def _send_next(self, when: float) -> None:
        shape, record = self._next_of_clients.popleft()
        self.submit(replace(shape, arrival=when), replace(record, arrival=when))

    def reject(self, record: RequestRecord, message: str) -> None:
        """Record a request that cannot be served."""
        self._append(record)
        self._complete(Completion(record.id, "rejected", 0, 0, arrival=record.arrival, message=message))

    def cancel(self, request_id: str) -> bool:
        """Let a request leave at the next boundary, with what it has written. May be called from another thread.

        False if it has left already; raises `InvalidRequestError` if it was never submitted.
        """
        if self.closed or self.scheduler.has_left(request_id):
            return False
        self._cancelled.append(request_id)
        return True

    def stop(self) -> None:
        """End the run at the next boundary; what is left is cancelled. May be called from another thread."""
        self._stopping = True

    def cycles(self) -> Iterator[CycleRecord]:
        """The loop. One block cycle an item; leaving it early cancels what is left and ends the trace."""
        status = "interrupted"
        try:
            while not self._stopping:
                self._cancel()
                started, begin = self.clock.now(), time.perf_counter()
                plan = self.scheduler.plan(started)
                if isinstance(plan, Idle):
                    if plan.until is None:
                        status = "complete"
                        return
                    self.clock.wait_until(plan.until)
                    continue
                if self.check:
                    self.scheduler.check()
                schedule_seconds = time.perf_counter() - begin
                try:
                    result = self.executor.execute(plan)
                except OutOfMemoryError as error:
                    self._shed(plan, error)
                    continue
                yield self._finish(plan, result, started, schedule_seconds)
        except (KeyboardInterrupt, GeneratorExit):
            raise
        except BaseException:
            status = "failed"
            raise
        finally:
            self._close(status)

    def _cancel(self) -> None:
        """Drop those whose cancellation was asked for since the last boundary and who are still here."""
        while self._cancelled:
            request_id = self._cancelled.popleft()
            if not self.scheduler.has_left(request_id):
                self._complete(self.scheduler.drop(request_id, "cancelled", "", self.clock.now()))

    def _finish(self, plan: BatchPlan, result: CycleResult, started: float, schedule_seconds: float) -> CycleRecord:
        """Let the scheduler take the result, and record the cycle and who left."""
        self.clock.advance(sum(result.seconds.values()))
        now = self.clock.now()
        departures = self.scheduler.finish(result, started, now)
        record = cycle_record(
            plan,
            result,
            departures.ended,
            departures.completions,
            start=started,
            end=now,
            schedule_seconds=schedule_seconds if self.clock.name == "wall" else 0.0,
            decode=self.hooks.decode,
        )
        if self.level != "summary":
            self._append(record)
        for completion in departures.completions:
            self._complete(completion)
        return record

    def _shed(self, plan: BatchPlan, error: OutOfMemoryError) -> None:
        """The accelerator was full: halve the batch and go on, or end the one row that cannot run."""
        rows, width = len(plan.rows), plan.box_width
        if self.scheduler.shed():
            message = f"out of memory with {rows} rows × {width}; the bound is now {self.scheduler.bound}"
        else:
            request_id = plan.rows[0].request_id
            message = f"out of memory with request {request_id!r} alone at width {width}: {error}"
            self._complete(self.scheduler.drop(request_id, "error", message, self.clock.now()))
        warnings.warn(message, stacklevel=4)
        self._append(WarningRecord(message, plan.cycle))

    def _complete(self, completion: Completion) -> None:
        begin = time.perf_counter()
        completion = self.hooks.complete(completion)
        self.clock.exclude(time.perf_counter() - begin)
        self.completions[completion.request_id] = completion
        self._append(completion_record(completion))
        if self._next_of_clients and completion.evicted is not None:  # its client has the answer
            self._send_next(completion.evicted + self._think)

    def _close(self, status: str) -> None:
        """Cancel what is left, write the end record, close the file."""
        now = self.clock.now()
        while self._next_of_clients:  # never sent
            self._send_next(now)
        left = self.scheduler.unfinished()
        status = "complete" if status == "interrupted" and not left else status
        for request_id in left:
            self._complete(self.scheduler.drop(request_id, "cancelled", f"the run was {status}", now))
        self._append(EndRecord(status, self.scheduler.cycle, now))
        if self._writer is not None:
            self._writer.close()
        self.closed = True

    def _append(self, record: Record) -> None:
        self.trace.append(record)
        if self._writer is not None:
            self._writer.write(record)
