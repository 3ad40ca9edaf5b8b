"""Cost models: the roofline against the formulas worked out by hand, and fits that find what made the numbers."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from blockserve.core import ConfigError, UnknownNameError
from blockserve.simulation.catalogue import DEVICES, SHAPES, roofline
from blockserve.simulation.cost import CycleWork
from blockserve.simulation.fitting import FitError, fit_cost, nonnegative_fit
from blockserve.simulation.profile import Profile, StepDistribution
from blockserve.studies.simulate import simulate
from blockserve.tracing import Trace

H200 = DEVICES["h200"]


@pytest.mark.parametrize(
    ("model", "backbone", "head", "pair", "kv"),
    [("llada-8b", 6.979e9, 0.518e9, 0.524e6, 524e3), ("dream-7b", 6.525e9, 0.545e9, 0.401e6, 57e3)],
)
def test_the_shapes_have_the_papers_sizes(model, backbone, head, pair, kv):
    shape = SHAPES[model]
    assert shape.backbone == pytest.approx(backbone, rel=1e-3)
    assert shape.head == pytest.approx(head, rel=1e-3)
    assert shape.attention_flop == pytest.approx(pair, rel=2e-3)
    assert shape.kv_bytes == pytest.approx(kv, rel=7e-3)


def test_a_refresh_pass_by_hand():
    """8 rows × 1024, LLaDA, L 32: 8·[1024·(13.96 G + 0.524 M·1024) + 32·1.036 G] = 119.0 TFLOP at 790·0.5 TFLOP/s."""
    cost = roofline(efficiency=0.5, pass_overhead=0.01, row_overhead=0.002)
    flop = 8 * (1024 * (2 * 6.979321856e9 + 524288 * 1024) + 32 * 2 * 0.517996544e9)
    assert flop == pytest.approx(119.0e12, rel=1e-3)
    assert cost.refresh_seconds(8, 1024, 32) == pytest.approx(flop / (790e12 * 0.5) + 0.01 + 8 * 0.002)


def test_a_reuse_pass_of_few_rows_reads_and_of_many_computes():
    """One row: (15.0 GB + 1024·524 kB) / 4.3 TB/s = 3.61 ms. 64 rows: 64·32·(15.0 G + 0.54 G) FLOP at 790 TFLOP/s."""
    cost = roofline(efficiency=1.0, pass_overhead=0.0, row_overhead=0.0)
    assert cost.reuse_seconds(1, 32, 1024, 32) == pytest.approx((14.994636800e9 + 1024 * 524288) / 4.3e12)
    assert cost.reuse_seconds(64, 32, 1024, 32) == pytest.approx(64 * 32 * (2 * 7.4973184e9 + 524288 * 1024) / 790e12)


def test_the_full_head_costs_the_vocabulary_at_every_column():
    cost = roofline(efficiency=0.6, pass_overhead=0.0, row_overhead=0.0)
    more = cost.refresh_seconds(4, 1000, 32, full_head=True) - cost.refresh_seconds(4, 1000, 32)
    assert more == pytest.approx(4 * 968 * 2 * 0.517996544e9 / (790e12 * 0.6))


@given(
    rows=st.integers(1, 64),
    width=st.integers(32, 4096),
    reuse=st.lists(st.integers(1, 64), max_size=12),
)
def test_a_cycle_is_the_sum_of_its_passes(rows, width, reuse):
    cost = roofline()
    found = cost.cycle(CycleWork(rows, width, 32, sorted(reuse, reverse=True), 32))
    assert found["refresh"] == cost.refresh_seconds(rows, width, 32)
    assert found["denoise"] == pytest.approx(sum(cost.reuse_seconds(r, 32, width, 32) for r in reuse))


def test_mistakes_get_one_clear_message():
    with pytest.raises(ConfigError, match=r"efficiency must be in \(0, 1\], got 0"):
        roofline(efficiency=0.0)
    with pytest.raises(ConfigError, match=r"pass_overhead .* got nan"):
        roofline(pass_overhead=math.nan)
    with pytest.raises(UnknownNameError, match="Did you mean 'llada-8b'"):
        roofline("llada-8")
    with pytest.raises(UnknownNameError, match=r"unknown device 'a100'. Known: h200"):
        roofline(device="a100")


def test_the_budget_leaves_room_for_the_weights():
    """LLaDA on 0.9 of 141 GB: (126.9 - 16.0) GB ÷ (524 kB KV + 123 kB activations) = 171 k tokens."""
    assert roofline().token_budget() == pytest.approx(171_000, rel=5e-3)
    small = replace(roofline(), device=replace(H200, memory=10e9))
    assert small.token_budget() == 1, "nothing fits, and a request will say so"


# ----------------------------------------------------------------------------------------------- fitting


def recorded(**overhead: float) -> Trace:
    rng = np.random.default_rng(1)
    profile = Profile.synthetic(
        rng.integers(20, 900, 60), rng.integers(1, 300, 60), 256, steps=StepDistribution(9, 3), seed=2
    )
    return simulate(profile, "blockserve-fixed", roofline(**overhead), slots=6).trace


def test_a_fit_finds_the_roofline_that_made_the_trace():
    """Six rows against few tokens: refresh computes; reuse reads weights (a pass) and keys (a row and its width)."""
    made = roofline(pass_overhead=0.02, row_overhead=0.001)
    trace = recorded(pass_overhead=0.02, row_overhead=0.001)
    fitted = fit_cost(trace)
    assert fitted.cycles == len(trace)
    assert fitted.median_error < 0.02
    for work in (CycleWork(5, 700, 32, [5, 5, 3, 1], 32), CycleWork(2, 300, 32, [2], 32)):
        assert sum(fitted.cycle(work).values()) == pytest.approx(sum(made.cycle(work).values()), rel=0.05)


def test_residuals_are_what_the_prediction_leaves():
    trace = recorded()
    fitted = fit_cost(trace)
    for phase in ("refresh", "denoise"):
        measured = [c.seconds[phase] for c in trace.cycle_records]
        assert len(fitted.residuals[phase]) == len(measured)
        assert np.abs(fitted.residuals[phase]).max() < 0.2 * max(measured)


def test_one_slow_cycle_does_not_bend_the_fit():
    trace = recorded()
    records = list(trace.records)
    index, cycle = next((i, r) for i, r in enumerate(records) if r.kind == "cycle")
    records[index] = replace(cycle, seconds=dict(cycle.seconds) | {"refresh": 50.0})
    work = CycleWork(5, 700, 32, [5, 5], 32)
    assert fit_cost(Trace(records)).cycle(work)["refresh"] == pytest.approx(fit_cost(trace).cycle(work)["refresh"])


@pytest.mark.parametrize("value", [math.nan, math.inf, -1.0])
def test_a_trace_with_impossible_seconds_is_refused(value):
    trace = recorded()
    records = list(trace.records)
    index, cycle = next((i, r) for i, r in enumerate(records) if r.kind == "cycle" and r.index == 3)
    records[index] = replace(cycle, seconds=dict(cycle.seconds) | {"denoise": value})
    with pytest.raises(FitError, match=f"cycle 3 of this trace records denoise = {value} s"):
        fit_cost(Trace(records))


def test_a_trace_with_few_cycles_is_refused():
    trace = recorded()
    short = [r for r in trace.records if r.kind != "cycle" or r.index < 3]
    with pytest.raises(FitError, match="at least 4 recorded cycles, this trace has 3"):
        fit_cost(Trace(short))


@given(st.integers(0, 2**32 - 1))
def test_the_nonnegative_fit_has_no_better_neighbour(seed):
    """No small step that keeps all coefficients non-negative lowers the error: the minimum of a convex problem."""
    rng = np.random.default_rng(seed)
    columns, measured = rng.normal(size=(12, 3)), rng.normal(size=12)
    found = nonnegative_fit(columns, measured)
    assert (found >= 0).all()

    def error(x):
        return float(np.square(measured - columns @ x).sum())

    for _ in range(50):
        other = np.maximum(found + rng.normal(scale=10 ** rng.uniform(-4, 0), size=3), 0)
        assert error(other) >= error(found) - 1e-9
