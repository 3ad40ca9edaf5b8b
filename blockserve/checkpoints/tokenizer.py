"""A checkpoint's tokenizer behind the two calls the engine needs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tokenizers import Tokenizer

from blockserve.core import CheckpointError


def read_tokenizer(folder: Path) -> FastTokenizer | None:
    """From ``tokenizer.json``, or from ``vocab.json`` and ``merges.txt`` (Dream: Qwen2's BPE, whose own class would
    need remote code); ``None`` where the folder has neither. Raises `CheckpointError` naming the file."""
    if (folder / "tokenizer.json").is_file():
        path = folder / "tokenizer.json"
        try:
            return FastTokenizer(Tokenizer.from_file(str(path)))
        except Exception as error:  # the library raises a bare Exception
            raise CheckpointError(f"{path}: not a readable tokenizer ({error})") from None
    if (folder / "vocab.json").is_file() and (folder / "merges.txt").is_file():
        return FastTokenizer(_byte_pair(folder))
    return None


def _byte_pair(folder: Path) -> Tokenizer:
    """Qwen2's tokenizer class over the folder's vocabulary, with the special tokens of ``tokenizer_config.json``."""
    import transformers

    qwen2 = getattr(transformers, "Qwen2TokenizerFast", transformers.Qwen2Tokenizer)
    try:
        return qwen2.from_pretrained(folder, local_files_only=True).backend_tokenizer
    except (OSError, ValueError, KeyError) as error:
        raise CheckpointError(f"{folder}: vocab.json and merges.txt are not readable ({error})") from None


class FastTokenizer:
    """Text ↔ ids. `decode` leaves special tokens out."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer

    def encode(self, text: str) -> list[int]:
        return self._tokenizer.encode(text, add_special_tokens=False).ids

    def decode(self, ids: Sequence[int]) -> str:
        return self._tokenizer.decode(list(ids), skip_special_tokens=True)

    def id_of(self, token: str) -> int | None:
        """The id of a token by its text, ``None`` if there is none."""
        return self._tokenizer.token_to_id(token)

    def known_ids(self) -> set[int]:
        """Every id that stands for a token."""
        return set(self._tokenizer.get_vocab(with_added_tokens=True).values())
