"""Charts of every request: bars and cells against the records, one by one."""

from __future__ import annotations

from collections import defaultdict
from itertools import pairwise

import pytest

import blockserve as bs
from blockserve.tracing import Trace
from blockserve_viz import charts
from blockserve_viz.charts.requests import KINDS, life_bars
from hand_traces import Spec, simulate

SPECS = [Spec(f"r{i}", 10 + i, 4, 1 + i % 4) for i in range(8)]
TRACES = {
    "block": lambda: simulate(SPECS, budget=120),
    "static": lambda: simulate(SPECS, budget=120, quantum="request"),
    "preempted": lambda: simulate(SPECS, budget=120, preempt_at=(1, 3)),
    "recorded": bs.sample_trace,
}


def drawn(trace: Trace) -> dict[str, dict[str, list[tuple[float, float]]]]:
    """Kind → request → (start, end) of its bars, in order of time."""
    names = {legend: kind for kind, (legend, _, _) in KINDS.items()}
    found: dict[str, dict[str, list[tuple[float, float]]]] = {kind: defaultdict(list) for kind in KINDS}
    for bars in charts.gantt(trace).data:
        for name, base, length in zip(bars.y, bars.base, bars.x, strict=True):
            found[names[bars.name]][name].append((base, base + length))
    return {kind: {name: sorted(own) for name, own in bars.items()} for kind, bars in found.items()}


@pytest.mark.parametrize("make", TRACES.values(), ids=TRACES)
def test_gantt_has_a_bar_for_every_block_and_no_other(make) -> None:
    trace = make()
    bars = drawn(trace)
    blocks, endings = defaultdict(list), {}
    for cycle in trace.cycle_records:
        for row in cycle.rows:
            if not row.frozen:
                blocks[row.id].append(pytest.approx((cycle.start, cycle.start + cycle.duration)))
            if row.ended is not None:
                endings[row.id] = blocks[row.id][-1]
    for name, expected in blocks.items():
        assert sorted(bars["block"].get(name, []) + bars["ending"][name]) == expected
        assert bars["ending"][name] == [endings[name]]


@pytest.mark.parametrize("make", TRACES.values(), ids=TRACES)
def test_gantt_accounts_for_every_second_from_arrival_to_leaving(make) -> None:
    """Bars of a request do not overlap; but for what a real run spends between two cycles they leave no gap."""
    trace = make()
    pauses = sum(
        b.start - a.start - a.duration for a, b in zip(trace.cycle_records, trace.cycle_records[1:], strict=False)
    )
    lives = defaultdict(list)
    for bar in life_bars(trace):
        lives[bar.id].append(bar)
    for done in trace.completion_records:
        own = sorted(lives[done.id], key=lambda bar: bar.start)
        assert all(a.end <= b.start + 1e-9 for a, b in pairwise(own))
        covered = sum(bar.end - bar.start for bar in own)
        assert 0 <= done.evicted - done.arrival - covered + 1e-9 <= pauses + 0.01


def test_gantt_shows_who_is_held_by_the_group_and_who_waits_after_a_preemption() -> None:
    static = drawn(TRACES["static"]())
    waited = sum(row.frozen for c in TRACES["static"]().cycle_records for row in c.rows)
    assert sum(end - start for own in static["frozen"].values() for start, end in own) == waited > 0
    assert not drawn(TRACES["block"]())["frozen"]
    trace = TRACES["preempted"]()
    victims = {name for cycle in trace.cycle_records for name in cycle.preempted}
    assert victims and all(any(start > 0 for start, _ in drawn(trace)["waits"][name]) for name in victims)


def test_gantt_lists_requests_by_admission_and_says_what_it_leaves_out() -> None:
    trace = bs.sample_trace("gsm8k")
    first = list(dict.fromkeys(name for cycle in trace.cycle_records for name, _ in cycle.admitted))
    figure = charts.gantt(trace)
    assert list(figure.layout.yaxis.categoryarray) == first[:120]
    assert "the first 120 of 200 requests" in figure.layout.title.text
    assert {name for bars in figure.data for name in bars.y} == set(first[:120])
    assert "the first" not in charts.gantt(bs.sample_trace()).layout.title.text


def test_gantt_of_requests_that_never_ran() -> None:
    trace = bs.figure1(1)
    unserved = Trace([trace.run, *trace.request_records])
    assert not charts.gantt(unserved).data and list(life_bars(unserved)) == []
    cut = Trace([trace.run, *trace.request_records, *trace.cycle_records[:2]])  # a run that was killed
    waits = [bar for bar in life_bars(cut) if bar.id == "4"]
    assert [(bar.start, bar.end) for bar in waits] == [(0.0, 6.0)]


def test_long_ids_are_cut_on_the_axis_only() -> None:
    trace = simulate([Spec("a" * 30 + str(i), 3, 1, 1) for i in range(2)])
    axis = charts.gantt(trace).layout.yaxis
    assert list(axis.ticktext) == ["…" + "a" * 18 + str(i) for i in range(2)]
    assert list(axis.tickvals) == [r.id for r in trace.request_records]


@pytest.mark.parametrize("make", TRACES.values(), ids=TRACES)
def test_the_heat_map_holds_the_steps_of_every_block(make) -> None:
    trace = make()
    cells = charts.steps_heatmap(trace).data[0]
    found = {
        (name, block): steps
        for name, line in zip(cells.y, cells.z, strict=True)
        for block, steps in zip(cells.x, line, strict=True)
        if steps is not None
    }
    table = trace.steps.groupby(["id", "block"]).size()
    assert found == table.to_dict()
