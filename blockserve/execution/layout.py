"""From a plan to tensors: left padding, validity, positions, and the columns of each row's active block.

Rows are aligned at their right edge: row ``r`` of width ``w`` occupies columns ``W - w .. W - 1`` of the box.
Pads are known by lengths, never by token id.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from blockserve.core import BatchPlan


@dataclass(frozen=True)
class Layout:
    """Tensors of one cycle's box, ``R`` rows by ``W`` columns, block length ``L``.

    ``valid`` bool [R, W]: true where a row has a token. ``positions`` int [R, W]: 0 at a row's first token
    (cumulative sum of ``valid`` minus one, clamped to 0 at pads). ``block`` int [R, L]: columns of the active block.
    """

    valid: Tensor
    positions: Tensor
    block: Tensor

    @classmethod
    def of(cls, plan: BatchPlan, block_length: int, device: torch.device) -> Layout:
        width = plan.box_width
        offsets = torch.tensor([width - row.width for row in plan.rows], device=device)
        valid = torch.arange(width, device=device) >= offsets[:, None]
        positions = (valid.cumsum(1) - 1).clamp(min=0)
        starts = torch.tensor([width - (1 + row.suffix_blocks) * block_length for row in plan.rows], device=device)
        block = starts[:, None] + torch.arange(block_length, device=device)
        return cls(valid, positions, block)

    @property
    def visible(self) -> Tensor | None:
        """``valid`` as attention needs it: ``None`` when nothing is padded, so that unmasked kernels can run."""
        return None if bool(self.valid.all()) else self.valid

    def rows(self, keep: Tensor) -> Layout:
        """The layout of some rows (index tensor), over the same columns."""
        return Layout(self.valid[keep], self.positions[keep], self.block[keep])


def gather_columns(x: Tensor, columns: Tensor) -> Tensor:
    """``x`` [R, W, ...] at ``columns`` [R, C] → [R, C, ...]."""
    rows = torch.arange(columns.shape[0], device=x.device)[:, None]
    return x[rows, columns]
