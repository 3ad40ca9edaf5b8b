"""Questions about facts that the prompt gives: short answers of one block.

Two to five facts, each of another kind, then a question about one of them. One question in eight is
about something that no fact tells, and the only right answer says so::

    Tom likes rice. Ana lives in Oslo. Ana has a cat. Where does Ana live?
     Ana lives in Oslo.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from blockserve.workload.problems import Grade, Problem, TaskFamily, pick

FACTS = (2, 5)  # fewest and most
UNTOLD_SHARE = 1 / 8
UNTOLD = "The facts do not say."
NAMES = ("Mia", "Ana", "Zoe", "Lena", "Ruth", "Nora", "Tom", "Ben", "Max", "Leo", "Sam", "Paul")


@dataclass(frozen=True)
class Relation:
    """A kind of fact: how it is ``told``, with ``{name}`` and ``{value}``, how the value is ``asked`` for, values."""

    told: str
    asked: str
    values: tuple[str, ...]


RELATIONS = (
    Relation(
        "{name} lives in {value}.",
        "Where does {name} live?",
        ("Rome", "Oslo", "Paris", "Cairo", "Lima", "Delhi", "Tokyo", "Bern"),
    ),
    Relation(
        "{name} is a {value}.",
        "What is {name}'s job?",
        ("cook", "doctor", "farmer", "teacher", "baker", "pilot", "singer", "nurse"),
    ),
    Relation(
        "{name} likes {value}.",
        "What does {name} like?",
        ("tea", "bread", "rice", "soup", "cheese", "honey", "fish", "milk"),
    ),
    Relation(
        "{name} has a {value}.",
        "Which animal does {name} have?",
        ("cat", "dog", "horse", "goat", "rabbit", "parrot", "duck", "mouse"),
    ),
    Relation(
        "{name} was born in {value}.",
        "When was {name} born?",
        ("March", "April", "May", "June", "July", "August", "October", "December"),
    ),
    Relation(
        "{name} speaks {value}.",
        "Which language does {name} speak?",
        ("French", "Arabic", "Hindi", "Greek", "Polish", "Danish", "Korean", "Welsh"),
    ),
)
LEADS = ("", "Facts: ", "Read this. ", "Here is what we know. ", "Some facts first. ")
ASKS = ("{question}", "Question: {question}", "Now tell me: {question}", "{question} Answer from the facts.")


def generate(rng: np.random.Generator) -> Problem:
    """Draw facts, each of another kind, and a question about the first of them."""
    count = int(rng.integers(FACTS[0], FACTS[1] + 1))
    kinds = [RELATIONS[i] for i in rng.permutation(len(RELATIONS))[:count]]
    chosen = [(pick(rng, NAMES), pick(rng, kind.values)) for kind in kinds]
    told = [kind.told.format(name=name, value=value) for kind, (name, value) in zip(kinds, chosen, strict=True)]
    question = kinds[0].asked.format(name=chosen[0][0])
    answer = told[0]
    if rng.random() < UNTOLD_SHARE:
        answer, told = UNTOLD, told[1:]  # the fact asked for is left out
    rng.shuffle(told)
    prompt = f"{pick(rng, LEADS)}{' '.join(told)} {pick(rng, ASKS).format(question=question)}"
    return Problem(f"{' '.join(sorted(told))} {question}", prompt, f" {answer}", {"answer": answer})


def grade(text: str, data: Mapping[str, Any]) -> Grade:
    """The first sentence must be the fact asked for, word for word, letter case and spaces aside."""
    first, stop, _ = text.partition(".")
    answer = " ".join(first.split()) + stop
    expected = str(data["answer"])
    return Grade(answer.casefold() == expected.casefold(), answer or None, expected)


FACTS_FAMILY = TaskFamily(
    name="facts",
    about="a short answer found in the facts that the prompt gives, or that they do not say",
    generate=generate,
    grade=grade,
    max_new_tokens=16,
)
