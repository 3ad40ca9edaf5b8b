"""Dream-v0-Instruct-7B and DiffuCoder: Qwen2's names and shapes, with Dream's shifted prediction."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from blockserve.checkpoints.format import ConfigReader, Format
from blockserve.checkpoints.weights import save_checkpoint
from blockserve.core import ConfigError
from blockserve.execution.model import BidirectionalTransformer, ModelConfig

# The config says 131,072 positions; the model was trained for 2,048.
TRAINED_POSITIONS = 2048


def shape_fields(config: ConfigReader) -> dict[str, Any]:
    """What Dream, Qwen2, Qwen3 and Llama call alike, as arguments of `ModelConfig`."""
    hidden, heads = config["hidden_size"], config["num_attention_heads"]
    return {
        "vocab_size": config["vocab_size"],
        "hidden_size": hidden,
        "num_layers": config["num_hidden_layers"],
        "num_heads": heads,
        "num_kv_heads": config.get("num_key_value_heads", heads),
        "intermediate_size": config["intermediate_size"],
        "head_dim": config.get("head_dim", hidden // heads),
        "rms_norm_eps": float(config["rms_norm_eps"]),
        "tied_head": bool(config.get("tie_word_embeddings", False)),
    }


def read_config(config: ConfigReader) -> ModelConfig:
    """Qwen2's field names; biases on q, k and v, none on o."""
    return ModelConfig(
        **shape_fields(config),
        rope_theta=float(config["rope_theta"]),
        max_positions=min(config["max_position_embeddings"], TRAINED_POSITIONS),
        qkv_bias=True,
        shifted=True,
    )


def write_config(model: ModelConfig, *, mask_id: int, eos_id: int, pad_id: int) -> dict[str, Any]:
    """The fields that `read_config` and the original implementation read, for saving a model in this format.

    Raises `ConfigError` for a model that this format cannot say.
    """
    if not (model.shifted and model.qkv_bias) or model.qk_norm:
        raise ConfigError(
            "Dream's format holds models with shifted prediction, biases on q, k and v, and no norm on q and k; "
            f"got shifted={model.shifted}, qkv_bias={model.qkv_bias}, qk_norm={model.qk_norm}: choose another format"
        )
    return {
        "model_type": "Dream",
        "architectures": ["DreamModel"],
        "hidden_act": "silu",
        "vocab_size": model.vocab_size,
        "hidden_size": model.hidden_size,
        "num_hidden_layers": model.num_layers,
        "num_attention_heads": model.num_heads,
        "num_key_value_heads": model.num_kv_heads,
        "head_dim": model.head_dim,
        "intermediate_size": model.intermediate_size,
        "rope_theta": model.rope_theta,
        "rms_norm_eps": model.rms_norm_eps,
        "max_position_embeddings": model.max_positions,
        "tie_word_embeddings": model.tied_head,
        "mask_token_id": mask_id,
        "eos_token_id": eos_id,
        "pad_token_id": pad_id,
    }


DREAM = Format(
    model_types=("Dream", "dream"),
    read_config=read_config,
    layer_keys={
        "input_norm": "model.layers.{}.input_layernorm",
        "mlp_norm": "model.layers.{}.post_attention_layernorm",
        "attention.q_proj": "model.layers.{}.self_attn.q_proj",
        "attention.k_proj": "model.layers.{}.self_attn.k_proj",
        "attention.v_proj": "model.layers.{}.self_attn.v_proj",
        "attention.o_proj": "model.layers.{}.self_attn.o_proj",
        "mlp.gate_proj": "model.layers.{}.mlp.gate_proj",
        "mlp.up_proj": "model.layers.{}.mlp.up_proj",
        "mlp.down_proj": "model.layers.{}.mlp.down_proj",
    },
    keys={"embed": "model.embed_tokens", "norm": "model.norm", "lm_head": "lm_head"},
)


def save(
    model: BidirectionalTransformer, folder: Path, *, mask_id: int, eos_id: int, pad_id: int, dtype: torch.dtype
) -> None:
    """Write ``config.json`` and ``model.safetensors`` in Dream's format (the tokenizer is the caller's)."""
    config = write_config(model.config, mask_id=mask_id, eos_id=eos_id, pad_id=pad_id)
    save_checkpoint(model, folder, DREAM, config, dtype)
