"""Row width, bounding box and cost: the one place that knows Eq. 1 of the paper.

All lengths are in tokens. ``p``: prompt tokens, ``b``: block index, ``K``: blocks of the canvas, ``L``: block length.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from blockserve.core import Suffix


def num_blocks(max_new_tokens: int, block_length: int) -> int:
    """K = ceil(g / L)."""
    return -(-max_new_tokens // block_length)


def kept_suffix(suffix: Suffix, block: int, blocks: int) -> int:
    """Masked blocks shown after the active one: ``min(suffix, K - 1 - b)``."""
    rest = blocks - 1 - block
    return rest if suffix == "full" else min(suffix, rest)


def row_width(prompt_tokens: int, block: int, blocks: int, block_length: int, suffix: Suffix = 0) -> int:
    """w = p + (b + 1 + s) * L: prompt, finished blocks, active block and kept suffix (Eq. 1 with s = 0)."""
    return prompt_tokens + (block + 1 + kept_suffix(suffix, block, blocks)) * block_length


def largest_width(prompt_tokens: int, blocks: int, block_length: int) -> int:
    """The widest a row ever gets, ``p + K * L``, whatever the suffix."""
    return prompt_tokens + blocks * block_length


def largest_limit(prompt_tokens: int, tokens: int, block_length: int) -> int:
    """The largest ``g`` whose widest row fits in ``tokens``; 0 when not even one block does."""
    return max(0, (tokens - prompt_tokens) // block_length * block_length)


@dataclass(frozen=True)
class Box:
    """The bounding box of the dense batch: ``rows`` x ``width`` tokens."""

    rows: int = 0
    width: int = 0

    @classmethod
    def around(cls, widths: Iterable[int]) -> Box:
        """The box of rows with these widths."""
        widths = list(widths)
        return cls(len(widths), max(widths, default=0))

    def with_row(self, width: int) -> Box:
        """The box after one more row of ``width`` tokens entered."""
        return Box(self.rows + 1, max(self.width, width))

    @property
    def cost(self) -> int:
        """Cost(A) = |A| * max w (Eq. 1)."""
        return self.rows * self.width

    def __format__(self, spec: str) -> str:
        return f"{self.rows} × {self.width} = {self.cost}"


@dataclass(frozen=True)
class Geometry:
    """The widths of one engine's rows: its block length and suffix."""

    block_length: int
    suffix: Suffix = 0

    def blocks(self, max_new_tokens: int) -> int:
        return num_blocks(max_new_tokens, self.block_length)

    def width(self, prompt_tokens: int, block: int, blocks: int) -> int:
        return row_width(prompt_tokens, block, blocks, self.block_length, self.suffix)

    def suffix_blocks(self, block: int, blocks: int) -> int:
        return kept_suffix(self.suffix, block, blocks)

    def largest(self, prompt_tokens: int, blocks: int) -> int:
        return largest_width(prompt_tokens, blocks, self.block_length)
