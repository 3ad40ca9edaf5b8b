"""A lower bound on the makespan, so that a report can say how far from it a schedule is.

No schedule of the same requests, decode config and bound on the box can be faster than

- *work*: every row pays its own cells in every pass of its own blocks, and its share of what a pass costs whoever is
  in it, spread over as many rows of its width as the bound allows (Eq. 1: ``β // w``, or the slots);
- *longest*: some request alone, one block cycle after the other from its arrival on.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace

from blockserve.core import DecodeConfig, ExecConfig, from_mapping
from blockserve.geometry import Geometry
from blockserve.scheduling import FixedSlots, SchedulingPolicy, TokenBudget
from blockserve.simulation.cost import CostModel, CycleWork, Roofline
from blockserve.simulation.fitting import fit_cost
from blockserve.simulation.profile import Profile
from blockserve.studies.replay import recorded_decode
from blockserve.tracing import Trace
from blockserve.tracing.metrics import wall_seconds


@dataclass(frozen=True)
class MakespanBound:
    """Seconds: ``work`` and ``longest`` as above, and the ``makespan`` of the schedule they are compared with."""

    work: float
    longest: float
    makespan: float

    @property
    def seconds(self) -> float:
        """The bound: no schedule is faster."""
        return max(self.work, self.longest)

    @property
    def gap(self) -> float:
        """How much longer than the bound the schedule is: 0.25 for a quarter."""
        return self.makespan / self.seconds - 1 if self.seconds else 0.0


def lower_bound(trace: Trace, cost: CostModel | None = None) -> MakespanBound:
    """The bound for a recorded or simulated run with cycles; ``cost``: default fitted to the trace."""
    run = trace.run
    profile = Profile.from_trace(trace)
    bound = run.policy["bound"]
    policy = SchedulingPolicy(bound=TokenBudget(bound["budget"]) if "budget" in bound else FixedSlots(bound["slots"]))
    work, longest = profile_bound(
        profile, policy, recorded_decode(trace), from_mapping(ExecConfig, run.execution), cost or fit_cost(trace)
    )
    return MakespanBound(work, longest, wall_seconds(trace))


def profile_bound(
    profile: Profile, policy: SchedulingPolicy, decode: DecodeConfig, execution: ExecConfig, cost: CostModel
) -> tuple[float, float]:
    """(work, longest) in seconds of a profile's requests."""
    kinds = _Kinds(policy, decode, execution)
    blocks: Counter[tuple[int, int]] = Counter()
    longest = 0.0
    for index in range(len(profile)):
        own = list(_blocks(profile, index, decode))
        blocks.update(own)
        alone = sum(kinds.share(cost, width, steps, rows=1) for width, steps in own)
        longest = max(longest, float(profile.arrivals[index]) + alone)
    start = float(profile.arrivals.min()) if len(profile) else 0.0
    sums = (sum(n * kinds.share(c, *block) for block, n in blocks.items()) for c in linear_parts(cost))
    return start + max(sums), longest


def linear_parts(cost: CostModel) -> tuple[CostModel, ...]:
    """Cost models below ``cost`` that are linear in the rows, so that a cycle's cost splits into its rows' shares.

    A roofline is the maximum of two: only computing, or only reading.
    """
    if not isinstance(cost, Roofline):
        return (cost,)
    return (
        replace(cost, device=replace(cost.device, bandwidth=math.inf)),
        replace(cost, device=replace(cost.device, flops=math.inf)),
    )


def _blocks(profile: Profile, index: int, decode: DecodeConfig) -> Iterator[tuple[int, int]]:
    """(row width, steps) of each block that the request has to write."""
    geometry = Geometry(profile.block_length, decode.suffix)
    prompt, canvas = int(profile.prompt_tokens[index]), int(profile.canvas[index])
    count = int(profile.blocks[index] if decode.eos == "ignore" else profile.ends[index] + 1)
    first = int(profile.first_block[index])
    for block in range(min(count, int(profile.blocks[index]))):
        yield geometry.width(prompt, block, canvas), int(profile.steps[first + block])


@dataclass(frozen=True)
class _Kinds:
    """What decides the cost of a row in a cycle beside its width and steps."""

    policy: SchedulingPolicy
    decode: DecodeConfig
    execution: ExecConfig

    def share(self, cost: CostModel, width: int, steps: int, rows: int | None = None) -> float:
        """Seconds a row of a cycle whose ``rows`` (default: as many as the bound allows) are all alike."""
        rows = rows or self._most_rows(width)
        piece = width if self.decode.cache == "none" else self.decode.block_length
        work = CycleWork(
            rows, width, self.decode.block_length, [rows] * (steps - 1), piece, self.execution.head == "full"
        )
        return sum(cost.cycle(work).values()) / rows

    def _most_rows(self, width: int) -> int:
        """The most rows that a box at least this wide may hold; a lone row is always let in."""
        bound = self.policy.bound
        return bound.slots if isinstance(bound, FixedSlots) else max(1, bound.tokens // width)
