"""What every task family shares: problems, grades, the train and test split, and seeded streams of problems."""

from __future__ import annotations

import hashlib
import re
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar

import numpy as np

from blockserve.core import check_choice, check_int

T = TypeVar("T")
Split = Literal["train", "test"]
SPLITS: tuple[str, ...] = ("train", "test")
RESULT = re.compile(r"Answer:\s*(\d+)")
TEST_SHARE = 10  # one core in ten is kept for testing
APART = 50  # problems that a core does not come again in


@dataclass(frozen=True)
class Problem:
    """One prompt with its reference answer.

    ``core`` is what makes the problem this problem whatever its wording; the split is decided by it, so that a
    test problem is never a training problem in other words. ``data`` is what the grader needs (JSON-able).
    """

    core: str
    prompt: str
    answer: str
    data: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Grade:
    """What a grader found: ``correct`` is about the final answer alone, steps are counted apart.

    ``answer`` is what the text gives as its result (``None`` when it gives none), ``expected`` the reference.
    """

    correct: bool
    answer: str | None
    expected: str
    steps_correct: int = 0
    steps_expected: int = 0

    @property
    def all_steps_correct(self) -> bool:
        """True when every step of the reference was written out, in order and right."""
        return self.steps_correct == self.steps_expected


@dataclass(frozen=True)
class TaskFamily:
    """A kind of problem: a seeded generator and an exact grader.

    ``generate(rng)`` draws one problem; ``grade(text, data)`` judges a generated answer against `Problem.data`;
    ``max_new_tokens`` is the limit its answers are made for, in tokens of the packaged tokenizer.
    """

    name: str
    about: str
    generate: Callable[[np.random.Generator], Problem]
    grade: Callable[[str, Mapping[str, Any]], Grade]
    max_new_tokens: int


def split_of(family: str, core: str) -> Split:
    """The split a problem belongs to, by the SHA-256 of its core: the same on every machine, for ever."""
    digest = hashlib.sha256(f"{family}:{core}".encode()).digest()
    return "test" if int.from_bytes(digest[:4], "big") % TEST_SHARE == 0 else "train"


def stream(family: TaskFamily, rng: np.random.Generator, split: Split) -> Iterator[Problem]:
    """Endless problems of one split, drawn from ``rng``; those of the other split are passed over."""
    check_choice("split", split, SPLITS)
    while True:
        problem = family.generate(rng)
        if split_of(family.name, problem.core) == split:
            yield problem


def problems(family: TaskFamily, n: int, seed: int, split: Split = "test") -> tuple[Problem, ...]:
    """The first ``n`` problems of the stream named by ``seed``: a larger ``n`` only adds to the end.

    Those with a core that one of the last `APART` had are passed over: the few cores of a simple kind fall into one
    split or the other as a whole, and one of them would else be a large part of the small split.
    """
    check_int("n", n, 1)
    check_int("seed", seed, 0)
    drawn = stream(family, np.random.default_rng([seed, *family.name.encode()]), split)
    found: list[Problem] = []
    recent: deque[str] = deque(maxlen=APART)
    while len(found) < n:
        problem = next(drawn)
        if problem.core not in recent:
            found.append(problem)
            recent.append(problem.core)
    return tuple(found)


def pick(rng: np.random.Generator, options: Sequence[T]) -> T:
    """One of ``options``, all equally likely."""
    return options[int(rng.integers(len(options)))]


def grade_worked(text: str, written: Sequence[str], data: Mapping[str, Any]) -> Grade:
    """Judge an answer that works towards ``Answer: N``: the number decides; of the steps ``written`` in ``text`` those
    count that the reference (``steps`` and ``result`` of ``data``) has at the same place."""
    found = RESULT.search(text)
    answer = found.group(1) if found else None
    right = sum(step == wanted for step, wanted in zip(written, data["steps"], strict=False))
    expected = str(data["result"])
    return Grade(answer == expected, answer, expected, right, len(data["steps"]))
