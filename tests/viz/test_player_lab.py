"""The player in a real JupyterLab: drawn, playing, in step with Python, and calling nobody else."""

from __future__ import annotations

import json
import os
import secrets
import socket
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import nbformat
import pytest

import browser as chromium
from pages import READY

pytestmark = [pytest.mark.browser, pytest.mark.lab]
HERE = Path(__file__).parent

SHOW = """
import sys
sys.path.insert(0, {here!r})
from hand_traces import figure1
from blockserve_viz import BatchPlayer
player = BatchPlayer(figure1(1), speed=20)
player
"""
LISTEN = """
import ipywidgets
heard = ipywidgets.Label()
def hear(_):
    heard.value = f"heard cycle={player.cycle} selected={player.selected!r}"
player.observe(hear, ["cycle", "selected"])
heard
"""
MOVE = "player.cycle = 1"

IDLE = "() => window.jupyterapp?.shell.currentWidget?.sessionContext?.session?.kernel?.status === 'idle'"
OVERRIDES = {"@jupyterlab/apputils-extension:notification": {"checkForUpdates": False, "fetchNews": "false"}}


@dataclass(frozen=True)
class Lab:
    """A running server: where it is and the folder it serves."""

    url: str
    token: str
    root: Path

    def open(self, page: Any, notebook: str) -> None:
        """Open a notebook and wait until its kernel is idle."""
        page.goto(f"{self.url}/lab/tree/{notebook}?reset&token={self.token}")
        page.locator(".jp-NotebookPanel .jp-Cell").first.wait_for(timeout=60_000)
        page.wait_for_function(IDLE, timeout=60_000)


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """A JupyterLab of its own: settings, runtime files and port are temporary; ended by its process id."""
    home, root = tmp_path_factory.mktemp("jupyter"), tmp_path_factory.mktemp("root")
    environment = dict(os.environ)
    for name in ("JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR", "JUPYTER_RUNTIME_DIR", "IPYTHONDIR"):
        environment[name] = str(home / name.lower())
    for name in ("JUPYTERLAB_SETTINGS_DIR", "JUPYTERLAB_WORKSPACES_DIR"):
        environment[name] = str(home / name.lower())
    settings = home / "jupyter_config_dir" / "labconfig"
    settings.mkdir(parents=True)
    (settings / "default_setting_overrides.json").write_text(json.dumps(OVERRIDES))
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    token = secrets.token_hex(16)
    options = [
        "--no-browser", "--allow-root", "--ServerApp.ip=127.0.0.1", f"--ServerApp.port={port}",
        "--ServerApp.port_retries=0", f"--IdentityProvider.token={token}", f"--ServerApp.root_dir={root}",
        "--LabApp.expose_app_in_browser=True", "--LabApp.extension_manager=readonly",
    ]  # fmt: skip
    with (home / "lab.log").open("w") as log:
        command = [sys.executable, "-m", "jupyterlab", *options]
        server = subprocess.Popen(command, env=environment, stdout=log, stderr=subprocess.STDOUT)
        try:
            _wait_for_port(port, server, home / "lab.log")
            yield Lab(f"http://127.0.0.1:{port}", token, root)
        finally:
            server.terminate()
            server.wait(timeout=20)


def _wait_for_port(port: int, server: subprocess.Popen[bytes], log: Path) -> None:
    """Wait for the server's runtime to accept connections; fails with its log if it ends first."""
    import time

    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        if server.poll() is not None:
            pytest.fail(f"JupyterLab ended:\n{log.read_text()[-2000:]}")
        with socket.socket() as probe:
            probe.settimeout(0.5)
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.1)  # between two tries to connect: nothing announces a listening port
    pytest.fail(f"JupyterLab did not start:\n{log.read_text()[-2000:]}")


@pytest.fixture
def page(browser: Any) -> Iterator[Any]:
    """A page that fails the test on any error or any request beyond this machine."""
    context = browser.new_context(viewport={"width": 1400, "height": 1000})
    page = context.new_page()
    watch = chromium.watch(page)
    yield page
    context.close()
    watch.check()


def notebook(lab: Lab, name: str, *sources: str) -> str:
    """Write a notebook of code cells into the server's folder; returns its name."""
    made = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(s) for s in sources])
    made.metadata["kernelspec"] = {"name": "python3", "display_name": "Python 3", "language": "python"}
    nbformat.write(made, lab.root / name)
    return name


def run_cells(page: Any, first: int, last: int) -> None:
    """Run cells ``first`` to ``last`` of the open notebook, without waiting for them."""
    page.evaluate(
        """([first, last]) => { const notebook = jupyterapp.shell.currentWidget.content;
          notebook.activeCellIndex = first; notebook.deselectAll();
          for (let i = first; i <= last; i++) notebook.select(notebook.widgets[i]);
          void jupyterapp.commands.execute("notebook:run-cell"); }""",
        [first, last],
    )


