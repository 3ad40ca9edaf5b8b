"""The explorer in a real JupyterLab: a control there runs the scheduler here, and the picture follows."""

from __future__ import annotations

from pathlib import Path
from statistics import median
from typing import Any

import pytest

from pages import READY
from test_player_lab import Lab, lab, notebook, page, run_cells  # noqa: F401  (fixtures)

pytestmark = [pytest.mark.browser, pytest.mark.lab]

SHOW = """
from blockserve.simulation.benchmarks import benchmark_profile
from blockserve.simulation.profile import StepDistribution
from blockserve_viz import Explorer
profile = benchmark_profile("gsm8k", 200, steps=StepDistribution(12, 3))
explorer = Explorer(profile, token_budget=16_384)
explorer
"""
TELL = """print(f"python has {explorer.setting.policy.order}, {len(explorer.trace)} cycles")"""
MOVE = """explorer.controls["bound"].value = "slots" """
SAME = """
found = {"profile": profile}
exec(explorer.code, found)
print("the code does the same:", found["result"] == explorer.trace)
"""
# Milliseconds from a change of the order until the player shows it, and until all is drawn, seen from the page.
MEASURE = """async (order) => {
  const status = () => document.querySelector('[data-testid="explorer-status"]');
  const before = status().dataset.runs;
  const selects = [...document.querySelectorAll(".bs-explorer select")];
  const select = selects.find((s) => [...s.options].some((o) => o.value === "fifo"));
  const start = performance.now();
  let player = 0;
  const watch = new MutationObserver(() => (player ||= performance.now() - start));
  const root = document.querySelector('[data-testid="batch-player"]');
  watch.observe(root, { subtree: true, childList: true, attributes: true });
  select.value = order;
  select.dispatchEvent(new Event("change", { bubbles: true }));
  await new Promise((done) => {
    const look = () => (status().dataset.runs !== before ? done() : requestAnimationFrame(look));
    look();
  });
  watch.disconnect();
  return [player, performance.now() - start];
}"""


def drawn(page: Any, runs: int) -> Any:  # noqa: F811
    """Wait until that many pictures have been drawn."""
    return page.locator(f'[data-testid="explorer-status"][data-runs="{runs}"]').wait_for(timeout=60_000)


def test_a_control_goes_to_python_and_the_picture_comes_back(
    lab: Lab,  # noqa: F811
    page: Any,  # noqa: F811
    tmp_path: Path,
    record_count: Any,
) -> None:
    page.set_viewport_size({"width": 1400, "height": 1900})
    lab.open(page, notebook(lab, "explorer.ipynb", SHOW, TELL, MOVE, SAME))
    run_cells(page, 0, 0)
    drawn(page, 1)
    page.locator(READY).wait_for()
    page.locator(".bs-explorer .js-plotly-plot").first.wait_for()

    explorer = page.locator(".bs-explorer")
    for name in ("bound", "β (tokens)", "slots (rows)", "order", "fill", "quantum", "arrivals/s"):
        assert explorer.get_by_label(name, exact=True).count() == 1, f"{name} has a name to be found by"
    took = [page.evaluate(MEASURE, order) for order in ("fifo", "shortest_first", "fifo", "longest_first", "fifo")]
    for what, times in zip(("the player", "everything"), zip(*took, strict=True), strict=True):
        record_count(f"ms: median from a click in JupyterLab to {what} redrawn, 200 requests", round(median(times)))
    drawn(page, 6)
    run_cells(page, 1, 1)
    page.get_by_text("python has fifo").wait_for()
    explorer.screenshot(path=tmp_path / "explorer.png")
    assert 'order="fifo"' in page.get_by_test_id("code").inner_text()
    page.get_by_test_id("copy-code").click()
    page.get_by_text("Copied", exact=True).wait_for()

    page.get_by_role("tab", name="Requests").click()
    page.locator(".bs-explorer .js-plotly-plot", has_text="Requests by block").wait_for()
    slider = explorer.get_by_label("β (tokens)", exact=True)
    slider.press("ArrowRight")
    drawn(page, 7)
    assert "token_budget=16416" in page.get_by_test_id("code").inner_text()  # a block more
    field = explorer.get_by_label("β (tokens), as a number")
    field.click(click_count=3)
    field.press_sequentially("9\n")
    drawn(page, 8)
    assert slider.input_value() == slider.get_attribute("min"), "what no request fits in is not sent"
    run_cells(page, 2, 2)  # and the controls follow Python
    drawn(page, 9)
    assert slider.is_disabled()
    page.locator(f'{READY}[data-cycle="0"]').wait_for()
    run_cells(page, 3, 3)
    page.get_by_text("the code does the same: True").wait_for()
    explorer.screenshot(path=tmp_path / "explorer_requests.png")
