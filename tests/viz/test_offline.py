"""Pages without a kernel: what is embedded is safe, and any anywidget runs on the stand-in for its model."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

import browser as chromium
from blockserve import offline

COUNTER = """
export default {
  initialize({ model }) { model.set("made", true); },
  render({ model, el }) {
    const bytes = model.get("data");
    const button = Object.assign(document.createElement("button"), { textContent: "count" });
    const text = () => [model.get("n"), model.get("made"), bytes.getUint8(1), "</script>"].join(" ");
    const show = () => { button.textContent = text(); };
    button.onclick = () => { model.set("n", model.get("n") + 1); model.save_changes(); model.send({}); };
    model.on("change:n", show);
    el.append(button);
    show();
  },
};
"""


def state(**values: Any) -> dict[str, Any]:
    return {"_esm": COUNTER, "_css": "button { color: rgb(1, 2, 3) }", "n": 1, **values}


def test_embedded_json_cannot_end_its_script() -> None:
    html = offline.widget_fragment(state(text="</script><!-- <script>"), {"data": b"\0\1"})
    frame = r'<div class="blockserve-widget"><script type="application/json">(.*)</script></div>'
    inside = re.fullmatch(frame, html, re.S)
    assert inside and "<" not in inside[1]
    payload = json.loads(inside[1])
    assert payload["state"]["text"] == "</script><!-- <script>" and payload["buffers"] == {"data": "AAE="}


def test_a_page_escapes_its_title() -> None:
    html = offline.page("a < b & c", "<p>body</p>", head="<meta name=x>")
    assert "<title>a &lt; b &amp; c</title>" in html and "<p>body</p>" in html and "<meta name=x>" in html


@pytest.mark.browser
def test_any_widget_runs_from_a_file(browser: Any, tmp_path: Path) -> None:
    widgets = [offline.widget_fragment(state(n=n), {"data": bytes([7, 9])}) for n in (1, 5)]
    file = tmp_path / "page.html"
    file.write_text(offline.page("widgets", "".join(widgets), offline.widget_host_script()), encoding="utf-8")
    with chromium.open_file(browser, file) as page:
        buttons = page.locator("button")
        page.get_by_text("5 true 9 </script>").wait_for()
        buttons.nth(0).click()
        page.get_by_text("2 true 9").wait_for()
        assert "5 true" in buttons.nth(1).inner_text()
        assert page.evaluate("getComputedStyle(document.querySelector('button')).color") == "rgb(1, 2, 3)"
        assert page.locator("style").count() == 2  # the page's own, and the widgets' once


@pytest.mark.browser
def test_a_widget_that_fails_says_so(browser: Any, tmp_path: Path) -> None:
    file = tmp_path / "page.html"
    broken = offline.widget_fragment({"_esm": "export default { render() { throw new Error('no luck'); } };"}, {})
    file.write_text(offline.page("broken", broken, offline.widget_host_script()), encoding="utf-8")
    with chromium.open_file(browser, file, allowed=("no luck",)) as page:
        page.get_by_text("This view cannot be shown: Error: no luck").wait_for()
