"""What objects look like in a shell and in a notebook: short, escaped, no script."""

from __future__ import annotations

import re

import pytest

from blockserve import Request, SchedulingPolicy, TokenBudget, Trace, Workload
from blockserve.reprs import sparkline
from test_trace import by_hand


@pytest.mark.parametrize(
    "value",
    [
        by_hand(),
        Trace(),
        SchedulingPolicy(bound=TokenBudget(4096)),
        Request("<b>", prompt="1 < 2 & <script>alert(1)</script>", max_new_tokens=16),
        Workload.tasks("arithmetic", n=3),
    ],
)
def test_html_is_one_table_without_script_and_escaped(value):
    html = value._repr_html_()
    assert html.startswith("<table>") and html.endswith("</table>")
    assert "<script" not in html
    assert "<b>" not in html
    assert len(html) < 8_000


def test_text_forms_say_what_one_wants_to_know():
    assert repr(by_hand()) == ("Trace(run static on none, requests 3, left 2, cycles 2, seconds 3, status interrupted)")
    assert "no end record" in repr(Trace())
    assert repr(Workload.tasks("arithmetic", n=3)) == "Workload('arithmetic', 3 requests)"


def test_a_sparkline_spans_its_box_and_stays_small():
    points = re.search('points="([^"]+)"', sparkline([1, 3, 2], "rows")).group(1).split()
    assert [float(p.split(",")[0]) for p in points] == [0.0, 90.0, 180.0]
    heights = [float(p.split(",")[1]) for p in points]
    assert heights[1] < heights[2] < heights[0], "higher values are drawn higher"
    assert "rows: 1 to 3" in sparkline([1, 3, 2], "rows")
    assert len(sparkline(list(range(100_000)), "x")) < 8_000
    assert sparkline([], "x") == "–"
