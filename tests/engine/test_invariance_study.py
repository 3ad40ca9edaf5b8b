"""The invariance study: full agreement where it is promised, and a difference is found where one is planted."""

from __future__ import annotations

from pathlib import Path

import pytest

from blockserve import Request, Workload
from blockserve.checkpoints import load_model
from blockserve.studies.invariance import WAYS, Difference, check_invariance

MODEL = load_model(Path(__file__).parents[1] / "golden" / "llada_tiny", dtype="float64")
WORKLOAD = Workload(
    "w", tuple(Request(str(i), prompt_ids=tuple(range(1, 4 + 3 * i)), max_new_tokens=24) for i in range(6))
)


def test_float64_agrees_everywhere():
    found = check_invariance(MODEL, WORKLOAD, block_length=8)
    assert found.requests == 6
    assert all(found.agreement(way) == 1.0 for way in WAYS)
    assert found.table["first at"].isna().all()


def test_a_planted_dependence_on_the_batch_is_found_with_its_place_and_margin(monkeypatch):
    """Confidences are shifted when more than one row runs: positions near the threshold flip."""
    from blockserve.execution import decode

    real = decode.propose

    def shifted(logits, banned, noise=None):
        tokens, confidence = real(logits, banned, noise)
        return tokens, confidence - (0.05 if logits.shape[0] > 1 else 0.0)

    monkeypatch.setattr(decode, "propose", shifted)
    found = check_invariance(MODEL, WORKLOAD, block_length=8, threshold=0.6, eos="ignore")
    differences = [d for way in WAYS for d in found.differences[way]]
    assert differences
    assert all(isinstance(d, Difference) for d in differences)
    margins = [d.margin for d in differences if d.margin is not None]
    assert margins and min(margins) <= 0.05
    assert found.table["largest margin"].max() == pytest.approx(
        max(max((d.margin for d in ds if d.margin is not None), default=0.0) for ds in found.differences.values())
    )
