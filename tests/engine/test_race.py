"""Races: every engine runs the same workload the stated number of times, in turn."""

from __future__ import annotations

from pathlib import Path

import pytest

from blockserve import Engine, Request
from blockserve.checkpoints import load_model
from blockserve.core import ConfigError
from blockserve.studies.race import race

MODEL = load_model(Path(__file__).parents[1] / "golden" / "llada_tiny")
REQUESTS = [Request(str(i), prompt_ids=(1, 2, 3 + i), max_new_tokens=16) for i in range(5)]


def test_runs_alternate_and_the_table_adds_up(monkeypatch):
    engines = {name: Engine(MODEL, name, slots=2, block_length=8) for name in ("static", "block-fifo")}
    order, real = [], Engine.run

    def spy(self, workload, **options):
        order.append((self.config.preset, len(workload)))
        return real(self, workload, **options)

    monkeypatch.setattr(Engine, "run", spy)
    result = race(engines, REQUESTS, repeats=2)
    assert order == [("static", 2), ("block-fifo", 2), *[("static", 5), ("block-fifo", 5)] * 2]
    table = result.table
    assert table.loc["speedup", "static"] == 1.0
    for name in engines:
        parts = [v for key, v in table[name].items() if key.startswith("row-tokens: ")]
        assert sum(parts) == table.loc["row_tokens", name]
        assert isinstance(table.loc["cycles", name], int)
        assert len(result.walls[name]) == 2


def test_mistakes():
    with pytest.raises(ConfigError, match="nothing to race"):
        race({}, REQUESTS)
    with pytest.raises(ConfigError, match="repeats"):
        race({"a": Engine(MODEL, "static")}, REQUESTS, repeats=0)
