"""Name or folder → `DiffusionModel`: network, tokenizer and special ids."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from blockserve.core import CheckpointError, check_choice, unknown_name

if TYPE_CHECKING:
    import torch

    from blockserve.checkpoints.format import ConfigReader, Format
    from blockserve.checkpoints.tokenizer import FastTokenizer
    from blockserve.execution.model import DiffusionModel, ModelConfig

ZOO = Path(__file__).parent / "zoo"
ZOO_MODELS = {"tiny-llada": ZOO / "tiny_llada"}
DTYPES = ("float32", "float64", "bfloat16", "float16")
HUB_ID = re.compile(r"[\w.-]+/[\w.-]+")
HUB_FILES = ["config.json", "*.safetensors", "*.safetensors.index.json", "tokenizer*.json", "vocab.json", "merges.txt"]
MASK = "<|mask|>"  # where the config names none
TURN_ENDS = ("<|eot_id|>", "<|im_end|>")  # end-of-turn tokens of the families, where the tokenizer has them


def load_model(name: str | Path, *, device: str | None = None, dtype: str | None = None) -> DiffusionModel:
    """Load a built-in model by name, a checkpoint from a local folder, or one from the hub by its ``owner/name``.

    ``device``: ``cpu``, ``cuda``, ...; default the accelerator if there is one. ``dtype``: default float32 on the
    CPU, bfloat16 elsewhere. Raises `UnknownNameError`, or `CheckpointError` naming the file and the key.
    """
    folder = _folder(name)
    torch_device = _device(device)
    dtype = dtype or ("float32" if torch_device.type == "cpu" else "bfloat16")
    check_choice("dtype", dtype, DTYPES)
    return _load_folder(str(name), folder, torch_device, dtype)


def model_table() -> list[dict[str, Any]]:
    """The built-in models: name, family, parameters, context, and the accuracy written on their card."""
    table = []
    for name, folder in ZOO_MODELS.items():
        config = json.loads((folder / "config.json").read_text())
        card = json.loads((folder / "card.json").read_text()) if (folder / "card.json").is_file() else {}
        table.append({"name": name, "family": config["model_type"], "context": config["max_sequence_length"]} | card)
    return table


def _folder(name: str | Path) -> Path:
    if str(name) in ZOO_MODELS:
        return ZOO_MODELS[str(name)]
    folder = Path(name)
    if folder.is_dir():
        return folder
    if HUB_ID.fullmatch(str(name)):
        return _download(str(name))
    error = unknown_name("model", str(name), ZOO_MODELS)
    raise type(error)(f"{error}; or give a folder that holds config.json and model.safetensors, or an owner/name")


def _download(hub_id: str) -> Path:
    """The folder of a hub model: from the local cache, else from the hub. Only what is needed, never code."""
    from huggingface_hub import snapshot_download

    try:
        return Path(snapshot_download(hub_id, allow_patterns=HUB_FILES))
    except Exception as error:  # the library raises many kinds; the user needs to know which model and why
        reason = str(error).strip().splitlines()[0]
        raise CheckpointError(f"{hub_id!r} is no folder here and could not be had from the hub: {reason}") from None


def _device(name: str | None) -> torch.device:
    import torch

    if name is None:
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        raise CheckpointError(f"device {name!r} cannot be used here: {str(error).splitlines()[0]}") from None
    return device


def _load_folder(name: str, folder: Path, device: torch.device, dtype: str) -> DiffusionModel:
    import torch

    from blockserve.checkpoints.tokenizer import read_tokenizer
    from blockserve.checkpoints.weights import load_network
    from blockserve.execution.model import DiffusionModel

    fmt, reader = _read_config(folder)
    config = fmt.read_config(reader)
    tokenizer = read_tokenizer(folder)
    mask_id, eos = _mask_id(reader, tokenizer), reader["eos_token_id"]
    return DiffusionModel(
        name=name,
        network=load_network(folder, fmt, config, device, getattr(torch, dtype)),
        tokenizer=tokenizer,
        mask_id=mask_id,
        end_ids=_end_ids(eos, tokenizer),
        pad_id=reader.get("pad_token_id", eos if isinstance(eos, int) else eos[0]),
        context=config.max_positions,
        banned_ids=_banned_ids(config, mask_id, tokenizer),
    )


def _read_config(folder: Path) -> tuple[Format, ConfigReader]:
    from blockserve.checkpoints.dream import DREAM
    from blockserve.checkpoints.format import ConfigReader
    from blockserve.checkpoints.llada import LLADA
    from blockserve.checkpoints.qwen import QWEN

    path = folder / "config.json"
    if not path.is_file():
        raise CheckpointError(f"{folder}: config.json is missing")
    try:
        reader = ConfigReader(json.loads(path.read_text()), path)
    except json.JSONDecodeError as error:
        raise CheckpointError(f"{path}: not JSON ({error})") from None
    known = {model_type: fmt for fmt in (LLADA, DREAM, QWEN) for model_type in fmt.model_types}
    model_type = reader["model_type"]
    if model_type not in known:
        raise CheckpointError(f"{path}: model_type {model_type!r} is not supported; known: {', '.join(sorted(known))}")
    return known[model_type], reader


def _mask_id(reader: ConfigReader, tokenizer: FastTokenizer | None) -> int:
    """The config's, or the tokenizer's ``<|mask|>`` (Qwen-based checkpoints)."""
    found = reader.get("mask_token_id")
    if found is None and tokenizer is not None:
        found = tokenizer.id_of(MASK)
    if found is None:
        raise CheckpointError(
            f"{reader.path}: the field 'mask_token_id' is missing, and the tokenizer has no {MASK!r} token"
        )
    return found


def _end_ids(eos: int | list[int], tokenizer: FastTokenizer | None) -> tuple[int, ...]:
    ends = [eos] if isinstance(eos, int) else list(eos)
    turn_ends = [tokenizer.id_of(token) for token in TURN_ENDS] if tokenizer else []
    return tuple(dict.fromkeys([*ends, *(i for i in turn_ends if i is not None)]))


def _banned_ids(config: ModelConfig, mask_id: int, tokenizer: FastTokenizer | None) -> tuple[int, ...]:
    """The mask, and rows of the head that stand for no token."""
    unknown = set(range(config.vocab_size)) - tokenizer.known_ids() if tokenizer else set()
    return tuple(sorted(unknown | {mask_id}))
