"""A sharded checkpoint is loaded shard by shard: memory peaks at the weights and one shard."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from blockserve.checkpoints import llada
from blockserve.checkpoints.hub import ZOO
from blockserve.execution.model import BidirectionalTransformer, ModelConfig

SHARDS = 4
SLACK_MIB = 12  # of the interpreter and the allocator
MEASURE = """
import re, sys
from pathlib import Path
from blockserve import load_model

def mib(line):
    return int(re.search(line + r":\\s+(\\d+) kB", Path("/proc/self/status").read_text())[1]) / 1024

load_model("tiny-llada")  # everything is imported
before = mib("VmRSS")
Path("/proc/self/clear_refs").write_text("5")  # the high-water mark starts here
model = load_model(sys.argv[1], dtype=sys.argv[2], device="cpu")
weights = sum(p.numel() * p.element_size() for p in model.network.parameters()) / 2**20
print(weights, mib("VmHWM") - before)
"""


def write_sharded(folder: Path) -> float:
    """A made-up LLaDA checkpoint in bfloat16 of 70 MiB in four shards; returns the largest shard's size in MiB."""
    config = ModelConfig(
        vocab_size=8000,
        hidden_size=512,
        num_layers=10,
        num_heads=8,
        num_kv_heads=8,
        intermediate_size=1152,
        head_dim=64,
        rope_theta=10_000.0,
        rms_norm_eps=1e-5,
        max_positions=512,
    )
    (folder / "config.json").write_text(json.dumps(llada.write_config(config, mask_id=1, eos_id=0, pad_id=0)))
    (folder / "tokenizer.json").write_bytes((ZOO / "tiny_llada" / "tokenizer.json").read_bytes())
    with torch.device("meta"):
        shapes = [(n, p.shape) for n, p in BidirectionalTransformer(config).named_parameters()]
    shards: list[dict[str, torch.Tensor]] = [{} for _ in range(SHARDS)]
    for i, (name, shape) in enumerate(shapes):
        shards[i * SHARDS // len(shapes)][llada.LLADA.file_key(name)] = torch.full(shape, 0.01, dtype=torch.bfloat16)
    names = [f"model-{i + 1:05d}-of-{SHARDS:05d}.safetensors" for i in range(SHARDS)]
    for name, shard in zip(names, shards, strict=True):
        save_file(shard, folder / name)
    keys = {key: name for name, shard in zip(names, shards, strict=True) for key in shard}
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": keys}))
    return max((folder / name).stat().st_size for name in names) / 2**20


@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="the high-water mark is Linux's")
@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
def test_loading_peaks_at_the_weights_and_one_shard(tmp_path, dtype):
    shard = write_sharded(tmp_path)
    assert (SHARDS - 1) * shard > shard + SLACK_MIB, "the bound below would be met by reading all shards at once"
    run = subprocess.run(
        [sys.executable, "-c", MEASURE, str(tmp_path), dtype], capture_output=True, text=True, check=True
    )
    weights, peak = map(float, run.stdout.split())
    assert peak <= weights + shard + SLACK_MIB
