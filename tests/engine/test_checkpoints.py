"""Folders in the real formats, written here: Dream's tokenizer files, Qwen2 and Qwen3 as bidirectional models."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file
from tokenizers import Tokenizer, models, pre_tokenizers, trainers
from transformers import LlamaConfig, LlamaForCausalLM, Qwen2Config, Qwen2ForCausalLM, Qwen3Config, Qwen3ForCausalLM

from blockserve import Engine, Request
from blockserve.checkpoints import dream, load_model
from blockserve.core import CheckpointError, ConfigError
from blockserve.execution.model import BidirectionalTransformer, ModelConfig

GOLDEN = Path(__file__).parents[1] / "golden"
GOLDEN_DREAM = GOLDEN / "dream_tiny" / "model.safetensors"  # two layers, in the keys of the original
FAMILIES = {
    "a2d-qwen2": (Qwen2Config, Qwen2ForCausalLM, {}),
    "a2d-qwen3": (Qwen3Config, Qwen3ForCausalLM, {"head_dim": 16}),
    "a2d-llama": (LlamaConfig, LlamaForCausalLM, {}),
}
SPECIALS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|mask|>")


def write_byte_pair(folder: Path, *, merged: bool) -> None:
    """A small Qwen2-style BPE: as ``tokenizer.json`` (merged) or as ``vocab.json``, ``merges.txt`` and a config."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    trainer = trainers.BpeTrainer(vocab_size=300, initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    tokenizer.train_from_iterator(["the quick brown fox jumps over the lazy dog"] * 3, trainer)
    if merged:
        tokenizer.add_special_tokens(list(SPECIALS))
        tokenizer.save(str(folder / "tokenizer.json"))
        return
    model = json.loads(tokenizer.to_str())["model"]
    (folder / "vocab.json").write_text(json.dumps(model["vocab"]))
    merges = [pair if isinstance(pair, str) else " ".join(pair) for pair in model["merges"]]
    (folder / "merges.txt").write_text("#version: 0.2\n" + "\n".join(merges) + "\n")
    size = len(model["vocab"])
    added = {str(size + i): {"content": token, "special": True} for i, token in enumerate(SPECIALS)}
    (folder / "tokenizer_config.json").write_text(
        json.dumps({"tokenizer_class": "DreamTokenizer", "added_tokens_decoder": added, "eos_token": SPECIALS[0]})
    )


def write_qwen_folder(folder: Path, family: str, *, tied: bool) -> torch.nn.Module:
    """A folder as the public checkpoints of this kind look; returns the transformers model of the same weights."""
    config_class, model_class, extra = FAMILIES[family]
    torch.manual_seed(5)
    config = config_class(
        vocab_size=320, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
        intermediate_size=48, max_position_embeddings=256, rms_norm_eps=1e-6, tie_word_embeddings=tied,
        attn_implementation="eager", **extra,
    )  # fmt: skip
    model = model_class(config).eval()
    for name, parameter in model.named_parameters():
        torch.nn.init.normal_(parameter, mean=1.0 if "norm" in name else 0.0, std=0.2)
    weights = {k: v for k, v in model.state_dict().items() if not (tied and k == "lm_head.weight")}
    save_file({k: v.contiguous().clone() for k, v in weights.items()}, folder / "model.safetensors")
    values = config.to_dict() | {"model_type": family, "eos_token_id": 301}
    values.setdefault("rope_theta", 10_000.0)
    (folder / "config.json").write_text(json.dumps(values, default=str))
    write_byte_pair(folder, merged=True)
    return model


@torch.no_grad()
@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("tied", [True, False])
def test_qwen_based_folders_give_the_logits_of_transformers(family, tied, tmp_path):
    theirs = write_qwen_folder(tmp_path, family, tied=tied)
    ours = load_model(tmp_path)
    ids = torch.randint(0, 300, (2, 17), generator=torch.Generator().manual_seed(3))
    everything = torch.zeros(2, 1, 17, 17)
    expected = theirs(ids, attention_mask=everything, use_cache=False).logits
    got = ours.network.head(ours.network(ids, torch.arange(17).expand(2, -1)))
    torch.testing.assert_close(got, expected, rtol=1e-4, atol=1e-4)
    assert not ours.shifted


