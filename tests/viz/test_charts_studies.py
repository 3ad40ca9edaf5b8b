"""Charts of many runs, and of predictions: numbers worked out from the records again."""

from __future__ import annotations

from dataclasses import replace
from statistics import median

import pandas as pd
import pytest

import blockserve as bs
from blockserve.core import ConfigError, TraceError
from blockserve.simulation.benchmarks import benchmark_profile
from blockserve.studies.race import Race
from blockserve.studies.replay import replay
from blockserve.studies.simulate import simulate
from blockserve.studies.what_if import arriving
from blockserve.tracing import Trace
from blockserve_viz import charts
from blockserve_viz.colours import SERIES

PROFILE = benchmark_profile("truthfulqa", 24)
SIZES = (2, 4, 8)
ORDERS = ("longest_first", "fifo")


def run(preset: str = "blockserve-fixed", profile=PROFILE, **options) -> Trace:
    return simulate(profile, preset, **options).trace


def throughput(trace: Trace) -> float:
    return sum(c.valid_tokens for c in trace.completion_records) / max(c.evicted for c in trace.completion_records)


def latency(trace: Trace) -> float:
    return median(c.evicted - c.arrival for c in trace.completion_records)


@pytest.fixture(scope="module")
def sizes() -> dict[int, dict[str, Trace]]:
    return {n: {name: run(name, slots=n) for name in ("static", "blockserve-fixed")} for n in SIZES}


def test_scaling(sizes) -> None:
    figure = charts.scaling(sizes)
    assert [(t.name, t.line.color) for t in figure.data[::2]] == [
        ("static", SERIES[0]),
        ("blockserve-fixed", SERIES[1]),
    ]
    for left, right in (figure.data[:2], figure.data[2:]):
        assert list(left.x) == list(right.x) == list(SIZES)
        assert list(left.y) == pytest.approx([throughput(sizes[n][left.name]) for n in SIZES])
        assert list(right.y) == pytest.approx([latency(sizes[n][left.name]) for n in SIZES])
    assert "(simulated)" in figure.layout.title.text


def test_scaling_takes_traces_without_cycles_and_single_ones(sizes) -> None:
    brief = {n: run(slots=n, level="summary") for n in SIZES}
    figure = charts.scaling(brief)
    assert list(figure.data[0].y) == list(charts.scaling({n: sizes[n]["blockserve-fixed"] for n in SIZES}).data[0].y)


def test_block_lengths() -> None:
    runs = {n: run(profile=benchmark_profile("truthfulqa", 24, block_length=n), slots=4) for n in (16, 32)}
    speed, commits = charts.block_lengths(runs).data
    assert list(speed.x) == ["16", "32"] and list(speed.y) == pytest.approx([throughput(t) for t in runs.values()])
    expected = [
        sum(sum(r.commits) for c in t.cycle_records for r in c.rows)
        / sum(r.passes for c in t.cycle_records for r in c.rows)
        for t in runs.values()
    ]
    assert list(commits.y) == pytest.approx(expected)


def test_block_lengths_show_accuracy_where_runs_are_graded() -> None:
    graded = charts.block_lengths({16: bs.sample_trace()})
    correct = [c.correct for c in bs.sample_trace().completion_records]
    assert list(graded.data[2].y) == [pytest.approx(100 * sum(correct) / len(correct))]
    assert "simulated" not in graded.layout.title.text


def test_orders() -> None:
    runs = {order: run(order=order, slots=4) for order in ORDERS}
    speed, padding, waits = charts.orders(runs).data
    assert list(speed.x) == list(ORDERS) and list(speed.y) == pytest.approx([throughput(t) for t in runs.values()])
    boxes = [[(len(c.rows) * max(r.width for r in c.rows), c) for c in t.cycle_records] for t in runs.values()]
    empty = [100 * (1 - sum(r.width for _, c in own for r in c.rows) / sum(cost for cost, _ in own)) for own in boxes]
    assert list(padding.y) == pytest.approx(empty)
    assert list(waits.y) == pytest.approx([latency(t) for t in runs.values()])


def test_the_ladder_of_traces() -> None:
    traces = {name: run(name, slots=4) for name in ("static-block-head", "static", "block-fifo")}
    (bars,) = charts.ladder(traces).data
    speed = [throughput(t) for t in traces.values()]
    assert list(bars.x) == list(traces) and list(bars.y) == pytest.approx(speed)
    assert list(bars.text) == ["", f"×{speed[1] / speed[0]:.2f}", f"×{speed[2] / speed[1]:.2f}"]
    assert bars.customdata[2][0] == "scheduled at every block boundary"
    assert bars.customdata[2][1] == f"×{speed[2] / speed[0]:.2f} of the first"
    assert bars.error_y.array is None


