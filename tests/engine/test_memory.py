"""β from memory: the fit, on peaks that are known; the analytic figure, against a hand count."""

from __future__ import annotations

from pathlib import Path

import pytest

from blockserve import DecodeConfig, Engine, ExecConfig
from blockserve.checkpoints import load_model
from blockserve.core import BlockServeError, ConfigError
from blockserve.execution.memory import analytic_fit, bytes_per_cell, measured_fit, memory_fit

MODEL = load_model(Path(__file__).parents[1] / "golden" / "llada_tiny")


def fit_with(peak_of_cells, **options):
    """Fit on a meter that really runs the cycle and then reports the peak a function of its cells says."""
    widths = iter((2 * 512, 4 * 512, 8 * 512))

    def meter(run):
        result = run()
        cells = next(widths)
        assert len(result.rows) * 512 == cells
        return peak_of_cells(cells)

    return measured_fit(MODEL, DecodeConfig(block_length=8), ExecConfig(), meter=meter, **options)


def test_the_fit_recovers_a_known_line_and_the_budget_stays_below_the_share():
    fit = fit_with(lambda cells: 1_000_000 + 500 * cells, share=0.9, memory_bytes=10_000_000)
    assert fit.bytes_per_cell == pytest.approx(500)
    assert fit.base_bytes == pytest.approx(1_000_000)
    assert fit.budget == 16_000  # (0.9 · 10⁷ − 10⁶) / 500
    assert fit.base_bytes + fit.bytes_per_cell * (fit.budget + 1) > 0.9 * 10_000_000


def test_peaks_that_do_not_grow_are_refused():
    with pytest.raises(BlockServeError, match="does not grow with the box"):
        fit_with(lambda cells: 7, memory_bytes=10_000_000)


def test_the_analytic_figure():
    """llada_tiny in float32: KV 2·2·4·16·4 = 1,024; activations (6·64 + 3·128)·4 = 3,072; logits 3·8·128/2 = 1,536."""
    assert bytes_per_cell(MODEL) == 1_024 + 3_072 + 1_536
    fit = analytic_fit(MODEL)
    assert fit.budget == 8 * 512, "memory is plenty here, so the cap holds"
    assert Engine(MODEL, "blockserve-budget").config.policy.budget == fit.budget
    assert Engine(MODEL, "blockserve-budget", token_budget="auto").config.policy.budget == fit.budget


def test_a_share_outside_its_range_is_refused():
    with pytest.raises(ConfigError, match=r"memory share must be in \(0, 1\], got 1.5"):
        memory_fit(MODEL, DecodeConfig(), ExecConfig(), 1.5)
