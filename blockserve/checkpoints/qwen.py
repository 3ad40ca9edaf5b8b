"""Bidirectional models made from Qwen2, Qwen3 or Llama (``a2d-qwen2``, ``a2d-qwen3``, ``a2d-llama``): their own
config fields and keys, positions predicted in place."""

from __future__ import annotations

from dataclasses import replace

from blockserve.checkpoints.dream import DREAM
from blockserve.checkpoints.format import ConfigReader, Format
from blockserve.execution.model import ModelConfig


def read_config(config: ConfigReader) -> ModelConfig:
    """Qwen3 has q/k norms and no qkv bias, Qwen2 the reverse, Llama neither; Qwen3's head is wider than d ÷ heads."""
    hidden, heads = config["hidden_size"], config["num_attention_heads"]
    family = config["model_type"].removeprefix("a2d-")
    return ModelConfig(
        vocab_size=config["vocab_size"],
        hidden_size=hidden,
        num_layers=config["num_hidden_layers"],
        num_heads=heads,
        num_kv_heads=config.get("num_key_value_heads", heads),
        intermediate_size=config["intermediate_size"],
        head_dim=config.get("head_dim", hidden // heads),
        rope_theta=float(config.get("rope_theta") or config["rope_parameters"]["rope_theta"]),
        rms_norm_eps=float(config["rms_norm_eps"]),
        max_positions=config["max_position_embeddings"],
        qkv_bias=family == "qwen2" or bool(config.get("attention_bias", False)),
        qk_norm=family == "qwen3",
        tied_head=bool(config.get("tie_word_embeddings", False)),
    )


QWEN: Format = replace(
    DREAM,
    model_types=("a2d-qwen2", "a2d-qwen3", "a2d-llama"),
    read_config=read_config,
    layer_keys={
        **DREAM.layer_keys,
        "attention.q_norm": "model.layers.{}.self_attn.q_norm",
        "attention.k_norm": "model.layers.{}.self_attn.k_norm",
    },
)
