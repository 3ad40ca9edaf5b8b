"""What if: the printed lines do what the run did, sources are chosen by how they were recorded, arrivals are drawn."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import blockserve as bs
from blockserve.core import ConfigError, InvalidRequestError, TraceError
from blockserve.scheduling import FixedSlots, SchedulingPolicy, TokenBudget
from blockserve.simulation.benchmarks import benchmark_profile
from blockserve.simulation.cost import CycleWork
from blockserve.simulation.profile import StepDistribution
from blockserve.studies.simulate import simulate
from blockserve.studies.what_if import Setting, WhatIf, arriving
from blockserve.tracing import Trace

PROFILE = benchmark_profile("truthfulqa", 20, steps=StepDistribution(8, 3))
TRACE = bs.sample_trace("arithmetic")


class Unit:
    """A second a pass."""

    name = "unit"

    def cycle(self, work: CycleWork) -> dict[str, float]:
        return {"refresh": 1.0, "denoise": float(len(work.reuse_rows))}


policies = st.builds(
    SchedulingPolicy,
    order=st.sampled_from(["longest_first", "shortest_first", "fifo"]),
    bound=st.one_of(st.builds(TokenBudget, st.integers(700, 4000)), st.builds(FixedSlots, st.integers(1, 12))),
    fill=st.sampled_from(["sand", "sand_strict", "head_of_line"]),
    quantum=st.sampled_from(["block", "request"]),
    reserve=st.booleans(),
    max_wait_cycles=st.sampled_from([None, 3]),
)
rates = st.sampled_from([None, 0.5, 20.0])


def executed(code: str, **names) -> Trace:
    exec(code, names)
    return names["result"]


@settings(max_examples=25, deadline=None)
@given(policy=policies, rate=rates, with_cost=st.booleans())
def test_the_lines_of_a_profile_do_what_was_run(policy, rate, with_cost):
    cost = Unit() if with_cost else None
    what_if = WhatIf(PROFILE, cost=cost, preset="block-fifo", seed=3, eos="block")
    setting = replace(what_if.start, policy=policy, rate=rate)
    assert executed(what_if.code(setting), profile=PROFILE, cost=cost) == what_if.run(setting)


@settings(max_examples=15, deadline=None)
@given(policy=policies, rate=rates, with_cost=st.booleans())
def test_the_lines_of_a_trace_do_what_was_run(policy, rate, with_cost):
    cost = Unit() if with_cost else None
    what_if = WhatIf(TRACE, cost=cost)
    setting = replace(what_if.start, policy=policy, rate=rate)
    found = what_if.run(setting)
    assert executed(what_if.code(setting), trace=TRACE, cost=cost) == found
    assert {c.id: c.text for c in found.completion_records} == {c.id: c.text for c in TRACE.completion_records}


def test_the_start_is_the_recorded_policy_or_the_preset():
    assert WhatIf(TRACE).start == Setting(SchedulingPolicy(bound=TokenBudget(500)), 16, 0)
    assert WhatIf(PROFILE, token_budget=2000).start == Setting(SchedulingPolicy(bound=TokenBudget(2000)), 32, 0)
    static = WhatIf(PROFILE, preset="static", slots=4)
    assert static.run(static.start) == simulate(PROFILE, "static", slots=4).trace
    auto, device = WhatIf(PROFILE), simulate(PROFILE).trace
    assert auto.run(auto.start).records[1:] == device.records[1:], "β is what the device has room for"


def test_the_start_of_a_trace_has_the_recorded_schedule():
    what_if = WhatIf(TRACE)
    views = [
        [(c.index, [(r.id, r.slot, r.block, r.width, r.commits) for r in c.rows], c.evicted) for c in t.cycle_records]
        for t in (TRACE, what_if.run(what_if.start))
    ]
    assert views[0] == views[1]


def test_several_sources_are_told_apart_by_block_length_and_suffix():
    profiles = [benchmark_profile("truthfulqa", 12, block_length=n) for n in (16, 32)]
    what_if = WhatIf(*profiles, preset="blockserve-fixed")
    setting = replace(what_if.start, block_length=32)
    assert what_if.run(setting).run.decode["block_length"] == 32
    assert "simulate(profile_2, " in what_if.code(setting)
    assert executed(what_if.code(setting), profile_2=profiles[1]) == what_if.run(setting)
    assert "simulate(mine, " in what_if.code(setting, names=("other", "mine"))
    with pytest.raises(ConfigError, match=r"block length 64 and suffix 0, only: 16 and 0; 32 and 0"):
        what_if.run(replace(setting, block_length=64))
    with pytest.raises(ConfigError, match="two sources of block length 16 and suffix 0"):
        WhatIf(profiles[0], profiles[0])


def test_traces_under_several_suffixes():
    runs = [simulate(PROFILE, "blockserve-fixed", suffix=s, slots=4).trace for s in (0, "full")]
    what_if = WhatIf(*runs)
    found = what_if.run(replace(what_if.start, suffix="full"))
    assert found.run.decode["suffix"] == "full"
    assert found.cycle_records[0].box_width == runs[1].cycle_records[0].box_width > runs[0].cycle_records[0].box_width


@pytest.mark.parametrize("source", [PROFILE, TRACE], ids=["profile", "trace"])
def test_arriving_changes_when_and_nothing_else(source):
    again = arriving(source, 4.0, seed=1)
    trace = WhatIf(again, **({} if source is TRACE else {"slots": 4})).run(WhatIf(again).start)
    times = [r.arrival for r in trace.request_records]
    expected = np.random.default_rng(1).exponential(0.25, len(times)).cumsum()
    assert times == pytest.approx(expected.tolist())
    assert all(c.admitted >= c.arrival for c in trace.completion_records)
    if source is TRACE:
        kept = [r for r in TRACE.records if r.kind != "request"]
        assert [r for r in again.records if r.kind != "request"] == kept


def test_a_budget_below_the_smallest_is_refused_and_the_smallest_is_not():
    for what_if in (WhatIf(PROFILE, slots=2), WhatIf(TRACE)):
        least = what_if.smallest_budget()
        setting = replace(what_if.start, policy=SchedulingPolicy(bound=TokenBudget(least)))
        assert what_if.run(setting).complete
        with pytest.raises(InvalidRequestError):
            what_if.run(replace(setting, policy=SchedulingPolicy(bound=TokenBudget(least - 1))))


def test_mistakes():
    with pytest.raises(ConfigError, match="one profile or trace, or several of the same kind"):
        WhatIf(PROFILE, TRACE)
    with pytest.raises(ConfigError, match="options \\['slots'\\] have no place"):
        WhatIf(TRACE, slots=3)
    with pytest.raises(TraceError, match="no run record"):
        WhatIf(Trace())
    with pytest.raises(ConfigError, match="arrival rate"):
        Setting(SchedulingPolicy(), 16, 0, rate=0.0)
    with pytest.raises(ConfigError, match=r"unit has no known memory; give token_budget= or slots="):
        _ = WhatIf(PROFILE, cost=Unit()).start
