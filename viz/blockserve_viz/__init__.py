"""See what BlockServe did: `BatchPlayer` (the batch, moving), `compare` (two runs on one clock), `frame_svg` (a still),
`charts` (plotly figures) and `Explorer` (what if the policy were another).

Importing this package loads nothing else; each name is loaded on first use.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from blockserve_viz import charts
    from blockserve_viz.comparison import compare
    from blockserve_viz.explorer import Explorer
    from blockserve_viz.player import BatchPlayer
    from blockserve_viz.still import frame_svg

__all__ = ["BatchPlayer", "Explorer", "charts", "compare", "frame_svg"]

_HOMES = {"BatchPlayer": "player", "Explorer": "explorer", "compare": "comparison", "frame_svg": "still"}


def __getattr__(name: str) -> Any:
    if name == "charts":
        return import_module("blockserve_viz.charts")
    if name in _HOMES:
        return getattr(import_module(f"blockserve_viz.{_HOMES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
