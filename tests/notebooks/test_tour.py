"""The tour, as `make demo` writes it: the two schedules side by side, the same tokens, a page that fits in a mail."""

from __future__ import annotations

import pytest

from browser import open_file

LARGEST_PAGE = 6e6  # bytes


@pytest.mark.browser
def test_the_tour_shows_both_schedules_on_one_clock_and_the_same_tokens(quick_report, browser):
    report = quick_report("00_tour")
    assert report.html.stat().st_size < LARGEST_PAGE
    found = report.results["headline"]
    assert found["same_tokens"] == report.results["parameters"]["n"]
    work = {name: run["row_tokens"] for name, run in found["runs"].items()}
    assert work["blockserve-budget"] < work["static"]
    with open_file(browser, report.html) as page:
        sides = page.locator('[data-testid="comparison"][data-ready="true"]')
        assert sides.get_by_test_id("side-a").inner_text().startswith("static")
        assert sides.get_by_test_id("side-b").inner_text().startswith("blockserve-budget")
        sides.get_by_test_id("last").click()
        done = sides.locator('[data-metric="left"] b').all_inner_texts()
        assert done == [str(found["same_tokens"])] * 2, "at the end of the clock both have served everybody"
