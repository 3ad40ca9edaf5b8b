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
from blockserve.workload import facts
from blockserve.workload.tasks import TASKS, problems


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    """That of both models of the package."""
    recipe = get_recipe("tiny-llada")
    assert get_recipe("tiny-dream").tokenizer_problems == recipe.tokenizer_problems
    shares = zip(recipe.tasks, recipe.tokenizer_problems, strict=True)
    texts = [p.prompt + p.answer for task, n in shares for p in problems(TASKS[task], n, recipe.seed, "train")]
    return build_tokenizer(texts, recipe.vocab_size)


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


BLOCKS = {
    "arithmetic": {1, 2, 3, 4, 5},
    "code": {1, 2, 3},
    "program": {1, 2, 3, 4, 5},
    "algebra": {2, 3, 4, 5, 6},
    "facts": {1},
}


@pytest.mark.parametrize("task", TASKS)
def test_answers_fit_their_limit_in_unlike_numbers_of_blocks_and_round_trip(tokenizer, task):
    blocks = set()
    for p in problems(TASKS[task], 1000, 1):
        ids = tokenizer.encode(p.answer).ids
        if not p.prompt.endswith("\n"):  # else the line's end and the next indent would be one token
            assert tokenizer.encode(p.prompt + p.answer).ids == tokenizer.encode(p.prompt).ids + ids
        assert tokenizer.decode(ids) == p.answer
        assert len(ids) < TASKS[task].max_new_tokens, "room for the end token"
        blocks.add(num_blocks(len(ids) + 1, 16))
    assert blocks == BLOCKS[task]


def test_names_and_things_of_the_facts_are_one_token(tokenizer):
    words = [*facts.NAMES, *(value for relation in facts.RELATIONS for value in relation.values)]
    assert {word for word in words if len(tokenizer.encode(f" {word}").ids) > 1} == set()


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
