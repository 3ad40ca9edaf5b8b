"""Traces of the real scheduler on made-up requests: every policy, so every reason to enter, wait and leave."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from blockserve.simulation.profile import Profile, StepDistribution
from blockserve.studies.simulate import simulate
from blockserve.tracing.trace import Trace

POLICIES: dict[str, dict[str, Any]] = {
    "budget": {"preset": "blockserve-budget", "token_budget": 400},
    "slots": {"preset": "blockserve-fixed", "slots": 3},
    "strict": {"preset": "blockserve-budget", "token_budget": 500, "fill": "sand_strict"},
    "reserve": {"preset": "blockserve-budget", "token_budget": 400, "reserve": True},
    "patient": {"preset": "blockserve-budget", "token_budget": 300, "max_wait_cycles": 2},
    "head of line": {"preset": "block-fifo", "token_budget": 150},
    "static": {"preset": "static", "slots": 4},
    "vanilla": {"preset": "vanilla", "slots": 4},
}


def profile(count: int = 18, seed: int = 0) -> Profile:
    """Requests of 1 to 5 blocks of 8; a third of them arrive later."""
    rng = np.random.default_rng(seed)
    steps = StepDistribution(mean=3, spread=2)
    arrivals = np.where(np.arange(count) % 3 == 2, np.arange(count) * 0.1, 0.0)
    prompts, outputs = rng.integers(5, 60, count), rng.integers(1, 41, count)
    return Profile.synthetic(prompts, outputs, 40, block_length=8, steps=steps, arrivals=arrivals, seed=seed)


def scheduled() -> Iterator[tuple[str, Trace]]:
    """One trace for each of `POLICIES`, by its name."""
    for name, options in POLICIES.items():
        yield name, simulate(profile(), **options, check=True).trace
