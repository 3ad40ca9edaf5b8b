"""A second, independent oracle: the same random weights in transformers' own Llama and Qwen2, made bidirectional."""

from __future__ import annotations

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM, Qwen2Config, Qwen2ForCausalLM

from blockserve.core import BatchPlan, RowPlan
from blockserve.execution.layout import Layout
from blockserve.execution.model import BidirectionalTransformer, ModelConfig

SHAPE = dict(vocab_size=97, hidden_size=48, num_hidden_layers=3, num_attention_heads=6, intermediate_size=80)


def reference(family: str, kv_heads: int, seed: int = 3):
    """A random transformers model of the family, with eager attention."""
    torch.manual_seed(seed)
    options = dict(num_key_value_heads=kv_heads, rope_theta=1e4, rms_norm_eps=1e-5, tie_word_embeddings=False)
    options |= dict(attn_implementation="eager", max_position_embeddings=256)
    config, model = {"llama": (LlamaConfig, LlamaForCausalLM), "qwen2": (Qwen2Config, Qwen2ForCausalLM)}[family]
    made = model(config(**SHAPE, **options)).eval()
    for name, parameter in made.named_parameters():  # biases start at zero: make every weight count
        scale = 0.4 if name.endswith("bias") else 0.15
        torch.nn.init.normal_(parameter, mean=1.0 if "norm" in name else 0.0, std=scale)
    return made


def ours_with_weights_of(theirs, kv_heads: int, bias: bool) -> BidirectionalTransformer:
    config = ModelConfig(97, 48, 3, 6, kv_heads, 80, 8, 1e4, 1e-5, 256, qkv_bias=bias)
    ours = BidirectionalTransformer(config).eval()
    rename = {
        "model.embed_tokens": "embed",
        "model.norm": "norm",
        "model.layers": "layers",
        "self_attn": "attention",
        "input_layernorm": "input_norm",
        "post_attention_layernorm": "mlp_norm",
    }
    weights = {}
    for key, value in theirs.state_dict().items():
        for old, new in rename.items():
            key = key.replace(old, new)
        weights[key] = value
    ours.load_state_dict(weights, strict=True)
    return ours


@torch.no_grad()
@pytest.mark.parametrize(("family", "kv_heads", "bias"), [("llama", 6, False), ("llama", 2, False), ("qwen2", 3, True)])
@pytest.mark.parametrize("lengths", [(31, 31, 31), (31, 9, 17), (5, 40, 1)])
def test_logits_equal_transformers_with_an_additive_mask(family, kv_heads, bias, lengths, record_count):
    theirs = reference(family, kv_heads)
    ours = ours_with_weights_of(theirs, kv_heads, bias)
    width = max(lengths)
    rows = tuple(RowPlan(str(i), i, 0, 1, n - 1, 0, n) for i, n in enumerate(lengths))
    layout = Layout.of(BatchPlan(0, rows, width, None), 1, torch.device("cpu"))
    ids = torch.randint(0, 97, (len(lengths), width), generator=torch.Generator().manual_seed(1))

    mask = torch.zeros(len(lengths), 1, width, width)
    for i, n in enumerate(lengths):
        mask[i, :, :, : width - n] = -torch.inf
    # a query at a pad sees the row's tokens in ours; in theirs any finite row of the mask does, so use the same
    expected = theirs(ids, attention_mask=mask, position_ids=layout.positions, use_cache=False).logits
    got = ours.head(ours(ids, layout.positions, layout.visible))
    assert torch.isfinite(got).all()
    for i, n in enumerate(lengths):
        torch.testing.assert_close(got[i, width - n :], expected[i, width - n :], rtol=1e-4, atol=1e-4)
    record_count("rows against transformers' own models", len(lengths))


@torch.no_grad()
@pytest.mark.parametrize("extra", [0, 1, 13])
def test_extra_left_padding_and_poisoned_pads_change_nothing(extra):
    """Same logits unpadded, left-padded, and with any ids under the pads."""
    ours = ours_with_weights_of(reference("qwen2", 3), 3, True)
    ids = torch.randint(0, 97, (1, 23), generator=torch.Generator().manual_seed(2))
    alone = ours.head(ours(ids, torch.arange(23)[None]))
    width = 23 + extra
    layout = Layout.of(BatchPlan(0, (RowPlan("a", 0, 0, 1, 22, 0, 23),), width, None), 1, torch.device("cpu"))
    for poison in (0, 41, 96):
        padded = torch.full((1, width), poison)
        padded[:, extra:] = ids
        got = ours.head(ours(padded, layout.positions, layout.visible))[:, extra:]
        torch.testing.assert_close(got, alone, rtol=1e-4, atol=1e-4)
    assert layout.positions[0, extra:].tolist() == list(range(23))
