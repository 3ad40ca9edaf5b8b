"""Presets say what the table in the design says, and options override exactly what they name."""

from __future__ import annotations

import pytest

from blockserve.core import ConfigError, Factor, Quota, Threshold, UnknownNameError
from blockserve.presets import PRESETS, resolve
from blockserve.scheduling import FixedSlots, TokenBudget

TABLE = """
vanilla            fifo          slots  head_of_line request none full ignore  full  off
fast-dllm-static   fifo          slots  head_of_line request dual full ignore  full  off
static-eos         fifo          slots  head_of_line request dual full settled full  off
static-no-suffix   fifo          slots  head_of_line request dual 0    settled full  off
static-block-head  fifo          slots  head_of_line request dual 0    settled block off
static             fifo          slots  head_of_line request dual 0    settled block on
block-fifo         fifo          slots  head_of_line block   dual 0    settled block on
blockserve-fixed   longest_first slots  sand         block   dual 0    settled block on
blockserve-budget  longest_first budget sand         block   dual 0    settled block on
"""


def test_the_ladder():
    rows = [line.split() for line in TABLE.strip().splitlines()]
    assert list(PRESETS) == [r[0] for r in rows]
    for name, *cells in rows:
        c = resolve(name, {})
        p, d, e = c.policy, c.decode, c.execution
        bound = "budget" if isinstance(p.bound, TokenBudget) else "slots"
        compaction = "on" if e.compaction else "off"
        assert [p.order, bound, p.fill, p.quantum, d.cache, str(d.suffix), d.eos, e.head, compaction] == cells
        assert d.rule == (Quota() if name == "vanilla" else Threshold(0.9))


def test_defaults():
    assert resolve("static", {}).policy.bound == FixedSlots(8)
    assert resolve("blockserve-budget", {}).auto_budget
    assert resolve("blockserve-budget", {}).with_budget(640).policy.bound == TokenBudget(640)
    assert resolve("static", {}).decode.block_length == 16


def test_options_override_and_are_recorded():
    c = resolve("static", {"slots": 3, "threshold": 0.5, "suffix": "full", "compaction": False, "order": None})
    assert c.policy.bound == FixedSlots(3)
    assert c.decode.rule == Threshold(0.5)
    assert c.decode.suffix == "full"
    assert not c.execution.compaction
    assert c.overrides == {"slots": 3, "threshold": 0.5, "suffix": "full", "compaction": False}
    assert resolve("static", {"token_budget": 100}).policy.bound == TokenBudget(100)
    assert resolve("blockserve-budget", {"slots": 4}).policy.bound == FixedSlots(4)
    assert resolve("static", {"quota": 4}).decode.rule == Quota(4)
    assert resolve("static", {"factor": 2.0}).decode.rule == Factor(2.0)


@pytest.mark.parametrize(
    ("preset", "options", "match"),
    [
        ("statik", {}, "unknown preset 'statik'. Did you mean 'static'"),
        ("static", {"bugdet": 3}, "unknown option 'bugdet'"),
        ("static", {"slots": 3, "token_budget": 4}, "exclude each other"),
        ("static", {"quota": 3, "threshold": 0.4}, "exclude each other"),
        ("static", {"threshold": 0.0}, r"threshold must be in \(0, 1\], got 0.0"),
        ("static", {"threshold": 1.5}, r"threshold must be in \(0, 1\], got 1.5"),
        ("static", {"block_length": 0}, "block_length must be a whole number of at least 1, got 0"),
        ("static", {"cache": "duel"}, "unknown cache mode 'duel'. Did you mean 'dual'"),
        ("static", {"suffix": -1}, 'suffix must be a whole number of at least 0 or "full", got -1'),
        ("static", {"token_budget": 1.5}, "token_budget must be a whole number"),
        ("static", {"temperature": -1}, "temperature must be in"),
    ],
)
def test_mistakes_name_the_value_and_what_is_allowed(preset, options, match):
    with pytest.raises((ConfigError, UnknownNameError), match=match):
        resolve(preset, options)
