"""BERT-style masked language models as transformers saves them: `BertForMaskedLM` and models that extend it.

They were trained to fill masks, not to write block by block, and know no end of text: special tokens are banned, and
a request runs to its limit. The pooler and heads for other questions are passed over.
"""

from __future__ import annotations

from pathlib import Path

import torch
from transformers import BertConfig

from blockserve.checkpoints.format import ConfigReader, find_mask_id
from blockserve.checkpoints.tokenizer import FastTokenizer
from blockserve.checkpoints.weights import assign, missing_key, tensors, unexpected_key, weight_files
from blockserve.core import CheckpointError
from blockserve.execution.bert import BertNetwork
from blockserve.execution.model import DiffusionModel

MASK = "[MASK]"
HEAD = "cls.predictions."
DECODER_KEY = f"{HEAD}decoder.weight"


def load_bert(
    name: str,
    folder: Path,
    reader: ConfigReader,
    tokenizer: FastTokenizer | None,
    device: torch.device,
    dtype: torch.dtype,
) -> DiffusionModel:
    """The model in ``folder``. Raises `CheckpointError` naming the file and the field or key."""
    config = read_config(reader)
    mask_id = find_mask_id(reader, tokenizer, MASK)
    eos = reader.get("eos_token_id", [])  # a model fine-tuned to end its text says by which token
    ends = (eos,) if isinstance(eos, int) else tuple(eos)
    return DiffusionModel(
        name=name,
        network=_load_network(folder, reader, config, device, dtype),
        tokenizer=tokenizer,
        mask_id=mask_id,
        end_ids=ends,
        pad_id=config.pad_token_id,
        context=config.max_position_embeddings,
        banned_ids=_banned_ids(config, {mask_id, config.pad_token_id}, tokenizer, ends),
    )


def read_config(config: ConfigReader) -> BertConfig:
    """Only what shapes the network; sizes must be stated, the rest has BERT's own defaults."""
    if config.get("position_embedding_type", "absolute") != "absolute":
        kind = config["position_embedding_type"]
        raise CheckpointError(f"{config.path}: position_embedding_type must be 'absolute', got {kind!r}")
    if config.get("is_decoder", False):
        raise CheckpointError(f"{config.path}: is_decoder is true; a masked language model sees both sides")
    return BertConfig(
        vocab_size=config["vocab_size"],
        hidden_size=config["hidden_size"],
        num_hidden_layers=config["num_hidden_layers"],
        num_attention_heads=config["num_attention_heads"],
        intermediate_size=config["intermediate_size"],
        max_position_embeddings=config["max_position_embeddings"],
        type_vocab_size=config.get("type_vocab_size", 2),
        hidden_act=config.get("hidden_act", "gelu"),
        layer_norm_eps=config.get("layer_norm_eps", 1e-12),
        pad_token_id=config.get("pad_token_id", 0),
        tie_word_embeddings=False,  # two parameters while loading; a tied checkpoint has one key or two equal ones
    )


def parameter_name(key: str) -> str | None:
    """The network's name for a checkpoint's key; ``None`` for what filling masks does not need.

    Checkpoints converted from TensorFlow call a norm's weight and bias gamma and beta.
    """
    key = key.replace("LayerNorm.gamma", "LayerNorm.weight").replace("LayerNorm.beta", "LayerNorm.bias")
    other_head = key.startswith("cls.") and not key.startswith(HEAD)
    if other_head or key.startswith("bert.pooler.") or key == "bert.embeddings.position_ids":
        return None
    return f"{HEAD}decoder.bias" if key == f"{HEAD}bias" else key


def _load_network(
    folder: Path, reader: ConfigReader, config: BertConfig, device: torch.device, dtype: torch.dtype
) -> BertNetwork:
    try:
        with torch.device("meta"):
            network = BertNetwork(config)
    except (ValueError, KeyError) as error:  # heads that do not divide the width, an activation nobody knows
        raise CheckpointError(f"{reader.path}: no BERT can have this shape ({error})") from None
    missing = {name for name, _ in network.named_parameters()}
    known = frozenset(missing)
    for path in weight_files(folder):
        for key, tensor in tensors(path):
            name = parameter_name(key)
            if name is None:
                continue
            if name not in known:
                raise unexpected_key(path, key)
            assign(network, name, tensor, device, dtype, f"{path}: the key {key!r}")
            missing.discard(name)
    tied = DECODER_KEY in missing and reader.get("tie_word_embeddings", True)
    if missing := missing - {DECODER_KEY} if tied else missing:
        raise missing_key(folder, missing)
    if tied:
        network.cls.predictions.decoder.weight = network.embed.weight
    return network.eval().requires_grad_(False)


def _banned_ids(
    config: BertConfig, special: set[int], tokenizer: FastTokenizer | None, ends: tuple[int, ...]
) -> tuple[int, ...]:
    """Special tokens, and rows of the head that stand for no token; never those that end a text."""
    if tokenizer is not None:
        special = special | tokenizer.special_ids() | (set(range(config.vocab_size)) - tokenizer.known_ids())
    return tuple(sorted(special - set(ends)))
