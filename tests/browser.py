"""Chromium for tests: opens a page from disk with the network off, and notes everything that should not happen."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

# The last five keep the browser itself from calling home, which would count as a request of the page.
ARGUMENTS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
LOCAL_SCHEMES = {"file", "data", "blob", "about"}
LOOPBACK = {"127.0.0.1", "localhost", "::1"}


@dataclass
class Watch:
    """What a page did wrong so far. ``allowed`` are texts of errors that are expected (matched as substrings)."""

    errors: list[str] = field(default_factory=list)
    external: list[str] = field(default_factory=list)
    allowed: tuple[str, ...] = ()

    def check(self) -> None:
        """Fail with the list of page errors, console errors and requests to other hosts, if there are any."""
        errors = [e for e in self.errors if not any(text in e for text in self.allowed)]
        assert not errors and not self.external, "\n".join([*errors, *self.external])


def watch(page: Page, allowed: tuple[str, ...] = ()) -> Watch:
    """Start to collect on ``page``; call before it goes anywhere."""
    seen = Watch(allowed=allowed)
    page.on("pageerror", lambda error: seen.errors.append(f"page error: {error}"))
    page.on("console", lambda m: m.type == "error" and seen.errors.append(f"console error: {m.text}"))
    page.on("request", lambda request: _is_external(request.url) and seen.external.append(f"request: {request.url}"))
    return seen


def _is_external(url: str) -> bool:
    parts = urlsplit(url)
    return parts.scheme not in LOCAL_SCHEMES and parts.hostname not in LOOPBACK


def chromium_path() -> str:
    """Where Chromium is. Without one a test is skipped, but fails in CI: a check that nothing runs does not count."""
    found = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if found:
        return found
    if os.environ.get("CI"):
        pytest.fail("Chromium is not installed, and in CI the browser tests must run")
    pytest.skip("Chromium is not installed")


@contextmanager
def launch() -> Iterator[Browser]:
    """A headless Chromium; closed at the end."""
    path = chromium_path()
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=list(ARGUMENTS))
        try:
            yield browser
        finally:
            browser.close()


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """One Chromium for the whole session: playwright's synchronous interface cannot be started twice."""
    with launch() as running:
        yield running


@contextmanager
def open_file(browser: Browser, path: Path, allowed: tuple[str, ...] = ()) -> Iterator[Page]:
    """The page at ``path`` from ``file://`` with the network off; checked for errors and requests when left."""
    context = browser.new_context(offline=True, viewport={"width": 1200, "height": 900}, device_scale_factor=1)
    try:
        page = context.new_page()
        seen = watch(page, allowed)
        page.goto(path.resolve().as_uri())
        yield page
        seen.check()
    finally:
        context.close()
