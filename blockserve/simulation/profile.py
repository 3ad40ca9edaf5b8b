"""`Profile`: what every request of a workload does, block by block, whoever schedules it.

At a fixed `DecodeConfig` a request's tokens do not depend on its company, so its blocks, steps and commits can be
recorded once (`from_trace`) or drawn from distributions (`synthetic`) and then replayed under any schedule.
Everything is columnar: a million requests are a few arrays.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from blockserve.core import BlockServeError, ConfigError, EndReason, check_int

if TYPE_CHECKING:
    from blockserve.tracing import Trace

REASONS: tuple[EndReason, ...] = ("eos", "stop", "length", "cancelled", "error")
IntArray = NDArray[np.integer]


class ProfileError(BlockServeError):
    """A profile is malformed, or asked for what it cannot know."""


@dataclass(frozen=True, eq=False)
class Profile:
    """Columns over ``N`` requests, their ``B = sum(blocks)`` blocks and, if recorded, those blocks' ``S`` steps.

    ``prompt_tokens``, ``limits``: int [N] tokens. ``blocks``: int [N], how many blocks of the request are known: all
    it wrote, at most its canvas. ``ends``: int [N], index of the block in which its valid output became complete.
    ``valid_tokens``: int [N], final valid output. ``reasons``: int [N], index into `REASONS`. ``arrivals``: float [N]
    seconds. ``steps``: int [B], denoise steps of each block, request after request. ``commits``, ``valid``: int [S],
    positions fixed in each step and the valid ones among them; ``None``: spread evenly over the steps.
    ``ids``: the requests' names, ``None`` for "0", "1", ….
    """

    block_length: int
    prompt_tokens: IntArray
    limits: IntArray
    blocks: IntArray
    ends: IntArray
    valid_tokens: IntArray
    reasons: IntArray
    arrivals: NDArray[np.float64]
    steps: IntArray
    commits: IntArray | None = None
    valid: IntArray | None = None
    ids: tuple[str, ...] | None = None
    name: str = "profile"

    def __post_init__(self) -> None:
        check_int("block_length of the profile", self.block_length, 1)
        columns = ("prompt_tokens", "limits", "blocks", "ends", "valid_tokens", "reasons", "arrivals")
        sizes = {name: len(getattr(self, name)) for name in columns}
        if len(set(sizes.values())) > 1:
            raise ProfileError(f"the profile's columns differ in length: {sizes}")
        self._check_values()
        if len(self.steps) != self.blocks.sum():
            raise ProfileError(f"the profile has steps of {len(self.steps)} blocks, expected {self.blocks.sum()}")
        if self.ids is not None and len(set(self.ids)) != len(self.prompt_tokens):
            raise ProfileError("the profile's ids must be unique and as many as its requests")

    def _check_values(self) -> None:
        """One clear message for the first request with an impossible number."""
        length = self.block_length
        for name, bad, rule in (
            ("prompt_tokens", self.prompt_tokens < 1, "at least 1: an empty prompt cannot be continued"),
            ("limits", self.limits < 1, "at least 1"),
            ("blocks", (self.blocks < 0) | (self.blocks > -(-self.limits // length)), "within the canvas, 0 … K"),
            ("arrivals", ~(np.isfinite(self.arrivals) & (self.arrivals >= 0)), "finite seconds, not negative"),
            ("valid_tokens", (self.valid_tokens < 0) | (self.valid_tokens > self.limits), "0 … limit"),
            ("ends", (self.ends < 0) & (self.blocks > 0) | (self.ends >= np.maximum(self.blocks, 1)), "a known block"),
        ):
            if bad.any():
                i = int(bad.argmax())
                raise ProfileError(f"{name} of request {self.id_of(i)!r} must be {rule}, got {getattr(self, name)[i]}")
        if len(self.steps) and (self.steps.min() < 1 or self.steps.max() > length + 1):
            raise ProfileError(
                f"steps of a block must be in 1 … {length + 1}, got {self.steps.min()} … {self.steps.max()}"
            )

    def __len__(self) -> int:
        return len(self.prompt_tokens)

    # ----------------------------------------------------------------------------------------- access

    def id_of(self, index: int) -> str:
        return self.ids[index] if self.ids is not None else str(index)

    @cached_property
    def _places(self) -> Mapping[str, int]:
        return {name: i for i, name in enumerate(self.ids or ())}

    def index_of(self, request_id: str) -> int:
        return self._places[request_id] if self.ids is not None else int(request_id)

    @cached_property
    def canvas(self) -> IntArray:
        """K of each request: int [N]."""
        return -(-self.limits // self.block_length)

    @cached_property
    def first_block(self) -> IntArray:
        """Where each request's blocks start in ``steps``: int [N + 1]."""
        return np.concatenate([[0], np.cumsum(self.blocks, dtype=np.int64)])

    @cached_property
    def first_step(self) -> IntArray:
        """Where each block's steps start in ``commits`` and ``valid``: int [B + 1]."""
        return np.concatenate([[0], np.cumsum(self.steps, dtype=np.int64)])

    def commits_of(self, index: int, block: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """(commits, valid) of each step of one block."""
        place = int(self.first_block[index]) + block
        if self.commits is not None and self.valid is not None:
            steps = slice(int(self.first_step[place]), int(self.first_step[place + 1]))
            return tuple(self.commits[steps].tolist()), tuple(self.valid[steps].tolist())
        return even_commits(self.block_length, int(self.steps[place]), self.valid_in(index, block))

    def valid_in(self, index: int, block: int) -> int:
        """Valid tokens in one block."""
        return min(max(int(self.valid_tokens[index]) - block * self.block_length, 0), self.block_length)

    # ----------------------------------------------------------------------------------- constructors

    @classmethod
    def from_trace(cls, trace: Trace) -> Profile:
        """What was recorded at trace level ``cycle`` or ``token``.

        Requests that never ran are left out; cancelled and failed ones keep their recorded life. Under eos
        ``settled`` what a row would write after its end token is not known, and the profile ends there. Raises
        `TraceError` for a trace without cycles, without its manifest, or with requests that did not end.
        """
        from blockserve.simulation.recorded import profile_of  # it builds on this module

        return profile_of(trace)

    @classmethod
    def synthetic(
        cls,
        prompt_tokens: IntArray,
        output_tokens: IntArray,
        limit: int,
        *,
        block_length: int = 32,
        steps: StepDistribution | None = None,
        runaways: float = 0.0,
        arrivals: NDArray[np.float64] | None = None,
        seed: int = 0,
        name: str = "synthetic",
    ) -> Profile:
        """Requests of given lengths: int [N] each, all with the same ``limit``.

        An output of ``n < limit`` tokens is followed by its end token, so it ends in block ``n // L``; longer ones
        stop at the limit. ``runaways``: share of requests that never write an end token, whatever their length.
        ``steps``: how many each block takes. All K blocks are drawn, so the profile
        serves every eos mode; which steps a block takes does not depend on it.
        """
        rng = np.random.default_rng(seed)
        check_int("limit", limit, 1)
        if not 0 <= runaways <= 1:
            raise ConfigError(f"runaways is a share and must be in [0, 1], got {runaways!r}")
        prompts, outputs = np.asarray(prompt_tokens), np.minimum(output_tokens, limit)
        if runaways:
            outputs = np.where(rng.random(len(outputs)) < runaways, limit, outputs)
        canvas = -(-limit // block_length)
        ended = outputs < limit
        count = len(prompts)
        return cls(
            block_length=block_length,
            prompt_tokens=prompts.astype(np.int32),
            limits=np.full(count, limit, np.int32),
            blocks=np.full(count, canvas, np.int32),
            ends=np.where(ended, outputs // block_length, canvas - 1).astype(np.int32),
            valid_tokens=outputs.astype(np.int32),
            reasons=np.where(ended, REASONS.index("eos"), REASONS.index("length")).astype(np.int8),
            arrivals=np.zeros(count) if arrivals is None else np.asarray(arrivals, np.float64),
            steps=(steps or StepDistribution()).draw(rng, count * canvas, block_length),
            name=name,
        )


@dataclass(frozen=True)
class StepDistribution:
    """Denoise steps of a block: normal with ``mean`` and ``spread``, rounded, cut to 1 … block length.

    Drawn for every row and block on its own: a cycle lasts as long as its slowest row.
    """

    mean: float = 14.0
    spread: float = 0.0

    def __post_init__(self) -> None:
        if not (np.isfinite(self.mean) and self.mean >= 1 and np.isfinite(self.spread) and self.spread >= 0):
            raise ConfigError(f"steps need a mean of at least 1 and a spread of at least 0, got {self!r}")

    def draw(self, rng: np.random.Generator, count: int, block_length: int) -> NDArray[np.uint8]:
        """Steps of ``count`` blocks: int [count]."""
        if not self.spread:
            return np.full(count, min(round(self.mean), block_length), np.uint8)
        drawn = rng.normal(self.mean, self.spread, count).round()
        return drawn.clip(1, block_length).astype(np.uint8 if block_length < 255 else np.int32)


def even_commits(length: int, steps: int, valid: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """``length`` commits spread evenly over ``steps``, and ``valid`` of them valid, in the same proportion.

    A block may take one step more than it has positions (Dream commits one position in step 0); that many steps
    then commit one position each, and the last of them none.
    """
    upto = [(i * length + steps - 1) // steps for i in range(steps + 1)]
    good = [u * valid // length for u in upto]
    return (
        tuple(b - a for a, b in pairwise(upto)),
        tuple(b - a for a, b in pairwise(good)),
    )
