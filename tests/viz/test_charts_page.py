"""Every chart drawn by a real browser from a file, without an error and without the network."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import blockserve as bs
from blockserve.studies.replay import replay
from blockserve.studies.simulate import simulate
from blockserve_viz import charts
from browser import open_file
from test_charts_quality import ROWS
from test_charts_rungs import LADDERS
from test_charts_studies import PROFILE

pytestmark = pytest.mark.browser


def test_every_chart_is_drawn(browser: Any, tmp_path: Path) -> None:
    real = bs.sample_trace()
    both = {name: simulate(PROFILE, name, slots=4).trace for name in ("static", "blockserve-fixed")}
    figures = [
        *(chart(both) for chart in (charts.batch_over_time, charts.capacity, charts.waste_bars, charts.ladder)),
        *(chart(both) for chart in (charts.latency_by_length, charts.latency_violins)),
        *(chart(real) for chart in (charts.gantt, charts.steps_heatmap)),
        charts.commits_heatmap(real, real.request_records[0].id),
        *(chart({4: both, 8: both}) for chart in (charts.scaling, charts.block_lengths, charts.orders)),
        charts.rungs(LADDERS),
        charts.accuracy(ROWS, "a model"),
        charts.arrival_rates({0.5: both, 1.0: both}, limit=9.0),
        charts.predicted_against_measured(real, replay(real, "blockserve-budget")),
    ]
    assert len(figures) == len(charts.__all__)
    parts = [f.to_html(full_html=False, include_plotlyjs=not place) for place, f in enumerate(figures)]
    page = tmp_path / "charts.html"
    page.write_text("<meta charset='utf-8'><body>" + "".join(parts))
    with open_file(browser, page) as shown:
        shown.wait_for_function(f"document.querySelectorAll('.js-plotly-plot .gtitle').length === {len(figures)}")
        titles = shown.locator(".gtitle").all_text_contents()
    for figure, title in zip(figures, titles, strict=True):
        assert figure.layout.title.text.split("</b>")[0].removeprefix("<b>") in title
