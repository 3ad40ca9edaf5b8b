"""Widgets without a kernel: saved anywidget state as HTML that plays from ``file://`` with no network.

`widget_fragment` writes one view: a div and its state as JSON. `widget_host_script`, once a page, mounts every
fragment on it: it gives the widget's own ES module a stand-in for the kernel's model. Standard library only; it
knows anywidget's contract (``render({model, el})``) and nothing about any particular widget.
"""

from __future__ import annotations

import base64
import html
import json
from collections.abc import Mapping
from typing import Any

# Loaded from text through a blob URL, because a page opened from file:// may not import a file beside it.
_HOST = """
(() => {
  class Model {
    constructor(state) { this.state = state; this.handlers = {}; this.changed = new Set(); }
    get(name) { return this.state[name]; }
    set(name, value) {
      if (typeof name === "object") return Object.entries(name).forEach(([key, item]) => this.set(key, item));
      if (Object.is(this.state[name], value)) return;
      this.state[name] = value;
      this.changed.add(name);
      this.emit("change:" + name, value);
      this.emit("change");
    }
    save_changes() { this.changed.clear(); }
    send() {}
    on(name, handler) { (this.handlers[name] ??= []).push(handler); }
    off(name, handler) {
      if (name == null) this.handlers = {};
      else this.handlers[name] = handler ? (this.handlers[name] ?? []).filter((h) => h !== handler) : [];
    }
    emit(name, ...values) { for (const handler of [...(this.handlers[name] ?? [])]) handler(...values); }
  }
  const decode = (text) => {  // a loop: megabytes of it stand between a page and its first picture
    const letters = atob(text), bytes = new Uint8Array(letters.length);
    for (let i = 0; i < bytes.length; i++) bytes[i] = letters.charCodeAt(i);
    return new DataView(bytes.buffer);
  };
  const modules = new Map();
  const load = (source) => {
    if (!modules.has(source))
      modules.set(source, import(URL.createObjectURL(new Blob([source], { type: "text/javascript" }))));
    return modules.get(source);
  };
  const styled = new Set();
  const style = (css) => {
    if (!css || styled.has(css)) return;
    styled.add(css);
    document.head.append(Object.assign(document.createElement("style"), { textContent: css }));
  };
  async function mount(model, el) {
    style(model.get("_css"));
    const module = await load(model.get("_esm"));
    const widget = typeof module.default === "function" ? await module.default() : module.default;
    await widget.initialize?.({ model });
    return widget.render({ model, el });
  }
  function start() {
    for (const el of document.querySelectorAll("div.blockserve-widget:not([data-mounted])")) {
      el.dataset.mounted = "";
      const { state, buffers } = JSON.parse(el.querySelector("script").textContent);
      for (const [name, text] of Object.entries(buffers)) state[name] = decode(text);
      el.model = new Model(state);
      mount(el.model, el).catch((error) => { el.textContent = "This view cannot be shown: " + error; throw error; });
    }
  }
  window.blockserveHost = { Model, mount, decode };
  if (document.readyState === "loading") document.addEventListener("DOMContentLoaded", start);
  else start();
})();
"""

_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<style>
:root {{ color-scheme: light dark; }}
body {{ margin: 24px auto; max-width: 1100px; padding: 0 16px; font: 16px/1.5 system-ui, sans-serif; }}
</style>
{head}
</head>
<body>
{body}
</body>
</html>
"""


def widget_host_script() -> str:
    """The script element that draws every `widget_fragment` of a page; needed once, anywhere on it."""
    return f"<script>{_HOST}</script>"


def widget_fragment(state: Mapping[str, Any], buffers: Mapping[str, bytes]) -> str:
    """HTML of one view of an anywidget.

    ``state`` is the widget's JSON state (``_esm`` and ``_css`` included, as text); ``buffers`` maps the names of its
    ``Bytes`` traits to their contents, which the module sees as a ``DataView``, as in a notebook.
    """
    plain = {name: value for name, value in state.items() if name not in buffers}
    encoded = {name: base64.b64encode(value).decode("ascii") for name, value in buffers.items()}
    payload = _json({"state": plain, "buffers": encoded})
    return f'<div class="blockserve-widget"><script type="application/json">{payload}</script></div>'


def page(title: str, body: str, head: str = "") -> str:
    """A whole document around ``body`` (HTML); ``title`` is text and is escaped, ``head`` is HTML."""
    return _PAGE.format(title=html.escape(title), head=head, body=body)


def _json(value: Any) -> str:
    """JSON that is safe inside a script element: no ``<`` at all, so neither ``</script`` nor ``<!--`` can occur."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).replace("<", "\\u003c")
