"""How much memory a cell of the box takes, and the token budget that follows from what is free."""

from __future__ import annotations

import psutil
import torch

from blockserve.execution.model import DiffusionModel

CAP_ROWS = 8  # on a CPU memory is rarely the limit: the cap is this many rows of the whole context
SHARE = 0.5  # of the free memory; the rest is for weights of others, fragmentation, the notebook


def bytes_per_cell(model: DiffusionModel, block_length: int) -> float:
    """Bytes one token of the box needs at the peak of a cycle: KV of all layers, one layer's activations, and its
    share of the block's logits (float64 in the softmax), spread over the narrowest row, which is one block."""
    config, size = model.network.config, model.dtype.itemsize
    kv = 2 * config.num_layers * config.num_kv_heads * config.head_dim * size
    activations = (6 * config.hidden_size + 3 * config.intermediate_size) * size
    logits = 3 * 8 * config.vocab_size * block_length / (2 * block_length)
    return kv + activations + logits


def auto_budget(model: DiffusionModel, block_length: int) -> int:
    """β in tokens: what half of the free memory holds, at most eight rows of the whole context on a CPU."""
    if model.device.type == "cuda":
        return max(1, int(torch.cuda.mem_get_info(model.device)[0] * SHARE / bytes_per_cell(model, block_length)))
    free = psutil.virtual_memory().available
    return max(1, min(int(free * SHARE / bytes_per_cell(model, block_length)), CAP_ROWS * model.context))
