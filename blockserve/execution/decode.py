"""Which masked positions become tokens: proposals from logits, and commit rules. Pure functions over [rows, L].

Nothing here knows of caches or schedules. Ties are settled alike in every batch shape: the lowest token id, the
lowest position.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from blockserve.core import CommitRule, Factor, Quota, Threshold


def propose(logits: Tensor, banned: Tensor, noise: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """The token each position would take and the confidence in it.

    ``logits`` [R, L, V] raw; ``banned`` int [n]: ids never chosen (the mask among them), kept in the softmax;
    ``noise`` [R, L, V] float64 is added to the choice only (sampling). Returns tokens int [R, L] (argmax, ties to
    the lowest id) and confidence float64 [R, L]: the softmax at temperature 1, in float64, at that token.
    """
    choice = logits if noise is None else logits.double() + noise
    tokens = choice.index_fill(-1, banned, -torch.inf).argmax(-1)
    wide = logits.double()
    confidence = (wide.gather(-1, tokens[..., None])[..., 0] - wide.logsumexp(-1)).exp()
    return tokens, confidence


def gumbel_noise(
    seeds: Sequence[int], temperatures: Sequence[float], blocks: Sequence[int], step: int, shape: tuple[int, int]
) -> Tensor | None:
    """Noise that makes `propose` sample at each row's temperature: [R, L, V] float64; ``None`` if all are greedy.

    ``shape`` is (L, V). Each row's stream is keyed by (request seed, block, step), so it does not depend on the
    batch. argmax(logits + T * gumbel) samples from softmax(logits / T).
    """
    if not any(temperatures):
        return None
    noise = np.zeros((len(seeds), *shape))
    for row, (seed, temperature, block) in enumerate(zip(seeds, temperatures, blocks, strict=True)):
        if temperature:
            noise[row] = temperature * np.random.default_rng((seed, block, step)).gumbel(size=shape)
    return torch.from_numpy(noise)


def commit(
    confidence: Tensor, masked: Tensor, rules: Sequence[CommitRule], step: int, *, first_only: bool = False
) -> Tensor:
    """Positions to fix in this step: bool [R, L], at least one in every row that has a mask.

    ``confidence`` float [R, L], ``masked`` bool [R, L], one rule a row, ``step`` counted from 0 within the block.
    ``first_only`` (Dream's shifted prediction): step 0 fixes exactly the block's first position, under any rule,
    and a quota spreads the other L - 1 over its remaining steps.
    """
    if first_only and step == 0:
        chosen = torch.zeros_like(masked)
        chosen[:, 0] = masked[:, 0]
        return chosen
    ranked = confidence.masked_fill(~masked, -torch.inf)
    order = ranked.sort(dim=1, descending=True, stable=True).indices
    place = torch.empty_like(order)
    place.scatter_(1, order, torch.arange(order.shape[1], device=order.device).expand_as(order).contiguous())
    counts = _counts(ranked.gather(1, order), rules, step, first_only)
    return (place < counts[:, None]) & masked


def _counts(ordered: Tensor, rules: Sequence[CommitRule], step: int, first_only: bool) -> Tensor:
    """How many of the most confident to fix, per row: int [R]. ``ordered``: confidences, descending, -inf unmasked."""
    length, device = ordered.shape[1], ordered.device
    counts = torch.ones(len(rules), dtype=torch.long, device=device)
    for kind in {type(rule) for rule in rules}:
        rows = [i for i, rule in enumerate(rules) if type(rule) is kind]
        index = torch.tensor(rows, device=device)
        mine, own = ordered[index], [rules[i] for i in rows]
        if kind is Threshold:
            found = (mine >= torch.tensor([r.tau for r in own], dtype=mine.dtype, device=device)[:, None]).sum(1)
        elif kind is Quota:
            found = torch.tensor([quota_count(r, length, step, first_only) for r in own], device=device)
        else:
            found = _factor_counts(mine, own)
        counts[index] = found.clamp(min=1)
    return counts


def quota_count(rule: Quota, length: int, step: int, first_only: bool) -> int:
    """Masks fixed in ``step`` when ``length`` are spread evenly, the remainder to the first steps."""
    steps = min(rule.steps or length, length)
    if first_only:  # step 0 fixed one position; at least one more pass follows
        length, steps, step = length - 1, max(min(steps, length) - 1, 1), step - 1
    return length // steps + (step < length % steps)


def _factor_counts(ordered: Tensor, rules: Sequence[Factor]) -> Tensor:
    """The largest n with (n + 1)(1 - c_n) ≤ f, where c_n is the n-th highest confidence: int [R]."""
    n = torch.arange(1, ordered.shape[1] + 1, device=ordered.device)
    factor = torch.tensor([r.factor for r in rules], dtype=ordered.dtype, device=ordered.device)
    holds = (n + 1) * (1 - ordered) <= factor[:, None]
    return (holds * n).amax(1)


def settled_end(tokens: Tensor, masked: Tensor, end_ids: Tensor) -> Tensor:
    """Index in the block of the first end token with no mask before it, ``L`` if none: int [R].

    ``tokens`` int [R, L], ``masked`` bool [R, L], ``end_ids`` int [n].
    """
    length = tokens.shape[1]
    place = torch.arange(length, device=tokens.device).expand_as(tokens)
    ends = torch.isin(tokens, end_ids) & ~masked
    first_end = place.masked_fill(~ends, length).amin(1)
    first_mask = place.masked_fill(~masked, length).amin(1)
    return first_end.masked_fill(first_mask < first_end, length)
