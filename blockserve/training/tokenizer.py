"""A byte-level BPE tokenizer in which every number from 0 to 99 after a space is one token.

Whole numbers as tokens make a sum of small numbers one look-up, and keep parallel decoding from mixing the
halves of two numbers. Any Unicode text can be encoded, as every byte is a token.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers

from blockserve.core import ConfigError

EOS = "<|endoftext|>"  # also the pad
MASK = "<|mdm_mask|>"
SPACE = "Ġ"  # byte-level BPE's letter for the space byte


def build_tokenizer(texts: Iterable[str], vocab_size: int) -> Tokenizer:
    """Learn a tokenizer of exactly ``vocab_size`` tokens; ids 0 and 1 are `EOS` and `MASK`.

    The vocabulary is the two special tokens, 256 bytes, the numbers " 0" to " 99", and merges learned on
    ``texts`` cut at their numbers, so that learned merges never touch one.
    """
    tokens = [EOS, MASK, *sorted(pre_tokenizers.ByteLevel.alphabet())]
    merges = [(SPACE, str(d)) for d in range(10)] + [(f"{SPACE}{n // 10}", str(n % 10)) for n in range(10, 100)]
    room = vocab_size - len(tokens) - len(merges)
    if room < 0:
        raise ConfigError(f"vocab_size must be at least {vocab_size - room}, got {vocab_size}")
    merges += _learn_merges(texts, room)
    tokens += [left + right for left, right in merges]
    if len(tokens) < vocab_size:
        raise ConfigError(f"the texts give only {len(tokens)} tokens: vocab_size {vocab_size} is too large")
    tokenizer = Tokenizer(models.BPE(vocab={token: i for i, token in enumerate(tokens)}, merges=merges))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(EOS, special=True), AddedToken(MASK, special=True)])
    return tokenizer


def _learn_merges(texts: Iterable[str], count: int) -> list[tuple[str, str]]:
    """At most ``count`` merges, most frequent first."""
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    learner = Tokenizer(models.BPE())
    learner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    trainer = trainers.BpeTrainer(
        vocab_size=len(alphabet) + count, initial_alphabet=alphabet, min_frequency=2, show_progress=False
    )
    learner.train_from_iterator((part for text in texts for part in re.split(r"[0-9]+", text)), trainer)
    return [tuple(pair) for pair in json.loads(learner.to_str())["model"]["merges"]]
