"""Equations in one unknown, solved step by step: the long answers among the families.

Something is done to an unknown two to six times. The answer undoes the last of it first; every step writes what is
left of the equation, so that an answer grows with the square of the steps::

    Solve for x: (x + 3) * 2 - 4 = 10
     (x + 3) * 2 = 10 + 4 = 14. x + 3 = 14 / 2 = 7. x = 7 - 3 = 4. Answer: 4

Every value on the way is a whole number within 0 to 30.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from blockserve.workload.problems import Grade, Problem, TaskFamily, grade_worked, pick

STEPS = (2, 6)  # fewest and most
MAX_VALUE = 30
SOLUTIONS = (1, 20)
AMOUNTS = (2, 9)  # added and taken
FACTORS = (2, 5)  # multiplied and divided by
INVERSE = {"+": "-", "-": "+", "*": "/", "/": "*"}
UNKNOWNS = ("x", "y", "n", "t", "k", "z")
ASKED = (
    "Solve for {x}: {equation}",
    "Solve {equation} for {x}.",
    "Find {x} if {equation}.",
    "Given that {equation}, find {x}.",
    "What is {x} if {equation}?",
    "What number {x} makes this true: {equation}?",
)
TOLD = (
    "I think of a number {x}. I {story}. I get {value}. What is {x}?",
    "Take a number {x} and {story}. The result is {value}. Find {x}.",
)
WORDS = {"+": "add {k}", "-": "subtract {k}", "*": "multiply by {k}", "/": "divide by {k}"}

Step = tuple[str, int]  # sign and amount


def generate(rng: np.random.Generator) -> Problem:
    """Draw a solution, the steps that hide it, and a wording: an equation, or (one time in three) a story."""
    solution = int(rng.integers(SOLUTIONS[0], SOLUTIONS[1] + 1))
    steps, value = _draw_steps(rng, solution, int(rng.integers(STEPS[0], STEPS[1] + 1)))
    x = pick(rng, UNKNOWNS)
    if rng.random() < 1 / 3:
        story = ", ".join(WORDS[sign].format(k=k) for sign, k in steps)
        prompt = pick(rng, TOLD).format(x=x, story=story, value=value)
    else:
        prompt = pick(rng, ASKED).format(x=x, equation=f"{expression(x, steps)} = {value}")
    written = solve(x, steps, value)
    answer = "".join(f" {step}." for step in written) + f" Answer: {solution}"
    return Problem(f"{expression('x', steps)} = {value}", prompt, answer, {"steps": list(written), "result": solution})


def expression(x: str, steps: Sequence[Step]) -> str:
    """What the steps make of ``x``, bracketed only where a sum is multiplied or divided."""
    text, sum_last = x, False
    for sign, k in steps:
        if sign in "*/" and sum_last:
            text = f"({text})"
        text, sum_last = f"{text} {sign} {k}", sign in "+-"
    return text


def solve(x: str, steps: Sequence[Step], value: int) -> tuple[str, ...]:
    """The lines that undo the steps from the last to the first: ``what is left = value op amount = value``."""
    lines = []
    for done in range(len(steps) - 1, -1, -1):
        sign, k = steps[done]
        before = _apply(INVERSE[sign], value, k)
        lines.append(f"{expression(x, steps[:done])} = {value} {INVERSE[sign]} {k} = {before}")
        value = before
    return tuple(lines)


def _draw_steps(rng: np.random.Generator, value: int, count: int) -> tuple[list[Step], int]:
    """``count`` steps from ``value`` that stay whole and within bounds, and where they lead."""
    steps: list[Step] = []
    for _ in range(count):
        sign, k = pick(rng, _possible(value, steps[-1] if steps else None))
        steps.append((sign, k))
        value = _apply(sign, value, k)
    return steps, value


def _possible(value: int, last: Step | None) -> list[Step]:
    """Steps that may follow, none of which undoes the last; products count twice, being fewer."""
    amounts, factors = range(AMOUNTS[0], AMOUNTS[1] + 1), range(FACTORS[0], FACTORS[1] + 1)
    steps = [("+", k) for k in amounts if value + k <= MAX_VALUE] + [("-", k) for k in amounts if value >= k]
    scaled = [("*", k) for k in factors if value * k <= MAX_VALUE]
    scaled += [("/", k) for k in factors if value and value % k == 0]
    return [s for s in steps + 2 * scaled if last is None or s != (INVERSE[last[0]], last[1])]


def _apply(sign: str, value: int, k: int) -> int:
    return {"+": value + k, "-": value - k, "*": value * k, "/": value // k}[sign]


def grade(text: str, data: Mapping[str, Any]) -> Grade:
    """The number after ``Answer:`` decides; a step counts where the reference has the same line."""
    body, _, _ = text.partition("Answer:")
    return grade_worked(text, [line.strip() for line in body.split(".")], data)


ALGEBRA = TaskFamily(
    name="algebra",
    about="equations of two to six operations, undone step by step: long answers",
    generate=generate,
    grade=grade,
    max_new_tokens=160,
)
