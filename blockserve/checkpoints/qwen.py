"""Bidirectional models made from Qwen2, Qwen3 or Llama (``a2d-qwen2``, ``a2d-qwen3``, ``a2d-llama``): their own
config fields and keys, positions predicted in place."""

from __future__ import annotations

from dataclasses import replace

from blockserve.checkpoints.dream import DREAM, shape_fields
from blockserve.checkpoints.format import ConfigReader, Format
from blockserve.execution.model import ModelConfig


def read_config(config: ConfigReader) -> ModelConfig:
    """Qwen3 has q/k norms and no qkv bias, Qwen2 the reverse, Llama neither; Qwen3's head is wider than d ÷ heads."""
    family = config["model_type"].removeprefix("a2d-")
    return ModelConfig(
        **shape_fields(config),
        rope_theta=float(config.get("rope_theta") or config["rope_parameters"]["rope_theta"]),
        max_positions=config["max_position_embeddings"],
        qkv_bias=family == "qwen2" or bool(config.get("attention_bias", False)),
        qk_norm=family == "qwen3",
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
