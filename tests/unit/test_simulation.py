"""Simulated runs: exact accounting of passes and cells, the profile's life, levels, repeatability, lower bounds."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from blockserve.core import ConfigError, InvalidRequestError, UnknownNameError
from blockserve.presets import resolve
from blockserve.simulation.benchmarks import benchmark_lengths, benchmark_profile
from blockserve.simulation.catalogue import roofline
from blockserve.simulation.profile import Profile, ProfileError, StepDistribution, even_commits
from blockserve.studies.bounds import lower_bound, profile_bound
from blockserve.studies.paper_runs import with_hidden_runaways
from blockserve.studies.simulate import simulate
from blockserve.tracing.metrics import straggler_wait, summarize, waste
from blockserve.tracing.records import to_dict


def make(prompts, outputs, limit, block_length=4, **options) -> Profile:
    return Profile.synthetic(np.array(prompts), np.array(outputs), limit, block_length=block_length, **options)


@st.composite
def profiles(draw):
    """Outputs of all lengths up to the limit, so that the rows of a group end in different blocks."""
    size = draw(st.integers(2, 12))
    limit = draw(st.integers(1, 40))
    prompts = st.lists(st.integers(1, 60), min_size=size, max_size=size)
    outputs = st.lists(st.integers(0, limit + 1), min_size=size, max_size=size)
    late = st.sampled_from([0.0, 0.0, 0.5, 3.0])
    arrivals = st.just([0.0] * size) | st.lists(late, min_size=size, max_size=size)
    return make(
        draw(prompts),
        draw(outputs),
        limit,
        draw(st.sampled_from([1, 4, 8])),
        steps=StepDistribution(draw(st.floats(1, 8)), draw(st.sampled_from([0.0, 2.0]))),
        runaways=draw(st.sampled_from([0.0, 0.3])),
        arrivals=np.array(draw(arrivals)),
        seed=draw(st.integers(0, 99)),
    )


@st.composite
def setups(draw, profile):
    largest = int((profile.prompt_tokens + profile.canvas * profile.block_length).max())
    bound = st.sampled_from([{"slots": 1}, {"slots": 3}, {"slots": 6}, {"token_budget": 3 * largest}])
    bound = draw(bound | st.just({"token_budget": largest}))
    return {
        "preset": draw(st.sampled_from(["static", "static", "block-fifo", "blockserve-fixed"])),
        "cache": draw(st.sampled_from(["dual", "prefix", "none"])),
        "suffix": draw(st.sampled_from([0, 1, "full"])),
        "eos": draw(st.sampled_from(["settled", "settled", "block", "ignore"])),
        "head": draw(st.sampled_from(["block", "full"])),
        "compaction": draw(st.booleans()),
        **bound,
    }


# ------------------------------------------------------------------------------------------- accounting


def count_passes(cycle, length: int, cache: str, compaction: bool):
    """Pass by pass, with the rows that take part in each: (row passes, row tokens, reuse passes)."""
    left = {row.id: row.steps for row in cycle.rows}
    row_passes, row_tokens, passes = len(left), len(left) * cycle.box_width, 0
    left = {name: n - 1 for name, n in left.items()}
    while max(left.values()) > 0:
        here = [r for r in cycle.rows if left[r.id] > 0 or not compaction]
        in_it = [r for r in cycle.rows if not (r.frozen and compaction)]
        piece = length * (1 + max((r.suffix_blocks for r in in_it), default=0) * (cache == "prefix"))
        width = cycle.box_width if cache == "none" else piece
        row_passes, row_tokens, passes = row_passes + len(here), row_tokens + len(here) * width, passes + 1
        left = {name: n - 1 for name, n in left.items()}
    return row_passes, row_tokens, passes


@settings(max_examples=200, deadline=None)
@given(data=st.data(), profile=profiles())
def test_every_pass_is_counted_and_waste_sums_to_the_row_tokens(data, profile):
    setup = data.draw(setups(profile))
    trace = simulate(profile, check=True, **setup).trace
    for cycle in trace.cycle_records:
        expected = count_passes(cycle, profile.block_length, setup["cache"], setup["compaction"])
        assert (cycle.row_passes, cycle.row_tokens, cycle.reuse_passes) == expected
        assert sum(row.passes for row in cycle.rows) == cycle.row_passes
    parts = waste(trace)
    assert sum(parts.values()) == sum(c.row_tokens for c in trace.cycle_records)
    assert min(parts.values()) >= 0
    assert parts["valid"] == sum(c.valid_tokens for c in trace.completion_records) == profile.valid_tokens.sum()


@settings(max_examples=60, deadline=None)
@given(data=st.data(), profile=profiles())
def test_totals_without_cycles_are_those_of_the_cycles(data, profile):
    setup = data.draw(setups(profile))
    whole, brief = simulate(profile, **setup), simulate(profile, level="summary", **setup)
    assert not brief.trace.cycle_records
    assert brief.metrics(4) == pytest.approx(summarize(whole.trace, 4))
    assert brief.trace.completion_records == whole.trace.completion_records


def test_two_rows_by_hand():
    """L 4, rows of 8 and 6 prompt tokens, 1 block each, 3 and 1 steps, compaction.

    refresh 2 × 12 = 24; then the first row alone twice, 4 cells each: 24 + 8 = 32 row-tokens in 4 row passes.
    Committed 2 + 1 + 1 and 4; padding 2; prompt re-run 8 + 6; straggler wait 2.
    """
    profile = replace(make([8, 6], [4, 4], 4), steps=np.array([3, 1]))
    trace = simulate(profile, "blockserve-fixed", check=True).trace
    (cycle,) = trace.cycle_records
    assert (cycle.row_passes, cycle.row_tokens, cycle.reuse_passes) == (4, 32, 2)
    assert [row.commits for row in cycle.rows] == [(2, 1, 1), (4,)]
    assert waste(trace) == {
        "valid": 8,
        "after_eos": 0,
        "uncommitted": 8,
        "refresh": 14,
        "suffix": 0,
        "padding": 2,
        "ended": 0,
        "uncompacted": 0,
    }
    assert straggler_wait(trace) == 2


@pytest.mark.parametrize(("compaction", "widths"), [(True, [12, 8, 4]), (False, [12, 12, 12])])
def test_a_frozen_row_widens_the_reuse_pass_only_without_compaction(compaction, widths):
    """L 4, K 3, prefix cache over the full suffix: row 0 ends in block 0 and keeps 2 suffix blocks, row 1 goes on."""
    profile = make([8, 8], [2, 12], 12, steps=StepDistribution(2))
    trace = simulate(profile, "static", cache="prefix", suffix="full", compaction=compaction).trace
    assert [c.reuse_width for c in trace.cycle_records] == widths


@given(length=st.integers(1, 64), steps=st.integers(1, 65), valid=st.integers(0, 64))
def test_commits_are_spread_evenly(length, steps, valid):
    steps, valid = min(steps, length), min(valid, length)
    commits, good = even_commits(length, steps, valid)
    assert (len(commits), sum(commits), sum(good)) == (steps, length, valid)
    assert max(commits) - min(commits) <= 1 and min(commits) >= 1
    assert all(0 <= g <= c for g, c in zip(good, commits, strict=True))


def test_a_cycle_lasts_as_long_as_its_slowest_row():
    profile = replace(make([8, 8], [4, 4], 4, 4), steps=np.array([1, 4]))
    slow, cost = simulate(profile, "static-block-head"), roofline()
    expected = cost.refresh_seconds(2, 12, 4) + 3 * cost.reuse_seconds(2, 4, 12, 4)
    assert slow.trace.end.wall == pytest.approx(expected)
    compacted = cost.refresh_seconds(2, 12, 4) + 3 * cost.reuse_seconds(1, 4, 12, 4)
    assert simulate(profile, "static").trace.end.wall == pytest.approx(compacted)


# ------------------------------------------------------------------------------------- profiles and runs


def test_a_synthetic_request_ends_in_the_block_of_its_end_token():
    """L 4, limit 12: 0 → block 0; 3 → block 0 (end token at 3); 4 → block 1; 11 → block 2; 12 and 40: the limit."""
    profile = make([5] * 6, [0, 3, 4, 11, 12, 40], 12)
    assert profile.ends.tolist() == [0, 0, 1, 2, 2, 2]
    trace = simulate(profile, "blockserve-fixed").trace
    assert [c.blocks for c in sorted(trace.completion_records, key=lambda c: int(c.id))] == [1, 1, 2, 3, 3, 3]
    reasons = {c.id: c.reason for c in trace.completion_records}
    assert [reasons[str(i)] for i in range(6)] == ["eos"] * 4 + ["length"] * 2


def test_runaways_stop_only_at_the_limit():
    profile = make([10] * 4000, [5] * 4000, 64, runaways=0.1)
    assert (profile.valid_tokens == 64).mean() == pytest.approx(0.1, abs=0.015)


def test_hidden_runaways_fill_their_blocks_with_nothing_valid():
    """They go on to the limit after 5 valid tokens: 3 blocks of which the last is all waste."""
    profile = with_hidden_runaways(make([10] * 50, [5] * 50, 12), 0.5)
    run = simulate(profile, "block-fifo", slots=4)
    parts = waste(run.trace)
    assert parts["valid"] == sum(c.valid_tokens for c in run.trace.completion_records) == 250
    assert sum(parts.values()) == sum(c.row_tokens for c in run.trace.cycle_records)
    by_blocks = {c.blocks for c in run.trace.completion_records}
    assert by_blocks == {2, 3}


def test_drawn_steps_have_their_mean_and_stay_within_the_block():
    drawn = StepDistribution(14, 4).draw(np.random.default_rng(0), 100_000, 32)
    assert drawn.mean() == pytest.approx(14, abs=0.05)
    assert drawn.min() >= 1 and drawn.max() <= 32
    assert (StepDistribution(14, 40).draw(np.random.default_rng(0), 1000, 32) <= 32).all()


@settings(max_examples=60, deadline=None)
@given(data=st.data(), profile=profiles())
def test_a_recorded_run_gives_back_its_profile(data, profile):
    """Blocks, steps, commits and valid tokens are read from the trace whatever schedule made it."""
    trace = simulate(profile, **data.draw(setups(profile)) | {"eos": "ignore"}).trace
    found = Profile.from_trace(trace)
    for column in ("prompt_tokens", "limits", "blocks", "ends", "valid_tokens", "arrivals", "steps"):
        np.testing.assert_array_equal(getattr(found, column), getattr(profile, column))
    for index in range(len(profile)):
        for block in range(profile.blocks[index]):
            assert found.commits_of(index, block) == profile.commits_of(index, block)


def test_same_input_same_trace_byte_for_byte():
    profile = benchmark_profile("humaneval", 40, steps=StepDistribution(12, 3))
    first, second = (simulate(profile, "blockserve-budget", token_budget=6000).trace for _ in range(2))
    assert list(map(to_dict, first.records)) == list(map(to_dict, second.records))
    assert (first.run.clock, first.run.created) == ("virtual", "")
    assert first.run.device.startswith("simulated")


def test_benchmark_profiles_have_the_packaged_lengths():
    profile = benchmark_profile("gsm8k")
    assert len(profile) == 1319
    np.testing.assert_array_equal(profile.prompt_tokens, benchmark_lengths("gsm8k")[0])
    assert profile.valid_tokens.mean() == pytest.approx(0.9 * 256, abs=0.5)
    assert len(benchmark_profile("mbpp", 7, limit=64)) == 7


# ------------------------------------------------------------------------------------------ lower bound


@settings(max_examples=100, deadline=None)
@given(data=st.data(), profile=profiles())
def test_no_schedule_beats_the_lower_bound(data, profile):
    cost = roofline()
    found = lower_bound(simulate(profile, cost=cost, **data.draw(setups(profile))).trace, cost)
    assert found.makespan >= found.seconds * (1 - 1e-9)
    assert found.gap >= -1e-9


def test_the_lower_bound_is_met_by_one_request_and_by_a_full_batch_of_equals():
    cost = roofline()
    one = lower_bound(simulate(make([20], [30], 16), "block-fifo", cost).trace, cost)
    assert one.longest == pytest.approx(one.makespan)
    equals = lower_bound(simulate(make([20] * 6, [3] * 6, 16), "block-fifo", cost, slots=3).trace, cost)
    assert equals.work == pytest.approx(equals.makespan)


@given(profile=profiles())
def test_a_profile_and_its_recording_have_the_same_bound(profile):
    """The blocks that a drawn profile knows beyond the end are not work."""
    config, cost = resolve("blockserve-fixed", {"slots": 3, "block_length": profile.block_length}), roofline()
    recorded = lower_bound(simulate(profile, "blockserve-fixed", cost, slots=3).trace, cost)
    drawn = profile_bound(profile, config.policy, config.decode, config.execution, cost)
    assert drawn == pytest.approx((recorded.work, recorded.longest))


# ------------------------------------------------------------------------------------------- bad input


def test_mistakes_get_one_clear_message():
    profile = make([10, 20], [5, 5], 16)
    with pytest.raises(UnknownNameError, match="unknown preset 'blockserv'"):
        simulate(profile, "blockserv")
    with pytest.raises(UnknownNameError, match="unknown order 'longest'"):
        simulate(profile, order="longest")
    with pytest.raises(UnknownNameError, match="unknown benchmark 'gsm'"):
        benchmark_profile("gsm")
    with pytest.raises(UnknownNameError, match="unknown trace level 'token'"):
        simulate(profile, level="token")
    with pytest.raises(ProfileError, match="block length 4 and cannot be run at 8"):
        simulate(profile, block_length=8)
    with pytest.raises(InvalidRequestError, match=r"2 requests cannot be served:\n.*not even one block fits"):
        simulate(profile, token_budget=8)
    with pytest.raises(ProfileError, match=r"prompt_tokens of request '1' must be at least 1.*got 0"):
        make([10, 0], [5, 5], 16)
    with pytest.raises(ProfileError, match=r"arrivals of request '0' must be finite seconds, not negative, got -1.0"):
        make([10, 5], [5, 5], 16, arrivals=np.array([-1.0, 0.0]))
    with pytest.raises(ConfigError, match=r"runaways is a share and must be in \[0, 1\], got 1.5"):
        make([10], [5], 16, runaways=1.5)
    with pytest.raises(ConfigError, match="steps need a mean of at least 1"):
        StepDistribution(0.5)


def test_a_request_that_does_not_fit_is_rejected_and_the_rest_run():
    run = simulate(make([10, 500], [5, 5], 16), token_budget=100, skip_invalid=True)
    assert [(c.id, c.reason) for c in run.trace.completion_records] == [("1", "rejected"), ("0", "eos")]


def test_eos_ignore_needs_what_follows_the_end_token():
    settled = Profile.from_trace(simulate(make([10] * 9, [3] * 9, 16), "blockserve-fixed").trace)
    with pytest.raises(ProfileError, match="what 9 of 9 requests write after their end token is not in this profile"):
        simulate(settled, "fast-dllm-static")
