"""Starting a model from another of its shape that reads other tokens."""

from __future__ import annotations

import torch
from tokenizers import Tokenizer
from torch import Tensor

from blockserve.core import ConfigError
from blockserve.execution.model import BidirectionalTransformer

BY_TOKEN = ("embed.weight", "lm_head.weight")


@torch.no_grad()
def warm_start(
    model: BidirectionalTransformer, tokenizer: Tokenizer, base: BidirectionalTransformer, base_tokenizer: Tokenizer
) -> None:
    """Copy ``base`` into ``model``, which may have another vocabulary.

    A token's embedding and its row of the head are those of the same token of ``base``, or the mean over the tokens
    that ``base`` writes its text with. Raises `ConfigError` where another weight differs in shape.
    """
    spelled = [_spelled(i, tokenizer, base_tokenizer) for i in range(model.config.vocab_size)]
    theirs = base.state_dict()
    for name, weight in model.state_dict().items():
        found = theirs.get(name)
        if found is not None and name in BY_TOKEN:
            found = torch.stack([_mean(found, ids) for ids in spelled])
        if found is None or found.shape != weight.shape:
            raise ConfigError(f"the base has another shape: {name} is {tuple(weight.shape)} here")
        weight.copy_(found)


def _spelled(token_id: int, tokenizer: Tokenizer, base_tokenizer: Tokenizer) -> list[int]:
    """Ids of the base tokenizer for one token."""
    token = tokenizer.id_to_token(token_id)
    same = base_tokenizer.token_to_id(token)
    return [same] if same is not None else base_tokenizer.encode(tokenizer.decode([token_id])).ids


def _mean(rows: Tensor, ids: list[int]) -> Tensor:
    return rows[ids].mean(0)
