"""Charts of the batch: numbers counted another way, units on every axis, one colour a name."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from dataclasses import replace

import pytest

import blockserve as bs
from blockserve.tracing.metrics import waste
from blockserve.tracing.records import CompletionRecord, EndRecord, RequestRecord
from blockserve.tracing.trace import Trace
from blockserve_viz import charts
from blockserve_viz.colours import SERIES, WASTE
from hand_traces import HandTrace, Spec, figure1, run_record, simulate


@pytest.fixture(scope="module")
def both() -> dict[str, HandTrace]:
    specs = [Spec(f"r{i}", 10 + i, 4, 1 + i % 4) for i in range(8)]
    return {"static": simulate(specs, quantum="request", budget=120), "ours": simulate(specs, budget=120)}


def test_batch_over_time(both: dict[str, HandTrace]) -> None:
    figure = charts.batch_over_time(both)
    generating, batch, width = figure.data[:3]
    cycles = both["static"].cycle_records
    assert list(batch.y) == [c.batch for c in cycles] + [0] and list(width.y) == [c.box_width for c in cycles] + [0]
    assert list(generating.y) == [sum(not r.frozen for r in c.rows) for c in cycles] + [0]
    assert list(batch.x) == [c.start for c in cycles] + [cycles[-1].start + cycles[-1].duration]
    assert [t.line.color for t in figure.data] == [SERIES[0]] * 3 + [SERIES[1]] * 3
    assert [t.name for t in figure.data if t.showlegend is None] == ["static", "ours"]


def test_waste_bars_sum_to_the_row_tokens(both: dict[str, HandTrace]) -> None:
    figure = charts.waste_bars(both)
    for place, name in enumerate(both):
        expected = sum(waste(both[name]).values())
        assert sum(bar.x[place] for bar in figure.data) == expected
        assert sum(bar.customdata[place] for bar in figure.data) == pytest.approx(100)
    assert {bar.marker.color for bar in figure.data} <= set(WASTE.values())


def test_latency_by_length(both: dict[str, HandTrace]) -> None:
    figure = charts.latency_by_length(both["ours"])
    done = both["ours"].completion_records
    assert [d[0] for d in figure.data[0].customdata] == [c.id for c in done]
    assert list(figure.data[0].y) == [c.evicted - c.arrival for c in done] and figure.data[0].name == "by-hand"


def test_violins_hold_every_finished_request_once(both: dict[str, HandTrace]) -> None:
    figure = charts.latency_violins(both, tokens_per_bin=8)
    assert [v.name for v in figure.data] == list(both)
    for violin, trace in zip(figure.data, both.values(), strict=True):
        done = {c.id: c for c in trace.completion_records}
        assert sorted(d[0] for d in violin.customdata) == sorted(done)
        for (name, _), label, seconds in zip(violin.customdata, violin.x, violin.y, strict=True):
            low, high = map(int, label.split("–"))
            assert low <= done[name].valid_tokens <= high
            assert seconds == done[name].evicted - done[name].arrival
    assert list(figure.layout.xaxis.categoryarray) == ["0–8", "9–16"]  # outputs of 4, 8, 12 and 16 tokens


@pytest.mark.parametrize(("longest", "width"), [(80, 16), (96, 16), (97, 32), (256, 48), (1, 16)])
def test_violins_have_at_most_six_bins_of_whole_blocks(longest: int, width: int) -> None:
    trace = simulate([Spec("a", 3, 1, 1)], length=16)
    done = replace(trace.completion_records[0], valid_tokens=longest)
    assert charts.latency.default_bin({"a": Trace([trace.run, done])}) == width


def test_capacity(both: dict[str, HandTrace]) -> None:
    figure = charts.capacity(both)
    lines = [t for t in figure.data if t.type == "scatter"]
    for place, trace in enumerate(both.values()):
        box, used, budget = lines[3 * place : 3 * place + 3]
        cycles = trace.cycle_records
        assert list(box.y) == [len(c.rows) * max(r.width for r in c.rows) for c in cycles] + [0]
        assert list(used.y) == [sum(r.width for r in c.rows) for c in cycles] + [0]
        assert set(budget.y) == {120} and len(budget.x) == len(budget.y)
    bars = [t for t in figure.data if t.type == "bar"]
    for bar, trace in zip(bars, both.values(), strict=True):
        held = Counter(len(c.rows) for c in trace.cycle_records)  # every cycle takes a second
        assert dict(zip(bar.x, bar.y, strict=True)) == pytest.approx(
            {rows: 100 * count / len(trace.cycle_records) for rows, count in held.items()}
        )


def test_slots_have_no_budget_line() -> None:
    figure = charts.capacity(simulate([Spec("a", 3, 1, 1)]))
    assert [t.type for t in figure.data] == ["scatter", "scatter", "bar"]


def test_predicted_seconds_are_marked_in_the_title(both: dict[str, HandTrace]) -> None:
    predicted = bs.figure1(1)
    assert "(simulated)" in charts.batch_over_time(predicted).layout.title.text
    assert "(simulated: ours)" in charts.batch_over_time({"run": both["static"], "ours": predicted}).layout.title.text
    assert "simulated" not in charts.batch_over_time(both).layout.title.text


def only_rejected() -> Trace:
    """A run in which nobody could be served."""
    rejected = CompletionRecord("a", "rejected", 0, 0, 0, message="too large")
    return Trace([run_record(4), RequestRecord("a", 900, 4, 1), rejected, EndRecord("complete", 0, 0.0)])


ONE_TRACE = [charts.gantt, charts.steps_heatmap]
SEVERAL = [charts.batch_over_time, charts.capacity, charts.waste_bars, charts.latency_by_length, charts.latency_violins]


@pytest.mark.parametrize("chart", SEVERAL + ONE_TRACE)
def test_every_chart_has_a_title_and_units(chart: object, both: dict[str, HandTrace]) -> None:
    empty = Trace([run_record(4)])
    cut = Trace(bs.figure1(2).records[:8])  # two cycles, nobody has left
    odd = simulate([Spec("長い名前" * 30, 3, 1, 1), Spec("×" * 90, 4, 2, 1)])
    traces = [figure1(1), empty, bs.figure1(2), cut, only_rejected(), odd]
    for trace in ([both["static"]] if chart in ONE_TRACE else [both]) + traces:
        figure = chart(trace)
        assert figure.layout.title.text
        axes = [a for f in (figure.select_xaxes, figure.select_yaxes) for a in f() if a.title.text]
        assert any("(" in axis.title.text for axis in axes)
        assert all(trace.hovertemplate for trace in figure.data)


def test_a_long_run_is_thinned(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(charts.over_time, "MOST_POINTS", 50)
    long = simulate([Spec(f"r{i}", 5, 90, 90) for i in range(60)], budget=400)
    assert len(long.cycle_records) == 180
    points = charts.batch_over_time(long).data[0].x
    assert len(points) == 46 and points[-1] == long.end.wall


def test_importing_the_package_loads_nothing_heavy() -> None:
    heavy = ("plotly", "anywidget", "numpy", "pandas")
    code = f"import sys, blockserve_viz; print([m for m in {heavy} if m in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        getattr(__import__("blockserve_viz"), "nothing")  # noqa: B009
