"""The charts: right numbers, units on every axis, one colour a name."""

from __future__ import annotations

import subprocess
import sys

import pytest

from blockserve.tracing.metrics import waste
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


@pytest.mark.parametrize("chart", [charts.batch_over_time, charts.waste_bars, charts.latency_by_length])
def test_every_chart_has_a_title_and_units(chart: object, both: dict[str, HandTrace]) -> None:
    for figure in (chart(both), chart(figure1(1)), chart(Trace.from_records([run_record(4)]))):
        assert figure.layout.title.text
        axes = [a for f in (figure.select_xaxes, figure.select_yaxes) for a in f() if a.title.text]
        assert any("(" in axis.title.text for axis in axes)
        assert all(trace.hovertemplate for trace in figure.data)


def test_a_long_run_is_thinned(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(charts, "MOST_POINTS", 50)
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
