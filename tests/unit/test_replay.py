"""Replay and diff on simulated recordings, where the truth is known: the profile that made them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from blockserve.core import ConfigError, TraceError
from blockserve.presets import resolve
from blockserve.scheduling import FixedSlots, SchedulingPolicy, TokenBudget
from blockserve.session import Session
from blockserve.simulation.catalogue import roofline
from blockserve.simulation.profile import Profile, StepDistribution
from blockserve.studies.diff import diff, schedule
from blockserve.studies.replay import replay
from blockserve.studies.simulate import open_session, profile_requests, simulate, submit
from blockserve.tracing import Trace

COST = roofline()


def workload(seed: int, size: int = 12, arrivals: bool = False) -> Profile:
    rng = np.random.default_rng(seed)
    return Profile.synthetic(
        rng.integers(1, 80, size),
        rng.integers(0, 40, size),
        32,
        block_length=4,
        steps=StepDistribution(3, 1),
        arrivals=np.sort(rng.uniform(0, 2, size)) if arrivals else None,
        seed=seed,
    )


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 999),
    arrivals=st.booleans(),
    recorded=st.sampled_from(["blockserve-fixed", "static", "block-fifo"]),
    wanted=st.sampled_from(["blockserve-budget", "static", "block-fifo", "blockserve-fixed", "static-block-head"]),
    bound=st.sampled_from([{"slots": 2}, {"slots": 5}, {"token_budget": 112}, {"token_budget": 300}]),
)
def test_a_replay_is_the_run_under_the_other_policy(seed, arrivals, recorded, wanted, bound):
    """With the same cost model even the times agree, so arrivals in time change nothing."""
    profile = workload(seed, arrivals=arrivals)
    direct = simulate(profile, wanted, COST, **bound).trace
    again = replay(simulate(profile, recorded, COST, slots=4).trace, wanted, cost=COST, check=True, **bound)
    assert schedule(again) == schedule(direct)
    assert again.end.wall == pytest.approx(direct.end.wall)
    assert diff(again, direct) is None
    assert again.run.workload["schedule"] == ("predicted" if arrivals else "exact")


def test_a_replay_says_what_it_is():
    trace = replay(simulate(workload(1), "blockserve-fixed", COST).trace, "static", slots=3)
    run = trace.run
    assert (run.preset, run.clock, run.overrides) == ("static", "virtual", {"slots": 3})
    assert run.device.startswith("simulated: fitted to ")
    assert run.workload["replay_of"] == "blockserve-fixed"


def test_a_policy_object_keeps_the_recorded_execution():
    trace = simulate(workload(2), "static-block-head", COST).trace
    policy = SchedulingPolicy(order="shortest_first", bound=TokenBudget(200))
    again = replay(trace, policy)
    assert again.run.policy["order"] == "shortest_first"
    assert again.run.execution == trace.run.execution
    with pytest.raises(ConfigError, match=r"options \['slots'\] have no place"):
        replay(trace, policy, slots=2)


def test_a_budget_preset_without_a_budget_gets_the_recorded_memory():
    trace = simulate(workload(3), "blockserve-fixed", COST, slots=3).trace
    assert replay(trace, "blockserve-budget").run.policy["bound"] == {
        "budget": max(c.cost for c in trace.cycle_records)
    }


def test_other_tokens_are_refused():
    trace = simulate(workload(4), "blockserve-fixed", COST).trace
    with pytest.raises(ConfigError, match=r"decodes with suffix='full', eos='ignore' but .* recorded with suffix=0"):
        replay(trace, "fast-dllm-static")
    with pytest.raises(ConfigError, match="the tokens would be others"):
        replay(trace, "static", threshold=0.5)
    assert len(replay(trace, "fast-dllm-static", suffix=0, eos="settled"))


def test_a_trace_that_does_not_hold_what_is_needed_is_refused():
    profile = workload(5)
    with pytest.raises(TraceError, match=r"a profile needs recorded cycles.*record the run at level cycle"):
        replay(simulate(profile, level="summary", token_budget=400).trace, "static")
    whole = simulate(profile, "blockserve-fixed", COST).trace
    cut = Trace([r for r in whole.records if r.kind not in ("completion", "end")])
    with pytest.raises(TraceError, match="12 of 12 requests did not end in this trace"):
        replay(cut, "static")
    hole = Trace([r for r in whole.records if not (r.kind == "cycle" and r.index == 2)])
    with pytest.raises(TraceError, match="the trace is damaged"):
        replay(hole, "static")


def test_a_stop_string_that_began_in_an_earlier_block_is_replayed():
    """Request "3" is cut by a stop string that its last block completes: its valid tokens end a block earlier."""
    trace = simulate(replace(workload(12), ends=np.full(12, 3, np.int32)), "block-fifo", COST, slots=3).trace
    stopped = Trace([_stopped(record, "3") for record in trace.records])
    profile = Profile.from_trace(stopped)
    assert (profile.valid_tokens[3], profile.ends[3]) == (10, 3)
    again = replay(stopped, "block-fifo", cost=COST, slots=3)
    assert schedule(again) == schedule(stopped)
    assert next(c for c in again.completion_records if c.id == "3").reason == "stop"


def _stopped(record, name):
    if record.kind == "completion" and record.id == name:
        return replace(record, reason="stop", valid_tokens=10)
    if record.kind != "cycle":
        return record
    rows = tuple(replace(r, ended="stop") if r.id == name and r.ended else r for r in record.rows)
    return replace(record, rows=rows, evicted=tuple((i, "stop" if i == name else why) for i, why in record.evicted))


# ------------------------------------------------------------------------------- ended from the outside


def cancelled_run(profile: Profile, when: dict[int, str]) -> Trace:
    """A run in which requests are cancelled after some cycles."""
    config = resolve("blockserve-fixed", {"slots": 3, "block_length": profile.block_length})
    session = open_session(Session, profile, config, COST, level="cycle")
    submit(session, profile_requests(profile), skip_invalid=False)
    for cycle in session.cycles():
        if cycle.index in when:
            assert session.cancel(when[cycle.index])
    return session.trace


def test_cancelled_requests_live_as_long_as_they_were_recorded_to():
    """Longest first, three slots: "0" is cancelled after two of its eight blocks, "11" while it still waits."""
    profile = workload(6)
    profile = replace(profile, prompt_tokens=np.arange(60, 48, -1, dtype=np.int32), ends=np.full(12, 7, np.int32))
    trace = cancelled_run(profile, {1: "0", 3: "11"})
    assert [(c.id, c.blocks) for c in trace.completion_records if c.reason == "cancelled"] == [("0", 2), ("11", 0)]
    for preset, options in (("block-fifo", {"slots": 2}), ("static", {"slots": 4})):
        again = replay(trace, preset, cost=COST, check=True, **options)
        gone = {c.id: c for c in again.completion_records}
        assert (gone["0"].reason, gone["0"].blocks) == ("cancelled", 2)
        assert gone["11"].reason == "cancelled" and gone["11"].blocks == 0
        assert len(gone) == 12 and sum(r.id == "0" for c in again.cycle_records for r in c.rows) == 2


def test_a_cancelled_run_replayed_under_its_own_policy_is_the_same():
    trace = cancelled_run(workload(7), {2: _in_batch_at(workload(7), 2)})
    assert schedule(replay(trace, "blockserve-fixed", cost=COST, slots=3)) == schedule(trace)


def _in_batch_at(profile: Profile, cycle: int) -> str:
    """A request that goes on after ``cycle``."""
    trace = cancelled_run(profile, {})
    here, later = ({r.id for r in trace.cycle_records[i].rows} for i in (cycle, cycle + 1))
    return min(here & later)


# -------------------------------------------------------------------------------------------------- diff


def test_diff_names_the_first_parting_and_why():
    """Example 1 of the paper's Figure 1 under budgets of 108 and 112: the fourth row fits in cycle 0 at 4 × 28."""
    profile = Profile.synthetic(
        np.array([24, 18, 12, 6]), np.array([12, 12, 7, 12]), 12, block_length=4, steps=StepDistribution(2)
    )
    tight, wide = (simulate(profile, cost=COST, token_budget=b).trace for b in (108, 112))
    parting = diff(tight, wide)
    assert (parting.cycle, parting.what, parting.only_first, parting.only_second) == (0, "admitted", (), ("3",))
    assert "refused: budget (4 × 28 = 112 > 108)" in parting.why
    assert "Second run: 3 is in slot 3 at block 0" in str(parting)
    assert diff(tight, tight) is None


