"""The one home of colours: cells of the batch (player and still), categories of work, and series of the charts.

The cells follow the paper's Figure 1; ``conf0`` to ``conf4`` are the grounds of tokens by confidence, low to high.
Hues were chosen so that neighbours stay apart under protanopia and deuteranopia (a test computes it); whatever carries
a decision also has a shape: cross, tick, dashes, hatching, a word.
"""

from __future__ import annotations

LIGHT: dict[str, str] = {
    "surface": "#ffffff",
    "panel": "#f6f7f9",
    "line": "#d5dae1",
    "text": "#1b2430",
    "muted": "#566172",
    "prompt": "#2f6fbb",
    "prompt_text": "#ffffff",
    "finished": "#137a52",
    "finished_text": "#ffffff",
    "active": "#5cc796",
    "active_text": "#0b2a1c",
    "masked": "#ffffff",
    "masked_line": "#8fcdb0",
    "next": "#e3f6ec",
    "next_line": "#137a52",
    "next_text": "#0f5c3f",
    "padding": "#dde1e7",
    "reclaimed": "#bd97e0",
    "reclaimed_line": "#6a3aa5",
    "ended": "#f59a2d",
    "ended_text": "#2a1800",
    "hatch": "#1b2430",
    "box": "#b8500a",
    "bar": "#f0a35a",
    "bar_padding": "#fbe3cc",
    "conf0": "#f6b26b",
    "conf1": "#f9d3a4",
    "conf2": "#f3efc4",
    "conf3": "#d3eede",
    "conf4": "#a4dfc3",
}

DARK: dict[str, str] = {
    "surface": "#12161d",
    "panel": "#1a202a",
    "line": "#333c4a",
    "text": "#e8ecf2",
    "muted": "#a3afbf",
    "prompt": "#5a95de",
    "prompt_text": "#08131f",
    "finished": "#1f9c6c",
    "finished_text": "#03140d",
    "active": "#84e3b4",
    "active_text": "#06251a",
    "masked": "#12161d",
    "masked_line": "#3f8a68",
    "next": "#173227",
    "next_line": "#35b884",
    "next_text": "#8fe0bb",
    "padding": "#2d3542",
    "reclaimed": "#6a3fa3",
    "reclaimed_line": "#dcc6f5",
    "ended": "#f7a945",
    "ended_text": "#2a1800",
    "hatch": "#e8ecf2",
    "box": "#ffb067",
    "bar": "#d9812e",
    "bar_padding": "#5a3a1c",
    "conf0": "#8f4a0c",
    "conf1": "#6d431b",
    "conf2": "#4d4a2a",
    "conf3": "#264d40",
    "conf4": "#17694a",
}

PALETTES: dict[str, dict[str, str]] = {"light": LIGHT, "dark": DARK}

# Row-tokens by category (blockserve.tracing.metrics.waste), in the order in which they are stacked.
WASTE: dict[str, str] = {
    "valid": LIGHT["finished"],
    "uncommitted": LIGHT["active"],
    "refresh": LIGHT["prompt"],
    "suffix": "#8ec9ea",
    "uncompacted": LIGHT["reclaimed"],
    "padding": "#c3c9d2",
    "ended": "#6b7482",
    "after_eos": LIGHT["ended"],
}

# One colour a trace, in the order given; distinct in hue and in lightness.
SERIES: tuple[str, ...] = ("#6b7482", "#0b6bb5", "#d2691e", "#137a52", "#8e5bc0", "#c8a415", "#3aa6c9", "#a63d57")
