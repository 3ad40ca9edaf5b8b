"""The still picture, and what a place without widgets shows of a player."""

from __future__ import annotations

from xml.etree import ElementTree

import pytest

from blockserve.tracing.trace import Trace
from blockserve_viz import BatchPlayer, frame_svg
from blockserve_viz.colours import LIGHT
from blockserve_viz.frames import encode
from hand_traces import Spec, figure1, run_record, simulate


def parts(svg: str) -> tuple[list[str], list[str]]:
    """Fills of the rectangles and the texts of a picture; fails unless it is well-formed."""
    root = ElementTree.fromstring(svg)
    space = "{http://www.w3.org/2000/svg}"
    fills = [r.get("fill", "") for r in root.iter(f"{space}rect")]
    return fills, ["".join(t.itertext()) for t in root.iter(f"{space}text")]


def test_figure_1() -> None:
    fills, texts = parts(frame_svg(figure1(1), 1))
    counts = {kind: fills.count(LIGHT[kind]) for kind in ("finished", "active", "ended", "next", "padding")}
    assert counts == {"finished": 3, "active": 2, "ended": 1, "next": 2, "padding": 2}
    assert {"3 × 32 = 96 tokens, β = 108", "✓ Evict", "✓ B1", "B2"} <= set(texts)
    fills, texts = parts(frame_svg(figure1(2)))  # by itself it picks the cycle in which padding is reclaimed
    assert LIGHT["reclaimed"] in fills and "×" in texts and "3 × 44 = 132 tokens, β = 134" in texts


@pytest.mark.parametrize("suffix", [1, "full"])
def test_a_suffix_and_rows_that_wait(suffix: int | str) -> None:
    trace = simulate([Spec("a", 9, 4, 1), Spec("b", 5, 4, 4)], suffix=suffix, quantum="request")
    fills, _ = parts(frame_svg(trace, 2))
    assert "url(#bs-hatch)" in fills and LIGHT["next"] in fills


def test_odd_traces() -> None:
    assert "no cycles" in frame_svg(Trace([run_record(4)]))
    _, texts = parts(frame_svg(simulate([Spec("<b>&\"'", 5, 1, 1)])))
    assert any("<b>" in t for t in texts)
    assert len(frame_svg(simulate([Spec(f"r{i}", 20 + i, 5, 1 + i % 5) for i in range(300)]), 2)) < 200_000


def test_a_cycle_that_is_not_there() -> None:
    with pytest.raises(IndexError, match="cycle 9 is outside 0 to 4"):
        frame_svg(figure1(1), 9)


def test_a_player_carries_a_still_for_places_without_widgets() -> None:
    player = BatchPlayer(figure1(1), cycle=2)
    bundle = player._repr_mimebundle_()
    data = bundle[0] if isinstance(bundle, tuple) else bundle
    assert data["application/vnd.jupyter.widget-view+json"]["model_id"] == player.model_id
    assert data["text/html"] == frame_svg(figure1(1), 2) and "text/plain" in data


def test_the_players_traits() -> None:
    player = BatchPlayer(figure1(1), cycle=99)
    assert player.cycle == 4
    player.cycle = -3
    assert (player.cycle, player.playing, player.speed, player.selected) == (0, False, 1.0, "")
    assert player.data == encode(figure1(1)).data
    state = player.get_state()
    assert {"data", "spec", "meta", "colours", "cycle", "playing", "speed", "selected", "_esm", "_css"} <= set(state)
    assert BatchPlayer(Trace([])).cycle == 0
