"""`SimulatedExecutor`: runs block cycles on a profile and a cost model instead of a model. Same call, same accounting.

It forwards nothing, but counts every pass as `blockserve.execution.executor` would run it: a refresh pass over the
box, then reuse passes until the slowest row has finished its block; with compaction only by unfinished rows.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from itertools import accumulate

import numpy as np

from blockserve.core import BatchPlan, CycleResult, DecodeConfig, ExecConfig, RowPlan, RowResult
from blockserve.simulation.cost import CostModel, CycleWork
from blockserve.simulation.profile import REASONS, Profile, ProfileError, even_commits

PHASES = ("layout", "refresh", "denoise", "commit")
OUTPUT_ENDS = ("eos", "stop")  # what an executor itself reports

_even_commits = lru_cache(maxsize=65536)(even_commits)


class SimulatedExecutor:
    """Executes plans of `Profile`'s requests, which must be those submitted to the scheduler."""

    def __init__(self, profile: Profile, decode: DecodeConfig, execution: ExecConfig, cost: CostModel) -> None:
        self.profile, self.decode, self.execution, self.cost = profile, decode, execution, cost
        if profile.block_length != decode.block_length:
            raise ProfileError(
                f"the profile is of block length {profile.block_length} and cannot be run at {decode.block_length}; "
                "make one for that length"
            )
        self._check_known()
        # Plain buffers: indexing a NumPy array costs more than all the rest of a row.
        self._steps, self._first = memoryview(profile.steps), memoryview(profile.first_block)
        self._ends, self._valid = memoryview(profile.ends), memoryview(profile.valid_tokens)
        self._limits, self._why = memoryview(profile.limits), memoryview(profile.reasons)
        self._index: Callable[[str], int] = int if profile.ids is None else profile.index_of

    def _check_known(self) -> None:
        """Under eos ``ignore`` every row runs its whole canvas, so all of it must be known."""
        p = self.profile
        whole = [REASONS.index(reason) for reason in ("eos", "stop", "length")]
        unknown = np.isin(p.reasons, whole) & (p.blocks < p.canvas)
        if self.decode.eos == "ignore" and unknown.any():
            first = int(unknown.argmax())
            raise ProfileError(
                f"eos='ignore' runs every request to its limit, but what {int(unknown.sum())} of {len(p)} requests "
                f"write after their end token is not in this profile (the first is {p.id_of(first)!r}: "
                f"{p.blocks[first]} of {p.canvas[first]} blocks); record a run with eos='ignore'"
            )

    def execute(self, plan: BatchPlan) -> CycleResult:
        """One block cycle: what each row committed, the passes it took, and their predicted seconds."""
        index, first, known = self._index, self._first, self._steps
        indices = [index(row.request_id) for row in plan.rows]
        own = [
            0 if row.ended else known[first[i] + row.block]  # a frozen row takes no step
            for i, row in zip(indices, plan.rows, strict=True)
        ]
        reuse_rows = self._reuse_rows(own)
        reuse_width = self._reuse_width(plan)
        full_head = self.execution.head == "full"
        work = CycleWork(len(own), plan.box_width, self.decode.block_length, reuse_rows, reuse_width, full_head)
        return CycleResult(
            rows=self._row_results(plan, indices, own, 1 + len(reuse_rows)),
            refresh_passes=1,
            reuse_passes=len(reuse_rows),
            reuse_width=reuse_width,
            row_passes=work.rows + sum(reuse_rows),
            row_tokens=work.cells,
            seconds=dict.fromkeys(PHASES, 0.0) | self.cost.cycle(work),
        )

    def _reuse_rows(self, steps: list[int]) -> list[int]:
        """Rows in each pass after the first, until the slowest is done; with compaction only unfinished ones."""
        slowest = max(steps)
        if not self.execution.compaction or min(steps) == slowest:
            return [len(steps)] * (slowest - 1)
        finished_after = [0] * (slowest + 1)
        for n in steps:
            finished_after[n] += 1
        finished = list(accumulate(finished_after))
        return [len(steps) - finished[step] for step in range(1, slowest)]

    def _reuse_width(self, plan: BatchPlan) -> int:
        """Cells a row forwards in a reuse pass: the block, to the row's end (prefix), or the whole box (no cache)."""
        if self.decode.cache == "none":
            return plan.box_width
        extra = 0
        if self.decode.cache == "prefix":
            kept = [r.suffix_blocks for r in plan.rows if not (r.ended and self.execution.compaction)]
            extra = max(kept, default=0)
        return (1 + extra) * self.decode.block_length

    def _row_results(self, plan: BatchPlan, indices: list[int], steps: list[int], passes: int) -> tuple[RowResult, ...]:
        """One result a row; ``passes``: of the whole batch. A loop on locals: this is most of a simulation's work."""
        ends, final = self._ends, self._valid
        length, compaction = self.decode.block_length, self.execution.compaction
        spread, drawn = _even_commits, self.profile.commits is None
        results = []
        for i, n, row in zip(indices, steps, plan.rows, strict=True):
            own = (n or 1) if compaction else passes
            upto = (row.block + 1) * length
            if drawn and row.block < ends[i] and upto <= final[i]:  # a whole block of valid tokens, and no end
                commits = spread(length, n, length)[0]
                results.append(RowResult(row.request_id, commits, commits, own, None, None, upto))
            else:
                results.append(self._row_result(i, row, n, own))
        return tuple(results)

    def _row_result(self, index: int, row: RowPlan, steps: int, passes: int) -> RowResult:
        final, block, length = self._valid[index], row.block, self.decode.block_length
        if row.ended:
            return RowResult(row.request_id, (), (), passes, None, None, final)
        if self.profile.commits is None:
            commits, valid = _even_commits(length, steps, min(max(final - block * length, 0), length))
        else:
            commits, valid = self.profile.commits_of(index, block)
        reason = REASONS[self._why[index]] if block >= self._ends[index] else None
        return RowResult(
            request_id=row.request_id,
            commits=commits,
            valid=valid,
            passes=passes,
            eos_offset=final if reason == "eos" else None,
            # Under eos ``ignore`` it goes on after that; length is the scheduler's to say.
            ended=reason if reason in OUTPUT_ENDS and block == self._ends[index] else None,
            valid_tokens=min((block + 1) * length, self._limits[index], final),
        )
