"""Name or folder → `DiffusionModel`: network, tokenizer and special ids."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from blockserve.core import CheckpointError, check_choice, unknown_name

if TYPE_CHECKING:
    import torch

    from blockserve.checkpoints.format import ConfigReader, Format
    from blockserve.checkpoints.tokenizer import FastTokenizer
    from blockserve.execution.model import DiffusionModel, ModelConfig

ZOO = Path(__file__).parent / "zoo"
ZOO_MODELS = {"tiny-llada": ZOO / "tiny_llada", "tiny-dream": ZOO / "tiny_dream"}
DTYPES = ("float32", "float64", "bfloat16", "float16")
HUB_ID = re.compile(r"[\w.-]+/[\w.-]+")
HUB_FILES = [
    "config.json",
    "*.safetensors",
    "*.safetensors.index.json",
    "tokenizer*.json",
    "vocab.json",
    "vocab.txt",
    "merges.txt",
    "chat_template.jinja",
]
BERT = "bert"  # its model_type
ANTIBERTY = "antiberty"  # its weights come with a package, the optional extra `antibody`
MASK = "<|mask|>"  # where the config names none
TURN_ENDS = ("<|eot_id|>", "<|im_end|>")  # end-of-turn tokens of the families, where the tokenizer has them


def load_model(
    name: str | Path, *, device: str | None = None, dtype: str | None = None, chat: bool = False
) -> DiffusionModel:
    """Load a built-in model by name, a checkpoint from a local folder, or one from the hub by its ``owner/name``.

    ``"antiberty"`` is a masked language model of antibodies that comes with the optional extra ``antibody``.
    ``device``: ``cpu``, ``cuda``, ...; default the accelerator if there is one. ``dtype``: default float32 on the
    CPU, bfloat16 elsewhere. ``chat``: read every prompt as a user's turn, by the template in the checkpoint's folder.
    Raises `UnknownNameError`, or `CheckpointError` naming the file and the key.
    """
    folder, vocabulary = _folders(name)
    torch_device = _device(device)
    dtype = dtype or ("float32" if torch_device.type == "cpu" else "bfloat16")
    check_choice("dtype", dtype, DTYPES)
    model = _load_folder(str(name), folder, vocabulary, torch_device, dtype)
    return _in_chat(model, vocabulary) if chat else model


def _in_chat(model: DiffusionModel, vocabulary: Path) -> DiffusionModel:
    from blockserve.checkpoints.chat import ChatTokenizer

    if model.tokenizer is None:
        raise CheckpointError(f"{vocabulary}: chat needs a tokenizer, and the folder has none")
    return replace(model, tokenizer=ChatTokenizer(model.tokenizer, vocabulary), chat=True)


def model_table() -> list[dict[str, Any]]:
    """The built-in models: name, family, parameters, context, and the accuracy written on their card."""
    table = []
    for name, folder in ZOO_MODELS.items():
        config = json.loads((folder / "config.json").read_text())
        card = json.loads((folder / "card.json").read_text()) if (folder / "card.json").is_file() else {}
        table.append({"name": name, "family": config["model_type"], "context": _context(config)} | card)
    return table


def _context(config: dict[str, Any]) -> int:
    """Positions of a model of the package, whose formats are LLaDA's and Dream's."""
    return config["max_sequence_length"] if config["model_type"] == "llada" else config["max_position_embeddings"]


def _folders(name: str | Path) -> tuple[Path, Path]:
    """Where the weights lie, and where the tokenizer does."""
    if str(name) == ANTIBERTY:
        return _antiberty()
    folder = _folder(name)
    return folder, folder


def _antiberty() -> tuple[Path, Path]:
    """Inside its package, whose code is not imported."""
    spec = find_spec(ANTIBERTY)
    if spec is None or not spec.submodule_search_locations:
        raise CheckpointError(
            f"the weights of {ANTIBERTY!r} come with the package of that name, which is not installed; "
            "pip install 'blockserve[antibody]'"
        )
    models = Path(spec.submodule_search_locations[0]) / "trained_models"
    return models / "AntiBERTy_md_smooth", models


def _folder(name: str | Path) -> Path:
    if str(name) in ZOO_MODELS:
        return ZOO_MODELS[str(name)]
    folder = Path(name)
    if folder.is_dir():
        return folder
    if HUB_ID.fullmatch(str(name)):
        return _download(str(name))
    error = unknown_name("model", str(name), [*ZOO_MODELS, ANTIBERTY])
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


def _load_folder(name: str, folder: Path, vocabulary: Path, device: torch.device, dtype: str) -> DiffusionModel:
    import torch

    from blockserve.checkpoints.tokenizer import read_tokenizer

    reader, formats = _read_config(folder), _formats()
    model_type = reader["model_type"]
    if model_type not in (*formats, BERT):
        known = ", ".join(sorted([*formats, BERT]))
        raise CheckpointError(f"{reader.path}: model_type {model_type!r} is not supported; known: {known}")
    tokenizer, torch_dtype = read_tokenizer(vocabulary), getattr(torch, dtype)
    if model_type == BERT:
        from blockserve.checkpoints.bert import load_bert

        return load_bert(name, folder, reader, tokenizer, device, torch_dtype)
    return _load_format(name, folder, formats[model_type], reader, tokenizer, device, torch_dtype)


def _load_format(
    name: str,
    folder: Path,
    fmt: Format,
    reader: ConfigReader,
    tokenizer: FastTokenizer | None,
    device: torch.device,
    dtype: torch.dtype,
) -> DiffusionModel:
    from blockserve.checkpoints.format import find_mask_id
    from blockserve.checkpoints.weights import load_network
    from blockserve.execution.model import DiffusionModel

    config = fmt.read_config(reader)
    mask_id, eos = find_mask_id(reader, tokenizer, MASK), reader["eos_token_id"]
    return DiffusionModel(
        name=name,
        network=load_network(folder, fmt, config, device, dtype),
        tokenizer=tokenizer,
        mask_id=mask_id,
        end_ids=_end_ids(eos, tokenizer),
        pad_id=reader.get("pad_token_id", eos if isinstance(eos, int) else eos[0]),
        context=config.max_positions,
        banned_ids=_banned_ids(config, mask_id, tokenizer),
    )


def _formats() -> dict[str, Format]:
    """Families that the one transformer covers, by the ``model_type`` of their config."""
    from blockserve.checkpoints.dream import DREAM
    from blockserve.checkpoints.llada import LLADA
    from blockserve.checkpoints.qwen import QWEN

    return {model_type: fmt for fmt in (LLADA, DREAM, QWEN) for model_type in fmt.model_types}


def _read_config(folder: Path) -> ConfigReader:
    from blockserve.checkpoints.format import ConfigReader

    path = folder / "config.json"
    if not path.is_file():
        raise CheckpointError(f"{folder}: config.json is missing")
    try:
        return ConfigReader(json.loads(path.read_text()), path)
    except json.JSONDecodeError as error:
        raise CheckpointError(f"{path}: not JSON ({error})") from None


def _end_ids(eos: int | list[int], tokenizer: FastTokenizer | None) -> tuple[int, ...]:
    ends = [eos] if isinstance(eos, int) else list(eos)
    turn_ends = [tokenizer.id_of(token) for token in TURN_ENDS] if tokenizer else []
    return tuple(dict.fromkeys([*ends, *(i for i in turn_ends if i is not None)]))


def _banned_ids(config: ModelConfig, mask_id: int, tokenizer: FastTokenizer | None) -> tuple[int, ...]:
    """The mask, and rows of the head that stand for no token."""
    unknown = set(range(config.vocab_size)) - tokenizer.known_ids() if tokenizer else set()
    return tuple(sorted(unknown | {mask_id}))
