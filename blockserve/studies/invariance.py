"""Whether a request's tokens depend on its company: measured for any model, device and dtype.

In float64 on a CPU they never do; in bfloat16 on a GPU the rounding of a matrix product depends on its shape, so a
close decision can flip. This reports how often, where first, and how close the decision was.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from blockserve.core import Threshold
from blockserve.engine import Engine
from blockserve.tracing import Trace
from blockserve.tracing.records import StepRecord
from blockserve.workload.sources import Workload

if TYPE_CHECKING:
    import pandas as pd

    from blockserve.execution.model import DiffusionModel

WAYS: Mapping[str, Mapping[str, Any]] = {
    "8 rows, block by block": {"preset": "blockserve-fixed", "slots": 8},
    "16 rows, block by block": {"preset": "blockserve-fixed", "slots": 16},
    "static groups of 8": {"preset": "static", "slots": 8},
    "without compaction": {"preset": "blockserve-fixed", "slots": 8, "compaction": False},
}


@dataclass(frozen=True)
class Difference:
    """Where a request first went another way than alone. ``margin``: how close the decision was: the smallest
    distance to the threshold among positions fixed in one run and not in the other, ``None`` under other rules or
    when another token was fixed at the same position."""

    request_id: str
    block: int
    step: int
    margin: float | None


@dataclass(frozen=True)
class Invariance:
    """What `check_invariance` found: requests that agree with their solo run, and first differences, by way."""

    requests: int
    differences: Mapping[str, tuple[Difference, ...]]

    def agreement(self, way: str) -> float:
        """Share of requests whose tokens equal their solo run's."""
        return 1 - len(self.differences[way]) / self.requests

    @property
    def table(self) -> pd.DataFrame:
        """One line a way: agreement, requests that differ, the earliest difference and its margin."""
        import pandas as pd

        lines = {}
        for way, found in self.differences.items():
            first = min(found, key=lambda d: (d.block, d.step), default=None)
            margins = [d.margin for d in found if d.margin is not None]
            lines[way] = {
                "agreement": self.agreement(way),
                "differ": len(found),
                "first at": f"block {first.block}, step {first.step}" if first else None,
                "largest margin": max(margins, default=None),
            }
        return pd.DataFrame.from_dict(lines, orient="index", dtype=object)


def check_invariance(model: DiffusionModel, workload: Workload, **decode: Any) -> Invariance:
    """Run every request alone, then all of them in each of `WAYS`, and compare tokens and steps.

    ``decode``: options that decide tokens (``block_length``, ``threshold``, ``cache``, ``suffix``, ...).
    """
    alone: dict[str, list[tuple[int, int, StepRecord]]] = {}
    solo = Engine(model, "blockserve-fixed", slots=1, trace_level="token", **decode)
    for request in workload:
        alone |= _steps(solo.run([request]).trace)
    differences = {}
    for way, options in WAYS.items():
        engine = Engine(model, trace_level="token", **options, **decode)
        together = _steps(engine.run(workload).trace)
        tau = engine.config.decode.rule.tau if isinstance(engine.config.decode.rule, Threshold) else None
        found = (_difference(request_id, steps, together[request_id], tau) for request_id, steps in alone.items())
        differences[way] = tuple(d for d in found if d is not None)
    return Invariance(len(alone), differences)


def _steps(trace: Trace) -> dict[str, list[tuple[int, int, StepRecord]]]:
    """Per request its commits in order, as (block, step, record)."""
    steps: dict[str, list[tuple[int, int, StepRecord]]] = {}
    for cycle in trace.cycle_records:
        for row in cycle.rows:
            mine = steps.setdefault(row.id, [])
            mine.extend((row.block, index, record) for index, record in enumerate(row.detail or ()))
    return steps


def _difference(request_id: str, alone: list, together: list, tau: float | None) -> Difference | None:
    for (block, step, a), (_, _, b) in zip(alone, together, strict=False):
        mine, other = dict(zip(a.positions, a.tokens, strict=True)), dict(zip(b.positions, b.tokens, strict=True))
        if mine != other:
            return Difference(request_id, block, step, _margin(a, b, tau))
    if len(alone) != len(together):
        block, step, _ = max(alone, together, key=len)[min(len(alone), len(together))]
        return Difference(request_id, block, step, None)
    return None


def _margin(a: StepRecord, b: StepRecord, tau: float | None) -> float | None:
    """Distance to the threshold of the positions that only one of the two fixed."""
    only = set(a.positions) ^ set(b.positions)
    if tau is None or not only:
        return None
    confidence = dict(zip(a.positions, a.confidence, strict=True)) | dict(zip(b.positions, b.confidence, strict=True))
    return min(abs(confidence[p] - tau) for p in only)
