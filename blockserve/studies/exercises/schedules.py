"""Checks of the notebooks 03 (block scheduling), 04 (token budget) and 05 (design a policy)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from blockserve.core import RequestShape
from blockserve.geometry import Box, Geometry
from blockserve.scheduling.admission import FILLS
from blockserve.scheduling.queue import ORDERS, Waiting
from blockserve.studies.exercises.base import Wrong, equal, exercise, ids, prompts, rows_of, whole, wholes, writers
from blockserve.studies.figure1 import EXAMPLES
from blockserve.studies.scripts import Script, serve_scripts

if TYPE_CHECKING:
    from blockserve.tracing import Trace


def _calm(budget: int) -> str:
    """Empty if the four requests of Example 1 run together from cycle 0 and none is preempted, else what happens."""
    trace = serve_scripts(EXAMPLES[1].requests, token_budget=budget)
    first = trace.cycle_records[0]
    if first.batch < len(EXAMPLES[1].requests):
        return f"at β = {budget} only {first.batch} rows enter in cycle 0 ({first.batch} × {first.box_width})"
    for cycle in trace.cycle_records:
        if cycle.preempted:
            return f"at β = {budget} request {cycle.preempted[0]} has to leave again in cycle {cycle.index}"
    return ""


@exercise("03", 1)
def _smallest_budget(answer: Any) -> str:
    """The smallest β at which all of Example 1 runs together and nobody is preempted."""
    budget = whole(answer)
    trouble = _calm(budget) if budget >= EXAMPLES[1].budget else f"{budget} is less than what three rows need"
    if trouble:
        raise Wrong(f"Too small: {trouble}.")
    if not _calm(budget - 1):
        raise Wrong("It works, but so does one token less.")
    return f"With one token less, {_calm(budget - 1)}."


@exercise("03", 2)
def _one_token_less(answer: Any) -> str:
    """Who is in the batch in cycle 1 of Example 2 at β - 1."""
    budget = EXAMPLES[2].budget - 1
    trace = serve_scripts(EXAMPLES[2].requests, token_budget=budget)
    box = trace.cycle_records[1]
    hint = f"In cycle 1 the box is {box.batch} × {box.box_width} = {box.cost} ≤ {budget}. Who are its rows?"
    equal(sorted(ids(answer)), rows_of(trace, 1), hint)
    return f"{box.batch} × {box.box_width} = {box.cost}: for one token a whole row stays out."


@exercise("03", 3)
def _where_it_pays(answer: Any) -> str:
    """Six lengths for which static batching with two slots takes at least two cycles more."""
    given = wholes(answer)
    if len(given) != 6 or not all(1 <= count <= 3 for count in given):
        raise Wrong(f"Six numbers of blocks, each 1, 2 or 3, are asked for; this is {given}.")
    static, block = (len(serve_scripts(writers(given), preset, slots=2)) for preset in ("static", "block-fifo"))
    if static - block < 2:
        raise Wrong(f"static takes {static} cycles and block-fifo {block}: a gain of {static - block}.")
    return f"static takes {static} cycles, block-fifo {block}. With all six alike it would be the same for both."


@exercise("04", 1)
def _box_by_hand(answer: Any) -> str:
    """Cost of three rows at different blocks."""
    geometry = Geometry(16)
    widths = [geometry.width(prompt, block, 5) for prompt, block in ((40, 0), (25, 2), (10, 1))]
    box, given = Box.around(widths), whole(answer)
    if given == sum(widths):
        raise Wrong(f"That is what the rows hold, {widths} together. The box is as wide as the widest for every row.")
    equal(given, box.cost, "A row is p + (b + 1) × L wide: block 0 already takes L cells. Then rows × widest.")
    return f"{box}, of which {box.cost - sum(widths)} are padding."


FIRST_COME = (20, 40, 8, 12, 5)


@exercise("04", 2)
def _sand_by_hand(answer: Any) -> str:
    """Who is in the first batch of five requests, fifo, by sand filling."""
    options = {"block_length": 10, "token_budget": 125, "order": "fifo"}
    sand, line = (serve_scripts(prompts(FIRST_COME), fill=fill, **options) for fill in ("sand", "head_of_line"))
    given = sorted(ids(answer))
    if given == rows_of(line, 0):
        raise Wrong("That is head_of_line. Sand fills the present box first, 30 wide.")
    first = sand.cycle_records[0]
    equal(given, rows_of(sand, 0), f"{first.batch} rows enter. Request 1 makes the box 30 wide: who fits in that?")
    return f"{first.batch} × {first.box_width} = {first.cost}; in line, only {' and '.join(rows_of(line, 0))} enter."


@exercise("04", 3)
def _preempted_by_hand(answer: Any) -> str:
    """Who is preempted, in order, when four rows grow."""
    trace = serve_scripts(prompts((30, 22, 14, 6)), block_length=10, token_budget=160)
    expected = [name for cycle in trace.cycle_records for name in cycle.preempted]
    given = ids(answer)
    equal(sorted(given), sorted(expected), f"{len(expected)} preemptions happen. The latest admitted leaves first.")
    equal(given, expected, "These are the ones; give them in the order in which it happens.")
    return "They come back with their finished blocks, and are not preempted again."


@contextmanager
def _registered(registry: dict[str, Any], part: Any) -> Iterator[str]:
    """A part under a name of its own, for as long as it is tried."""
    if not callable(part):
        raise Wrong(f"A function is asked for, and this is {part!r}.")
    registry["your own"] = part
    try:
        yield "your own"
    finally:
        del registry["your own"]


def _waiting(prompt: int, blocks: int, block: int, number: int) -> Waiting:
    return Waiting.of(Geometry(16), RequestShape(str(number), prompt, 16 * blocks), number, block=block)


@exercise("05", 1)
def _nearly_done_first(answer: Any) -> str:
    """An order: fewest blocks left first; among equals, the shorter prompt."""
    lines = [_waiting(p, k, b, n) for n, (p, k, b) in enumerate([(9, 5, 0), (40, 5, 4), (8, 2, 0), (30, 3, 1)])]
    with _registered(ORDERS, answer):
        given = sorted(lines, key=answer)
    expected = sorted(lines, key=lambda r: (r.blocks - r.block, r.prompt_tokens))
    for mine, right in zip(given, expected, strict=True):
        if mine is not right:
            raise Wrong(f"Of two requests, {_words(mine)} goes first; {_words(right)} should. The smallest key leads.")
    return "A preempted request with one block to go now leads the queue."


def _words(request: Waiting) -> str:
    return f"the one with {request.blocks - request.block} left to write and a prompt of {request.prompt_tokens}"


MIXED = tuple(Script(4 + 7 * n % 23, (2,) * (1 + n * n % 3)) for n in range(24))


@exercise("05", 2)
def _a_fill(answer: Any) -> str:
    """A fill that goes through the queue in order and admits all that the bound admits."""
    with _registered(FILLS, answer) as name:
        trace = serve_scripts(MIXED, order="fifo", fill=name, token_budget=110)
        line = serve_scripts(MIXED, order="fifo", fill="head_of_line", token_budget=110)
    for cycle in trace.cycle_records:
        if "held" in cycle.refused or "box" in cycle.refused:
            raise Wrong(f"In cycle {cycle.index} a request that the bound admits stays in the queue: {cycle.refused}.")
    return f"{len(trace)} cycles, where head_of_line takes {len(line)}; the budget held in all of them."


@exercise("05", 3)
def _shorter_waits(answer: Any) -> str:
    """Order and fill under which the mean latency of `MIXED` is lower than ours."""
    if not isinstance(answer, dict) or not set(answer) <= {"order", "fill"}:
        raise Wrong(f'A dict like {{"order": "fifo", "fill": "sand"}} is asked for, and this is {answer!r}.')
    mine, ours = (_latencies(serve_scripts(MIXED, token_budget=110, **options)) for options in (answer, {}))
    here, there = sum(mine) / len(mine), sum(ours) / len(ours)
    if here >= there:
        raise Wrong(f"On average a request takes {here:.1f} s under yours and {there:.1f} s under longest_first, sand.")
    slowest = f"the slowest request takes {max(mine):.0f} s in place of {max(ours):.0f} s"
    return f"{here:.1f} s on average in place of {there:.1f} s; {slowest}."


def _latencies(trace: Trace) -> list[float]:
    """Seconds from arrival to eviction of every request."""
    return [c.evicted - c.arrival for c in trace.completion_records]
