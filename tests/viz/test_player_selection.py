"""Pointing at a request and selecting it: what is said of it, its text at level ``token``, and Python's side."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from blockserve.core import BlockServeError, TraceError
from blockserve.studies.simulate import simulate
from blockserve_viz import BatchPlayer
from blockserve_viz.colours import PALETTES
from blockserve_viz.detail import WINDOW, encode_detail
from blockserve_viz.packing import unpack
from hand_traces import figure1, written
from pages import LAYOUT, MODEL, area_of, at_cycle
from simulated import POLICIES, profile

Show = Callable[..., Any]
browser = pytest.mark.browser


def test_selected_rows_are_those_on_screen() -> None:
    trace = figure1(1)
    player = BatchPlayer(trace, cycle=2)
    assert player.selected_rows()["id"].tolist() == [r.id for r in trace.cycle_records[2].rows] == ["1", "2", "4"]
    player.selected = "4"
    rows = player.selected_rows()
    assert rows[["cycle", "id", "block"]].values.tolist() == [[2, "4", 0]] and list(rows) == list(trace.rows)
    player.cycle = 0  # "4" still waits
    assert player.selected_rows().empty
    with pytest.raises(BlockServeError, match="'5'"):
        player.selected = "5"


def test_a_page_of_its_own(tmp_path: Path) -> None:
    player = BatchPlayer(figure1(1), cycle=2, selected="4")
    path = player.to_html(tmp_path / "player.html", title="Two < three")
    text = path.read_text(encoding="utf-8")
    assert "<title>Two &lt; three</title>" in text and '"selected":"4"' in text and '"cycle":2' in text
    with pytest.raises(TraceError, match="exists"):
        player.to_html(path)
    assert player.to_html(path, force=True) == path


@browser
def test_pointing_and_clicking_say_what_explain_says(show: Show) -> None:
    trace = simulate(profile(), **POLICIES["budget"]).trace
    cycle = next(c.index for c in trace.cycle_records if c.index > 1 and c.admitted) - 1
    page = show(BatchPlayer(trace, cycle=cycle))
    waiting = trace.cycle_records[cycle + 1].admitted[0][0]
    for request in (trace.cycle_records[cycle].rows[0].id, waiting):
        area = area_of(page, request)
        page.get_by_test_id("canvas").hover(position={"x": area["x"] + 4, "y": area["y"] + area["h"] / 2})
        tip = page.get_by_test_id("tip")
        tip.get_by_text(trace.explain(cycle, request)).wait_for()
        page.get_by_test_id("canvas").click(position={"x": area["x"] + 4, "y": area["y"] + area["h"] / 2})
        assert page.get_by_test_id("why").inner_text() == trace.explain(cycle, request)
        assert page.evaluate(f"{MODEL}.get('selected')") == request
    page.get_by_test_id("forward").click()  # the words follow the cycle
    at_cycle(page, cycle + 1)
    assert page.get_by_test_id("why").inner_text() == trace.explain(cycle + 1, waiting)
    page.mouse.move(2, 2)
    page.get_by_test_id("tip").wait_for(state="hidden")
    page.get_by_test_id("clear").click()
    page.get_by_test_id("info").wait_for(state="hidden")


@browser
def test_rows_are_selected_from_the_keyboard(show: Show) -> None:
    page = show(BatchPlayer(figure1(1)))
    page.keyboard.press("Tab")
    chosen = []
    for key in ("ArrowDown", "ArrowDown", "ArrowUp", "ArrowUp", "Escape", "ArrowUp"):
        page.keyboard.press(key)
        chosen.append(page.evaluate(f"{MODEL}.get('selected')"))
    assert chosen == ["1", "2", "1", "1", "", "3"]


@browser
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_the_text_fills_in_step_by_step_by_confidence(show: Show, theme: str) -> None:
    """Request "1" writes a, b, c, d in two steps: positions 1 and 3 first, with confidences 0.95 and 0.6."""
    page = show(BatchPlayer(written(), selected="1", speed=0.25), color_scheme=theme)
    text = page.get_by_test_id("text")
    assert "What? " in text.inner_text() and "line\n" in text.inner_text()
    tokens = text.locator(".bs-token")
    assert tokens.all_inner_texts() == ["a", "b", "c⏎\n", "∎"]
    assert tokens.nth(1).get_attribute("title") == "step 0, confidence 0.95"
    colours = [page.evaluate("(e) => getComputedStyle(e).backgroundColor", t.element_handle()) for t in tokens.all()]
    assert colours == [rgb(PALETTES[theme][f"conf{level}"]) for level in (0, 3, 2, 1)]

    page.get_by_test_id("play").click()  # half way the cells of the first step are there, at their places
    page.wait_for_function(
        """() => { const seen = [...document.querySelectorAll("[data-testid=text] .bs-token")].map((t) => t.className);
          return ["mask", "conf3", "mask", "conf1"].every((kind, i) => seen[i].includes(kind)); }"""
    )
    page.get_by_test_id("play").click()
    cells = page.evaluate(
        f"{LAYOUT}.rects.filter((r) => r.cell && r.stay === 0 && (r.alpha ?? 1) === 1).map((r) => r.kind)"
    )
    assert cells == ["masked", "active", "masked", "active"]


def rgb(colour: str) -> str:
    return f"rgb({', '.join(str(int(colour[i : i + 2], 16)) for i in (1, 3, 5))})"


@browser
def test_step_detail_of_a_window_is_sent_on_demand(show: Show) -> None:
    """Where not all of it fits, a page says which cycles it lacks, and asks the kernel for them."""
    trace = written(cycles=6)
    player = BatchPlayer(trace, selected="1")
    window = player._detail(0, 0)
    assert window.meta["whole"], "a small trace is sent whole"
    assert len(window.data) < WINDOW
    player.detail_meta = {**window.meta, "whole": False, "to": 1}
    page = show(player)
    page.evaluate(f"() => {{ window.asked = []; {MODEL}.send = (message) => window.asked.push(message); }}")
    page.get_by_test_id("last").click()
    at_cycle(page, 5)
    page.get_by_test_id("back").click()
    at_cycle(page, 4)
    assert page.evaluate("window.asked") == [{"type": "detail", "cycle": 5}]


def test_a_window_of_step_detail_reaches_back_to_where_its_texts_begin(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("blockserve_viz.detail.WINDOW", 400)
    trace = written(cycles=40)
    window = encode_detail(trace.cycle_records, trace.request_records, {"1": 0}, 4, around=20, room=0)
    assert not window.meta["whole"] and window.meta["from"] <= 20 <= window.meta["to"] < 39
    assert unpack(window)["row_cycle"].tolist() == list(range(window.meta["to"] + 1))
    assert encode_detail(figure1(1).cycle_records, [], {}, 4).meta == {}
