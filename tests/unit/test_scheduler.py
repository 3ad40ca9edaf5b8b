"""The scheduler on cases small enough to work out by hand, and its invariants over random ones."""

from __future__ import annotations

import pytest

from blockserve.core import ConfigError, InvalidRequestError, PolicyError, RequestShape, UnknownNameError
from blockserve.scheduling import (
    FixedSlots,
    Scheduler,
    SchedulingPolicy,
    TokenBudget,
    register_fill,
    register_order,
)
from blockserve.scheduling.admission import FILLS
from blockserve.scheduling.queue import ORDERS
from scripted import Scripted, drive, make

EXAMPLE_1 = [Scripted(24, 3), Scripted(18, 3), Scripted(12, 3, 2), Scripted(6, 3)]
EXAMPLE_2 = [Scripted(20, 3, 1), Scripted(10, 3, 2), Scripted(8, 3, 2), Scripted(6, 3), Scripted(5, 3)]


def test_figure_1_example_1_continuous_batching():
    """L 4, β 108. Request 3 ends with its second block; request 4, the shortest, refills its slot.

    cycle 0   ████████████████████████ b0        3 × 28 = 84    (4th row: 4 × 28 = 112 > 108)
                    ██████████████████ b0
                          ████████████ b0
    cycle 1   …                        b0 b1     3 × 32 = 96    (4 × 32 = 128 > 108); 3 ends
    cycle 2   …                        b0 b1 b2  3 × 36 = 108   4 enters at b0; 1 and 2 reach their limit
    cycle 3                         ██████ b0 b1   1 × 14
    cycle 4                         ██████ b0 b1 b2  1 × 18
    """
    steps = drive(SchedulingPolicy(bound=TokenBudget(108)), 4, EXAMPLE_1)
    assert [s.plan.cost for s in steps] == [84, 96, 108, 14, 18]
    assert [s.plan.refused.first_id for s in steps] == ["4", "4", None, None, None]
    assert [dict(s.plan.refused.counts) for s in steps[:2]] == [{"budget": 1}] * 2
    assert steps[0].admitted == {"1": "head", "2": "fits", "3": "fits"}
    assert steps[2].admitted == {"4": "fits"}
    assert steps[2].widths == {"1": 36, "2": 30, "4": 10}
    assert [s.evicted for s in steps] == [{}, {"3": "eos"}, {"1": "length", "2": "length"}, {}, {"4": "length"}]
    assert {row.request_id: row.slot for row in steps[2].plan.rows} == {"1": 0, "2": 1, "4": 2}


def test_figure_1_example_2_dynamic_batch_adjustment():
    """L 4, β 72. The widest ends with b0, the box shrinks from 24 to 18 and the batch grows from 3 rows to 4.

    cycle 0   ████████████████████ b0     3 × 24 = 72
                        ██████████ b0
                          ████████ b0
    cycle 1             ██████████ b0 b1  4 × 18 = 72   4 (refill) and 5 (expand) enter
                          ████████ b0 b1
                                ██████ b0
                                 █████ b0
    """
    steps = drive(SchedulingPolicy(bound=TokenBudget(72)), 4, EXAMPLE_2)
    assert [(len(s.plan.rows), s.plan.box_width) for s in steps[:2]] == [(3, 24), (4, 18)]
    assert dict(steps[0].plan.refused.counts) == {"budget": 2}
    assert steps[1].admitted == {"4": "fits", "5": "fits"}
    assert {row.request_id: row.slot for row in steps[1].plan.rows} == {"4": 0, "2": 1, "3": 2, "5": 3}


def test_a_runaway_row_runs_to_its_limit_alone():
    """L 4, 2 slots: one row never ends; the others pass by in the second slot."""
    steps = drive(SchedulingPolicy(order="fifo", bound=FixedSlots(2)), 4, [Scripted(4, 9), *[Scripted(4, 9, 1)] * 5])
    assert [len(s.plan.rows) for s in steps] == [2] * 5 + [1] * 4
    assert steps[-1].evicted == {"1": "length"}
    assert [s.plan.box_width for s in steps] == [4 + 4 * (b + 1) for b in range(9)]


def test_the_hard_budget_preempts_the_latest_and_restores_whom_it_can():
    """L 30, β 130, rows of 30, 60, 90 after their growth: ranks 1 (60), 2 (90), 3 (30).

    3 × 90 = 270 > 130 → 3 leaves; 2 × 90 = 180 > 130 → 2 leaves; 1 × 60 ≤ 130.
    Restored in order of admission: 2 would widen the box, 3 fits: 2 × 60 = 120 ≤ 130. Only the 90 leaves.
    """
    requests = [Scripted(1, 3), Scripted(31, 3), Scripted(1, 2, 1, arrival=1.0)]
    policy = SchedulingPolicy(order="fifo", bound=TokenBudget(130))
    first = drive(policy, 30, requests)
    # cycle 0: widths 31 and 61 → 2 × 61 = 122; cycle 1: 61 and 91 → 2 × 91 = 182 > 130: 2 leaves, 3 takes its place
    assert first[0].widths == {"1": 31, "2": 61}
    assert first[1].plan.preempted == ("2",)
    assert first[1].widths == {"1": 61, "3": 31}
    batch = make(policy, 30, requests[:0]).batch
    assert [row.id for row in _rows_with_widths(batch, 60, 90, 30)] == ["b"]


