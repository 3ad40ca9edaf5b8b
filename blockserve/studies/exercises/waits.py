"""Checks of the notebooks 01 (how a block is written) and 02 (why batches wait)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from blockserve.core import Quota, Threshold
from blockserve.studies.exercises.base import Wrong, equal, exercise, whole, wholes, writers
from blockserve.studies.scripts import Script, serve_scripts
from blockserve.tracing.metrics import straggler_wait

CONFIDENCE = (0.97, 0.31, 0.92, 0.88, 0.90, 0.55)


@exercise("01", 1)
def _threshold_by_hand(answer: Any) -> str:
    """Positions that threshold(0.9) commits."""
    import torch

    from blockserve.execution.decode import commit

    confidence = torch.tensor([CONFIDENCE], dtype=torch.float64)
    chosen = commit(confidence, torch.ones_like(confidence, dtype=torch.bool), [Threshold(0.9)], 0)[0]
    expected = chosen.nonzero().flatten().tolist()
    given = sorted(wholes(answer))
    low = [p for p in given if p in range(len(CONFIDENCE)) and p not in expected]
    if low:
        raise Wrong(f"Position {low[0]} has {CONFIDENCE[low[0]]}, which is below 0.9.")
    equal(given, expected, f"The rule commits {len(expected)} positions of 0 to 5; 0.9 itself is enough.")
    return f"{len(expected)} of {len(CONFIDENCE)} positions in one step; the others see these tokens in the next."


@exercise("01", 2)
def _quota_by_hand(answer: Any) -> str:
    """Commits of each step under quota(5) on a block of 16."""
    from blockserve.execution.decode import quota_count

    given = wholes(answer)
    equal(len(given), 5, f"A quota of 5 steps takes 5 steps, and these are {len(given)}.")
    equal(sum(given), 16, f"The block has 16 positions, and these are {sum(given)}.")
    expected = [quota_count(Quota(5), 16, step, False) for step in range(5)]
    equal(given, expected, "Spread them evenly; what is left over goes to the first steps.")
    return "A quota always takes the same number of steps, however sure the model is."


@exercise("01", 3)
def _a_threshold_of_your_own(answer: Any) -> str:
    """A threshold with which the first problem takes at most two passes, and comes out right."""
    from blockserve.engine import Engine
    from blockserve.workload.sources import Workload

    run = Engine("tiny-llada", threshold=answer, token_budget=512).run(Workload.tasks("arithmetic", n=1, seed=0))
    passes, done = sum(cycle.row_passes for cycle in run.trace.cycle_records), run.completions[0]
    if passes > 2:
        raise Wrong(f"With τ = {answer} the request takes {passes} passes; at most 2 are asked for.")
    if not done.correct:
        raise Wrong(f"With τ = {answer} it takes {passes} passes, but the answer is wrong: {done.text.strip()}")
    return f"{passes} passes, and the answer is still right. On one problem: would you trust it on a thousand?"


LENGTHS = (1, 5, 2, 2, 4, 1, 1, 3)


def _idle(lengths: Sequence[int]) -> int:
    """Row-cycles in which a row of a static group of four had ended and waited."""
    trace = serve_scripts(writers(lengths), "static", slots=4, canvas=max(lengths))
    return sum(row.frozen for cycle in trace.cycle_records for row in cycle.rows)


@exercise("02", 1)
def _idle_rows(answer: Any) -> str:
    """Idle row-cycles of the eight requests in two groups of four."""
    expected, given = _idle(LENGTHS), whole(answer)
    direction = "more" if given < expected else "fewer"
    equal(given, expected, f"There are {direction}. For each group: 4 rows × its longest, less the blocks written.")
    total = expected + sum(LENGTHS)
    return f"{expected} of {total} row-cycles are idle: R = {sum(LENGTHS) / total:.2f}."


@exercise("02", 2)
def _a_better_order(answer: Any) -> str:
    """The same requests in an order that makes static groups wait least."""
    given = wholes(answer)
    equal(sorted(given), sorted(LENGTHS), f"These must be the same eight lengths, {sorted(LENGTHS)}, in any order.")
    idle, least = _idle(given), _idle(sorted(LENGTHS))
    equal(idle, least, f"In this order {idle} row-cycles are idle; {least} is possible.")
    return f"{idle} idle row-cycles in place of {_idle(LENGTHS)}. But who knows the lengths before the answers?"


@exercise("02", 3)
def _stragglers(answer: Any) -> str:
    """Steps waited inside one block cycle of rows that take 2, 7 and 3 steps."""
    trace = serve_scripts([Script(4, (steps,)) for steps in (2, 7, 3)], "block-fifo", block_length=8, canvas=1)
    expected = straggler_wait(trace)
    equal(whole(answer), expected, "Every row waits for the slowest: add up 7 − own steps over the rows.")
    return "This wait is inside a block, and no scheduling at block boundaries removes it."
