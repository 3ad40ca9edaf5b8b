"""The strip of the whole run, which is also the scrubber; speed keys; and how fast all of it is on a long run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from blockserve_viz import BatchPlayer
from blockserve_viz.colours import PALETTES
from hand_traces import Spec, figure1, long_encoded, simulate
from pages import LAYOUT, MODEL, READY, at_cycle

pytestmark = pytest.mark.browser
Show = Callable[..., Any]

# The colours that a column of the strip holds at a share of its width, from its upper edge down.
COLUMN = """
(share) => { const strip = document.querySelector("[data-testid=strip]"), at = strip.getContext("2d");
  const x = Math.round(46 + share * (strip.width - 56)), seen = [];
  for (let y = 0; y < strip.height; y++) { const [r, g, b] = at.getImageData(x, y, 1, 1).data;
    const colour = "#" + [r, g, b].map((v) => v.toString(16).padStart(2, "0")).join("");
    if (seen.at(-1) !== colour) seen.push(colour); }
  return seen; }
"""


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_the_strip_shows_cost_padding_and_who_came_and_went(show: Show, theme: str) -> None:
    """Example 2 in four cycles: three enter in the first and one leaves; two enter in the second."""
    page, colours = show(BatchPlayer(figure1(2)), color_scheme=theme), PALETTES[theme]
    first, second = (set(page.evaluate(COLUMN, share)) for share in (0.125, 0.375))
    assert {colours["bar"], colours["bar_padding"], colours["prompt"]} <= first  # cost, padding, rows
    assert {colours["finished"], colours["ended"]} <= first  # in, out
    assert colours["finished"] in second and colours["ended"] not in second
    preempting = simulate([Spec("a", 9, 4, 4), Spec("b", 8, 4, 4)], preempt_at=(2,))
    page = show(BatchPlayer(preempting), color_scheme=theme)
    columns = [set(page.evaluate(COLUMN, (c + 0.5) / len(preempting))) for c in range(len(preempting))]
    assert [c for c, seen in enumerate(columns) if colours["reclaimed_line"] in seen] == [2]


def test_dragging_the_strip_scrubs(show: Show) -> None:
    page = show(BatchPlayer(simulate([Spec("a", 9, 20, 20)])))
    box = page.get_by_test_id("scrub").bounding_box()
    page.mouse.move(box["x"] + 2, box["y"] + 20)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + 20)
    page.wait_for_function(f"Math.abs({READY_CYCLE} - 10) <= 1")
    assert page.evaluate(f"{MODEL}.get('cycle')") == 0, "while dragging only the browser is busy"
    page.mouse.move(box["x"] + box["width"] - 1, box["y"] + 20)
    page.mouse.up()
    at_cycle(page, 19)
    assert page.evaluate(f"{MODEL}.get('cycle')") == 19
    page.get_by_test_id("tip").get_by_text("cycle 19 · 1 × 89 = 89 · 0% padding · 1 left").wait_for()


READY_CYCLE = f"Number(document.querySelector('{READY}').dataset.cycle)"


def test_plus_and_minus_change_the_speed(show: Show) -> None:
    page = show(BatchPlayer(figure1(1)))
    page.keyboard.press("Tab")
    speeds = []
    for key in ("+", "+", "-", "-", "-", "-", "-", "-"):
        page.keyboard.press(key)
        speeds.append(page.evaluate(f"{MODEL}.get('speed')"))
    assert speeds == [2, 5, 2, 1, 0.5, 0.25, 0.25, 0.25]
    assert page.get_by_test_id("speed").input_value() == "0.25"


# Milliseconds between frames, sorted.
FRAMES = """
async (frames) => { const times = []; let last = null;
  await new Promise((done) => { const tick = (now) => { if (last !== null) times.push(now - last); last = now;
    times.length < frames ? requestAnimationFrame(tick) : done(); }; requestAnimationFrame(tick); });
  return times.sort((a, b) => a - b); }
"""


def frame_times(page: Any) -> list[float]:
    """Milliseconds between 100 frames, sorted; of up to three stretches the smoothest: the machine is shared."""
    best: list[float] = []
    for _ in range(3):
        times = page.evaluate(FRAMES, 100)
        best = min(best or times, times, key=lambda t: t[95])
        if best[95] <= 20:
            break
    return best


@pytest.mark.parametrize("stay", [25, 3])
def test_a_hundred_thousand_cycles_of_64_rows_play_smoothly(show: Show, stay: int) -> None:
    encoded = long_encoded(stay)
    player = BatchPlayer(speed=5)
    player.data, player.spec, player.meta = encoded.data, encoded.spec, encoded.meta
    ready = []
    for _ in range(2):  # the better of two: the machine is shared
        page = show(player)
        ready.append(page.evaluate(f"document.querySelector('{READY}').readyAfter") / 1000)
    page.get_by_test_id("play").click()
    times = frame_times(page)
    print(
        f"stays of {stay}: {len(encoded.data) / 1e6:.1f} MB, ready in {min(ready):.2f} s, "
        f"frames {times[50]:.1f} ms, p95 {times[95]:.1f} ms"
    )
    assert min(ready) <= 2 and times[95] <= 20


def test_ten_thousand_cells_play_smoothly(show: Show) -> None:
    crowd = simulate([Spec(f"r{i}", 10 + i % 9, 2, 2) for i in range(160)], length=64)
    page = show(BatchPlayer(crowd, speed=0.1))
    page.get_by_test_id("play").click()
    page.wait_for_function(f"{LAYOUT}.rects.filter((r) => r.cell).length >= 10240")
    times = frame_times(page)
    print(f"10,240 cells: frames {times[50]:.1f} ms, p95 {times[95]:.1f} ms")
    assert times[95] <= 20