def _rows_with_widths(batch, *widths):
    """Rows a, b, c, … admitted in this order; who must leave a budget of 130."""
    from blockserve.scheduling.queue import Waiting

    for name, width in zip("abc", widths, strict=True):
        batch.enter(Waiting(RequestShape(name, 1, 30), 0, 1, 0, 1, width))
    return batch.outgrown(TokenBudget(130))


def test_a_preempted_row_goes_on_with_the_block_it_had_reached():
    requests = [Scripted(30, 3), Scripted(30, 3)]
    steps = drive(SchedulingPolicy(order="fifo", bound=TokenBudget(120)), 30, requests)
    blocks = {name: [r.block for s in steps for r in s.plan.rows if r.request_id == name] for name in "12"}
    assert blocks == {"1": [0, 1, 2], "2": [0, 1, 2]}
    assert steps[1].plan.preempted == ("2",)
    assert steps[3].admitted == {"2": "readmitted"}


@pytest.mark.parametrize("fill", ["sand", "sand_strict", "head_of_line"])
def test_fills_differ_in_whether_the_box_may_widen(fill):
    """shortest first, L 4, prompts 4, 4, 40, 60 slots 4: strict sand never widens the box."""
    policy = SchedulingPolicy(order="shortest_first", bound=TokenBudget(180), fill=fill)
    steps = drive(policy, 4, [Scripted(4, 1), Scripted(4, 1), Scripted(40, 1), Scripted(60, 1)])
    expected = {"sand": [{"1", "2", "3"}, {"4"}], "head_of_line": [{"1", "2", "3"}, {"4"}]}
    expected["sand_strict"] = [{"1", "2"}, {"3"}, {"4"}]
    assert [set(s.widths) for s in steps] == expected[fill]
    if fill == "sand_strict":
        assert dict(steps[0].plan.refused.counts) == {"box": 1, "budget": 1}  # 3 × 64 = 192 > 180


def test_head_of_line_stops_at_the_first_refusal_and_holds_the_rest():
    """β 60, fifo 8, 20, 1: 2 × 24 ≤ 60 … the third waits behind nobody; with 8, 40, 1 it waits behind the second."""
    policy = SchedulingPolicy(order="fifo", bound=TokenBudget(60), fill="head_of_line")
    steps = drive(policy, 4, [Scripted(8, 1), Scripted(40, 1), Scripted(1, 1)])
    assert set(steps[0].widths) == {"1"}
    assert dict(steps[0].plan.refused.counts) == {"budget": 1, "held": 1}


@pytest.mark.parametrize("run_to_limit", [False, True])
def test_static_groups_wait_for_their_slowest(run_to_limit):
    """L 4, 2 slots, fifo: (1 block | 3 blocks), then the next two. An ended row is frozen at its width."""
    requests = [Scripted(4, 3, 1), Scripted(4, 3, 3), Scripted(4, 3, 2), Scripted(4, 3, 2)]
    policy = SchedulingPolicy(order="fifo", bound=FixedSlots(2), fill="head_of_line", quantum="request")
    steps = drive(policy, 4, requests, run_to_limit=run_to_limit)
    first = [s for s in steps if "1" in s.widths]
    assert len(first) == 3
    if run_to_limit:
        assert [s.widths["1"] for s in first] == [8, 12, 16]
        assert not any(row.ended for s in steps for row in s.plan.rows)
        assert steps[2].evicted == {"1": "length", "2": "length"}
        assert steps[2].departures.completions[0].ended_cycle == 0, "where it settled is still recorded"
    else:
        assert [s.widths["1"] for s in first] == [8, 8, 8]
        assert [[r.ended for r in s.plan.rows if r.request_id == "1"] for s in first] == [[False], [True], [True]]
        assert steps[2].evicted == {"1": "eos", "2": "eos"}
    assert all(dict(s.plan.refused.counts) == {"group": 2} for s in first[1:])
    assert len(steps) == (6 if run_to_limit else 5)


def test_request_quantum_under_a_budget_reserves():
    """L 4, β 40: two rows of 4 + 3·4 = 16 fit for good (32), a third (48) does not although 3 × 8 = 24 does now."""
    policy = SchedulingPolicy(order="fifo", bound=TokenBudget(40), quantum="request")
    steps = drive(policy, 4, [Scripted(4, 3)] * 3)
    assert policy.reserves
    assert len(steps[0].plan.rows) == 2
    assert dict(steps[0].plan.refused.counts) == {"budget": 1}


