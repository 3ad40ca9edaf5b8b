"""The player in Chromium, on a page from disk without network: what is drawn, and every way to move through it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from blockserve.tracing.records import CompletionRecord, EndRecord, RequestRecord
from blockserve.tracing.trace import Trace
from blockserve_viz import BatchPlayer
from blockserve_viz.colours import PALETTES
from hand_traces import Spec, figure1, run_record, simulate
from pages import READY, area_of, at_cycle

pytestmark = pytest.mark.browser
Show = Callable[..., Any]

# Pixels just inside the upper left corner of every rectangle of a kind: clear of labels, crosses and seams. Those
# under another one of the row (hatching, a cell that is just being committed) are left out.
PIXELS = """
([kind, depth]) => {
  const root = document.querySelector("[data-testid=batch-player]");
  const canvas = root.querySelector("canvas"), ctx = canvas.getContext("2d"), dpr = window.devicePixelRatio;
  const rects = root.__layout.rects;
  const over = (o, r) => o.stay === r.stay && o.x <= r.x && r.x < o.x + o.w;
  const covered = (r) => rects.slice(rects.indexOf(r) + 1).some((o) => over(o, r));
  const inside = (from, size) => Math.round((from + Math.min(depth, size / 3)) * dpr);
  return rects.filter((r) => r.kind === kind && r.w >= 3 && !covered(r)).map((r) => {
    const [red, green, blue] = ctx.getImageData(inside(r.x, r.w), inside(r.y, r.h), 1, 1).data;
    return "#" + [red, green, blue].map((v) => v.toString(16).padStart(2, "0")).join("");
  });
}
"""


def colours_of(page: Any, kind: str, depth: float = 3) -> list[str]:
    return page.evaluate(PIXELS, [kind, depth])


NAME = "document.activeElement.getAttribute('aria-label') ?? (document.activeElement.textContent || null)"
OUTLINE = """
() => { const on = document.activeElement, around = on.closest(".bs-strip"); // the strip shows its input's focus
  return getComputedStyle(around ?? on).outlineStyle; }