@torch.no_grad()
def test_a_model_saved_in_dreams_format_gives_its_own_logits(tmp_path):
    """Shifted prediction, two heads a key, biases on q, k and v that are not zero."""
    shape = ModelConfig(
        vocab_size=40, hidden_size=32, num_layers=2, num_heads=4, num_kv_heads=2, intermediate_size=48, head_dim=8,
        rope_theta=5_000.0, rms_norm_eps=1e-5, max_positions=128, qkv_bias=True, shifted=True,
    )  # fmt: skip
    model = BidirectionalTransformer(shape).eval()
    generator = torch.Generator().manual_seed(5)
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.3, generator=generator)
    dream.save(model, tmp_path, mask_id=39, eos_id=38, pad_id=37, dtype=torch.float32)
    loaded = load_model(tmp_path)
    ids = torch.randint(0, 37, (2, 17), generator=generator)
    at = torch.arange(17).expand(2, -1)
    torch.testing.assert_close(loaded.network.head(loaded.network(ids, at)), model.head(model(ids, at)))
    assert (loaded.network.config, loaded.shifted) == (shape, True)
    assert (loaded.mask_id, loaded.end_ids, loaded.pad_id, loaded.context) == (39, (38,), 37, 128)
    with safe_open(tmp_path / "model.safetensors", "pt") as ours, safe_open(GOLDEN_DREAM, "pt") as real:
        assert set(ours.keys()) == set(real.keys())


def test_dreams_format_refuses_what_it_cannot_say(tmp_path):
    golden = load_model(GOLDEN / "llada_tiny").network
    with pytest.raises(ConfigError, match=r"Dream's format holds .* got shifted=False, qkv_bias=False"):
        dream.save(golden, tmp_path / "out", mask_id=1, eos_id=0, pad_id=0, dtype=torch.float32)
    assert not (tmp_path / "out").exists()


def test_special_ids_come_from_config_and_tokenizer(tmp_path):
    write_qwen_folder(tmp_path, "a2d-qwen3", tied=True)
    model = load_model(tmp_path)
    vocabulary = Tokenizer.from_file(str(tmp_path / "tokenizer.json")).get_vocab()
    assert model.mask_id == vocabulary["<|mask|>"]
    assert model.end_ids == (301, vocabulary["<|im_end|>"])
    unknown = set(range(320)) - set(vocabulary.values())
    assert set(model.banned_ids) == unknown | {model.mask_id}
    run = Engine(model, "blockserve-fixed", block_length=8, max_new_tokens=16).run([Request("a", "the quick fox")])
    assert not set(run.completions[0].output_ids) & set(model.banned_ids)


def test_dreams_tokenizer_is_built_from_its_two_files(tmp_path):
    shutil.copytree(GOLDEN / "dream_tiny", tmp_path / "dream")
    folder = tmp_path / "dream"
    write_byte_pair(folder, merged=False)
    model = load_model(folder)
    text = "the lazy fox, Grüße 你好 🎈"
    ids = model.tokenizer.encode(text)
    assert model.tokenizer.decode(ids) == text
    assert model.tokenizer.encode("<|im_end|>") == [model.tokenizer.id_of("<|im_end|>")]
    assert model.tokenizer.id_of("<|im_end|>") in model.end_ids
    (folder / "merges.txt").unlink()
    assert load_model(folder).tokenizer is None


def test_a_missing_mask_token_and_a_broken_tokenizer_are_named(tmp_path):
    write_qwen_folder(tmp_path, "a2d-qwen2", tied=True)
    text = (tmp_path / "tokenizer.json").read_text()
    (tmp_path / "tokenizer.json").write_text(text.replace("<|mask|>", "<|musk|>"))
    with pytest.raises(CheckpointError, match=r"'mask_token_id' is missing, and the tokenizer has no '<\|mask\|>'"):
        load_model(tmp_path)
    (tmp_path / "tokenizer.json").write_text("{")
    with pytest.raises(CheckpointError, match=r"tokenizer.json: not a readable tokenizer"):
        load_model(tmp_path)


def test_a_hub_id_is_fetched_only_by_name_and_only_files_that_are_no_code(monkeypatch):
    import huggingface_hub

    asked = []

    def fetch(hub_id, allow_patterns):
        asked.append((hub_id, allow_patterns))
        return str(GOLDEN / "llada_tiny")

    monkeypatch.setattr(huggingface_hub, "snapshot_download", fetch)
    assert load_model("GSAI-ML/LLaDA-8B-Instruct").mask_id == 127
    assert asked[0][0] == "GSAI-ML/LLaDA-8B-Instruct"
    assert not any(pattern.endswith(".py") or pattern == "*" for pattern in asked[0][1])
    with pytest.raises(ValueError, match="unknown model 'LLaDA-8B'"):
        load_model("LLaDA-8B")
    assert len(asked) == 1

    def offline(hub_id, allow_patterns):
        raise OSError("no network")

    monkeypatch.setattr(huggingface_hub, "snapshot_download", offline)
    with pytest.raises(CheckpointError, match=r"'nobody/nothing' is no folder here and could not be had .* no network"):
        load_model("nobody/nothing")
