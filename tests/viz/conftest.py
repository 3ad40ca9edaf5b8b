"""Fixtures of the picture tests: traces, a player on a page from disk, node."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import browser as chromium
from blockserve import offline
from pages import READY, fragment

if TYPE_CHECKING:
    from playwright.sync_api import Page


@pytest.fixture(scope="session")
def node() -> str:
    """Where node is. Without it a test is skipped, but fails in CI."""
    found = shutil.which("node")
    if found is None:
        message = "node is not installed"
        pytest.fail(message) if os.environ.get("CI") else pytest.skip(message)
    return found


@pytest.fixture
def show(browser: Any, tmp_path: Path) -> Iterator[Callable[..., Page]]:
    """``show(player, ...)`` opens a page from ``file://`` with these players and no network, and waits until drawn.

    Keyword arguments go to the browser's context (viewport, color_scheme, ...); ``body`` replaces the page's body.
    Every page is checked for errors and for requests to other hosts at the end of the test.
    """
    with ExitStack() as stack:
        count = iter(range(100))

        def open_page(*players: Any, body: str = "", **options: Any) -> Page:
            path = tmp_path / f"page{next(count)}.html"
            fragments = body + "".join(fragment(p) for p in players)
            path.write_text(offline.page("test", fragments, offline.widget_host_script()), encoding="utf-8")
            usual = {"viewport": {"width": 1100, "height": 700}, "device_scale_factor": 1, "offline": True}
            context = browser.new_context(**usual | options)
            stack.callback(context.close)
            page = context.new_page()
            watch = chromium.watch(page)
            stack.callback(watch.check)
            page.goto(path.as_uri())
            page.wait_for_selector(READY)
            return page

        yield open_page
