"""The scheduler's invariants over random workloads, budgets, policies, arrivals and cancellations.

1,000 examples in the normal suite; `make test-deep` runs 100,000 (the variable ``BLOCKSERVE_EXAMPLES``).
"""

from __future__ import annotations

import os

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from blockserve.geometry import num_blocks, row_width
from blockserve.scheduling import FixedSlots, SchedulingPolicy, TokenBudget
from scripted import Scripted, Step, drive

EXAMPLES = int(os.environ.get("BLOCKSERVE_EXAMPLES", "1000"))
MANY = settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck))
FEW = settings(max_examples=max(100, EXAMPLES // 10), deadline=None)

requests_strategy = st.lists(
    st.builds(
        Scripted,
        prompt=st.integers(1, 12) | st.integers(1, 60),
        blocks=st.integers(1, 6),
        ends_after=st.none() | st.none() | st.integers(1, 6),
        arrival=st.just(0.0) | st.integers(0, 8).map(float),
    ),
    min_size=4,
    max_size=14,
)


@st.composite
def policies(draw, requests, block_length):
    """Any combination; a budget that at least holds the largest request, and is often tight."""
    largest = max(r.prompt + r.blocks * block_length for r in requests)
    budget = st.floats(1.0, 1.7).map(lambda factor: TokenBudget(int(largest * factor)))
    return SchedulingPolicy(
        order=draw(st.sampled_from(["longest_first", "shortest_first", "shortest_first", "fifo"])),
        bound=draw(budget | budget | budget | st.integers(1, 5).map(FixedSlots)),
        fill=draw(st.sampled_from(["sand", "sand_strict", "head_of_line"])),
        quantum=draw(st.sampled_from(["block"] * 4 + ["request"])),
        reserve=draw(st.sampled_from([False] * 5 + [True])),
        max_wait_cycles=draw(st.none() | st.integers(1, 8)),
    )


@st.composite
def cancellations(draw, requests):
    """At a few boundaries, a few ids each; often none."""
    ids = st.sampled_from([str(n) for n in range(1, len(requests) + 1)])
    return draw(st.just({}) | st.dictionaries(st.integers(0, 6), st.lists(ids, min_size=1, max_size=2, unique=True)))


@MANY
@given(data=st.data(), requests=requests_strategy, block_length=st.sampled_from([1, 8, 16, 16]))
def test_invariants_hold_for_every_policy_and_workload(record_share, data, requests, block_length):
    policy = data.draw(policies(requests, block_length))
    suffix = data.draw(st.sampled_from([0, 0, 1, "full"]))
    run_to_limit = data.draw(st.sampled_from([False, False, True]))
    dropped = data.draw(cancellations(requests))
    steps = drive(policy, block_length, requests, dropped, suffix=suffix, run_to_limit=run_to_limit)

    cancelled = {c.request_id: s for s in steps for c in s.cancelled if c.reason == "cancelled"}
    ended = [name for s in steps for name in (*s.evicted, *(c.request_id for c in s.cancelled))]
    assert len(ended) == len(set(ended)), "nobody ends twice"
    for number, r in enumerate(requests, start=1):
        if str(number) in ended:  # the others were cancelled after the last cycle, or before the first
            assert_life(str(number), r, steps, cancelled.get(str(number)), policy, block_length, suffix, run_to_limit)
        else:
            assert str(number) in {i for ids in dropped.values() for i in ids}
    for s in steps:
        assert_boundary(s, policy)
    record_share("scheduler examples", "with a preemption", any(s.plan.preempted for s in steps))
    record_share("scheduler examples", "with a refusal", any(s.plan.refused.counts for s in steps))
    record_share("scheduler examples", "with a cancellation", bool(cancelled))
    record_share("scheduler examples", "with arrivals in time", any(r.arrival for r in requests))


def assert_boundary(s: Step, policy: SchedulingPolicy) -> None:
    """The bound holds, refusals add up, and a policy that reserves never preempts."""
    assert s.widths, "no cycle without rows"
    if isinstance(policy.bound, TokenBudget):
        assert len(s.widths) * max(s.widths.values()) <= policy.bound.tokens
    else:
        assert len(s.widths) <= policy.bound.slots
    assert sum(s.plan.refused.counts.values()) == s.plan.queue_depth
    assert not (policy.reserves and s.plan.preempted)
    assert not set(s.admitted) & set(s.plan.preempted), "only net changes are recorded"
    assert set(s.admitted) <= set(s.widths)
    assert not set(s.plan.preempted) & set(s.widths)


def assert_life(name, r, steps, cancelled, policy, block_length, suffix, run_to_limit) -> None:
    """One request: blocks grow by one a cycle while unended, the right reason, nothing after it left."""
    rows = [(s, row) for s in steps for row in s.plan.rows if row.request_id == name]
    blocks = [row.block for _, row in rows if not row.ended]
    needed = r.blocks if run_to_limit or r.ends_after is None else min(r.blocks, r.ends_after)
    assert blocks == list(range(len(blocks))) and len(blocks) <= needed
    assert all(s.start >= r.arrival for s, _ in rows)
    if cancelled is None:
        assert len(blocks) == needed
        by_eos = not run_to_limit and r.ends_after is not None and r.ends_after <= r.blocks
        left = [(s, reason) for s in steps for who, reason in s.evicted.items() if who == name]
        left += [(s, c.reason) for s in steps for c in s.cancelled if c.request_id == name]
        assert [reason for _, reason in left] == ["eos" if by_eos else "length"]
        assert all(s.plan.cycle <= left[0][0].plan.cycle for s, _ in rows)
    else:
        assert all(s.plan.cycle < cancelled.plan.cycle for s, _ in rows), "a cancelled request takes no more part"
    for s, row in rows:
        blocks_total = num_blocks(r.blocks * block_length, block_length)
        assert row.width == s.widths[name] == row_width(r.prompt, row.block, blocks_total, block_length, suffix)
        frozen = any(o.plan.cycle < s.plan.cycle and x.block == row.block == needed - 1 for o, x in rows)
        assert row.ended == frozen, "an ended row stays in its group at its last block"


@FEW
@given(data=st.data(), requests=requests_strategy)
def test_same_input_same_plans(data, requests):
    policy = data.draw(policies(requests, 4))
    dropped = data.draw(cancellations(requests))
    assert drive(policy, 4, requests, dropped) == drive(policy, 4, requests, dropped)


@FEW
@given(data=st.data(), requests=requests_strategy)
def test_longest_wait_bounds_every_wait(data, requests):
    """With all requests present, who has waited ``n`` cycles is next: it waits at most for the rows inside to end and
    for those who have waited as long."""
    policy = SchedulingPolicy(
        order=data.draw(st.sampled_from(["longest_first", "shortest_first"])),
        bound=FixedSlots(data.draw(st.integers(1, 3))),
        max_wait_cycles=data.draw(st.integers(1, 6)),
    )
    present = [Scripted(r.prompt, r.blocks, r.ends_after) for r in requests]
    steps = drive(policy, 4, present)
    entered = {name: s.plan.cycle for s in steps for name in s.admitted}
    # after n cycles of waiting the queue is served in order of submission
    late = [n for n in sorted(entered, key=int) if entered[n] > policy.max_wait_cycles]
    assert [entered[n] for n in late] == sorted(entered[n] for n in late)
