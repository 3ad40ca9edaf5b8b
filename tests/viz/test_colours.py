"""Text is legible in both themes, and neighbouring cells stay apart for colour-blind eyes."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest

from blockserve.tracing.metrics import WASTE_CATEGORIES
from blockserve_viz.colours import PALETTES, WASTE

# Linear-RGB simulation of complete protanopia and deuteranopia (Machado, Oliveira and Fernandes, 2009).
BLIND = {
    "protan": [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
    "deutan": [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]],
}
CELLS = ("prompt", "finished", "active", "padding", "reclaimed", "ended", "surface")
# Told apart by their place and shape as well: padding lies left of the row, reclaimed padding bears a cross.
SHAPED = {("padding", "surface"), ("padding", "reclaimed"), ("active", "ended")}
TEXTS = [
    ("text", "surface"), ("muted", "surface"), ("text", "panel"), ("muted", "panel"), ("box", "surface"),
    ("prompt_text", "prompt"), ("finished_text", "finished"), ("active_text", "active"), ("ended_text", "ended"),
    ("next_text", "next"), ("reclaimed_line", "surface"), ("prompt", "panel"), ("box", "panel"),
    ("next_text", "surface"), ("muted", "next"), *(("text", f"conf{level}") for level in range(5)),
]  # fmt: skip


def linear(colour: str) -> np.ndarray:
    """Linear RGB in [0, 1] of ``#rrggbb``."""
    value = np.array([int(colour[i : i + 2], 16) for i in (1, 3, 5)]) / 255
    return np.where(value <= 0.04045, value / 12.92, ((value + 0.055) / 1.055) ** 2.4)


def contrast(one: str, other: str) -> float:
    """WCAG contrast ratio."""
    low, high = sorted(float(linear(c) @ [0.2126, 0.7152, 0.0722]) for c in (one, other))
    return (high + 0.05) / (low + 0.05)


def lab(rgb: np.ndarray) -> np.ndarray:
    """CIE L*a*b* of linear RGB."""
    to_xyz = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]])
    x, y, z = np.cbrt(np.clip(to_xyz @ rgb, 1e-6, None) / [0.9505, 1, 1.089])
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])


@pytest.mark.parametrize("theme", PALETTES)
@pytest.mark.parametrize(("text", "ground"), TEXTS)
def test_text_has_contrast(theme: str, text: str, ground: str) -> None:
    assert contrast(PALETTES[theme][text], PALETTES[theme][ground]) >= 4.5


@pytest.mark.parametrize("theme", PALETTES)
@pytest.mark.parametrize("eyes", ["any", *BLIND])
def test_cells_can_be_told_apart(theme: str, eyes: str) -> None:
    seen = np.array(BLIND.get(eyes, np.eye(3).tolist()))
    cells = {kind: lab(np.clip(seen @ linear(PALETTES[theme][kind]), 0, 1)) for kind in CELLS}
    for one, other in combinations(CELLS, 2):
        distance = float(np.linalg.norm(cells[one] - cells[other]))
        assert distance >= (8 if (one, other) in SHAPED or (other, one) in SHAPED else 18), (one, other, distance)


def test_both_palettes_and_all_categories_are_complete() -> None:
    light, dark = PALETTES.values()
    assert list(light) == list(dark)
    assert set(WASTE) == set(WASTE_CATEGORIES) and len(set(WASTE.values())) == len(WASTE)