def test_every_refusal_reason_has_a_case():
    """slots, budget, box, group, held: each where one expects it."""
    four = [Scripted(8, 2)] * 4
    assert _first_refusal(SchedulingPolicy(bound=FixedSlots(2)), four) == "slots"
    assert _first_refusal(SchedulingPolicy(bound=TokenBudget(30)), four) == "budget"
    wide_last = [Scripted(8, 2), Scripted(9, 2)]
    assert _first_refusal(SchedulingPolicy("shortest_first", FixedSlots(3), "sand_strict"), wide_last) == "box"
    group = drive(SchedulingPolicy(bound=FixedSlots(2), quantum="request"), 4, four)
    assert group[1].plan.refused.first_reason == "group"
    held = drive(
        SchedulingPolicy("shortest_first", TokenBudget(60), max_wait_cycles=5), 4, _short_stream_and_a_long_one()
    )
    assert "held" in {s.plan.refused.first_reason for s in held}


def _first_refusal(policy, requests):
    return drive(policy, 4, requests)[0].plan.refused.first_reason


def _short_stream_and_a_long_one():
    """A long request, and a short one of two blocks arriving every cycle, so that the batch is never empty."""
    return [Scripted(40, 1), *(Scripted(4, 2, arrival=float(i)) for i in range(40))]


def test_no_starvation_with_a_longest_wait_and_starvation_without():
    """shortest first, β 60: the long row (44) needs the batch alone; short ones (8) never leave it empty."""
    stream = _short_stream_and_a_long_one()
    entered = {}
    for wait in (None, 5):
        steps = drive(SchedulingPolicy("shortest_first", TokenBudget(60), max_wait_cycles=wait), 4, stream)
        entered[wait] = next(s.plan.cycle for s in steps if "1" in s.widths)
    assert entered[None] > 35, "without a longest wait the long request starves until the stream ends"
    assert entered[5] <= 5 + 2, "it enters once the rows inside have left"


def test_your_own_order_and_fill_in_ten_lines():
    @register_order("by_limit")
    def by_limit(request):
        return request.max_new_tokens

    @register_fill("one_at_a_time")
    def one_at_a_time(queue, box, bound):
        if not box.rows and queue.head is not None:
            yield queue.head

    try:
        policy = SchedulingPolicy(order="by_limit", bound=FixedSlots(4), fill="one_at_a_time")
        steps = drive(policy, 4, [Scripted(4, 3), Scripted(4, 1), Scripted(4, 2)])
        assert [list(s.widths) for s in steps] == [["2"], ["3"], ["3"], ["1"], ["1"], ["1"]]
    finally:
        del ORDERS["by_limit"], FILLS["one_at_a_time"]


def test_a_fill_that_ignores_its_bound_is_caught():
    @register_fill("greedy")
    def greedy(queue, box, bound):
        yield from queue

    try:
        with pytest.raises(PolicyError, match="'greedy' yielded '3', which its bound refuses"):
            drive(SchedulingPolicy(bound=FixedSlots(2), fill="greedy"), 4, [Scripted(4, 1)] * 3)
    finally:
        del FILLS["greedy"]


def test_mistakes_get_one_clear_message():
    with pytest.raises(UnknownNameError, match="Did you mean 'longest_first'"):
        SchedulingPolicy(order="longest_frist")
    with pytest.raises(ConfigError, match="slots must be a whole number of at least 1, got 0"):
        FixedSlots(0)
    with pytest.raises(ConfigError, match="max_wait_cycles"):
        SchedulingPolicy(max_wait_cycles=-1)
    scheduler = Scheduler(SchedulingPolicy(bound=TokenBudget(100)), 16, context=200)
    with pytest.raises(InvalidRequestError, match=r"50 prompt \+ 80 new = 130 tokens.*largest limit that fits is 48"):
        scheduler.submit(RequestShape("a", 50, 80))
    with pytest.raises(InvalidRequestError, match="context of 200; not even one block fits"):
        scheduler.submit(RequestShape("b", 190, 16))
    scheduler.submit(RequestShape("c", 10, 16))
    with pytest.raises(InvalidRequestError, match="used twice"):
        scheduler.submit(RequestShape("c", 10, 16))


def test_why_gives_the_numbers():
    scheduler = make(SchedulingPolicy(bound=TokenBudget(108)), 4, EXAMPLE_1)
    scheduler.plan(0.0)
    assert scheduler.why("4") == "4 waits since cycle 0; refused: budget (4 × 28 = 112 > 108)"
    assert scheduler.why("1") == "1 is in slot 0 at block 0"
    with pytest.raises(InvalidRequestError, match="never submitted"):
        scheduler.why("nobody")


def test_shedding_halves_the_batch_and_nothing_is_lost():
    scheduler = make(SchedulingPolicy(bound=FixedSlots(4)), 4, [Scripted(4, 2)] * 6)
    scheduler.plan(0.0)
    assert scheduler.shed()
    plan = scheduler.plan(0.0)
    scheduler.check()
    assert [r.request_id for r in plan.rows] == ["1", "2"]
    assert scheduler.bound == FixedSlots(2)
    assert len(scheduler.unfinished()) == 6
    assert scheduler.shed()
    scheduler.plan(0.0)
    assert not scheduler.shed(), "a single row cannot be halved"