def test_diff_sees_a_longer_run_and_another_workload():
    trace = simulate(workload(8), "block-fifo", COST).trace
    short = Trace([r for r in trace.records if not (r.kind == "cycle" and r.index == len(trace) - 1)])
    parting = diff(trace, short)
    assert (parting.cycle, parting.what) == (len(trace) - 1, "length")
    assert "Only the first run goes on" in parting.why
    with pytest.raises(TraceError, match="the traces serve different requests"):
        diff(trace, simulate(workload(9), "block-fifo", COST).trace)
    with pytest.raises(TraceError, match="the second trace holds no cycles"):
        diff(trace, simulate(workload(8), "block-fifo", COST, level="summary").trace)


def test_diff_tells_progress_from_admission():
    profile = replace(workload(10), steps=np.minimum(workload(10).steps, 2))
    a = simulate(profile, "block-fifo", COST, slots=2).trace
    slower = replace(profile, steps=np.minimum(profile.steps + 1, 4))
    parting = diff(a, simulate(slower, "block-fifo", COST, slots=2).trace)
    assert (parting.cycle, parting.what) == (0, "progress")


def test_slots_and_budgets_are_both_replayed():
    trace = simulate(workload(11), "blockserve-fixed", COST).trace
    by_slots = replay(trace, SchedulingPolicy(bound=FixedSlots(2)), cost=COST)
    assert max(c.batch for c in by_slots.cycle_records) == 2
