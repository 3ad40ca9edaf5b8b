"""An executed notebook as one HTML file that needs no network: charts drawn, players playing, no kernel.

nbconvert alone shows neither: plotly writes only its own mimetype under ipykernel, and saved widgets are drawn by
scripts from a CDN. So each plotly output becomes a div drawn by plotly's packaged script, and each saved anywidget
becomes a fragment drawn by `blockserve.offline`'s host. Both scripts go into the head, once, when something needs
them.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from blockserve import offline

PLOTLY = "application/vnd.plotly.v1+json"
WIDGET_VIEW = "application/vnd.jupyter.widget-view+json"
WIDGET_STATE = "application/vnd.jupyter.widget-state+json"

# nbconvert's lab page without the four things that it loads from elsewhere.
_TEMPLATE = """{% extends 'lab/index.html.j2' %}
{% block html_head_js %}{% endblock %}
{% block jupyter_widgets %}{% endblock %}
{% block html_head_js_mathjax %}{% endblock %}
{% block html_head_js_mermaidjs %}{% endblock %}
{% block html_head_css %}<!--blockserve-head-->{% endblock %}
"""
_HEAD = "<!--blockserve-head-->"

_PROGRESS_BARS = ("FloatProgressModel", "IntProgressModel")


def to_html(notebook_path: str | Path) -> str:
    """The page for the executed notebook at ``notebook_path``; its title is the notebook's first heading."""
    import nbformat
    from nbconvert import HTMLExporter

    path = Path(notebook_path)
    notebook = nbformat.read(path, as_version=4)
    head = make_static(notebook)
    notebook.metadata["title"] = _title(notebook, path.stem)
    exporter = HTMLExporter(raw_template=_TEMPLATE, require_js_url="", mathjax_url="")
    page, _ = exporter.from_notebook_node(notebook)
    return page.replace(_HEAD, head, 1)  # after nbconvert has parsed its page: plotly's script is 5 MB


def make_static(notebook: Any) -> str:
    """Rewrite the plotly and widget outputs of ``notebook`` in place as HTML; returns what the head must hold.

    ``metadata.widgets`` is dropped: what is drawn carries its own state, and nbconvert would ask a CDN for the rest.
    """
    saved = notebook.metadata.pop("widgets", {}).get(WIDGET_STATE, {}).get("state", {})
    charts = widgets = 0
    for cell in notebook.cells:
        kept = []
        for output in cell.get("outputs", ()):
            data = output.get("data", {})
            if PLOTLY in data:
                charts += 1
                output["data"] = {"text/html": _plotly_fragment(data[PLOTLY], charts)}
            elif WIDGET_VIEW in data:
                model = data.pop(WIDGET_VIEW).get("model_id")
                if saved.get(model, {}).get("state", {}).get("_esm"):
                    output["data"] = {"text/html": _widget_fragment(saved[model])}
                    widgets += 1
                elif _is_progress_bar(saved, model):
                    continue  # its text is the state at the start: "0%", long after the work is done
                elif "text/html" not in data:
                    output["data"] = {"text/html": "<em>An interactive widget: run the notebook to use it.</em>"}
            kept.append(output)
        if "outputs" in cell:
            cell["outputs"] = kept
    return (_plotly_script() if charts else "") + (offline.widget_host_script() if widgets else "")


def _title(notebook: Any, default: str) -> str:
    for cell in notebook.cells:
        for line in cell.source.splitlines() if cell.cell_type == "markdown" else ():
            if line.startswith("# "):
                return line[2:].strip()
    return default


def _plotly_script() -> str:
    from plotly.offline import get_plotlyjs

    return f"<script>{get_plotlyjs()}</script>"


def _plotly_fragment(figure: Mapping[str, Any], number: int) -> str:
    """The div of one saved figure and the script that draws it; an animation waits for its play button."""
    import plotly.io

    spec = {key: figure[key] for key in ("data", "layout", "frames") if key in figure}
    return plotly.io.to_html(
        spec,
        config={"responsive": True, "displaylogo": False},
        auto_play=False,
        include_plotlyjs=False,
        full_html=False,
        default_height="450px",
        validate=False,
        div_id=f"chart-{number}",
    )


def _widget_fragment(model: Mapping[str, Any]) -> str:
    """The fragment of one saved anywidget; binary traits are stored apart, as base64 with their path."""
    buffers = {".".join(map(str, b["path"])): base64.b64decode(b["data"]) for b in model.get("buffers", ())}
    return offline.widget_fragment(model["state"], buffers)


def _is_progress_bar(saved: Mapping[str, Any], model: str | None) -> bool:
    """Whether the widget is a progress bar, or a box (tqdm's) that holds one."""
    entry = saved.get(model, {})
    if entry.get("model_name") in _PROGRESS_BARS:
        return True
    children = entry.get("state", {}).get("children", ())
    return any(_is_progress_bar(saved, child.removeprefix("IPY_MODEL_")) for child in children)
