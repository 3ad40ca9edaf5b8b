"""A replay of a recorded run is the run itself: the real engine, float64, every request present from the start."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from blockserve import Engine, Request
from blockserve.checkpoints import load_model
from blockserve.simulation.fitting import fit_cost
from blockserve.studies.diff import diff, schedule
from blockserve.studies.replay import replay

GOLDEN = Path(__file__).parents[1] / "golden"
MODELS = {name: load_model(GOLDEN / name, dtype="float64") for name in ("llada_tiny", "dream_tiny")}
TIGHT = 110  # tokens; the largest request needs 40 + 56, so rows are preempted all the time
POLICIES = [
    ("blockserve-fixed", {}),
    ("blockserve-budget", {"token_budget": 500}),
    ("blockserve-budget", {"token_budget": TIGHT}),
    ("blockserve-budget", {"token_budget": 300, "reserve": True}),
    ("blockserve-budget", {"token_budget": 200, "max_wait_cycles": 3}),
    ("block-fifo", {"slots": 3}),
    ("static", {}),
    ("static", {"token_budget": 300}),
    ("static-block-head", {}),
    ("static-no-suffix", {}),
]


def requests(model: str, seed: int, size: int = 16) -> list[Request]:
    """Random prompts without the mask; limits that need not be whole blocks."""
    rng = np.random.default_rng(seed)
    legal = [i for i in range(128) if i != MODELS[model].mask_id]
    lengths = zip(rng.integers(1, 40, size).tolist(), rng.integers(1, 56, size).tolist(), strict=True)
    return [
        Request(str(i), prompt_ids=tuple(rng.choice(legal, p).tolist()), max_new_tokens=g, seed=i)
        for i, (p, g) in enumerate(lengths)
    ]


def run(model: str, preset: str, options: dict, decode: dict, seed: int):
    return Engine(MODELS[model], preset, block_length=8, threshold=0.3, **options, **decode).run(requests(model, seed))


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("decode", [{}, {"eos": "ignore"}, {"cache": "prefix", "suffix": 1}], ids=str)
def test_a_replay_equals_really_running_it(model, decode, record_count):
    """Record for record, times aside: admissions, rows, commits, passes, refusals, completions and their output."""
    recorded = run(model, "blockserve-fixed", {}, decode, seed=3).trace
    cost, preempted = fit_cost(recorded), 0
    for preset, options in POLICIES:
        real = run(model, preset, options, decode, seed=3).trace
        again = replay(recorded, preset, cost=cost, check=True, **options, **decode)
        assert diff(real, again) is None
        assert schedule(real) == schedule(again), (preset, options)
        preempted += int(real.cycles.preempted.sum())
        record_count("schedules replayed and really run")
    assert preempted, "the tight budget must preempt"


def test_a_static_recording_replays_as_well():
    """Frozen rows commit nothing, so a group's recording holds all that continuous batching needs."""
    recorded = run("llada_tiny", "static", {"slots": 4}, {}, seed=5).trace
    real = run("llada_tiny", "blockserve-budget", {"token_budget": 200}, {}, seed=5).trace
    assert schedule(real) == schedule(replay(recorded, "blockserve-budget", token_budget=200))


def test_the_predicted_makespan_is_of_the_measured_ones_size(record_count):
    """A loose bound, as other work on the machine shows in the measured time; the study reports the numbers."""
    recorded = run("llada_tiny", "blockserve-fixed", {}, {}, seed=7).trace
    for preset in ("blockserve-fixed", "static"):
        real = run("llada_tiny", preset, {}, {}, seed=7).trace
        ratio = replay(recorded, preset).end.wall / real.end.wall
        assert 0.1 < ratio < 10
