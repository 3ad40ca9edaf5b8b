"""Weight files, single or sharded, into a network: built without memory, filled tensor by tensor."""

from __future__ import annotations

import json
import pickle
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from blockserve.checkpoints.format import Format
from blockserve.core import CheckpointError
from blockserve.execution.model import BidirectionalTransformer, ModelConfig

SINGLE = "model.safetensors"
INDEX = "model.safetensors.index.json"
PICKLED = "pytorch_model.bin"  # read as plain tensors, which runs none of its code


def load_network(
    folder: Path, fmt: Format, config: ModelConfig, device: torch.device, dtype: torch.dtype
) -> BidirectionalTransformer:
    """The network in ``folder``, each tensor cast and moved as it is read, so that memory stays near the weights.

    A missing, unknown or misshapen tensor raises `CheckpointError` with its file and key.
    """
    with torch.device("meta"):
        network = BidirectionalTransformer(config)
    wanted = {fmt.file_key(name): name for name, _ in network.named_parameters()}
    for path in weight_files(folder):
        for key, tensor in tensors(path):
            name = wanted.pop(key, None)
            if name is None:
                raise unexpected_key(path, key)
            assign(network, name, tensor, device, dtype, f"{path}: the key {key!r}")
    if wanted:
        raise missing_key(folder, wanted)
    return network.eval().requires_grad_(False)


def weight_files(folder: Path) -> list[Path]:
    """The weight files of a checkpoint: by its index, the single safetensors file, or the older pickled one."""
    index = folder / INDEX
    if index.is_file():
        try:
            names = sorted(set(json.loads(index.read_text())["weight_map"].values()))
        except (json.JSONDecodeError, KeyError, AttributeError):
            raise CheckpointError(f"{index}: no readable 'weight_map'") from None
        missing = [name for name in names if not (folder / name).is_file()]
        if missing:
            raise CheckpointError(f"{folder}: the shard {missing[0]!r} named in {INDEX} is missing")
        return [folder / name for name in names]
    for name in (SINGLE, PICKLED):
        if (folder / name).is_file():
            return [folder / name]
    raise CheckpointError(f"{folder}: neither {SINGLE} nor {INDEX} is there, nor a {PICKLED}")


def tensors(path: Path) -> Iterator[tuple[str, Tensor]]:
    """Keys and tensors of one file, on the CPU."""
    if path.suffix == ".bin":
        yield from _pickled_tensors(path)
        return
    try:
        with safe_open(path, framework="pt") as file:
            for key in file.keys():  # noqa: SIM118 (safe_open is no mapping)
                yield key, file.get_tensor(key)
    except SafetensorError as error:
        raise CheckpointError(f"{path}: not a whole safetensors file ({error})") from None


def _pickled_tensors(path: Path) -> Iterator[tuple[str, Tensor]]:
    try:
        held = torch.load(path, map_location="cpu", weights_only=True)
    except (pickle.UnpicklingError, RuntimeError, EOFError) as error:
        reason = str(error).strip().splitlines()[0]
        raise CheckpointError(f"{path}: not a file of plain tensors ({reason})") from None
    if not isinstance(held, dict) or not all(isinstance(tensor, Tensor) for tensor in held.values()):
        raise CheckpointError(f"{path}: must hold tensors by their keys, as `torch.save(model.state_dict())` writes")
    yield from held.items()


def unexpected_key(path: Path, key: str) -> CheckpointError:
    """The error (not raised here) for a key that the architecture does not have."""
    return CheckpointError(f"{path}: the key {key!r} is not expected in this architecture")


def missing_key(folder: Path, keys: Collection[str]) -> CheckpointError:
    """The error (not raised here) for keys that no file holds; names the first."""
    return CheckpointError(f"{folder}: the key {min(keys)!r} is missing ({len(keys)} keys in all)")


def assign(network: nn.Module, name: str, tensor: Tensor, device: torch.device, dtype: torch.dtype, what: str) -> None:
    """Make ``tensor`` the parameter ``name``, cast and moved; a wrong shape raises and says ``what`` it was."""
    module_name, _, leaf = name.rpartition(".")
    module = network.get_submodule(module_name)
    expected = tuple(getattr(module, leaf).shape)
    if tuple(tensor.shape) != expected:
        raise CheckpointError(f"{what} has shape {tuple(tensor.shape)}, the config asks for {expected}")
    setattr(module, leaf, torch.nn.Parameter(tensor.to(device=device, dtype=dtype)))


def save_checkpoint(
    network: BidirectionalTransformer, folder: Path, fmt: Format, config: Mapping[str, Any], dtype: torch.dtype
) -> None:
    """Write ``config.json`` with these fields, and all weights under the format's keys (the tokenizer is the
    caller's)."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n")
    path = folder / SINGLE
    weights = {fmt.file_key(name): p.detach().to("cpu", dtype).contiguous() for name, p in network.named_parameters()}
    save_file(weights, path)
    path.chmod(0o644)  # the library writes a file that only its owner can read
