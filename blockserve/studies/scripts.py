"""Requests written by hand, served by the real scheduler: for pictures and lessons that must fit in one's head.

What each request writes is scripted (there is no model), what happens to it is Algorithm 1's doing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from blockserve.core import ConfigError, check_int
from blockserve.simulation.cost import CycleWork
from blockserve.simulation.profile import REASONS, Profile
from blockserve.studies.simulate import simulate

if TYPE_CHECKING:
    from blockserve.tracing import Trace

BLOCK_LENGTH = 4  # tokens
CANVAS = 3  # blocks, K of every request


@dataclass(frozen=True)
class Script:
    """One request: ``prompt`` tokens, and the denoise steps of each block that it writes.

    Fewer blocks than the canvas: the last one holds its end token.
    """

    prompt: int
    steps: tuple[int, ...]


class OneSecondAPass:
    """A cost model for a picture: the steps of a cycle can be counted on its clock."""

    name = "one second a pass"

    def cycle(self, work: CycleWork) -> dict[str, float]:
        return {"refresh": 1.0, "denoise": float(len(work.reuse_rows))}


def serve_scripts(
    scripts: Sequence[Script],
    preset: str = "blockserve-budget",
    *,
    canvas: int = CANVAS,
    block_length: int = BLOCK_LENGTH,
    name: str = "scripted requests",
    **options: Any,
) -> Trace:
    """The trace of requests "1", "2", … under a preset: virtual clock, marked as simulated, one second a pass.

    ``canvas``: blocks that each may write at most; ``options`` override the preset, as for `Engine`. The scheduler's
    invariants are asserted at every boundary. Raises `ConfigError` for a script with no block or too many.
    """
    profile = _profile(scripts, canvas, block_length, name)
    return simulate(profile, preset, OneSecondAPass(), check=True, **options).trace


def _profile(scripts: Sequence[Script], canvas: int, block_length: int, name: str) -> Profile:
    """The scripted requests as a profile."""
    check_int("canvas", canvas, 1)
    if not scripts:
        raise ConfigError("no request to serve; give at least one Script(prompt, steps)")
    for number, script in enumerate(scripts, start=1):
        if not 1 <= len(script.steps) <= canvas:
            raise ConfigError(f"request {number} writes {len(script.steps)} blocks; the canvas allows 1 to {canvas}")
    limit = canvas * block_length
    blocks = np.array([len(s.steps) for s in scripts], np.int32)
    whole = blocks == canvas
    return Profile(
        block_length=block_length,
        prompt_tokens=np.array([s.prompt for s in scripts], np.int32),
        limits=np.full(len(scripts), limit, np.int32),
        blocks=blocks,
        ends=blocks - 1,
        valid_tokens=np.where(whole, limit, blocks * block_length - 1).astype(np.int32),  # the last is the end token
        reasons=np.where(whole, REASONS.index("length"), REASONS.index("eos")).astype(np.int8),
        arrivals=np.zeros(len(scripts)),
        steps=np.array([n for s in scripts for n in s.steps], np.int32),
        ids=tuple(str(number) for number in range(1, len(scripts) + 1)),
        name=name,
    )
