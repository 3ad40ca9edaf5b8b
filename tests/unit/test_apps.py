"""``blockserve app``: what it serves, what it says without Voila, and, where Voila is, that both pages work."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from blockserve.cli import apps
from blockserve.core import BlockServeError, ConfigError, UnknownNameError
from blockserve.report import available, parameters
from interrupts import hear_interrupts

PLAYER = '[data-testid="batch-player"][data-ready="true"]'
voila = pytest.mark.skipif(find_spec("voila") is None, reason="Voila is not installed (the extra 'apps')")


def test_without_voila_one_line_says_what_to_install(monkeypatch):
    monkeypatch.setattr(apps, "find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=r"needs Voila, .* pip install 'blockserve\[apps\]'"):
        apps.serve("lesson")


def test_mistakes_are_told_before_anything_is_served(tmp_path):
    with pytest.raises(UnknownNameError, match="Did you mean 'explorer'"):
        apps.serve("explore")
    with pytest.raises(ConfigError, match="--trace with the explorer"):
        apps.serve("lesson", trace=tmp_path / "t.jsonl")
    with pytest.raises(BlockServeError, match="no trace file"):
        apps.explorer(tmp_path / "nowhere.jsonl")
    with pytest.raises(UnknownNameError, match="prompts"):
        apps.lesson({"prompt": "[3]"})


def test_the_lesson_is_the_notebook_with_fields_to_answer_in():
    served = apps.lesson({"prompts": "[4, 5]", "blocks": "[1, 2]"})
    sources = [cell.source for cell in served.cells]
    answers = [source for source in sources if "AnswerBox(" in source]
    assert [source.splitlines()[-1] for source in answers] == [f'AnswerBox("03", {n})' for n in (1, 2, 3)]
    assert not any("check_exercise" in source for source in sources)
    assert any(source.endswith("prompts = [4, 5]\nblocks = [1, 2]\n") for source in sources)
    assert "slots" in parameters(available()[apps.LESSON]), "the notebook itself is as it was"


@contextmanager
def visit(browser: Any, size: tuple[int, int], *arguments: str) -> Iterator[Any]:
    """A page on a running app, which must have asked nobody else for anything."""
    context = browser.new_context(viewport=dict(zip(("width", "height"), size, strict=True)))
    page, asked = context.new_page(), []
    page.on("request", lambda request: asked.append(request))
    with serving(*arguments) as address:
        page.goto(address, timeout=120_000)
        yield page
    others = [r for r in asked if urlsplit(r.url).hostname not in (None, "localhost")]
    assert {r.failure for r in others} <= {"csp"}, "the page's policy kept the browser from asking them"
    context.close()


@contextmanager
def serving(*arguments: str) -> Iterator[str]:
    """The address of a running app, which must be ready when this yields and end by an interrupt."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "blockserve.cli", "app", *arguments, f"--port={port}", "--no-browser"]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    process = subprocess.Popen(command, start_new_session=True, preexec_fn=hear_interrupts, **pipes)
    try:
        seen = []
        for line in process.stdout:
            seen.append(line)
            if "running at" in line:
                break
        else:
            pytest.fail("Voila ended:\n" + "".join(seen))
        yield f"http://localhost:{port}/"
    finally:
        os.killpg(process.pid, signal.SIGINT)  # as Ctrl-C does: to the command and to Voila
        process.communicate(timeout=60)


@voila
@pytest.mark.browser
@pytest.mark.lab
def test_the_lesson_is_played_and_answered(browser):
    with visit(browser, (1100, 1600), "lesson") as page:
        page.locator(PLAYER).first.wait_for(timeout=120_000)
        page.locator(PLAYER).first.get_by_test_id("forward").click()
        page.locator(f'{PLAYER}[data-cycle="1"]').first.wait_for()
        box = page.locator(".bs-answer").first
        box.get_by_label("Answer 1").fill("112")
        box.get_by_role("button", name="Check").click()
        box.get_by_text("request 4 has to leave again").wait_for()
        box.get_by_label("Answer 1").fill("128")
        box.get_by_role("button", name="Check").click()
        box.get_by_text("✓ Right.").wait_for()
        assert "check_exercise" not in page.inner_text("body")


@voila
@pytest.mark.browser
@pytest.mark.lab
def test_the_explorer_simulates_again_when_a_control_is_moved(browser):
    status = '[data-testid="explorer-status"][data-runs="{}"]'
    with visit(browser, (1300, 1800), "explorer") as page:
        page.locator(status.format(1)).wait_for(timeout=120_000)
        page.locator(PLAYER).wait_for()
        page.locator(".bs-explorer").get_by_label("order", exact=True).select_option("fifo")
        page.locator(status.format(2)).wait_for()
        assert 'order="fifo"' in page.get_by_test_id("code").inner_text()
        page.locator(".bs-explorer .js-plotly-plot").first.wait_for()


def test_an_answer_is_checked_and_never_run():
    from blockserve_viz.answers import AnswerBox

    box = AnswerBox("03", 1)
    for text, words in (("128", "✓ Right."), ("112", "✗ Not yet."), ("__import__('os')", "Not understood")):
        box.field.value = text
        box.button.click()
        assert words in box.verdict.value
    with pytest.raises(UnknownNameError):
        AnswerBox("03", 4)


def test_it_serves_this_machine_only(tmp_path):
    assert "--Voila.ip=localhost" in apps.command(Path("x.ipynb"), 8866, launch=False)
