"""Word problems in small numbers, worked out step by step.

A story starts with a number of things and tells one to six events that add or take some. The answer writes each
event with its sum, then the result::

    Mia has 17 apples. On the way home she buys 8 apples. She eats 6 apples. How many apples does Mia have now?
     Mia buys 8 apples: 17 + 8 = 25. Mia eats 6 apples: 25 - 6 = 19. Answer: 19

Numbers stay within 0 to 30 and the amounts of a story differ, so that a model of a million parameters can be
right nearly always: the family is there to give batches real and uneven work, not to be hard.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from blockserve.workload.problems import Grade, Problem, TaskFamily, grade_worked, pick

MAX_STEPS = 6
MAX_TOTAL = 30
STARTS = (2, 20)  # lowest and highest; from 2, so that "1 apples" is never said
AMOUNTS = (2, 9)


@dataclass(frozen=True)
class Scene:
    """Who may act, with what, and how: ``adds`` and ``takes`` are the verbs of + and −."""

    subjects: tuple[tuple[str, str], ...]  # (name, pronoun)
    things: tuple[str, ...]
    adds: tuple[str, ...]
    takes: tuple[str, ...]


PEOPLE = tuple((name, "she") for name in ("Mia", "Ana", "Zoe", "Lena", "Ruth", "Nora", "Ida", "Eva"))
PEOPLE += tuple((name, "he") for name in ("Tom", "Ben", "Max", "Leo", "Sam", "Paul", "Omar", "Finn"))
SHOPS = tuple((name, "it") for name in ("The shop", "The school", "The farm", "The club"))

SCENES = (
    Scene(
        PEOPLE,
        ("apples", "pears", "plums", "nuts", "eggs", "buns", "figs", "cakes"),
        ("buys", "picks", "finds", "gets", "bakes"),
        ("eats", "sells", "drops", "gives away"),
    ),
    Scene(
        PEOPLE,
        ("cards", "coins", "stamps", "shells", "beads", "books", "pens", "toys"),
        ("wins", "finds", "gets", "buys", "makes"),
        ("loses", "sells", "lends", "gives away"),
    ),
    Scene(
        SHOPS,
        ("boxes", "lamps", "chairs", "books", "balls", "bags", "eggs", "hats"),
        ("buys", "gets", "orders", "makes"),
        ("sells", "lends", "loses", "ships"),
    ),
)

OPENINGS = (
    "On Monday morning {name} has {start} {things}",
    "At the start of the week {name} has {start} {things} in all",
    "In the old house near the river {name} has {start} {things}",
    "{name} counts twice and has {start} {things}",
)
FILLERS = (
    "Then",
    "After that",
    "The next day",
    "Later that day",
    "On the way home",
    "A little later",
    "In the evening",
    "Before the rain starts",
    "When a friend comes by",
    "At the end of a long day",
)
QUESTIONS = (
    "How many {things} does {subject} have now?",
    "How many {things} are there in the end?",
    "How many {things} are left?",
    "What is the total now?",
)


@dataclass(frozen=True)
class Event:
    """One step of a story: ``verb`` ``amount`` things; ``sign`` is ``+`` or ``-``."""

    verb: str
    sign: str
    amount: int


def generate(rng: np.random.Generator) -> Problem:
    """Draw a story of 1 to 6 events (all equally likely), its wording and its worked answer."""
    start, signed = _draw_numbers(rng, int(rng.integers(1, MAX_STEPS + 1)))
    scene = pick(rng, SCENES)
    name, pronoun = pick(rng, scene.subjects)
    things = pick(rng, scene.things)
    events = tuple(
        Event(pick(rng, scene.adds if amount > 0 else scene.takes), "+" if amount > 0 else "-", abs(amount))
        for amount in signed
    )
    tell = pick(rng, (_tell_tersely, _tell_plainly, _tell_at_length))
    prompt = tell(rng, name, pronoun, start, things, events)
    equations, result = work_out(start, events)
    lines = (f" {name} {e.verb} {e.amount} {things}: {q}." for e, q in zip(events, equations, strict=True))
    core = f"{start}" + "".join(f"{e.sign}{e.amount}" for e in events)
    return Problem(core, prompt, "".join(lines) + f" Answer: {result}", {"steps": list(equations), "result": result})


def work_out(start: int, events: tuple[Event, ...]) -> tuple[tuple[str, ...], int]:
    """The equation of every event, as text, and the result."""
    equations, total = [], start
    for event in events:
        after = total + event.amount if event.sign == "+" else total - event.amount
        equations.append(f"{total} {event.sign} {event.amount} = {after}")
        total = after
    return tuple(equations), total


def _draw_numbers(rng: np.random.Generator, steps: int) -> tuple[int, list[int]]:
    """A start and ``steps`` signed amounts that differ in size and keep every total within 0 to `MAX_TOTAL`."""
    start = total = int(rng.integers(STARTS[0], STARTS[1] + 1))
    signed: list[int] = []
    for amount in rng.permutation(np.arange(AMOUNTS[0], AMOUNTS[1] + 1))[:steps].tolist():
        if total < amount:
            sign = 1
        elif total + amount > MAX_TOTAL:
            sign = -1
        else:
            sign = 1 if rng.random() < 0.5 else -1
        signed.append(sign * amount)
        total += sign * amount
    return start, signed


def _tell_tersely(rng, name, pronoun, start, things, events) -> str:
    """``Mia: 17 apples, buys 8, eats 6. How many?``"""
    parts = ", ".join(f"{e.verb} {e.amount}" for e in events)
    return f"{name}: {start} {things}, {parts}. How many?"


def _tell_plainly(rng, name, pronoun, start, things, events) -> str:
    """One short sentence an event."""
    told = " ".join(f"{pronoun.capitalize()} {e.verb} {e.amount}{_object(rng, e, things)}." for e in events)
    return f"{name} has {start} {things}. {told} {_question(rng, name, pronoun, things)}"


def _tell_at_length(rng, name, pronoun, start, things, events) -> str:
    """Sentences with where and when, as people tell them."""
    opening = pick(rng, OPENINGS).format(name=name, start=start, things=things)
    told = []
    for e in events:
        filler, who = pick(rng, FILLERS), pick(rng, (name, pronoun)).replace("The", "the")
        told.append(f"{filler} {who} {e.verb} {e.amount}{_object(rng, e, things)}.")
    return f"{opening}. {' '.join(told)} {_question(rng, name, pronoun, things)}"


def _object(rng: np.random.Generator, event: Event, things: str) -> str:
    return pick(rng, ("", f" {things}", " more" if event.sign == "+" else f" of the {things}"))


def _question(rng: np.random.Generator, name: str, pronoun: str, things: str) -> str:
    return pick(rng, QUESTIONS).format(things=things, subject=pick(rng, (name.replace("The", "the"), pronoun)))


STEP = re.compile(r"(\d+) ([+-]) (\d+) = (\d+)")


def grade(text: str, data: Mapping[str, Any]) -> Grade:
    """Judge ``text``: the number after ``Answer:`` decides; a step counts where the reference has the same equation."""
    return grade_worked(text, [m.group(0) for m in STEP.finditer(text)], data)


ARITHMETIC = TaskFamily(
    name="arithmetic",
    about="word problems of one to six steps in small numbers, every step written out",
    generate=generate,
    grade=grade,
    max_new_tokens=80,
)