"""


def waiting_group() -> Trace:
    """Static batching: one row ends two cycles before its group."""
    return simulate([Spec("early", 12, 4, 1), Spec("late", 9, 4, 4)], quantum="request")


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize(("width", "dpr"), [(600, 1), (1100, 1), (800, 1.5)])
def test_every_kind_of_cell_has_its_colour_at_its_place(show: Show, theme: str, width: int, dpr: float) -> None:
    options = {"viewport": {"width": width + 32, "height": 600}, "device_scale_factor": dpr, "color_scheme": theme}
    colours = PALETTES[theme]
    seen = set()
    for trace, cycle in [(figure1(1), 1), (figure1(2), 0), (waiting_group(), 2)]:
        page = show(BatchPlayer(trace, cycle=cycle), **options)
        assert page.locator(READY).get_attribute("data-theme") == theme
        for kind in ("prompt", "finished", "active", "next", "padding", "reclaimed", "ended"):
            found = colours_of(page, kind)
            assert set(found) <= {colours[kind]}, (kind, found)
            seen.update([kind] if found else [])
    assert seen == {"prompt", "finished", "active", "next", "padding", "reclaimed", "ended"}


def test_a_row_that_ended_and_waits_is_hatched(show: Show) -> None:
    page = show(BatchPlayer(waiting_group(), cycle=2))
    stripes = page.evaluate(
        """() => { const root = document.querySelector("[data-testid=batch-player]");
          const r = root.__layout.rects.find((r) => r.kind === "frozen");
          const line = root.querySelector("canvas").getContext("2d").getImageData(r.x, r.y + r.h / 2, 40, 1).data;
          const colours = new Set(); for (let i = 0; i < line.length; i += 4) colours.add(line.slice(i, i + 3).join());
          return [...colours]; }"""
    )
    assert len(stripes) >= 3


@pytest.mark.parametrize("width", [600, 1100])
def test_no_text_runs_out_of_the_picture(show: Show, width: int) -> None:
    crowd = [Spec(f"a rather long name {i}", 30 + i, 4, 1 + i % 4) for i in range(40)]
    trace = simulate(crowd, budget=600, preempt_at=(2, 4, 6))
    page = show(BatchPlayer(trace), viewport={"width": width + 32, "height": 600})
    for cycle in range(min(8, len(trace.cycle_records))):
        at_cycle(page, cycle)
        outside = page.evaluate(
            """() => { const root = document.querySelector("[data-testid=batch-player]");
              const ctx = root.querySelector("canvas").getContext("2d"), { labels, width } = root.__layout;
              const reach = { left: [0, 1], right: [1, 0], center: [0.5, 0.5] };
              return labels.filter(({ text, x, align, size, bold }) => {
                ctx.font = `${bold ? "600 " : ""}${size}px system-ui, sans-serif`;
                const wide = ctx.measureText(text).width, [before, after] = reach[align];
                return x - before * wide < 0 || x + after * wide > width; }).map((l) => l.text); }"""
        )
        assert outside == []
        page.get_by_test_id("forward").click()


def test_before_the_boundary_the_active_block_is_partly_masked(show: Show) -> None:
    page = show(BatchPlayer(figure1(1), speed=0.25))
    page.keyboard.press("Tab")
    page.get_by_test_id("play").click()
    page.wait_for_function(
        """() => { const root = document.querySelector("[data-testid=batch-player]");
          const kinds = new Set(root.__layout.rects.map((r) => r.kind));
          return root.dataset.cycle === "1" && kinds.has("masked") && kinds.has("active"); }"""
    )
    page.get_by_test_id("play").click()
    assert page.locator(READY).get_attribute("data-playing") == "false"
    assert set(colours_of(page, "masked", 2)) == {PALETTES["light"]["masked"]}


def test_playing_runs_to_the_end_and_writes_back_once(show: Show) -> None:
    page = show(BatchPlayer(figure1(1), speed=20))
    page.evaluate(
        """() => { const model = document.querySelector(".blockserve-widget").model; window.writes = [];
          model.on("change:cycle", () => window.writes.push(model.get("cycle"))); }"""
    )
    page.get_by_test_id("play").click()
    page.locator('[data-testid="batch-player"][data-playing="false"]').wait_for()
    at_cycle(page, 4)
    assert page.evaluate("window.writes") == [4]
    assert page.get_by_test_id("play").get_attribute("aria-label") == "Play"
    page.get_by_test_id("play").click()  # again from the start
    page.locator('[data-testid="batch-player"][data-playing="true"]').wait_for()
    page.locator('[data-testid="batch-player"][data-playing="false"]').wait_for()


def test_buttons_scrubber_and_speed(show: Show) -> None:
    page = show(BatchPlayer(figure1(1)))
    for button, cycle in [("forward", 1), ("last", 4), ("back", 3), ("first", 0), ("back", 0)]:
        page.get_by_test_id(button).click()
        at_cycle(page, cycle)
    page.get_by_test_id("scrub").fill("2")
    at_cycle(page, 2)
    assert "cycle 2 of 4" in page.get_by_test_id("status").inner_text()
    page.get_by_test_id("speed").select_option("5")
    model = "document.querySelector('.blockserve-widget').model"
    assert page.evaluate(f"[{model}.get('cycle'), {model}.get('speed')]") == [2, 5]


def test_keyboard(show: Show) -> None:
    page = show(BatchPlayer(figure1(1), speed=0.25))
    page.locator(READY).focus()
    for key, cycle in [("ArrowRight", 1), ("ArrowRight", 2), ("ArrowLeft", 1), ("End", 4), ("Home", 0)]:
        page.keyboard.press(key)
        at_cycle(page, cycle)
    page.keyboard.press(" ")
    page.locator('[data-testid="batch-player"][data-playing="true"]').wait_for()
    page.keyboard.press(" ")
    page.locator('[data-testid="batch-player"][data-playing="false"]').wait_for()
    page.get_by_test_id("scrub").focus()
    page.keyboard.press("End")
    at_cycle(page, 4)


def test_every_control_has_a_name_and_a_visible_focus(show: Show) -> None:
    page = show(BatchPlayer(figure1(1), selected="1"), body="")
    names = []
    for _ in range(10):
        page.keyboard.press("Tab")
        names.append(page.evaluate(NAME))
        assert page.evaluate(OUTLINE) == "solid", names[-1]
    assert names == [
        "Batch player", "Cycle", "First cycle", "Step back", "Play", "Step forward", "Last cycle",
        "Speed in cycles a second", "Quiz", "Clear the selection",
    ]  # fmt: skip
    assert "3 rows of 28 tokens" in (page.get_by_test_id("canvas").get_attribute("aria-label") or "")


def test_click_selects_a_row(show: Show) -> None:
    page = show(BatchPlayer(figure1(1)))
    area = area_of(page, "2")
    selected = "document.querySelector('.blockserve-widget').model.get('selected')"
    page.get_by_test_id("canvas").click(position={"x": area["x"] + 30, "y": area["y"] + 5})
    assert page.evaluate(selected) == area["id"] == "2"
    page.locator(READY).focus()
    page.keyboard.press("Escape")
    assert page.evaluate(selected) == ""


def test_resize_lays_out_anew(show: Show) -> None:
    page = show(BatchPlayer(figure1(1), cycle=1))
    width = "document.querySelector('[data-testid=batch-player]').__layout.width"
    wide = page.evaluate(width)
    page.set_viewport_size({"width": 632, "height": 700})
    page.wait_for_function(f"{width} < {wide}")
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert set(colours_of(page, "ended")) == {PALETTES["light"]["ended"]}


def test_two_views_of_one_model_stay_together(show: Show) -> None:
    page = show(BatchPlayer(figure1(1)), body='<div id="second"></div>')
    page.evaluate(
        """async () => { const model = document.querySelector(".blockserve-widget").model;
          window.cleanup = await blockserveHost.mount(model, document.querySelector("#second")); }"""
    )
    roots = page.get_by_test_id("batch-player")
    assert roots.count() == 2
    page.get_by_test_id("forward").nth(0).click()
    at_cycle(page, 1, nth=1)
    page.get_by_test_id("play").nth(1).click()
    page.wait_for_function(
        "[...document.querySelectorAll('[data-testid=batch-player]')].every((r) => r.dataset.playing === 'true')"
    )
    page.get_by_test_id("play").nth(0).click()
    page.wait_for_function(
        """() => { const [a, b] = [...document.querySelectorAll("[data-testid=batch-player]")].map((r) => r.dataset);
          return a.playing === "false" && b.playing === "false" && a.cycle === b.cycle; }"""
    )
    page.evaluate("window.cleanup()")
    assert roots.count() == 1
    page.get_by_test_id("first").click()
    at_cycle(page, 0)


def test_the_theme_follows_the_host(show: Show) -> None:
    page = show(BatchPlayer(figure1(1), cycle=1))
    page.evaluate("document.body.dataset.jpThemeLight = 'false'")  # as JupyterLab says it
    page.locator(f'{READY}[data-theme="dark"]').wait_for()
    assert set(colours_of(page, "prompt")) == {PALETTES["dark"]["prompt"]}
    page.evaluate("document.body.dataset.jpThemeLight = 'true'")
    page.locator(f'{READY}[data-theme="light"]').wait_for()
    page.evaluate("delete document.body.dataset.jpThemeLight; document.body.style.background = '#101010'")
    page.locator(f'{READY}[data-theme="dark"]').wait_for()


def test_reduced_motion_shows_boundaries_only(show: Show) -> None:
    page = show(BatchPlayer(figure1(1), speed=5), reduced_motion="reduce")
    page.evaluate(
        """() => { const root = document.querySelector("[data-testid=batch-player]"); window.masked = 0;
          const look = () => { window.masked += root.__layout.rects.some((r) => r.kind === "masked");
            if (root.dataset.playing !== "false") requestAnimationFrame(look); };
          root.dataset.playing = "true"; look(); }"""
    )
    page.get_by_test_id("play").click()
    page.locator('[data-testid="batch-player"][data-playing="false"]').wait_for()
    assert page.evaluate("window.masked") == 0


def refused_only() -> Trace:
    """Two requests that could never fit."""
    asked = [RequestRecord(name, 500, 64, 8) for name in ("a", "b")]
    ends = [CompletionRecord(r.id, "rejected", 0, 0, 0, message="too long") for r in asked]
    return Trace([run_record(8), *asked, *ends, EndRecord("complete", 0, 0.0)])


@pytest.mark.parametrize(
    ("trace", "says"),
    [
        (Trace([run_record(4)]), "no cycles"),
        (simulate([Spec("only", 5, 1, 1)]), "1 rows of 9 tokens"),
        (Trace(figure1(1).records[:7]), "Cycle 0"),
        (refused_only(), "all 2 requests were rejected"),
        (simulate([Spec("長い名前" * 30, 5, 2, 2), Spec("</script><b>", 4, 2, 2)]), "</script><b>"),
    ],
    ids=["no cycles", "one row", "truncated", "only refused", "odd names"],
)
def test_unusual_traces_show_something_sensible(show: Show, trace: Trace, says: str) -> None:
    page = show(BatchPlayer(trace))
    assert says in (page.get_by_test_id("canvas").get_attribute("aria-label") or "")
    if trace.end is None:
        assert "truncated" in page.get_by_test_id("status").inner_text() or not trace.cycle_records
