"""The quiz: asked at a boundary, answered by hand, checked against the trace."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from blockserve_viz import BatchPlayer
from hand_traces import Spec, figure1, simulate
from pages import LAYOUT, MODEL, at_cycle

pytestmark = pytest.mark.browser
Show = Callable[..., Any]


def verdict(page: Any, part: str) -> str:
    return page.get_by_test_id(f"verdict-{part}").inner_text()


def test_right_answers_count_and_the_next_question_follows(show: Show) -> None:
    """Example 2 of Figure 1: the widest row leaves, the box shrinks, two enter."""
    page = show(BatchPlayer(figure1(2), quiz=True))
    assert not page.evaluate(f"{LAYOUT}.rects.some((r) => r.kind === 'reclaimed')"), "the boundary is still hidden"
    for name in ("1", "4", "5", "narrower"):
        page.get_by_label(name, exact=True).check()
    page.get_by_test_id("check").click()
    assert [verdict(page, part) for part in ("leaves", "enters", "box")] == [
        "✓ Right: 1.", "✓ Right: 4, 5.", "✓ Right: narrower.",
    ]  # fmt: skip
    page.get_by_text("3 × 44 → 4 × 28: the widest row, 1, left; now 2 sets the width.").wait_for()
    assert page.evaluate(f"{LAYOUT}.rects.some((r) => r.kind === 'reclaimed')"), "and then it is shown"
    assert page.evaluate(f"{MODEL}.get('score')") == {"asked": 1, "right": 1}
    page.get_by_test_id("next").click()
    at_cycle(page, 2)
    page.get_by_text("Who leaves after cycle 2?").wait_for()


def test_wrong_answers_are_explained_and_nothing_may_be_the_answer(show: Show) -> None:
    page = show(BatchPlayer(figure1(1)))
    page.get_by_test_id("quiz-toggle").click()
    at_cycle(page, 1)  # the first boundary at which anything happens
    page.get_by_label("1", exact=True).check()
    page.get_by_label("as wide").check()
    page.get_by_test_id("check").click()
    assert [verdict(page, part)[0] for part in ("leaves", "enters", "box")] == ["✗", "✗", "✗"]
    assert verdict(page, "leaves") == "✗ Not quite: 3." and verdict(page, "enters") == "✗ Not quite: 4."
    assert page.evaluate(f"{MODEL}.get('score')") == {"asked": 1, "right": 0}
    page.get_by_test_id("quiz-toggle").click()
    page.get_by_test_id("quiz").wait_for(state="hidden")


def test_the_whole_quiz_works_from_the_keyboard(show: Show) -> None:
    page = show(BatchPlayer(figure1(2)))
    page.get_by_test_id("quiz-toggle").press("Enter")
    page.get_by_label("1", exact=True).focus()
    page.keyboard.press(" ")
    page.get_by_label("narrower").focus()
    page.keyboard.press("ArrowRight")  # moves the choice, not the cycle
    page.keyboard.press("Enter")
    assert verdict(page, "leaves") == "✓ Right: 1." and verdict(page, "box") == "✗ Not quite: narrower."
    assert page.evaluate("document.activeElement.dataset.testid") == "next"


def test_a_trace_without_events_has_nothing_to_ask(show: Show) -> None:
    page = show(BatchPlayer(simulate([Spec("a", 4, 1, 1)]), quiz=True))
    page.get_by_text("Nothing enters or leaves in this trace").wait_for()
