"""One request's tokens, kept between cycles: what is written, where its valid output ends, what its user gets."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from blockserve.core import EndReason, Request

# (generated ids, stop strings) → tokens before the first stop string, None if there is none
FindStop = Callable[[Sequence[int], Sequence[str]], int | None]


@dataclass
class Canvas:
    """Prompt, then K·L positions, masks where nothing is committed yet (``ids``, int64 on the CPU).

    ``eos_offset``, ``stop_offset``: valid tokens before the first end token and before the first stop string, once
    known. A preempted request's canvas stays as it is.
    """

    request: Request
    ids: Tensor
    block_length: int
    eos_offset: int | None = None
    stop_offset: int | None = None

    @classmethod
    def of(cls, request: Request, blocks: int, block_length: int, mask_id: int) -> Canvas:
        """The empty canvas of a request with ``prompt_ids`` and a limit."""
        masks = [mask_id] * (blocks * block_length)
        return cls(request, torch.tensor([*request.prompt_ids, *masks]), block_length)

    @property
    def prompt_tokens(self) -> int:
        return len(self.request.prompt_ids)

    @property
    def limit(self) -> int:
        return self.request.max_new_tokens

    def start(self, block: int) -> int:
        """Where a block begins, counted from the first prompt token."""
        return self.prompt_tokens + block * self.block_length

    def write(self, block: int, tokens: Tensor, end: int, find_stop: FindStop | None) -> EndReason | None:
        """Put in a block's ``tokens`` [L]; ``end``: index of its end token, L if none. Returns why the valid output
        became complete just now, if it did."""
        self.ids[self.start(block) : self.start(block + 1)] = tokens
        if self.eos_offset is None and end < self.block_length:
            self.eos_offset = block * self.block_length + end
            self._find_stop(block, find_stop)
            return "eos"
        return "stop" if self._find_stop(block, find_stop) else None

    def _find_stop(self, block: int, find_stop: FindStop | None) -> bool:
        """Whether a stop string came up in the finished text for the first time."""
        if not self.request.stop or self.stop_offset is not None or find_stop is None:
            return False
        generated = self.ids[self.prompt_tokens :][: self.valid_tokens(block)].tolist()
        self.stop_offset = find_stop(generated, self.request.stop)
        return self.stop_offset is not None

    def valid_tokens(self, block: int) -> int:
        """Valid tokens when ``block`` is written: before the first end token and stop string, within the limit."""
        written = min((block + 1) * self.block_length, self.limit)
        return min(x for x in (written, self.eos_offset, self.stop_offset) if x is not None)

    def output(self, mask_id: int, *, until_end: bool) -> tuple[int, ...]:
        """The generated tokens, at most the limit: up to the first mask, and with ``until_end`` no further than the
        end token."""
        if until_end and self.eos_offset is not None:
            return tuple(self.ids[self.prompt_tokens :][: self.eos_offset + 1].tolist())
        ids = self.ids[self.prompt_tokens :][: self.limit].tolist()
        return tuple(ids[: ids.index(mask_id)] if mask_id in ids else ids)
