"""Small widgets of the explorer that no library has: code to copy, and a slider whose parts have names."""

from __future__ import annotations

from pathlib import Path

import anywidget
import traitlets

_STATIC = Path(__file__).parent / "static"


class CodeBox(anywidget.AnyWidget):
    """Lines of ``code`` and a button that copies them."""

    _esm = _STATIC / "code_box.js"
    _css = _STATIC / "code_box.css"
    code = traitlets.Unicode().tag(sync=True)


class NumberSlider(anywidget.AnyWidget):
    """A whole number between ``min`` and ``max``, as a slider and as a field; arrow keys move it by ``step``.

    (The slider of ipywidgets has no accessible name.)
    """

    _esm = _STATIC / "slider.js"
    _css = _STATIC / "slider.css"
    value = traitlets.Int(0).tag(sync=True)
    min = traitlets.Int(0).tag(sync=True)
    max = traitlets.Int(100).tag(sync=True)
    step = traitlets.Int(1).tag(sync=True)
    description = traitlets.Unicode().tag(sync=True)
    disabled = traitlets.Bool(False).tag(sync=True)
