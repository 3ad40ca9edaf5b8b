"""The explorer's own small widgets on a page from disk: names, keyboard, limits, copying."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from blockserve import offline
from blockserve_viz.pieces import CodeBox, NumberSlider
from browser import open_file

pytestmark = pytest.mark.browser


def page_of(widget: Any, path: Path) -> Path:
    """The widget as a report would write it."""
    state = {
        name: str(v) if name in ("_esm", "_css") else v for name, v in widget.get_state().items() if name != "layout"
    }
    path.write_text(offline.page("test", offline.widget_fragment(state, {}), offline.widget_host_script()))
    return path


def test_a_slider_is_moved_by_keys_and_by_typing_and_keeps_its_limits(browser: Any, tmp_path: Path) -> None:
    widget = NumberSlider(value=1000, min=301, max=5000, step=32, description="β (tokens)")
    with open_file(browser, page_of(widget, tmp_path / "slider.html")) as page:
        slider = page.get_by_label("β (tokens)", exact=True)
        field = page.get_by_label("β (tokens), as a number")
        assert (slider.input_value(), field.input_value()) == ("1000", "1000"), "a value off the slider's grid stays"
        slider.press("ArrowRight")
        assert (slider.input_value(), field.input_value()) == ("1032", "1032")
        slider.press("ArrowDown")
        assert field.input_value() == "1000"
        for typed, kept in (("2345", "2345"), ("9", "301"), ("99999", "5000")):
            field.fill(typed)
            field.press("Enter")
            assert (slider.input_value(), field.input_value()) == (kept, kept)


def test_a_slider_that_is_not_in_use_cannot_be_moved(browser: Any, tmp_path: Path) -> None:
    widget = NumberSlider(value=5, min=1, max=9, description="slots", disabled=True)
    with open_file(browser, page_of(widget, tmp_path / "slider.html")) as page:
        assert page.get_by_label("slots", exact=True).is_disabled()
        assert page.get_by_label("slots, as a number").is_disabled()


def test_code_is_copied_or_at_least_selected(browser: Any, tmp_path: Path) -> None:
    code = 'result = simulate(profile, order="fifo")\n# <b>not markup</b>'
    with open_file(browser, page_of(CodeBox(code=code), tmp_path / "code.html")) as page:
        assert page.get_by_test_id("code").inner_text() == code
        page.get_by_test_id("copy-code").click()
        page.locator("output", has_text="Cop").or_(page.locator("output", has_text="Selected")).wait_for()
        assert page.evaluate("getSelection().toString()") == code
