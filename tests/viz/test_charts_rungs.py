"""What every rung is worth: the factors of the measured ladders again, marked where they are not shown to differ."""

from __future__ import annotations

from math import log10

import pytest

from blockserve.core import ConfigError
from blockserve.studies import ladder
from blockserve.studies.experiment import Measured, measure, open_benches
from blockserve_viz import charts


def measured(repeats: int) -> dict[str, Measured]:
    benches = open_benches(
        "simulated", checkpoints=[], tasks=[], models=["dream-7b"], benchmarks=["truthfulqa", "mbpp"], n=16
    )
    arms = ladder.arms(4, 8192)
    return {benchmark: measure(bench, arms, repeats=repeats) for (_, benchmark), bench in benches.items()}


LADDERS = measured(3)


def test_rungs() -> None:
    figure = charts.rungs(LADDERS)
    for panel, name in zip(figure.data, ("tokens_per_s", "row_tokens"), strict=True):
        assert list(panel.y) == list(LADDERS)
        assert [x.replace("<br>", "").removesuffix("*") for x in panel.x] == list(ladder.LADDER[1:])
        assert [x.endswith("*") for x in panel.x] == [False] * 4 + [True] * 3, "scheduling is marked"
        for line, found in zip(panel.z, LADDERS.values(), strict=True):
            for value, below, own in zip(line, ladder.LADDER, ladder.LADDER[1:], strict=False):
                pairs = zip(found.values(below, name), found.values(own, name), strict=True)
                ratios = [b / a if name == "tokens_per_s" else a / b for a, b in pairs]
                assert value == pytest.approx(log10(sum(ratios) / 3))
    assert "(simulated)" in figure.layout.title.text


def test_brackets_are_round_what_is_not_shown_to_differ_from_1() -> None:
    for panel in charts.rungs(LADDERS).data:
        own = "faster" if "tokens/s" in panel.hovertemplate else "less_work"
        for texts, found in zip(panel.text, LADDERS.values(), strict=True):
            for text, step in zip(texts, ladder.climb(found)[1:], strict=True):
                factor = getattr(step, own)
                held = abs(factor.mean - 1) <= factor.half
                assert text == (f"(×{factor.mean:.2f})" if held else f"×{factor.mean:.2f}")
    once = charts.rungs(measured(1))
    assert all(text.startswith("(") for panel in once.data for line in panel.text for text in line)


def test_nothing_to_draw_says_so() -> None:
    with pytest.raises(ConfigError, match="nothing to draw"):
        charts.rungs({})
