"""LLaDA-8B-Instruct, LLaDA-1.5 and our tiny-llada: config fields and weight keys."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from blockserve.checkpoints.format import ConfigReader, Format
from blockserve.checkpoints.weights import save_checkpoint
from blockserve.execution.model import BidirectionalTransformer, ModelConfig


def read_config(config: ConfigReader) -> ModelConfig:
    """LLaDA's own field names. The embedding can have more rows than the tokenizer has tokens."""
    hidden, heads = config["d_model"], config["n_heads"]
    return ModelConfig(
        vocab_size=config.get("embedding_size", config["vocab_size"]),
        hidden_size=hidden,
        num_layers=config["n_layers"],
        num_heads=heads,
        num_kv_heads=config.get("n_kv_heads", heads),
        intermediate_size=config["mlp_hidden_size"],
        head_dim=hidden // heads,
        rope_theta=float(config["rope_theta"]),
        rms_norm_eps=float(config["rms_norm_eps"]),
        max_positions=config["max_sequence_length"],
        qkv_bias=bool(config.get("include_qkv_bias", False)),
        tied_head=bool(config.get("weight_tying", False)),
    )


def write_config(model: ModelConfig, *, mask_id: int, eos_id: int, pad_id: int) -> dict[str, Any]:
    """The fields that `read_config` and the original implementation read, for saving a model in this format."""
    return {
        "model_type": "llada",
        "architectures": ["LLaDAModelLM"],
        "block_type": "llama",
        "activation_type": "silu",
        "layer_norm_type": "rms",
        "rope": True,
        "include_bias": False,
        "vocab_size": model.vocab_size,
        "embedding_size": model.vocab_size,
        "d_model": model.hidden_size,
        "n_layers": model.num_layers,
        "n_heads": model.num_heads,
        "n_kv_heads": model.num_kv_heads,
        "mlp_hidden_size": model.intermediate_size,
        "rope_theta": model.rope_theta,
        "rms_norm_eps": model.rms_norm_eps,
        "max_sequence_length": model.max_positions,
        "include_qkv_bias": model.qkv_bias,
        "weight_tying": model.tied_head,
        "mask_token_id": mask_id,
        "eos_token_id": eos_id,
        "pad_token_id": pad_id,
    }


LLADA = Format(
    model_types=("llada",),
    read_config=read_config,
    layer_keys={
        "input_norm": "model.transformer.blocks.{}.attn_norm",
        "mlp_norm": "model.transformer.blocks.{}.ff_norm",
        "attention.q_proj": "model.transformer.blocks.{}.q_proj",
        "attention.k_proj": "model.transformer.blocks.{}.k_proj",
        "attention.v_proj": "model.transformer.blocks.{}.v_proj",
        "attention.o_proj": "model.transformer.blocks.{}.attn_out",
        "mlp.gate_proj": "model.transformer.blocks.{}.ff_proj",
        "mlp.up_proj": "model.transformer.blocks.{}.up_proj",
        "mlp.down_proj": "model.transformer.blocks.{}.ff_out",
    },
    keys={
        "embed": "model.transformer.wte",
        "norm": "model.transformer.ln_f",
        "lm_head": "model.transformer.ff_out",
    },
)


def save(
    model: BidirectionalTransformer, folder: Path, *, mask_id: int, eos_id: int, pad_id: int, dtype: torch.dtype
) -> None:
    """Write ``config.json`` and ``model.safetensors`` in LLaDA's format (the tokenizer is the caller's)."""
    config = write_config(model.config, mask_id=mask_id, eos_id=eos_id, pad_id=pad_id)
    save_checkpoint(model, folder, LLADA, config, dtype)
