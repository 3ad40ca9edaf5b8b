"""A checkpoint's tokenizer behind the two calls the engine needs."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers

from blockserve.core import CheckpointError, InvalidRequestError

UNKNOWN = "[UNK]"
CONFIG = "tokenizer_config.json"


def read_tokenizer(folder: Path) -> FastTokenizer | None:
    """From ``tokenizer.json``; from ``vocab.json`` and ``merges.txt`` (Dream: Qwen2's BPE, whose own class would need
    remote code); or from ``vocab.txt`` (BERT). ``None`` where the folder has none of them. Raises `CheckpointError`
    naming the file."""
    if (folder / "tokenizer.json").is_file():
        path = folder / "tokenizer.json"
        try:
            return FastTokenizer(Tokenizer.from_file(str(path)))
        except Exception as error:  # the library raises a bare Exception
            raise CheckpointError(f"{path}: not a readable tokenizer ({error})") from None
    if (folder / "vocab.json").is_file() and (folder / "merges.txt").is_file():
        return FastTokenizer(_byte_pair(folder))
    if (folder / "vocab.txt").is_file():
        return _word_piece(folder / "vocab.txt")
    return None


def _byte_pair(folder: Path) -> Tokenizer:
    """Qwen2's tokenizer class over the folder's vocabulary, with the special tokens of ``tokenizer_config.json``."""
    import transformers

    qwen2 = getattr(transformers, "Qwen2TokenizerFast", transformers.Qwen2Tokenizer)
    try:
        return qwen2.from_pretrained(folder, local_files_only=True).backend_tokenizer
    except (OSError, ValueError, KeyError) as error:
        raise CheckpointError(f"{folder}: vocab.json and merges.txt are not readable ({error})") from None


def _word_piece(path: Path) -> FastTokenizer:
    """BERT's tokenizer over a vocabulary of one token a line; over single letters (a protein's), one token a letter."""
    vocabulary = {token: i for i, token in enumerate(path.read_text(encoding="utf-8").split("\n")) if token}
    special = [token for token in vocabulary if token.startswith("[") and token.endswith("]") and len(token) > 2]
    if UNKNOWN not in vocabulary:
        raise CheckpointError(f"{path}: the vocabulary has no {UNKNOWN!r} token")
    letters = sorted(token for token in vocabulary.keys() - set(special))
    by_letter = all(len(token) == 1 for token in letters)
    model = models.WordLevel if by_letter else models.WordPiece
    tokenizer = Tokenizer(model(vocabulary, unk_token=UNKNOWN))
    if by_letter:
        tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex("."), "isolated")
        tokenizer.decoder = decoders.Fuse()
    else:
        tokenizer.normalizer = normalizers.BertNormalizer(lowercase=_lower_cased(path.parent))
        tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
        tokenizer.decoder = decoders.WordPiece()
    tokenizer.add_special_tokens(special)
    return LetterTokenizer(tokenizer, letters) if by_letter else FastTokenizer(tokenizer)


def _lower_cased(folder: Path) -> bool:
    """``do_lower_case`` of the tokenizer's configuration; BERT's own default is true."""
    return bool(tokenizer_config(folder).get("do_lower_case", True))


def tokenizer_config(folder: Path) -> dict[str, Any]:
    """The fields of ``tokenizer_config.json``, none where the folder has no such file."""
    path = folder / CONFIG
    try:
        return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    except json.JSONDecodeError as error:
        raise CheckpointError(f"{path}: not JSON ({error})") from None


class FastTokenizer:
    """Text ↔ ids. `decode` leaves special tokens out."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer

    @property
    def backend(self) -> Tokenizer:
        """The library's own tokenizer."""
        return self._tokenizer

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

    def special_ids(self) -> set[int]:
        """Ids of the special tokens, which `decode` leaves out."""
        added = self._tokenizer.get_added_tokens_decoder()
        return {i for i, token in added.items() if token.special}


class LetterTokenizer(FastTokenizer):
    """One letter is one token. A letter outside the alphabet raises `InvalidRequestError`."""

    def __init__(self, tokenizer: Tokenizer, letters: Sequence[str]) -> None:
        super().__init__(tokenizer)
        self._letters = letters

    def encode(self, text: str) -> list[int]:
        encoding = self._tokenizer.encode(text, add_special_tokens=False)
        if UNKNOWN in encoding.tokens:
            start, end = encoding.offsets[encoding.tokens.index(UNKNOWN)]
            alphabet = "".join(self._letters)
            raise InvalidRequestError(
                f"{text[start:end]!r} at position {start} is not in the model's alphabet; write {alphabet}"
            )
        return encoding.ids
