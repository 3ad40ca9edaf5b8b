"""Prompts as turns of a conversation, by the template that comes with a checkpoint."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from blockserve.checkpoints.tokenizer import CONFIG, FastTokenizer, tokenizer_config
from blockserve.core import CheckpointError

TEMPLATE = "chat_template.jinja"


class ChatTokenizer:
    """A tokenizer that reads every text as a user's turn and ends it where the model's answer begins.

    Raises `CheckpointError` where the folder has no chat template, or one that cannot be rendered.
    """

    def __init__(self, tokenizer: FastTokenizer, folder: Path) -> None:
        import transformers

        self._tokenizer, self._folder = tokenizer, folder
        config = tokenizer_config(folder)
        special = {name: _text(config[name]) for name in ("bos_token", "eos_token") if config.get(name)}
        self._renderer = transformers.PreTrainedTokenizerFast(
            tokenizer_object=tokenizer.backend, chat_template=_template(folder, config), **special
        )

    def encode(self, text: str) -> list[int]:
        return self._tokenizer.encode(self.turn(text))

    def decode(self, ids: Sequence[int]) -> str:
        return self._tokenizer.decode(ids)

    def turn(self, text: str) -> str:
        """``text`` as the template writes it, up to where the answer begins."""
        turns = [{"role": "user", "content": text}]
        try:
            return self._renderer.apply_chat_template(turns, tokenize=False, add_generation_prompt=True)
        except Exception as error:  # a template is a program of its own, and may raise what it likes
            reason = str(error).strip().splitlines()[0]
            raise CheckpointError(f"{self._folder}: the chat template cannot be rendered ({reason})") from None


def _template(folder: Path, config: dict[str, Any]) -> str:
    """A file of its own, or a field of the tokenizer's configuration: one template, or several by name."""
    if (folder / TEMPLATE).is_file():
        return (folder / TEMPLATE).read_text(encoding="utf-8")
    found = config.get("chat_template")
    if isinstance(found, list):
        found = {entry["name"]: entry["template"] for entry in found}.get("default")
    if not isinstance(found, str):
        raise CheckpointError(
            f"{folder}: no chat template, neither as {TEMPLATE} nor in {CONFIG}; use the model without chat"
        )
    return found


def _text(token: str | dict[str, Any]) -> str:
    """Special tokens stand as text, or as an object with a ``content``."""
    return token if isinstance(token, str) else str(token["content"])
