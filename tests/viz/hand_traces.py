"""Small traces made by hand for the tests of what is drawn: a forty-line batcher that knows nothing of the encoder."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache

import numpy as np

from blockserve.tracing.records import (
    CompletionRecord,
    CycleRecord,
    EndRecord,
    RequestRecord,
    RowRecord,
    RunRecord,
    StepRecord,
)
from blockserve.tracing.trace import Trace
from blockserve_viz.frames import DETAIL, LIMIT
from blockserve_viz.packing import Encoded, pack


@dataclass(frozen=True)
class Spec:
    """A request and what it will do: ``needs`` blocks of its ``blocks`` until its output is complete."""

    id: str
    prompt: int
    blocks: int
    needs: int
    arrival: float = 0.0


class HandTrace(Trace):
    """A trace that also knows who waited, in the queue's order, in every cycle."""

    queues: list[list[str]]


def run_record(length: int, suffix: int | str = 0, order: str = "longest_first", quantum: str = "block") -> RunRecord:
    """A manifest with the fields that a picture needs."""
    return RunRecord(
        preset="by-hand",
        policy={"order": order, "quantum": quantum},
        decode={"block_length": length, "suffix": suffix, "cache": "dual"},
        execution={},
        overrides={},
        model={"name": "none"},
        device="cpu",
        dtype="float32",
        clock="virtual",
        level="cycle",
        seed=0,
        workload={},
        versions={},
        created="",
    )


def simulate(
    specs: Sequence[Spec],
    *,
    length: int = 4,
    budget: int = 10**9,
    suffix: int | str = 0,
    order: str = "longest_first",
    quantum: str = "block",
    ignore: bool = False,
    preempt_at: Sequence[int] = (),
    seed: int = 0,
) -> HandTrace:
    """Serve ``specs``, head of line first, under ``budget``; at ``preempt_at`` the last admitted is preempted.

    ``ignore``: rows run on to their limit after their output is complete.
    """
    rng = random.Random(seed)
    requests = sorted(specs, key=lambda s: s.arrival)
    block = {s.id: 0 for s in specs}
    waiting: list[Spec] = []
    queues: list[list[str]] = []
    active: list[tuple[int, Spec]] = []  # (slot, request) in order of admission
    ended: set[str] = set()
    records: list[object] = [run_record(length, suffix, order, quantum)]
    records += [RequestRecord(s.id, s.prompt, s.blocks * length, s.blocks, s.arrival) for s in specs]
    done: list[object] = []
    now, index = 0.0, 0
    sign = {"longest_first": -1, "shortest_first": 1}.get(order, 0)

    def kept(s: Spec) -> int:
        rest = s.blocks - 1 - block[s.id]
        return rest if suffix == "full" else min(int(suffix), rest)

    def width(s: Spec) -> int:
        return s.prompt + (block[s.id] + 1 + kept(s)) * length

    def rank(s: Spec) -> tuple[float, ...]:
        return (sign * (s.prompt + block[s.id] * length), s.arrival, specs.index(s))

    while requests or waiting or active:
        if not active and not waiting:
            now = max(now, requests[0].arrival)
        while requests and requests[0].arrival <= now:
            waiting.append(requests.pop(0))
        preempted = []
        if index in preempt_at and len(active) > 1 and quantum == "block":
            preempted = [active.pop()[1]]
        waiting.sort(key=rank)
        admitted = []
        may_enter = quantum == "block" or not active
        while may_enter and waiting and not preempted:
            widths = [width(s) for _, s in active] + [width(waiting[0])]
            if active and len(widths) * max(widths) > budget:
                break
            slot = min(set(range(len(active) + 1)) - {n for n, _ in active})
            active.append((slot, waiting.pop(0)))
            admitted.append((active[-1][1].id, "head"))
        waiting += preempted
        queues.append([s.id for s in sorted(waiting, key=rank)])

        box = max(width(s) for _, s in active)
        rows, evicted = [], []
        for slot, s in active:
            frozen = s.id in ended
            commits = () if frozen else _commits(rng, length)
            ends = not frozen and block[s.id] + 1 == (s.blocks if ignore else s.needs)
            settles = not frozen and block[s.id] + 1 == s.needs
            reason = ("length" if s.needs == s.blocks else "eos") if settles else None
            w, n = width(s), len(commits)
            place = (s.id, slot, block[s.id], s.prompt, kept(s), w, box - w)
            rows.append(RowRecord(*place, frozen, n, n, commits, commits, reason))
            if ends:
                ended.add(s.id)
        group_over = all(s.id in ended for _, s in active)
        for _, s in list(active):
            if s.id not in ended:
                block[s.id] += 1
            elif quantum == "block" or group_over:
                reason = "length" if s.needs == s.blocks else "eos"
                evicted.append((s.id, reason))
                n = s.needs * length
                done.append(CompletionRecord(s.id, reason, s.needs, n, n, s.arrival, now, evicted=now + 1))
        gone = {i for i, _ in evicted}
        active = [(n, s) for n, s in active if s.id not in gone]
        cost = len(rows) * box
        records.append(
            CycleRecord(
                index, now, 1.0, {}, tuple(rows), len(rows), box, cost, None if budget == 10**9 else budget,
                cost - sum(r.width for r in rows), len(waiting), 1, 1, length, len(rows), cost,
                tuple(admitted), tuple(evicted), tuple(s.id for s in preempted),
            )
        )  # fmt: skip
        now, index = now + 1, index + 1
    trace = HandTrace([*records, *done, EndRecord("complete", index, now)])
    trace.queues = queues
    return trace


