"""Training rows, laid out as the engine will show them.

A row is ``[prompt][finished blocks][active block][0, 1 or all remaining blocks, masked]``, left-padded to the
micro-batch's width; positions count the row's own tokens from 0, and pads are invisible as keys. The canvas is
the answer, padded with end tokens to whole blocks. There are two kinds of rows:

* *cycle* rows follow the engine's block cycle: a refresh pass with the active block fully masked, then a reuse
  pass of the block alone, partly masked, against the keys and values of the refresh pass. The model so learns
  with the stale cache it will be decoded with. Both passes give a loss.
* *free* rows have masks anywhere in the answer up to the active block, in one pass: several times the signal.
  Some of them hide tokens by kind, every occurrence at once: a number that stands twice, as the result of one step
  and the start of the next, can then not be copied and must be worked out.

Under Dream's shifted prediction the reuse pass always shows the block's first token, as step 0 has committed it.

A batch is a pure function of (recipe, step): a resumed run sees what an uninterrupted one would have seen.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from tokenizers import Tokenizer
from torch import Tensor

from blockserve.core import InvalidRequestError
from blockserve.geometry import num_blocks
from blockserve.training.recipes import Phase, Recipe
from blockserve.training.tokenizer import EOS, MASK
from blockserve.workload.problems import Split, stream
from blockserve.workload.tasks import TASKS


@dataclass(frozen=True)
class Row:
    """One training row before padding; all arrays have its length, offsets count from its first token.

    ``shown``: ids the model sees; ``truth``: ids behind them; ``start``: offset of the active block.
    ``block_shown`` [L]: the active block as the reuse pass shows it (cycle rows only).
    """

    shown: np.ndarray
    truth: np.ndarray
    start: int
    block_length: int
    loss_at: np.ndarray
    block_shown: np.ndarray | None = None

    @property
    def block(self) -> slice:
        """The active block."""
        return slice(self.start, self.start + self.block_length)


@dataclass(frozen=True)
class Reuse:
    """The second pass of cycle rows: ``columns``, ``ids``, ``targets`` and ``weight`` are all [rows, L]."""

    columns: Tensor
    ids: Tensor
    targets: Tensor
    weight: Tensor


@dataclass(frozen=True)
class MicroBatch:
    """Rows of one forward, left-padded: all tensors are [rows, width]; ``weight`` is 0 where there is no loss.

    Weights of all micro-batches of a batch sum to 1.
    """

    ids: Tensor
    positions: Tensor
    visible: Tensor
    targets: Tensor
    weight: Tensor
    reuse: Reuse | None = None


class RowSource:
    """Draws rows of a recipe's tasks and collates them."""

    def __init__(self, recipe: Recipe, tokenizer: Tokenizer, split: Split = "train") -> None:
        self.recipe, self.tokenizer, self.split = recipe, tokenizer, split
        self.eos, self.mask = tokenizer.token_to_id(EOS), tokenizer.token_to_id(MASK)
        self.families = [TASKS[name] for name in recipe.tasks]
        self.shifted = recipe.model_config().shifted

    def batch(self, step: int) -> list[MicroBatch]:
        """The micro-batches of training step ``step``."""
        r = self.recipe
        rng = np.random.default_rng([r.seed, step, int(self.split == "test")])
        free = round(r.batch_rows * r.free_share)
        phase = r.phase(step)
        by_kind = round(free * phase.by_kind)
        rows = [self.free_row(rng, phase, by_kind=i < by_kind) for i in range(free)]
        length = self._block_length(rng)  # one block length an engine, so one for all rows of a reuse pass
        cycle = [self.cycle_row(rng, phase, length) for _ in range(r.batch_rows - free)]
        groups = [*_alike(rows, r.micro_rows), *_alike(cycle, r.micro_rows)]
        scale = sum(np.sqrt(m) for group in groups for row in group for m in self._mask_counts(row))
        return [self.collate(group, float(scale)) for group in groups]

    def free_row(self, rng: np.random.Generator, phase: Phase, *, by_kind: bool = False) -> Row:
        """A row with masks anywhere in its blocks up to the active one; late blocks are likelier: more to learn."""
        length = self._block_length(rng)
        prompt, canvas, block = self._draw(rng, phase, length, late=True)
        shown_blocks = canvas[: (block + 1) * length]
        masked = self._some_kinds(rng, shown_blocks) if by_kind else self._some(rng, len(shown_blocks))
        truth, suffix = self._row_ids(rng, prompt, canvas, block, length)
        loss_at = np.concatenate([np.zeros(len(prompt), bool), masked, np.zeros(suffix, bool)])
        hidden = loss_at.copy()
        hidden[len(truth) - suffix :] = True
        shown = np.where(hidden, self.mask, truth)
        return Row(shown, truth, len(prompt) + block * length, length, loss_at)

    def cycle_row(self, rng: np.random.Generator, phase: Phase, length: int) -> Row:
        """A row of the engine's block cycle: everything from the active block on is masked in the refresh pass."""
        prompt, canvas, block = self._draw(rng, phase, length, late=False)
        truth, _ = self._row_ids(rng, prompt, canvas, block, length)
        start = len(prompt) + block * length
        shown = np.where(np.arange(len(truth)) >= start, self.mask, truth)
        loss_at = np.zeros(len(truth), bool)
        loss_at[start : start + length] = True
        first = int(self.shifted)
        masked = np.concatenate([np.zeros(first, bool), self._some(rng, length - first)])
        block_shown = np.where(masked, self.mask, truth[start : start + length])
        return Row(shown, truth, start, length, loss_at, block_shown)

    def _draw(
        self, rng: np.random.Generator, phase: Phase, length: int, late: bool
    ) -> tuple[np.ndarray, np.ndarray, int]:
        """A problem as prompt ids, canvas ids [K * L] and the index of its active block."""
        family = self.families[int(rng.choice(len(self.families), p=phase.task_odds))]
        problem = next(stream(family, rng, self.split))
        prompt = np.array(self.tokenizer.encode(problem.prompt).ids, dtype=np.int64)
        answer = self.tokenizer.encode(problem.answer).ids
        limit = family.max_new_tokens
        if len(answer) > limit:
            raise InvalidRequestError(f"an answer of {family.name} has {len(answer)} tokens, more than its {limit}")
        blocks = num_blocks(limit, length)
        canvas = np.full(blocks * length, self.eos, dtype=np.int64)
        canvas[: len(answer)] = answer
        used = min(blocks, num_blocks(len(answer) + 1, length))  # up to the block that holds the end token
        if used < blocks and rng.random() < self.recipe.after_end:
            return prompt, canvas, int(rng.integers(used, blocks))
        block = int(rng.integers(used))
        return prompt, canvas, max(block, int(rng.integers(used))) if late else block

    def _row_ids(self, rng, prompt, canvas, block, length) -> tuple[np.ndarray, int]:
        """True ids of the whole row, and how many of them are suffix (none, one block, or all that remain)."""
        rest = len(canvas) // length - 1 - block
        kept = (0, min(1, rest), rest)[int(rng.choice(3, p=self.recipe.suffix_odds))]
        return np.concatenate([prompt, canvas[: (block + 1 + kept) * length]]), kept * length

    def _some(self, rng: np.random.Generator, n: int) -> np.ndarray:
        """At least one of ``n`` positions, at a ratio drawn uniformly; now and then all of them."""
        count = n if rng.random() < self.recipe.fully_masked else int(rng.integers(1, n + 1))
        chosen = np.zeros(n, bool)
        chosen[rng.permutation(n)[:count]] = True
        return chosen

    def _some_kinds(self, rng: np.random.Generator, ids: np.ndarray) -> np.ndarray:
        """Every position of some of the distinct tokens in ``ids``."""
        kinds = np.unique(ids)
        return np.isin(ids, kinds[self._some(rng, len(kinds))])

    def _block_length(self, rng: np.random.Generator) -> int:
        return int(rng.choice(self.recipe.block_lengths, p=self.recipe.block_odds))

    def _mask_counts(self, row: Row) -> list[int]:
        counts = [int(row.loss_at.sum())]
        return counts if row.block_shown is None else [*counts, int((row.block_shown == self.mask).sum())]

    def collate(self, rows: Sequence[Row], scale: float) -> MicroBatch:
        """Left-pad ``rows`` to their widest. A row's loss weighs 1/sqrt(masks) a mask, divided by ``scale``."""
        width = max(len(row.shown) for row in rows)
        shape = (len(rows), width)
        ids, targets = np.full(shape, self.eos), np.full(shape, self.eos)
        visible, weight = np.zeros(shape, bool), np.zeros(shape, np.float32)
        for i, row in enumerate(rows):
            pad = width - len(row.shown)
            ids[i, pad:], targets[i, pad:], visible[i, pad:] = row.shown, row.truth, True
            weight[i, pad:] = row.loss_at / (np.sqrt(row.loss_at.sum()) * scale)
        positions = np.maximum(visible.cumsum(1) - 1, 0)
        tensors = [torch.from_numpy(a) for a in (ids, positions, visible, targets, weight)]
        return MicroBatch(*tensors, reuse=self._reuse(rows, width, scale))

    def _reuse(self, rows: Sequence[Row], width: int, scale: float) -> Reuse | None:
        if rows[0].block_shown is None:
            return None
        columns = np.stack([np.arange(row.block_length) + row.start + width - len(row.shown) for row in rows])
        ids = np.stack([row.block_shown for row in rows])
        targets = np.stack([row.truth[row.block] for row in rows])
        masked = ids == self.mask
        weight = (masked / (np.sqrt(masked.sum(1, keepdims=True)) * scale)).astype(np.float32)
        return Reuse(*(torch.from_numpy(a) for a in (columns, ids, targets, weight)))


def _alike(rows: Sequence[Row], size: int) -> list[list[Row]]:
    """Groups of at most ``size`` rows, alike in width."""
    ordered = sorted(rows, key=lambda row: len(row.shown))
    return [ordered[i : i + size] for i in range(0, len(ordered), size)]
