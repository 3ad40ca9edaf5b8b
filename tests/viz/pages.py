"""Names and helpers for pages that show players."""

from __future__ import annotations

from typing import Any

from blockserve import offline

READY = '[data-testid="batch-player"][data-ready="true"]'


def fragment(player: Any) -> str:
    """The player as a report writes it: its saved state, with the bytes apart."""
    state = {name: value for name, value in player.get_state().items() if name not in ("data", "layout")}
    state |= {name: str(state[name]) for name in ("_esm", "_css")}
    return offline.widget_fragment(state, {"data": player.data})
