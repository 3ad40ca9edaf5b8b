"""Every notebook that ships runs, and its page works from disk with the network off: charts drawn, players mounted."""

from __future__ import annotations

import pytest

from blockserve.report import available
from browser import open_file

DRAWN = """() => {
  const charts = [...document.querySelectorAll('.plotly-graph-div')];
  const widgets = [...document.querySelectorAll('.blockserve-widget')];
  return charts.every((c) => c.querySelector('svg.main-svg')) && widgets.every((w) => w.querySelector('canvas, svg'));
}"""


@pytest.mark.browser
@pytest.mark.parametrize("name", available())
def test_a_shipped_notebook_runs_and_its_page_draws_everything(name, quick_report, browser, record_count):
    report = quick_report(name)
    with open_file(browser, report.html) as page:
        page.wait_for_function(DRAWN)
        assert "This view cannot be shown" not in page.inner_text("body")
        record_count("seconds of running notebooks and making their pages", round(report.seconds))
        record_count("charts drawn in reports", page.locator(".plotly-graph-div").count())
        record_count("players mounted in reports", page.locator(".blockserve-widget").count())
