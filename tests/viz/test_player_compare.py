"""Two runs on one clock: where each stands, what it has done so far, and where the schedules part."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import browser as chromium
from blockserve.core import BlockServeError
from blockserve.studies.diff import diff
from blockserve.studies.simulate import simulate
from blockserve.tracing.metrics import effective_compute_ratio, summarize, waste
from blockserve.tracing.trace import Trace
from blockserve_viz import compare
from hand_traces import figure1
from pages import MODEL
from simulated import profile

READY = '[data-testid="comparison"][data-ready="true"]'
Open = Callable[..., Any]


@pytest.fixture(scope="module")
def traces() -> tuple[Trace, Trace]:
    """Static batching and block scheduling on the same requests."""
    static = simulate(profile(), "static", slots=4).trace
    return static, simulate(profile(), "blockserve-budget", token_budget=400).trace


@contextmanager
def opened(browser: Any, folder: Path, widget: Any) -> Iterator[Any]:
    path = widget.to_html(folder / "compare.html", force=True)
    with chromium.open_file(browser, path) as page:
        page.locator(READY).wait_for()
        yield page


def shown(page: Any, metric: str) -> list[str]:
    return page.locator(f'[data-metric="{metric}"] b').all_inner_texts()


def test_compare_says_where_the_schedules_part(traces: tuple[Trace, Trace]) -> None:
    widget = compare(*traces)
    parting = diff(*traces)
    assert widget.parting == {"cycle": parting.cycle, "what": parting.what, "why": parting.why}
    assert [p["name"] for p in widget.parts] == ["static", "blockserve-budget"]
    assert "same schedule" in compare(traces[0], traces[0]).note
    assert [p["name"] for p in compare(traces[0], traces[0]).parts] == ["static (a)", "static (b)"]
    assert "different requests" in compare(figure1(1), figure1(2)).note
    with pytest.raises(BlockServeError, match="clock"):
        compare(*traces, clock="sundial")


@pytest.mark.browser
def test_at_the_end_the_totals_are_those_of_the_metrics(
    browser: Any, tmp_path: Path, traces: tuple[Trace, Trace]
) -> None:
    with opened(browser, tmp_path, compare(*traces, names=("one", "two"), baseline_slots=4)) as page:
        page.get_by_test_id("last").click()
        summaries = [summarize(t) for t in traces]
        assert shown(page, "left") == [str(s["finished"]) for s in summaries]
        assert shown(page, "valid") == [str(s["valid_tokens"]) for s in summaries]
        parts = [waste(t) for t in traces]
        assert shown(page, "waste") == [f"{100 * (1 - p['valid'] / sum(p.values())):.1f}%" for p in parts]
        assert shown(page, "ratio") == [f"{effective_compute_ratio(t, 4):.2f}" for t in traces]
        heads = page.locator(".bs-side-head output").all_inner_texts()
        assert [f"after {len(t)} cycles" in head for t, head in zip(traces, heads, strict=True)] == [True, True]


@pytest.mark.browser
def test_both_stand_where_the_clock_does(browser: Any, tmp_path: Path, traces: tuple[Trace, Trace]) -> None:
    with opened(browser, tmp_path, compare(*traces, clock="cycles")) as page:
        for number in range(3):
            page.get_by_test_id("forward").click()
            assert page.locator(READY).get_attribute("data-cycles") == f"{number} {number}"
        page.get_by_test_id("clock").select_option("wall")
        when = traces[0].cycle_records[9].start + traces[0].cycle_records[9].duration / 2
        page.evaluate(f"() => {{ {MODEL}.set('place', {when}); }}")
        at = [next(c.index for c in reversed(t.cycle_records) if c.start < when) for t in traces]
        assert page.locator(READY).get_attribute("data-cycles") == f"{at[0]} {at[1]}"
        page.locator(READY).focus()
        page.keyboard.press("ArrowRight")  # to the next boundary of either
        ends = [c.start + c.duration for t in traces for c in t.cycle_records]
        assert page.evaluate(f"{MODEL}.get('place')") == pytest.approx(min(e for e in ends if e > when))


@pytest.mark.browser
def test_the_jump_to_the_parting_and_playing_to_the_end(
    browser: Any, tmp_path: Path, traces: tuple[Trace, Trace]
) -> None:
    with opened(browser, tmp_path, compare(*traces, seconds=0.5)) as page:
        page.get_by_test_id("part").click()
        parting = diff(*traces)
        assert page.locator(READY).get_attribute("data-cycles") == f"{parting.cycle} {parting.cycle}"
        assert f"They part in cycle {parting.cycle}: {parting.what} differ." in page.get_by_test_id("note").inner_text()
        page.keyboard.press("Home")
        page.get_by_test_id("play").click()
        page.locator('[data-testid="comparison"][data-playing="false"]').wait_for()
        assert page.evaluate(f"{MODEL}.get('place')") == max(len(t) for t in traces)


@pytest.mark.browser
def test_every_control_of_the_comparison_has_a_name_and_a_visible_focus(
    browser: Any, tmp_path: Path, traces: tuple[Trace, Trace]
) -> None:
    with opened(browser, tmp_path, compare(*traces)) as page:
        names = []
        for _ in range(10):
            page.keyboard.press("Tab")
            names.append(
                page.evaluate("document.activeElement.getAttribute('aria-label') ?? document.activeElement.innerText")
            )
            assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid", names[-1]
        assert names == [
            "Two runs side by side", "Place on the clock", "First cycle", "Step back", "Play", "Step forward",
            "Last cycle", "Where they part", "Clock", "Seconds to play to the end",
        ]  # fmt: skip
