"""One ES module out of several source files: a widget is sent as one text, while its source stays readable."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

STATIC = Path(__file__).parent / "static"
DRAWING = ("trace", "frame", "detail", "layout", "paint", "panel", "stage")
PLAYER = (*DRAWING, "timeline", "quiz", "store", "view", "player")
COMPARISON = (*DRAWING, "compare")
_IMPORT = re.compile(r"^import .*?;\n", re.M | re.S)


@cache
def module(*names: str) -> str:
    """The files ``static/<name>.js`` in this order, without their imports: all names live in one module."""
    parts = (STATIC / f"{name}.js" for name in names)
    return "\n".join(_IMPORT.sub("", part.read_text(encoding="utf-8")) for part in parts)


@cache
def style(*names: str) -> str:
    """The files ``static/<name>.css``, one after the other."""
    return "\n".join((STATIC / f"{name}.css").read_text(encoding="utf-8") for name in names)
