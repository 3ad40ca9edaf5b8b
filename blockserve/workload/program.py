"""Short programs that transform a list or a string, described in words and by an example.

One to four operations in their order, one line each; graded by running the program on further examples::

    Write f(a) for a list a: reverse it, then multiply every item by 3. Example: f([1, 2]) == [6, 3]
    def f(a):
        a = a[::-1]
        a = [v * 3 for v in a]
        return a
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from blockserve.workload.benchmarks.programs import grade_program
from blockserve.workload.problems import Problem, TaskFamily, pick

OPERATIONS = (1, 4)  # fewest and most
EXAMPLES = 6  # the grader's; the prompt shows one more
NUMBERS = (2, 6)
NAMES = ("f", "g", "work", "solve", "change", "convert")


@dataclass(frozen=True)
class Operation:
    """``told`` are ways to say it, ``code`` its line; ``{k}`` is a number."""

    told: tuple[str, ...]
    code: str


@dataclass(frozen=True)
class Kind:
    """What a program takes: the argument's name, how it is called, its operations and what it may return at last."""

    argument: str
    called: str
    operations: tuple[Operation, ...]
    returns: tuple[Operation, ...]


LISTS = Kind(
    "a",
    "list",
    (
        Operation(("reverse it", "turn it around"), "a = a[::-1]"),
        Operation(("sort it", "put it in order"), "a = sorted(a)"),
        Operation(("sort it from high to low", "sort it downwards"), "a = sorted(a, reverse=True)"),
        Operation(("drop the first {k} items", "leave out the first {k} items"), "a = a[{k}:]"),
        Operation(("keep the first {k} items", "cut it after {k} items"), "a = a[:{k}]"),
        Operation(("keep the last {k} items",), "a = a[-{k}:]"),
        Operation(("multiply every item by {k}", "make every item {k} times as large"), "a = [v * {k} for v in a]"),
        Operation(("add {k} to every item", "make every item {k} larger"), "a = [v + {k} for v in a]"),
        Operation(("keep the items above {k}",), "a = [v for v in a if v > {k}]"),
        Operation(("keep the items below {k}",), "a = [v for v in a if v < {k}]"),
        Operation(("remove duplicates", "keep every value once"), "a = list(dict.fromkeys(a))"),
    ),
    (
        Operation(("return it",), "return a"),
        Operation(("return its sum", "return the total"), "return sum(a)"),
        Operation(("return its length", "return how many items are left"), "return len(a)"),
    ),
)
STRINGS = Kind(
    "s",
    "string",
    (
        Operation(("reverse it", "turn it around"), "s = s[::-1]"),
        Operation(("make it upper case", "use capital letters"), "s = s.upper()"),
        Operation(("make it lower case", "use small letters"), "s = s.lower()"),
        Operation(("swap the case",), "s = s.swapcase()"),
        Operation(("drop the first {k} letters", "leave out the first {k} letters"), "s = s[{k}:]"),
        Operation(("keep the first {k} letters", "cut it after {k} letters"), "s = s[:{k}]"),
        Operation(("keep the last {k} letters",), "s = s[-{k}:]"),
        Operation(("write it {k} times", "repeat it {k} times"), "s = s * {k}"),
        Operation(("put it in brackets",), 's = "(" + s + ")"'),
        Operation(("join it to its reverse", "make it a palindrome"), "s = s + s[::-1]"),
    ),
    (
        Operation(("return it",), "return s"),
        Operation(("return its length", "return how many letters are left"), "return len(s)"),
    ),
)
WORDS = ("train", "stone", "Rain", "noise", "Orient", "senator", "east", "Toast", "insert", "Reason", "stair", "Notes")
ASKED = (
    "Write {name}({arg}) for a {called} {arg}: {told}. Example: {example}",
    "Write a function {name} that takes a {called} {arg}. First {told}. For example {example}",
    "Define {name}({arg}). It takes a {called}: {told}. So {example}",
)


def generate(rng: np.random.Generator) -> Problem:
    """Draw the kind, the operations with their numbers, and the examples."""
    kind = pick(rng, (LISTS, STRINGS))
    count = int(rng.integers(OPERATIONS[0], OPERATIONS[1] + 1))
    chosen = [kind.operations[i] for i in rng.permutation(len(kind.operations))[:count]]
    last = kind.returns[0] if rng.random() < 0.6 else pick(rng, kind.returns[1:])
    said, lines = zip(*(_say(rng, operation) for operation in [*chosen, last]), strict=True)
    told = ", then ".join(said if last is not kind.returns[0] else said[:-1])
    name = pick(rng, NAMES)
    body = "".join(f"\n    {line}" for line in lines)
    answer = f"def {name}({kind.argument}):{body}"
    example, *tests = _examples(rng, kind, name, answer)
    prompt = pick(rng, ASKED).format(name=name, arg=kind.argument, called=kind.called, told=told, example=example)
    return Problem(body, prompt + "\n", answer, {"tests": [f"assert {t}" for t in tests], "setup": ""})


def _say(rng: np.random.Generator, operation: Operation) -> tuple[str, str]:
    """The operation in words and as a line of code, its number filled in."""
    k = int(rng.integers(NUMBERS[0], NUMBERS[1] + 1))
    return pick(rng, operation.told).format(k=k), operation.code.format(k=k)


def _examples(rng: np.random.Generator, kind: Kind, name: str, program: str) -> list[str]:
    """``f(input) == output`` for inputs drawn here; the outputs are the reference program's own."""
    namespace: dict[str, object] = {}
    exec(program, namespace)  # ours: built from the tables above
    inputs = [_draw_list(rng) if kind is LISTS else _draw_string(rng, 1 + i % 2) for i in range(EXAMPLES + 1)]
    return [f"{name}({value!r}) == {namespace[name](value)!r}" for value in inputs]


def _draw_list(rng: np.random.Generator) -> list[int]:
    return rng.integers(0, 13, size=int(rng.integers(5, 10))).tolist()


def _draw_string(rng: np.random.Generator, words: int) -> str:
    return "".join(pick(rng, WORDS) for _ in range(words))


PROGRAM = TaskFamily(
    name="program",
    about="a short list or string transformation from words and an example, graded on further examples",
    generate=generate,
    grade=grade_program,
    max_new_tokens=96,
)
