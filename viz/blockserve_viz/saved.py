"""Widgets as pages: one HTML file that plays from disk, without a kernel and without a network."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from blockserve import offline
from blockserve.tracing.trace import check_writable


def fragment(widget: Any) -> str:
    """HTML of one anywidget as it stands now; a page also needs `blockserve.offline.widget_host_script` once."""
    state = {name: value for name, value in widget.get_state().items() if name != "layout"}
    buffers = {name: bytes(value) for name, value in state.items() if isinstance(value, (bytes, memoryview))}
    return offline.widget_fragment({**state, "_esm": str(widget._esm), "_css": str(widget._css)}, buffers)


def write_page(widget: Any, path: str | Path, title: str, *, force: bool = False) -> Path:
    """Write ``widget`` as one offline page. Refuses an existing file unless ``force``."""
    path = check_writable(path, force=force)
    page = offline.page(title, fragment(widget), offline.widget_host_script())
    path.write_text(page, encoding="utf-8")
    return path
