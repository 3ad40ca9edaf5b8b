"""A `tokenizers` file behind the two calls the engine needs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tokenizers import Tokenizer

from blockserve.core import CheckpointError


class FastTokenizer:
    """``tokenizer.json`` as text ↔ ids. `decode` leaves special tokens out."""

    def __init__(self, path: Path) -> None:
        try:
            self._tokenizer = Tokenizer.from_file(str(path))
        except Exception as error:  # the library raises a bare Exception
            raise CheckpointError(f"{path}: not a readable tokenizer ({error})") from None

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
