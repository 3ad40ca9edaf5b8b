"""Dream-v0-Instruct-7B and DiffuCoder: Qwen2's names and shapes, with Dream's shifted prediction."""

from __future__ import annotations

from typing import Any

from blockserve.checkpoints.format import ConfigReader, Format
from blockserve.execution.model import ModelConfig

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