def test_the_ladder_of_a_race_shows_its_repeats() -> None:
    traces = {name: run(name, slots=4) for name in ("static", "block-fifo")}
    walls = {"static": [4.0, 2.0, 5.0], "block-fifo": [2.0, 1.0, 2.5]}
    (bars,) = charts.ladder(Race(traces, walls)).data
    tokens = int(PROFILE.valid_tokens.sum())
    assert list(bars.y) == [tokens / 4, tokens / 2] and list(bars.text) == ["", "×2.00"]
    assert list(bars.error_y.array) == [tokens / 2 - tokens / 4, tokens / 1 - tokens / 2]
    assert list(bars.error_y.arrayminus) == [tokens / 4 - tokens / 5, tokens / 2 - tokens / 2.5]


def test_nothing_to_draw_says_so() -> None:
    for chart in (charts.scaling, charts.block_lengths, charts.orders):
        with pytest.raises(ConfigError, match="nothing to draw"):
            chart({})
    with pytest.raises(ConfigError, match="at least one run"):
        charts.ladder({})


# ------------------------------------------------------------------------------------------- predictions


def test_predicted_against_measured_of_two_traces() -> None:
    measured = bs.sample_trace()
    predicted = replay(measured, "blockserve-budget", token_budget=500)
    points = charts.predicted_against_measured(measured, predicted).data[-1]
    here = {c.id: c.evicted - c.arrival for c in measured.completion_records}
    there = {c.id: c.evicted - c.arrival for c in predicted.completion_records}
    assert {d[0]: (x, y) for d, x, y in zip(points.customdata, points.x, points.y, strict=True)} == {
        name: (here[name], there[name]) for name in here
    }
    title = charts.predicted_against_measured(measured, predicted).layout.title.text
    assert "(simulated: predicted)" in title


def test_predicted_against_measured_of_a_table() -> None:
    table = pd.DataFrame(
        {
            "group": ["a", "a", "b"],
            "quantity": ["time_s", "time_s", "R"],
            "published": [10.0, 20.0, 2.0],
            "predicted": [11.0, 18.0, 2.2],
            "fitted": [True, False, False],
            "dataset": ["X", "Y", "Z"],
        }
    )
    figure = charts.predicted_against_measured(table)
    points = {(t.name, t.xaxis): t for t in figure.data if t.mode == "markers"}
    assert list(points) == [("a", "x"), ("b", "x2")]
    first = points["a", "x"]
    assert list(first.x) == [10.0, 20.0] and list(first.y) == [11.0, 18.0]
    assert list(first.marker.symbol) == ["circle-open", "circle"]
    assert [d[1] for d in first.customdata] == pytest.approx([0.1, -0.1])
    assert figure.layout.xaxis2.title.text == "published: R (effective compute ratio)"
    assert "simulated" in figure.layout.title.text


def test_traces_that_cannot_be_compared() -> None:
    trace = bs.figure1(1)
    with pytest.raises(TraceError, match="give predicted="):
        charts.predicted_against_measured(trace)
    others = Trace(replace(r, id=f"x{r.id}") if hasattr(r, "valid_tokens") else r for r in trace.records)
    with pytest.raises(TraceError, match="no finished request in common"):
        charts.predicted_against_measured(trace, others)


def test_arrival_rates() -> None:
    runs = {rate: {"block-fifo": run("block-fifo", arriving(PROFILE, rate))} for rate in (0.5, 2.0)}
    figure = charts.arrival_rates(runs, limit=6.0)
    good, middle, worst = (trace for trace in figure.data if trace.name == "block-fifo")
    for place, (rate, own) in enumerate(runs.items()):
        trace = own["block-fifo"]
        waits = sorted(c.evicted - c.arrival for c in trace.completion_records)
        assert (good.x[place], worst.x[place]) == (rate, rate)
        assert good.y[place] == pytest.approx(sum(w <= 6.0 for w in waits) / trace.end.wall)
        assert middle.y[place] == pytest.approx(median(waits)) and middle.y[place] <= worst.y[place] <= waits[-1]
    assert "(simulated)" in figure.layout.title.text