def _commits(rng: random.Random, length: int) -> tuple[int, ...]:
    """A block of ``length`` positions fixed in one to four steps."""
    cuts = sorted(rng.sample(range(1, length), min(length - 1, rng.randint(0, 3))))
    return tuple(b - a for a, b in zip([0, *cuts], [*cuts, length], strict=True))


def figure1(example: int) -> HandTrace:
    """The paper's Figure 1 in small numbers (block length 4).

    Example 1: requests 1 to 3 run; 3 ends with B1 and 4 refills its slot. Example 2: the widest ends with B0, the
    box shrinks, and two requests enter: the batch grows from 3 to 4.
    """
    if example == 1:
        specs = [Spec("1", 24, 3, 3), Spec("2", 18, 3, 3), Spec("3", 12, 3, 2), Spec("4", 6, 3, 3)]
        return simulate(specs, budget=108)
    specs = [Spec("1", 40, 3, 1), Spec("2", 20, 3, 3), Spec("3", 14, 3, 3), Spec("4", 10, 3, 2), Spec("5", 8, 3, 3)]
    return simulate(specs, budget=134)


def written(cycles: int = 1) -> HandTrace:
    """One request that writes ``a b c⏎ end`` in every block, at trace level ``token``: places 1 and 3 first."""
    whole = simulate([Spec("1", 6, cycles, cycles)])
    records: list[object] = []
    for record in whole.records:
        if isinstance(record, RequestRecord):
            record = replace(record, prompt="What? <b>\nnext line\n")
        elif isinstance(record, CycleRecord):
            base = 6 + 4 * record.index
            first = StepRecord((base + 1, base + 3), (12, 1), (0.95, 0.6), ("b", ""))
            second = StepRecord((base, base + 2), (11, 13), (0.2, 0.8), ("a", "c\n"))
            row = replace(record.rows[0], steps=2, commits=(2, 2), valid=(2, 1), detail=(first, second))
            record = replace(record, rows=(row,))
        records.append(record)
    return HandTrace(records)


LONG_META = {
    "cycles": 100_000, "block_length": 32, "suffix": 0, "order": "longest_first", "quantum": "block", "slots": None,
    "reserve": False, "status": "complete", "preset": "long", "model": "none", "id_prefix": "r", "messages": {},
}  # fmt: skip


@cache
def long_encoded(stay: int) -> Encoded:
    """`long_run` as the player is sent it."""
    return pack(long_run(stay=stay), LONG_META, LIMIT, DETAIL)


def long_run(cycles: int = 100_000, slots: int = 64, stay: int = 25) -> dict[str, np.ndarray]:
    """Columns of a run in which all slots are refilled every ``stay`` cycles, some of them one cycle late."""
    count = cycles // stay * slots
    rng = np.random.default_rng(0)
    joins = np.zeros(cycles, int)
    joins[: count // slots * stay : stay] = slots
    prompts = rng.integers(30, 700, count)
    return {
        "cycle_start": np.arange(cycles) * 0.01,
        "cycle_duration": rng.random(cycles).astype(np.float32),
        "cycle_joins": joins,
        "cycle_batch": np.full(cycles, slots),
        "cycle_width": rng.integers(1_500, 1_700, cycles),
        "cycle_budget": np.full(cycles, 96_000),
        "cycle_queue": np.arange(cycles)[::-1] * slots // stay,
        "cycle_steps": rng.integers(1, 33, cycles),
        "cycle_padding": rng.integers(0, 50_000, cycles),
        "cycle_tokens": rng.integers(96_000, 200_000, cycles),
        "cycle_valid": rng.integers(64, 2_000, cycles),
        "cycle_refused": np.ones(cycles, int),
        "stay_request": np.arange(count),
        "stay_length": np.full(count, stay) - (np.arange(count) % 3 == 0),
        "stay_slot": np.arange(count) % slots,
        "stay_block": np.zeros(count, int),
        "stay_frozen": np.zeros(count, int),
        "stay_why": rng.integers(1, 4, count),
        "stay_left": rng.integers(2, 5, count),
        "request_prompt": prompts,
        "request_blocks": np.full(count, 32),
        "request_end": np.full(count, stay - 1) - (np.arange(count) % 3 == 0),
        "request_reason": rng.integers(1, 4, count),
        "request_arrival": np.zeros(count, int),
        "request_arrives": np.zeros(count),
        "request_gone": np.full(count, cycles),
        "request_done": np.ones(count, int),
        "request_last": (np.arange(count) // slots + 1) * stay,
        "id_number": np.arange(count),
        "step_count": rng.integers(1, 33, cycles * slots),
        "commit_count": rng.integers(1, 3, cycles * slots * 2),
    }
