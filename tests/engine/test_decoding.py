"""One setting of decoding at a time: what is run, and what the sentences say of the numbers."""

from __future__ import annotations

from dataclasses import replace

import pytest

from blockserve.checkpoints import load_model
from blockserve.core import ConfigError
from blockserve.studies import decoding
from blockserve.studies.invariance import Difference, Invariance
from blockserve.studies.quality import Quality, evaluate

SETTINGS = {"thresholds": [0.5, 0.9], "suffixes": [0, "full"], "caches": ["none"], "block_lengths": [16]}


@pytest.fixture(scope="module")
def rows() -> list[Quality]:
    model = load_model("tiny-llada")
    return list(decoding.one_at_a_time(model, "arithmetic", n=3, seed=1, **SETTINGS))


def test_the_defaults_come_first_and_every_other_row_changes_one_setting(rows):
    changed = [("defaults", ""), ("threshold", 0.5), ("suffix", "full"), ("cache", "none")]
    assert [decoding.varied(row) for row in rows] == changed
    (alone,) = evaluate(load_model("tiny-llada"), "arithmetic", n=3, seed=1)
    assert rows[0] == alone, "the defaults of this study are those of the engine"
    with pytest.raises(ConfigError, match="changes threshold, suffix at once"):
        decoding.varied(replace(rows[1], suffix="full"))


def test_rows_of_a_setting_hold_the_default_and_are_in_the_order_of_its_values(rows):
    more = [*rows, replace(rows[0], suffix=1), replace(rows[0], task="facts")]
    found = decoding.by_setting(more, "suffix")
    assert {task: [row.suffix for row in own] for task, own in found.items()} == {
        "arithmetic": [0, 1, "full"],
        "facts": [0],
    }


def test_only_intervals_that_do_not_overlap_are_said_to_differ(rows):
    default = replace(rows[0], accuracy=0.9, problems=100, tokens_per_forward=2.0)
    near = replace(default, threshold=0.5, accuracy=0.85, tokens_per_forward=5.0)
    far = replace(default, threshold=0.99, accuracy=0.6, tokens_per_forward=1.0)
    assert decoding.told([default, far, near]) == [
        "threshold 0.5 instead of 0.9: ×2.50 as many tokens a forward; no accuracy is shown to differ.",
        "threshold 0.99 instead of 0.9: ×0.50 as many tokens a forward; accuracy arithmetic 90.0% → 60.0%.",
    ]
    other = [replace(row, task="facts", tokens_per_forward=row.tokens_per_forward * 3) for row in (default, far)]
    other[1] = replace(other[1], accuracy=0.9, tokens_per_forward=9.0)
    assert decoding.told([default, far, *other])[0].startswith("threshold 0.99 instead of 0.9: ×1.00 as many")


def test_exactness_tells_the_worst_way_and_its_first_difference():
    found = {
        "float64": Invariance(8, {"a": (), "b": ()}),
        "bfloat16": Invariance(8, {"a": (Difference("3", 2, 1, 0.01), Difference("5", 0, 4, 0.25)), "b": ()}),
        "float16": Invariance(8, {"a": (Difference("3", 2, 1, None),)}),
    }
    exact, close, other = decoding.told_exactness(found)
    assert exact == "float64: 100.0% of 8 requests have the tokens that they have alone, in every way of batching."
    assert close.startswith("bfloat16: 75.0% of 8 requests") and "at worst (a)" in close
    assert close.endswith("the first parts at block 0, step 4, 0.25 from the threshold.")
    assert other.endswith("step 1, not by the threshold.")
