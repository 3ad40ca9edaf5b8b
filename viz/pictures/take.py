"""Takes the pictures of the README: the player in Chromium, light theme. Needs the dev extra and Chromium."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

from playwright.sync_api import sync_playwright

import blockserve as bs
from blockserve.studies.figure1 import EXAMPLES
from blockserve_viz import BatchPlayer, frame_svg
from blockserve_viz.decode import Frames
from blockserve_viz.frames import encode

HERE = Path(__file__).parent
WIDTH = 1100  # pixels
READY = '[data-testid="batch-player"][data-ready="true"]'


def take(player: BatchPlayer, to: Path) -> None:
    """The player alone, as wide as the page, on white."""
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        page_file = player.to_html(Path(folder) / "player.html")
        chromium = shutil.which("chromium") or shutil.which("chromium-browser")
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox", "--disable-gpu"])
        page = browser.new_page(viewport={"width": WIDTH, "height": 900}, color_scheme="light", reduced_motion="reduce")
        page.goto(page_file.as_uri())
        page.add_style_tag(content="body { margin: 0 !important; padding: 0 !important; max-width: none !important; }")
        page.locator(READY).wait_for()
        page.locator(READY).screenshot(path=to)
        browser.close()
    print(f"{to} ({to.stat().st_size / 1000:.0f} kB)")


def telling(trace: bs.Trace) -> int:
    """The cycle at whose end most happens: padding is reclaimed, some leave, some go on, some enter."""
    frames = Frames(encode(trace))

    def score(cycle: int) -> int:
        rows, queue = frames[cycle].rows, frames[cycle].queue
        leave, grow = any(r.leaves for r in rows), any(r.grows and r.block for r in rows)
        enter = any(r.entered for r in rows) and any(w.enters for w in queue)
        return sum(r.reclaimed for r in rows) * (leave and grow and enter)

    return max(range(len(frames)), key=score)


if __name__ == "__main__":
    problems = bs.Workload.tasks("arithmetic", n=48, seed=0)
    run = bs.Engine("tiny-llada", token_budget=800).run(problems).trace
    take(BatchPlayer(run, cycle=telling(run)), HERE / "player.png")
    for example, chosen in EXAMPLES.items():
        figure = bs.figure1(example)
        take(BatchPlayer(figure, cycle=chosen.key_cycle), HERE / f"figure1-{example}.png")
        (HERE / f"figure1-{example}.svg").write_text(frame_svg(figure, chosen.key_cycle) + "\n")
