"""What the tests of pages with players share: selectors, the model behind a page, waiting for a cycle."""

from __future__ import annotations

from typing import Any

from blockserve_viz.saved import fragment

READY = '[data-testid="batch-player"][data-ready="true"]'
MODEL = "document.querySelector('.blockserve-widget').model"
LAYOUT = "document.querySelector('[data-testid=batch-player]').__layout"

__all__ = ["LAYOUT", "MODEL", "READY", "area_of", "at_cycle", "fragment"]


def at_cycle(page: Any, cycle: int, nth: int = 0) -> None:
    """Wait until the nth player shows ``cycle``."""
    page.locator(f'{READY}[data-cycle="{cycle}"]').nth(nth).wait_for()


def area_of(page: Any, request: str) -> dict[str, float]:
    """Where a request is drawn: x, y, w, h."""
    return page.evaluate(f"(id) => {LAYOUT}.areas.find((a) => a.id === id)", request)
