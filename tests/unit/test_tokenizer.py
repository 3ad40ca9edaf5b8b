"""The tokenizer of the small models: any text, whole numbers, exact answers."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tokenizers import Tokenizer

from blockserve.core import ConfigError
from blockserve.geometry import num_blocks
from blockserve.training.recipes import get_recipe
from blockserve.training.tokenizer import EOS, MASK, build_tokenizer
from blockserve.workload.tasks import TASKS, problems


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    texts = [p.prompt + p.answer for p in problems(TASKS["arithmetic"], 4000, 0, "train")]
    return build_tokenizer(texts, get_recipe("tiny-llada").vocab_size)


@given(st.text())
@example("Größe 漢字 🙂 \x00 \u2028 007 1234")
def test_any_unicode_round_trips(tokenizer, text):
    ids = tokenizer.encode(text, add_special_tokens=False).ids
    assert tokenizer.decode(ids, skip_special_tokens=True) == text.replace(EOS, "").replace(MASK, "")
    assert max(ids, default=0) < tokenizer.get_vocab_size() <= 1024


def test_numbers_to_99_are_one_token(tokenizer):
    for n in range(100):
        assert tokenizer.encode(f" {n}").tokens == [f"Ġ{n}"]
    assert tokenizer.encode(" 123").tokens == ["Ġ12", "3"]


def test_answers_take_one_to_five_blocks_and_round_trip(tokenizer):
    blocks = set()
    for p in problems(TASKS["arithmetic"], 2000, 1):
        ids = tokenizer.encode(p.answer).ids
        assert tokenizer.encode(p.prompt + p.answer).ids == tokenizer.encode(p.prompt).ids + ids
        assert tokenizer.decode(ids) == p.answer
        blocks.add(num_blocks(len(ids) + 1, 16))
    assert blocks == {1, 2, 3, 4, 5}


def test_special_tokens(tokenizer):
    assert (tokenizer.token_to_id(EOS), tokenizer.token_to_id(MASK)) == (0, 1)
    assert tokenizer.encode(f"x{MASK}").ids[-1] == 1


def test_the_vocabulary_has_exactly_the_size_asked_for():
    texts = ["the apples and the pears"] * 3
    assert build_tokenizer(texts, 360).get_vocab_size() == 360
    with pytest.raises(ConfigError, match="at least 358, got 300"):
        build_tokenizer(texts, 300)
    with pytest.raises(ConfigError, match="vocab_size 1000 is too large"):
        build_tokenizer(texts, 1000)
