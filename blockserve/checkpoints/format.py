"""What a family of checkpoints calls things: config fields and weight keys. One value a family (llada.py, dream.py)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from blockserve.core import CheckpointError
from blockserve.execution.model import ModelConfig

if TYPE_CHECKING:
    from blockserve.checkpoints.tokenizer import FastTokenizer


class ConfigReader:
    """A parsed ``config.json``; a missing field raises with the file and the field."""

    def __init__(self, values: Mapping[str, Any], path: Path) -> None:
        self.values, self.path = values, path

    def __getitem__(self, field: str) -> Any:
        if self.values.get(field) is None:
            raise CheckpointError(f"{self.path}: the field {field!r} is missing")
        return self.values[field]

    def get(self, field: str, default: Any = None) -> Any:
        """The field, or ``default`` where it is absent or null."""
        value = self.values.get(field)
        return default if value is None else value


def find_mask_id(reader: ConfigReader, tokenizer: FastTokenizer | None, written: str) -> int:
    """The config's ``mask_token_id``, or the tokenizer's token ``written`` so. Raises `CheckpointError`."""
    found = reader.get("mask_token_id")
    if found is None and tokenizer is not None:
        found = tokenizer.id_of(written)
    if found is None:
        raise CheckpointError(
            f"{reader.path}: the field 'mask_token_id' is missing, and the tokenizer has no {written!r} token"
        )
    return found


@dataclass(frozen=True)
class Format:
    """A checkpoint family. ``keys``: our module path → its key in the file, ``{}`` standing for the layer."""

    model_types: tuple[str, ...]
    read_config: Callable[[ConfigReader], ModelConfig]
    layer_keys: Mapping[str, str]
    keys: Mapping[str, str]

    def file_key(self, parameter: str) -> str:
        """``layers.3.mlp.up_proj.weight`` → the key of that weight in this family's files."""
        module, _, leaf = parameter.rpartition(".")
        if module.startswith("layers."):
            _, layer, rest = module.split(".", 2)
            return f"{self.layer_keys[rest].format(layer)}.{leaf}"
        return f"{self.keys[module]}.{leaf}"
