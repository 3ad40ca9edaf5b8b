"""A run in progress: what is sent, that it stays small, and that a view which missed something recovers."""

from __future__ import annotations

import base64
import threading
from collections.abc import Callable
from typing import Any

import pytest

import blockserve as bs
from blockserve.core import BlockServeError
from blockserve.tracing.records import CycleRecord, EndRecord
from blockserve.tracing.trace import Trace
from blockserve_viz import BatchPlayer
from blockserve_viz.frames import encode
from hand_traces import figure1, written
from pages import LAYOUT, MODEL, READY, at_cycle

Show = Callable[..., Any]
BUDGET = 600


@pytest.fixture(scope="module")
def engine() -> bs.Engine:
    return bs.Engine("tiny-llada", token_budget=BUDGET, trace_level="token")


def workload(n: int = 12) -> bs.Workload:
    return bs.Workload.tasks("arithmetic", n=n, seed=0)


def ended(player: BatchPlayer) -> threading.Event:
    """Set once the player shows the run whole."""
    done = threading.Event()
    player.observe(lambda change: change["new"] == "" and done.set(), "live")
    return done


def sent(player: BatchPlayer) -> tuple[list[dict[str, Any]], list[int]]:
    """All deltas, and how often the whole was sent, from here on."""
    deltas: list[dict[str, Any]] = []
    wholes: list[int] = []
    player.observe(lambda change: change["new"] and deltas.append(change["new"]), "delta")
    player.observe(lambda change: wholes.append(len(change["new"])), "data")
    return deltas, wholes


def test_following_a_run_sends_deltas_and_at_the_end_the_whole_once(engine: bs.Engine) -> None:
    player = BatchPlayer()
    deltas, wholes = sent(player)
    done = ended(player)
    handle = engine.start(workload())
    assert player.follow(handle) is player and player.live == "follow" and player.playing
    begun = len(wholes)  # the requests, and the cycles that were there already
    run = handle.wait(60)
    assert done.wait(60)
    assert [d["seq"] for d in deltas] == list(range(1, len(deltas) + 1))
    told = sum(len(d["cycles"]) for d in deltas)
    assert 0 < told <= len(run.trace) and len(wholes) <= begun + 1
    whole = encode(run.trace)
    assert player.data == whole.data and player.meta["status"] == "complete" and not player.playing
    assert player.detail_meta["whole"] and player.detail_meta["to"] == len(run.trace) - 1
    assert player.trace is run.trace and player.delta == {}


def test_stop_ends_the_run_and_keeps_the_trace(engine: bs.Engine) -> None:
    player = BatchPlayer()
    done, first = ended(player), threading.Event()
    handle = engine.start(workload(60))
    handle.on_cycle(lambda _: first.set())
    player.follow(handle)
    with pytest.raises(BlockServeError, match="already"):
        player.follow(handle)
    assert first.wait(60)
    player._hear(player, {"type": "stop"}, [])  # as the button does
    assert done.wait(60) and not handle.running
    assert player.meta["status"] == "interrupted" and 0 < player.meta["cycles"] == len(player.trace) < 60


def test_appending_cycles_of_a_loop(engine: bs.Engine) -> None:
    engine.submit(workload())
    player = BatchPlayer(engine.trace)
    done = ended(player)
    for cycle in engine.cycles():
        player.append(cycle)
    assert done.wait(60)
    assert player.meta["cycles"] == len(engine.trace) and player.trace is engine.trace


def test_appending_to_a_player_of_its_own_leaves_the_trace_that_was_given_alone() -> None:
    whole = figure1(1)
    given = Trace(whole.records[:6])
    cycles = len(given)
    player = BatchPlayer(given)
    done = ended(player)
    for record in whole.records[6:]:
        player.append(record)
        if isinstance(record, CycleRecord):
            assert player.live == "append"
    assert done.wait(10) and isinstance(whole.records[-1], EndRecord)
    assert player.data == encode(whole).data and len(given) == cycles
    with pytest.raises(BlockServeError, match="has ended"):
        player.append(whole.cycle_records[0])


def deltas_of(trace: Trace, start: int) -> tuple[BatchPlayer, list[dict[str, Any]]]:
    """A player that began after ``start`` records, and what it was told since, one record at a time."""
    from blockserve_viz.feed import Deltas
    from blockserve_viz.stays import collect_requests, collect_stays, shape_of

    past = Trace(trace.records[:start])
    player = BatchPlayer(past)
    growing = Trace(past.records)
    news = Deltas(growing, collect_stays(past, shape_of(trace), collect_requests(past)), past)
    told = []
    for record in trace.records[start:]:
        growing.append(record)
        told.append(news.next())
    return player, [delta for delta in told if delta]


@pytest.mark.browser
def test_the_text_of_a_run_in_progress(show: Show) -> None:
    player, deltas = deltas_of(written(cycles=2), 2)
    player.live, player.selected = "follow", "1"
    page = show(player)
    page.evaluate(f"() => {MODEL}.set('playing', true)")
    for delta in deltas:
        page.evaluate(f"(delta) => {MODEL}.set('delta', delta)", delta)
    at_cycle(page, 1)
    page.wait_for_function("!document.querySelector('[data-testid=text] .bs-mask')")
    text = page.get_by_test_id("text").inner_text()
    assert text.startswith("What? <b>") and text.count("c⏎") == 2


@pytest.mark.browser
def test_a_view_grows_with_the_run_and_asks_for_what_it_missed(show: Show) -> None:
    trace = figure1(1)
    player, deltas = deltas_of(trace, 5)
    player.live = "follow"
    page = show(player)
    page.get_by_test_id("live").wait_for()
    page.evaluate(f"() => {{ window.asked = []; {MODEL}.send = (message) => window.asked.push(message); }}")
    assert page.evaluate("document.querySelector('[data-testid=canvas]').getAttribute('aria-label')") == (
        "Waiting for the first cycle …"
    )
    tell = f"(delta) => {MODEL}.set('delta', delta)"
    page.evaluate(f"() => {MODEL}.set('playing', true)")
    page.evaluate(tell, deltas[0])
    page.wait_for_function(f"{LAYOUT}.rects.some((r) => r.kind === 'prompt')")
    page.evaluate(tell, deltas[1])
    at_cycle(page, 1)  # it follows the newest cycle by itself
    page.evaluate(tell, deltas[3])
    assert page.evaluate("window.asked") == [{"type": "whole"}], "it missed one"
    page.evaluate(tell, deltas[1])  # what it has already changes nothing
    page.evaluate(tell, deltas[2])
    at_cycle(page, 2)
    page.get_by_test_id("stop").click()
    assert page.evaluate("window.asked.at(-1)") == {"type": "stop"} and page.get_by_test_id("stop").is_disabled()
    whole = encode(trace)
    page.evaluate(
        """([text, spec, meta]) => { const m = document.querySelector(".blockserve-widget").model;
          const set = { data: blockserveHost.decode(text), spec, meta, delta: {}, live: "", playing: false };
          for (const [name, value] of Object.entries(set)) m.set(name, value); }""",
        [base64.b64encode(whole.data).decode(), whole.spec, whole.meta],
    )
    at_cycle(page, 4)  # the end of the run it followed
    page.get_by_test_id("live").wait_for(state="hidden")
    page.locator(f'{READY}[data-playing="false"]').wait_for()
