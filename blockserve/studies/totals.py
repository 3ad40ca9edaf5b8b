"""Sums over the cycles of a run that records none of them: trace level ``summary``, for a million requests."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from blockserve.core import BatchPlan, CycleResult
from blockserve.session import Session
from blockserve.tracing.recording import completion_record


@dataclass
class Totals:
    """Sums over cycles; names and units as in `blockserve.tracing.metrics.summarize`."""

    cycles: int = 0
    rows: int = 0
    unended_rows: int = 0
    cost: int = 0
    cost_max: int = 0
    padding: int = 0
    preemptions: int = 0
    batch_passes: int = 0
    row_passes: int = 0
    row_tokens: int = 0
    committed: int = 0
    straggler_wait: int = 0
    budget: int | None = None

    def add(self, plan: BatchPlan, result: CycleResult) -> None:
        """Count one cycle."""
        batch, cost = len(plan.rows), plan.cost
        rows = result.rows
        steps = [len(row.commits) for row in rows if row.commits]
        self.cycles += 1
        self.rows += batch
        self.unended_rows += len(steps) - sum([row.eos_offset is not None and row.ended is None for row in rows])
        self.cost += cost
        self.cost_max = max(self.cost_max, cost)
        self.padding += cost - sum([row.width for row in plan.rows])
        self.preemptions += len(plan.preempted)
        self.batch_passes += result.refresh_passes + result.reuse_passes
        self.row_passes += result.row_passes
        self.row_tokens += result.row_tokens
        self.committed += sum([sum(row.commits) for row in rows])
        self.straggler_wait += max(steps, default=0) * len(steps) - sum(steps)
        self.budget = plan.budget if self.cycles == 1 else self.budget

    def metrics(self, baseline_slots: int) -> dict[str, Any]:
        """What `summarize` would say of the cycles."""
        cycles = self.cycles or 1
        return {
            "cycles": self.cycles,
            "batch_mean": self.rows / cycles,
            "budget": self.budget,
            "cost_max": self.cost_max,
            "padding_fraction": self.padding / self.cost if self.cost else 0.0,
            "preemptions": self.preemptions,
            "effective_compute_ratio": self.unended_rows / cycles / baseline_slots,
            "batch_passes": self.batch_passes,
            "row_passes": self.row_passes,
            "row_tokens": self.row_tokens,
            "tokens_per_row_pass": self.committed / self.row_passes if self.row_passes else 0.0,
            "straggler_wait_steps": self.straggler_wait,
        }


class SummarySession(Session):
    """A session whose cycles are added up instead of recorded; completions are kept once, as records."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.totals = Totals()

    def _finish(self, plan: BatchPlan, result: CycleResult, started: float, schedule_seconds: float) -> None:
        self.clock.advance(sum(result.seconds.values()))
        self.totals.add(plan, result)
        for completion in self.scheduler.finish(result, started, self.clock.now()).completions:
            self._append(completion_record(completion))


@contextmanager
def no_collection() -> Iterator[None]:
    """Switch the cyclic garbage collector off: a simulation makes no cycles of references, and walking its millions
    of live objects again and again would take most of the time."""
    collecting = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collecting:
            gc.enable()