def test_the_player_and_python_stay_in_step(lab: Lab, page: Any) -> None:
    name = notebook(lab, "player.ipynb", SHOW.format(here=str(HERE)), LISTEN, MOVE)
    lab.open(page, name)
    run_cells(page, 0, 1)
    player = page.locator(READY)
    player.wait_for(timeout=60_000)
    assert player.get_attribute("data-theme") == "light"

    page.get_by_test_id("play").click()  # Python hears of the cycle when playing ends
    page.get_by_text("heard cycle=4 selected=''").wait_for()
    assert player.get_attribute("data-playing") == "false"
    page.get_by_test_id("first").click()
    player.focus()
    for key in ("ArrowRight", "ArrowRight", "ArrowRight"):  # the notebook's own shortcuts stay out of it
        page.keyboard.press(key)
    page.locator(f'{READY}[data-cycle="3"]').wait_for()
    page.get_by_test_id("canvas").click(position={"x": 400, "y": 80})
    page.get_by_text("heard cycle=3 selected='4'").wait_for()

    run_cells(page, 2, 2)  # and the player follows Python
    page.locator(f'{READY}[data-cycle="1"]').wait_for()
    page.evaluate("void jupyterapp.commands.execute('apputils:change-theme', {theme: 'JupyterLab Dark'})")
    page.locator(f'{READY}[data-theme="dark"]').wait_for()


FOLLOW = """
import blockserve as bs
from blockserve_viz import BatchPlayer
engine = bs.Engine("tiny-llada", token_budget=600)
player = BatchPlayer(speed=5)
player
"""
START = """
handle = engine.start(bs.Workload.tasks("arithmetic", n=1000, seed=0))
player.follow(handle)
print("it returned while running:", handle.running)
"""
AFTER = """
print(f"status={player.trace.end.status} running={handle.running} whole={player.meta['cycles'] == len(player.trace)}")
"""


def test_a_run_is_followed_live_and_stopped_by_its_button(lab: Lab, page: Any) -> None:
    name = notebook(lab, "live.ipynb", FOLLOW, START, AFTER)
    lab.open(page, name)
    run_cells(page, 0, 0)
    page.locator(READY).wait_for(timeout=60_000)
    run_cells(page, 1, 1)
    page.get_by_text("it returned while running: True").wait_for(timeout=60_000)
    page.locator('[data-testid="batch-player"][data-live="follow"]').wait_for()
    for cycles in (3, 6):  # the picture moves on while the run does
        page.wait_for_function(
            "(n) => Number(document.querySelector('[data-testid=batch-player]').dataset.cycle) >= n", arg=cycles
        )
    page.get_by_test_id("stop").click()
    page.locator('[data-testid="batch-player"][data-live=""][data-playing="false"]').wait_for()
    run_cells(page, 2, 2)
    page.get_by_text("status=interrupted running=False whole=True").wait_for()
    last = page.evaluate("document.querySelector('[data-testid=scrub]').max")
    page.locator(f'{READY}[data-cycle="{last}"]').wait_for()


LOOP = """
from blockserve_viz import BatchPlayer
import blockserve as bs
engine = bs.Engine("tiny-llada", token_budget=600)
engine.submit(bs.Workload.tasks("arithmetic", n=24, seed=0))
player = BatchPlayer(engine.trace, speed=20)
player
"""
APPEND = """
for cycle in engine.cycles():
    player.append(cycle)
print("the loop is over")
"""


def test_cycles_of_a_loop_animate_while_the_cell_runs(lab: Lab, page: Any) -> None:
    name = notebook(lab, "loop.ipynb", LOOP, APPEND, "print(f'cycles={len(player.trace)}')")
    lab.open(page, name)
    run_cells(page, 0, 0)
    page.locator(READY).wait_for(timeout=60_000)
    run_cells(page, 1, 1)
    page.locator('[data-testid="batch-player"][data-live="append"]').wait_for()
    page.get_by_text("the loop is over", exact=True).wait_for(timeout=60_000)
    page.locator('[data-testid="batch-player"][data-live=""]').wait_for()
    run_cells(page, 2, 2)
    last = int(page.evaluate("document.querySelector('[data-testid=scrub]').max"))
    page.get_by_text(f"cycles={last + 1}").wait_for()


def test_two_views_in_two_cells_share_one_state(lab: Lab, page: Any) -> None:
    name = notebook(lab, "views.ipynb", SHOW.format(here=str(HERE)), "player")
    lab.open(page, name)
    run_cells(page, 0, 1)
    views = page.locator(READY)
    views.nth(1).wait_for(timeout=60_000)
    page.get_by_test_id("forward").nth(0).click()
    page.wait_for_function(
        "[...document.querySelectorAll('[data-testid=batch-player]')].every((r) => r.dataset.cycle === '1')"
    )
